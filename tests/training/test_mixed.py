"""Unequal GPUs: shares in proportion."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.training.mixed import between_time, mixed_step, mixed_training
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.step import train
from perfmodel.workloads.catalog import named_model


def test_v100_beside_a100_by_hand():
    # an A100 three times as fast: 2 and 6 of 8 samples end together after 2 s; 4 and 4 would end after 4 s
    step = mixed_step(8, [1.0, 3.0])
    assert step.samples == (2, 6)
    assert (step.time_s, step.equal_s, step.speedup) == (2.0, 4.0, 2.0)


def test_equal_gpus_gain_nothing():
    step = mixed_step(64, [2.0] * 8)
    assert step.samples == (8,) * 8
    assert step.speedup == 1.0


@given(samples=st.integers(1, 500), rates=st.lists(st.floats(0.1, 100), min_size=1, max_size=12))
def test_all_samples_are_given_and_no_share_is_better(samples, rates):
    step = mixed_step(samples, rates)
    assert sum(step.samples) == samples
    assert step.bound_s <= step.time_s * (1 + 1e-9)
    assert step.time_s <= step.equal_s * (1 + 1e-9)
    # moving the last sample of the slowest elsewhere would end no earlier
    slowest = max(range(len(rates)), key=lambda i: step.samples[i] / rates[i])
    others = [(step.samples[i] + 1) / rates[i] for i in range(len(rates)) if i != slowest]
    assert all(other >= step.time_s * (1 - 1e-9) for other in others)


@pytest.mark.parametrize(("samples", "rates"), [(8, []), (8, [0.0]), (0, [1.0])])
def test_what_is_none_is_refused(samples, rates):
    with pytest.raises(UsageError):
        mixed_step(samples, rates)


def test_clusters_sum_their_gradients_over_the_slower_network():
    config = named_model("gpt2")
    # micro batches that are long enough for the GPUs not to wait for their hosts, which are alike
    plan = TrainingPlan(batch=256, micro_batch=4, seq=1024, dtype="fp16", grad_dtype="fp16", framework="huggingface")
    clusters = [
        Cluster.of(hardware("a100-sxm4-80gb"), 8, nic=25e9),
        Cluster.of(hardware("v100-sxm2-32gb"), 8, nic=12.5e9),
    ]
    by_hand = 2 * 1 / 2 * 2.0 * config.parameters / (8 * 12.5e9 * 0.85) + 2 * 14e-6 * 2**1.2  # steps of the slower one
    assert between_time(config, clusters, plan) == pytest.approx(by_hand)
    step = mixed_training(config, clusters, plan)
    assert step.exchange_s == pytest.approx(by_hand)
    assert step.bound_s < step.time_s < step.equal_s
    assert between_time(config, [clusters[0], Cluster.of(hardware("v100-sxm2-32gb"), 8)], plan) == 0


@given(
    rounds=st.lists(st.integers(1, 40), min_size=2, max_size=4),
    units=st.lists(st.sampled_from((1, 2, 8, 12)), min_size=4, max_size=4),
    rates=st.lists(st.floats(0.1, 100), min_size=4, max_size=4),
    fixed=st.lists(st.floats(0, 5), min_size=4, max_size=4),
)
def test_units_stay_whole_and_each_gpu_has_one(rounds, units, rates, fixed):
    count = len(rounds)
    samples = sum(unit * number for unit, number in zip(units[:count], rounds, strict=True))
    step = mixed_step(samples, rates[:count], units[:count], fixed[:count])
    assert sum(step.samples) == samples
    assert all(share >= unit and share % unit == 0 for share, unit in zip(step.samples, units[:count], strict=True))
    assert step.bound_s <= step.time_s * (1 + 1e-9)


@given(
    samples=st.integers(20, 60),
    units=st.lists(st.integers(1, 8), min_size=2, max_size=3),
    rates=st.lists(st.floats(0.1, 40), min_size=3, max_size=3),
    fixed=st.lists(st.floats(0, 5), min_size=3, max_size=3),
)
def test_no_other_shares_end_earlier(samples, units, rates, fixed):
    ends = [
        max(start + share / rate for share, rate, start in zip(shares, rates, fixed, strict=False))
        for shares in itertools.product(*(range(unit, samples + 1, unit) for unit in units))
        if sum(shares) == samples
    ]
    asked = (samples, rates[: len(units)], units, fixed[: len(units)])
    if ends:
        assert mixed_step(*asked).time_s == pytest.approx(min(ends))
    else:
        with pytest.raises(UsageError, match="are no shares in micro batches of all ranks"):
            mixed_step(*asked)


def test_unequal_clusters_share_the_batch_in_micro_batches_of_all_ranks():
    """16 sequences on 8 + 8 GPUs: no V100 runs less than a sequence, whose time is that of the step."""
    config, plan = named_model("llama-3.1-8b"), TrainingPlan(batch=16, seq=2048, dtype="fp16", framework="megatron-te")
    clusters = [Cluster.of(hardware(name), 8) for name in ("a100-sxm4-80gb", "v100-sxm2-32gb")]
    step = mixed_training(config, clusters, plan)
    assert step.samples == (8, 8)
    assert step.time_s == train(config, clusters[1], plan.changed(batch=8)).time_s
    more = mixed_training(config, clusters, plan.changed(batch=48, micro_batch=2))
    assert more.samples == (32, 16)
    ends = [
        train(config, cluster, plan.changed(batch=share, micro_batch=2)).time_s
        for cluster, share in zip(clusters, more.samples, strict=True)
    ]
    assert more.time_s == max(ends)
    with pytest.raises(UsageError, match=r"17 sequences are no shares.*batch=16"):
        mixed_training(config, clusters, plan.changed(batch=17))
    with pytest.raises(UsageError, match="batch=16"):
        mixed_training(config, clusters, plan.changed(batch=8))


def test_unequal_clusters_run_dualpipe_in_as_many_micro_batches_as_it_needs():
    """Each cluster has an even number of micro batches, and 2 pp at least."""
    config = named_model("llama-3.1-8b")
    plan = TrainingPlan(batch=128, seq=2048, pp=4, schedule="dualpipe", framework="megatron-te")
    clusters = [Cluster.of(hardware(name), 8) for name in ("h100-sxm5-80gb", "a100-sxm4-80gb")]
    step = mixed_training(config, clusters, plan)
    assert sum(step.samples) == 128
    assert step.samples[0] > step.samples[1] >= 2 * 8
    assert all(share % 4 == 0 for share in step.samples)
    ends = [
        train(config, cluster, plan.changed(batch=share)).time_s
        for cluster, share in zip(clusters, step.samples, strict=True)
    ]
    assert step.time_s - step.exchange_s == pytest.approx(max(ends))
    assert step.bound_s <= step.time_s <= step.equal_s
    with pytest.raises(UsageError, match=r"28 sequences are no shares.* and of 32 at least.*batch=32"):
        mixed_training(config, clusters, plan.changed(batch=28))

"""Compressed gradients and other what-ifs of a step."""

from __future__ import annotations

import pytest

from perfmodel.cluster.cluster import Cluster
from perfmodel.cluster.collectives import Group, exchange_time
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.training.adapters import adapter_parameters
from perfmodel.training.compression import CompressedExchange, Compression, compressed_data_s
from perfmodel.training.options import with_compression, with_loading, with_stragglers
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.step import train
from perfmodel.workloads.catalog import named_model

LLAMA = named_model("llama-3.1-8b")
SLOW = Cluster.of(hardware("a100-sxm4-80gb"), 32, nic="10Gb/s")
PLAN = TrainingPlan(batch=32, seq=2048, tp=8, zero=0, framework="megatron-te")


def test_what_is_sent_of_a_matrix_by_hand():
    assert Compression.parse("topk:0.01").sent_bytes(1000, 1000) == 0.01 * 1e6 * 8  # a value and an index
    assert Compression.parse("topk:1%") == Compression.parse("topk:0.01") == Compression.parse("topk")
    assert Compression.parse("powersgd:4").sent_bytes(1000, 500) == 4 * 1500 * 4  # two factors in fp32
    assert Compression.parse("1bit").sent_bytes(1000, 1000) == 1e6 / 8
    assert Compression.parse("fp8").sent_bytes(1000, 1000) == 1e6


def test_a_slow_network_gains_and_the_kernels_cost():
    step = train(LLAMA, SLOW, PLAN)
    faster = with_compression(LLAMA, step, "powersgd:4")
    assert faster.terms_s["data"] < step.terms_s["data"]
    assert faster.terms_s["compression"] > 0
    assert faster.time_s == pytest.approx(sum(faster.terms_s.values()))
    assert faster.time_s < step.time_s
    assert "powersgd:4" in faster.notes[-1]


def test_gathered_methods_move_more_with_more_ranks():
    few, many = (SLOW.resized(count) for count in (16, 128))
    times = []
    for cluster in (few, many):
        step = train(LLAMA, cluster, PLAN.changed(batch=cluster.gpus))
        times.append(compressed_data_s(LLAMA, step, Compression.parse("1bit")).exchange_s)
    assert times[1] > 4 * times[0]


def test_one_rank_compresses_nothing():
    step = train(LLAMA, SLOW.resized(8), PLAN)
    with pytest.raises(UsageError, match="exchanges no gradients"):
        compressed_data_s(LLAMA, step, Compression.parse("fp8"))


@pytest.mark.parametrize("text", ["zip", "topk:2", "topk:x", "powersgd:0", "1bit:3"])
def test_what_is_no_method_is_refused(text):
    with pytest.raises(UsageError):
        Compression.parse(text)


def test_gradients_that_are_shared_out_are_refused():
    step = train(LLAMA, SLOW, PLAN.changed(zero=3))
    with pytest.raises(UsageError, match="zero = 3"):
        with_compression(LLAMA, step, "fp8")


def test_stragglers_and_loaders_add_terms():
    step = train(LLAMA, SLOW, PLAN)
    jittery = with_stragglers(step, 0.02)
    assert jittery.time_s == pytest.approx(step.time_s + jittery.terms_s["stragglers"])
    assert 1.01 < jittery.time_s / step.time_s < 1.1
    # 32 sequences from one loader at 1 a second take 32 s
    starved = with_loading(step, 1, 1.0)
    assert starved.time_s == pytest.approx(max(32.0, step.time_s))
    assert with_loading(step, 1000, 1000.0).time_s == step.time_s


def width(step):
    """Return the upper end of a step's interval over the lower one."""
    return step.high_s / step.low_s


def holds(step) -> bool:
    """Return whether every interval of a step is positive and holds what it is about."""
    spans = ((step.low_s, step.high_s), step.own_interval_s, step.laboratory_interval_s)
    return all(0.0 < low <= step.time_s <= high for low, high in spans)


@pytest.mark.parametrize("text", ["powersgd:4", "fp8", "topk:1%", "1bit"])
def test_less_of_an_unsure_exchange_makes_a_step_surer(text):
    """Gradients through hosts, which differ tenfold, are most of the step; the fewer they are, the less it may vary."""
    config = named_model("llama-3.2-1b")
    step = train(config, Cluster.of(hardware("l40s"), 8), TrainingPlan(batch=8, seq=1024, zero=1))
    compressed = with_compression(config, step, text)
    assert holds(compressed)
    shares = [one.terms_s["data"] / one.time_s for one in (step, compressed)]
    assert shares[1] < shares[0]
    assert width(compressed) < width(step)


def test_compression_leaves_the_width_of_a_step_whose_links_are_known():
    step = train(LLAMA, SLOW, PLAN)
    compressed = with_compression(LLAMA, step, "powersgd:4")
    assert holds(compressed)
    assert width(compressed) == pytest.approx(width(step))


def test_jitter_makes_both_ends_longer_by_its_factor():
    step = train(LLAMA, SLOW, PLAN)
    jittery = with_stragglers(step, 0.3)
    assert holds(jittery)
    assert width(jittery) == pytest.approx(width(step))
    assert jittery.own_interval_s[1] / step.own_interval_s[1] == pytest.approx(jittery.time_s / step.time_s)


def test_no_end_of_an_interval_is_below_what_loading_takes():
    step = train(LLAMA, SLOW, PLAN)
    rate = PLAN.batch / (0.5 * (step.time_s + step.high_s))  # slower than expected, and than a slow step needs
    for per_s, floor in ((0.1, PLAN.batch / 0.1), (rate, PLAN.batch / rate), (1e6, 0.0)):
        starved = with_loading(step, 1, per_s)
        assert holds(starved)
        assert starved.low_s == max(step.low_s, floor)
        assert starved.high_s == max(step.high_s, floor)
        assert starved.time_s == pytest.approx(sum(starved.terms_s.values()))


MIXTRAL = named_model("mixtral-8x7b")
OPEN = PLAN.changed(tp=1, batch=64, framework="megatron-2021")  # which hides nothing


def compressed(**plan) -> CompressedExchange:
    step = train(MIXTRAL, SLOW, OPEN.changed(**plan), checked=False)
    return compressed_data_s(MIXTRAL, step, Compression.parse("fp8"))


def summed(ranks: int, stride: int, gradients: float) -> float:
    return exchange_time(Group(SLOW, ranks, stride), "all_reduce", gradients)  # of one byte each


def test_gradients_of_experts_are_compressed_among_the_ranks_that_have_the_same():
    """Of 32 ranks four have the same expert of 8: other gradients are summed by all of them."""
    experts = MIXTRAL.layers * MIXTRAL.experts * MIXTRAL.expert_parameters
    rest = MIXTRAL.parameters - experts - MIXTRAL.outer_norm_parameters  # whose exchange takes no time
    found = compressed(ep=8)
    assert found.exchange_s == pytest.approx(summed(32, 1, rest) + summed(4, 8, experts / 8), rel=1e-3)
    assert found.ratio == pytest.approx(2.0)  # Megatron-LM of 2021 exchanges 16 bits


def test_gradients_of_frozen_weights_are_not_compressed():
    whole, adapters = compressed(), compressed(lora=16)
    assert adapters.exchange_s == pytest.approx(summed(32, 1, adapter_parameters(MIXTRAL, 16)))
    assert adapters.exchange_s < 0.01 * whole.exchange_s
    assert adapters.kernels_s < 0.1 * whole.kernels_s

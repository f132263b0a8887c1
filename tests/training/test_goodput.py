"""Checkpoints and failures: limiting cases by hand, and Daly's optimum found by search."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.cluster.cluster import Cluster
from perfmodel.core.units import HOUR_S
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.training.adapters import adapter_parameters
from perfmodel.training.goodput import (
    GPU_MTBF_S,
    daly_interval_s,
    goodput,
    useful_fraction,
    young_interval_s,
)
from perfmodel.training.memory import checkpoint_bytes, training_memory
from perfmodel.training.plan import TrainingPlan
from perfmodel.workloads.catalog import named_model


def test_young_by_hand():
    # a checkpoint of 60 s and a failure every 3 h 20 min: sqrt(2 x 60 x 12000) = 1200 s
    assert young_interval_s(60.0, 12_000.0) == 1200.0


@pytest.mark.parametrize(("pause", "mtbf"), [(10.0, 1e5), (60.0, 12_000.0), (300.0, 3600.0)])
def test_daly_is_the_best_interval_of_the_complete_model(pause, mtbf):
    intervals = np.geomspace(pause / 10, 10 * mtbf, 20_000)
    shares = [useful_fraction(float(tau), pause, 100.0, mtbf) for tau in intervals]
    assert daly_interval_s(pause, mtbf) == pytest.approx(intervals[int(np.argmax(shares))], rel=0.01)


def test_checkpoints_that_last_longer_than_the_machine_are_written_once_a_failure():
    assert daly_interval_s(100.0, 40.0) == 40.0


def test_without_failures_only_the_pauses_are_lost():
    assert useful_fraction(1000.0, 50.0, 1e3, 1e15) == pytest.approx(1000 / 1050)


def test_a_run_that_fails_before_each_checkpoint_is_of_no_use():
    assert useful_fraction(1e6, 10.0, 10.0, 1.0) == 0.0


def test_the_source_of_the_failure_rate():
    # 16,384 GPUs for 54 days: 419 interruptions, 7.8 a day
    run = goodput(5.67e12, 16_384, store_bytes_per_s=1e12)
    assert run.failures_per_day == pytest.approx(419 / 54)
    assert run.mtbf_s == pytest.approx(54 * 24 * HOUR_S / 419)
    assert pytest.approx(50_690 * HOUR_S, rel=0.001) == GPU_MTBF_S


@pytest.mark.parametrize("gpus", [512, 16_384])
def test_the_interval_by_default_wastes_least_of_all(gpus):
    best = goodput(0.98e12, gpus, store_bytes_per_s=20e9)
    for factor in (0.7, 0.9, 1.1, 1.4):
        other = goodput(0.98e12, gpus, store_bytes_per_s=20e9, interval_s=factor * best.interval_s)
        assert other.interval_s == factor * best.interval_s
        assert other.fraction < best.fraction


def test_bytes_and_pauses_by_hand():
    # 70e9 parameters x 14 B = 0.98 TB: 49 s to a store of 20 GB/s; 512 GPUs copy 1.914 GB each at 25 GB/s
    saved = goodput(0.98e12, 512, store_bytes_per_s=20e9, copy_bytes_per_s=25e9)
    assert (saved.checkpoint_bytes, saved.pause_s) == (0.98e12, 49.0)
    beside = goodput(0.98e12, 512, store_bytes_per_s=20e9, copy_bytes_per_s=25e9, synchronous=False)
    assert beside.pause_s == pytest.approx(0.98e12 / 512 / 25e9)
    assert beside.interval_s >= beside.write_s == 49.0
    assert beside.fraction > saved.fraction


@given(
    gpus=st.integers(1, 10**6),
    bandwidth=st.floats(1e8, 1e13),
    restart=st.floats(0, 1e5),
    factor=st.floats(1.01, 100),
)
def test_shares_are_shares_and_fall_with_gpus_and_restarts(gpus, bandwidth, restart, factor):
    run = goodput(1.4e11, gpus, store_bytes_per_s=bandwidth, restart_s=restart)
    assert 0.0 <= run.fraction <= 1.0
    more = goodput(1.4e11, math.ceil(gpus * factor), store_bytes_per_s=bandwidth, restart_s=restart)
    assert more.fraction <= run.fraction + 1e-9
    slower = goodput(1.4e11, gpus, store_bytes_per_s=bandwidth, restart_s=restart * factor)
    assert slower.fraction <= run.fraction + 1e-12


@pytest.mark.parametrize(
    "change", [{"store_bytes_per_s": 0.0}, {"gpu_mtbf_s": -1.0}, {"restart_s": math.nan}, {"interval_s": 0.0}]
)
def test_figures_that_are_none_are_refused(change):
    with pytest.raises(UsageError):
        goodput(1.4e10, 8, **({"store_bytes_per_s": 1e9} | change))


LLAMA = named_model("llama-3.1-8b")
CLUSTER = Cluster.of(hardware("h100-sxm5-80gb"), 8)
PLAN = TrainingPlan(batch=64, seq=2048, framework="megatron-te")
OUTER = LLAMA.embedding_parameters + LLAMA.head_parameters


@pytest.mark.parametrize(
    ("plan", "saved"),
    [
        ({}, 14.0 * LLAMA.parameters),  # weight 2, master weight 4, moments 8
        ({"tp": 2, "pp": 2, "zero": 0}, 14.0 * LLAMA.parameters),  # copies are saved once
        ({"framework": "fsdp2-compile", "zero": 3}, 12.0 * LLAMA.parameters),  # weight 4, no other one, moments 8
        ({"optimizer": "sgd"}, 10.0 * LLAMA.parameters),
        ({"optimizer": "muon"}, 10.0 * LLAMA.parameters + 4.0 * OUTER),  # Adam's second moment there alone
        ({"optimizer": "adam-8bit"}, (6.0 + 2.0 * (1.0 + 4.0 / 256)) * LLAMA.parameters),
        ({"optimizer": "adam-bf16"}, 6.0 * LLAMA.parameters),
        ({"optimizer": "none"}, 2.0 * LLAMA.parameters),
        ({"lora": 16}, 14.0 * adapter_parameters(LLAMA, 16)),
    ],
)
def test_a_checkpoint_has_what_is_trained_and_what_the_optimizer_keeps(plan, saved):
    assert checkpoint_bytes(LLAMA, CLUSTER, PLAN.changed(**plan)) == pytest.approx(saved)


def test_a_checkpoint_and_the_memory_of_one_gpu_agree():
    """One GPU holds what a checkpoint has: weights and the optimizer's state."""
    one, plan = Cluster.of(hardware("h100-sxm5-80gb"), 1), TrainingPlan(batch=1, seq=512, optimizer="muon")
    held = training_memory(LLAMA, one, plan.changed(framework="fsdp2-compile")).peak.parts
    saved = checkpoint_bytes(LLAMA, one, plan.changed(framework="fsdp2-compile"))
    assert saved == pytest.approx(held["weights"] + held["optimizer"], rel=1e-6)

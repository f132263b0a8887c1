"""Steps that cannot be true: more work in less time, more than the peak, and plans at the edges of what runs."""

from __future__ import annotations

import numpy as np
import pytest

import perfmodel as pm

TITAN = {"framework": "torchtitan", "zero": 3, "dtype": "bf16"}


def step(model: str, machine: str, gpus: int, **plan: object) -> pm.TrainingStep:
    return pm.train(model, pm.Cluster(machine, gpus=gpus, nic="400Gb/s"), pm.TrainingPlan(**plan))  # type: ignore[arg-type]


@pytest.mark.parametrize("pp", [2, 4])
def test_more_sequences_take_no_less_time_where_weights_stay_gathered(pp: int) -> None:
    times = [step("gemma-2-9b", "h100", 64, batch=b, seq=64, pp=pp, **TITAN).time_s for b in (64, 128, 256, 1024)]
    assert times == sorted(times)


@pytest.mark.parametrize(("vp", "batches"), [(1, (16, 32, 64, 128)), (2, (64, 128, 256))])
def test_more_sequences_take_no_less_time_where_stages_exchange_unequal_gradients(
    vp: int, batches: tuple[int, ...]
) -> None:
    """All stages take as long, since they wait for the host; those with embedding or head exchange a third more."""
    model = "layers=24 hidden=2048 heads=16 vocab=50304"
    plan = {"seq": 512, "pp": 4, "vp": vp, "zero": 1, "framework": "fsdp2-eager"}
    cluster = pm.Cluster("l40s", gpus=64, gpus_per_node=8, nic="100Gb/s")
    steps = [pm.train(model, cluster, pm.TrainingPlan(batch=batch, **plan)) for batch in batches]
    times, exchanges = [step.time_s for step in steps], [step.terms_s["data"] for step in steps]
    assert times == sorted(times)
    assert exchanges == pytest.approx([exchanges[0]] * len(exchanges), rel=0.02)


def test_full_recomputation_takes_no_less_time_where_stages_exchange_unequal_gradients() -> None:
    plan = {"batch": 32, "seq": 512, "tp": 4, "pp": 4, "framework": "fsdp2-compile", "dtype": "fp8"}
    times = [step("llama-3.1-8b", "h200", 256, **plan, recompute=how).time_s for how in ("none", "full")]
    assert times == sorted(times)


def test_tensor_parallel_ranks_may_have_less_than_a_token_each() -> None:
    one = step("bert-large", "a10", 8, batch=32, seq=1, tp=8, dtype="tf32", framework="torchtitan")
    assert 0 < one.low_s <= one.time_s <= one.high_s < np.inf


@pytest.mark.waiting
@pytest.mark.parametrize("machine", [*pm.hardware_names()])
@pytest.mark.parametrize(("model", "seq"), [("llama-3.1-8b", 4096), ("gpt2", 1024), ("llama-3.1-8b", 131072)])
def test_no_step_reaches_its_machines_peak(machine: str, model: str, seq: int) -> None:
    dtype = next(name for name in ("bf16", "fp16", "fp32") if name in pm.hardware(machine).dtypes())
    plan = {"batch": 8, "seq": seq, "dtype": dtype, "framework": "torchtitan"}
    # the memory of an H20-3e feeds its few units easily: 0.755
    assert 0.0 < step(model, machine, 8, **plan).mfu < (0.8 if machine == "h20-3e-141gb" else 0.75)

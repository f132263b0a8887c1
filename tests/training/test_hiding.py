"""What two things hide behind the same passes: less to hide behind, or more in pairs, makes no step slower."""

from __future__ import annotations

import random
from typing import Any

import pytest

from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.training.framework import frameworks
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.result import TrainingStep
from perfmodel.training.setup import setup_of
from perfmodel.training.step import pipeline_gpus, train
from perfmodel.training.update import beside_passes
from perfmodel.workloads.catalog import named_model
from perfmodel.workloads.model_config import ModelConfig

MACHINES = ("h100-sxm5-80gb", "a100-sxm4-80gb", "b200-sxm-180gb", "gh200-96gb")
HOSTS = ("none", "parameters", "activations", "optimizer,activations", "optimizer,parameters,activations")


def drawn(dice: random.Random, models: tuple[str, ...], vp: int = 1) -> tuple[ModelConfig, Cluster, TrainingPlan]:
    """Return a random set-up that runs."""
    while True:
        config, tp, dp = named_model(dice.choice(models)), dice.choice((1, 2, 4)), dice.choice((2, 4, 8))
        pp, micro_batch = dice.choice((1, 2, 4)), dice.choice((1, 2))
        values: dict[str, Any] = {
            "batch": dp * micro_batch * pp * dice.choice((1, 2, 4)), "seq": dice.choice((512, 2048, 4096)), "tp": tp,
            "pp": pp, "vp": vp if pp > 1 else 1, "micro_batch": micro_batch, "zero": dice.choice((0, 1, 2, 3)),
            "ep": 2 if config.experts else 1, "recompute": dice.choice(("none", "full")),
            "framework": dice.choice(sorted(frameworks())), "offload": dice.choice(HOSTS),
        }  # fmt: skip
        host = dice.choice(("30GB/s", "80GB/s", "300GB/s")) if values["offload"] != "none" else None
        nic = dice.choice((6.25e9, 50e9))
        try:
            machine = hardware(dice.choice(MACHINES))
            cluster = Cluster.of(machine, tp * pp * dp, gpus_per_node=8, nic=nic, host_bandwidth=host)
            plan = TrainingPlan(**values)
            train(config, cluster, plan)
        except UsageError:
            continue
        return config, cluster, plan


def both(case: tuple[ModelConfig, Cluster, TrainingPlan], **changes: Any) -> tuple[TrainingStep, TrainingStep]:
    """Return a step, and the same with something changed."""
    config, cluster, plan = case
    return train(config, cluster, plan), train(config, cluster, plan.changed(**changes))


@pytest.mark.parametrize("seed", range(12))
def test_pairs_make_no_step_slower(seed: int) -> None:
    """What fills and drains a pipeline waits for copies and gathers of passes alone, which pairs do not lengthen."""
    case = drawn(random.Random(seed), ("qwen3-30b-a3b", "mixtral-8x7b", "gpt-oss-20b"), vp=2)
    apart, paired = both(case, expert_overlap=True)
    assert paired.time_s <= apart.time_s * (1.0 + 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_documents_make_no_step_slower(seed: int) -> None:
    """Attention that is shorter hides less; kernels of documents as short as a tile alone may take longer."""
    case = drawn(random.Random(seed), ("llama-3.2-1b", "llama-3.1-8b", "gemma-2-9b"))
    whole, packed = both(case, documents=(128,))
    assert packed.time_s <= whole.time_s * 1.005


def test_gradients_are_reduced_while_passes_wait_for_activations() -> None:
    """Attention of documents is 52 ms shorter, copies wait 49 ms longer: the network has as long as before."""
    cluster = Cluster.of(hardware("a100-sxm4-80gb"), 16, gpus_per_node=8, nic=6.25e9, host_bandwidth="300GB/s")
    plan = TrainingPlan(
        batch=8, seq=4096, micro_batch=4, tp=4, cp=2, zero=2, framework="nemo-24.09", offload="activations"
    )
    whole, packed = both((named_model("llama-3.1-8b"), cluster, plan), documents=(128,))
    assert packed.terms_s["offload"] > whole.terms_s["offload"]
    assert packed.terms_s["data"] == pytest.approx(whole.terms_s["data"], rel=0.05)
    assert packed.time_s <= whole.time_s


def test_the_network_shares_the_link_of_the_gpu_with_copies_of_the_host() -> None:
    """Behind one slot: copies that fill a pass leave an exchange over the network no time of the link.

    Activations of a backward pass occupy an eighth of 100 GB/s nearly all the time: gradients at 24 GB/s come after
    them, and at 2 GB/s beside them.
    """
    plan = TrainingPlan(batch=16, seq=2048, zero=1, framework="megatron-te", offload="activations")
    waits = []
    for nic in (2e9, 24e9):
        cluster = Cluster.of(hardware("a100-sxm4-80gb"), 16, gpus_per_node=8, nic=nic, host_bandwidth="100GB/s")
        setup = setup_of(named_model("llama-3.1-8b"), cluster, plan)
        gpu = pipeline_gpus(setup)[0]
        assert gpu.offload_s > 0
        waits.append(beside_passes(setup, gpu, 0.3) / 0.3)
    assert waits[0] < 0.35
    assert waits[1] > 0.9


def test_a_span_is_a_pass_and_its_waits() -> None:
    plan = TrainingPlan(batch=8, seq=2048, zero=3, framework="deepspeed", offload="parameters,activations")
    setup = setup_of(named_model("llama-3.1-8b"), Cluster.of(hardware("h100-sxm5-80gb"), 8), plan)
    gpu = pipeline_gpus(setup)[0]
    assert sum(gpu.spans_s) == pytest.approx(float(gpu.forward.sum() + gpu.backward.sum()) + gpu.offload_s)
    assert gpu.spans_s[0] > float(gpu.forward.sum())
    assert gpu.spans_s[1] > float(gpu.backward.sum())
    assert gpu.alone_s == gpu.time_s

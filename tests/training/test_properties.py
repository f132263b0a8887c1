"""Properties that hold for any plan: sums, and which way a step and its memory go when one thing changes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.training.framework import find_framework, frameworks
from perfmodel.training.memory import training_memory
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.result import TrainingStep
from perfmodel.training.step import train
from perfmodel.workloads.catalog import named_model
from perfmodel.workloads.model_config import ModelConfig

MODELS = ("gpt2", "llama-3.2-1b", "llama-3.1-70b", "mixtral-8x7b", "deepseek-v3", "gemma-2-9b", "gpt-oss-20b")
MACHINES = ("v100-sxm2-32gb", "a100-sxm4-80gb", "h100-sxm5-80gb", "b200-sxm-180gb", "mi300x", "rtx-4090", "gb200-nvl72")
#: less than the predicted times of neighbouring sizes differ by where these lie on different tiles
ROUNDING = 1e-3


class Case(NamedTuple):
    """A model, a cluster and a plan that runs."""

    config: ModelConfig
    cluster: Cluster
    plan: TrainingPlan

    def step(self, cluster: Cluster | None = None, **changes: Any) -> TrainingStep:
        return train(self.config, cluster or self.cluster, self.plan.changed(**changes), checked=False)

    def used_bytes(self, **changes: Any) -> float:
        """What lives at the peak of the fullest GPU."""
        memory = training_memory(self.config, self.cluster, self.plan.changed(**changes))
        return max(stage.used_bytes for stage in memory.stages)

    def on(self, **changes: Any) -> Cluster:
        """The cluster with other GPUs, nodes or another network."""
        sizes = {"gpus": self.cluster.gpus, "gpus_per_node": 8, "nic": 12.5e9, **changes}
        machine = hardware(sizes.pop("machine", self.cluster.hardware.name))
        return Cluster.of(machine, sizes.pop("gpus"), **sizes)


def drawn(seed: int) -> Case:
    """Return a random set-up that runs."""
    dice = random.Random(seed)
    while True:
        config, machine = named_model(dice.choice(MODELS)), dice.choice(MACHINES)
        tp, pp, cp, dp = (dice.choice(sizes) for sizes in ((1, 1, 2, 4, 8), (1, 1, 2, 4), (1, 1, 2), (1, 2, 4)))
        micro_batch = dice.choice((1, 2, 4))
        values = {
            "batch": dp * micro_batch * pp * dice.choice((1, 2, 4)), "seq": dice.choice((512, 2048, 4096)),
            "micro_batch": micro_batch, "tp": tp, "pp": pp, "cp": cp, "zero": dice.choice((0, 1, 2, 3)),
            "vp": dice.choice((1, 2)) if pp > 1 else 1, "ep": dice.choice((1, 2, 4)) if config.experts else 1,
            "recompute": dice.choice(("none", "selective", "full")), "framework": dice.choice(sorted(frameworks())),
            "dtype": "fp16" if "v100" in machine else dice.choice(("bf16", "bf16", "fp8")),
        }  # fmt: skip
        try:
            cluster = Cluster.of(hardware(machine), tp * pp * cp * dp, gpus_per_node=8, nic=12.5e9)
            case = Case(config, cluster, TrainingPlan(**values))  # type: ignore[arg-type]
            train(case.config, case.cluster, case.plan)
        except UsageError:
            continue
        return case


CASES = [drawn(seed) for seed in range(24)]


def every(holds: Callable[[Case], object] = lambda _: True) -> pytest.MarkDecorator:
    """Return the mark that runs a test for each case of which a condition holds."""
    kept = {number: case for number, case in enumerate(CASES) if holds(case)}
    return pytest.mark.parametrize("case", list(kept.values()), ids=list(kept))


def zero_stages(case: Case) -> list[int]:
    """Return the stages of ZeRO to compare: none where FSDP gathers the weights of a pipeline once and keeps them."""
    framework = find_framework(case.plan.framework)
    if framework.gathers_once and case.plan.pp > 1:
        return []
    return [zero for zero in framework.stages(case.plan.dtype) if case.plan.pp == 1 or zero <= 2]


@every()
def test_parts_sum_to_the_whole_and_none_is_negative(case: Case) -> None:
    step, memory = case.step(), training_memory(case.config, case.cluster, case.plan)
    assert min(step.terms_s.values()) >= 0.0
    assert sum(step.terms_s.values()) == pytest.approx(step.time_s)
    assert step.low_s <= step.time_s <= step.high_s
    for stage in memory.stages:
        assert min(stage.parts.values()) >= 0.0
        assert sum(stage.parts.values()) == pytest.approx(stage.total_bytes)
        assert stage.used_bytes == pytest.approx(max(stage.by_moment.values()))


@every()
def test_recomputation_costs_time_and_saves_memory(case: Case) -> None:
    ways = ("none", "selective", "full")
    times = [case.step(recompute=how).time_s for how in ways]
    assert all(less <= more * (1.0 + 1e-9) for less, more in itertools.pairwise(times))
    held = [case.used_bytes(recompute=how) for how in ways]
    assert all(more >= less * (1.0 - 1e-9) for more, less in itertools.pairwise(held))


@every(lambda case: len(zero_stages(case)) > 1)
def test_more_that_is_shared_out_needs_no_more_memory(case: Case) -> None:
    """But for the gathered weights of a few small layers."""
    held = [case.used_bytes(zero=zero) for zero in zero_stages(case)]
    assert all(more >= 0.99 * less for more, less in itertools.pairwise(held))


@every()
def test_networks_and_nodes_never_help_by_being_slower_or_smaller(case: Case) -> None:
    slow, step = case.step(case.on(nic=6.25e9)).time_s, case.step().time_s
    assert case.step(case.on(nic=50e9)).time_s <= step * (1.0 + 1e-9) <= slow * (1.0 + 2e-9)
    if case.cluster.hardware.name in ("a100-sxm4-80gb", "h100-sxm5-80gb", "b200-sxm-180gb"):  # NVSwitch inside
        assert case.step(case.on(gpus_per_node=4)).time_s >= step * (1.0 - ROUNDING)


@every()
def test_micro_batches_add_equal_times(case: Case) -> None:
    """Each more takes as long as the last one; no step of two batches takes longer than two of one."""
    batch = case.plan.batch
    first, second, third = (case.step(batch=count * batch).time_s for count in (1, 2, 3))
    assert third - second == pytest.approx(second - first, rel=0.05)
    assert second <= 2.0 * first * (1.0 + 1e-9)


@every(lambda case: case.cluster.gpus >= 8)
def test_data_parallel_ranks_with_equal_work_gain_nothing(case: Case) -> None:
    """Twice as many GPUs with as many sequences each exchange more; beyond a node, where no mesh gains links by it."""
    gpus, batch = case.cluster.gpus, case.plan.batch
    plan = case.plan.changed(zero=0)
    one = train(case.config, case.on(gpus=2 * gpus), plan.changed(batch=2 * batch), checked=False)
    two = train(case.config, case.on(gpus=4 * gpus), plan.changed(batch=4 * batch), checked=False)
    assert two.time_s >= one.time_s * (1.0 - ROUNDING)


@every(lambda case: case.plan.micro_batch > 1)
def test_longer_sequences_of_as_many_tokens_take_longer(case: Case) -> None:
    halves: dict[str, Any] = {"batch": case.plan.batch // 2, "micro_batch": case.plan.micro_batch // 2}
    assert case.step(seq=2 * case.plan.seq, **halves).time_s >= case.step().time_s * (1.0 - ROUNDING)


@every(lambda case: case.plan.dtype == "bf16")
def test_later_machines_are_faster(case: Case) -> None:
    machines = ("a100-pcie-80gb", "a100-sxm4-80gb", "h100-sxm5-80gb", "h200-sxm-141gb", "b200-sxm-180gb")
    times = [case.step(case.on(machine=name)).time_s for name in machines]
    assert times == sorted(times, reverse=True)


@every()
def test_adapters_need_less_memory_and_no_exchange_of_what_is_frozen(case: Case) -> None:
    assert case.used_bytes(lora=16) <= case.used_bytes()
    whole, frozen = case.step(zero=0).terms_s, case.step(zero=0, lora=16).terms_s
    assert frozen.get("data", 0.0) <= whole.get("data", 0.0)
    assert frozen["products"] < whole["products"]

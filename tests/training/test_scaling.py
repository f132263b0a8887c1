"""Strong and weak scaling of a plan."""

from __future__ import annotations

import pytest

from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.scaling import scaling
from perfmodel.workloads.catalog import named_model

LLAMA = named_model("llama-3.1-8b")
CLUSTER = Cluster.of(hardware("h100-sxm5-80gb"), 8, nic="100Gb/s")
PLAN = TrainingPlan(batch=256, seq=4096, zero=1, framework="megatron-te")


def test_strong_scaling_loses_more_with_more_gpus():
    strong = scaling(LLAMA, CLUSTER, PLAN, (64, 8, 16, 32))
    assert [step.cluster.gpus for step in strong.steps] == [8, 16, 32, 64]
    assert strong.speedups[0] == 1.0
    assert list(strong.efficiencies) == sorted(strong.efficiencies, reverse=True)
    assert 0 <= strong.serial_fraction < 1
    assert strong.speedup(8) == pytest.approx(strong.speedups[-1], rel=0.2)


def test_weak_scaling_keeps_the_work_of_a_gpu():
    weak = scaling(LLAMA, CLUSTER, PLAN, (8, 16, 64), weak=True)
    assert [step.plan.batch for step in weak.steps] == [256, 512, 2048]
    assert weak.efficiencies[-1] > scaling(LLAMA, CLUSTER, PLAN, (8, 64)).efficiencies[-1]
    # one point is met exactly: S = n - f (n - 1)
    two = scaling(LLAMA, CLUSTER, PLAN, (8, 64), weak=True)
    assert two.speedup(8) == pytest.approx(two.speedups[-1])


def test_one_number_of_gpus_is_refused():
    with pytest.raises(UsageError, match="two numbers"):
        scaling(LLAMA, CLUSTER, PLAN, (8, 8))

"""Activations on a host that NVLink joins: what stays on the GPU, by hand."""

from __future__ import annotations

import dataclasses

import pytest

import perfmodel as pm
from perfmodel.training.memory_facts import MemoryFacts
from perfmodel.training.memory_result import OUTSIDE_BYTES
from perfmodel.training.offloading import kept_on_device
from perfmodel.training.plan import TrainingPlan

GB200 = pm.hardware("gb200-nvl72")
PLAN = TrainingPlan(batch=8, seq=2048, zero=3)
FACTS = MemoryFacts(offloads=("gb200*",), fragmentation=0.25)
#: a quarter of what is in use is lost to fragments
ROOM = (GB200.main_memory.capacity_bytes - OUTSIDE_BYTES) / 1.25
HOST = 240e9


@pytest.mark.parametrize(
    ("activations", "rest", "layer", "kept"),
    [
        (50e9, 40e9, 1e9, 50e9),  # all fit
        (200e9, 40e9, 1e9, ROOM - 40e9),  # the rest goes to the host
        (200e9, 2 * ROOM, 1e9, 1e9),  # no room at all, and a layer comes back for its backward pass
        (0.5e9, 2 * ROOM, 1e9, 0.5e9),  # never more than there is
        (ROOM + HOST, 40e9, 1e9, ROOM),  # the host is full
    ],
)
def test_what_stays_on_the_gpu(activations: float, rest: float, layer: float, kept: float) -> None:
    assert kept_on_device(GB200, PLAN, FACTS, activations, rest, layer) == pytest.approx(kept, rel=1e-6)


def test_without_a_joined_host_sharded_weights_or_with_a_pipeline_all_stays() -> None:
    others = (
        (pm.hardware("h100"), PLAN),
        (GB200, PLAN.changed(zero=2)),
        (GB200, PLAN.changed(pp=2)),
    )
    for hardware, plan in others:
        assert kept_on_device(hardware, plan, FACTS, 500e9, 40e9, 1e9) == 500e9
    unknown_host = dataclasses.replace(GB200, fabric=None)
    assert kept_on_device(unknown_host, PLAN, FACTS, 5000e9, 2 * ROOM, 1e9) == 1e9

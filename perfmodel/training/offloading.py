"""Activations that a framework sends to the memory of a host that NVLink joins to the GPU."""

from __future__ import annotations

import fnmatch
import math

from perfmodel.core.hardware import Hardware
from perfmodel.training.memory_facts import MemoryFacts
from perfmodel.training.memory_result import OUTSIDE_BYTES
from perfmodel.training.plan import TrainingPlan

#: share of the room that rounding may take, so that what just fits fits
_ROUNDING = 1e-9


def kept_on_device(
    hardware: Hardware, plan: TrainingPlan, facts: MemoryFacts, activations: float, rest: float, layer: float
) -> float:
    """Return the activations that stay on the GPU, where a framework sends what does not fit to the host [B].

    Megatron-Core does so without a pipeline only (``cpu_offloading`` of its configuration); the host's memory for a GPU
    limits it. The transfers hide behind the passes: 450 GB/s of NVLink-C2C move a layer's activations faster than it
    computes them.

    Parameters
    ----------
    activations : of all micro batches that wait for their backward pass.
    rest : what lives beside them at the peak.
    layer : what one layer and micro batch keeps: it comes back for its backward pass.
    """
    joined = any(fnmatch.fnmatch(hardware.name, pattern) for pattern in facts.offloads)
    if not joined or plan.zero < 3 or plan.pp > 1:
        return activations
    usable = (hardware.main_memory.capacity_bytes or math.inf) - OUTSIDE_BYTES
    room = max(0.0, usable / (1.0 + facts.fragmentation) * (1.0 - _ROUNDING) - rest)
    host = (hardware.fabric.host_memory_bytes if hardware.fabric else None) or math.inf
    return max(min(activations, max(room, layer)), activations - host)

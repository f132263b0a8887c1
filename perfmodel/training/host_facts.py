"""How a training framework updates what lives on the host: the table ``[host]`` of its file."""

from __future__ import annotations

from typing import Literal

import msgspec


class HostFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The optimizer's step on the CPU, and what goes there and back for it.

    Attributes
    ----------
    sources : where each fact comes from, by key.
    update : how the CPU updates parameters, as ``cpu_optimizer`` of a plan: "fused" reads and writes each number once,
        "for-loop" runs one operation of PyTorch after the other.
    threads : of each rank where several share a host: "one", as launchers set OMP_NUM_THREADS (torchrun), or "all", its
        share of all cores.
    overlaps : what can run beside the update, as ``cpu_overlap`` of a plan; the usual way first.
    accumulates : whether gradients of earlier micro batches come back to the GPU, are added to, and leave again.
    wide_gradients : whether the CPU takes gradients in fp32, as which they leave in the last micro batch.
    scales_gradients : whether the CPU multiplies gradients by the scale of loss and clipping in a pass of its own.
    casts_weights : whether the CPU casts new weights in a pass of its own, into memory that is not pinned.
    """

    sources: dict[str, str] = {}
    update: Literal["fused", "for-loop"] = "fused"
    threads: Literal["one", "all"] = "all"
    overlaps: tuple[Literal["none", "copies", "passes"], ...] = ("none",)
    accumulates: bool = False
    wide_gradients: bool = False
    scales_gradients: bool = False
    casts_weights: bool = False

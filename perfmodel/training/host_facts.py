"""How a training framework updates what lives on the host: the table ``[host]`` of its file."""

from __future__ import annotations

from typing import Literal

import msgspec


class HostFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The optimizer's step on the CPU.

    Attributes
    ----------
    sources : where each fact comes from, by key.
    update : how the CPU updates parameters, as ``cpu_optimizer`` of a plan: "fused" reads and writes each number once,
        "for-loop" runs one operation of PyTorch after the other.
    threads : of each rank where several share a host: "one", as launchers set OMP_NUM_THREADS (torchrun), or "all", its
        share of all cores.
    overlaps : what can run beside the update, as ``cpu_overlap`` of a plan; the usual way first.
    """

    sources: dict[str, str] = {}
    update: Literal["fused", "for-loop"] = "fused"
    threads: Literal["one", "all"] = "all"
    overlaps: tuple[Literal["none", "copies", "passes"], ...] = ("none",)

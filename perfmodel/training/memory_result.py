"""What each GPU of a pipeline holds: the result of predicting the memory of a training step."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from perfmodel.core.report import Reportable

#: the parts of the memory, in the order in which they are shown
PARTS = (
    "weights",
    "gradients",
    "optimizer",
    "copies",
    "gathered",
    "activations",
    "logits",
    "temporary",
    "communication",
    "pools",
)
MOMENTS = ("loss", "backward", "update")
#: outside the allocator: the CUDA context with its kernels, about 0.5 GiB on H100, and channels of NCCL (assumed)
OUTSIDE_BYTES = float(2**30)


@dataclass(frozen=True)
class StageMemory:
    """The memory of one GPU of the pipeline at its peak.

    Attributes
    ----------
    stage : place of the GPU in the pipeline, from 0.
    moment : when the peak is: "loss", "backward" or "update".
    parts : part of `PARTS` -> bytes.
    by_moment : moment -> bytes in use then, without pools.
    pools_bytes : what pools would hold with memory to spare [B]; ``parts`` has what is left for them.
    host : part of `PARTS` -> bytes that live on the host for this GPU.
    """

    stage: int
    moment: str
    parts: Mapping[str, float]
    by_moment: Mapping[str, float]
    pools_bytes: float
    host: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def host_bytes(self) -> float:
        """What lives on the host for this GPU, in pinned memory [B]."""
        return sum(self.host.values())

    @property
    def used_bytes(self) -> float:
        """What lives at the peak [B]: it cannot do with less."""
        return sum(value for part, value in self.parts.items() if part != "pools")

    @property
    def total_bytes(self) -> float:
        """What the allocator is expected to reserve [B]."""
        return sum(self.parts.values())

    @property
    def wanted_bytes(self) -> float:
        """What it would reserve with memory to spare [B]."""
        return self.used_bytes + self.pools_bytes

    def within(self, available_bytes: float) -> StageMemory:
        """Return the stage on a GPU with so much memory: pools have what is left at most."""
        left = available_bytes - self.used_bytes
        return dataclasses.replace(self, parts={**self.parts, "pools": min(self.pools_bytes, left)})


@dataclass(frozen=True)
class Memory(Reportable):
    """The memory of every GPU of the pipeline; the others of a stage hold the same.

    Attributes
    ----------
    stages : each GPU of the pipeline.
    capacity_bytes : memory of one GPU.
    fragmentation : most that the allocator reserves beside what is in use, as a share.
    host_capacity_bytes : memory of the host for each of its GPUs; infinite where unknown.
    sharing_host : GPUs that share a host.
    """

    stages: tuple[StageMemory, ...]
    capacity_bytes: float
    fragmentation: float
    host_capacity_bytes: float = math.inf
    sharing_host: int = 1

    @property
    def peak(self) -> StageMemory:
        """The GPU that needs most."""
        return max(self.stages, key=lambda stage: stage.wanted_bytes)

    @property
    def available_bytes(self) -> float:
        """What the allocator can have of a GPU [B]."""
        return self.capacity_bytes - OUTSIDE_BYTES

    @property
    def total_bytes(self) -> float:
        """What the allocator is expected to reserve on the fullest GPU: no more than there is, if it fits [B]."""
        return self.peak.total_bytes

    @property
    def low_bytes(self) -> float:
        """What lives on the fullest GPU [B]."""
        return self.peak.used_bytes

    @property
    def high_bytes(self) -> float:
        """With the most that fragmentation adds [B]."""
        return self.peak.wanted_bytes * (1.0 + self.fragmentation)

    def settled(self) -> Memory:
        """Return the memory with the pools that there is room for; all of them where the plan does not fit."""
        if not self.fits or all(stage.total_bytes <= self.available_bytes for stage in self.stages):
            return self
        return dataclasses.replace(self, stages=tuple(stage.within(self.available_bytes) for stage in self.stages))

    @property
    def host_parts(self) -> Mapping[str, float]:
        """Part -> bytes that live on the host for the GPU that has most there; empty where nothing is offloaded."""
        return max((stage.host for stage in self.stages), key=lambda parts: sum(parts.values()))

    @property
    def host_bytes(self) -> float:
        """What lives on a host for its GPUs, if all have as much there as the one that has most [B]."""
        return self.sharing_host * max(stage.host_bytes for stage in self.stages)

    @property
    def host_fits(self) -> bool:
        """Whether a host has memory for what lives there."""
        return self.host_bytes <= self.sharing_host * self.host_capacity_bytes

    @property
    def fits(self) -> bool:
        """Whether what lives fits on every GPU, and on the hosts: pools are given back when memory runs out."""
        return self.host_fits and all(stage.used_bytes <= self.available_bytes for stage in self.stages)

    @property
    def tight(self) -> bool:
        """Whether it fits only if the allocator gives blocks back, which costs time, or does not fragment."""
        return self.fits and self.high_bytes > self.available_bytes

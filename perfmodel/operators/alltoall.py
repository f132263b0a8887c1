"""All-to-all: every GPU sends a different part of its message to each of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from perfmodel.core.work import Number, maximum
from perfmodel.operators.collective import Collective


@dataclass(frozen=True, kw_only=True, eq=False)
class Alltoall(Collective):
    """receive[j] of rank i = send[i] of rank j: a transposition over n = ``num_gpus`` GPUs, bytes / n for each pair.

    ``bytes`` S is the whole message of a rank. Each GPU sends S (n - 1) / n bytes: all but its own part. No FLOP.
    Memory: S bytes are read and S are written.
    """

    op: ClassVar[str] = "alltoall"

    def peer_bytes(self, *, in_switch: bool = False) -> Number:
        """Return S (n - 1) / n; all bytes differ, so a switch cannot reduce their number [B]."""
        return self.bytes * self.share()

    def grouped_bytes(self, group: Number) -> tuple[Number, Number]:
        """Return S / n for each other GPU within a group of k, and outside of it: all bytes differ [B]."""
        part = self.bytes / self.num_gpus
        return (group - 1.0) * part, maximum(self.num_gpus - group, 0.0) * part

    def leaving_bytes(self, gpus: Number) -> Number:
        """Return S / n for each GPU of the other nodes: all bytes differ [B]."""
        return self.grouped_bytes(gpus)[1]

    def _among(self, gpus: Number, grown: Number) -> Self:
        """Return the part of the message that stays in the node, S k / n."""
        return self._of(gpus, self.bytes * gpus / self.num_gpus)

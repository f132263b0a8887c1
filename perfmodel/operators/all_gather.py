"""All-gather: every GPU receives the parts of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.collective import Collective


@dataclass(frozen=True, kw_only=True, eq=False)
class AllGather(Collective):
    """receive[bytes] = the parts send[bytes / n] of all ranks in order, on each of n = ``num_gpus`` GPUs.

    ``bytes`` S is the size of the gathered result, as in nccl-tests. Each GPU receives, and in a ring sends,
    S (n - 1) / n bytes. No FLOP. Memory: S / n bytes are read and S are written.
    """

    op: ClassVar[str] = "all_gather"

    def peer_bytes(self, *, in_switch: bool = False) -> Number:
        """Return S (n - 1) / n; a switch that broadcasts does not reduce what a GPU has to receive [B]."""
        return self.bytes * self.share()

    def grouped_bytes(self, group: Number) -> tuple[Number, Number]:
        """Return S (k - 1) / k within a group of k [B]."""
        return self.bytes * (group - 1.0) / group, super().grouped_bytes(group)[1]

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the part of this rank [bytes / n] and the gathered result [bytes]."""
        return (
            Tensor.input("send", self.buffer(self.num_gpus), self.dtype),
            Tensor.output("receive", self.buffer(), self.dtype),
        )

"""Reduce-scatter: every GPU receives its part of the sum of all messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.collective import Collective


@dataclass(frozen=True, kw_only=True, eq=False)
class ReduceScatter(Collective):
    """receive[bytes / n] = this rank's part of the sum over the ranks of send[bytes], n = ``num_gpus``.

    ``bytes`` S is the size of each rank's message, as in nccl-tests. Each GPU sends S (n - 1) / n bytes: all but its
    own part. FLOP = (n - 1) / n additions per element. Memory: S bytes are read and S / n are written.
    """

    op: ClassVar[str] = "reduce_scatter"

    def peer_bytes(self, *, in_switch: bool = False) -> Number:
        """Return S (n - 1) / n; a switch that reduces does not reduce what a GPU has to send [B]."""
        return self.bytes * self.share()

    def grouped_bytes(self, group: Number) -> tuple[Number, Number]:
        """Return S (k - 1) / k within a group of k [B]."""
        return self.bytes * (group - 1.0) / group, super().grouped_bytes(group)[1]

    def flop(self) -> Number:
        """Return the additions, (n - 1) / n per element [FLOP]."""
        return self.reduced_flop()

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the message [bytes] and this rank's part of the sum [bytes / n]."""
        return (
            Tensor.input("send", self.buffer(), self.dtype),
            Tensor.output("receive", self.buffer(self.num_gpus), self.dtype),
        )

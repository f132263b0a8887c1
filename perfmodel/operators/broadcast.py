"""Broadcast: every GPU receives the message of one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from perfmodel.core.work import Number, Tensor, ceil, log2, plain, where
from perfmodel.operators.collective import Collective


@dataclass(frozen=True, kw_only=True, eq=False)
class Broadcast(Collective):
    """receive[bytes] = the message of rank 0, on each of n = ``num_gpus`` GPUs.

    The message passes along a chain or a tree: a GPU sends at most one copy at a time, so that S bytes cross its link
    (the factor 1 of nccl-tests), nothing with a single GPU. No FLOP. Memory: S bytes are read, or written.
    """

    op: ClassVar[str] = "broadcast"

    def peer_bytes(self, *, in_switch: bool = False) -> Number:
        """Return S, or 0 for a single GPU [B]."""
        return plain(where(self.num_gpus > 1, 1.0, 0.0) * self.bytes)

    def steps(self) -> Number:
        """Return log2 n: a tree reaches twice as many GPUs with each step."""
        return plain(ceil(log2(self.num_gpus)))

    def leaving_bytes(self, gpus: Number) -> Number:
        """Return S / k: the message enters a node of k GPUs once, over the networks of all [B]."""
        return self.bytes * self._outside(gpus) / gpus

    def _among(self, gpus: Number, grown: Number) -> Self:
        """Return the same message: each GPU sends one copy at most."""
        return super()._among(gpus, 1.0)

    def own_bytes(self) -> Number:
        """Return 0: nothing stays where it was [B]."""
        return 0.0 * self.bytes * self.num_gpus

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the message [bytes]: every rank but the first writes it."""
        return (Tensor.output("receive", self.buffer(), self.dtype),)

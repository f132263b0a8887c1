"""Send and receive: every GPU sends a message to its neighbour, as between the stages of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from perfmodel.core.work import Number, minimum, plain
from perfmodel.operators.collective import Collective


@dataclass(frozen=True, kw_only=True, eq=False)
class SendRecv(Collective):
    """receive[bytes] of rank i = send[bytes] of rank i - 1, around n = ``num_gpus`` GPUs.

    Each GPU sends S bytes and receives as many (the factor 1 of nccl-tests' sendrecv). No FLOP. Memory: S bytes are
    read and S are written.
    """

    op: ClassVar[str] = "send_recv"

    def peer_bytes(self, *, in_switch: bool = False) -> Number:
        """Return S, or 0 for a single GPU [B]."""
        return plain(np.where(np.greater(self.num_gpus, 1), 1.0, 0.0) * self.bytes)

    def reached(self) -> Number:
        """Return 2: a GPU sends to its neighbour alone, and libraries relay nothing over others."""
        return minimum(self.num_gpus, 2.0)

    def steps(self) -> Number:
        """Return 1: all GPUs send at once."""
        return plain(np.where(np.greater(self.num_gpus, 1), 1.0, 0.0))

    def leaving_bytes(self, gpus: Number) -> Number:
        """Return S / k: one of a node's k GPUs sends to the next node, at best over the networks of all [B]."""
        return self.bytes * self._outside(gpus) / gpus

    def _among(self, gpus: Number, grown: Number) -> Self:
        """Return the same message: a ring passes nothing on."""
        return super()._among(gpus, 1.0)

    def own_bytes(self) -> Number:
        """Return 0: nothing stays where it was [B]."""
        return 0.0 * self.bytes * self.num_gpus

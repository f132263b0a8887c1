"""Normalisation over the channels of a group and all positions; perfmodel's own operator for it is ``group_norm``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from perfmodel.core.work import Number, Tensor
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator, size


@dataclass(frozen=True, kw_only=True, eq=False)
class ChannelNorm(Operator):
    """y = (x - mean) / sqrt(var + eps) * gamma + beta over each group of channels (Wu and He 2018, arXiv 1803.08494).

    FLOP = 4 per element, as for layer_norm; the statistics do not count. Compulsory traffic reads x, gamma and beta
    once and writes y once.

    Parameters
    ----------
    n, c : images and their channels.
    spatial : positions of a channel, height times width.
    groups : groups of channels; divides c.
    """

    op: ClassVar[str] = "channel_norm"

    n: Number = size(doc="images")
    c: Number = size(doc="channels")
    spatial: Number = size(doc="positions of a channel")
    groups: Number = size(doc="groups of channels; divides c")

    def check(self) -> None:
        """Check that the groups divide the channels."""
        if np.any(np.mod(self.c, self.groups)):
            raise UsageError(f"groups={self.groups} does not divide c={self.c}.", place=self.op)

    def flop(self) -> Number:
        """Return 4 n c spatial [FLOP]."""
        return 4.0 * self.n * self.c * self.spatial

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x [n, c, spatial], gamma [c], beta [c] and y [n, c, spatial]."""
        return (
            Tensor.input("x", (self.n, self.c, self.spatial), self.dtype),
            Tensor.input("gamma", (self.c,), self.dtype),
            Tensor.input("beta", (self.c,), self.dtype),
            Tensor.output("y", (self.n, self.c, self.spatial), self.dtype),
        )

"""Batch normalisation of images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, flag, size


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchNorm(Operator):
    """y = (x - mean[c]) / sqrt(var[c] + eps) * gamma[c] + beta[c], the statistics over images and pixels of a channel.

    N = n c hw. In training FLOP = 5 N: the sum and the sum of squares (3), scale and shift (2), since both constants of
    a channel are known by then. x is read for the statistics, then again: 3 N s bytes; the second read comes from L2
    where the channels that run at once fit there, so that no bound counts it. Evaluation: 2 N FLOP, 2 N s.
    Backward reads dy and x for two sums, then again, and writes dx: 5 N s; 9 FLOP: xhat (2), the sums (3), dx (4).
    Weights and statistics, a few numbers a channel, do not count.

    Parameters
    ----------
    n, c, hw : images, channels, and pixels of a channel.
    training : statistics of this batch, instead of those of earlier ones.
    backward : the gradient, in training.
    """

    op: ClassVar[str] = "batch_norm"

    n: Number = size(doc="images")
    c: Number = size(doc="channels")
    hw: Number = size(doc="pixels of a channel: height x width")
    training: bool = flag(True, doc="statistics of this batch")
    backward: bool = flag(False, quiet=True, doc="the gradient, in training")

    def flop(self) -> Number:
        """Return 5 n c hw in training, 2 in evaluation, 9 backward [FLOP]."""
        each = 9.0 if self.backward else 5.0 if self.training else 2.0
        return each * self.n * self.c * self.hw

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x, read once for the statistics, and y [n, c, hw]; backward dy, x and dx."""
        shape = (self.n, self.c, self.hw)
        reads = 2.0 if self.training or self.backward else 1.0
        x = Tensor("x", shape, self.dtype, reads=reads, repeated=reads - 1.0)
        if self.backward:
            dy = Tensor("dy", shape, self.dtype, reads=reads, repeated=reads - 1.0)
            return (dy, x, Tensor.output("dx", shape, self.dtype))
        return (x, Tensor.output("y", shape, self.dtype))

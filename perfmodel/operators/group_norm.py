"""Group normalisation of images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, flag, size
from perfmodel.operators.checks import check_groups


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupNorm(Operator):
    """y = (x - mean) / sqrt(var + eps) * gamma[c] + beta[c], the statistics over one group of channels of one image.

    It is `LayerNorm` with n groups rows of (c / groups) hw elements: 4 FLOP an element, and N = n c hw. Traffic reads x
    and the weights of the channels and writes y: 2 N s + 2 c s bytes; rows that do not fit an SM are read twice.
    Backward reads dy and x and writes dx and the gradients of the weights: 3 N s + 3 c s; 13 FLOP as `LayerNorm`.

    Parameters
    ----------
    n, groups, c, hw : images, groups of channels, channels, and pixels of a channel.
    backward : the gradient.
    """

    op: ClassVar[str] = "group_norm"

    n: Number = size(doc="images")
    groups: Number = size(doc="groups of channels; divides c")
    c: Number = size(doc="channels")
    hw: Number = size(doc="pixels of a channel: height x width")
    backward: bool = flag(False, quiet=True, doc="the gradient")

    def check(self) -> None:
        """Check that the groups divide the channels."""
        check_groups(self.op, "All groups have the same number of channels.", c=self.c, groups=self.groups)

    def flop(self) -> Number:
        """Return 4 n c hw, backward 13 [FLOP]."""
        return (13.0 if self.backward else 4.0) * self.n * self.c * self.hw

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x, gamma, beta and y; backward dy, x, gamma, dx, dgamma and dbeta."""
        shape, weights = (self.n, self.c, self.hw), (self.c,)
        if self.backward:
            return (
                Tensor.input("dy", shape, self.dtype),
                Tensor.input("x", shape, self.dtype),
                Tensor.input("gamma", weights, self.dtype),
                Tensor.output("dx", shape, self.dtype),
                Tensor.output("dgamma", weights, self.dtype),
                Tensor.output("dbeta", weights, self.dtype),
            )
        return (
            Tensor.input("x", shape, self.dtype),
            Tensor.input("gamma", weights, self.dtype),
            Tensor.input("beta", weights, self.dtype),
            Tensor.output("y", shape, self.dtype),
        )

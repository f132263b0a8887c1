"""Dropout in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, flag, size


@dataclass(frozen=True, kw_only=True, eq=False)
class Dropout(Operator):
    """y = x / (1 - p) where a random number is above p, else 0.

    FLOP = 2 an element: the comparison with the random number, and the scale; forming the number (Philox) does not
    count. Traffic reads x and writes y, and a mask of a byte an element unless the gradient draws the same numbers
    again: 2 N s + N, or 2 N s. Backward reads dy and the mask and writes dx: the same bytes and FLOP.

    Parameters
    ----------
    numel : elements.
    saves_mask : the forward pass writes which elements it kept, as PyTorch's does.
    backward : the gradient.
    """

    op: ClassVar[str] = "dropout"

    numel: Number = size(doc="elements")
    saves_mask: bool = flag(True, doc="writes a mask of a byte an element; otherwise the gradient draws again")
    backward: bool = flag(False, quiet=True, doc="the gradient")

    def flop(self) -> Number:
        """Return 2 numel [FLOP]."""
        return 2.0 * self.numel

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x and y [numel] (backward dy and dx), and the mask of a byte an element."""
        source, result = ("dy", "dx") if self.backward else ("x", "y")
        tensors = (
            Tensor.input(source, (self.numel,), self.dtype),
            Tensor.output(result, (self.numel,), self.dtype),
        )
        if not self.saves_mask:
            return tensors
        mask = Tensor.input if self.backward else Tensor.output
        return (*tensors, mask("mask", (self.numel,), "int8"))

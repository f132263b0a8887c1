"""GEGLU: the gated activation with gelu in place of silu."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, choice, flag, size
from perfmodel.operators.swiglu import gated, gated_passes

#: form of gelu -> FLOP an element forward and backward. erf: divide, erf, add, two products, and the gate's product.
#: tanh: x^2, its factor, sum, two products with x, tanh, add, two products, and the gate's. Backward computes the
#: cumulative distribution (4) and the density (4; tanh: 7 and its slope 5) again, joins them (2) and multiplies (4).
_FLOP = MappingProxyType({"erf": (6.0, 14.0), "tanh": (10.0, 18.0)})


@dataclass(frozen=True, kw_only=True, eq=False)
class Geglu(Operator):
    """y = gelu(gate) up (Shazeer 2020, arXiv 2002.05202).

    FLOP = 6 an element with erf, 10 with tanh; backward 14 and 18. Traffic is that of `Swiglu`: 3 N s, backward 5 N s.

    Parameters
    ----------
    rows, cols : sizes of y; gate and up have the same.
    gelu : "erf", the exact function, or "tanh", its approximation.
    backward : the gradient.
    """

    op: ClassVar[str] = "geglu"

    rows: Number = size(doc="tokens")
    cols: Number = size(doc="columns of y, of gate and of up")
    gelu: str = choice("erf", tuple(_FLOP), doc="the exact function, or its approximation")
    backward: bool = flag(False, quiet=True, doc="the gradient")

    def flop(self) -> Number:
        """Return 6 or 10 rows cols, backward 14 or 18 [FLOP]."""
        return _FLOP[self.gelu][self.backward] * self.rows * self.cols

    def tensors(self) -> tuple[Tensor, ...]:
        """Return gate, up and y [rows, cols]; backward dy, gate, up, dgate and dup."""
        return gated(self, self.rows, self.cols, backward=self.backward)

    def composition_in(self, library: str) -> tuple[Operator, ...]:
        """Return the two calls of PyTorch; others run one kernel."""
        if library != "torch":
            return ()
        return gated_passes(self, 1.0 * self.rows * self.cols, "gelu", backward=self.backward)

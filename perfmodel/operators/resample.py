"""Images, signals and volumes read at other places than their pixels: interpolation and grids of samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from perfmodel.core.work import Number, Tensor, anywhere, maximum, minimum, plain, where
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator, choice, flag, size
from perfmodel.operators.checks import first_point

#: pixels along an axis that one output is made of
TAPS = {"nearest": 1.0, "linear": 2.0, "cubic": 4.0}


@dataclass(frozen=True, kw_only=True, eq=False)
class Resample(Operator):
    """y[n, c, output] = sum over taps of weight x[n, c, pixel], as ``F.interpolate`` and ``F.grid_sample`` compute it.

    An output has 1, 2 or 4 taps along each axis (nearest, linear, cubic), T = taps ** axes together; the weights, which
    all channels of an output share, are not counted. FLOP = 2 T for each output, none for the nearest pixel. Traffic
    reads each pixel that may be met once and writes y; with ``grid`` it reads a place for each output of an image, a
    number for each axis.

    Backward reads dy, fills dx with zeros and adds to it: 2 T FLOP. With ``grid`` it also reads x and the grid, and
    writes the gradient of the grid, which takes as many FLOP again for each axis.

    Parameters
    ----------
    n, c : images and channels.
    d, h, w : depth, height and width of the input; signals have a width alone.
    o, p, q : depth, height and width of the output.
    axes : axes along which pixels are joined: 1 to 3. By default those that are longer than one.
    kind : "nearest", "linear" (bilinear of two axes) or "cubic".
    grid : places come from a tensor, as in ``F.grid_sample``.
    backward : the gradient.
    """

    op: ClassVar[str] = "resample"

    n: Number = size(1, doc="images")
    c: Number = size(doc="channels")
    d: Number = size(1, doc="depth of the input")
    h: Number = size(1, doc="height of the input")
    w: Number = size(doc="width of the input")
    o: Number = size(1, doc="depth of the output")
    p: Number = size(1, doc="height of the output")
    q: Number = size(doc="width of the output")
    axes: Number = size(None, doc="axes along which pixels are joined; default: those longer than one")
    kind: str = choice("linear", tuple(TAPS), always_shown=True, doc="pixels that an output is made of")
    grid: bool = flag(False, doc="places come from a tensor, as in F.grid_sample")
    backward: bool = flag(False, quiet=True, doc="the gradient")

    def check(self) -> None:
        """Derive the axes: the width, and the others where input or output are longer than one; check them."""
        deep, high = (maximum(before, after) > 1 for before, after in ((self.d, self.o), (self.h, self.p)))
        self.derive(axes=where(deep, 3, where(high, 2, 1)))
        if anywhere(many := self.axes > 3):
            (axes,) = first_point(many, self.axes)
            raise UsageError(f"axes={axes} is above 3.", place=self.op, remedy="axes is 1, 2 or 3: w, h and w, or all.")

    @property
    def taps(self) -> Number:
        """Pixels that an output is made of."""
        return plain(TAPS[self.kind] ** np.asarray(self.axes, dtype=np.float64))

    @property
    def outputs(self) -> Number:
        """Outputs of one channel of one image."""
        return 1.0 * self.o * self.p * self.q

    def flop(self) -> Number:
        """Return 2 T an output, backward as many, and with a grid as many again for each axis [FLOP]."""
        each = 0.0 if self.kind == "nearest" else 2.0 * self.taps
        gradients = 1.0 + self.axes if self.backward and self.grid else 1.0
        return each * gradients * self.n * self.c * self.outputs

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x, the grid and y; backward dy, dx, which is filled first, and x, the grid and its gradient."""
        image, result = (self.n, self.c, self.d, self.h, self.w), (self.n, self.c, self.o, self.p, self.q)
        met = minimum(1.0 * self.d * self.h * self.w, self.outputs * self.taps)
        x = Tensor.input("x", (self.n, self.c, met), self.dtype)
        places = (self.n, self.o, self.p, self.q, self.axes)
        grid = (Tensor.input("grid", places, self.dtype),) if self.grid else ()
        if not self.backward:
            return (x, *grid, Tensor.output("y", result, self.dtype))
        dy, dx = Tensor.input("dy", result, self.dtype), Tensor("dx", image, self.dtype, writes=2.0)
        return (dy, dx, x, *grid, Tensor.output("dgrid", places, self.dtype)) if self.grid else (dy, dx)

    def buffers(self) -> tuple[Tensor, ...]:
        """Return the tensors with all pixels of x."""
        whole = Tensor.input("x", (self.n, self.c, self.d, self.h, self.w), self.dtype)
        return tuple(whole if tensor.name == "x" else tensor for tensor in self.tensors())

"""Pooling of images: the largest or the mean of each window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from perfmodel.core.work import Number, Tensor, anywhere, plain
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator, choice, flag, size
from perfmodel.operators.checks import first_point


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool2d(Operator):
    """y[n, c, p, q] = max or mean of a k x k window of x[n, c, h, w].

    p = floor((h + 2 padding - k) / stride) + 1, and q in the same way from w. FLOP = p q n c (k^2 - 1) comparisons or
    sums; the mean's product makes it k^2. Traffic reads x once and writes y, and in training the 64-bit index of each
    maximum: in s + out (s + 8) bytes. Backward of max fills dx with zeros, reads dy and the indices, and adds:
    2 in s + out (s + 8) bytes, out FLOP; of mean it reads dy and writes dx: in s + out s, and k^2 + 1 FLOP an output.

    Parameters
    ----------
    n, c, h, w : images, channels, height and width.
    k : side of a window.
    stride : step of the window, by default ``k``.
    padding : ignored pixels on each side.
    kind : "max" or "mean".
    indices : max also writes where each maximum was, for the gradient.
    ceil_mode : the last window may leave the image: sizes are rounded up.
    backward : the gradient.
    """

    op: ClassVar[str] = "pool2d"

    n: Number = size(doc="images")
    c: Number = size(doc="channels")
    h: Number = size(doc="height of the input")
    w: Number = size(doc="width of the input")
    k: Number = size(doc="side of a window")
    stride: Number = size(None, doc="step of the window; default k")
    padding: Number = size(0, minimum=0, doc="ignored pixels on each side; at most k / 2")
    kind: str = choice("max", ("max", "mean"), always_shown=True, doc="what a window becomes")
    indices: bool = flag(True, doc="max also writes the index of each maximum, as in training")
    ceil_mode: bool = flag(False, quiet=True, doc="sizes of the output are rounded up")
    backward: bool = flag(False, quiet=True, doc="the gradient")

    def check(self) -> None:
        """Derive the stride; check that windows fit the image and are not all padding."""
        self.derive(stride=self.k)
        window = ("k", self.k, "padding", self.padding)
        check_windows(self, (("h", self.h, *window, self.p), ("w", self.w, *window, self.q)))

    @property
    def p(self) -> Number:
        """Height of the output."""
        return self._out(self.h)

    @property
    def q(self) -> Number:
        """Width of the output."""
        return self._out(self.w)

    def _out(self, length: Number) -> Number:
        return pool_outputs(length, self.k, self.stride, self.padding, self.ceil_mode)

    def flop(self) -> Number:
        """Return outputs (k^2 - 1), for the mean k^2; backward outputs, for the mean k^2 + 1 [FLOP]."""
        return pool_flop(self, 1.0 * self.n * self.c * self.p * self.q, 1.0 * self.k * self.k)

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x, y and the indices of max; backward dy, the indices, and dx, which max first fills with zeros."""
        return pool_tensors(self, (self.n, self.c, self.h, self.w), (self.n, self.c, self.p, self.q))

    def index_limit(self, name: str) -> Number:
        """Return the pixels of a channel."""
        return self.h * self.w


def pool_outputs(length: Number, side: Number, step: Number, padding: Number, ceil_mode: bool) -> Number:
    """Return how many windows of some elements fit an axis, rounded down, or up with ``ceil_mode``."""
    steps = (np.asarray(length) + 2.0 * padding - side) / step
    if not ceil_mode:
        return plain(np.floor(steps) + 1.0)
    out = np.ceil(steps) + 1.0  # the last window has to start inside the image or its left padding
    return plain(out - ((out - 1.0) * step >= length + padding))


def check_windows(op: Any, axes: tuple[tuple[str, Number, str, Number, str, Number, Number], ...]) -> None:
    """Check that the windows of a pool fit its input and are not all padding.

    Parameters
    ----------
    op : the pool.
    axes : of each axis its name and length, the name and side of the window, the name and size of the padding, and the
        outputs, as `pool_outputs` counts them.

    Raises
    ------
    UsageError
        Where the padding is above half of the window, or no window fits the padded axis.
    """
    for axis, length, of_side, side, of_padding, padding, out in axes:
        if anywhere(wide := 2.0 * padding > side):
            found, allowed = first_point(wide, padding, side)
            raise UsageError(
                f"{of_padding}={found} is above half of the window, {of_side}={allowed}.",
                place=op.op,
                remedy=f"{of_padding} is at most {of_side} / 2.",
            )
        if anywhere(empty := out < 1):
            window, found, zeros = first_point(empty, side, length, padding)
            raise UsageError(
                f"the output is empty: a window of {of_side}={window} does not fit {axis}={found} with "
                f"{of_padding}={zeros}.",
                place=op.op,
                remedy=f"{of_side} is at most {axis} + 2 {of_padding}.",
            )


def pool_flop(op: Any, outputs: Number, window: Number) -> Number:
    """Return the FLOP of a pool with some outputs, each of a window of some elements [FLOP]."""
    if op.backward:
        return outputs * (1.0 if op.kind == "max" else window + 1.0)
    return outputs * (window - 1.0 if op.kind == "max" else window)


def pool_tensors(op: Any, image: tuple[Number, ...], pooled: tuple[Number, ...]) -> tuple[Tensor, ...]:
    """Return x, y and the indices of max; backward dy, the indices, and dx, which max first fills with zeros."""
    if op.backward:
        dy = Tensor.input("dy", pooled, op.dtype)
        if op.kind == "mean":
            return (dy, Tensor.output("dx", image, op.dtype))
        return (dy, Tensor.input("indices", pooled, "int64"), Tensor("dx", image, op.dtype, writes=2.0))
    tensors = (Tensor.input("x", image, op.dtype), Tensor.output("y", pooled, op.dtype))
    if op.kind == "mean" or not op.indices:
        return tensors
    return (*tensors, Tensor.output("indices", pooled, "int64"))

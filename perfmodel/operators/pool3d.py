"""Pooling of films and volumes, and of images by windows that differ by direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, choice, flag, size
from perfmodel.operators.pool2d import check_windows, pool_flop, pool_outputs, pool_tensors


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool3d(Operator):
    """y[n, c, o, p, q] = max or mean of a window of t x r x s elements of x[n, c, d, h, w].

    o = floor((d + 2 padding_d - t) / stride_d) + 1, and p and q in the same way from h, r and w, s. FLOP and traffic
    are those of `Pool2d` with t r s elements in a window. Of one picture (d = t = 1) it is a `Pool2d` whose windows,
    strides or padding differ by direction.

    Parameters
    ----------
    n, c, d, h, w : films, their channels, pictures (depth), height and width.
    t, r, s : depth, height and width of a window.
    stride_d, stride_h, stride_w : steps of the window, by default its sides.
    padding_d, padding_h, padding_w : ignored elements on each side.
    kind, indices, ceil_mode, backward : as of `Pool2d`.
    """

    op: ClassVar[str] = "pool3d"

    n: Number = size(doc="films")
    c: Number = size(doc="channels")
    d: Number = size(doc="depth of the input: pictures of a film")
    h: Number = size(doc="height of the input")
    w: Number = size(doc="width of the input")
    t: Number = size(doc="depth of a window")
    r: Number = size(doc="height of a window")
    s: Number = size(doc="width of a window")
    stride_d: Number = size(None, doc="step of the window along d; default t")
    stride_h: Number = size(None, doc="step of the window along h; default r")
    stride_w: Number = size(None, doc="step of the window along w; default s")
    padding_d: Number = size(0, minimum=0, doc="ignored elements on each side along d; at most t / 2")
    padding_h: Number = size(0, minimum=0, doc="ignored elements on each side along h; at most r / 2")
    padding_w: Number = size(0, minimum=0, doc="ignored elements on each side along w; at most s / 2")
    kind: str = choice("max", ("max", "mean"), always_shown=True, doc="what a window becomes")
    indices: bool = flag(True, doc="max also writes the index of each maximum, as in training")
    ceil_mode: bool = flag(False, quiet=True, doc="sizes of the output are rounded up")
    backward: bool = flag(False, quiet=True, doc="the gradient")

    def check(self) -> None:
        """Derive the strides; check that windows fit the film and are not all padding."""
        self.derive(stride_d=self.t, stride_h=self.r, stride_w=self.s)
        check_windows(self, (
            ("d", self.d, "t", self.t, "padding_d", self.padding_d, self.o),
            ("h", self.h, "r", self.r, "padding_h", self.padding_h, self.p),
            ("w", self.w, "s", self.s, "padding_w", self.padding_w, self.q),
        ))  # fmt: skip

    @property
    def o(self) -> Number:
        """Depth of the output."""
        return pool_outputs(self.d, self.t, self.stride_d, self.padding_d, self.ceil_mode)

    @property
    def p(self) -> Number:
        """Height of the output."""
        return pool_outputs(self.h, self.r, self.stride_h, self.padding_h, self.ceil_mode)

    @property
    def q(self) -> Number:
        """Width of the output."""
        return pool_outputs(self.w, self.s, self.stride_w, self.padding_w, self.ceil_mode)

    def flop(self) -> Number:
        """Return outputs (t r s - 1), for the mean t r s; backward outputs, for the mean t r s + 1 [FLOP]."""
        outputs = 1.0 * self.n * self.c * self.o * self.p * self.q
        return pool_flop(self, outputs, 1.0 * self.t * self.r * self.s)

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x, y and the indices of max; backward dy, the indices, and dx, which max first fills with zeros."""
        film, pooled = (self.n, self.c, self.d, self.h, self.w), (self.n, self.c, self.o, self.p, self.q)
        return pool_tensors(self, film, pooled)

    def index_limit(self, name: str) -> Number:
        """Return the elements of a channel."""
        return self.d * self.h * self.w

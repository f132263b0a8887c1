"""Convolution of films and volumes in three dimensions, with a step of its own in each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from perfmodel.core.work import Number, Tensor
from perfmodel.operators.base import Operator, choice, flag, size
from perfmodel.operators.windows import check_convolution, gradient_tensors, outputs, touched


@dataclass(frozen=True, kw_only=True, eq=False)
class Conv3d(Operator):
    """y[n, k, o, p, q] = sum over c / groups, t, r, s of x[n, c, d, h, w] weight[k, c / groups, t, r, s].

    o = floor((d + 2 padding_d - dilation_d (t - 1) - 1) / stride_d) + 1, and p and q in the same way from h, r and w,
    s. It is a matrix product of sizes (n o p q) x k x (c / groups t r s) for each group. Of one picture (d = t = 1) it
    is a `Conv2d` whose strides, padding or dilation differ by direction.

    FLOP = 2 n k o p q (c / groups) t r s, the direct count of ``torch.utils.flop_counter``, which includes products
    with the padding. Traffic reads x and the weights once and writes y once; only elements of x that a filter touches
    count, as in `Conv2d`.

    Parameters
    ----------
    n, c, d, h, w : films, their channels, pictures (depth), height and width.
    k, t, r, s : filters (channels of the output), their depth, height and width.
    stride_d, stride_h, stride_w : step of the filter along each axis.
    padding_d, padding_h, padding_w : zeros on each side.
    dilation_d, dilation_h, dilation_w : distance between the taps of a filter.
    groups : independent groups of channels; divides c and k.
    backward : the gradients of x and the weights, each a convolution of as many FLOP.
    gradient : which of them: "both", "input" or "weight".
    """

    op: ClassVar[str] = "conv3d"
    preferred_engine: ClassVar[str] = "tensor"

    n: Number = size(doc="films")
    c: Number = size(doc="channels of the input")
    d: Number = size(doc="depth of the input: pictures of a film")
    h: Number = size(doc="height of the input")
    w: Number = size(doc="width of the input")
    k: Number = size(doc="filters, channels of the output")
    t: Number = size(doc="depth of a filter")
    r: Number = size(doc="height of a filter")
    s: Number = size(doc="width of a filter")
    stride_d: Number = size(1, doc="step of the filter along d")
    stride_h: Number = size(1, doc="step of the filter along h")
    stride_w: Number = size(1, doc="step of the filter along w")
    padding_d: Number = size(0, minimum=0, doc="zeros on each side along d")
    padding_h: Number = size(0, minimum=0, doc="zeros on each side along h")
    padding_w: Number = size(0, minimum=0, doc="zeros on each side along w")
    dilation_d: Number = size(1, doc="distance between the taps of a filter along d")
    dilation_h: Number = size(1, doc="distance between the taps of a filter along h")
    dilation_w: Number = size(1, doc="distance between the taps of a filter along w")
    groups: Number = size(1, doc="independent groups of channels; divides c and k")
    backward: bool = flag(False, quiet=True, doc="the gradients of x and the weights")
    gradient: str = choice("both", ("both", "input", "weight"), quiet=True, doc="which gradients, backward")

    def check(self) -> None:
        """Check that the output is not empty and that the groups divide the channels."""
        axes = (
            ("d", "t", self.d, self.t, self.dilation_d, self.padding_d, self.o),
            ("h", "r", self.h, self.r, self.dilation_h, self.padding_h, self.p),
            ("w", "s", self.w, self.s, self.dilation_w, self.padding_w, self.q),
        )
        check_convolution(self, axes)

    @property
    def o(self) -> Number:
        """Depth of the output."""
        return self.once("_o", lambda: outputs(self.d, self.t, self.stride_d, self.padding_d, self.dilation_d))

    @property
    def p(self) -> Number:
        """Height of the output."""
        return self.once("_p", lambda: outputs(self.h, self.r, self.stride_h, self.padding_h, self.dilation_h))

    @property
    def q(self) -> Number:
        """Width of the output."""
        return self.once("_q", lambda: outputs(self.w, self.s, self.stride_w, self.padding_w, self.dilation_w))

    def flop(self) -> Number:
        """Return 2 n k o p q (c / groups) t r s for the result, and for each of the gradients [FLOP]."""
        each = 4.0 if self.backward and self.gradient == "both" else 2.0
        results = each * self.n * self.k * self.o * self.p * self.q
        return results * (self.c / self.groups) * self.t * self.r * self.s

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x [n, c, touched depth, rows and columns], the weights, and y [n, k, o, p, q]; or the gradients'."""
        image = (
            self.n,
            self.c,
            touched(self.d, self.o, self.t, self.stride_d, self.padding_d, self.dilation_d),
            touched(self.h, self.p, self.r, self.stride_h, self.padding_h, self.dilation_h),
            touched(self.w, self.q, self.s, self.stride_w, self.padding_w, self.dilation_w),
        )
        result = (self.n, self.k, self.o, self.p, self.q)
        filters = (self.k, self.c / self.groups, self.t, self.r, self.s)
        if self.backward:
            return gradient_tensors(self, image, filters, result)
        return (
            Tensor.input("x", image, self.dtype),
            Tensor.input("weight", filters, self.dtype),
            Tensor.output("y", result, self.dtype),
        )

    def composition(self) -> tuple[Operator, ...]:
        """Return both gradients as two kernels; empty for one of them, and forward."""
        if not self.backward or self.gradient != "both":
            return ()
        return (self.changed(gradient="input"), self.changed(gradient="weight"))

    def buffers(self) -> tuple[Tensor, ...]:
        """Return the tensors with all of x, also what no filter touches."""
        whole = Tensor.input("x", (self.n, self.c, self.d, self.h, self.w), self.dtype)
        return tuple(whole if tensor.name == "x" else tensor for tensor in self.tensors())

"""Convolution of images in two dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from perfmodel.core.work import Number, Tensor, anywhere, plain, where
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator, choice, flag, size
from perfmodel.operators.windows import check_convolution, gradient_tensors, outputs, touched

#: dtypes in which libraries have Winograd's algorithm
WINOGRAD_DTYPES = ("fp32", "fp16")


@dataclass(frozen=True, kw_only=True, eq=False)
class Conv2d(Operator):
    """y[n, k, p, q] = sum over c / groups, r, s of x[n, c, h, w] weight[k, c / groups, r, s].

    p = floor((h + 2 padding - dilation (r - 1) - 1) / stride) + 1, and q in the same way from w and s. It is a matrix
    product of sizes (n p q) x k x (c / groups r s) for each group.

    FLOP = 2 n k p q (c / groups) r s, the direct count of ``torch.utils.flop_counter``, which includes products with
    the padding. Winograd's minimal filtering (Lavin and Gray 2016, arXiv 1509.09308) needs 2.25 times fewer
    multiplications for 3 x 3 filters with tiles F(2x2), and 4 times fewer with F(4x4); libraries have it in fp32 and
    fp16. A library that chooses it can be faster than the compute bound of the direct count: that is another algorithm,
    not an error. Its bounds on memory and launch hold all the same; `least_flop` counts the multiplications that
    Winograd needs too.

    By default PyTorch computes fp32 convolutions in TF32 on Ampere and later; give ``dtype="tf32"`` for those.

    Traffic reads x and the weights once and writes y once. Only the rows and columns of x that a filter touches count:
    a quarter for a 1 x 1 filter of stride 2, and for a filter of stride and dilation 2, whose taps only meet every
    second row and column. "im2col" also writes the unfolded matrix [n, c r s, p q] and reads it.

    Parameters
    ----------
    n, c, h, w : images, their channels, height and width.
    k, r, s : filters (channels of the output), their height and width.
    stride, padding, dilation : the same in both directions.
    groups : independent groups of channels; divides c and k. ``groups=c`` is a depthwise convolution.
    algorithm : "implicit_gemm", which unfolds on the fly, or "im2col", which unfolds in memory.
    backward : the gradients of x and the weights. Each is a convolution of as many FLOP: that of x reads dy and the
        weights and writes dx, that of the weights reads dy and x and writes dweight.
    gradient : which of them: "both", "input" or "weight".
    layout : order of the dimensions in memory, that of x and y: "nchw", as PyTorch has them by default, or "nhwc"
        (``channels_last``), as the kernels of tensor cores want them. Counts do not depend on it; times do.
    """

    op: ClassVar[str] = "conv2d"
    preferred_engine: ClassVar[str] = "tensor"

    n: Number = size(doc="images")
    c: Number = size(doc="channels of the input")
    h: Number = size(doc="height of the input")
    w: Number = size(doc="width of the input")
    k: Number = size(doc="filters, channels of the output")
    r: Number = size(doc="height of a filter")
    s: Number = size(doc="width of a filter")
    stride: Number = size(1, doc="step of the filter")
    padding: Number = size(0, minimum=0, doc="zeros on each side")
    dilation: Number = size(1, doc="distance between the taps of a filter")
    groups: Number = size(1, doc="independent groups of channels; divides c and k")
    algorithm: str = choice("implicit_gemm", ("implicit_gemm", "im2col"), doc="unfolds on the fly, or in memory")
    layout: str = choice("nchw", ("nchw", "nhwc"), doc="order of the dimensions of x and y in memory")
    backward: bool = flag(False, quiet=True, doc="the gradients of x and the weights")
    gradient: str = choice("both", ("both", "input", "weight"), quiet=True, doc="which gradients, backward")

    def check(self) -> None:
        """Check that the output is not empty and that the groups divide the channels."""
        if self.backward and self.algorithm == "im2col":
            raise UsageError("im2col has no backward pass here.", place=self.op, remedy="algorithm=implicit_gemm.")
        apart, padding = self.dilation, self.padding
        axes = (("h", "r", self.h, self.r, apart, padding, self.p), ("w", "s", self.w, self.s, apart, padding, self.q))
        check_convolution(self, axes)

    @property
    def p(self) -> Number:
        """Height of the output."""
        return self.once("_p", lambda: self._out(self.h, self.r))

    @property
    def q(self) -> Number:
        """Width of the output."""
        return self.once("_q", lambda: self._out(self.w, self.s))

    def _out(self, length: Number, taps: Number) -> Number:
        return outputs(length, taps, self.stride, self.padding, self.dilation)

    def _touched(self, length: Number, windows: Number, taps: Number) -> Number:
        return touched(length, windows, taps, self.stride, self.padding, self.dilation)

    def flop(self) -> Number:
        """Return 2 n k p q (c / groups) r s for the result, and for each of the gradients [FLOP]."""
        each = 4.0 if self.backward and self.gradient == "both" else 2.0
        return each * self.n * self.k * self.p * self.q * (self.c / self.groups) * self.r * self.s

    def winograd(self) -> Any:
        """Return whether Winograd's algorithm applies: 3 x 3 filters, stride and dilation 1, one group, fp32 or fp16.

        cuDNN has it in these dtypes (cuDNN API reference, supported algorithms for cudnnConvolutionForward, 2D).
        """
        unit = (self.stride == 1) & (self.dilation == 1) & (self.groups == 1)
        return unit & (self.r == 3) & (self.s == 3) & (self.dtype in WINOGRAD_DTYPES)

    def least_flop(self) -> Number:
        """Return the FLOP of the multiplications that every known algorithm needs [FLOP].

        A quarter of the direct count where Winograd's F(4x4, 3x3) applies: 6 x 6 products for 4 x 4 outputs instead of
        16 x 9. A limit that no correct measurement may beat has to use this count.
        """
        can, flop = self.winograd(), self.flop()
        return plain(where(can, 0.25, 1.0) * flop) if anywhere(can) else flop

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x [n, c, touched rows and columns], the weights, y [n, k, p, q], and the unfolded matrix of im2col."""
        rows, cols = self._touched(self.h, self.p, self.r), self._touched(self.w, self.q, self.s)
        image, result = (self.n, self.c, rows, cols), (self.n, self.k, self.p, self.q)
        filters = (self.k, self.c / self.groups, self.r, self.s)
        if self.backward:
            return gradient_tensors(self, image, filters, result)
        tensors = (
            Tensor.input("x", image, self.dtype),
            Tensor.input("weight", filters, self.dtype),
            Tensor.output("y", result, self.dtype),
        )
        if self.algorithm == "implicit_gemm":
            return tensors
        unfolded = (self.n, 1.0 * self.c * self.r * self.s, 1.0 * self.p * self.q)
        return (*tensors, Tensor.intermediate("unfolded", unfolded, self.dtype))

    def composition(self) -> tuple[Operator, ...]:
        """Return both gradients as two kernels; empty for one of them, and forward."""
        if not self.backward or self.gradient != "both":
            return ()
        return (self.changed(gradient="input"), self.changed(gradient="weight"))

    def buffers(self) -> tuple[Tensor, ...]:
        """Return the tensors with all rows and columns of x, those that no filter touches too."""
        whole = Tensor.input("x", (self.n, self.c, self.h, self.w), self.dtype)
        return tuple(whole if tensor.name == "x" else tensor for tensor in self.tensors())

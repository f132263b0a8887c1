"""Fast Fourier transforms along one or several axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from perfmodel.core.work import Number, Tensor, anywhere, floor, plain, where
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator, choice, size
from perfmodel.operators.checks import first_point

#: complex points of an axis that a block transforms in shared memory: 64 KiB in fp32 (assumed: what the blocks of every
#: GPU since Volta may take); longer axes take several kernels, each of which reads and writes all points
BLOCK = 8192.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Fft(Operator):
    """``batch`` transforms of n points along one axis and of ``others`` points along further axes.

    With N = n others points of a transform, FLOP = 5 N log2 N for complex numbers, the convention of FFTW's benchmarks
    (Frigo and Johnson 2005, "The design and implementation of FFTW3", doi:10.1109/JPROC.2004.840301); half of that from
    real numbers to complex ones, and back. n real numbers have floor(n / 2) + 1 complex ones.

    Traffic reads the input once and writes the result once. A kernel transforms one axis of up to 8192 points in shared
    memory; between two kernels all points cross memory once more, from L2 where they fit there. A complex number has
    two parts of ``dtype``.

    Parameters
    ----------
    batch : independent transforms.
    n : points of the axis that a kernel starts with; real numbers have half as many complex ones along it.
    others : points of the other axes together.
    axes : axes that are transformed; by default one, or two with ``others``.
    kind : "complex", "real" (to complex), or "inverse_real" (complex to real).

    Raises
    ------
    UsageError
        One axis, and ``others`` above 1.
    """

    op: ClassVar[str] = "fft"

    batch: Number = size(1, doc="independent transforms")
    n: Number = size(doc="points of an axis, that of real numbers")
    others: Number = size(1, doc="points of the other axes together")
    axes: Number = size(None, doc="axes that are transformed; default 1, or 2 with others")
    kind: str = choice("complex", ("complex", "real", "inverse_real"), always_shown=True, doc="kind of numbers")

    def check(self) -> None:
        """Derive the number of axes; check that there are as many as the points need."""
        self.derive(axes=where(self.others > 1, 2, 1))
        if anywhere(few := (self.axes < 2) & (np.asarray(self.others) > 1)):
            axes, others = first_point(few, self.axes, self.others)
            raise UsageError(
                f"axes={axes} and others={others}: the points of other axes are transformed.",
                place=self.op,
                remedy="Give axes=2 or more, or count independent transforms in batch.",
            )

    def flop(self) -> Number:
        """Return 5 N log2 N of each transform, half of it with real numbers on one side [FLOP]."""
        total = 1.0 * self.n * self.others
        each = 5.0 if self.kind == "complex" else 2.5
        return plain(each * self.batch * total * np.log2(total))

    def kernels(self) -> Number:
        """Return the kernels of one call: one for each axis, more for an axis that no block holds."""
        longer = np.ceil(np.log2(np.maximum(self.n, 2.0)) / np.log2(BLOCK))
        return plain(longer + np.maximum(self.axes - 1.0, 0.0))

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x and y [batch, others, n, parts], and what the kernels between them read and write."""
        half = floor(self.n / 2.0) + 1.0
        real, full = (self.batch, self.others, self.n), (self.batch, self.others, self.n, 2)
        halved = (self.batch, self.others, plain(half), 2)
        before, after = {"complex": (full, full), "real": (real, halved), "inverse_real": (halved, real)}[self.kind]
        again = self.kernels() - 1.0
        inner = full if self.kind == "complex" else halved
        return (
            Tensor.input("x", before, self.dtype),
            Tensor.output("y", after, self.dtype),
            Tensor("between kernels", inner, self.dtype, again, again, 2.0 * again),
        )

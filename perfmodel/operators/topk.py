"""The largest elements of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, Tensor, anywhere, plain
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator, choice, size
from perfmodel.operators.checks import first_point
from perfmodel.operators.sort import DIGIT_BITS, Sort

#: bytes of the index that a sort moves with each key
INDEX_DTYPE = "int64"


@dataclass(frozen=True, kw_only=True, eq=False)
class Topk(Operator):
    """The k largest elements of each row of ``cols``, with their places, as ``torch.topk``.

    - radix_select: one read a digit of 8 bits finds the k-th largest (counts of the digits of those elements that share
      the digits before), one more gathers what is above it: (bits / 8 + 1) reads. Only the first read moves all rows
      from memory if the rest fit a cache (Alabi et al. 2012, "Fast k-selection algorithms for graphics processing
      units", doi:10.1145/2133803.2345676).
    - sort: a radix sort of keys with int64 indices, of which k are kept.
    - heap: one read; every element is compared with the smallest of a heap of k, and few enter it.

    FLOP counts comparisons and counts as 1: bits / 8 + 1 an element; those of the sort; 1 an element (heap), plus
    k ln(cols / k) log2 k for those of a random row that enter the heap.

    Parameters
    ----------
    rows, cols, k : independent rows, the elements of each, and how many of them are kept.
    algorithm : "radix_select", "sort" or "heap".
    """

    op: ClassVar[str] = "topk"

    rows: Number = size(1, doc="independent rows")
    cols: Number = size(doc="elements of a row")
    k: Number = size(doc="elements of a row that are kept; at most cols")
    algorithm: str = choice(
        "radix_select", ("radix_select", "sort", "heap"), always_shown=True, doc="how they are found"
    )

    def check(self) -> None:
        """Refuse more elements than a row has."""
        if anywhere(above := self.k > self.cols):
            k, cols = first_point(above, self.k, self.cols)
            raise UsageError(f"k={k} is above cols={cols}.", place=self.op, remedy="Keep at most cols.")

    def reads(self) -> float:
        """Return how often a row is read."""
        return 8.0 * dtype_bytes(self.dtype) / DIGIT_BITS + 1.0 if self.algorithm == "radix_select" else 1.0

    def sorting(self) -> Sort:
        """Return the sort of keys with their indices."""
        return Sort(rows=self.rows, cols=self.cols, dtype=self.dtype, value_dtype=INDEX_DTYPE)

    def kernels(self) -> Number:
        """Return the kernels of one call: one for all rows, or those of the sort."""
        return self.sorting().kernels() if self.algorithm == "sort" else 1.0

    def flop(self) -> Number:
        """Return comparisons and counts [FLOP]."""
        elements = 1.0 * self.rows * self.cols
        if self.algorithm == "sort":
            return self.sorting().flop()
        if self.algorithm == "radix_select":
            return elements * self.reads()
        entering = self.k * np.log(self.cols / self.k) * np.log2(np.maximum(self.k, 2.0))
        return plain(elements + self.rows * entering)

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x [rows, cols], the k largest of each row and their indices; those of the sort, if it sorts."""
        kept = (self.rows, self.k)
        found = (Tensor.output("values", kept, self.dtype), Tensor.output("indices", kept, INDEX_DTYPE))
        if self.algorithm != "sort":
            reads = self.reads()
            return (Tensor("x", (self.rows, self.cols), self.dtype, reads=reads, repeated=reads - 1.0), *found)
        keys, *moved = self.sorting().tensors()
        x = Tensor("x", keys.shape, keys.dtype, reads=keys.reads, repeated=keys.repeated)
        return (x, *found, *(tensor.inner(f"sort: {tensor.name}") for tensor in moved))

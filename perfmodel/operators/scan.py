"""Prefix sums of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from perfmodel.core.work import Number, Tensor, plain
from perfmodel.operators.base import Operator, choice, size

#: elements that one block scans (CUB's blocks of 256 threads take 8 to 16 each; assumed)
TILE = 2048.0
ALGORITHMS = ("look_back", "reduce_then_scan", "blelloch", "hillis_steele")


@dataclass(frozen=True, kw_only=True, eq=False)
class Scan(Operator):
    """y[r, i] = x[r, 0] + ... + x[r, i] over the ``cols`` of each row, as ``torch.cumsum``.

    With n = rows x cols elements of s bytes:

    - look_back (Merrill and Garland 2016, "Single-pass parallel prefix scan with decoupled look-back", NVIDIA technical
      report NVR-2016-002): one kernel, each block takes the sum of those before it from their flags: 2 n s.
    - reduce_then_scan: the sums of the blocks in a kernel of their own, their scan, then all elements again: 3 n s.
    - blelloch (Blelloch 1990, CMU-CS-90-190; inclusive form of Brent and Kung): up and down a tree of sums, level by
      level in memory. A node reads two elements and writes one, and each of the two ways has n - 1 nodes: 6 (n - 1) s.
    - hillis_steele (Hillis and Steele 1986): log2 n steps, each of which adds an element some way back to all:
      2 n s log2 n, and the element some way back once more where caches do not hold it (not counted).

    FLOP = n - 1 additions a row, 2 (n - 1) up and down the tree, n log2 n - (n - 1) for Hillis and Steele.

    Parameters
    ----------
    rows, cols : independent rows, and the elements of each.
    algorithm : "look_back", "reduce_then_scan", "blelloch" or "hillis_steele".
    """

    op: ClassVar[str] = "scan"

    rows: Number = size(1, doc="independent rows")
    cols: Number = size(doc="elements of a row")
    algorithm: str = choice("look_back", ALGORITHMS, always_shown=True, doc="how sums pass from block to block")

    def levels(self) -> Number:
        """Return log2 of a row's elements, rounded up: the depth of the tree, at least 1."""
        return plain(np.maximum(np.ceil(np.log2(self.cols)), 1.0))

    def kernels(self) -> Number:
        """Return the kernels of one call."""
        if self.algorithm == "look_back":
            return 1.0
        if self.algorithm == "reduce_then_scan":
            return 3.0
        return 2.0 * self.levels() if self.algorithm == "blelloch" else self.levels()

    def passes(self) -> Number:
        """Return how often the elements cross memory between the first read and the last write."""
        if self.algorithm == "look_back":
            return 0.0
        if self.algorithm == "reduce_then_scan":
            return 1.0
        if self.algorithm == "blelloch":
            return plain(np.maximum(6.0 * (self.cols - 1.0) / self.cols - 2.0, 0.0))
        return 2.0 * self.levels() - 2.0

    def flop(self) -> Number:
        """Return the additions [FLOP]."""
        additions = self.cols - 1.0
        if self.algorithm == "blelloch":
            additions = 2.0 * additions
        elif self.algorithm == "hillis_steele":
            additions = self.cols * self.levels() - additions
        return self.rows * additions

    def tensors(self) -> tuple[Tensor, ...]:
        """Return x and y [rows, cols], what the passes in between read and write, and the sums of the blocks."""
        shape = (self.rows, self.cols)
        ends = (Tensor.input("x", shape, self.dtype), Tensor.output("y", shape, self.dtype))
        if self.algorithm == "look_back":
            return ends
        if self.algorithm == "reduce_then_scan":
            return (Tensor("x", shape, self.dtype, reads=2.0, repeated=1.0), ends[1])
        # half of the passes read and half of them write
        half = self.passes() / 2.0
        return (*ends, Tensor("partial sums", shape, self.dtype, half, half, 2.0 * half))

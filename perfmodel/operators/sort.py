"""Sorting of rows of keys, alone or with values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, Tensor, maximum, plain
from perfmodel.operators.base import Operator, choice, dtype_of, size

#: bits of the key that one pass of a radix sort distributes by (Adinets and Merrill 2022, arXiv 2206.01784)
DIGIT_BITS = 8.0
#: keys that one block sorts in shared memory before keys cross memory again: 256 threads of 8 keys (merge), 512 of 8
#: (bitonic); assumed, the usual sizes of CUB's and PyTorch's blocks
MERGE_TILE, BITONIC_TILE = 2048.0, 4096.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Sort(Operator):
    """Each row of ``cols`` keys in rising order; with ``value_dtype``, a value (an index) moves with each key.

    Passes over n = rows x cols keys of b bytes with values of v bytes:

    - radix ("onesweep", Adinets and Merrill 2022, arXiv 2206.01784): one read for the histograms of all digits, then
      p = key bits / 8 passes that read and write: n b (1 + 2 p) + 2 p n v. It compares nothing.
    - merge: blocks sort tiles of 2048 keys, then log2(cols / 2048) passes merge pairs of runs, each reading and writing
      all: 2 n (b + v) (1 + passes).
    - bitonic: blocks sort tiles of 4096 keys; of the l = log2(cols / 4096) further stages, stage i has i passes over
      memory and one within the tiles: 1 + l (l + 3) / 2 passes (Batcher 1968).

    FLOP counts comparisons as 1: none (radix), n log2 cols (merge), n log2(cols) (log2(cols) + 1) / 4 (bitonic). In the
    caches of a small machine all but the first read and the last write may stay on the chip.

    Parameters
    ----------
    rows, cols : independent rows, and the keys of each.
    dtype, value_dtype : of keys and values; values are left out by default. ``torch.sort`` moves int64 indices.
    algorithm : "radix", "merge" or "bitonic".
    """

    op: ClassVar[str] = "sort"

    rows: Number = size(1, doc="independent rows")
    cols: Number = size(doc="keys of a row")
    value_dtype: str = dtype_of(doc="dtype of the value that moves with each key; default: no values")
    algorithm: str = choice("radix", ("radix", "merge", "bitonic"), always_shown=True, doc="how keys are sorted")

    def passes(self) -> Number:
        """Return how often all keys are read and written, a histogram's read apart."""
        if self.algorithm == "radix":
            return 8.0 * dtype_bytes(self.dtype) / DIGIT_BITS
        if self.algorithm == "merge":
            return plain(1.0 + _levels(self.cols, MERGE_TILE))
        stages = _levels(self.cols, BITONIC_TILE)
        return plain(1.0 + stages * (stages + 3.0) / 2.0)

    def kernels(self) -> Number:
        """Return the kernels of one call.

        A pass each; radix has a histogram, its sum and a reset before them, and each merge a kernel that partitions
        the runs before it (CUB: DeviceMergeSortPartitionKernel).
        """
        if self.algorithm == "merge":
            return 2.0 * self.passes() - 1.0
        return self.passes() + (3.0 if self.algorithm == "radix" else 0.0)

    def flop(self) -> Number:
        """Return the comparisons [FLOP]."""
        keys, depth = 1.0 * self.rows * self.cols, plain(np.ceil(np.log2(self.cols)))
        if self.algorithm == "radix":
            return 0.0 * keys
        return keys * depth if self.algorithm == "merge" else keys * depth * (depth + 1.0) / 4.0

    def tensors(self) -> tuple[Tensor, ...]:
        """Return keys and sorted keys [rows, cols], values and their order, and what the passes move in between."""
        shape, passes = (self.rows, self.cols), self.passes()
        first = 2.0 if self.algorithm == "radix" else 1.0
        tensors = [
            Tensor("keys", shape, self.dtype, reads=first, repeated=first - 1.0),
            Tensor.output("sorted", shape, self.dtype),
        ]
        kinds = [("keys", self.dtype)]
        if self.value_dtype:
            tensors += [
                Tensor.input("values", shape, self.value_dtype),
                Tensor.output("order", shape, self.value_dtype),
            ]
            kinds.append(("values", self.value_dtype))
        between = maximum(0.0, passes - 1.0)
        return (
            *tensors,
            *(Tensor(f"{name} between passes", shape, d, between, between, 2.0 * between) for name, d in kinds),
        )


def _levels(cols: Number, tile: float) -> Number:
    """Return how often runs double from a tile to a whole row."""
    return plain(np.ceil(np.log2(np.maximum(cols / tile, 1.0))))

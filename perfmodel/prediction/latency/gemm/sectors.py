"""Matrix products whose rows begin inside a sector of L2: sizes that are no multiples of 32 bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfmodel.core.vocabulary import Limiter
from perfmodel.core.work import Number, anywhere
from perfmodel.prediction.latency.gemm.rates import Product
from perfmodel.prediction.latency.terms import Term

SECTORS = Term("sectors", Limiter.L2, "rows that begin inside a sector of L2, whose tiles take one more for each row")
#: bytes of a sector of L2 (CUDA C++ programming guide, device memory accesses), and share of its time that a product
#: takes longer whose rows begin inside one: geometric mean of the 14 fitted products of PyTorch on H100 (own
#: measurement, 2026-11-23). Others of that record, which were not fitted, are off by 7.9 % with it and 10.1 % without
SECTOR_BYTES, OFF_SECTORS = 32, 0.08


def pitches_bits(k: Number, n: Number, input_bytes: float, output_bytes: float) -> Any:
    """Return the pitches of the rows of A and of the outputs, joined [bits]: elements of 4 bits are not whole bytes."""
    return joined(k, n, int(8.0 * input_bytes), int(8.0 * output_bytes))


def pitches_of(product: Product) -> Any:
    """Return `pitches_bits` of a product."""
    return pitches_bits(product.k, product.n, product.input_bytes, product.output_bytes)


def joined(a: Number, b: Number, of_a: int = 1, of_b: int = 1) -> Any:
    """Return whole multiples of two whole sizes, one *or* the other bit by bit; of arrays the lowest byte of that.

    A power of two divides both where it divides this; nobody asks for one above 256.

    >>> joined(6.0, 8.0)
    14
    >>> joined(np.array([6.0, 1024.0]), 8.0)
    array([14,  8], dtype=uint8)
    """
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return _lowest_byte(a, of_a) | _lowest_byte(b, of_b)
    return int(a) * of_a | int(b) * of_b


def _lowest_byte(size: Number, of: int) -> Any:
    """Return the lowest byte of a multiple; bytes take numpy a tenth of the time of whole words."""
    if not isinstance(size, np.ndarray):
        return np.uint8(int(size) * of & 255)
    return size.astype(np.int64).astype(np.uint8) * np.uint8(of)


def off_sectors(pitches: Any) -> Number:
    """Return what a product takes longer, as a share, where rows of A or of the outputs begin inside a sector of L2.

    Sizes of all tables are multiples of 32, so that none of their products is among them.

    Parameters
    ----------
    pitches : from `pitches_bits` of the product.
    """
    off: Any = pitches & (8 * SECTOR_BYTES - 1) != 0
    return OFF_SECTORS * off if anywhere(off) else 0.0

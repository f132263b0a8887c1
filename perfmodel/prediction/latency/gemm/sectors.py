"""Matrix products whose rows begin inside a sector of L2: sizes that are no multiples of 32 bytes."""

from __future__ import annotations

from perfmodel.core.vocabulary import Limiter
from perfmodel.core.work import Number, maximum
from perfmodel.prediction.latency.gemm.rates import Product
from perfmodel.prediction.latency.terms import Term

SECTORS = Term("sectors", Limiter.L2, "rows that begin inside a sector of L2, whose tiles take one more for each row")
#: bytes of a sector of L2 (CUDA C++ programming guide, device memory accesses), and share of its time that a product
#: takes longer whose rows begin inside one: geometric mean of the 14 fitted products of PyTorch on H100 (own
#: measurement, 2026-11-23). Others of that record, which were not fitted, are off by 7.9 % with it and 10.1 % without
SECTOR_BYTES, OFF_SECTORS = 32.0, 0.08


def off_sectors(product: Product) -> Number:
    """Return what a product takes longer, as a share, where rows of A or of the outputs begin inside a sector of L2.

    Sizes of all tables are multiples of 32, so that none of their products is among them.
    """
    off: Number = maximum(
        1.0 * (product.k * product.input_bytes % SECTOR_BYTES != 0),
        1.0 * (product.n * product.output_bytes % SECTOR_BYTES != 0),
    )
    return OFF_SECTORS * off

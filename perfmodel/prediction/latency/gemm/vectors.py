"""Products of few rows in 16 bits by kernels that multiply a matrix with vectors, in libraries that have such.

Their waves read whole rows of the matrix, once, and share no tiles: they stream as cuBLAS's kernels for a vector do
(`perfmodel.prediction.latency.gemm.own_kernels`), and start as soon. AMD's libraries have them beside hipBLASLt, whose
tiles take up to 1.7 times as long: wvSpltK (github.com/ROCm/rocm-libraries/pull/12329, five products of one row on an
MI300X: 16 % off so, 35 % as hipBLASLt's) and AITER's FlyDSL kernels for 1 to 4 rows (18 products: 15 % off, 97 % as
AITER's tiles; `examples/published`, all in view).
"""

from __future__ import annotations

from typing import Any

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, where
from perfmodel.operators.gemm import Gemm
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.gemm.own_kernels import FEW_CLOCKS, FEW_ROWS, VECTOR_SHARE, moved_s
from perfmodel.prediction.latency.gemm.rates import Product
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import HBM, LAUNCH, Terms

#: names of the libraries whose kernels these are
LIBRARIES = ("wvspltk", "wvsplitk", "aiter_flydsl_decode")


def by_vectors(op: Gemm, machine: Machine, conditions: Conditions) -> Any:
    """Return which products multiply a matrix with vectors: a mask, or False where the library has no such kernel."""
    if conditions.library not in LIBRARIES or dtype_bytes(op.dtype) != 2.0 or machine.engine != "tensor":
        return False
    return (op.m <= FEW_ROWS) & (op.batch <= 1)


def streamed_s(product: Product, machine: Machine) -> tuple[Number, float]:
    """Return t = bytes / (0.85 W), and the start of a kernel of `FEW_CLOCKS` SM clocks [s]."""
    return moved_s(product, machine) / VECTOR_SHARE, FEW_CLOCKS / machine.clock_hz


def with_vectors(mask: Any, product: Product, terms: Terms, machine: Machine) -> Terms:
    """Return the terms of products of which those of a mask multiply a matrix with vectors."""
    streamed, start = streamed_s(product, machine)
    adds = {name: where(mask, 0.0, part) for name, part in terms.adds.items()}
    adds[HBM] = where(mask, streamed, terms.adds.get(HBM, 0.0))
    adds[LAUNCH] = where(mask, start, terms.adds[LAUNCH])
    alone = {name: where(mask, 0.0, part) for name, part in terms.alone.items()}
    alone[HBM] = where(mask, streamed, terms.alone.get(HBM, 0.0))
    return Terms(adds, alone)

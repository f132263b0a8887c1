"""Quantising the input of a product to 8 bits: before it, or alone."""

from __future__ import annotations

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.vocabulary import CacheState, Limiter
from perfmodel.core.work import Number, maximum, minimum
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.quantize import Quantize
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Values
from perfmodel.prediction.latency.gemm.rates import Product, resident_speed
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import fitting_share
from perfmodel.prediction.latency.terms import LAUNCH, Term, Terms

QUANTISATION = Term("quantisation", Limiter.HBM, "scaling the inputs to 8 bits first")

#: clocks to start and drain a serving library's product without kernels before it: those of 16-bit products. Inferred
#: from them: no row of such a library times an 8-bit product alone.
PRODUCT_START = 4300.0
#: share of the bandwidth at which compiled kernels quantise: torchao's in Triton 0.80 to 0.87 on an H100, and 0.72 on
#: a B200 (two sources of `examples/published`, in view; with transposed results a half)
COMPILED_STREAM = 0.8


def quantise(op: Quantize, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of quantising alone: its traffic and rows, and the start that a product has without it.

    Serving libraries' kernels wait for their instructions and rows; those that others compile stream.
    """
    product = Product(op.rows, 0.0, op.cols, 1.0, dtype_bytes(op.dtype), 2.0)
    start = minimum(c["start"], PRODUCT_START) / machine.clock_hz
    quantising = quantisation_s(product, machine, c, conditions)
    if conditions.library and not conditions.library.startswith(Gemm.QUANTISING):
        quantising = minimum(quantising, op.work().bytes / (COMPILED_STREAM * machine.bandwidth_bytes_per_s))
    return Terms({QUANTISATION: quantising, LAUNCH: start})


def quantisation_s(product: Product, machine: Machine, c: Values, conditions: Conditions) -> Number:
    """Return the time of quantising A from 16 bits [s]; A stays in L2 from call to call where it fits."""
    elements = product.batch * (1.0 * product.m * product.k)
    time = c["quantisation_bytes"] * product.input_bytes * elements / (c["eta"] * machine.bandwidth_bytes_per_s)
    # A block a row: it starts, joins its maximum and ends, however short the row is.
    rows = c["quantisation_row"] * product.batch * product.m / (machine.sm_count * machine.clock_hz)
    if conditions.cache == CacheState.COLD or not machine.l2_bytes:
        return maximum(time, rows)
    # A in 16 bits and quantised, and the weights of the product that ran since.
    used = (2.0 + product.input_bytes) * elements + product.b_bytes * product.batch * (1.0 * product.n * product.k)
    resident = fitting_share(used, machine.l2_bytes)
    return maximum(time * (1.0 - resident * (1.0 - 1.0 / resident_speed(machine, c["resident"]))), rows)

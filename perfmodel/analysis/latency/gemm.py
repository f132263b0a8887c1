"""Matrix products as frameworks call them: the families of fp32, of 16-bit and of 8-bit products.

One formula, `product_terms`, with the constants of each kind of kernel. cuBLAS's fp32 products are timed round calls
of a framework (NeuSight), where a linear layer takes more dispatch than a batched product and runs a little slower;
16-bit and 8-bit ones inside inference libraries (aiconfigurator), where an 8-bit product may first quantise A.
"""

from __future__ import annotations

from typing import cast

from perfmodel.analysis.latency._base import Constant, Family, Machine, Terms, Values, View
from perfmodel.analysis.latency._product import POWER, product_terms
from perfmodel.analysis.latency._product_rates import Product, is_fp32
from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number
from perfmodel.operators._base import Operator
from perfmodel.operators.gemm import Gemm

__all__ = ["GEMM_BF16", "GEMM_FP8", "GEMM_FP32", "POWER", "Product", "family_of", "product_terms", "terms"]

#: constant -> unit, limits, spread between machines, meaning
_SHARED = {
    "math": ("", 0.2, 1.0, 0.1, "share of the peak that the largest tile reaches"),
    "linear": ("", 0.5, 1.2, 0.1, "the same for a single product, over that of a batch"),
    "eta": ("", 0.3, 1.0, 0.1, "share of the datasheet bandwidth"),
    "launch": ("s", 0.5e-6, 30e-6, 0.2, "start and drain of the kernel, and of those that must run before it"),
    "fill": ("", 1.0, 1000.0, 0.4, "length of k that filling and draining a block's pipeline takes"),
    "split": ("s", 0.1e-6, 30e-6, 0.4, "start of the reduction of the parts of k"),
    "tile": ("", 0.01, 5.0, 0.6, "loss of small tiles: 64 tile (1/tm + 1/tn) of the arithmetic's time"),
    "stride": ("", 1.0, 10.0, 0.4, "time of reading a matrix in pieces along k, over reading it whole"),
    "linear_call": ("", 0.8, 3.0, 0.2, "dispatch of a linear layer, over that of a product"),
    "l2": ("", 0.1, 5.0, 0.5, "L2 bandwidth, over 64 B a clock and SM"),
    "energy": ("J/FLOP", 1e-13, 1e-10, 0.4, "energy of a FLOP that the board's power limit has to feed"),
    "kappa": ("", 1.0, 12.0, 0.4, "speed of data that lies in L2, over that of device memory"),
    "quantisation_bytes": ("B", 0.1, 20.0, 0.3, "traffic of quantising an element of A before the product"),
}


def _constants(library: tuple[str, ...] = ("launch",), **defaults: float) -> tuple[Constant, ...]:
    """Return the constants of a family with their defaults; ``library`` names those that a library has of its own."""
    made = []
    for name, default in defaults.items():
        unit, low, high, spread, meaning = _SHARED[name]
        made.append(Constant(name, unit, default, low, high, spread, meaning, name in library))
    return tuple(made)


def terms(op: Operator, machine: Machine, c: Values, view: View) -> Terms:
    """Return the terms of a GEMM's time; 8-bit products may quantise their input first."""
    gemm = cast(Gemm, op)
    product = Product(gemm.m, gemm.n, gemm.k, gemm.batch, dtype_bytes(gemm.dtype), dtype_bytes(gemm.out_dtype))
    made = product_terms(product, machine, c, view)
    if "quantisation_bytes" not in c:
        return made
    moved = c["quantisation_bytes"] * product.batch * (1.0 * product.m * product.k)
    return Terms({**made.adds, "quantisation": moved / (c["eta"] * machine.bandwidth_bytes_per_s)}, made.alone)


def _calls(op: Operator, c: Values) -> Number:
    """Return the dispatch of a call over that of a plain product: a bias goes through cublasLt's heuristics."""
    return c["linear_call"] if cast(Gemm, op).bias else 1.0


GEMM_FP32 = Family(
    "gemm_fp32",
    _constants(
        math=0.93, linear=0.93, eta=0.75, launch=2.7e-6, fill=12.0, split=4e-6, tile=0.15, stride=1.6, energy=12e-12,
        linear_call=1.65,
    ),
    terms,
    calls=_calls,
)  # fmt: skip
GEMM_BF16 = Family(
    "gemm_bf16",
    _constants(math=0.93, eta=0.79, launch=2.4e-6, fill=205.0, split=2.7e-6, l2=1.2, energy=0.85e-12, kappa=1.2),
    terms,
)
GEMM_FP8 = Family(
    "gemm_fp8",
    # Whether the inputs are quantised in a kernel of their own, and which 8-bit kernels there are, is the library's.
    _constants(
        ("launch", "quantisation_bytes", "split"),
        math=0.9, eta=0.75, launch=8e-6, fill=500.0, split=5e-6, l2=1.1, energy=0.45e-12, kappa=1.2,
        quantisation_bytes=5.5,
    ),
    terms,
)  # fmt: skip


def family_of(machine: Machine) -> Family:
    """Return the family of matrix products on a machine's engine and dtype."""
    if is_fp32(machine):
        return GEMM_FP32
    return GEMM_FP8 if dtype_bytes(machine.dtype) < 2 else GEMM_BF16

"""Matrix products as frameworks call them: the families of fp32, of 16-bit and of 8-bit products.

They share one formula, `product_terms`, with the constants of each kind of kernel. cuBLAS's fp32 products are timed
around calls of a framework (NeuSight), where a linear layer takes more dispatch than a batched product and runs a
little slower; 16-bit and 8-bit products are timed inside inference libraries (aiconfigurator), whose 8-bit products
first quantise A (`Gemm.QUANTISING`). Other libraries' 8-bit products are the product alone, like 16-bit ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, anywhere, ceil, log2, maximum, minimum, where
from perfmodel.operators.base import Operator
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.quantize import Quantize
from perfmodel.operators.scales import is_microscaled
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Axis, Constant, Family, Values
from perfmodel.prediction.latency.gemm.alignment import ALIGNMENT, OFF_VECTORS, TRITON, beside, narrow_s
from perfmodel.prediction.latency.gemm.epilogue import EPILOGUE, epilogue_s
from perfmodel.prediction.latency.gemm.limited import STARVED
from perfmodel.prediction.latency.gemm.own_kernels import in_tiles, is_narrow, own_s
from perfmodel.prediction.latency.gemm.product import product_s, product_terms
from perfmodel.prediction.latency.gemm.quantisation import PRODUCT_START, QUANTISATION, quantisation_s, quantise
from perfmodel.prediction.latency.gemm.rates import VECTOR_SPLIT, Product, is_fp32, pause_s
from perfmodel.prediction.latency.gemm.sectors import SECTORS, off_sectors
from perfmodel.prediction.latency.gemm.setup import setup_of
from perfmodel.prediction.latency.gemm.times import PIPELINE, POWER, POWER_LIMIT, PRODUCT_TERMS
from perfmodel.prediction.latency.gemm.unmeasured import (
    BATCH_OF_VECTORS,
    BY_TRITON,
    EITHER_LAYOUT,
    FEW_ROWS_IN_FP32,
    FEW_ROWS_IN_FP64,
    IN_L2,
    MICROSCALED_ON_AMD,
    NOBODYS_TABLE,
    ON_RADEON,
    ON_TURING,
    OTHER_4_BITS,
    OTHER_INSTALLATION,
    QUANTISING_ALONE,
    SCALED,
    VENDOR_ELSEWHERE,
    WITH_A_VECTOR,
)
from perfmodel.prediction.latency.gemm.vectors import by_vectors, streamed_s, with_vectors
from perfmodel.prediction.latency.machine import Machine, multiplies_mixed
from perfmodel.prediction.latency.power import TENSOR_ENERGY, VECTOR_ENERGY
from perfmodel.prediction.latency.terms import HBM, LAUNCH, Terms, Total, total_of

__all__ = [
    "EPILOGUE",
    "FAMILIES",
    "GEMM_BF16",
    "GEMM_FP8",
    "GEMM_FP32",
    "POWER",
    "POWER_LIMIT",
    "PRODUCT_START",
    "PRODUCT_TERMS",
    "QUANTISATION",
    "SERVES",
    "TENSOR_CONSTANTS",
    "VECTOR_SPLIT",
    "Product",
    "constants_of",
    "epilogue_s",
    "family_of",
    "has_plain_kernel",
    "is_fp32",
    "pause_s",
    "product_terms",
    "quantisation_s",
]

SERVES = {"gemm_fp32": ("gemm",), "gemm_bf16": ("gemm",), "gemm_fp8": ("gemm", "quantize")}

#: constant -> unit, lower and upper limit, spread between machines, meaning
_SHARED = {
    "math": ("", 0.2, 1.0, 0.1, "share of the peak that the largest tile reaches"),
    "linear": ("", 0.5, 1.5, 0.1, "the same for a single product, over that of a batch"),
    "eta": ("", 0.3, 1.0, 0.1, "share of the datasheet bandwidth"),
    "launch": ("s", 0.5e-6, 30e-6, 0.2, "start and drain of the kernel, and of those that must run before it"),
    "fill": ("", 1.0, 1000.0, 0.4, "length of k that filling and draining a block's pipeline takes"),
    "split": ("s", 0.1e-6, 30e-6, 0.4, "start of the reduction of the parts of k"),
    "tile": ("", 0.01, 5.0, 0.6, "loss of small tiles: 64 tile (1/tm + 1/tn) of the arithmetic's time"),
    "stride": ("", 1.0, 10.0, 0.4, "time of reading a matrix in pieces along k, over reading it whole"),
    "ragged": ("", 1.0, 1.5, 0.15, "energy of a FLOP where two sizes are no multiples of 32, over that where they are"),
    "linear_call": ("", 0.8, 3.0, 0.2, "dispatch of a linear layer, over that of a product"),
    "energy": ("J/FLOP", 1e-13, 1e-10, 0.15, "energy of a FLOP at the lowest voltage, in TSMC 4N"),
}
#: those of the tensor engine, in units in which machines of all generations are alike
TENSOR_CONSTANTS = {
    **_SHARED,
    "start": ("", 500.0, 60e3, 0.2, "clocks to start and drain the kernel, and those that must run before it"),
    "fill": ("", 1.0, 1000.0, 0.4, "length of k that filling and draining a block takes, outputs as wide as inputs"),
    "l2": ("", 0.05, 5.0, 0.4, "L2 bandwidth, over what tiles of 64 x 64 need at the peak"),
    "energy": ("J/FLOP", 1e-13, 2e-11, 0.15, "energy of a 16-bit FLOP at the lowest voltage, in TSMC 4N"),
    # The power limit, not this share, takes what a lower clock costs.
    "math": ("", 0.2, 1.0, 0.05, "share of the peak that the largest tile reaches where power does not limit it"),
    "resident": ("", 1e-3, 1.0, 0.7, "share of L2's 64 B a clock and SM that data in it have beside device memory's"),
    "quantisation_row": ("", 1.0, 20e3, 0.4, "SM clocks of quantising one row of A"),
    "quantisation_bytes": ("B", 0.1, 20.0, 0.3, "traffic of quantising A, for each byte of the result"),
}


def constants_of(
    meanings: Mapping[str, tuple[str, float, float, float, str]], library: tuple[str, ...], **defaults: float
) -> tuple[Constant, ...]:
    """Return the constants of a family with their defaults; ``library`` names those that each library may have."""
    constants = []
    for name, default in defaults.items():
        unit, low, high, spread, meaning = meanings[name]
        constants.append(Constant(name, unit, default, low, high, spread, meaning, name in library))
    return tuple(constants)


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of a GEMM's time; 8-bit products may quantise their input first."""
    if not isinstance(op, Gemm):
        return quantise(cast(Quantize, op), machine, c, conditions)
    of = setup_of(op, machine, c, conditions)
    product, machine, c = of.product(op), of.machine, of.c
    terms = product_terms(product, machine, c, conditions)
    if of.has_own_kernels:
        terms = _with_own_kernels(product, terms, machine, c)
    elif of.loads_rows:
        pitches = of.pitches(op)
        share = off_sectors(pitches)
        if anywhere(share) or conditions.library == TRITON:
            body = terms.time_s - terms.adds[LAUNCH]
            terms = terms.plus(SECTORS, share * body)
            body = body * (1.0 + share)
            narrow = narrow_s(product, machine, conditions.library, c["split"], pitches)
            if anywhere(narrow):
                terms = terms.plus(ALIGNMENT, beside(body, narrow) - body)
    if anywhere(vectors := by_vectors(op, machine, conditions)):
        terms = with_vectors(vectors, product, terms, machine)
    if op.activation != "none":
        terms = terms.plus(EPILOGUE, epilogue_s(op, machine, c, conditions))
    if "quantisation_bytes" not in c:
        return terms
    adds = {**terms.adds, LAUNCH: of.launch_s}
    if of.quantises:
        adds[QUANTISATION] = quantisation_s(product, machine, c, conditions)
    return Terms(adds, terms.alone)


def total(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Total:
    """Return what the terms of `formula` add up to."""
    if not isinstance(op, Gemm):
        return total_of(formula(op, machine, c, conditions))
    of = setup_of(op, machine, c, conditions)
    machine, c = of.machine, of.c
    time, launch = product_s(op, of.rates), of.launch_s
    if of.has_own_kernels:
        if is_narrow(op) or machine.dtype == "fp64":
            time = own_s(of.product(op), time, machine, c)
    elif of.loads_rows:
        pitches = of.pitches(op)
        share = off_sectors(pitches)
        if anywhere(share) or conditions.library == TRITON:
            narrow = narrow_s(of.product(op), machine, conditions.library, c["split"], pitches)
            time = beside(time * (1.0 + share), narrow)
    time = time + launch
    if anywhere(vectors := by_vectors(op, machine, conditions)):
        streamed, start = streamed_s(of.product(op), machine)
        time, launch = where(vectors, streamed + start, time), where(vectors, start, launch)
    if of.quantises:
        time = time + quantisation_s(of.product(op), machine, c, conditions)
    if op.activation != "none":
        time = time + epilogue_s(op, machine, c, conditions)
    return Total(time, launch)


def _with_own_kernels(product: Product, terms: Terms, machine: Machine, c: Values) -> Terms:
    """Return the terms of products of which some run in kernels of their own: few rows stream, blocks of fp64 wait.

    Where tiles would take longer, each of their terms is as much shorter.
    """
    body = terms.time_s - terms.adds[LAUNCH]
    time, tiled = own_s(product, body, machine, c), in_tiles(product, machine)
    shorter = minimum(time / body, 1.0)
    share = tiled * shorter
    kept = {name: part if name == LAUNCH else share * part for name, part in terms.adds.items()}
    kept[HBM] = kept[HBM] + (1.0 - tiled) * time
    kept[PIPELINE] = kept[PIPELINE] + tiled * maximum(time - body, 0.0)
    alone = {name: where(tiled > 0.0, shorter * value, 0.0) for name, value in terms.alone.items()}
    alone[HBM] = maximum(alone[HBM], (1.0 - tiled) * time)
    return Terms(kept, alone)


def _call_cost(op: Operator, c: Values) -> Number:
    """Return the dispatch of a call over that of a plain product: a bias goes through cublasLt's heuristics."""
    return c["linear_call"] if cast(Gemm, op).bias else 1.0


def has_plain_kernel(op: Operator | None) -> bool:
    """Return whether a product's kernels are those of one dtype: its operands are alike, and not scaled in blocks.

    Tables of fp4 products are NVIDIA's, with groups; they have the kernels of 8-bit products. Products of fp8 take
    scales of rows and columns in their epilogue, and those of a microscaling format in the engine.
    """
    if not isinstance(op, Gemm):
        return True
    if op.scale == "none":
        return op.weight_dtype == op.dtype
    scaled_in_passing = op.scale == "column" or is_microscaled(op.dtype, op.weight_dtype, op.scale)
    plain = op.dtype == "fp4" or (op.dtype == "fp8" and scaled_in_passing)
    return op.weight_dtype == op.dtype and plain


def _is_fp32(op: Operator | None, machine: Machine, library: str) -> bool:
    return is_fp32(machine) and has_plain_kernel(op)


def _is_fp8(op: Operator | None, machine: Machine, library: str) -> bool:
    """Whether an 8-bit product is a serving library's, with kernels of its own; those of fp4 are all such.

    So are those of fp8 by fp4 where the engine multiplies both as they are: they read less, and differ in nothing else.
    """
    if isinstance(op, Gemm) and op.weight_dtype != op.dtype:
        return multiplies_mixed(machine, op.dtype, op.weight_dtype)
    size = dtype_bytes(machine.dtype)
    served = size < 1 or (size < 2 and library.startswith(Gemm.QUANTISING))
    return (served and not is_fp32(machine) and has_plain_kernel(op)) or type(op) is Quantize


def _is_bf16(op: Operator | None, machine: Machine, library: str) -> bool:
    """Whether a product is in 16 bits, or in 8 by the vendor's kernels: those of 16 bits with a faster engine.

    On H100 23 products of torch.scaled_mm are 6 % off by the constants of 16-bit products (own measurement,
    2026-11-23), and 62 % by those of serving libraries' 8-bit ones.
    """
    return not is_fp32(machine) and has_plain_kernel(op) and not _is_fp8(op, machine, library)


#: tile whose waves the residuals of 16-bit products follow best, of 128 x 128, 256 x 128, 64 x 128 and this one: 7.23,
#: 7.18, 7.29 and 7.14 % are left in the mean of H100, L40S and A100, and 7.34 % without waves, in a cross-validation on
#: 1500 rows each of the fitted half (aiconfigurator, Vidur)
_TILE_ROWS, _TILE_COLS = 128.0, 256.0


def _last_wave(op: Gemm, machine: Machine) -> Number:
    """Return the SMs that whole waves of the usual tile occupy, over those that work; at most 2."""
    waves = ceil(op.m * (1.0 / _TILE_ROWS)) * ceil(op.n * (1.0 / _TILE_COLS)) / machine.sm_count
    return minimum(ceil(waves) / waves, 2.0)


#: octaves of the batch over which the residuals of single products fade: a cliff from 1 to 2 would be none of the
#: kernels'
FADE = 4.0
#: residuals of products vary with the sizes, and with the part of the last wave that is idle
PRODUCT_AXES = (
    Axis("m", lambda op, machine: op.m, step=1.0, length=2.0, rising=5.0),
    Axis("n", lambda op, machine: op.n),
    Axis("k", lambda op, machine: op.k),
    Axis("idle", _last_wave, step=0.5, length=0.3, last=1.0),
)


def _alone(op: Gemm) -> Number:
    """Return how much of what single products say holds for a batch: no table of tensor engines has batches."""
    return maximum(0.0, 1.0 - log2(op.batch) / FADE)


def _is_single(op: Operator) -> Any:
    """Whether a product is the only one of its call: libraries have more kernels for it than for a batch."""
    return op.batch == 1 if isinstance(op, Gemm) else False


GEMM_FP32 = Family(
    "gemm_fp32",
    constants_of(
        _SHARED, ("launch",),
        math=0.93, linear=0.93, eta=0.75, launch=2.7e-6, fill=12.0, tile=0.15, stride=1.6, energy=VECTOR_ENERGY,
        ragged=1.2, linear_call=1.65,
    ),
    formula,
    (*PRODUCT_TERMS, EPILOGUE),
    _is_fp32,
    by_size=False,
    total=total,
    call_cost=_call_cost,
    apart=_is_single,
    doubts=(
        FEW_ROWS_IN_FP32, FEW_ROWS_IN_FP64, WITH_A_VECTOR, EITHER_LAYOUT, BATCH_OF_VECTORS, OTHER_INSTALLATION,
        VENDOR_ELSEWHERE, NOBODYS_TABLE, ON_RADEON,
    ),
)  # fmt: skip
GEMM_BF16 = Family(
    "gemm_bf16",
    # A library brings its cuBLAS, whose kernels feed the engine and reduce the parts of k in their own ways, and was
    # measured in its own laboratory, whose cooling sets the energy and whose harness what stays in L2. The bandwidth
    # and the fill of a pipeline are the machine's: given to libraries, they made machines that were left out worse.
    constants_of(
        TENSOR_CONSTANTS, ("start", "math", "l2", "split", "resident", "energy"),
        math=0.93, eta=0.79, start=PRODUCT_START, fill=200.0, split=2.7e-6, l2=0.6, energy=TENSOR_ENERGY, resident=0.03,
    ),
    formula,
    (*PRODUCT_TERMS, SECTORS, ALIGNMENT, EPILOGUE),
    _is_bf16,
    by_size=False,
    total=total,
    doubts=(
        OFF_VECTORS, STARVED, IN_L2, BY_TRITON, OTHER_INSTALLATION, VENDOR_ELSEWHERE, NOBODYS_TABLE, ON_RADEON, SCALED,
        MICROSCALED_ON_AMD, ON_TURING,
    ),
    axes=PRODUCT_AXES,
    surfaced=_alone,
)  # fmt: skip
#: clocks of a row in kernels that quantise A: 60 to 160 in SGLang and TensorRT-LLM; vLLM's has a block for each row,
#: which starts, joins its maximum and ends: 16384 to 32768 rows of 32 to 64 elements take 1900 to 2000 clocks each, on
#: an H100 and on an L40S alike (aiconfigurator @ 095f58a51c4c)
QUANTISATION_ROW = replace(
    constants_of(TENSOR_CONSTANTS, ("quantisation_row",), quantisation_row=150.0)[0],
    of_kernel=True,
    between_kernels=1.2,
    starts=(1600.0,),
)
GEMM_FP8 = Family(
    "gemm_fp8",
    # Whether the inputs are quantised in kernels of their own, and which 8-bit kernels there are, is the library's:
    # those of cuBLAS read a tile for several blocks at once, and split k.
    (
        *constants_of(
            TENSOR_CONSTANTS, ("start", "quantisation_bytes", "split", "l2"),
            eta=0.75, start=14000.0, fill=250.0, split=3e-6, l2=0.6, energy=TENSOR_ENERGY, resident=0.05,
            quantisation_bytes=5.0,
        ),
        QUANTISATION_ROW,
    ),
    formula,
    (*PRODUCT_TERMS, SECTORS, ALIGNMENT, QUANTISATION, EPILOGUE),
    _is_fp8,
    by_size=False,
    total=total,
    doubts=(OFF_VECTORS, STARVED, IN_L2, OTHER_4_BITS, QUANTISING_ALONE, ON_RADEON, SCALED, MICROSCALED_ON_AMD),
)  # fmt: skip
FAMILIES = (GEMM_FP32, GEMM_BF16, GEMM_FP8)


def family_of(machine: Machine) -> Family:
    """Return the family of matrix products on a machine's engine and dtype."""
    return next(family for family in FAMILIES if family.applies(None, machine, ""))

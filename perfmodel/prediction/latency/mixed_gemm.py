"""Matrix products of two dtypes, or with scales of blocks, inside inference libraries.

They share the formula of `perfmodel.prediction.latency.gemm`, with the bytes of each operand apart, and differ in the
kernels:

- weights of 4 or 8 bits under activations of 16 (``gemm_w4a16``, ``gemm_w8a16``): each block widens its part of B, one
  clock of an integer lane a weight (LOP3 and PRMT), so that tiles of few rows pay for it and those of 128 hardly do;
  most of these kernels are written for mma.sync, which is slower than the instructions of Hopper and Blackwell;
- 8-bit integers with a scale a column (``gemm_w8a8``, SmoothQuant): k is not split; up to 4 rows run as a product with
  a vector, t = start + ||hbm, lanes||, with lanes = m n k / (v 64 SMs f), v the multiply-adds of a lane in a clock;
- fp8 with scales of blocks (``gemm_fp8_block``): A is quantised first as in ``gemm_fp8``, k is not split. tcgen05 takes
  scales of 8 bits only, in its own order, so that one more kernel packs those of A (DeepGEMM: "SM90 requires scaling
  factors in FP32, SM100 packed UE8M0"). TensorRT-LLM on B200 copies A and its scales where m is no multiple of 4, since
  a row of scales then has no aligned address.

Tiles, parts of k and these rules were chosen on aiconfigurator @ 095f58a51c4c (TensorRT-LLM 1.0 and 1.3, SGLang 0.5,
vLLM 0.24), which the constants are fitted on. A product with a vector was tried for narrow weights in these, too, and
does not fit better; nor does the addition of partial sums in fp32 of scales of blocks. Libraries that have one take
it where it is faster.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware, Tiles
from perfmodel.core.vocabulary import Limiter
from perfmodel.core.work import Number, minimum, plain, where
from perfmodel.operators.base import Operator
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.quantize import Quantize
from perfmodel.operators.scales import weight_bytes
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Family, Values
from perfmodel.prediction.latency.gemm import (
    PRODUCT_START,
    QUANTISATION,
    TENSOR_CONSTANTS,
    constants_of,
    quantisation_s,
)
from perfmodel.prediction.latency.gemm.product import product_terms
from perfmodel.prediction.latency.gemm.rates import INTEGER_LANES, Product, is_fp32
from perfmodel.prediction.latency.gemm.tiles import BLOCK_SCALED, BLOCK_SCALED_CUTLASS, BLOCK_SCALED_MMA, WEIGHT_ONLY
from perfmodel.prediction.latency.gemm.times import DEQUANTISATION, POWER, PRODUCT_TERMS
from perfmodel.prediction.latency.gemm.unmeasured import ROW_BY_ROW_OF_OTHERS, YOUNG_BLOCKS
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.power import TENSOR_ENERGY
from perfmodel.prediction.latency.terms import HBM, LAUNCH, MATH, Term, Terms, overlapped

SERVES = {
    "gemm_w4a16": ("gemm",), "gemm_w8a16": ("gemm",), "gemm_w8a8": ("gemm",), "gemm_fp8_block": ("gemm",),
}  # fmt: skip

REALIGNMENT = Term("realignment", Limiter.LAUNCH, "copying A where a row of its scales has no aligned address")
#: rows of which the scales have aligned addresses: 4 x 4 B
ALIGNED_ROWS = 4.0
#: passes over A in 8 bits where it is copied, and the least clocks that a kernel which copies takes to start
COPY_PASSES, LEAST_START = 2.0, 1500.0
#: clocks to start and drain the kernel that packs scales for tcgen05: assumed, those of a product. Fits without it give
#: TensorRT-LLM 4,700 more on B200 than on H100, SGLang 17,000
PACKING_START = PRODUCT_START
#: latency of a step of 64 of k in products with scales of blocks [s]; fits of each machine give 46 to 60 ns
STEP_S = 50e-9
#: the same in kernels of AMD's Composable Kernel for gfx950, with the word that names them and the chip: 35 rows of
#: seven documents of AITER's on MI350X and MI355X take 1.19 times the predicted time in the median with it, 1.8 times
#: with that of the others; the root mean square of ln falls from 0.58 to 0.32 (`examples/published`, in view). On an
#: MI300X the best kernels of a search split k, and are no slower
CK_STEP_S, CK, CK_CHIP = 150e-9, "ck", "gfx950"
#: word in the names of libraries whose kernels for such scales are CUTLASS's; PyTorch's are, too
_CUTLASS = "cutlass"
#: most rows that a product with a vector computes
VECTOR_ROWS = 4
#: clocks to start and drain a product of narrow weights with a vector, in libraries that have one and no tables: six of
#: onnxruntime's on an H100 PCIe of 1 to 170 us of traffic, of which it is the rest (`examples/published`, in view)
VECTOR_START = 8000.0
#: those libraries; kernels by somebody's hand are taken to be such where that is faster. CUTLASS's and CuTe's are tiles
_WITH_VECTORS = (
    "onnxruntime", "mlx", "llamacpp", "exllama", "bitsandbytes", "awq", "gptq", "bitblas", "own", "cuda", "hip",
)  # fmt: skip
#: clocks of an integer lane that a weight takes to be widened; a fit gives 1.1 for 4 bits and 0.3 for 8
DEQUANT = 1.0
#: parts of k: weight-only kernels make a few, the others none
_FEW_PARTS: Values = {"dequant": DEQUANT, "parts": 4.0}
_ONE_PART: Values = {"parts": 1.0, "split": 0.0}
#: words in the names of libraries whose kernels for narrow weights use mma.sync on Hopper, too: Marlin (SGLang's as
#: well), and those of AWQ, ExLlama and bitsandbytes. vLLM's Machete and TensorRT-LLM's kernels use wgmma
_MMA_SYNC_ON_HOPPER = ("marlin", "sglang", "awq", "gptq", "exllama", "bitsandbytes")
#: words in the names of those that use tcgen05 on Blackwell: kernels in CuTe, for which vLLM has Marlin alone
_NATIVE_ON_BLACKWELL = ("cute",)
#: instructions that vLLM's kernels for scales of blocks are compiled for, and their names in the tables
_VLLM = {"wgmma": "vllm_deepgemm", "tcgen05": "vllm_deepgemm"}
#: dispatch of a product in Triton, whose arguments Python looks up and specialises in each call, over that of the same
#: one in a compiled library: 96.4 against 23.2 us on one host (github.com/triton-lang/triton/issues/459). Of the launch
#: alone it is 11 against 2.2 us (github.com/meta-pytorch/tritonbench/pull/1002)
TRITON_CALL = 4.0

_MEANINGS = {
    **TENSOR_CONSTANTS,
    "latency": ("s", 1e-9, 1e-6, 0.7, "latency of a step of 64 of k that no other block hides"),
    "realign": ("", 1.0, 1e5, 1.0, "clocks to start the kernels that copy A where m is no multiple of 4"),
    "gemv": ("", 0.01, 4.0, 0.5, "multiply-adds of an integer lane in a clock, in products with a vector"),
    "vector_start": ("", 500.0, 60e3, 0.3, "clocks to start and drain a product with a vector"),
}


def weight_only(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of a product with weights narrower than the activations."""
    gemm = cast(Gemm, op)
    engine = machine.by_mma_sync if _uses_mma_sync(machine, conditions.library) else machine
    terms = product_terms(_product(gemm, WEIGHT_ONLY), engine, {**c, **_FEW_PARTS}, conditions)
    vectors = np.equal(gemm.m, 1)
    if conditions.caller not in _WITH_VECTORS or not vectors.any():
        return terms
    lanes_s = DEQUANT * gemm.batch * (1.0 * gemm.n * gemm.k) / (INTEGER_LANES * machine.sm_count * machine.clock_hz)
    vector = _with_a_vector(terms, lanes_s, VECTOR_START / machine.clock_hz)
    return _chosen(vectors & np.less(vector.time_s, terms.time_s), vector, terms)


def _with_a_vector(tiled: Terms, lanes_s: Number, launch_s: float) -> Terms:
    """Return the terms of a product with a vector: its traffic, which is that in tiles, and the work of the lanes."""
    vector = overlapped(POWER, {MATH: lanes_s, HBM: tiled.alone[HBM]})
    return Terms({**vector.adds, LAUNCH: launch_s}, vector.alone)


def _chosen(mask: np.ndarray | np.bool_, vector: Terms, tiled: Terms) -> Terms:
    """Return the terms of products with a vector where a mask holds, and of products in tiles elsewhere."""
    here = bool(mask) if np.ndim(mask) == 0 else mask
    names = dict.fromkeys((*tiled.adds, *vector.adds))
    adds: dict[Term, Number] = {n: where(here, vector.adds.get(n, 0.0), tiled.adds.get(n, 0.0)) for n in names}
    return Terms(adds, {n: where(here, vector.alone.get(n, value), value) for n, value in tiled.alone.items()})


def _uses_mma_sync(machine: Machine, library: str) -> bool:
    """Whether a library's kernels for narrow weights use mma.sync where the tensor engine has another instruction."""
    if machine.matrix_instruction == "wgmma":
        return any(word in library for word in _MMA_SYNC_ON_HOPPER)
    return machine.matrix_instruction == "tcgen05" and not any(word in library for word in _NATIVE_ON_BLACKWELL)


def smooth_quant(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of a product of 8-bit integers, and of quantising A where that is part of it.

    The measured products do not quantise: a pass over A, and the start of a kernel, are assumed.
    """
    gemm = cast(Gemm, op)
    terms = _integers(gemm, machine, c, conditions)
    if not gemm.is_quantised_by(conditions.library):
        return terms
    rows = Quantize(rows=gemm.batch * gemm.m, cols=gemm.k, dtype="int8").work().bytes
    pass_s = rows / (c["eta"] * machine.bandwidth_bytes_per_s) + PRODUCT_START / machine.clock_hz
    return Terms({**terms.adds, QUANTISATION: plain(pass_s)}, terms.alone)


def _integers(gemm: Gemm, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of a product of 8-bit integers; with few rows, of a product with a vector."""
    terms = product_terms(_product(gemm, ()), machine, {**c, **_ONE_PART}, conditions)
    few = np.less_equal(gemm.m, VECTOR_ROWS)
    if not few.any():
        return terms
    rate = c["gemv"] * INTEGER_LANES * machine.sm_count * machine.clock_hz
    lanes_s = gemm.flop() / 2.0 / rate
    return _chosen(few, _with_a_vector(terms, lanes_s, c["vector_start"] / machine.clock_hz), terms)


def block_scaled(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of a product of fp8 with scales of blocks, and of quantising A where that is part of it."""
    gemm = cast(Gemm, op)
    product = _product(gemm, _block_tiles(machine, conditions.library))
    step_s = _step_s(machine, conditions.library)
    terms = product_terms(product, machine, {**c, **_ONE_PART, "latency": step_s}, conditions)
    unaligned = 1.0 * np.minimum(1.0, np.mod(gemm.m, ALIGNED_ROWS)) * np.greater(gemm.m, 1)
    copied = COPY_PASSES * gemm.batch * (1.0 * gemm.m * gemm.k) / (c["eta"] * machine.bandwidth_bytes_per_s)
    start = c["realign"] / machine.clock_hz
    copying = plain(unaligned * (start + copied * (c["realign"] >= LEAST_START)))
    adds: dict[Term, Number] = {**terms.adds, REALIGNMENT: copying}
    if not gemm.is_quantised_by(conditions.library):
        adds[LAUNCH] = minimum(terms.adds[LAUNCH], PRODUCT_START / machine.clock_hz)
    else:
        adds[QUANTISATION] = quantisation_s(product, machine, c, conditions)
        packing = PACKING_START if machine.matrix_instruction == "tcgen05" else 0.0
        adds[LAUNCH] = adds[LAUNCH] + packing / machine.clock_hz
    return Terms(adds, terms.alone)


def _block_tiles(machine: Machine, library: str) -> Tiles:
    """Return the tiles of a library's products with scales of blocks."""
    if machine.matrix_instruction not in _VLLM:
        return BLOCK_SCALED_MMA
    whole = library == "torch" or _CUTLASS in library
    return BLOCK_SCALED_CUTLASS if whole else BLOCK_SCALED


def _step_s(machine: Machine, library: str) -> float:
    """Return the latency of a step of 64 of k in a library's products with scales of blocks [s]."""
    chip = machine.hardware.compute_capability if machine.hardware is not None else ""
    return CK_STEP_S if chip == CK_CHIP and CK in library.split("_") else STEP_S


def _product(gemm: Gemm, tiles: tuple[tuple[int, int], ...]) -> Product:
    """Return the product with the bytes of each operand and the tiles of its kernels."""
    own, out = dtype_bytes(gemm.dtype), dtype_bytes(gemm.out_dtype)
    weights = weight_bytes(gemm.weight_dtype, gemm.scale)
    return Product(gemm.m, gemm.n, gemm.k, gemm.batch, own, out, weights, tiles)


def _lenders(hardware: Hardware, library: str, dtype: str) -> tuple[str, tuple[str, ...]]:
    """Return vLLM's usual kernel for scales of blocks on a machine; other libraries have one kernel."""
    name = _kernel(hardware.matrix_instruction, library)
    return name, (name,)


def _kernel(instruction: str, library: str) -> str:
    """Return the name that tables have for a library's kernel for scales of blocks."""
    return _VLLM.get(instruction, "vllm_triton") if library == "vllm" else library


def _slower_calls(machine: Machine, library: str) -> float:
    """Return the dispatch of a library's calls over that of kernels compiled beforehand."""
    return TRITON_CALL if _kernel(machine.matrix_instruction, library) == "vllm_triton" else 1.0


def _is_weight_only(weight_bytes: float, op: Operator | None, machine: Machine) -> bool:
    if not isinstance(op, Gemm) or op.dtype not in ("fp16", "bf16") or is_fp32(machine):
        return False
    return op.weight_dtype != op.dtype and dtype_bytes(op.weight_dtype) == weight_bytes


def _is_w8a8(op: Operator | None, machine: Machine, library: str) -> bool:
    return isinstance(op, Gemm) and (op.dtype, op.weight_dtype, op.scale) == ("int8", "int8", "column")


def _is_block_scaled(op: Operator | None, machine: Machine, library: str) -> bool:
    return isinstance(op, Gemm) and (op.dtype, op.weight_dtype, op.scale[:5]) == ("fp8", "fp8", "block")


_WEIGHT_ONLY_CONSTANTS = constants_of(
    _MEANINGS, ("start",),
    math=0.93, eta=0.82, start=14000.0, fill=120.0, split=10e-6, l2=0.5, energy=TENSOR_ENERGY, resident=0.02,
    latency=80e-9,
)  # fmt: skip
GEMM_W4A16 = Family(
    "gemm_w4a16",
    _WEIGHT_ONLY_CONSTANTS,
    weight_only,
    (*PRODUCT_TERMS, DEQUANTISATION),
    lambda op, machine, library: _is_weight_only(0.5, op, machine),
    by_size=False,
    doubts=(ROW_BY_ROW_OF_OTHERS,),
)
GEMM_W8A16 = Family(
    "gemm_w8a16",
    _WEIGHT_ONLY_CONSTANTS,
    weight_only,
    (*PRODUCT_TERMS, DEQUANTISATION),
    lambda op, machine, library: _is_weight_only(1.0, op, machine),
    by_size=False,
    doubts=(ROW_BY_ROW_OF_OTHERS,),
)
GEMM_W8A8 = Family(
    "gemm_w8a8",
    constants_of(
        _MEANINGS, ("start", "vector_start"),
        math=0.88, eta=0.85, start=15000.0, fill=190.0, l2=0.48, energy=TENSOR_ENERGY, resident=0.02, latency=50e-9,
        gemv=1.0, vector_start=12000.0,
    ),
    smooth_quant,
    (*PRODUCT_TERMS, QUANTISATION),
    _is_w8a8,
    by_size=False,
)  # fmt: skip
GEMM_FP8_BLOCK = Family(
    "gemm_fp8_block",
    constants_of(
        _MEANINGS, ("start", "eta", "fill", "quantisation_bytes", "quantisation_row", "l2", "resident", "realign"),
        math=0.85, eta=0.78, start=8000.0, fill=250.0, l2=0.3, energy=TENSOR_ENERGY, resident=0.03,
        quantisation_bytes=6.0, quantisation_row=110.0, realign=400.0,
    ),
    block_scaled,
    (*PRODUCT_TERMS, QUANTISATION, REALIGNMENT),
    _is_block_scaled,
    by_size=False,
    borrows=_lenders,
    slower_calls=_slower_calls,
    doubts=(YOUNG_BLOCKS,),
)  # fmt: skip
FAMILIES = (GEMM_W4A16, GEMM_W8A16, GEMM_W8A8, GEMM_FP8_BLOCK)

"""Products that the tables hardly have: with operands that stay in a large L2, and 4-bit ones of other libraries.

Neither formula is known well enough to say how far off it is, so that the interval says it. The figures are read off
published rows, which `docs/accuracy_published.md` names (third and fourth batch).
"""

from __future__ import annotations

from typing import Any

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware
from perfmodel.core.vocabulary import CacheState, ErrorSource
from perfmodel.core.work import anywhere, minimum
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.quantize import Quantize
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.doubts import Doubt, in_another_pytorch, is_radeon
from perfmodel.prediction.latency.gemm.own_kernels import (
    BATCH_IN_TILES,
    INSTRUCTION,
    has_own_kernels,
    in_tiles,
    is_narrow,
    layout_matters,
)
from perfmodel.prediction.latency.gemm.sizes import off_lines
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import fitting_share, runs_layers

#: an L2 of this size keeps the weights of a layer from one call to the next [B]: assumed, above those of A100 and H100,
#: whose tables have calls from warm caches
LARGE_L2 = 64 * 2**20
#: products of fewer rows wait for their weights
FEW_ROWS = 256
#: libraries whose 4-bit kernels the tables have (aiconfigurator @ 095f58a51c4c, B200); without a name it is one of them
MEASURED_IN_4_BITS = ("", "sglang", "trtllm")


def _has_large_l2(hardware: Hardware) -> bool:
    return bool(hardware.caches) and (hardware.caches[-1].capacity_bytes or 0.0) >= LARGE_L2


def _is_product(op: Any, machine: Machine, conditions: Conditions) -> bool:
    """Whether a call multiplies matrices."""
    return isinstance(op, Gemm)


def _stays_in_l2(op: Any, machine: Machine, conditions: Conditions) -> Any:
    """Whether a product of few rows, called again with the same operands, finds its weights in L2.

    Tables with this state of the caches are of whole models, whose other layers run in between, so that little of a
    layer is left. The same call again reads L2 alone, two to three times as fast on machines with GDDR memory.
    """
    if not isinstance(op, Gemm) or conditions.cache != CacheState.WARM or machine.engine != "tensor":
        return False
    if runs_layers(conditions.library):
        return False
    weights = op.batch * (dtype_bytes(op.weight_dtype) * op.n * op.k + dtype_bytes(op.dtype) * op.m * op.k)
    return (op.m <= FEW_ROWS) & (fitting_share(weights, machine.l2_bytes) > 0.0)


def _is_of_another_library(op: Any, machine: Machine, conditions: Conditions) -> bool:
    """Whether a 4-bit product runs in a library that no table has: its steps of k may take twice as long.

    No table has weights of 4 bits with activations of 8.
    """
    if not isinstance(op, Gemm):
        return False
    if op.dtype != op.weight_dtype:
        return (op.dtype, op.weight_dtype) == ("fp8", "fp4")
    return op.dtype == "fp4" and conditions.library not in MEASURED_IN_4_BITS


def _is_scaled(op: Any, machine: Machine, conditions: Conditions) -> bool:
    """Whether a product of fp8 has scales of rows and columns, or for every 32 numbers."""
    return isinstance(op, Gemm) and op.dtype == "fp8" and op.scale != "none"


def _is_microscaled(op: Any, machine: Machine, conditions: Conditions) -> bool:
    """Whether a product of fp8 has a scale for every 32 numbers."""
    return _is_scaled(op, machine, conditions) and op.scale != "column"


def _is_by_young_kernels(op: Any, machine: Machine, conditions: Conditions) -> bool:
    """Whether a product with scales of blocks is FlashInfer's or SGLang's in Triton."""
    return conditions.library in ("flashinfer", "sglang_triton")


def _is_quantising_alone(op: Any, machine: Machine, conditions: Conditions) -> bool:
    """Whether a call quantises and multiplies nothing."""
    return isinstance(op, Quantize)


def _is_by_triton(op: Any, machine: Machine, conditions: Conditions) -> bool:
    """Whether a product in 16 bits is compiled by Triton: tiles that somebody tuned, or not, and no parts of k."""
    return isinstance(op, Gemm) and machine.engine == "tensor" and "triton" in conditions.library


#: libraries whose products tables have; without a name it is one of them
MEASURED = ("", "torch", "vllm", "sglang", "trtllm", "vidur")
#: names of the vendors' libraries, and of frameworks that call them
OF_VENDORS = ("cublas", "cublaslt", "hipblas", "hipblaslt", "rocblas", "jax", "xla", "tensorflow", "onnxruntime")


def _is_by_vendor_elsewhere(op: Any, machine: Machine, conditions: Conditions) -> bool:
    """Whether a product runs in the vendor's library, and not through PyTorch."""
    return isinstance(op, Gemm) and conditions.caller in OF_VENDORS


def _is_of_nobodys_table(op: Any, machine: Machine, conditions: Conditions) -> bool:
    """Whether a product runs in kernels that are neither the vendor's nor of a library that tables have."""
    known = conditions.caller in (*MEASURED, *OF_VENDORS) or "triton" in conditions.library
    return isinstance(op, Gemm) and not known


#: rows of which kernels for narrow weights may be those of a vector, called or looped over for each row; and whose
#: kernels are known to be tiles: TensorRT-LLM's, of the tables, and Marlin, which SGLang and vLLM run
ROW_BY_ROW, TILED_LIBRARIES = 16, ("", "trtllm", "sglang", "vllm", "marlin")


def _may_go_row_by_row(op: Any, machine: Machine, conditions: Conditions) -> Any:
    """Whether a few rows by narrow weights may widen these for each row, by a library that no table has."""
    if not isinstance(op, Gemm) or op.weight_dtype == op.dtype or conditions.caller in TILED_LIBRARIES:
        return False
    return (op.m > 1) & (op.m <= ROW_BY_ROW)


#: rows of half the smallest tile of products in fp32
HALF_TILE = 16
#: FLOP in fp64 for each byte of device memory, up to which padded rows outweigh the traffic: boards for graphics and
#: GB300 have 0.2 to 1.3, others 4 and more
FEW_FLOP = 2.0


def _has_few_rows_in_fp32(op: Any, machine: Machine, conditions: Conditions) -> Any:
    """Whether a product in fp32 from Hopper on fills a small part of any tile's rows."""
    if not isinstance(op, Gemm) or machine.engine != "vector":
        return False
    return (op.m <= HALF_TILE) & (machine.dtype == "fp32")


def _is_with_a_vector(op: Any, machine: Machine, conditions: Conditions) -> Any:
    """Whether one operand of a product in fp32 or fp64 is a vector, or two of them, which no table has.

    Batches of two columns are in the tables.
    """
    if not isinstance(op, Gemm) or not is_narrow(op) or not has_own_kernels(machine):
        return False
    narrow = minimum(op.m, op.n)
    return (narrow <= 1) | ((narrow <= 2) & (op.batch == 1))


def _has_few_rows_in_fp64(op: Any, machine: Machine, conditions: Conditions) -> Any:
    """Whether tiles of a product in fp64 compute rows that it does not have for longer than it reads its operands."""
    if not isinstance(op, Gemm) or machine.dtype != "fp64" or not has_own_kernels(machine):
        return False
    if machine.peak_flop_per_s > FEW_FLOP * machine.bandwidth_bytes_per_s:
        return False
    narrow = minimum(op.m, op.n)
    return (narrow > 1) & (narrow <= HALF_TILE)


def _lies_either_way(op: Any, machine: Machine, conditions: Conditions) -> Any:
    """Whether the time depends on how B lies, which a product without a bias does not say.

    It does for few rows, and where a machine reads the weights of linear layers again for each row of tiles.
    """
    if not isinstance(op, Gemm) or op.bias or not has_own_kernels(machine):
        return False
    matters: Any = layout_matters(op, machine) if is_narrow(op) else False
    if machine.kernels.reread_cost and machine.dtype == "fp32":
        matters = matters | ((op.batch == 1) & off_lines(op.m, op.n, op.k))
    return matters


def _is_batch_of_vectors(op: Any, machine: Machine, conditions: Conditions) -> Any:
    """Whether products with a vector come in a batch, which may run in tiles of which they fill a row."""
    if not isinstance(op, Gemm) or not has_own_kernels(machine) or not anywhere(op.batch > 1) or not is_narrow(op):
        return False
    return (in_tiles(op, machine) == BATCH_IN_TILES) & (op.batch > 1)


#: the same on machines whose engine has a memory of its own for operands, B200 and its siblings, whose libraries are
#: young and whose boards have 750 to 1400 W: medians of six sources of PyTorch on a B200 have 0.35 in the middle, and
#: of five 0.29 for large products, 0.83 to 1.6 times the predicted time (in view)
ON_YOUNG_ENGINES = (0.30, 0.30, 0.25)


def _on_young_engines(hardware: Hardware) -> tuple[float, float, float] | None:
    return ON_YOUNG_ENGINES if hardware.matrix_instruction == "tcgen05" else None


#: what installations of PyTorch differ by in products, with their cuBLAS, clocks and ways to time a call: of 314 rows
#: of 31 sources whose constants are those of tables 79 % lie in the interval with it, and 69 without; of those of less
#: than 20 us 36 and 21 (`examples/published`, in view). What libraries differ by holds it, where several were measured
OTHER_INSTALLATION = Doubt(
    ErrorSource.INSTALLATION,
    in_another_pytorch,
    (0.25, 0.12, 0.09),
    by_size=False,
    part_of=ErrorSource.LIBRARY,
    of_machine=_on_young_engines,
)
#: what the vendor's library differs by where PyTorch does not call it: root mean square of the medians of
#: ln(measured / predicted) of 42 pairs of source and machine of NVIDIA's, 0.43 below 30 us, 0.29 below 100 and 0.19
#: above, with what shapes and machines differ by (`examples/published`, in view)
VENDOR_ELSEWHERE = Doubt(
    ErrorSource.LIBRARY,
    _is_by_vendor_elsewhere,
    (0.35, 0.22, 0.15),
    part_of=ErrorSource.VENDOR,
    by_size=False,
    lasting=True,
)
#: the same of hand-written kernels, and of compilers and libraries without a table: 26 pairs, 0.44
NOBODYS_TABLE = Doubt(
    ErrorSource.LIBRARY,
    _is_of_nobodys_table,
    (0.4, 0.4, 0.4),
    part_of=ErrorSource.VENDOR,
    by_size=False,
    lasting=True,
)
#: of nine products of 5 and 8 rows on an H200 eight take 0.6 to 1.06 times the predicted time, ln with a root mean
#: square of 0.24; one of 16 x 128 x 256 takes 54 us, 7 times as long, by a kernel that is not known (own records, torch
#: 2.11.0, 2026-11-27; all in view)
FEW_ROWS_IN_FP32 = Doubt(
    ErrorSource.EXTRAPOLATION,
    _has_few_rows_in_fp32,
    (0.2, 0.25, 0.2),
    machines=lambda hardware: hardware.matrix_instruction == INSTRUCTION,
)
#: two products with a vector are 10 and 18 % off, by the share of the bandwidth that they set: how releases and layouts
#: differ is assumed
WITH_A_VECTOR = Doubt(ErrorSource.EXTRAPOLATION, _is_with_a_vector, (0.2, 0.25, 0.2))
#: between a stream of few rows and tiles, 50 times as long, where nobody measured any: assumed, to reach both mostly
FEW_ROWS_IN_FP64 = Doubt(ErrorSource.EXTRAPOLATION, _has_few_rows_in_fp64, (0.5, 0.9, 0.9))
#: few rows by weights [n, k] take down to a third of what they take by [k, n], and most products have such weights
EITHER_LAYOUT = Doubt(ErrorSource.EXTRAPOLATION, _lies_either_way, (0.7, 0.7, 0.7))
#: a batch of vectors lies between streams and tiles, which differ 8 times, and up to 48: assumed, to reach both mostly
BATCH_OF_VECTORS = Doubt(ErrorSource.EXTRAPOLATION, _is_batch_of_vectors, (0.5, 0.9, 0.9))
#: with `SAME_CALL` 83 rows of ten sources take 0.41 to 2.8 times the predicted time, four of five 0.6 to 1.5 times: ln
#: with a root mean square of 0.31 (B200), 0.35 (PRO 6000), 0.38 (L40S) and 0.5 (RTX 4090, 5090)
IN_L2 = Doubt(ErrorSource.CACHE, _stays_in_l2, (0.2, 0.45, 0.45), machines=_has_large_l2)
#: products of few rows on a B200 take 1.6 times the predicted time in CUTLASS and 1.3 in others, large ones 1.2 and
#: 1.1: ln with a root mean square of 0.43 and 0.28, 0.16 and 0.28 (49 rows, eight sources, in view); the same is
#: assumed of fp8 by fp4
OTHER_4_BITS = Doubt(ErrorSource.KERNEL, _is_of_another_library, (0.35, 0.45, 0.1), by_size=False)
#: no table has a row of Turing's tensor cores: 28 products in 16 bits, 22 of them on a T4 of 70 W, take 0.8 to 3.4
#: times the predicted time, ln with a root mean square of 0.51, and of the medians of ten sources 0.36
#: (`examples/published`, in view); those of Volta, which has no rows either, are 6 % off
ON_TURING = Doubt(
    ErrorSource.KERNEL,
    _is_product,
    (0.35, 0.4, 0.4),
    machines=lambda hardware: hardware.architecture == "Turing",
    by_size=False,
)
#: no table has products of fp8 with these scales: 37 take 1.1 times the predicted time in the median, ln with a root
#: mean square of 0.42 (seven sources of `examples/published`, in view), of which libraries and machines add a part
SCALED = Doubt(ErrorSource.KERNEL, _is_scaled, (0.3, 0.3, 0.2), by_size=False)
#: kernels for such scales are young on AMD: 31 products on an MI355X, grouped ones among them, take 1.5 to 4.7 times
#: the predicted time (two sources, in view)
MICROSCALED_ON_AMD = Doubt(
    ErrorSource.KERNEL,
    _is_microscaled,
    (0.8, 0.8, 0.8),
    machines=lambda hardware: hardware.vendor == "AMD",
    by_size=False,
)
#: kernels of FlashInfer and of SGLang in Triton for scales of blocks: 14 calls of a year take 1.1 to 6.7 times the
#: predicted time on H200 and GB200, ln with a root mean square of 1.2 (two sources of `examples/published`, in view);
#: FlashInfer's under vLLM on an H100 have rows
YOUNG_BLOCKS = Doubt(ErrorSource.KERNEL, _is_by_young_kernels, (0.5, 0.9, 0.9), by_size=False)
#: no table has quantising alone: its constants are what products that quantise first take beside those that do not. 74
#: calls of six libraries take 0.5 to 2 times the predicted time, ln of each source's mean with a root mean square of
#: 0.39 below 10 us and 0.34 above (ten sources of `examples/published`, in view)
QUANTISING_ALONE = Doubt(ErrorSource.KERNEL, _is_quantising_alone, (0.4, 0.4, 0.4), by_size=False)
#: of few rows by narrow weights in a library that no table has: onnxruntime's take an A100 1.2 times the predicted time
#: with one row, and 2.8 times with 16 (4 bits) and 3.1 times with 5 (8 bits), since its kernels widen the weights for
#: each row; those of two other libraries on an H100 take 0.9 to 1.1 times (`examples/published`, in view)
ROW_BY_ROW_OF_OTHERS = Doubt(ErrorSource.KERNEL, _may_go_row_by_row, (0.4, 0.6, 0.6))
#: products in Triton took 1.0 to 1.8 times the predicted time on A100 and B200, thin ones and those of a short k (19
#: rows, two sources), where cuBLAS took 0.9 to 1.2
BY_TRITON = Doubt(ErrorSource.KERNEL, _is_by_triton, (0.15, 0.25, 0.2), by_size=False)
#: no table has a row of AMD's Radeon, whose vector units issue two multiply-adds of fp32 at once where their registers
#: allow it: six products of rocBLAS in fp32 on an RX 7900 XTX take 1.3 to 1.8 times the predicted time, twelve in 16
#: bits 0.95 to 1.7 (three documents, `examples/published/ninth.csv`, in view)
ON_RADEON = Doubt(ErrorSource.KERNEL, _is_product, (0.3, 0.3, 0.3), machines=is_radeon, by_size=False)

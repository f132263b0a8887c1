"""What the name of a kernel tells of its arithmetic: the dtype and the engine of its products.

Conventions, as the libraries write them:

- cuBLAS, cuDNN and CUTLASS: a letter for the sums, the shape of the matrix instruction, then the operation:
  "s16816gemm"; without a shape the vector engine computes ("sgemm", "scudnn", "simt_dgemm"). The inputs are named
  where they differ from the sums ("bf16_s16816gemm_bf16"). Source: ``cutlass_library`` of github.com/NVIDIA/cutlass
  (``GemmOperation.procedural_name``, ``ShortDataTypeNames``), whose scheme the other two follow in open traces.
- xmma kernels of cuBLAS and cuDNN: the inputs, then what is multiplied ("f32f32_tf32f32_f32"), in the same traces.
- rocBLAS and hipBLASLt (Tensile): after the indices the letters of the inputs, as "SB", "DB", "HHS_BH", "BBS_BH";
  "MX" for fp32 that is rounded to xf32, and "MI16x16x1" for a matrix instruction. Source: ``ProblemType.__str__`` and
  ``DataType.py`` of github.com/ROCm/Tensile.
- MIOpen's assembly: the dtype as a word, and "gtcx" for matrix instructions (github.com/ROCm/MIOpen, src/kernels).

Names of Triton's and Inductor's kernels are those of functions and operators: they tell no dtype.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from perfmodel.core.machine_parts import Engine

#: names whose arithmetic is kept: a trace repeats a few hundred
_MOST_NAMES = 4096
#: kernels that round fp32 inputs to TF32 for the tensor cores: cuBLAS and cuDNN write tf32, CUTLASS the shape of its
#: matrix instruction, m16n8k8 with fp32 accumulation ("s1688gemm"); AMD calls the format xf32, and
#: Tensile writes MX
_TF32 = re.compile(r"tf32|xf32|Cijk_\w*_MX|(?<![a-z\d])s1688(?!.*(?:f16|bf16|half))", re.IGNORECASE)
_TENSILE = re.compile(r"Cijk_A[a-z]{2,}_B[a-z]{2,}_(4xi8|I8|F8|B8|[SDCZHB])\w*")
_TENSILE_DTYPES = {
    "S": "fp32", "C": "fp32", "D": "fp64", "Z": "fp64", "H": "fp16", "B": "bf16", "F8": "fp8", "B8": "fp8",
    "I8": "int8", "4xi8": "int8",
}  # fmt: skip
_MATRIX_INSTRUCTION = re.compile(r"_MI[1-9]")
_XMMA = re.compile(r"xmma_(?:[a-z]+_)+?(tf32|bf16|f16|f32|f64|e4m3|e5m2|i8)(?:tf32|bf16|f16|f32|f64|e4m3|e5m2|i8|i32)_")
_MIOPEN = re.compile(r"igemm_(?:fwd|bwd|wrw)_gtc(x?)\w*?_(fp32|fp16|bf16)_|miopenSp3AsmConv\w*?_(fp32|fp16)_")
#: the letter of the sums, the matrix instruction, and the operation
_CORE = re.compile(
    r"(?<![A-Za-z\d])([sdhicz])(\d{3,}|\d+x\d+x\d+)?(?:(?:tf32|bf16|f16)_?)?(?:gemm|cudnn|fprop|dgrad|wgrad)"
)
_LETTERS = {"s": "fp32", "c": "fp32", "d": "fp64", "z": "fp64", "h": "fp16", "i": "int8"}
#: cuDNN's own engines on the vector units name their type as a template argument
_ENGINES = re.compile(r"cudnn::[\w:]*(?:grad|winograd)\w*<(float|double)\b")
#: inputs of a matrix instruction with sums in fp32, the first that a name holds
_INPUTS = (
    (re.compile(r"e4m3|e5m2|fp8"), "fp8"), (_TF32, "tf32"), (re.compile("bf16"), "bf16"),
    (re.compile(r"f16|fp16|half|(?<![a-z\d])s884"), "fp16"),
)  # fmt: skip
_SHORT = {"f16": "fp16", "f32": "fp32", "f64": "fp64", "e4m3": "fp8", "e5m2": "fp8", "i8": "int8"}


class Arithmetic(NamedTuple):
    """The dtype whose peak the products of a kernel have, and the engine that computes them."""

    dtype: str
    engine: Engine


def uses_tf32(name: str) -> bool:
    """Whether a matrix kernel for fp32 tensors rounds its inputs to TF32.

    >>> uses_tf32("ampere_sgemm_128x64_nn"), uses_tf32("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4")
    (False, True)
    """
    return _TF32.search(name) is not None


@functools.lru_cache(_MOST_NAMES)
def kernel_arithmetic(name: str) -> Arithmetic | None:
    """Return the arithmetic of a kernel by its name, None where the name does not tell it.

    >>> kernel_arithmetic("volta_sgemm_128x64_nn")
    Arithmetic(dtype='fp32', engine='vector')
    >>> kernel_arithmetic("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn")
    Arithmetic(dtype='bf16', engine='tensor')
    """
    for read in (_of_tensile, _of_xmma, _of_miopen, _of_core):
        found = read(name)
        if found is not None:
            return found
    if engine := _ENGINES.search(name):
        return Arithmetic("fp32" if engine[1] == "float" else "fp64", "vector")
    return None


def _of_tensile(name: str) -> Arithmetic | None:
    found = _TENSILE.search(name)
    if found is None:
        return None
    dtype = _TENSILE_DTYPES[found[1]]
    if dtype == "fp32" and uses_tf32(name):
        return Arithmetic("tf32", "tensor")
    narrow = dtype not in ("fp32", "fp64")
    return Arithmetic(dtype, "tensor" if narrow or _MATRIX_INSTRUCTION.search(name) else "vector")


def _of_xmma(name: str) -> Arithmetic | None:
    found = _XMMA.search(name)
    if found is None:
        return None
    if uses_tf32(name):
        return Arithmetic("tf32", "tensor")
    dtype = _SHORT.get(found[1], found[1])
    scalar = dtype == "fp32" or (dtype == "fp64" and "tensor" not in name)
    return Arithmetic(dtype, "vector" if scalar else "tensor")


def _of_miopen(name: str) -> Arithmetic | None:
    found = _MIOPEN.search(name)
    if found is None:
        return None
    return Arithmetic(found[2] or found[3], "tensor" if found[1] else "vector")


def _of_core(name: str) -> Arithmetic | None:
    found = _CORE.search(name)
    if found is None:
        return None
    letter, instruction = found.groups()
    if not instruction:
        return Arithmetic(_LETTERS[letter], "vector")
    if letter != "s":
        return Arithmetic(_LETTERS[letter], "tensor")
    inputs = next((dtype for pattern, dtype in _INPUTS if pattern.search(name)), None)
    return Arithmetic(inputs, "tensor") if inputs else None

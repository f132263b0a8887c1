"""The thread-block tiles that vendors' libraries have for matrix products, as (rows, columns) of the output.

The tiles of cuBLAS are read off the names of its kernels in profiles: ``volta_sgemm_128x64_tn`` computes 128 columns by
64 rows, since cuBLAS is column-major and frameworks are row-major. The strided-batched products of a machine use only
one or a few kernels; a linear layer goes through cublasLt, which has more. A specification states them
(``[kernels]``); a machine whose kernels nobody recorded may use every tile.
"""

from __future__ import annotations

from perfmodel.core.hardware import Tiles
from perfmodel.prediction.latency.machine import Machine

TENSOR: Tiles = ((32, 64), (64, 32), (64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128))
VECTOR: Tiles = (
    *((32, 32), (32, 64), (64, 32), (32, 128), (128, 32), (64, 64)),
    *((64, 128), (128, 64), (128, 128), (128, 256), (256, 128)),
)
#: those of kernels that widen weights: few rows, since they are for few tokens (TensorRT-LLM's fpA_intB products)
WEIGHT_ONLY: Tiles = ((16, 128), (32, 128), (64, 128), (128, 128), (128, 256))
#: those of products with scales of blocks: DeepGEMM's, whose columns go by 16, thinned out, and CUTLASS's for mma.sync
BLOCK_SCALED: Tiles = ((64, 16), (64, 32), (64, 64), (64, 128), (128, 32), (128, 64), (128, 128), (128, 256))
BLOCK_SCALED_MMA: Tiles = ((64, 64), (64, 128), (128, 64), (128, 128))


def tiles_by_rows(machine: Machine, library: str) -> tuple[tuple[int, int, float], ...]:
    """Return the tiles that a library chooses by the rows m of an 8-bit product, with the most rows of each.

    Such kernels are compiled by the library itself and chosen by m alone; they compute one tile a block and never split
    k. Empty where the library has no such rule, or nobody knows it.
    """
    return machine.kernels.fp8_tiles.get(library, ()) if machine.dtype == "fp8" else ()


def tiles_of(machine: Machine, batched: bool) -> Tiles:
    """Return the tiles that the library may choose from on a machine's engine."""
    if machine.engine != "vector":
        return VECTOR if machine.dtype in ("fp32", "fp64") else TENSOR
    kernels = machine.kernels
    return (kernels.gemm_batched_tiles if batched else kernels.gemm_tiles) or VECTOR

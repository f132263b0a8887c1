"""The thread-block tiles that vendors' libraries have for matrix products, as (rows, columns) of the output.

What cuBLAS runs is read off the names of its kernels in profiles: ``volta_sgemm_128x64_tn`` makes 128 columns by 64
rows, since cuBLAS is column-major and frameworks are row-major. The strided-batched products of a generation use
only one or a few kernels; a linear layer goes through cublasLt, which has more. Machines whose names nobody
recorded are taken to have every tile.
"""

from __future__ import annotations

import math

from perfmodel.prediction.latency.machine import Machine

Tiles = tuple[tuple[int, int], ...]

TENSOR: Tiles = ((32, 64), (64, 32), (64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128))
VECTOR: Tiles = (
    *((32, 32), (32, 64), (64, 32), (32, 128), (128, 32), (64, 64)),
    *((64, 128), (128, 64), (128, 128), (128, 256), (256, 128)),
)
#: generation -> tiles of batched fp32 products, by the kernels' names in the NeuSight profiles (cuBLAS 12.1)
BATCHED: dict[str, Tiles] = {
    "ampere-8.0": ((128, 128),),
    "volta": ((64, 64), (128, 32)),
    "turing": ((64, 128), (64, 64), (32, 128)),
    "pascal-6.0": ((64, 128),),
    "pascal-6.1": ((64, 128),),
}
#: generation -> tiles of fp32 linear layers, from the same profiles
LINEAR: dict[str, Tiles] = {
    "ampere-8.0": ((32, 32), (32, 64), (64, 32), (32, 128), (128, 32), (64, 64), (64, 128), (128, 64), (128, 128)),
    "volta": ((32, 32), (32, 64), (32, 128), (128, 32), (64, 128), (128, 128)),
    "turing": ((32, 32), (128, 32), (64, 64), (64, 128), (128, 128)),
    "pascal-6.0": ((64, 64), (128, 32), (32, 128)),
    "pascal-6.1": ((64, 64), (128, 32), (128, 128)),
}
#: (library, generation) -> tiles of fp8 products, each for at most so many rows m: kernels that the library itself
#: compiles and chooses by m alone, one block to a tile, never split along k. From sglang's
#: sgl-kernel/csrc/gemm/fp8_gemm_kernel.cu @ 350439a5c5a5, sm90_fp8_dispatch_shape and sm89_fp8_dispatch_shape; the
#: latter's tiles are those of n <= 8192. Those of Blackwell (sm100) do not explain its times, and are left out.
BY_ROWS: dict[tuple[str, str], tuple[tuple[int, int, float], ...]] = {
    ("sglang", "hopper"): ((64, 64, 256.0), (128, 128, math.inf)),
    ("sglang", "ada"): ((16, 64, 16.0), (32, 64, 64.0), (64, 64, 128.0), (128, 64, 256.0), (128, 128, math.inf)),
}


def tiles_by_rows(machine: Machine, library: str) -> tuple[tuple[int, int, float], ...]:
    """Return the tiles that a library chooses by the rows m of an 8-bit product, with the most rows of each.

    Empty where the library has no such rule, or nobody knows it.
    """
    return BY_ROWS.get((library, machine.generation), ()) if machine.dtype == "fp8" else ()


def tiles_of(machine: Machine, batched: bool) -> Tiles:
    """Return the tiles that the library may choose from on a machine's engine."""
    if machine.engine != "vector":
        return VECTOR if machine.dtype in ("fp32", "fp64") else TENSOR
    return (BATCHED if batched else LINEAR).get(machine.generation, VECTOR)

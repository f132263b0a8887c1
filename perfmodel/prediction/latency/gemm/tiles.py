"""The thread-block tiles that vendors' libraries have for matrix products, as (rows, columns) of the output.

The tiles of cuBLAS are read off the names of its kernels in profiles: ``volta_sgemm_128x64_tn`` computes 128 columns by
64 rows, since cuBLAS is column-major and frameworks are row-major. The strided-batched products of a machine use only
one or a few kernels; a linear layer goes through cublasLt, which has more. A specification states them
(``[kernels]``); a machine whose kernels nobody recorded may use every tile.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

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
#: those of CUTLASS's for wgmma and tcgen05, which compute 128 rows however few there are: 16 and 64 rows take an H20 as
#: long, twice as long as DeepGEMM's, and 1.9 to 2.9 times as long as with tiles of 64 rows (vLLM's and PyTorch's, one
#: source of `examples/published`, in view)
BLOCK_SCALED_CUTLASS: Tiles = ((128, 64), (128, 128), (128, 256))
#: those of CUTLASS's products of 4 bits in vLLM and FlashInfer, with the most rows of each: few rows compute as long as
#: 128, and k is not split (assumed, without their source at hand). With them 25 products of up to 256 rows on an RTX
#: 5090 and a PRO 6000 come out 1.0 to 1.3 times as long as measured, without 0.45 to 0.77 times; on a B200 they take
#: 1.6 times as long all the same (seven sources of `examples/published`, in view)
CUTLASS_IN_4_BITS = ((128, 128, 256.0), (256, 128, math.inf))


def tiles_by_rows(machine: Machine, library: str) -> tuple[tuple[int, int, float], ...]:
    """Return the tiles that a library chooses by the rows m of an 8-bit product, with the most rows of each.

    Such kernels are compiled by the library itself and chosen by m alone; they compute one tile a block and never split
    k. Empty where the library has no such rule, or nobody knows it.
    """
    if machine.dtype == "fp4":
        return CUTLASS_IN_4_BITS if "cutlass" in library else ()
    return machine.kernels.fp8_tiles.get(library, ()) if machine.dtype == "fp8" else ()


def tiles_of(machine: Machine, batched: bool) -> Tiles:
    """Return the tiles that the library may choose from on a machine's engine."""
    if machine.engine != "vector":
        return VECTOR if machine.dtype in ("fp32", "fp64") else TENSOR
    kernels = machine.kernels
    return (kernels.gemm_batched_tiles if batched else kernels.gemm_tiles) or VECTOR


@dataclasses.dataclass(frozen=True, slots=True)
class Tile:
    """What the formula needs of a tile: numbers, or arrays of all tiles, or of the tile that each product has.

    It is no tuple, whose fields take Python three times as long to read.

    Attributes
    ----------
    per_row, per_column, sides : 1 / tm, 1 / tn and tm + tn; a column counts as many rows as it has bytes.
    flop_per_s : rate of all SMs [FLOP/s].
    step_s : time of one block for one step of k [s].
    rounded_s, evened_s : the parts of it that a started wave, and that a block of a wave takes of all SMs [s].
    busy_s : time of one step of the blocks that keep an SM busy [s].
    fill : steps that filling and draining a block's pipeline takes as long as.
    widening : share of ``step_s`` that widens weights.
    least : blocks that keep an SM busy.
    above, up_to : rows of the product that it is for, in libraries that choose by them: more than ``above``, at most
        ``up_to``.
    """

    per_row: Any
    per_column: Any
    sides: Any
    flop_per_s: Any
    step_s: Any
    rounded_s: Any
    evened_s: Any
    busy_s: Any
    fill: Any
    widening: Any
    least: Any
    above: Any
    up_to: Any

    def each(self, function: Callable[[Any], Any]) -> Tile:
        """Return the tile with a function of each of its numbers."""
        return Tile(*map(function, self.numbers()))

    def numbers(self) -> list[Any]:
        """Return all numbers in their order."""
        return [getattr(self, name) for name in self.__slots__]


def cuts(tiles: Sequence[Tile]) -> Iterator[tuple[int, Tile, Tile | None]]:
    """Yield each tile with its index, and the tile after it if that differs from it in nothing but being turned."""
    index = 0
    while index < len(tiles):
        tile, after = tiles[index], tiles[index + 1 : index + 2]
        turned = after[0] if after and after[0].numbers()[2:] == tile.numbers()[2:] else None
        yield index, tile, turned
        index += 1 if turned is None else 2

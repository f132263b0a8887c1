"""The tiles that a matrix product may run with, and which of them are worth trying for its sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton

from perfmodel.kernels.triton._base import multiprocessors
from perfmodel.kernels.triton._tune import config

#: the search space: rows, columns and depth of a tile. The depth is 128 bytes, one swizzled line of shared memory, or
#: 256 where few rows leave the tensor cores idle anyway
CONFIGS = (
    *(config(8, stages, BLOCK_M=128, BLOCK_N=256, BLOCK_K=k, GROUP_M=8) for k in (64, 128) for stages in (3, 4)),
    config(8, 3, BLOCK_M=256, BLOCK_N=128, BLOCK_K=64, GROUP_M=8),
    config(8, 3, BLOCK_M=128, BLOCK_N=256, BLOCK_K=32, GROUP_M=8),
    config(8, 3, BLOCK_M=128, BLOCK_N=128, BLOCK_K=32, GROUP_M=8),
    *(config(4, 4, BLOCK_M=128, BLOCK_N=128, BLOCK_K=k, GROUP_M=8) for k in (64, 128)),
    *(config(4, 4, BLOCK_M=64, BLOCK_N=64, BLOCK_K=k, GROUP_M=8) for k in (32, 64, 128)),
    *(config(4, 5, BLOCK_M=16, BLOCK_N=64, BLOCK_K=k, GROUP_M=1) for k in (64, 128, 256)),
    *(config(4, 5, BLOCK_M=16, BLOCK_N=32, BLOCK_K=k, GROUP_M=1) for k in (64, 128, 256)),
    config(4, 4, BLOCK_M=32, BLOCK_N=64, BLOCK_K=128, GROUP_M=1),
)
INTERPRETED = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 2}
KEY = ("M", "N", "K", "BATCH")
#: with at most this many rows, a product is bound by reading B, and tiles with few rows are faster
_FEW_ROWS = 64
#: elements of the largest tile that is multiplied without tensor cores
_LARGEST_OF_VECTORS = 128 * 128
#: tiles per multiprocessor: with more, larger tiles suffice; with fewer, smaller ones keep more multiprocessors busy
_MOST_TILES, _FEWEST_TILES = 16, 0.5


def fits(configs: list[triton.Config], arguments: Mapping[str, Any], **given: Any) -> list[triton.Config]:
    """Drop tiles whose depth suits another dtype, whose number is too large or too small, or that exceed the rows.

    Without tensor cores a large tile is thousands of multiply-adds in a row, which take long to compile.
    """
    m, n, batch = (arguments.get(name, 1) for name in ("M", "N", "BATCH"))
    element = (arguments["a_ptr"] if "a_ptr" in arguments else arguments["a_desc"].base).element_size()
    few = m <= _FEW_ROWS
    vector = element == 4 and given.get("PRECISION") == "ieee"
    tiles: dict[triton.Config, float] = {}
    for candidate in configs:
        rows, columns, depth = (candidate.kwargs[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
        flat = rows < _FEW_ROWS
        if vector and rows * columns > _LARGEST_OF_VECTORS:
            continue
        if depth * element == (256 if flat else 128) and (
            rows <= max(m, 16) if few else not flat and rows < max(2 * m, 128)
        ):
            tiles[candidate] = triton.cdiv(m, rows) * triton.cdiv(n, columns) * batch / multiprocessors()
    kept = [candidate for candidate, count in tiles.items() if _FEWEST_TILES <= count <= _MOST_TILES]
    if kept or not tiles:
        return kept or [configs[0]]
    fewest, most = min(tiles.values()), max(tiles.values())
    return [candidate for candidate, count in tiles.items() if count == (fewest if fewest > _MOST_TILES else most)]

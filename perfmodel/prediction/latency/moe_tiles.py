"""The tiles that kernels of mixtures of experts have, and at which rate an engine computes with them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.operators.moe import Moe
from perfmodel.operators.routing import TILE_ROWS
from perfmodel.prediction.latency.machine import Machine, multiplies_mixed

#: columns of the tiles, each with every number of rows of `TILE_ROWS`
TILE_COLUMNS = (64.0, 128.0, 256.0)
ROWS, COLUMNS = (side.reshape(-1, 1) for side in np.meshgrid(TILE_ROWS, TILE_COLUMNS, indexing="ij"))
AREA = ROWS * COLUMNS
#: what the formula calls an edge: 64 (1 / tm + 1 / tn)
EDGE = 64.0 / ROWS + 64.0 / COLUMNS
#: libraries whose kernels are Triton's: compiled for sizes that are multiples of 16, or for any
TRITON, ALIGNED = ("sglang",), 16.0
#: tiles of Triton's kernels for sizes that were not tuned: rows for up to as many tokens as the rank has experts, and
#: beyond; columns in 16 bits (chosen on the fitted rows: 64 x 64 was best of those with up to 256)
FEW_ROWS, USUAL_ROWS, USUAL_COLUMNS = 16.0, 64.0, 64.0
#: engine that computes at half its rate with tiles of fewer rows: an instruction of tcgen05 has 128 rows or 64, and one
#: of 64 uses half of the lanes of tensor memory (PTX ISA, tcgen05, data path layouts). Kernels that put the weights on
#: that side, as the vendor's may for few tokens, lose nothing; Triton's put the tokens there. The rule has no constant
#: of its own. With it the largest tile of Triton's kernels has one share of the peak on Hopper and on B200, 0.59 and
#: 0.57 in fp8 blocks, 0.68 and 0.62 in 16 bits; without it 0.59 and 0.37, 0.68 and 0.47 (aiconfigurator @ 095f58a51c4c)
HALF_FOR_FEW_ROWS, FULL_ROWS = ("tcgen05",), 128.0
#: longest side of the tiles of the vendor's grouped kernels for mma.sync, whose accumulators lie in the registers of a
#: few warps: assumed. With it TensorRT-LLM's largest tile has 0.70 of the peak on A100 in 16 bits and 0.65 on L40S,
#: without it 0.58 and 0.57, where Hopper and B200 have 0.84 and 0.87
MMA_SYNC_SIDE = 128.0
#: most rows of a tile of kernels that widen weights: Marlin's blocks of sorted slots have 8 to 64
WIDENING_ROWS = 64.0


def is_triton(moe: Moe, library: str) -> bool:
    """Whether a library's kernels for these dtypes are Triton's; sglang's for weights of 4 bits are others."""
    return library in TRITON and moe.dtype == moe.weight_dtype != "fp4"


def widens(moe: Moe, machine: Machine) -> bool:
    """Whether weights are widened to the activations' dtype before they are multiplied."""
    return moe.weight_dtype != moe.dtype and not multiplies_mixed(machine, moe.dtype, moe.weight_dtype)


def engine_rate(moe: Moe, machine: Machine) -> float:
    """Return the peak of an SM with the instruction that the kernels have [FLOP/s]."""
    marlin = widens(moe, machine) and moe.weight_dtype != "fp4"
    return (machine.mma_sync_flop_per_s if marlin else machine.peak_flop_per_s) / machine.sm_count


def slowed(moe: Moe, machine: Machine, library: str) -> Any:
    """Return the time of a block of each tile over that at the engine's rate."""
    half = machine.matrix_instruction in HALF_FOR_FEW_ROWS and is_triton(moe, library)
    return np.where(ROWS < FULL_ROWS, 2.0, 1.0) if half else 1.0


def set_aside(moe: Moe, machine: Machine, library: str, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which tiles the library's kernels do not have or do not take, as candidates x points."""
    points = np.less_equal(moe.tokens, moe.experts_of_rank)
    few = np.broadcast_to(points, shape).reshape(1, -1)
    out: NDArray[np.bool_] = np.zeros_like(few)
    if widens(moe, machine):
        out = ROWS > WIDENING_ROWS
    elif is_triton(moe, library):
        block = moe.scale.startswith("block")
        rows = np.where(few & (not block), FEW_ROWS, USUAL_ROWS)
        out = (rows != ROWS) | ((COLUMNS != USUAL_COLUMNS) & (not block))
    elif machine.matrix_instruction == "mma.sync":
        out = np.maximum(ROWS, COLUMNS) > MMA_SYNC_SIDE
    return out

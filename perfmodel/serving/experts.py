"""The layer of experts in a step: the experts that are touched are read, each token runs through a few."""

from __future__ import annotations

import numpy as np

from perfmodel.operators.routing import expected_touched
from perfmodel.serving.cost import Array
from perfmodel.serving.parallel import Parallel
from perfmodel.serving.shard import Shard

#: standard deviation of ln(measured / predicted) of the closed form, with which the intervals of TPOT by concurrency of
#: gpt-oss, Qwen3 and DeepSeek cover 80 %
DEVIATION = 0.24
#: share of the datasheet's bandwidth that the kernels reach
BANDWIDTH_SHARE = 0.85
#: products of the experts reach (8 / experts)^0.17 of the rate of a large product: routers load experts unequally, and
#: the tiles of the busiest end last. Fitted to the time to the first token by concurrency of gpt-oss, Qwen3 and
#: DeepSeek (half of the runs), as 0.2 with experts whose tiles are as full as an even load makes them; since `_padded`
#: counts unequal ones, 0.2 and 0.17 leave 11.3 and 11.0 % of TPOT with grouped heads, 26.4 and 26.5 % of the time to
#: the first token (all runs). 8 experts are Mixtral's, whose offline throughput shows no such loss
FEW_EXPERTS, SKEW = 8.0, 0.17
#: products of experts whose narrow weights a kernel widens to 16 bits in registers use mma.sync, which on machines with
#: wgmma reaches this share of its rate, in tiles of as few rows (Frantar et al. 2024, "MARLIN"). The share is that of
#: TPOT and of the time to the first token of gpt-oss on Hopper, half of the runs, among 0.4, 0.5, 0.65, 0.8 and 1
WIDENED_SHARE, WIDENED_ROWS = 0.65, 8
#: rows of the smallest tiles of other kernels, and of the largest ones
FEWEST_ROWS, MOST_ROWS = 16, 128


def experts_time(
    shard: Shard,
    parallel: Parallel,
    tokens: Array,
    weight_bytes: float,
    rate: float,
    peak: float,
    start_s: float,
    *,
    widened: bool = False,
    vectors: int = 0,
    vector_rate: float = np.inf,
    fewest_rows: int = FEWEST_ROWS,
    walk_s: float = 0.0,
) -> Array:
    """Return the time of the experts of one layer on one GPU [s].

    t = start + max((W^3 + C^3)^(1/3), walk) + glue: W reads the touched experts, C computes their rows, padded to
    tiles.

    Parameters
    ----------
    tokens : of one copy of the attention.
    weight_bytes : of one weight [B].
    start_s : of the kernels [s].
    rate, peak : datasheet bandwidth [B/s], and the rate of large products [FLOP/s].
    widened : weights are widened to 16 bits in registers.
    fewest_rows : rows of the smallest tiles.
    walk_s : least time of the tiles, which walk along all columns of both products [s].
    vectors, vector_rate : tokens up to which matrix-vector kernels multiply, which pad nothing; their rate [FLOP/s].
    """
    gathered = tokens * (parallel.dp if parallel.ep > 1 else 1)
    visited = np.asarray(expected_touched(gathered, float(shard.experts), shard.top_k)) / parallel.ep
    rows = gathered * shard.top_k / parallel.ep
    each = rows / np.maximum(visited, 1e-9)
    padded = visited * _padded(each, WIDENED_ROWS if widened else fewest_rows)
    gates = 2.0 if shard.gated else 1.0
    matrix = (1.0 + gates) * shard.expert_hidden * shard.expert_ffn
    sustained = BANDWIDTH_SHARE * rate
    rate_share = (FEW_EXPERTS / np.maximum(shard.experts, FEW_EXPERTS)) ** SKEW * (WIDENED_SHARE if widened else 1.0)
    reads, products = matrix * visited * weight_bytes / sustained, 2.0 * matrix * padded / (peak * rate_share)
    glue = (4.0 * rows * shard.expert_hidden + (1.0 + gates) * rows * shard.expert_ffn) * 2.0 / sustained
    tiled = np.maximum(walk_s, np.cbrt(reads**3 + products**3))
    return np.asarray(start_s + np.where(tokens <= vectors, reads + 2.0 * matrix * rows / vector_rate, tiled) + glue)


def _padded(each: Array, fewest: int) -> Array:
    """Return the rows that an expert computes for a mean of so many, in tiles of the next power of two up to 128.

    Routers load experts unequally, so that the last tile of each is half full on average: a tile at least, and half of
    one more than the mean.
    """
    tile = np.exp2(np.ceil(np.log2(np.clip(each, fewest, MOST_ROWS))))
    padded: Array = tile * np.maximum(1.0, each / tile + 0.5)
    return padded

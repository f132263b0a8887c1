"""Attention over many queries: blocks of query rows that walk along the keys, after a pass that fills the KV cache.

A block holds `TILE` rows of queries and visits its keys a tile at a time. A pair of tiles costs the tensor engine
two products of TILE x TILE x head_dim, and the exponential unit TILE^2 results, which the first hides only in part
(T. Dao, "FlashAttention-2", arXiv 2307.08691; J. Shah et al., "FlashAttention-3", arXiv 2407.08608).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.vocabulary import Load
from perfmodel.core.work import Number
from perfmodel.operators.attention import Attention
from perfmodel.operators.base import Operator
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.attention import decode
from perfmodel.prediction.latency.attention.terms import BLOCK, KV_WRITE, SOFTMAX
from perfmodel.prediction.latency.family import Constant, Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.power import s_per_flop
from perfmodel.prediction.latency.streams import warm_bandwidth
from perfmodel.prediction.latency.terms import CONTENTION, HBM, LAUNCH, MATH, TILE_WASTE, WAVES, Terms, smooth_max

CONSTANTS = (
    Constant("launch", "s", 9e-6, 1e-6, 60e-6, 0.4, "start and drain of the kernels of one call", True),
    Constant("math", "", 0.75, 0.1, 1.0, 0.25, "share of the tensor peak in the two products", True),
    Constant("block", "", 2500.0, 50.0, 1e5, 0.7, "SM cycles of a block of query rows, its tiles aside", True),
    Constant("token", "", 35.0, 0.1, 1000.0, 1.0, "SM cycles of one token of one head before the tiles (RoPE)", True),
    Constant(
        "energy", "J/FLOP", 0.58e-12, 1e-13, 2e-11, 0.15, "energy of a 16-bit FLOP at the lowest voltage in TSMC 4N"
    ),
    Constant("kv", "", 1.2, 0.1, 10.0, 0.4, "traffic of the pass that writes the KV cache, over the least", True),
)

#: rows of queries of a block, and keys of a step
TILE = 128.0
#: an 8-bit product reaches less of its peak than a 16-bit one: probabilities are narrowed, values transposed
EIGHT_BIT = 0.75
#: share of the longest block that the last ones add to an even distribution over the SMs
TAIL = 0.5
#: share of the datasheet bandwidth of a stream, and the speed of L2 over it
STREAM, L2_SPEED = 0.85, 3.0
#: block cost of a window in TensorRT-LLM's wgmma kernels, where every tile is masked, over that of a full row
WGMMA_WINDOW = 3.7


@dataclass(frozen=True)
class Tiling:
    """How a library cuts attention into blocks.

    Attributes
    ----------
    rows, keys : query rows of a block and the keys of a step.
    packed : the query heads that share a key head fill one block together (FlashAttention's pack_gqa).
    prepares_q : a pass before attention also reads and writes Q (RoPE outside the kernel).
    window_cost : cost of a block with a window, over that of a full row.
    splits : whether the keys of few queries are split over idle SMs.
    """

    rows: float = TILE
    keys: float = TILE
    packed: bool = True
    prepares_q: bool = False
    window_cost: float = 1.0
    splits: bool = True


def tiling(machine: Machine, library: str) -> Tiling:
    """Return the blocks of a library on a machine; FlashAttention's where the library is unknown."""
    instruction = machine.matrix_instruction
    if library == "vllm" and instruction == "mma.sync" and machine.l2_copies == 1.0:
        # FlashAttention-2 for sequences of several lengths, on Ada: heads are not packed, keys never split.
        return Tiling(64.0, packed=False, splits=False)
    if library != "trtllm":
        # The kernels of tcgen05 are those of TensorRT-LLM in every library: a block serves one head.
        return Tiling(packed=instruction != "tcgen05")
    if instruction == "wgmma":
        return Tiling(packed=False, prepares_q=True, window_cost=WGMMA_WINDOW)
    if instruction == "tcgen05":
        return Tiling(packed=False, prepares_q=True)
    return Tiling(64.0, 32.0, packed=False, prepares_q=True)


def flop_per_clock(op: Attention, machine: Machine) -> Number:
    """Return the FLOP of an SM in a clock at the precision of the products, before the share ``math``.

    Kernels of wgmma multiply 8-bit keys by queries narrowed to 8 bits, at the 8-bit rate (twice that of 16 bits).
    Where kernels widen 8-bit keys (Ada), only heads of 128 have an 8-bit kernel.
    """
    rate = machine.flop_per_clock_per_sm
    if dtype_bytes(op.dtype) == 1:
        widened = machine.kernels.widens_fp8_keys
        return np.where(op.head_dim == 128, 1.0, 0.5 if widened else 1.0) * (rate * EIGHT_BIT)
    if machine.matrix_instruction == "wgmma" and dtype_bytes(op.dtype) == 2 and dtype_bytes(op.kv_dtype) == 1:
        return 2.0 * rate * EIGHT_BIT
    return rate


@dataclass(frozen=True)
class _Blocks:
    """Blocks of query rows: how many a head has, the keys that a block visits on average and at most."""

    a_head: Number
    keys: Number
    most_keys: Number
    windowed: NDArray[np.bool_]

    @classmethod
    def of(cls, op: Attention, tiles: Tiling) -> _Blocks:
        """Count the blocks.

        A causal block of r rows visits (r - 1) / 2 keys more than its average row, and as many again at the
        other end of a window; never fewer than a step.
        """
        count = np.ceil(op.seq_q / tiles.rows)
        if tiles.packed:
            group = op.heads / op.kv_heads
            count = np.minimum(count, np.ceil(op.seq_q * group / tiles.rows) / group)
        window = np.where(np.asarray(op.window) > 0, op.window, np.inf)
        windowed = window < op.seq_kv
        edges = 0.5 * tiles.rows * (float(op.causal) + windowed)
        most = np.minimum(op.seq_kv, window + tiles.rows)
        keys = np.minimum(op.pairs() / op.seq_q + edges, most)
        return cls(count, np.maximum(keys, tiles.keys), np.maximum(most, tiles.keys), windowed)


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return launch + KV pass + || busy SMs and their tail, traffic ||_4 [s].

    With n blocks a head of r rows that visit k keys, F FLOP and X exponentials of an SM in a clock, f the clock:

        pair(k)  = r k (4 head_dim / (math F) + 1 / X)                        [cycles]
        busy     = batch heads n (pair(k) + block) / (SM f)
        longest  = (pair(k_max) / split + block) / f
        blocks   = max(|| busy + TAIL longest, longest ||_4, FLOP at the power limit)
        t        = launch + || blocks, bytes / W ||_4 + || token batch seq_q heads / (SM f), kv (new bytes) / W ||_2

    The new bytes are those of K and V, read as computed and written as cached, and of Q, read and written, where
    the library turns it in a pass of its own. If the queries of a chunk are few against its keys, the keys are split
    over idle SMs, in at most seq_kv / seq_q parts of at least one step each.
    """
    attention = cast(Attention, op)
    tiles = tiling(machine, conditions.library)
    blocks = _block_times(attention, machine, c, tiles, conditions.load)
    traffic = attention.work().bytes
    stream = warm_bandwidth(STREAM * machine.bandwidth_bytes_per_s, L2_SPEED, traffic, machine, conditions)
    hbm = traffic / stream
    computes = blocks.run >= hbm
    first = _first_pass(attention, machine, c, tiles, stream)
    adds = {
        MATH: np.where(computes, blocks.math, 0.0),
        SOFTMAX: np.where(computes, blocks.softmax, 0.0),
        TILE_WASTE: np.where(computes, np.maximum(blocks.waste, 0.0), 0.0),
        BLOCK: np.where(computes, blocks.setup, 0.0),
        WAVES: np.where(computes, blocks.tail, 0.0),
        HBM: np.where(computes, 0.0, hbm),
        CONTENTION: smooth_max(4, blocks.run, hbm) - np.maximum(blocks.run, hbm),
        KV_WRITE: first,
        LAUNCH: c["launch"],
    }
    return Terms(adds, {MATH: blocks.run, HBM: hbm, KV_WRITE: first})


@dataclass(frozen=True)
class _BlockTimes:
    """What all blocks take together [s]: the parts of ``run`` that are arithmetic, softmax, waste, setup and tail."""

    math: Number
    softmax: Number
    waste: Number
    setup: Number
    tail: Number
    run: Number


def _block_times(op: Attention, machine: Machine, c: Values, tiles: Tiling, load: Load) -> _BlockTimes:
    blocks = _Blocks.of(op, tiles)
    cycles = machine.sm_count * machine.clock_hz
    heads = 1.0 * op.batch * op.heads
    product = 4.0 * op.head_dim / (flop_per_clock(op, machine) * c["math"])
    exponential = 1.0 / machine.exponentials_per_clock
    pair = product + exponential
    block: Number = c["block"] * (tiles.rows / TILE)
    if tiles.window_cost != 1.0:
        block = block * np.where(blocks.windowed, tiles.window_cost, 1.0)
    visited = heads * blocks.a_head * tiles.rows * blocks.keys
    math, softmax = (heads * op.pairs() * share / cycles for share in (product, exponential))
    setup = heads * blocks.a_head * block / cycles
    parts = np.minimum(op.seq_kv / op.seq_q, blocks.most_keys / tiles.keys) if tiles.splits else 1.0
    split = np.maximum(np.minimum(machine.sm_count / (heads * blocks.a_head), parts), 1.0)
    longest = (tiles.rows * blocks.most_keys * pair / split + block) / machine.clock_hz
    busy = visited * pair / cycles + setup
    limited = 4.0 * op.head_dim * visited * s_per_flop(machine, c["energy"] * 0.5 * dtype_bytes(op.dtype), load)
    run = np.maximum(smooth_max(4, busy + TAIL * longest, longest), limited)
    return _BlockTimes(math, softmax, visited * pair / cycles - math - softmax, setup, run - busy, run)


def _first_pass(op: Attention, machine: Machine, c: Values, tiles: Tiling, stream: Number) -> Number:
    """Return the time before attention: rotating the tokens and writing their keys and values [s]."""
    tokens = 1.0 * op.batch * op.seq_q
    # K and V of the new tokens are read in the dtype of the model and written in that of the cache.
    moved = 2.0 * tokens * op.kv_heads * op.head_dim * (dtype_bytes(op.dtype) + dtype_bytes(op.kv_dtype))
    if tiles.prepares_q:
        moved = moved + 2.0 * tokens * op.heads * op.head_dim * dtype_bytes(op.dtype)
    rotated = c["token"] * tokens * op.heads / (machine.sm_count * machine.clock_hz)
    return smooth_max(2, rotated, c["kv"] * moved / stream)


def applies(op: Attention, machine: Machine, library: str) -> Any:
    """Whether each point has several queries, or a sequence of one token."""
    one_query = decode.applies(op, machine, library)
    return not one_query if isinstance(one_query, bool) else ~one_query


PREFILL = Family(
    "attention_prefill",
    CONSTANTS,
    formula,
    (MATH, SOFTMAX, TILE_WASTE, BLOCK, WAVES, HBM, CONTENTION, KV_WRITE, LAUNCH),
    applies,
)

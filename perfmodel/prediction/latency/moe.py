"""Layers of a mixture of experts: two grouped products over the experts that are touched, and what lies between them.

With S slots, E_r experts of the rank and tiles of tm x tn, each of the two products, (N, K) = ((1 + gated) f', h) and
(h, f'), takes the least over the tiles of (max(math, power)^4 + hbm^4 + l2^4)^(1/4), where

- blocks = sum over experts of ceil(rows / tm), times ceil(N / tn), and w = blocks / SMs;
- math = ((1 - q) w + q ceil(w)) b, b = 2 tm tn (K' + k0) / (e g P / SMs): K' is K in whole steps of 64, k0 the fill of
  the pipeline, e the best tile's share of the peak (of mma.sync's for int4), g the loss of smaller tiles, q as in a
  plain product;
- hbm = (touched N K w + S (K a + N 2 B)) / (eta W), with w the bytes of a weight and a those of an activation; weights
  that L2 holds from call to call are read at its speed;
- l2 = blocks K (tm a + tn w) / B2.

The time is start + expert E_s + both products + glue x (bytes between the kernels) / (eta W); slots are sorted by
expert, in TensorRT-LLM, Triton and Marlin by those of all ranks (E_s = E), else by the rank's (E_r). Narrow weights are
widened as in `mixed_gemm`. Triton's kernels are compiled for sizes that are multiples of 16, or for any: then a
weight of the second product takes some clocks more, which makes fp8 on Hopper 20 times as slow; their tiles are not
the best ones, but those of `_Layer._set_aside`. They skip the slots of other ranks: such a block takes the fill alone
and writes zeros, which the kernels between the products read. Constants are those of one library's kernels on one
machine (aiconfigurator @ 095f58a51c4c).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.vocabulary import CacheState, Limiter, Timing
from perfmodel.core.work import Number, plain
from perfmodel.operators.base import Operator
from perfmodel.operators.moe import Moe
from perfmodel.operators.routing import TILE_ROWS
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Constant, Family, Values
from perfmodel.prediction.latency.gemm.rates import INTEGER_LANES, is_fp32, resident_speed
from perfmodel.prediction.latency.gemm.times import POWER_LIMIT
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.mixed_gemm import DEQUANT
from perfmodel.prediction.latency.power import s_per_flop
from perfmodel.prediction.latency.streams import fitting_share
from perfmodel.prediction.latency.terms import CONTENTION, HBM, L2, LAUNCH, MATH, TILE_WASTE, Term, Terms

SERVES = {
    "moe_bf16": ("moe",), "moe_fp8": ("moe",), "moe_fp8_block": ("moe",), "moe_int4": ("moe",), "moe_fp4": ("moe",),
    "moe_mxfp4": ("moe",), "moe_mxfp4_fp8": ("moe",),
}  # fmt: skip

Floats = NDArray[np.float64]

EXPERTS = Term("experts", Limiter.LAUNCH, "sorting the slots by expert, which takes a time for each expert")
GLUE = Term("permutation", Limiter.HBM, "rows sorted by expert, the activation and the weighted sum")
MOE_TERMS = (MATH, TILE_WASTE, POWER_LIMIT, HBM, L2, CONTENTION, GLUE, EXPERTS, LAUNCH)

#: columns of the tiles, each with every number of rows of `TILE_ROWS`
TILE_COLUMNS = (64.0, 128.0, 256.0)
_ROWS, _COLUMNS = (side.reshape(-1, 1) for side in np.meshgrid(TILE_ROWS, TILE_COLUMNS, indexing="ij"))
_AREA = _ROWS * _COLUMNS
#: what the formula calls an edge: 64 (1 / tm + 1 / tn)
_EDGE = 64.0 / _ROWS + 64.0 / _COLUMNS
#: libraries whose kernels are Triton's: compiled for sizes that are multiples of 16, or for any
TRITON, ALIGNED = ("sglang",), 16.0
#: tiles of Triton's kernels for sizes that were not tuned: rows for up to as many tokens as the rank has experts, and
#: beyond; columns in 16 bits (chosen on the fitted rows: 64 x 64 was best of those with up to 256)
FEW_ROWS, USUAL_ROWS, USUAL_COLUMNS = 16.0, 64.0, 64.0
#: libraries that sort slots by the experts of all ranks, as Triton's and Marlin's kernels do: chosen on the fitted
#: rows. Those of sglang in fp4 (cutedsl) sort them by the rank's
SORT_ALL = ("trtllm", "trtllm_min_latency")
#: libraries that run a layer call by call from the host: PyTorch, whose two grouped products (torch._grouped_mm) have
#: around them the router, a sort, a count, a gather, activation and weighted sum. The host reads the count before it
#: goes on, so that its dispatch adds to the kernels' time. Calls as perfmodel's own kernel makes them, and the time of
#: one that does next to nothing, as of elementwise kernels on NVIDIA
EAGER, EAGER_CALLS, EAGER_LAUNCH_S = ("torch",), 22.0, 2.4e-6
#: energy of a 16-bit FLOP at the lowest voltage, in TSMC 4N [J], as for plain products
ENERGY = 0.58e-12
#: engines that multiply fp8 by fp4 as they are, so that nothing is widened (PTX ISA, tcgen05.mma, .kind::mxf8f6f4)
MIXED = ("tcgen05",)
#: most rows of a tile of kernels that widen weights: Marlin's blocks of sorted slots have 8 to 64
WIDENING_ROWS = 64.0
#: FLOP of an SM in a clock by mma.sync on chips whose tensor engine has an instruction of its own: 62.9 % of wgmma's
#: 4096 on H100, assumed after microbenchmarks of mma.sync on Hopper; the rows say about the same, as follows. Kernels
#: that widen int4 reach 0.40 of 4096 on H100 and H200, 0.20 of 8192 on B200 and 0.63 of A100's 2048 (aiconfigurator @
#: 095f58a51c4c, 1,400 rows): if they reach one share of mma.sync everywhere, that is 0.40 / 0.63 = 63.5 % of wgmma.
MMA_SYNC, OTHER_INSTRUCTIONS = 0.629 * 4096.0, ("wgmma", "tcgen05")
#: step of k, and share of the last wave's idle SMs that is lost: those of plain products
STEP, QUANTUM = 64.0, 0.4


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of a layer's time."""
    moe = cast(Moe, op)
    layer = _Layer(moe, machine, c, conditions)
    up = layer.product((1.0 + moe.gated) * moe.inter_of_rank, 1.0 * moe.hidden)
    down = layer.product(1.0 * moe.hidden, 1.0 * moe.inter_of_rank)
    adds = {name: plain(up[name] + down[name]) for name in up}
    eager = conditions.library in EAGER
    between = _eager_bytes(moe) if eager else c["glue"] * moe.glue_bytes(layer.skipped)
    adds[GLUE] = plain(between * layer.row_cost / layer.bandwidth)
    marlin = conditions.library in TRITON and moe.weight_dtype == "int4"
    sort_all = conditions.library in SORT_ALL or _is_triton(moe, conditions.library) or marlin
    sorted_by = moe.experts if sort_all else moe.experts_of_rank
    adds[EXPERTS] = plain(c["expert"] * sorted_by)
    adds[LAUNCH] = _eager_start_s(c, conditions) if eager else c["start"] / machine.clock_hz
    return Terms(adds)


def _eager_bytes(moe: Moe) -> Number:
    """Return the bytes that the calls between the products of an eager layer move [B].

    Of a number of each slot's token, with b the bytes of ``out_dtype``: the gather and the scatter 2 b each, the cast
    to fp32 b + 4, the product with the shares 8 and their sum 4; of one of its hidden layer: the activation 2 b and the
    product with the gate 3 b.
    """
    b = dtype_bytes(moe.out_dtype)
    of_hidden = 5.0 * b if moe.gated else 2.0 * b
    return moe.computed_slots * ((5.0 * b + 16.0) * moe.hidden + of_hidden * moe.inter_of_rank)


def _eager_start_s(c: Values, conditions: Conditions) -> float:
    """Return what starting the calls of an eager layer takes [s]: kernels alone, or with their dispatch."""
    return EAGER_CALLS * (c["host"] if conditions.timing == Timing.EVENT else EAGER_LAUNCH_S)


def _is_triton(moe: Moe, library: str) -> bool:
    """Whether a library's kernels for these dtypes are Triton's; sglang's for weights of 4 bits are others."""
    return library in TRITON and moe.dtype == moe.weight_dtype != "fp4"


def _widens(moe: Moe, machine: Machine) -> bool:
    """Whether weights are widened to the activations' dtype before they are multiplied."""
    mixed = machine.matrix_instruction in MIXED and (moe.dtype, moe.weight_dtype) == ("fp8", "fp4")
    return moe.weight_dtype != moe.dtype and not mixed


class _Layer:
    """What both products of a layer share: the machine's rates, the rows of the experts, the weights in L2."""

    def __init__(self, moe: Moe, machine: Machine, c: Values, conditions: Conditions):
        self.c, self.machine = c, machine
        self.slots, self.touched = moe.computed_slots, moe.touched
        # slots of other ranks, which Triton's kernels pass on as zeros
        skips = _is_triton(moe, conditions.library)
        self.skipped = np.maximum(0.0, moe.visiting_slots - self.slots) if skips else 0.0
        self.shape = np.broadcast_shapes(moe.shape, np.shape(self.slots + 0.0 * moe.touched))
        # along the rows for each tile: candidates x points
        blocks = [np.ravel(np.broadcast_to(moe.blocks(rows), self.shape)) for rows in TILE_ROWS]
        self.blocks = np.repeat(blocks, len(TILE_COLUMNS), axis=0)
        self.activation_bytes, self.weight_bytes = dtype_bytes(moe.dtype), moe.weight_bytes
        self.bandwidth = c["eta"] * machine.bandwidth_bytes_per_s
        loss = (1.0 + c["tile"] * _EDGE) / (1.0 + c["tile"] * _EDGE.min())
        peak = machine.peak_flop_per_s / machine.sm_count
        if moe.weight_dtype == "int4" and machine.matrix_instruction in OTHER_INSTRUCTIONS:
            peak = min(peak, MMA_SYNC * machine.clock_hz)
        speed = np.minimum(1.0, machine.slack * c["math"] / loss) * peak
        self.block_s = 2.0 * _AREA / speed
        self.ideal_s = machine.sm_count * speed.max()
        self.unaligned_s = self._unaligned_s(conditions.library)
        self.widens = _widens(moe, machine)
        if self.widens:
            self.block_s = self.block_s + DEQUANT * _COLUMNS / (INTEGER_LANES * machine.clock_hz)
        self.set_aside = self._set_aside(moe, conditions.library)
        self.l2_bandwidth = c["l2"] * machine.slack * machine.peak_flop_per_s * self.activation_bytes / 64.0
        self.s_per_flop = s_per_flop(machine, ENERGY * 0.5 * self.activation_bytes, conditions.load)
        weights = self.touched * moe.hidden * moe.inter_of_rank * (2.0 + moe.gated) * self.weight_bytes
        rows = moe.glue_bytes(self.skipped)
        warm = conditions.cache != CacheState.COLD
        self.weight_cost = self._cost(weights + rows if warm else np.inf)
        # What one kernel writes and the next one reads; the caches are cold only when the layer begins.
        self.row_cost = self._cost(rows)

    def _cost(self, used_bytes: Number) -> Number:
        """Return the time of a byte of data of which so much is used, over that of a byte from device memory."""
        if not self.machine.l2_bytes:
            return 1.0
        share = fitting_share(used_bytes, self.machine.l2_bytes)
        return 1.0 - share * (1.0 - 1.0 / resident_speed(self.machine, self.c))

    def _set_aside(self, moe: Moe, library: str) -> NDArray[np.bool_]:
        """Return which tiles the library's kernels do not have or do not take, as candidates x points."""
        points = np.less_equal(moe.tokens, moe.experts_of_rank)
        few = np.broadcast_to(points, self.shape).reshape(1, -1)
        out: NDArray[np.bool_] = np.zeros_like(few)
        if self.widens:
            out = _ROWS > WIDENING_ROWS
        elif _is_triton(moe, library):
            block = moe.scale.startswith("block")
            rows = np.where(few & (not block), FEW_ROWS, USUAL_ROWS)
            out = (rows != _ROWS) | ((_COLUMNS != USUAL_COLUMNS) & (not block))
        return out

    def _unaligned_s(self, library: str) -> Floats | float:
        """Return what a step of k takes more in a block whose rows of weights have no aligned addresses [s]."""
        return self.c["unaligned"] * _COLUMNS / self.machine.clock_hz if library in TRITON else 0.0

    def product(self, n: Number, k: Number) -> Mapping[Term, Number]:
        """Return the terms of one grouped product, with its fastest tile."""
        columns = (n, k, self.touched, self.weight_cost, self.row_cost, self.slots, self.skipped)
        n_, k_, touched, weight_cost, row_cost, slots, skipped = (
            np.ravel(np.broadcast_to(value, self.shape)) for value in columns
        )
        blocks = self.blocks * np.ceil(n_ / _COLUMNS)
        waves = blocks / self.machine.sm_count
        busy = np.maximum(1.0, (1.0 - QUANTUM) * waves + QUANTUM * np.ceil(waves))
        odd = np.mod(k_, ALIGNED) > 0
        math = busy * (self.block_s + self.unaligned_s * odd) * (np.ceil(k_ / STEP) * STEP + self.c["fill"])
        empty = np.ceil(skipped / _ROWS) * np.ceil(n_ / _COLUMNS)
        math = math + empty / self.machine.sm_count * self.block_s * self.c["fill"]
        flop = 2.0 * slots * n_ * k_
        limited = np.maximum(math, self.s_per_flop * flop)
        weights = touched * n_ * k_ * self.weight_bytes * weight_cost
        rows = slots * (k_ * self.activation_bytes + 2.0 * n_) + skipped * 2.0 * n_
        hbm = (weights + rows * row_cost) / self.bandwidth
        l2 = blocks * k_ * (_ROWS * self.activation_bytes + _COLUMNS * self.weight_bytes) / self.l2_bandwidth
        total = (limited**4 + hbm**4 + l2**4) ** 0.25
        total[np.broadcast_to(self.set_aside, total.shape)] = np.inf
        best = total.argmin(axis=0), np.arange(total.shape[1])
        return self._terms(total[best], math[best], limited[best], hbm, l2[best], flop / self.ideal_s)

    def _terms(
        self, total: Floats, math: Floats, limited: Floats, hbm: Floats, l2: Floats, ideal: Floats
    ) -> Mapping[Term, Number]:
        """Return the time as the largest resource's, and what the others add."""
        largest = np.maximum(limited, np.maximum(hbm, l2))
        on_math = limited >= largest
        on_hbm = ~on_math & (hbm >= l2)
        parts = {
            MATH: np.minimum(ideal, math) * on_math,
            TILE_WASTE: (math - np.minimum(ideal, math)) * on_math,
            POWER_LIMIT: (limited - math) * on_math,
            HBM: hbm * on_hbm,
            L2: l2 * ~(on_math | on_hbm),
            CONTENTION: total - largest,
        }
        return {name: value.reshape(self.shape) for name, value in parts.items()}


_MEANINGS: Mapping[str, tuple[str, float, float, float, str]] = {
    "math": ("", 0.05, 1.0, 0.15, "share of the peak that the largest tile reaches"),
    "eta": ("", 0.2, 1.0, 0.1, "share of the datasheet bandwidth"),
    "start": ("", 1000.0, 300e3, 0.4, "clocks to start and drain all kernels of the layer"),
    "expert": ("s", 1e-10, 1e-6, 1.0, "time for each expert that slots are sorted by"),
    "glue": ("", 0.01, 20.0, 0.5, "passes between the kernels, over the count"),
    "fill": ("", 1.0, 3000.0, 0.5, "length of k that filling and draining a block takes"),
    "l2": ("", 0.02, 10.0, 0.5, "L2 bandwidth, over what tiles of 64 x 64 need at the peak"),
    "tile": ("", 0.01, 10.0, 0.6, "loss of small tiles: 64 tile (1/tm + 1/tn) of the arithmetic's time"),
    "unaligned": ("", 1e-3, 100.0, 1.0, "SM clocks of a weight where Triton's kernels know no alignment of its row"),
    "resident": (
        "",
        1e-3,
        1.0,
        0.7,
        "share of L2's 64 B a clock and SM that data in it have beside device memory's",
    ),
}


def _constants(wider: float, **defaults: float) -> tuple[Constant, ...]:
    """Return the constants of a library's kernels, with spreads so many times as wide, up to 1."""
    found = []
    for name, default in defaults.items():
        unit, low, high, spread, meaning = _MEANINGS[name]
        found.append(Constant(name, unit, default, low, high, min(1.0, wider * spread), meaning, True))
    return tuple(found)


def _family(
    name: str, *formats: tuple[str, str], scaled: bool | None = None, wider: float = 1.0, **changed: float
) -> Family:
    """Return a family for some pairs of (activation, weight) dtypes, with scales of blocks, without, or with any."""

    def applies(op: Operator | None, machine: Machine, library: str) -> bool:
        if not isinstance(op, Moe) or (op.dtype, op.weight_dtype) not in formats or is_fp32(machine):
            return False
        return scaled is None or op.scale.startswith("block") == scaled

    defaults = {
        "math": 0.6, "eta": 0.75, "start": 25e3, "expert": 2e-8, "glue": 1.0, "fill": 200.0, "l2": 0.5, "tile": 0.25,
        # geometric means of Triton's kernels on five machines in 16 bits, and on three in fp8 blocks: only their
        # library has rows that tell it, so that where it is left out, this constant still comes from it
        "unaligned": 0.14, "resident": 0.03,
    }  # fmt: skip
    return Family(name, _constants(wider, **(defaults | changed)), formula, MOE_TERMS, applies)


FAMILIES = (
    _family("moe_bf16", ("bf16", "bf16"), ("fp16", "fp16")),
    _family("moe_fp8", ("fp8", "fp8"), scaled=False),
    _family("moe_fp8_block", ("fp8", "fp8"), scaled=True, unaligned=0.65),
    _family("moe_int4", ("fp16", "int4"), ("bf16", "int4")),
    _family("moe_fp4", ("fp4", "fp4")),
    # 20 to 30 rows a machine, whose kernels are far from the others: on B200 small tiles lose ten times as much, and
    # activations of 8 bits, which nothing widens weights for, are five times as fast.
    _family("moe_mxfp4", ("fp16", "fp4"), ("bf16", "fp4"), wider=4.0),
    _family("moe_mxfp4_fp8", ("fp8", "fp4"), wider=2.0),
)

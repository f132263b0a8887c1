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

The time is start + expert E_s + both products + g, with g = ((glue B / (eta W))^4 + (issue B / (SMs f))^4)^(1/4) for
the B bytes between the kernels: passes over memory where it is slow (L40S), and instructions where it is not (A100,
H100, B200: TensorRT-LLM's take 0.09 to 0.14 clocks a byte on each, Triton's 0.04). Slots are sorted by expert, in
TensorRT-LLM, Triton and Marlin by those of all ranks (E_s = E), else by the rank's (E_r). Narrow weights are widened as
in `mixed_gemm`. Triton's kernels are compiled for sizes that are multiples of 16, or for any: then a weight of the
second product takes some clocks more, which makes fp8 on Hopper 20 times as slow; their tiles are not the best ones,
but those of `set_aside`. They skip the slots of other ranks: such a block takes the fill alone and writes
zeros, which the kernels between the products read. Constants are those of one library's kernels on one machine
(aiconfigurator @ 095f58a51c4c).
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
from perfmodel.prediction.latency.gemm.rates import INTEGER_LANES, is_fp32
from perfmodel.prediction.latency.gemm.times import POWER_LIMIT
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.mixed_gemm import DEQUANT
from perfmodel.prediction.latency.moe_tiles import (
    ALIGNED,
    AREA,
    COLUMNS,
    EDGE,
    ROWS,
    TILE_COLUMNS,
    TRITON,
    engine_rate,
    is_triton,
    set_aside,
    slowed,
    widens,
)
from perfmodel.prediction.latency.power import TENSOR_ENERGY, VECTOR_ENERGY, s_per_flop
from perfmodel.prediction.latency.streams import L2_BYTES_PER_CLOCK, fitting_share
from perfmodel.prediction.latency.terms import CONTENTION, HBM, L2, LAUNCH, MATH, TILE_WASTE, Term, Terms

SERVES = {
    "moe_bf16": ("moe",), "moe_fp8": ("moe",), "moe_fp8_block": ("moe",), "moe_int4": ("moe",), "moe_fp4": ("moe",),
    "moe_mxfp4": ("moe",), "moe_mxfp4_fp8": ("moe",),
}  # fmt: skip

Floats = NDArray[np.float64]

EXPERTS = Term("experts", Limiter.LAUNCH, "sorting the slots by expert, which takes a time for each expert")
GLUE = Term("permutation", Limiter.HBM, "rows sorted by expert, the activation and the weighted sum")
MOE_TERMS = (MATH, TILE_WASTE, POWER_LIMIT, HBM, L2, CONTENTION, GLUE, EXPERTS, LAUNCH)

#: libraries that sort slots by the experts of all ranks, as Triton's and Marlin's kernels do: chosen on the fitted
#: rows. Those of sglang in fp4 (cutedsl) sort them by the rank's
SORT_ALL = ("trtllm", "trtllm_min_latency")
#: libraries that run a layer call by call from the host: PyTorch, whose two grouped products (torch._grouped_mm) have
#: around them the router, a sort, a count, a gather, activation and weighted sum. The host reads the count before it
#: goes on, so that its dispatch adds to the kernels' time. Calls as perfmodel's own kernel makes them, and the time of
#: one that does next to nothing, as of elementwise kernels on NVIDIA
EAGER, EAGER_CALLS, EAGER_LAUNCH_S = ("torch",), 22.0, 2.4e-6
#: share of L2's 64 B a clock and SM at which kernels read data in it: geometric mean of the four fits of libraries and
#: dtypes on L40S, 0.08 to 0.19 (aiconfigurator), which alone tell it. The memory of A100, H100 and B200 is faster
RESIDENT = 0.13
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
    adds[GLUE] = plain(_eager_bytes(moe) * layer.row_cost / layer.bandwidth if eager else layer.glue_s(moe))
    marlin = conditions.library in TRITON and moe.weight_dtype == "int4"
    sort_all = conditions.library in SORT_ALL or is_triton(moe, conditions.library) or marlin
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


class _Layer:
    """What both products of a layer share: the machine's rates, the rows of the experts, the weights in L2."""

    def __init__(self, moe: Moe, machine: Machine, c: Values, conditions: Conditions):
        self.c, self.machine = c, machine
        self.slots, self.touched = moe.computed_slots, moe.touched
        # slots of other ranks, which Triton's kernels pass on as zeros
        skips = is_triton(moe, conditions.library)
        self.skipped = np.maximum(0.0, moe.visiting_slots - self.slots) if skips else 0.0
        self.shape = np.broadcast_shapes(moe.shape, np.shape(self.slots + 0.0 * moe.touched))
        # along the rows for each tile: candidates x points
        blocks = [np.ravel(np.broadcast_to(moe.blocks(rows), self.shape)) for rows in TILE_ROWS]
        self.blocks = np.repeat(blocks, len(TILE_COLUMNS), axis=0)
        self.activation_bytes, self.weight_bytes = dtype_bytes(moe.dtype), moe.weight_bytes
        self.bandwidth = c["eta"] * machine.bandwidth_bytes_per_s
        loss = (1.0 + c["tile"] * EDGE) / (1.0 + c["tile"] * EDGE.min())
        speed = np.asarray(machine.fed(c["math"] / loss)) * engine_rate(moe, machine)
        self.block_s = 2.0 * AREA / speed * slowed(moe, machine, conditions.library)
        self.ideal_s = machine.sm_count * speed.max()
        self.unaligned_s = self._unaligned_s(conditions.library)
        if widens(moe, machine):
            self.block_s = self.block_s + DEQUANT * COLUMNS / (INTEGER_LANES * machine.clock_hz)
        self.set_aside = set_aside(moe, machine, conditions.library, self.shape)
        self.l2_bandwidth = c["l2"] * machine.slack * machine.peak_flop_per_s * self.activation_bytes / 64.0
        joule = VECTOR_ENERGY if is_fp32(machine) else TENSOR_ENERGY * 0.5 * self.activation_bytes
        self.s_per_flop = s_per_flop(machine, joule, conditions.load)
        weights = self.touched * moe.hidden * moe.inter_of_rank * (2.0 + moe.gated) * self.weight_bytes
        rows = moe.glue_bytes(self.skipped)
        warm = conditions.cache != CacheState.COLD
        self.weight_cost = self._cost(weights + rows if warm else np.inf)
        # What one kernel writes and the next one reads; the caches are cold only when the layer begins.
        self.row_cost = self._cost(rows)

    def glue_s(self, moe: Moe) -> Number:
        """Return the time of the kernels between the products [s]: that of their traffic, or of their instructions."""
        between = moe.glue_bytes(self.skipped)
        moved = self.c["glue"] * between * self.row_cost / self.bandwidth
        issued = self.c["issue"] * between / (self.machine.sm_count * self.machine.clock_hz)
        together: Number = (moved**4.0 + issued**4.0) ** 0.25
        return together

    def _cost(self, used_bytes: Number) -> Number:
        """Return the time of a byte of data of which so much is used, over that of a byte from device memory.

        Data that L2 holds come at the share `RESIDENT` of its bandwidth, where that is more than device memory's.
        """
        if not self.machine.l2_bytes:
            return 1.0
        share = fitting_share(used_bytes, self.machine.l2_bytes)
        l2 = RESIDENT * L2_BYTES_PER_CLOCK * self.machine.sm_count * self.machine.clock_hz
        return 1.0 - share * (1.0 - min(1.0, self.bandwidth / l2))

    def _unaligned_s(self, library: str) -> Floats | float:
        """Return what a step of k takes more in a block whose rows of weights have no aligned addresses [s]."""
        return self.c["unaligned"] * COLUMNS / self.machine.clock_hz if library in TRITON else 0.0

    def product(self, n: Number, k: Number) -> Mapping[Term, Number]:
        """Return the terms of one grouped product, with its fastest tile."""
        columns = (n, k, self.touched, self.weight_cost, self.row_cost, self.slots, self.skipped)
        n_, k_, touched, weight_cost, row_cost, slots, skipped = (
            np.ravel(np.broadcast_to(value, self.shape)) for value in columns
        )
        blocks = self.blocks * np.ceil(n_ / COLUMNS)
        waves = blocks / self.machine.sm_count
        busy = np.maximum(1.0, (1.0 - QUANTUM) * waves + QUANTUM * np.ceil(waves))
        odd = np.mod(k_, ALIGNED) > 0
        math = busy * (self.block_s + self.unaligned_s * odd) * (np.ceil(k_ / STEP) * STEP + self.c["fill"])
        empty = np.ceil(skipped / ROWS) * np.ceil(n_ / COLUMNS)
        math = math + empty / self.machine.sm_count * self.block_s * self.c["fill"]
        flop = 2.0 * slots * n_ * k_
        limited = np.maximum(math, self.s_per_flop * flop)
        weights = touched * n_ * k_ * self.weight_bytes * weight_cost
        rows = slots * (k_ * self.activation_bytes + 2.0 * n_) + skipped * 2.0 * n_
        hbm = (weights + rows * row_cost) / self.bandwidth
        l2 = blocks * k_ * (ROWS * self.activation_bytes + COLUMNS * self.weight_bytes) / self.l2_bandwidth
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
    "glue": ("", 0.01, 20.0, 0.4, "passes between the kernels, over the count"),
    "fill": ("", 1.0, 3000.0, 0.5, "length of k that filling and draining a block takes"),
    "l2": ("", 0.02, 10.0, 0.5, "L2 bandwidth, over what tiles of 64 x 64 need at the peak"),
    "tile": ("", 0.01, 10.0, 0.6, "loss of small tiles: 64 tile (1/tm + 1/tn) of the arithmetic's time"),
    "unaligned": ("", 1e-3, 100.0, 1.0, "SM clocks of a weight where Triton's kernels know no alignment of its row"),
    "issue": ("", 0.003, 10.0, 0.5, "SM clocks that a byte between the kernels takes, however fast memory is"),
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
        if not isinstance(op, Moe) or (op.dtype, op.weight_dtype) not in formats:
            return False
        return scaled is None or op.scale.startswith("block") == scaled

    defaults = {
        "math": 0.6, "eta": 0.75, "start": 25e3, "expert": 2e-8, "glue": 1.0, "issue": 0.13, "fill": 500.0, "l2": 0.5,
        "tile": 0.6,
        # geometric means of Triton's kernels on five machines in 16 bits, and on three in fp8 blocks: only their
        # library has rows that tell it, so that where it is left out, this constant still comes from it
        "unaligned": 0.14,
    }  # fmt: skip
    return Family(name, _constants(wider, **(defaults | changed)), formula, MOE_TERMS, applies)


FAMILIES = (
    # fp32 and tf32 have no rows; whichever engine computes them, tiles, waves and starts are those of 16 bits
    _family("moe_bf16", ("bf16", "bf16"), ("fp16", "fp16"), ("fp32", "fp32"), ("tf32", "tf32")),
    # int8 has no rows: engines multiply it at the rate of fp8, where they have that, and kernels have its tiles
    _family("moe_fp8", ("fp8", "fp8"), ("int8", "int8"), scaled=False),
    _family("moe_fp8_block", ("fp8", "fp8"), scaled=True, unaligned=0.65),
    # Marlin's kernel widens weights of 8 bits as it does those of 4, of which alone there are rows.
    _family("moe_int4", *((wide, narrow) for narrow in ("int4", "int8", "fp8") for wide in ("fp16", "bf16"))),
    _family("moe_fp4", ("fp4", "fp4")),
    # 20 to 30 rows a machine, whose kernels are far from the others: on B200 small tiles lose ten times as much, and
    # activations of 8 bits, which nothing widens weights for, are five times as fast.
    _family("moe_mxfp4", ("fp16", "fp4"), ("bf16", "fp4"), wider=4.0),
    _family("moe_mxfp4_fp8", ("fp8", "fp4"), wider=2.0),
)

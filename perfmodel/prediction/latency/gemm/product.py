"""Matrix products: the fastest of some tiles and splits of k, each limited by arithmetic, device memory and L2.

For a tile of tm x tn outputs and a split of k in S parts, with w = batch ceil(m / tm) ceil(n / tn) S / SMs blocks
an SM, the resources take

- t_math = max(max(d, (1 - q) w + q ceil(w)) b, b + lambda k / (64 S), FLOP / power-limited rate), with b the time of
  one block, b = 2 tm tn (k' + k0) / (e g P / SMs): k' is k / S in whole steps, k0 the fill of the pipeline (longer
  where outputs are wider than inputs), e the best tile's share of the peak P, g the loss of smaller tiles, d how many
  blocks of the tile keep an SM busy, q the share of the last wave's idle SMs that is lost, lambda the latency of a step
  that no other block hides; it is longer where address translation does not reach a wave's operands
  (``translation_cost`` of the machine's kernels), where rows lie in one channel (``channel_cost``), and where a size
  is no multiple of a cache line (``ragged``);
- t_hbm = traffic / (eta W): A, B and C once; the panels of A and B again for each wave-sized super-tile of the
  output as far as they exceed L2; the part that L2 holds is faster, or free;
- t_l2 = blocks (k / S) (tm a + tn b) / B2, a and b the sizes of an element of A and B, with B2 = l SMs 64 B f on the
  vector engine, and l P a / 64 on the tensor engine, where l = 1 feeds tiles of 64 x 64 at the peak P.

The time is the least over tiles and splits of (t_math^4 + t_hbm^4 + t_l2^4)^(1/4) + launch, and for a split the
reduction of the parts. A product is split only while that makes at most ``SPLIT_WAVES`` blocks an SM. Where a library
chooses its tile by the rows m (`tiles_by_rows`), that tile is taken, and nothing is split.

The structure follows what libraries do (cuBLAS kernel names; Huang et al. 2018, "Implementing Strassen's algorithm
with CUTLASS", section 2; NVIDIA, "Matrix multiplication background user's guide", on tile and wave quantisation); the
constants are fitted to the NeuSight (fp32) and aiconfigurator (16- and 8-bit) measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.hardware import Tiles
from perfmodel.core.vocabulary import CacheState, Limiter, Load
from perfmodel.core.work import Number, anywhere, ceil, floor, maximum, minimum, where
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Values
from perfmodel.prediction.latency.gemm.tiles import tiles_by_rows, tiles_of
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.power import s_per_flop
from perfmodel.prediction.latency.streams import L2_BYTES_PER_CLOCK, fitting_share
from perfmodel.prediction.latency.terms import (
    CONTENTION,
    HBM,
    L2,
    LAUNCH,
    MATH,
    SPLIT_K,
    TILE_WASTE,
    WAVES,
    Term,
    Terms,
)

PIPELINE = Term("pipeline", Limiter.COMPUTE, "filling and draining the pipeline of each block, and its latency")
DEQUANTISATION = Term("dequantisation", Limiter.COMPUTE, "widening of the weights to the engine's dtype")
POWER_LIMIT = Term("power", Limiter.COMPUTE, "clock held down by the power limit")
PRODUCT_TERMS = (MATH, TILE_WASTE, PIPELINE, WAVES, POWER_LIMIT, HBM, L2, CONTENTION, SPLIT_K, LAUNCH)

#: resources overlap as the POWER-norm of their times; 4 is a square of a square, so that no logarithm is taken
POWER = 4
#: products that are worked on at once: their arrays stay in a core's cache
CHUNK = 16384
#: a split of k makes at most so many parts
MOST_PARTS = 32.0
#: blocks an SM up to which a product is split along k
SPLIT_WAVES = 2.0
#: weights that a benchmark with rotating buffers keeps (aiconfigurator's collector: five copies)
ROTATING_COPIES = 5.0
#: outputs of a block of 128 x 128, of which every SM has one in a wave
WAVE_OUTPUTS = 128.0 * 128.0
#: lanes of an SM that convert integers: a LOP3 and a PRMT turn several packed weights at a time (CUDA C++ programming
#: guide, throughput of native arithmetic instructions, integer operations: 64 a clock)
INTEGER_LANES = 64.0
#: elements of a cache line of 128 B in fp32: where all sizes are multiples of it, rows start at cache lines and no tile
#: has to check its bounds
WHOLE_LINES = 32.0
#: elements of k that fill a page of DRAM (2 KiB of fp32)
PAGE_OF_K = 512.0
#: bytes from the first to the last row of a wave's operands that address translation reaches: P100's linear layers keep
#: their rate up to about 48 MB, and take 1.5 times as long at 90 MB, 2.1 times at 180 MB (NeuSight @ 6945927d9afc)
REACH_BYTES = 48e6
#: bytes between rows from which on multiples of them meet in few channels: MI100 and MI210 keep their rate at 64 KiB
#: and take 1.3 to 1.8 times as long at 128 KiB, 2.4 to 2.9 times at 256 KiB (NeuSight @ 6945927d9afc)
CHANNEL_BYTES = 65536.0
#: fp32 lanes of an SM above which shared memory (128 B a clock) does not feed them: an 8 x 8 outer product in registers
#: loads 16 numbers for 64 fused multiply-adds, and with 128 lanes that takes as long as the arithmetic
FED_LANES, FEED = 64.0, 0.88
_PLAIN = {int, float, np.float64}
#: rates kept for one machine; a fit tries many constants
_MOST_RATES = 64

#: start of the reduction of the parts of k on fp32 lanes [s]: assumed; all machines but two keep it in a fit
VECTOR_SPLIT = 4e-6
#: constants that all machines share; those of a family override them
_VECTOR: Values = {
    "step": 8.0,  # k of one stage of shared memory
    "depth": 5760.0,  # outputs in flight that keep an SM busy: 90 for each of 64 lanes
    "quantum": 0.9,
    "latency": 0.0,
    "parts": MOST_PARTS,
    "split": VECTOR_SPLIT,
    "ragged": 1.0,
    "l2": 0.8,
    "resident_speed": np.inf,
    # Where a family of 8-bit products runs on vector lanes (V100's DP4A), which no table has: those of tensor engines.
    "tile": 0.25,
    "linear": 1.0,
    "stride": 1.0,
}
_TENSOR: Values = {
    "step": 64.0,
    "depth": 0.0,
    "quantum": 0.4,
    "latency": 40e-9,
    "parts": MOST_PARTS,
    "tile": 0.25,
    "linear": 1.0,
    "stride": 1.0,
    "ragged": 1.0,
    "math": 1.0,  # where a family has none: 8-bit products reach the peak as far as the power limit lets them
}
#: kernels with one tile for a product: no other tile evens out the last wave, and the deep pipeline of CUTLASS hides
#: more of a step. Both chosen on aic_gemm (sglang's fp8 on H100, H200, L40S).
_ONE_TILE: Values = {"quantum": 1.0, "latency": 15e-9}


@dataclass(frozen=True)
class Product:
    """``batch`` products C[m, n] = A[m, k] B[k, n].

    Attributes
    ----------
    m, n, k, batch : sizes.
    input_bytes, output_bytes : size of an element of A and of C [B].
    weight_bytes : size of an element of B with its share of the scales [B]; 0 where it is that of A.
    tiles : tiles of the kernels, where they are not those of products of one dtype.
    """

    m: Number
    n: Number
    k: Number
    batch: Number
    input_bytes: float
    output_bytes: float
    weight_bytes: float = 0.0
    tiles: Tiles = ()

    @property
    def b_bytes(self) -> float:
        """Size of an element of B [B]."""
        return self.weight_bytes or self.input_bytes


@dataclass(slots=True)
class ProductTime:
    """The time of products with one tile and split each [s], without the launch.

    Attributes
    ----------
    math, tile_waste, pipeline, waves, power, hbm, l2, contention, split_k : parts that add up to the time.
    math_alone, hbm_alone, l2_alone : what each resource alone would take.
    dequantisation : part of the time that widens narrow weights.
    """

    math: Number
    tile_waste: Number
    pipeline: Number
    waves: Number
    power: Number
    hbm: Number
    l2: Number
    contention: Number
    split_k: Number
    math_alone: Number
    hbm_alone: Number
    l2_alone: Number
    dequantisation: Number = 0.0

    @classmethod
    def gathered(cls, parts: Iterable[tuple[Any, ProductTime]], shape: tuple[int, ...]) -> ProductTime:
        """Return the times of all products from those of chunks, each with the places of its products."""
        points, names = math.prod(shape), [item.name for item in fields(cls)]
        columns: dict[str, Any] = {name: np.empty(points) for name in names}
        for places, part in parts:
            values = {name: getattr(part, name) for name in names}
            if isinstance(places, slice) and places == slice(0, points):
                columns = values  # one piece is all of them, and needs no copy
                break
            for name, value in values.items():
                columns[name][places] = value
        return cls(**{name: np.reshape(value, shape) if np.ndim(value) else value for name, value in columns.items()})

    def terms(self, launch_s: float) -> Terms:
        """Return the times as terms."""
        adds = {
            MATH: self.math,
            TILE_WASTE: self.tile_waste,
            PIPELINE: self.pipeline,
            WAVES: self.waves,
            POWER_LIMIT: self.power,
            HBM: self.hbm,
            L2: self.l2,
            CONTENTION: self.contention,
            SPLIT_K: self.split_k,
            LAUNCH: launch_s,
        }
        widening = self.dequantisation
        if widening.any() if isinstance(widening, np.ndarray) else widening:
            adds[DEQUANTISATION] = widening
        return Terms(adds, {MATH: self.math_alone, HBM: self.hbm_alone, L2: self.l2_alone})


def product_terms(product: Product, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of matrix products: the time of the fastest tile and split [s].

    Sizes have one shape, or shapes that broadcast; the terms have it too. Products in a batch (batch > 1) have the
    tiles of the library's batched kernels, and in fp32 they are not split. Memory beside the result stays below some
    MB.

    Parameters
    ----------
    product : sizes.
    machine, conditions : where, and what its caches hold.
    c : the constants of one of this package's families.
    """
    sizes = (product.m, product.n, product.k, product.batch)
    if {type(size) for size in sizes} <= _PLAIN:
        m, n, k, batch = map(float, sizes)
        time = _fastest(m, n, k, batch, rates_of(product, machine, c, conditions, batch > 1.0))
    else:
        shape = np.broadcast_shapes(*(np.shape(size) for size in sizes))
        pieces = _pieces(sizes, shape, lambda batched: rates_of(product, machine, c, conditions, batched))
        time = ProductTime.gathered(pieces, shape)
    return time.terms(launch_s(machine, c))


def _pieces(
    sizes: tuple[Number, ...], shape: tuple[int, ...], rates: Callable[[bool], Rates]
) -> Iterator[tuple[slice | NDArray[np.intp], ProductTime]]:
    """Yield places and times, a cache-sized number of products at a time, single products apart from batches."""
    flat = [np.broadcast_to(np.asarray(size, np.float64), shape).reshape(-1) for size in sizes]
    for start in range(0, math.prod(shape), CHUNK):
        places = slice(start, min(start + CHUNK, math.prod(shape)))
        m, n, k, batch = (size[places] for size in flat)
        batched = batch > 1.0
        if not batched.any() or batched.all():
            yield places, _fastest(m, n, k, batch, rates(bool(batched[0])))
            continue
        for kind in (False, True):
            (index,) = np.nonzero(batched == kind)
            yield start + index, _fastest(m[index], n[index], k[index], batch[index], rates(kind))


def _fastest(m: Number, n: Number, k: Number, batch: Number, r: Rates) -> ProductTime:
    """Return the time of each product with its fastest tile and split."""
    sizes = Sizes(m, n, k, batch, r)
    index, split = _choice(sizes, r)
    tile = r.tiles[index] if isinstance(index, int) else Tile(*(column.take(index) for column in r.columns))
    blocks = sizes.blocks(tile)
    if anywhere(split):
        parts = 1.0 + split * (_most_parts(blocks, r) - 1.0)
        loads = _loads(sizes, r, tile, blocks * parts, Depth.of(sizes.k / parts, r), split * parts)
    else:
        loads = _loads(sizes, r, tile, blocks, Depth.of(sizes.k, r))
    return _time_of(sizes, r, tile, split, loads)


def _choice(sizes: Sizes, r: Rates) -> tuple[Any, Any]:
    """Return the index of the fastest tile of each product, and whether it is split along k."""
    small: Any = sizes.outputs <= r.whole_wave
    if not anywhere(small):
        return _cheapest(r, _whole_time(sizes, r))[0], False
    if not isinstance(small, np.ndarray) or small.all():
        return _choice_of_small(sizes, r)
    index, split = np.empty(small.shape, np.int8), np.zeros(small.shape, bool)
    (large,), (few,) = np.nonzero(~small), np.nonzero(small)
    index[large] = _cheapest(r, _whole_time(sizes.at(large), r))[0]
    index[few], split[few] = _choice_of_small(sizes.at(few), r)
    return index, split


def _choice_of_small(sizes: Sizes, r: Rates) -> tuple[Any, Any]:
    """Return the fastest tile, and whether it is split, of products that are split where that is faster."""
    whole, parted = _whole_time(sizes, r), _parted_time(sizes, r)
    index, least = _cheapest(r, lambda tile: _fourth_root(whole(tile)))
    other, least_in_parts = _cheapest(r, lambda tile: _fourth_root(parted(tile)) + r.c["split"])
    split = least_in_parts < least
    return index + split * (other - index), split


def _fourth_power(value: Any) -> Any:
    square = value * value  # Python takes three times as long for a power
    return square * square


def _fourth_root(value: Any) -> Any:
    return (value**0.5) ** 0.5


def _whole_time(sizes: Sizes, r: Rates) -> Callable[[Tile], Any]:
    """Return the function of a tile that gives the fourth power of the time of whole products."""
    depth, hbm = Depth.of(sizes.k, r), _fourth_power(sizes.hbm)
    return lambda tile: _power_of_time(sizes, r, tile, _loads(sizes, r, tile, sizes.blocks(tile), depth), hbm)


def _parted_time(sizes: Sizes, r: Rates) -> Callable[[Tile], Any]:
    """Return the function of a tile that gives the fourth power of the time of products that are split along k."""
    hbm = _fourth_power(sizes.hbm)

    def time(tile: Tile) -> Any:
        blocks = sizes.blocks(tile)
        parts = _most_parts(blocks, r)
        loads = _loads(sizes, r, tile, blocks * parts, Depth.of(sizes.k / parts, r), parts)
        return _power_of_time(sizes, r, tile, loads, hbm)

    return time


def _most_parts(blocks: Number, r: Rates) -> Number:
    """Return how many parts of k make at most ``SPLIT_WAVES`` blocks an SM."""
    return minimum(maximum(floor(SPLIT_WAVES * r.sm_count / blocks), 1.0), r.c["parts"])


def _cheapest(r: Rates, time: Callable[[Tile], Any]) -> tuple[Any, Any]:
    """Return the index of the first tile of the least time for each product, and that time.

    One tile is timed after the other, so that the arrays of many products stay in a core's cache.
    """
    least = time(r.tiles[0])
    best: Any = np.zeros(least.shape, np.int8) if isinstance(least, np.ndarray) else 0
    for index, tile in enumerate(r.tiles[1:], start=1):
        other = time(tile)
        if isinstance(other, np.ndarray):
            better = (other < least).view(np.int8) * np.int8(index)
            np.maximum(best, better, out=best)  # a later tile has the higher index
            np.minimum(least, other, out=least)
        elif other < least:
            least, best = other, index
    return best, least


class Loads(NamedTuple):
    """What one tile asks of the resources.

    Attributes
    ----------
    waves, busy : blocks an SM, and those that an SM has time for, with idle SMs in the last wave.
    block_s : the arithmetic of one block without filling and draining it [s].
    math_s, l2_s : what arithmetic and L2 alone would take [s].
    """

    waves: Any
    busy: Any
    block_s: Any
    math_s: Any
    l2_s: Any


def _loads(sizes: Sizes, r: Rates, tile: Tile, blocks: Number, depth: Depth, gathered: Number | None = None) -> Loads:
    """Return what a tile asks of the resources: numbers for one product and tile, else arrays of products or tiles.

    The parts of k that are ``gathered`` are written and read again in fp32.
    """
    waves = blocks * (1.0 / r.sm_count)
    busy = ceil(waves)
    busy *= r.c["quantum"]
    busy += (1.0 - r.c["quantum"]) * waves
    busy = maximum(busy, tile.least)
    block_s = tile.block_s * depth.steps
    filled_s = block_s + tile.fill_s
    math_s = maximum(busy * filled_s, filled_s + depth.waiting_s)
    if sizes.slowed is not None:
        math_s = math_s * sizes.slowed
    l2_s = blocks * tile.sides * depth.fed_s
    if gathered is not None:
        l2_s += gathered * (sizes.outputs * (8.0 / r.l2_bandwidth))
    return Loads(waves, busy, block_s, math_s, l2_s)


def _power_of_time(sizes: Sizes, r: Rates, tile: Tile, loads: Loads, hbm: Number) -> Any:
    """Return the fourth power of the time, which orders tiles as the time does; infinite where a tile is not for m."""
    time = maximum(loads.math_s, sizes.power)
    time = time * time
    time *= time
    time += hbm
    time += _fourth_power(loads.l2_s)
    return where((sizes.m > tile.above) & (sizes.m <= tile.up_to), time, np.inf) if r.by_rows else time


def _time_of(sizes: Sizes, r: Rates, tile: Tile, split: Any, loads: Loads) -> ProductTime:
    """Return the time of one tile and split for each product, taken apart."""
    math_s, l2_s = loads.math_s, loads.l2_s
    limited = maximum(math_s, sizes.power)
    outside = maximum(sizes.hbm, l2_s)
    body = _fourth_power(limited) + _fourth_power(sizes.hbm) + _fourth_power(l2_s)
    on_math: Any = limited >= outside
    on_hbm: Any = (sizes.hbm >= l2_s) & (on_math ^ True)
    ideal = sizes.flop / (tile.speed * r.sm_count)
    full = loads.waves * loads.block_s
    busy_s = loads.busy * loads.block_s
    widening: Number = 0.0
    if r.widens:
        widening = full * (tile.widening_s / tile.block_s) * on_math
    return ProductTime(
        math=ideal * on_math,
        tile_waste=(full - ideal) * on_math - widening,
        pipeline=(math_s - busy_s) * on_math,
        waves=(busy_s - full) * on_math,
        power=(limited - math_s) * on_math,
        hbm=sizes.hbm * on_hbm,
        l2=l2_s * ((on_math | on_hbm) ^ True),
        contention=_fourth_root(body) - maximum(limited, outside),
        split_k=split * r.c["split"],
        math_alone=limited,
        hbm_alone=sizes.hbm,
        l2_alone=l2_s,
        dequantisation=widening,
    )


def is_fp32(machine: Machine) -> bool:
    """Return whether products run on the vector engine, or on matrix cores that act like one in fp32 and fp64."""
    return machine.engine == "vector" or machine.dtype in ("fp32", "fp64")


def launch_s(machine: Machine, c: Values) -> float:
    """Return the time to start and drain a kernel [s]: in clocks on the tensor engine, else as it is.

    A convolution brings the launch of its own family.
    """
    return c["launch"] if "launch" in c else c["start"] / machine.clock_hz


def resident_speed(machine: Machine, c: Values) -> float:
    """Return how much faster data in L2 are than those of device memory: a share of L2's 64 B a clock adds to it.

    >>> of = Machine(100.0, 1e9, 1e14, "tensor", "bf16", 1e13, 1e12, 5e7, 400.0)
    >>> round(resident_speed(of, {"resident": 0.05}), 6)  # 0.05 x 64 B x 100 x 1 GHz = 0.32 TB/s beside 1 TB/s
    1.32
    """
    l2 = L2_BYTES_PER_CLOCK * machine.sm_count * machine.clock_hz
    return 1.0 + c["resident"] * l2 / machine.bandwidth_bytes_per_s


def rates_of(product: Product, machine: Machine, c: Values, conditions: Conditions, batched: bool) -> Rates:
    """Return the rates of a machine and its constants; computing them takes a tenth of a single call, so they are kept.

    The sizes of the product do not matter, only those of its elements.
    """
    element = (product.input_bytes, product.output_bytes, product.weight_bytes, product.tiles)
    key = (Rates, element, tuple(c), tuple(c.values()), conditions.cache, conditions.library, conditions.load, batched)
    rates: Rates | None = machine.cache.get(key)
    if rates is None:
        if len(machine.cache) >= _MOST_RATES:
            machine.cache.clear()
        rates = machine.cache[key] = Rates(product, machine, c, conditions, batched)
    return rates


class Rates:
    """One machine and one set of constants as the formula needs them.

    Attributes
    ----------
    c : all constants.
    product : one with elements of the right size.
    sm_count, bandwidth, l2_bytes, l2_bandwidth : of the machine; the bandwidths are the reachable ones [B/s].
    copies : sets of weights that take turns; 0 where the caches are cold.
    resident_speed : speed of data in L2 over that of device memory.
    s_per_flop : time of a FLOP at the power limit [s].
    columns, tiles : what the formula needs of the tiles, as arrays and tile by tile.
    by_rows : whether each tile is for some rows of the product only.
    widens : whether weights are widened.
    walk : time that addresses out of reach add, over that of the arithmetic.
    channel : time that rows in one channel of memory add, over that of the arithmetic.
    ragged : energy of the arithmetic where a size is no multiple of a cache line, over that where all are.
    ragged_math : whether its time grows as much: not in batches, whose kernels check their bounds anyway.
    whole_wave : outputs that the largest tiles compute in ``1 / SPLIT_WAVES`` waves: larger products are not split.
    """

    def __init__(self, product: Product, machine: Machine, c: Values, conditions: Conditions, batched: bool):
        fp32 = is_fp32(machine)
        by_rows = () if product.tiles else tiles_by_rows(machine, conditions.library)
        self.c = c = {**(_VECTOR if fp32 else _TENSOR), **(_ONE_TILE if by_rows else {}), **c}
        self.product = product
        self.sm_count = machine.sm_count
        self.bandwidth = c["eta"] * machine.bandwidth_bytes_per_s
        self.l2_bytes = machine.l2_bytes
        self.copies = {CacheState.WARM: 1.0, CacheState.ROTATING: ROTATING_COPIES}.get(conditions.cache, 0.0)
        (self._set_vector if fp32 else self._set_tensor)(machine, conditions.load)
        self.by_rows = bool(by_rows)
        tiles = product.tiles or tuple(tile[:2] for tile in by_rows) or tiles_of(machine, batched)
        rows, columns = np.array(tiles, np.float64).T
        area, edge = rows * columns, 64.0 * (1.0 / rows + 1.0 / columns)
        share = c["math"] * (1.0 if batched else c["linear"])
        if machine.engine == "vector" and machine.flop_per_clock_per_sm > 3.0 * FED_LANES:
            share *= FEED
        loss = (1.0 + c["tile"] * edge) / (1.0 + c["tile"] * edge.min())
        # What tiles lose is the feeding of the engine: one that computes at half rate is fed in time.
        fed = machine.slack * share / loss
        speed = np.minimum(1.0, fed) * machine.peak_flop_per_s / machine.sm_count
        block_s = 2.0 * area / speed
        self.widens = "dequant" in c
        # Each block widens the weights of its columns, on the lanes for integers beside the tensor engine.
        widening_s = (c["dequant"] if self.widens else 0.0) * columns / (INTEGER_LANES * machine.clock_hz)
        block_s = block_s + widening_s
        up_to = np.array([most for *_, most in by_rows] or [np.inf] * len(tiles))
        self.columns = Tile(
            per_row=1.0 / rows,
            per_column=1.0 / columns,
            sides=rows + columns * (product.b_bytes / product.input_bytes),
            speed=speed,
            block_s=block_s,
            fill_s=block_s * (np.minimum(1.0, fed) / fed * c["fill"]) * product.output_bytes / product.input_bytes,
            widening_s=widening_s,
            least=np.maximum(1.0, c["depth"] / area),
            above=np.array([0.0, *up_to[:-1]]),
            up_to=up_to,
        )
        self.tiles = [Tile(*tile) for tile in zip(*(column.tolist() for column in self.columns), strict=True)]
        # Not seen in batches, whose measured operands are within reach.
        self.walk = 0.0 if batched or not fp32 else machine.kernels.translation_cost
        self.channel = 0.0 if batched or not fp32 else machine.kernels.channel_cost
        self.ragged = c["ragged"]
        self.ragged_math = not batched and self.ragged != 1.0
        split = not by_rows and not (batched and fp32) and c["parts"] > 1.0
        self.whole_wave = 0.5 * SPLIT_WAVES * machine.sm_count * area.max() if split else 0.0

    def _set_vector(self, machine: Machine, load: Load) -> None:
        """Set what L2 and power allow on the vector engine."""
        self.resident_speed = self.c["resident_speed"]
        self.l2_bandwidth = self.c["l2"] * machine.sm_count * L2_BYTES_PER_CLOCK * machine.clock_hz
        self.s_per_flop = s_per_flop(machine, self.c["energy"], load)

    def _set_tensor(self, machine: Machine, load: Load) -> None:
        """Set what L2 and power allow on the tensor engine, in units that machines of all generations share.

        L2 is built for the tensor cores, so that its bandwidth goes with the peak; kernels start in clocks. A FLOP of
        narrower numbers takes less energy in proportion to their bytes.
        """
        c, size = self.c, self.product.input_bytes
        self.resident_speed = resident_speed(machine, c)
        self.l2_bandwidth = c["l2"] * machine.slack * machine.peak_flop_per_s * size / 64.0
        self.s_per_flop = s_per_flop(machine, c["energy"] * 0.5 * size, load)


class Tile(NamedTuple):
    """What the formula needs of a tile: numbers, or arrays of all tiles, or of the tile that each product has.

    Attributes
    ----------
    per_row, per_column, sides : 1 / tm, 1 / tn and tm + tn; a column counts as many rows as it has bytes.
    speed : rate of one SM [FLOP/s].
    block_s, fill_s : time of one block for one step of k, and for filling and draining it [s].
    widening_s : the part of ``block_s`` that widens weights [s].
    least : blocks that keep an SM busy.
    above, up_to : rows of the product that it is for, in libraries that choose by them: more than ``above``, at most
        ``up_to``.
    """

    per_row: Any
    per_column: Any
    sides: Any
    speed: Any
    block_s: Any
    fill_s: Any
    widening_s: Any
    least: Any
    above: Any
    up_to: Any


class Depth(NamedTuple):
    """What follows from the length of k that a block works through.

    Attributes
    ----------
    steps : the length in whole steps.
    waiting_s : latency of the steps that no other block hides [s].
    fed_s : time in which L2 delivers one row of it [s].
    """

    steps: Any
    waiting_s: Any
    fed_s: Any

    @classmethod
    def of(cls, k: Number, r: Rates) -> Depth:
        """Return what follows from a length."""
        steps = ceil(k * (1.0 / r.c["step"])) * r.c["step"]
        return cls(steps, k * (r.c["latency"] / 64.0), k * (r.product.input_bytes / r.l2_bandwidth))


class Sizes:
    """The sizes of products, and what follows from them without the tile: arrays of one length, or numbers for one."""

    def __init__(self, m: Number, n: Number, k: Number, batch: Number, rates: Rates):
        self.m, self.n, self.k, self.batch = m, n, k, batch
        self.outputs = batch * m * n
        self.flop = 2.0 * self.outputs * k
        self.hbm = self._traffic(rates) / rates.bandwidth
        self.power = rates.s_per_flop * self.flop
        self.slowed: Number | None = None
        if rates.walk:
            self._slow(self._walks(rates))
        if rates.channel:
            self._slow(self._crowd(rates))
        if rates.ragged != 1.0:
            ragged = where(self._off_lines(), rates.ragged, 1.0)
            self.power = self.power * ragged
            if rates.ragged_math:
                self._slow(ragged)

    def _slow(self, factor: Number) -> None:
        """Let the arithmetic take longer by a factor."""
        self.slowed = factor if self.slowed is None else self.slowed * factor

    def _off_lines(self) -> Any:
        """Return whether a size is no multiple of a cache line; a remainder takes numpy five times as long."""
        m, n, k = (size * (1.0 / WHOLE_LINES) for size in (self.m, self.n, self.k))
        return (ceil(m) != m) | (ceil(n) != n) | (ceil(k) != k)

    def at(self, places: NDArray[np.intp]) -> Sizes:
        """Return the sizes of some of the products."""
        part = object.__new__(type(self))
        for name, value in vars(self).items():
            setattr(part, name, value[places] if isinstance(value, np.ndarray) else value)
        return part

    def blocks(self, tile: Tile) -> Number:
        """Return the blocks that a tile makes of whole products."""
        blocks: Number = self.batch * ceil(self.m * tile.per_row) * ceil(self.n * tile.per_column)
        return blocks

    def _super_tile(self, r: Rates) -> tuple[Number, Number]:
        """Return the rows and columns that one wave of blocks works on: as square as the output lets it be."""
        area = r.sm_count * WAVE_OUTPUTS
        rows = minimum(self.m, area**0.5)
        return rows, minimum(self.n, area / rows)

    def _walks(self, r: Rates) -> Number:
        """Return the time with the addresses that translation does not reach, over that without.

        The rows of A and of the weights lie k elements apart, so that the operands of a wave spread over
        (rows + columns) k size bytes, however little of them it reads in a step.
        """
        rows, columns = self._super_tile(r)
        spread = r.product.input_bytes * self.k * (rows + columns)
        return 1.0 + r.walk * maximum(0.0, 1.0 - REACH_BYTES / spread)

    def _crowd(self, r: Rates) -> Number:
        """Return the time with rows that lie in few channels of memory, over that with rows in all of them.

        Channels take turns by addresses, so that rows which a large power of two of bytes separates share one: from
        `CHANNEL_BYTES` on the time grows with each doubling, to its whole at four times as much.
        """
        stride = np.asarray(self.k * r.product.input_bytes, dtype=np.int64)
        power = np.log2((stride & -stride) / CHANNEL_BYTES)
        crowd = 1.0 + r.channel * np.clip(power / 2.0, 0.0, 1.0)
        return crowd if crowd.ndim else float(crowd)

    def _traffic(self, r: Rates) -> Number:
        """Return the bytes that cross device memory; data in L2 count as the bytes that would take as long [B]."""
        one_a, one_b = r.product.input_bytes * self.m * self.k, r.product.b_bytes * self.n * self.k
        written = r.product.output_bytes * self.outputs
        rows, columns = self._super_tile(r)
        again = maximum(0.0, 1.0 - r.l2_bytes / (one_a + one_b))
        a = one_a * (1.0 + again * (maximum(1.0, self.n / columns) - 1.0))
        b = one_b * (1.0 + again * (maximum(1.0, self.m / rows) - 1.0))
        if r.c["stride"] != 1.0:
            # The rows of A are read in short pieces, each from another page of DRAM where k is long.
            a = a * (1.0 + (r.c["stride"] - 1.0) * minimum(1.0, self.k / PAGE_OF_K))
        read = self.batch * (a + b)
        if r.copies and r.l2_bytes:
            resident = self.batch * (one_a + r.copies * one_b) + written
            read = read * (1.0 - fitting_share(resident, r.l2_bytes) * (1.0 - 1.0 / r.resident_speed))
        return read + written

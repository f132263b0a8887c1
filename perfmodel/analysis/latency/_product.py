"""Matrix products: the fastest of some tiles and splits of k, each limited by arithmetic, device memory and L2.

For a tile of tm x tn outputs and a split of k in S parts, with w = batch ceil(m / tm) ceil(n / tn) S / SMs blocks
an SM, the resources take

- t_math = max(max(d, (1 - q) w + q ceil(w)) b, b + lambda k / (64 S), energy FLOP / power limit), with b the time of
  one block, b = 2 tm tn (k' + k0) / (e g P / SMs): k' is k / S in whole steps, k0 the fill of the pipeline, e the best
  tile's share of the peak P, g the loss of smaller tiles, d how many blocks of the tile keep an SM busy, q the share
  of the last wave's idle SMs that is lost, lambda the latency of a step that no other block hides;
- t_dram = traffic / (eta W): A, B and C once; the panels of A and B again for each wave-sized super-tile of the
  output as far as they exceed L2; what L2 holds is faster, or free;
- t_l2 = blocks (k / S) (tm + tn) size / (l SMs 64 B f).

The time is the least over tiles and splits of (t_math^4 + t_dram^4 + t_l2^4)^(1/4) + launch, and for a split the
reduction of the parts. A product is split only while that makes at most ``SPLIT_WAVES`` blocks an SM.

The structure follows what libraries do (cuBLAS kernel names; Huang et al. 2018, "Implementing Strassen's algorithm
with CUTLASS", section 2; NVIDIA, "Matrix multiplication background user's guide", on tile and wave quantisation); the
constants are fitted to the NeuSight (fp32) and aiconfigurator (16- and 8-bit) measurements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.analysis.latency._base import Machine, Terms, Values, View
from perfmodel.analysis.latency._tiles import Tiles, tiles_of
from perfmodel.core.work import Number

Floats = NDArray[np.float64]

#: resources overlap as the POWER-norm of their times; 4 is a square of a square, so that no logarithm is taken
POWER = 4
#: elements of the arrays that are worked on at once, candidates x rows: they stay in a core's cache
CHUNK = 16384
#: a split of k is tried that puts as many blocks on each SM, into so many parts at most
SPLIT_WAVES = 2.0
MOST_PARTS = 32.0
#: weights that a benchmark with rotating buffers keeps (aiconfigurator's collector: five copies)
ROTATING_COPIES = 5.0
#: outputs of a block of 128 x 128, of which every SM has one in a wave
WAVE_OUTPUTS = 128.0 * 128.0
#: elements of k that fill a page of DRAM (2 KiB of fp32)
PAGE_OF_K = 512.0
#: fp32 lanes of an SM above which shared memory (128 B a clock) does not feed them: an 8 x 8 outer product in registers
#: loads 16 numbers for 64 fused multiply-adds, and at 128 lanes that is as long as the arithmetic
FED_LANES, FEED = 64.0, 0.88


@dataclass(frozen=True)
class Product:
    """``batch`` products C[m, n] = A[m, k] B[k, n], and the size of an element of inputs and outputs [B]."""

    m: Number
    n: Number
    k: Number
    batch: Number
    input_bytes: float
    output_bytes: float


#: what all machines share; a family's constants override it
_VECTOR: Values = {
    "step": 8.0,  # k of one stage of shared memory
    "depth": 5760.0,  # outputs in flight that keep an SM busy: 90 for each of 64 lanes
    "quantum": 0.9,
    "latency": 0.0,
    "l2": 0.8,
    "kappa": np.inf,
}
_TENSOR: Values = {
    "step": 64.0,
    "depth": 0.0,
    "quantum": 0.4,
    "latency": 40e-9,
    "tile": 0.25,
    "linear": 1.0,
    "stride": 1.0,
}


#: what the time is made of, in the order of reading, and the resources alone
_ADDS = ("math", "tile waste", "pipeline", "wave quantisation", "power", "dram", "l2", "contention", "split-k")
_ALONE = ("math", "dram", "l2")


def product_terms(product: Product, machine: Machine, c: Values, view: View) -> Terms:
    """Return the terms of matrix products: the time of the fastest tile and split [s].

    Sizes of one shape, or of shapes that broadcast; the terms have it. Products in a batch (batch > 1) have the
    tiles of the library's batched kernels, and fp32 ones are not split. Memory beside the result stays below some MB.

    Parameters
    ----------
    product : sizes.
    machine, view : where, and what its caches hold.
    c : the constants of one of this module's families.
    """
    given = (product.m, product.n, product.k, product.batch)
    arrays = [np.shape(size) for size in given if np.ndim(size)]
    shape = np.broadcast_shapes(*arrays) if arrays else ()
    sizes = np.empty((len(given), math.prod(shape)))
    for row, size in zip(sizes, given, strict=True):
        row[:] = size if np.ndim(size) == 0 else np.broadcast_to(size, shape).reshape(-1)
    out = np.empty((len(_ADDS) + len(_ALONE), sizes.shape[1]))
    rates = {batched: _rates(product, machine, c, view, batched) for batched in _kinds(sizes[3])}
    for batched, split, chosen in _chunks(sizes, rates):
        out[:, chosen] = _fastest(_Rows(sizes[:, chosen], rates[batched]), rates[batched], split)
    made = [row.reshape(shape) for row in out]
    adds = dict(zip(_ADDS, made, strict=False))
    return Terms({**adds, "launch": c["launch"]}, dict(zip(_ALONE, made[len(_ADDS) :], strict=True)))


def is_fp32(machine: Machine) -> bool:
    """Return whether products run on the vector engine, or on matrix cores that act like one in fp32 and fp64."""
    return machine.engine == "vector" or machine.dtype in ("fp32", "fp64")


def _chunks(sizes: Floats, rates: Mapping[bool, _Rates]) -> Iterator[tuple[bool, bool, slice | NDArray[np.intp]]]:
    """Yield (in a batch, may be split, rows), a cache-sized number of rows at a time."""
    m, n, _, batch = sizes
    for batched, r in rates.items():
        rows = max(1, CHUNK // r.speed.size)
        small = m * n * batch <= r.whole_wave
        for split in (False, True):
            wanted = small == split if len(rates) == 1 else (small == split) & ((batch > 1.0) == batched)
            if not wanted.any():
                continue
            index = np.flatnonzero(wanted)
            for start in range(0, index.size, rows):
                part = index[start : start + rows]
                yield batched, split, slice(start, start + rows) if index.size == batch.size else part


@lru_cache(maxsize=64)
def _columns(tiles: Tiles) -> tuple[Floats, ...]:
    """Return what the formula needs of some tiles, as columns: 1 / tm, 1 / tn, tm + tn, tm tn, 64 (1 / tm + 1 / tn)."""
    tm, tn = np.array(tiles, np.float64).T[:, :, None]
    return 1.0 / tm, 1.0 / tn, tm + tn, tm * tn, 64.0 * (1.0 / tm + 1.0 / tn)


def _kinds(batch: Floats) -> tuple[bool, ...]:
    """Return whether there are products outside of a batch, and in one."""
    inside = batch > 1.0
    return (False,) if not inside.any() else (True,) if inside.all() else (False, True)


def _rates(product: Product, machine: Machine, c: Values, view: View, batched: bool) -> _Rates:
    """Return the rates, made once for a machine and its constants: they take a tenth of a single call."""
    sizes = (product.input_bytes, product.output_bytes)
    same = tuple(value for name, value in vars(machine).items() if name != "links")
    return _made(sizes, same, tuple(c.items()), view.cache, batched)


@lru_cache(maxsize=64)
def _made(
    sizes: tuple[float, float], machine: tuple[Any, ...], c: tuple[Any, ...], cache: str, batched: bool
) -> _Rates:
    return _Rates(Product(0.0, 0.0, 0.0, 0.0, *sizes), Machine(*machine), dict(c), View(cache=cache), batched)


class _Rates:
    """One machine and one set of constants as the formula needs them; what depends on the tile is a column."""

    def __init__(self, product: Product, machine: Machine, c: Values, view: View, batched: bool):
        fp32 = is_fp32(machine)
        self.c = c = {**(_VECTOR if fp32 else _TENSOR), **c}
        self.product = product
        self.sm_count = machine.sm_count
        self.bandwidth = c["eta"] * machine.bandwidth_bytes_per_s
        self.l2_bandwidth = c["l2"] * machine.sm_count * 64.0 * machine.clock_hz
        self.l2_bytes = machine.l2_bytes
        self.copies = {"warm": 1.0, "rotating": ROTATING_COPIES}.get(view.cache, 0.0)
        self.s_per_flop = c["energy"] / machine.tdp_w
        self.per_row, self.per_column, self.sides, area, edge = _columns(tiles_of(machine, batched))
        share = c["math"] * (1.0 if batched else c["linear"])
        if machine.engine == "vector" and machine.flop_per_clock_per_sm > 3.0 * FED_LANES:
            share *= FEED
        loss = (1.0 + c["tile"] * edge) / (1.0 + c["tile"] * edge.min())
        #: rate of one SM [FLOP/s], and the time of one block for one step of k [s]
        self.speed = share * machine.peak_flop_per_s / machine.sm_count / loss
        self.block_s = 2.0 * area / self.speed
        self.least = np.maximum(1.0, c["depth"] / area)
        #: outputs that the largest tiles make in ``1 / SPLIT_WAVES`` waves: more than these are not split
        self.whole_wave = 0.0 if batched and fp32 else 0.5 * SPLIT_WAVES * machine.sm_count * area.max()


class _Rows:
    """Some of the products, with what does not depend on the tile; arrays of one length."""

    def __init__(self, sizes: Floats, rates: _Rates):
        self.m, self.n, self.k, self.batch = sizes
        self.outputs = self.batch * self.m * self.n
        self.flop = 2.0 * self.outputs * self.k
        self.dram = self._traffic(rates) / rates.bandwidth
        self.power = rates.s_per_flop * self.flop

    def _traffic(self, r: _Rates) -> Floats:
        """Return the bytes that cross device memory; of those that L2 holds, the share that takes as long [B]."""
        one_a, one_b = r.product.input_bytes * self.m * self.k, r.product.input_bytes * self.n * self.k
        written = r.product.output_bytes * self.outputs
        # One wave of blocks works on a super-tile, as square as the output lets it be.
        area = r.sm_count * WAVE_OUTPUTS
        rows = np.minimum(self.m, area**0.5)
        columns = np.minimum(self.n, area / rows)
        again = np.maximum(0.0, 1.0 - r.l2_bytes / (one_a + one_b))
        a = one_a * (1.0 + again * (np.maximum(1.0, self.n / columns) - 1.0))
        b = one_b * (1.0 + again * (np.maximum(1.0, self.m / rows) - 1.0))
        if r.c["stride"] != 1.0:
            # The rows of A are read in short pieces, each from another page of DRAM where k is long.
            a = a * (1.0 + (r.c["stride"] - 1.0) * np.minimum(1.0, self.k / PAGE_OF_K))
        read = self.batch * (a + b)
        if r.copies and r.l2_bytes:
            resident = self.batch * (one_a + r.copies * one_b) + written
            held = np.clip((1.15 * r.l2_bytes - resident) / (0.2 * r.l2_bytes), 0.0, 1.0)
            read = read * (1.0 - held * (1.0 - 1.0 / r.c["kappa"]))
        traffic: Floats = read + written
        return traffic


def _fastest(rows: _Rows, r: _Rates, split: bool) -> Floats:
    """Return the terms of the fastest tile and split of each row, in the order of _ADDS and _ALONE."""
    c, parts, part = r.c, np.ones((1, 1)), rows.k
    blocks = rows.batch * np.ceil(rows.m * r.per_row) * np.ceil(rows.n * r.per_column)
    if split:
        most = np.floor(SPLIT_WAVES * r.sm_count / blocks)
        parts = np.stack([np.ones(blocks.shape), np.minimum(np.maximum(most, 1.0), MOST_PARTS)])
        blocks, part = blocks * parts, rows.k / parts
    waves = blocks * (1.0 / r.sm_count)
    busy = np.maximum(r.least, (1.0 - c["quantum"]) * waves + c["quantum"] * np.ceil(waves))
    steps = np.ceil(part * (1.0 / c["step"])) * c["step"]
    block = r.block_s * (steps + c["fill"])
    math_s = np.maximum(busy * block, block + part * (c["latency"] / 64.0))
    l2_s = blocks * r.sides * (part * (r.product.input_bytes / r.l2_bandwidth))
    if split:
        # The parts are written and read again in fp32.
        l2_s = l2_s + (parts > 1.0) * parts * (rows.outputs * (8.0 / r.l2_bandwidth))
    body = (np.maximum(math_s, rows.power) ** 2) ** 2 + (rows.dram**2) ** 2 + (l2_s**2) ** 2
    time = np.sqrt(np.sqrt(body)) + (parts > 1.0) * c["split"] if split else body
    best = np.argmin(time.reshape(-1, rows.k.size), axis=0)

    where = best, np.arange(best.size)
    one = parts.reshape(-1, best.size)[where] if split else parts[0]
    picked = (x.reshape(-1, best.size)[where] for x in (waves, busy, math_s, l2_s))
    return _told(rows, r, best % r.speed.size, one, *picked)


def _told(
    rows: _Rows, r: _Rates, tile: NDArray[np.intp], parts: Floats, waves: Floats, busy: Floats, math_s: Floats,
    l2_s: Floats,
) -> Floats:  # fmt: skip
    """Return the terms of one candidate for each row."""
    limited = np.maximum(math_s, rows.power)
    outside = np.maximum(rows.dram, l2_s)
    largest = np.maximum(limited, outside)
    body = (limited**2) ** 2 + (rows.dram**2) ** 2 + (l2_s**2) ** 2
    on_math = limited >= outside
    on_dram = (rows.dram >= l2_s) & ~on_math
    ideal = rows.flop / (r.speed[tile, 0] * r.sm_count)
    block = r.block_s[tile, 0] * (np.ceil(rows.k / parts * (1.0 / r.c["step"])) * r.c["step"])
    full = waves * block
    told = np.empty((len(_ADDS) + len(_ALONE), rows.k.size))
    told[0] = ideal
    told[1] = full - ideal
    told[2] = math_s - busy * block
    told[3] = busy * block - full
    told[4] = limited - math_s
    told[:5] *= on_math
    told[5] = rows.dram * on_dram
    told[6] = l2_s * ~(on_math | on_dram)
    told[7] = np.sqrt(np.sqrt(body)) - largest
    told[8] = (parts > 1.0) * r.c["split"]
    told[9], told[10], told[11] = limited, rows.dram, l2_s
    return told

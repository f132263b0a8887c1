"""Matrix products: the fastest of some tiles and splits of k, each limited by arithmetic, device memory and L2.

For a tile of tm x tn outputs and a split of k in S parts, with w = batch ceil(m / tm) ceil(n / tn) S / SMs blocks
an SM, the resources take

- t_math = max(max(d, (1 - q) w + q ceil(w)) b, b + lambda k / (64 S), FLOP / power-limited rate), with b the time of
  one block, b = 2 tm tn (k' + k0) / (e g P / SMs): k' is k / S in whole steps, k0 the fill of the pipeline (longer
  where outputs are wider than inputs), e the best tile's share of the peak P, g the loss of smaller tiles, d how many
  blocks of the tile keep an SM busy, q the share of the last wave's idle SMs that is lost, lambda the latency of a step
  that no other block hides;
- t_dram = traffic / (eta W): A, B and C once; the panels of A and B again for each wave-sized super-tile of the
  output as far as they exceed L2; what L2 holds is faster, or free;
- t_l2 = blocks (k / S) (tm + tn) size / B2, with B2 = l SMs 64 B f on the vector engine, and l P size / 64 on the
  tensor engine, where l = 1 feeds tiles of 64 x 64 at the peak P.

The time is the least over tiles and splits of (t_math^4 + t_dram^4 + t_l2^4)^(1/4) + launch, and for a split the
reduction of the parts. A product is split only while that makes at most ``SPLIT_WAVES`` blocks an SM. Where a library
chooses its tile by the rows m (`_tiles.BY_ROWS`), that one is taken, and nothing is split.

The structure follows what libraries do (cuBLAS kernel names; Huang et al. 2018, "Implementing Strassen's algorithm
with CUTLASS", section 2; NVIDIA, "Matrix multiplication background user's guide", on tile and wave quantisation); the
constants are fitted to the NeuSight (fp32) and aiconfigurator (16- and 8-bit) measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.work import Number, maximum
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Terms, Values
from perfmodel.prediction.latency.gemm.rates import SPLIT_WAVES, Floats, Product, Rates, Rows, launch_s, rates_of
from perfmodel.prediction.latency.machine import Machine

#: resources overlap as the POWER-norm of their times; 4 is a square of a square, so that no logarithm is taken
POWER = 4
#: elements of the arrays that are worked on at once, candidates x rows: they stay in a core's cache
CHUNK = 16384
#: a split of k makes at most so many parts
MOST_PARTS = 32.0
#: what the time is made of, in the order of reading, and the resources alone
_ADDS = ("math", "tile waste", "pipeline", "wave quantisation", "power", "dram", "l2", "contention", "split-k")
_ALONE = ("math", "dram", "l2")


def product_terms(product: Product, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of matrix products: the time of the fastest tile and split [s].

    Sizes of one shape, or of shapes that broadcast; the terms have it. Products in a batch (batch > 1) have the
    tiles of the library's batched kernels, and fp32 ones are not split. Memory beside the result stays below some MB.

    Parameters
    ----------
    product : sizes.
    machine, conditions : where, and what its caches hold.
    c : the constants of one of this module's families.
    """
    given = (product.m, product.n, product.k, product.batch)
    if all(isinstance(size, (int, float)) for size in given):
        told = _single(tuple(map(float, given)), product, machine, c, conditions)
    else:
        told = _many(given, product, machine, c, conditions)
    adds = dict(zip(_ADDS, told, strict=False))
    adds["launch"] = launch_s(machine, c)
    return Terms(adds, dict(zip(_ALONE, told[len(_ADDS) :], strict=True)))


def _single(
    sizes: tuple[float, ...], product: Product, machine: Machine, c: Values, conditions: Conditions
) -> Sequence[Number]:
    """Return the terms of one product, in the order of _ADDS and _ALONE."""
    m, n, _, batch = sizes
    rates = rates_of(product, machine, c, conditions, batch > 1.0)
    return _fastest(Rows(sizes, rates), rates, split=m * n * batch <= rates.whole_wave)


def _many(
    given: tuple[Number, ...], product: Product, machine: Machine, c: Values, conditions: Conditions
) -> Sequence[Number]:
    """Return the terms of products of shapes that broadcast, in the order of _ADDS and _ALONE."""
    shape = np.broadcast_shapes(*(np.shape(size) for size in given))
    sizes = np.empty((len(given), math.prod(shape)))
    for row, size in zip(sizes, given, strict=True):
        row[:] = size if np.ndim(size) == 0 else np.broadcast_to(size, shape).reshape(-1)
    out = np.empty((len(_ADDS) + len(_ALONE), sizes.shape[1]))
    rates = {batched: rates_of(product, machine, c, conditions, batched) for batched in _kinds(sizes[3])}
    for batched, split, chosen in _chunks(sizes, rates):
        told = _fastest(Rows(tuple(sizes[:, chosen]), rates[batched]), rates[batched], split)
        for row, values in zip(out, told, strict=True):
            row[chosen] = values
    return [row.reshape(shape) for row in out]


def _chunks(sizes: Floats, rates: Mapping[bool, Rates]) -> Iterator[tuple[bool, bool, slice | NDArray[np.intp]]]:
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


def _kinds(batch: Floats) -> tuple[bool, ...]:
    """Return whether there are products outside of a batch, and in one."""
    inside = batch > 1.0
    return (False,) if not inside.any() else (True,) if inside.all() else (False, True)


def _fastest(rows: Rows, r: Rates, split: bool) -> Sequence[Number]:
    """Return the terms of the fastest tile and split of each row, in the order of _ADDS and _ALONE."""
    # Arrays of tiles x rows, or of (whole, in parts) x tiles x rows; worked on in place, so that they stay in a cache.
    c, part = r.c, rows.k
    blocks = rows.batch * np.ceil(rows.m * r.per_row)
    blocks *= np.ceil(rows.n * r.per_column)
    if split:
        parts = np.ones((2, *blocks.shape))
        np.clip(np.floor(SPLIT_WAVES * r.sm_count / blocks), 1.0, MOST_PARTS, out=parts[1])
        blocks, part = blocks * parts, rows.k / parts
    waves = blocks * (1.0 / r.sm_count)
    busy = np.ceil(waves)
    busy *= c["quantum"]
    busy += (1.0 - c["quantum"]) * waves
    np.maximum(busy, r.least, out=busy)
    block = r.block_s * (np.ceil(part * (1.0 / c["step"])) * c["step"]) + r.fill_s
    math_s = busy * block
    block += part * (c["latency"] / 64.0)
    np.maximum(math_s, block, out=math_s)
    l2_s = blocks
    l2_s *= r.sides
    l2_s *= part * (r.product.input_bytes / r.l2_bandwidth)
    if split:
        # The parts are written and read again in fp32. A product in one part that pays for it, too, is never taken.
        l2_s[1] += parts[1] * (rows.outputs * (8.0 / r.l2_bandwidth))
    time = np.maximum(math_s, rows.power)
    time **= 2
    time **= 2
    time += (rows.dram**2) ** 2
    time += (l2_s**2) ** 2
    if split:
        time = np.sqrt(np.sqrt(time))
        time[1] += c["split"]
    if r.up_to.size:
        time[(rows.m <= r.above) | (rows.m > r.up_to)] = np.inf
    best, pick = _least(time, rows.k)
    return _told(rows, r, best % r.speed.size, pick(parts) if split else 1.0, *map(pick, (waves, busy, math_s, l2_s)))


def _least(time: Floats, like: Number) -> tuple[Any, Callable[[Floats], Any]]:
    """Return the index of the least time among the candidates of each row, and a function that picks values there.

    Plain numbers for a product that is ``like`` one: arrays of one element are as slow as those of a thousand.
    """
    if not isinstance(like, np.ndarray):
        first = int(time.argmin())
        return first, lambda values: values.item(first)
    best = np.argmin(time.reshape(-1, like.size), axis=0)
    place = best, np.arange(best.size)
    return best, lambda values: values.reshape(-1, best.size)[place]


def _told(
    rows: Rows, r: Rates, tile: Any, parts: Number, waves: Number, busy: Number, math_s: Number, l2_s: Number
) -> tuple[Any, ...]:
    """Return the terms of one candidate for each row."""
    limited = maximum(math_s, rows.power)
    outside = maximum(rows.dram, l2_s)
    body = (limited**2) ** 2 + (rows.dram**2) ** 2 + (l2_s**2) ** 2
    on_math = limited >= outside
    on_dram = (rows.dram >= l2_s) & (on_math ^ True)
    ideal = rows.flop / (r.speed[tile, 0] * r.sm_count)
    block = r.block_s[tile, 0] * (np.ceil(rows.k / parts * (1.0 / r.c["step"])) * r.c["step"])
    full = waves * block
    return (
        ideal * on_math,
        (full - ideal) * on_math,
        (math_s - busy * block) * on_math,
        (busy * block - full) * on_math,
        (limited - math_s) * on_math,
        rows.dram * on_dram,
        l2_s * ((on_math | on_dram) ^ True),
        (body**0.5) ** 0.5 - maximum(limited, outside),
        (parts > 1.0) * r.c["split"],
        limited,
        rows.dram,
        l2_s,
    )

"""Matrix products: the fastest of some tiles and splits of k, each limited by arithmetic, device memory and L2.

For a tile of tm x tn outputs and a split of k in S parts, with w = batch ceil(m / tm) ceil(n / tn) S / SMs blocks
an SM, the resources take

- t_math = max(max(d, (1 - q) w + q ceil(w)) b, b + lambda k / (64 S), FLOP / power-limited rate), with b the time of
  one block, b = 2 tm tn (k' + k0) / (e g P / SMs): k' is k / S in whole steps, k0 the fill of the pipeline (longer
  where outputs are wider than inputs), e the best tile's share of the peak P, g the loss of smaller tiles, d how many
  blocks of the tile keep an SM busy, q the share of the last wave's idle SMs that is lost, lambda the latency of a step
  that no other block hides; it is longer where address translation does not reach a wave's operands
  (``translation_cost`` of the machine's kernels), where weights are read again for each row of tiles
  (``reread_cost``), where rows lie in one channel (``channel_cost``), in batches of small products
  (``small_batch_cost``, ``ragged_batch_cost``), and where two sizes are no multiples of a cache line and threads
  check the bounds of what they load (``BOUNDS``), which takes energy, too (``ragged``);
- t_hbm = traffic / (eta W): A, B and C once; the panels of A and B again for each wave-sized super-tile of the
  output as far as they exceed L2; the part that L2 holds is faster, or free;
- t_l2 = blocks (k / S) (tm a + tn b) / B2, a and b the sizes of an element of A and B, with B2 = l SMs 64 B f on the
  vector engine, and l P a / 64 on the tensor engine, where l = 1 feeds tiles of 64 x 64 at the peak P.

The time is the least over tiles and splits of (t_math^4 + t_hbm^4 + t_l2^4)^(1/4) + launch, and for a split the
reduction of the parts. A product is split only while that makes at most ``SPLIT_WAVES`` blocks an SM, and in two
where fewer do not keep it busy. Where a library chooses its tile by the rows m (`tiles_by_rows`), that tile is taken,
and nothing is split.

The structure follows what libraries do (cuBLAS kernel names; Huang et al. 2018, "Implementing Strassen's algorithm
with CUTLASS", section 2; NVIDIA, "Matrix multiplication background user's guide", on tile and wave quantisation); the
constants are fitted to the NeuSight (fp32) and aiconfigurator (16- and 8-bit) measurements.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.work import Number, anywhere, maximum
from perfmodel.operators.gemm import Gemm
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Values
from perfmodel.prediction.latency.gemm.rates import Product, Rates, launch_s, rates_of
from perfmodel.prediction.latency.gemm.sizes import Counts, Sizes, fourth_power
from perfmodel.prediction.latency.gemm.tiles import Tile
from perfmodel.prediction.latency.gemm.times import (
    ProductTime,
    fourth_root,
    gathered,
    power_of_time,
    time_of,
)
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import Terms

#: products that are worked on at once: their arrays stay in a core's cache
CHUNK = 32768
#: more than rounding takes off a least time
_ABOVE = 1.0 - 1e-9
_PLAIN, _ARRAY = {int, float, np.float64}, np.ndarray
#: places of some products among all
Places = slice | NDArray[np.intp]
Result = TypeVar("Result")


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
    parts = _of_each(product, functools.partial(rates_of, product, machine, c, conditions), _fastest)
    time = parts if isinstance(parts, ProductTime) else ProductTime.gathered(*parts)
    return time.terms(launch_s(machine, c))


def product_s(product: Product | Gemm, rates: Callable[[bool], Rates]) -> Number:
    """Return what the terms of `product_terms` add up to without the launch [s], in half of the time.

    Parameters
    ----------
    product : sizes.
    rates : of single products, and of those in a batch, if that is true.
    """
    parts = _of_each(product, rates, _least)
    time: Number = gathered(*parts) if isinstance(parts, tuple) else parts
    return time


def _of_each(
    product: Product | Gemm,
    rates: Callable[[bool], Rates],
    function: Callable[[Number, Number, Number, Number, Rates], Result],
) -> Result | tuple[Iterator[tuple[Places, Result]], tuple[int, ...]]:
    """Return a function of one product, or those of a cache-sized number of products at a time, and their shape."""
    m, n, k, batch = sizes = (product.m, product.n, product.k, product.batch)
    if type(m) in _PLAIN and type(n) in _PLAIN and type(k) in _PLAIN and type(batch) in _PLAIN:
        return function(float(m), float(n), float(k), float(batch), rates(bool(batch > 1.0)))
    shape = np.broadcast_shapes(*(np.shape(size) for size in sizes))
    return _pieces(sizes, shape, rates, function), shape


def _pieces(
    sizes: tuple[Number, ...],
    shape: tuple[int, ...],
    rates: Callable[[bool], Rates],
    function: Callable[[Number, Number, Number, Number, Rates], Result],
) -> Iterator[tuple[Places, Result]]:
    """Yield places and results, a cache-sized number of products at a time, single products apart from batches."""
    flat = [_flat(size, shape) if np.ndim(size) else float(size) for size in sizes]
    for start in range(0, math.prod(shape), CHUNK):
        places = slice(start, min(start + CHUNK, math.prod(shape)))
        m, n, k, batch = _at(flat, places)
        batched: Any = batch > 1.0
        if not isinstance(batched, np.ndarray) or not batched.any() or batched.all():
            yield places, function(m, n, k, batch, rates(anywhere(batched)))
            continue
        for kind in (False, True):
            (index,) = np.nonzero(batched == kind)
            yield start + index, function(*_at((m, n, k, batch), index), rates(kind))


def _flat(size: Any, shape: tuple[int, ...]) -> Any:
    return (size if size.shape == shape else np.broadcast_to(size, shape)).reshape(-1)


def _at(sizes: Sequence[Number], places: Places) -> tuple[Number, Number, Number, Number]:
    """Return the sizes of some products; one that all of them share stays a number, and is computed with once."""
    m, n, k, batch = (size[places] if isinstance(size, np.ndarray) else size for size in sizes)
    return m, n, k, batch


def _fastest(m: Number, n: Number, k: Number, batch: Number, r: Rates) -> ProductTime:
    """Return the time of each product with its fastest tile and split, taken apart."""
    sizes = Sizes(m, n, k, batch, r)
    index, split = _choice(sizes, r)
    tile = r.tiles[index] if isinstance(index, int) else r.tile_of(index.astype(np.intp))
    blocks, k, gathered = sizes.blocks(tile), sizes.k, None
    if anywhere(split):
        parts = 1.0 + split * (_most_parts(sizes, r, tile, blocks) - 1.0)
        blocks, k, gathered = blocks * parts, k / parts, split * parts
    return time_of(sizes, r, tile, split, blocks, k, gathered)


def _least(m: Number, n: Number, k: Number, batch: Number, r: Rates) -> Any:
    """Return the time of each product with its fastest tile and split [s]."""
    sizes = Sizes(m, n, k, batch, r)
    counts = sizes.counts(r)
    least = _with_memory(_shortest(_whole(sizes, r, counts, named=False)), sizes)
    time = fourth_root(least)
    worth = _worth(sizes, r, least)
    if not anywhere(worth):
        return time
    if not isinstance(worth, np.ndarray):
        return min(time, _in_parts_s(_shortest(_parted(sizes, r, counts)), sizes, r))
    (places,) = np.nonzero(worth)
    some = sizes.at(places)
    in_parts = _in_parts_s(_shortest(_parted(some, r, some.counts(r))), some, r)  # infinite where no tile has parts
    time[places] = np.minimum(time[places], in_parts)
    return time


def _choice(sizes: Sizes, r: Rates) -> tuple[Any, Any]:
    """Return the index of the fastest tile of each product, and whether it is split along k."""
    counts = sizes.counts(r)
    index, least = _cheapest(_whole(sizes, r, counts))
    least = _with_memory(least, sizes)
    worth = _worth(sizes, r, least)
    if not anywhere(worth):
        return index, False
    if not isinstance(worth, np.ndarray):
        return _split(sizes, r, counts, index, least)
    split = np.zeros(worth.shape, bool)
    (places,) = np.nonzero(worth)
    some = sizes.at(places)
    index[places], split[places] = _split(some, r, some.counts(r), index[places], least[places])
    return index, split


def _with_memory(least: Any, sizes: Sizes) -> Any:
    """Return the fourth power of a time with that of device memory, which no tile changes."""
    return least + fourth_power(sizes.hbm)


def _worth(sizes: Sizes, r: Rates, least: Any) -> Any:
    """Return which products may be faster in parts, given the fourth power of the time of whole ones.

    Parts cannot take less time than their reduction, nor less than the power limit leaves.
    """
    if not r.whole_wave:
        return False
    few: Any = sizes.outputs <= r.whole_wave
    shortest: Any = maximum(sizes.hbm, sizes.power)
    shortest += r.c["split"]
    shortest *= _ABOVE
    return few & (least > fourth_power(shortest))


def _split(sizes: Sizes, r: Rates, counts: Counts, index: Any, least: Any) -> tuple[Any, Any]:
    """Return the fastest tile, and whether products are split, given those of whole products and their times."""
    other, least_in_parts = _cheapest(_parted(sizes, r, counts))
    split = _in_parts_s(least_in_parts, sizes, r) < fourth_root(least)
    return index + split * (other - index), split


def _in_parts_s(least: Any, sizes: Sizes, r: Rates) -> Any:
    """Return the time of products in parts, given its fourth power without device memory and the reduction [s]."""
    return fourth_root(_with_memory(least, sizes)) + r.c["split"]


def _whole(sizes: Sizes, r: Rates, counts: Counts, named: bool = True) -> Iterator[tuple[Any, Any]]:
    """Yield the index and the fourth power of the time of whole products, for one tile after the other.

    Of a tile and the same turned it is the one that makes fewer blocks, whose index is found if tiles are ``named``.
    """
    steps, fed_s, (rows, columns), lowered = sizes.k * r.per_step, sizes.k * r.fed_s, counts, sizes.lowered
    pipelines = {fill: sizes.pipeline(steps, fill, r) for fill in r.fills}
    for index, tile, turned in r.cuts:
        blocks = rows[tile.per_row] * columns[tile.per_column]
        if turned is not None:  # the two differ in nothing else, and more blocks never take less time
            other = rows[turned.per_row] * columns[turned.per_column]
            if named:
                index = _added(index, other < blocks)
            blocks = lowered(blocks, other)
        waves, l2_s = blocks * r.per_sm, blocks
        l2_s *= tile.sides
        l2_s *= fed_s
        yield index, power_of_time(sizes, r, tile, waves, pipelines[tile.fill], l2_s)


def _added(index: int, more: Any) -> Any:
    """Return an index with 1 more where a mask holds."""
    return more.view(np.int8) + np.int8(index) if isinstance(more, np.ndarray) else index + more


def _parted(sizes: Sizes, r: Rates, counts: Counts) -> Iterator[tuple[int, Any]]:
    """Yield the same of products that are split along k; the parts are written and read again in fp32."""
    steps, fed_s, gather_s, (rows, columns) = sizes.k * r.per_step, sizes.k * r.fed_s, sizes.gather_s, counts
    for index, tile in enumerate(r.tiles):
        blocks = rows[tile.per_row] * columns[tile.per_column]
        parts = _most_parts(sizes, r, tile, blocks)
        if type(parts) is not _ARRAY and parts == 1.0:
            continue  # one part is the whole product, and takes its reduction besides
        pipeline = sizes.pipeline(steps / parts, tile.fill, r)
        waves, l2_s = blocks * parts, blocks
        waves *= r.per_sm
        l2_s *= tile.sides  # there are more blocks, each of which reads as much less
        l2_s *= fed_s
        parts *= gather_s
        l2_s += parts
        yield index, power_of_time(sizes, r, tile, waves, pipeline, l2_s)


def _most_parts(sizes: Sizes, r: Rates, tile: Tile, blocks: Number) -> Number:
    """Return how many parts of k make at most ``SPLIT_WAVES`` blocks an SM; two where fewer do not keep it busy."""
    floor, raised, lowered, least = sizes.floor, sizes.raised, sizes.lowered, tile.least
    fewest: Any = 1.0
    if type(least) is not float or least > 1.0:
        fewest = 1.0 + (least * r.sm_count / blocks > 1.0)
    parts: Number = lowered(raised(floor(r.split_blocks / blocks), fewest), r.most_parts)
    return parts


def _cheapest(times: Iterator[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Return the index of the first tile of the least time for each product, and that time.

    One tile is timed after the other, so that the arrays of many products stay in a core's cache.
    """
    best: Any
    least: Any
    best, least = next(times, (0, math.inf))
    if isinstance(least, np.ndarray) and not isinstance(best, np.ndarray):
        best = np.full(least.shape, best, np.int8)
    for index, other in times:
        if type(other) is not float:
            better: Any = (other < least).view(np.int8)
            np.maximum(best, better * (index if isinstance(index, np.ndarray) else np.int8(index)), out=best)
            np.minimum(least, other, out=least)
        elif other < least:
            best, least = index, other
    return best, least


def _shortest(times: Iterator[tuple[Any, Any]]) -> Any:
    """Return the least time that `_cheapest` finds, without its tile."""
    least: Any = math.inf
    for _, other in times:
        if type(other) is float:
            least = other if other < least else least
        elif isinstance(least, np.ndarray):
            np.minimum(least, other, out=least)
        else:
            least = other
    return least

"""The time of matrix products with one tile and split: whole, to compare tiles, and taken apart."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from perfmodel.core.vocabulary import Limiter
from perfmodel.core.work import Number, anywhere, ceil, maximum, where
from perfmodel.prediction.latency.gemm.rates import Rates
from perfmodel.prediction.latency.gemm.sizes import Pipeline, Sizes, fourth_power
from perfmodel.prediction.latency.gemm.tiles import Tile
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
FEW_BLOCKS = Term("few blocks", Limiter.COMPUTE, "lanes that wait, since blocks are too few to keep an SM busy")
ADDRESSING = Term("addressing", Limiter.COMPUTE, "rows off cache lines, or too far apart to be read at full rate")
POWER_LIMIT = Term("power", Limiter.COMPUTE, "clock held down by the power limit")
PRODUCT_TERMS = (
    *(MATH, TILE_WASTE, PIPELINE, WAVES, FEW_BLOCKS, ADDRESSING, POWER_LIMIT),
    *(HBM, L2, CONTENTION, SPLIT_K, LAUNCH),
)

#: resources overlap as the POWER-norm of their times; 4 is a square of a square, so that no logarithm is taken
POWER = 4


@dataclass(slots=True)
class ProductTime:
    """The time of products with one tile and split each [s], without the launch.

    Attributes
    ----------
    math, tile_waste, pipeline, waves, power, hbm, l2, contention, split_k : parts that add up to the time.
    math_alone, hbm_alone, l2_alone : what each resource alone would take.
    dequantisation : part of the time that widens narrow weights.
    few_blocks, addressing : parts in which lanes wait for other blocks, and for rows that are slow to read.
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
    few_blocks: Number = 0.0
    addressing: Number = 0.0

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
        some = {DEQUANTISATION: self.dequantisation, FEW_BLOCKS: self.few_blocks, ADDRESSING: self.addressing}
        adds |= {term: part for term, part in some.items() if anywhere(part != 0.0)}
        return Terms(adds, {MATH: self.math_alone, HBM: self.hbm_alone, L2: self.l2_alone})


def gathered(parts: Iterable[tuple[Any, Any]], shape: tuple[int, ...]) -> Any:
    """Return an array of all products from those of chunks, each with the places of its products."""
    points = math.prod(shape)
    whole = np.empty(points)
    for places, part in parts:
        if isinstance(places, slice) and places == slice(0, points):
            whole = part  # one piece is all of them, and needs no copy
            break
        whole[places] = part
    return whole.reshape(shape)


def math_of(sizes: Sizes, r: Rates, tile: Tile, waves: Any, pipeline: Pipeline) -> Any:
    """Return what arithmetic alone would take with a tile [s], in the memory of the waves of its blocks.

    An SM has time for (1 - q) w + q ceil(w) blocks, with idle SMs in the last wave; one block waits for its steps.
    """
    steps, latency_s = pipeline
    raised = sizes.raised  # Python takes longer to call it where it is
    time = sizes.ceil(waves)
    time *= tile.rounded_s
    waves *= tile.evened_s
    time += waves
    if latency_s is None or r.few_blocks:
        time = raised(time, tile.busy_s)
    if latency_s is not None:  # else one block is done before those that keep an SM busy
        time = raised(time, latency_s + tile.step_s)
    time *= steps
    if sizes.slowed is not None:
        time *= sizes.slowed
    return time


def fourth_root(value: Any) -> Any:
    """Return value^(1/4), of a number and of arrays to the same last bit, which a power of 0.5 has not."""
    if not isinstance(value, np.ndarray):
        return math.sqrt(math.sqrt(value))
    root = np.sqrt(value)
    return np.sqrt(root, out=root)


def power_of_time(sizes: Sizes, r: Rates, tile: Tile, waves: Any, pipeline: Pipeline, l2_s: Any) -> Any:
    """Return the fourth power of the time without device memory, which orders tiles as the time does.

    Device memory takes as long with every tile. It is infinite where a tile is not for m. Half of a sweep's time goes
    by here, so that it works in the memory of ``waves`` and ``l2_s``: the fewer arrays, the more of them stay in a
    core's cache.
    """
    raised = sizes.raised
    time = raised(math_of(sizes, r, tile, waves, pipeline), sizes.power)
    time *= time
    time *= time
    l2_s *= l2_s
    l2_s *= l2_s
    time += l2_s
    return where((sizes.m > tile.above) & (sizes.m <= tile.up_to), time, time + np.inf) if r.by_rows else time


def time_of(
    sizes: Sizes, r: Rates, tile: Tile, split: Any, blocks: Any, k: Number, gathered: Number | None
) -> ProductTime:
    """Return the time of one tile and split for each product, whose blocks work through a length of k, taken apart."""
    waves, steps = blocks * r.per_sm, k * r.per_step
    block_s = tile.step_s * ceil(steps)
    rounds = ceil(waves) * r.rounds + waves * r.evened
    busy, whole = maximum(rounds, tile.least), maximum(rounds, 1.0)
    math_s = math_of(sizes, r, tile, 1.0 * waves, sizes.pipeline(steps, tile.fill, r))
    l2_s = blocks * tile.sides * (k * r.fed_s)
    if gathered is not None:
        l2_s = l2_s + gathered * sizes.gather_s
    limited = maximum(math_s, sizes.power)
    outside = maximum(sizes.hbm, l2_s)
    body = fourth_power(limited) + fourth_power(l2_s) + fourth_power(sizes.hbm)
    # numbers, since numpy multiplies by a mask at half the speed
    number = sizes.number
    on_math, on_hbm = number(limited >= outside), number(sizes.hbm >= l2_s)
    elsewhere = 1.0 - on_math
    ideal = sizes.flop / tile.flop_per_s
    full = waves * block_s
    busy_s, whole_s = busy * block_s, whole * block_s
    plain_s = math_s if sizes.slowed is None else math_s / sizes.slowed
    waste = (full - ideal) * on_math
    widening: Number = 0.0
    if r.widens:
        widening = full * tile.widening * on_math
        waste = waste - widening
    return ProductTime(
        math=ideal * on_math,
        tile_waste=waste,
        pipeline=(plain_s - busy_s) * on_math,
        waves=(whole_s - full) * on_math,
        power=(limited - math_s) * on_math,
        hbm=sizes.hbm * (on_hbm * elsewhere),
        l2=l2_s * ((1.0 - on_hbm) * elsewhere),
        contention=fourth_root(body) - maximum(limited, outside),
        split_k=split * r.c["split"],
        math_alone=limited,
        hbm_alone=sizes.hbm,
        l2_alone=l2_s,
        dequantisation=widening,
        few_blocks=(busy_s - whole_s) * on_math,
        addressing=(math_s - plain_s) * on_math,
    )

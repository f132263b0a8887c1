"""Sustained bandwidth of a CPU's caches: scalar products of vectors that stay in them, by working set.

Each thread cycles through its own working set in one call of numpy's matmul, which hands rows of at most 16 KiB to the
scalar product of its BLAS: two loads and one multiply-add for two elements, so that the loads are the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.kernels.device import Device
from perfmodel.measure.calibration.plan import CalibrationPlan
from perfmodel.measure.calibration.rates import Rate, measured_rate
from perfmodel.measure.memory_limit import MemoryLimit

Floats = NDArray[np.float32]

#: longest row of a scalar product: short enough that no BLAS splits it over threads (OpenBLAS does from 10,000 on)
_LONGEST_ROW = 4096
#: bytes that a thread reads in one call: 10 ms at 20 GB/s
_BYTES_PER_CALL = 2e8
_SMALLEST_SET = 2.0**13
#: largest working set, as a multiple of all caches of the last level together
_BEYOND = 4.0
#: sets of one size in memory at a time: the one that is read, and the freed one before it
_COPIES = 2.0
#: the bandwidth of a level is taken from working sets of at least the first multiple of the level before it, and at
#: most the second share of the level: the rest holds the stack, the output and other data of the core
_ABOVE, _WITHIN = 2.0, 0.75


@dataclass(frozen=True)
class CacheSize:
    """One level of a CPU's caches: ``count`` caches of ``bytes`` each. More threads than caches share them."""

    name: str
    bytes: float
    count: int

    def per_thread(self, threads: int) -> float:
        """Return the bytes of this level that each of ``threads`` busy threads has."""
        return self.bytes * min(1.0, self.count / threads)


@dataclass(frozen=True)
class WorkingSet:
    """What all threads together read from working sets of one size.

    Attributes
    ----------
    bytes_per_thread : size of each thread's own set [B].
    bytes_per_s : bandwidth of all threads together [B/s].
    waited : share of the time for which they were ready and had no CPU.
    """

    bytes_per_thread: float
    bytes_per_s: float
    waited: float = 0.0


def working_sets(device: Device, caches: Sequence[CacheSize], plan: CalibrationPlan) -> list[WorkingSet]:
    """Return the read bandwidth by working set, from 8 KiB to four times the last level, in steps of 1.5 and 1.33.

    The largest sets are left out where they exceed the memory limit.
    """
    threads = int(device.facts()["threads"])
    limit = MemoryLimit.of(device, plan.most_memory_bytes)
    largest = _BEYOND * max(cache.per_thread(threads) for cache in caches)
    largest = min(largest, limit.usable_bytes / _COPIES / threads)
    with ThreadPoolExecutor(threads) as pool:
        rates = [(size, _read_rate(size, threads, pool, device, plan)) for size in _sizes(largest)]
    return [WorkingSet(size, rate.sustained, rate.waited) for size, rate in rates]


def cache_levels(sets: Sequence[WorkingSet], caches: Sequence[CacheSize], threads: int) -> dict[str, float]:
    """Return the bandwidth of each level [B/s]: the best of the working sets that fit in it and in no level before it.

    A level that is not much larger per thread than the one before it has no such set and is left out.
    """
    rates: dict[str, float] = {}
    before = 0.0
    for cache in sorted(caches, key=lambda one: one.per_thread(threads)):
        size = cache.per_thread(threads)
        of_level = [s.bytes_per_s for s in sets if _ABOVE * before <= s.bytes_per_thread <= _WITHIN * size]
        if of_level:
            rates[cache.name] = max(of_level)
        before = size
    return rates


def _sizes(largest: float) -> list[float]:
    """Return 8, 12, 16, 24, 32, ... KiB up to a size [B]."""
    steps = (_SMALLEST_SET * 2**power * factor for power in range(40) for factor in (1.0, 1.5))
    return [size for size in steps if size <= max(largest, _SMALLEST_SET)]


def _read_rate(size: float, threads: int, pool: ThreadPoolExecutor, device: Device, plan: CalibrationPlan) -> Rate:
    """Return the rate at which all threads read their sets of ``size`` bytes, each two vectors, over and over."""
    row = min(_LONGEST_ROW, int(size / 8))
    rows = max(1, round(size / (8 * row)))
    turns = max(1, round(_BYTES_PER_CALL / (8.0 * row * rows)))
    sets = [_vectors(row, rows, turns, seed) for seed in range(threads)]

    def call() -> None:
        for _ in pool.map(lambda vectors: np.matmul(vectors[0], vectors[1], out=vectors[2]), sets):
            pass

    return measured_rate(call, 8.0 * row * rows * turns * threads, device, plan)


def _vectors(row: int, rows: int, turns: int, seed: int) -> tuple[Floats, Floats, Floats]:
    """Return two sets of vectors, repeated ``turns`` times without a copy, and room for their products."""
    generator = np.random.default_rng(seed)
    left = generator.standard_normal((rows, 1, row), dtype=np.float32)
    right = generator.standard_normal((rows, row, 1), dtype=np.float32)
    repeated = (np.broadcast_to(vectors, (turns, *vectors.shape)) for vectors in (left, right))
    return (*repeated, np.empty((turns, rows, 1, 1), np.float32))  # type: ignore[return-value]

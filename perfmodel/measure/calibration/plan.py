"""How thorough a calibration is: its repetitions and the sizes of its buffers and products."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from perfmodel.measure.memory_limit import QUICK_BYTES

#: smallest buffer of main memory [B], by kind of device
_LEAST_BUFFER_BYTES = MappingProxyType({"cpu": 2.0**26, "cuda": 2.0**30})
#: rows of the largest square matrix product, by kind of device
_LARGEST_PRODUCT = MappingProxyType({"cpu": 2048, "cuda": 8192})


@dataclass(frozen=True)
class CalibrationPlan:
    """What a calibration measures, and how often.

    Attributes
    ----------
    passes : how often everything is measured from the start; the best counts, since other programs disturb for
        seconds.
    rounds : number of medians, one after the other, of which the best counts.
    samples : samples of one median.
    product_s : longest time of one matrix product [s].
    everything : whether caches, the vector engine, graphs and transfers are measured too.
    cache_multiple : each buffer of main memory is at least this many times the last-level cache, as far as memory
        allows.
    least_buffer_bytes : and at least this large [B], by kind of device.
    largest_product : rows of the largest square product, by kind of device.
    most_memory_bytes : most memory in use [B]; a quarter of the free memory is the limit in any case.
    """

    rounds: int
    samples: int
    product_s: float
    everything: bool = False
    passes: int = 1
    cache_multiple: float = 4.0
    least_buffer_bytes: Mapping[str, float] = field(default_factory=lambda: _LEAST_BUFFER_BYTES)
    largest_product: Mapping[str, int] = field(default_factory=lambda: _LARGEST_PRODUCT)
    most_memory_bytes: float = math.inf


#: before a benchmark: a few seconds
QUICK = CalibrationPlan(rounds=2, samples=5, product_s=0.06, most_memory_bytes=QUICK_BYTES)
#: for a specification to keep: about a minute on a CPU, less on a GPU
THOROUGH = CalibrationPlan(rounds=2, samples=7, product_s=0.15, everything=True, passes=2)

"""How much time a calibration takes, and the one way in which it times a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from perfmodel.kernels.device import Device
from perfmodel.measure.timing.stopping_rule import StandardErrorRule
from perfmodel.measure.timing.timer import Timing, best_median_s, time_call

Status = Callable[[str], None]

#: at least this much for each buffer of main memory [B], by kind of device
_LEAST_BUFFER_BYTES = MappingProxyType({"cpu": 2.0**26, "cuda": 2.0**30})
#: the largest matrix product that is tried, by kind of device
_LARGEST_PRODUCT = MappingProxyType({"cpu": 2048, "cuda": 8192})
#: longest time for the samples of one median [s]
_MEDIAN_LIMIT_S = 1.0


@dataclass(frozen=True)
class Effort:
    """How much time a calibration takes: a few seconds before a benchmark, or more for a spec to keep.

    Attributes
    ----------
    passes : how often everything is measured from the start; the best counts. Other programs disturb for seconds.
    rounds : how many medians, one after the other, the best is taken of.
    samples : samples of one median.
    product_s : longest time of one matrix product that is tried [s].
    everything : also caches, the vector engine, graphs and transfers.
    caches : each buffer of main memory is at least this many times the last-level cache.
    least_buffer_bytes : and at least this large [B], by kind of device.
    largest_product : rows of the largest square product, by kind of device.
    """

    rounds: int
    samples: int
    product_s: float
    everything: bool = False
    passes: int = 1
    caches: float = 4.0
    least_buffer_bytes: Mapping[str, float] = field(default_factory=lambda: _LEAST_BUFFER_BYTES)
    largest_product: Mapping[str, int] = field(default_factory=lambda: _LARGEST_PRODUCT)


@dataclass(frozen=True)
class Rate:
    """What a call did per second, B/s or FLOP/s.

    Attributes
    ----------
    sustained : by the best of several medians: what the machine sustains when nothing else disturbs it.
    fastest : by the fastest single sample.
    """

    sustained: float
    fastest: float


def timings(call: Callable[[], Any], device: Device, effort: Effort) -> list[Timing]:
    """Return several timings of warm calls: the data is larger than the cache, or is meant to be in it."""
    rule = StandardErrorRule(0.0, effort.samples, effort.samples, time_limit_s=_MEDIAN_LIMIT_S)
    return [time_call(call, device, rule, cache="warm") for _ in range(effort.rounds)]


def rate(call: Callable[[], Any], amount: float, device: Device, effort: Effort) -> Rate:
    """Return the rate of a call that moves ``amount`` bytes, or does as much FLOP."""
    made = timings(call, device, effort)
    return Rate(amount / best_median_s(made), amount / min(min(timing.samples_s) for timing in made))


def attempt(what: str, measure: Callable[[], Rate], left_out: list[str]) -> Rate | None:
    """Return what was measured; where that fails, None, and the reason is added to ``left_out``.

    One kernel that this version of a library does not compile, or for which memory is short, does not take the other
    figures with it.
    """
    try:
        return measure()
    except Exception as error:  # noqa: BLE001 -- whatever a library raises is the reason
        lines = str(error).strip().splitlines() or [""]
        left_out.append(f"{what}: {type(error).__name__}: {lines[-1][:200]}")
        return None


def rounded(value: float) -> float:
    """Return four significant digits: a measurement has no more."""
    return float(f"{value:.4g}")

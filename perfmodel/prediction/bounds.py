"""The times that the datasheet's ceilings allow for counted work: in a cold call, in a cache, and at the least."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perfmodel.core import roofline
from perfmodel.core.hardware import NOWHERE, Hardware, Peak
from perfmodel.core.vocabulary import CacheState, Limiter
from perfmodel.core.work import Number, Text, Work, anywhere, maximum, plain, where
from perfmodel.errors import UsageError
from perfmodel.operators.base import Operator
from perfmodel.prediction.ceilings import (
    ceiling_limiter,
    ceiling_times,
    datasheet_ceilings,
    lacks_vector_rate,
    link_load,
    resolve_peak,
    smallest_fit,
)
from perfmodel.prediction.usual_figures import with_largest_cache

#: a member of an enumeration takes longer to find than all else that is done with it
_LAUNCH = Limiter.LAUNCH
#: ceilings that are a number of FLOP or bytes in a clock of the SMs
_BY_CLOCK = frozenset((Limiter.COMPUTE, Limiter.SHARED, Limiter.L1, Limiter.REGISTERS))


def slowest_s(times: Mapping[Limiter, Number]) -> Number:
    """Return the longest of the times that each datasheet rate alone would take [s]; starting a kernel is no rate."""
    slowest_s: Number = 0.0
    for limiter, time_s in times.items():
        slowest_s = slowest_s if limiter is _LAUNCH else maximum(slowest_s, time_s)
    return slowest_s


def share_of_peak(hardware: Hardware, times: Mapping[Limiter, Number], time_s: Number, cache: CacheState) -> Number:
    """Return the share of the peak of what is used most, when all bytes are counted: of a rate, that of its own peak.

    max_r t_r / t, with t_r the time that the datasheet's rate of resource r alone would take. Calls that are not cold
    may have their data from a cache; nobody knows how much of it. Where they take less time than main memory would, the
    rate is a cache's, and is no share of the peak of the memory: NaN.

    Parameters
    ----------
    times : the times of a cold call by limiter [s], as `bounding_times` has them.
    time_s : the time of the call [s].
    """
    share = np.divide(slowest_s(times), time_s)
    if cache == CacheState.COLD:
        return plain(share)
    memory_s = times.get(ceiling_limiter(hardware.main_memory.name), 0.0)
    return plain(np.where(np.greater(memory_s, time_s), np.nan, share))


def peak_of(op: Operator, hardware: Hardware, work: Work) -> Peak | None:
    """Return the peak that the operator's arithmetic runs on, None where it computes nothing.

    It is None, too, where the arithmetic of a GPU's vector engine has no rate in the specification: bytes alone bound
    it then.
    """
    if not anywhere(work.flop > 0):
        return None
    return None if lacks_vector_rate(op, hardware) else resolve_peak(op, hardware)


def bounding_times(op: Operator, hardware: Hardware, work: Work, peak: Peak | None) -> dict[Limiter, Number]:
    """Return the time that each datasheet ceiling alone would take [s], the launch floor among them.

    Raises
    ------
    UsageError
        When the specification has no rate of what the operator does.
    """
    links = link_load(op, hardware)
    ceilings = datasheet_ceilings(hardware, peak, links)
    times: dict[Limiter, Number] = {}
    for limiter, time in zip(ceilings.limiters, ceiling_times(work, ceilings, links).values(), strict=True):
        times[limiter] = maximum(times[limiter], time) if limiter in times else time
    if ceilings.launch_s is not None:
        times[_LAUNCH] = ceilings.launch_s
    if not times:
        memory = hardware.main_memory.name
        raise UsageError(
            f"{hardware.name} has no rate in its specification that bounds {op.op}.",
            remedy=f"Add the bandwidth of [memory.{memory}] to the file.",
        )
    return times


def resident(work: Work, hardware: Hardware, times: Mapping[Limiter, Number]) -> tuple[Text, Number, Text]:
    """Return the smallest level that holds the working set, the bound inside it, and the limiter of that bound.

    Inside a cache the levels outside it see no traffic, so that their terms drop out of the maximum. A cache of unknown
    bandwidth gives no bound: the rest of the maximum would be too low.
    """
    index, levels = smallest_fit(work, hardware)
    names = (NOWHERE, *(level.name for level in levels))
    time: Number = np.nan
    limiter: Text = ""
    for position, cache in enumerate(levels[1:], start=1):
        outside = {level.name for level in levels[:position]}
        here = index == position
        if cache.name in times and anywhere(here):
            bound = roofline.bound({name: value for name, value in times.items() if name not in outside})
            time = where(here, bound.time_s, time)
            limiter = where(here, bound.limiter, limiter)
    if isinstance(index, int):
        return names[index + 1], plain(time), limiter
    if np.ndim(limiter) == 0:  # no cache of a known bandwidth holds any point
        time, limiter = np.full(index.shape, time), np.full(index.shape, limiter)
    return np.asarray(names)[index + 1], time, limiter


def floor_of(work: Work, hardware: Hardware, times: Mapping[Limiter, Number], cache: CacheState) -> Number:
    """Return the time that no call is below [s]; warm, the bytes that the caches cannot hold cross device memory.

    Boards may run at a higher clock than that of the printed peaks: what counts in clocks is then as much faster.
    """
    beyond = times_beyond_caches(work, hardware, times, cache)
    boost = boost_of(hardware)
    if boost > 1.0:
        beyond = {name: time / boost if name in _BY_CLOCK else time for name, time in beyond.items()}
    return roofline.bound(beyond).time_s


def boost_of(hardware: Hardware) -> float:
    """Return the highest clock of a machine's boards over that of its printed peaks."""
    if hardware.max_clock_hz is None or not hardware.clocks_hz:
        return 1.0
    return max(1.0, hardware.max_clock_hz / min(hardware.clocks_hz.values()))


def times_beyond_caches(
    work: Work, hardware: Hardware, times: Mapping[Limiter, Number], cache: CacheState
) -> Mapping[Limiter, Number]:
    """Return the times of the ceilings [s]; warm, main memory moves only the bytes that the caches cannot hold.

    Where the specification of a GPU leaves out its L2, it may be as large as is plausible.
    """
    if cache == CacheState.COLD:
        return times
    held = sum(cache.capacity_bytes or 0.0 for cache in with_largest_cache(hardware).caches)
    outer = ceiling_limiter(hardware.main_memory.name)
    beyond = times[outer] * maximum(0.0, 1.0 - held / maximum(work.least_bytes, 1.0)) if outer in times else 0.0
    return {**{name: time for name, time in times.items() if name != outer}, outer: beyond}


def ridge_point(hardware: Hardware, peak: Peak | None) -> float:
    """Return the intensity from which a kernel is compute-bound [FLOP/B]; NaN where one of the two rates is unknown."""
    bandwidth = hardware.main_memory.bandwidth_bytes_per_s
    return float(roofline.ridge_point(peak.flop_per_s, bandwidth)) if peak and bandwidth else np.nan

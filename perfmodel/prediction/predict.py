"""Bound, prediction and advice for an operator on a machine, in one result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from perfmodel.core import roofline
from perfmodel.core.hardware import NOWHERE, Hardware, Peak
from perfmodel.core.vocabulary import CacheState, Limiter, Load, Timing
from perfmodel.core.work import Number, Work, anywhere, maximum, plain, where
from perfmodel.operators.base import Operator
from perfmodel.prediction.advice import advise
from perfmodel.prediction.ceilings import (
    ceiling_limiter,
    ceiling_times,
    datasheet_ceilings,
    launch_time,
    link_traffic,
    resolve_peak,
    smallest_fit,
)
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.model import estimate
from perfmodel.prediction.result import Prediction, Text


def bound_time(op: Operator, hardware: Hardware) -> roofline.Bound:
    """Return the bound of one cold call of an operator, and the ceiling that sets it.

    T = max(FLOP / dense peak, bytes / bandwidth of each memory level and link, launch floor), from datasheet
    figures (Williams et al. 2009, see `perfmodel.core.roofline`). Dimensions may be arrays.

    Raises
    ------
    UsageError
        When the machine has no peak for the dtype, or lacks a link that the operator uses.
    """
    work = op.work()
    return roofline.bound(_bounding_times(op, hardware, work, _peak(op, hardware, work)))


def floor_time(op: Operator, hardware: Hardware, cache: str = CacheState.COLD) -> Number:
    """Return the time that no honest measurement is below [s]: the bound of a cold call, or what remains of it warm.

    It counts only the FLOP that no known algorithm avoids: a convolution by Winograd beats the bound, whose FLOP are
    counted by convention, but not this floor.

    With warm caches, when the same buffers are used again and again, at least the bytes that the caches cannot hold
    still cross device memory; compute, links and the launch floor stay.
    """
    work = replace(op.work(), flop=op.least_flop())
    times = _bounding_times(op, hardware, work, _peak(op, hardware, work))
    return _floor(work, hardware, times, CacheState.parse(cache))


def predict(
    op: Operator,
    hardware: Hardware,
    *,
    timing: str = Timing.KERNEL,
    cache: str = CacheState.COLD,
    library: str = "",
    load: str = Load.BURST,
) -> Prediction:
    """Return bound, prediction and advice for one operator on one machine.

    The bound assumes a cold call: every tensor crosses device memory. If the working set fits a cache,
    ``resident_bound_time_s`` is the bound for data that already lies there.

    Parameters
    ----------
    op : the operator; its dimensions may be numpy arrays, then all numbers of the result are arrays.
    hardware : the machine, from the catalog or a file.
    timing : the interval to predict: "kernel" or "graph", the time on the device, as a profiler or a replayed CUDA
        graph measures it; or "event", the time between events around a framework's call, its dispatch included.
    cache : "cold", the inputs come from device memory; "warm", the same buffers are used again and again, so that data
        that fit a cache may lie there, and the prediction may be below the cold bound; or "rotating", five copies of
        a product's weights take turns, as in benchmarks of serving libraries.
    library : whose kernels run, as measurement tables name them ("torch", "sglang", "trtllm", "nccl"), for the
        families in which libraries differ; "" for any.
    load : "burst", milliseconds of work, as benchmarks replay a kernel; or "sustained", minutes of it, in which the
        power limit leaves less of the clock of matrix engines.

    Raises
    ------
    UsageError
        When the machine has no peak for the dtype, or lacks a link that the operator uses, or ``timing``, ``cache``
        or ``load`` is unknown.
    """
    conditions = Conditions.parse(timing, cache, library, load)
    work = op.work()
    peak = _peak(op, hardware, work)
    times = _bounding_times(op, hardware, work, peak)
    cold = roofline.bound(times)
    fits_in, resident_time, resident_limiter = _resident(work, hardware, times)
    if type(op).least_flop is Operator.least_flop:
        floor = _floor(work, hardware, times, conditions.cache)
    else:
        floor = floor_time(op, hardware, conditions.cache)
    expected = estimate(op, hardware, peak, conditions, floor)
    return Prediction(
        op=op.op,
        name=op.name,
        params=op.params(),
        given=op.given(),
        dtype=op.dtype,
        engine=f"{peak.engine} {peak.dtype}" if peak else "",
        count=op.count,
        hardware=hardware.name,
        flop=work.flop,
        bytes_read=work.bytes_read,
        bytes_written=work.bytes_written,
        working_set_bytes=work.working_set_bytes,
        arithmetic_intensity_flop_per_byte=roofline.arithmetic_intensity(work.flop, work.bytes),
        ridge_point_flop_per_byte=_ridge(hardware, peak),
        limiter=cold.limiter,
        bound_time_s=cold.time_s,
        fits_in=fits_in,
        resident_bound_time_s=resident_time,
        resident_limiter=resident_limiter,
        timing=conditions.timing,
        cache=conditions.cache,
        library=library,
        load=conditions.load,
        predicted_time_s=expected.time_s,
        predicted_time_low_s=expected.low_s,
        predicted_time_high_s=expected.high_s,
        predicted_limiter=expected.limiter,
        largest_term=expected.largest_term,
        predicted_terms_s=expected.terms.adds,
        alone_s=expected.terms.alone,
        family=expected.family,
        calibration=expected.calibration,
        regime=expected.regime,
        prediction_basis=expected.basis,
        uncertainty=expected.uncertainty,
        attainable_flop_per_s=plain(np.divide(work.flop, cold.time_s)),
        attainable_bytes_per_s=plain(np.divide(work.bytes, cold.time_s)),
        predicted_flop_per_s=plain(np.divide(work.flop, expected.time_s)),
        predicted_bytes_per_s=plain(np.divide(work.bytes, expected.time_s)),
        predicted_utilization=plain(
            np.divide(_slowest_s(_times_beyond_caches(work, hardware, times, conditions.cache)), expected.time_s)
        ),
        advice=advise(
            cold.limiter,
            cold.time_s,
            expected.time_s,
            launch_time(hardware),
            resident_time,
            measured=False,
            pageable=getattr(op, "pinned", True) is False,
        ),
    )


def _slowest_s(times: Mapping[Limiter, Number]) -> Number:
    """Return the longest of the times that each datasheet rate alone would take [s]; starting a kernel is no rate."""
    slowest_s: Number = 0.0
    for limiter, time_s in times.items():
        slowest_s = slowest_s if limiter is Limiter.LAUNCH else maximum(slowest_s, time_s)
    return slowest_s


def _peak(op: Operator, hardware: Hardware, work: Work) -> Peak | None:
    """Return the peak that the operator's arithmetic runs on, None where it computes nothing."""
    return resolve_peak(op, hardware) if anywhere(work.flop > 0) else None


def _ridge(hardware: Hardware, peak: Peak | None) -> float:
    bandwidth = hardware.main_memory.bandwidth_bytes_per_s
    return float(roofline.ridge_point(peak.flop_per_s, bandwidth)) if peak and bandwidth else np.nan


def _bounding_times(op: Operator, hardware: Hardware, work: Work, peak: Peak | None) -> dict[Limiter, Number]:
    """Return the time that each datasheet ceiling alone would take [s], the launch floor among them."""
    links = link_traffic(op, hardware)
    ceilings = datasheet_ceilings(hardware, peak, links)
    times: dict[Limiter, Number] = {}
    for name, time in ceiling_times(work, ceilings, links).items():
        limiter = ceiling_limiter(name)
        times[limiter] = maximum(times[limiter], time) if limiter in times else time
    return times if ceilings.launch_s is None else {**times, Limiter.LAUNCH: ceilings.launch_s}


def _resident(work: Work, hardware: Hardware, times: Mapping[Limiter, Number]) -> tuple[Text, Number, Text]:
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


def _floor(work: Work, hardware: Hardware, times: Mapping[Limiter, Number], cache: CacheState) -> Number:
    """Return the time that no call is below [s]; warm, the bytes that the caches cannot hold cross device memory."""
    return roofline.bound(_times_beyond_caches(work, hardware, times, cache)).time_s


def _times_beyond_caches(
    work: Work, hardware: Hardware, times: Mapping[Limiter, Number], cache: CacheState
) -> Mapping[Limiter, Number]:
    """Return the times of the ceilings [s]; warm, main memory moves only the bytes that the caches cannot hold."""
    if cache == CacheState.COLD:
        return times
    held = sum(cache.capacity_bytes or 0.0 for cache in hardware.caches)
    outer = ceiling_limiter(hardware.main_memory.name)
    beyond = times[outer] * maximum(0.0, 1.0 - held / maximum(work.least_bytes, 1.0)) if outer in times else 0.0
    return {**{name: time for name, time in times.items() if name != outer}, outer: beyond}

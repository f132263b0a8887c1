"""Set an operator against a machine: bound, prediction and advice in one result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from perfmodel.core import roofline
from perfmodel.core.hardware import NOWHERE, Hardware, Peak
from perfmodel.core.work import Number, Work, anywhere, maximum, plain, where
from perfmodel.errors import unknown_name
from perfmodel.operators.base import Operator
from perfmodel.prediction.advice import advise
from perfmodel.prediction.ceilings import (
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


def floor_time(op: Operator, hardware: Hardware, cache: str = "cold") -> Number:
    """Return what no honest measurement is faster than [s]: the bound of a cold call, or what is left of it warm.

    Of the FLOP it takes those that no known algorithm avoids: a convolution by Winograd beats the bound, whose FLOP
    are counted by convention, and not this floor.

    Warm, when the same buffers are used again and again, device memory sees at least the bytes that the caches
    cannot hold; compute, links and the launch floor stay.
    """
    work = replace(op.work(), flop=op.least_flop())
    times = _bounding_times(op, hardware, work, _peak(op, hardware, work))
    return _floor(work, hardware, times, cache)


#: views of time, and states of the caches, that the interface names
TIMINGS = ("kernel", "event")
CACHES = ("cold", "warm", "rotating")


def predict(
    op: Operator, hardware: Hardware, *, timing: str = "kernel", cache: str = "cold", library: str = ""
) -> Prediction:
    """Return bound, prediction and advice for one operator on one machine.

    The bound assumes a cold call: every tensor crosses device memory. Where the working set fits a cache,
    ``resident_bound_time_s`` is the bound for data that already lies there.

    Parameters
    ----------
    op : the operator; its dimensions may be numpy arrays, then all numbers of the result are arrays.
    hardware : the machine, from the catalog or a file.
    timing : the view of time to predict: "kernel", the time on the device, as a profiler or a CUDA graph sees
        it; or "event", the time between events round a call of a framework, its dispatch included.
    cache : "cold", the inputs come from device memory; "warm", the same buffers are used again and again, so
        that what fits a cache may lie there, and the prediction may be below the cold bound; or "rotating", five
        copies of a product's weights take turns, as benchmarks of serving libraries have it.
    library : whose kernels run, as measurement tables name them ("torch", "sglang", "trtllm", "nccl"), for the
        families in which they differ; "" for whichever.

    Raises
    ------
    UsageError
        When the machine has no peak for the dtype, or lacks a link that the operator uses, or the view of
        time or the state of the caches is unknown.
    """
    if timing not in TIMINGS:
        raise unknown_name("timing", timing, TIMINGS)
    if cache not in CACHES:
        raise unknown_name("cache", cache, CACHES)
    work = op.work()
    peak = _peak(op, hardware, work)
    times = _bounding_times(op, hardware, work, peak)
    cold = roofline.bound(times)
    fits_in, resident_time, resident_limiter = _resident(work, hardware, times)
    direct = type(op).least_flop is Operator.least_flop
    floor = _floor(work, hardware, times, cache) if direct else floor_time(op, hardware, cache)
    made = estimate(op, hardware, peak, work, Conditions(timing, cache, library), floor)
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
        timing=timing,
        cache=cache,
        library=library,
        predicted_time_s=made.time_s,
        predicted_time_low_s=made.low_s,
        predicted_time_high_s=made.high_s,
        predicted_limiter=made.limiter,
        predicted_terms_s=made.terms.adds,
        alone_s=made.terms.alone,
        family=made.family,
        calibration=made.calibration,
        regime=made.regime,
        prediction_basis=made.basis,
        attainable_flop_per_s=plain(np.divide(work.flop, cold.time_s)),
        attainable_bytes_per_s=plain(np.divide(work.bytes, cold.time_s)),
        advice=advise(cold.limiter, cold.time_s, made.time_s, launch_time(hardware), resident_time),
    )


def _peak(op: Operator, hardware: Hardware, work: Work) -> Peak | None:
    """Return the peak that the operator's arithmetic runs on, None where it computes nothing."""
    return resolve_peak(op, hardware) if anywhere(work.flop > 0) else None


def _ridge(hardware: Hardware, peak: Peak | None) -> float:
    bandwidth = hardware.main_memory.bandwidth_bytes_per_s
    return float(roofline.ridge_point(peak.flop_per_s, bandwidth)) if peak and bandwidth else np.nan


def _bounding_times(op: Operator, hardware: Hardware, work: Work, peak: Peak | None) -> dict[str, Number]:
    """Return the time that each datasheet ceiling alone would take [s], the launch floor among them."""
    links = link_traffic(op, hardware)
    ceilings = datasheet_ceilings(hardware, peak, links)
    times = ceiling_times(work, ceilings, links)
    return times if ceilings.launch_s is None else {**times, "launch": ceilings.launch_s}


def _resident(work: Work, hardware: Hardware, times: Mapping[str, Number]) -> tuple[Text, Number, Text]:
    """Return the smallest level that holds the working set, the bound inside it, and what sets that bound.

    Inside a cache the levels outside it see no traffic, so their terms drop out of the maximum. A cache whose
    bandwidth is not known gives no bound: what is left of the maximum would say too little.
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


def _floor(work: Work, hardware: Hardware, times: Mapping[str, Number], cache: str) -> Number:
    """Return what no call is faster than [s]; warm, device memory sees at least what the caches cannot hold."""
    if cache == "cold":
        return roofline.bound(times).time_s
    held = sum(cache.capacity_bytes or 0.0 for cache in hardware.caches)
    outer = hardware.main_memory.name
    beyond = times[outer] * maximum(0.0, 1.0 - held / maximum(work.bytes, 1.0)) if outer in times else 0.0
    return roofline.bound({**{name: time for name, time in times.items() if name != outer}, outer: beyond}).time_s

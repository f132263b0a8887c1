"""Set an operator against a machine: bound, prediction and advice in one result."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perfmodel.analysis.advice import advise
from perfmodel.analysis.ceilings import ceiling_times, datasheet_ceilings, launch_time, resolve_peak, smallest_fit
from perfmodel.analysis.latency import DEFAULT_MODEL, LatencyModel
from perfmodel.core import roofline
from perfmodel.core.hardware import NOWHERE, Hardware, Peak
from perfmodel.core.results import Prediction, Text
from perfmodel.core.work import Number, Work, plain
from perfmodel.errors import UsageError, unknown_name
from perfmodel.operators._base import Operator


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


#: views of time that the interface names
TIMINGS = ("kernel", "event")


def predict(
    op: Operator, hardware: Hardware, *, timing: str = "kernel", model: LatencyModel = DEFAULT_MODEL
) -> Prediction:
    """Return bound, prediction and advice for one operator on one machine.

    The bound assumes a cold call: every tensor crosses device memory. Where the working set fits a cache,
    ``resident_bound_time_s`` is the bound for data that already lies there.

    Parameters
    ----------
    op : the operator; its dimensions may be numpy arrays, then all numbers of the result are arrays.
    hardware : the machine, from the catalog or a file.
    timing : the view of time to predict. Only "kernel" can be had yet: the time on the device, as a profiler or
        a CUDA graph sees it, without the dispatch of a framework's call that "event" would add.
    model : the latency model for ``predicted_time_s``.

    Raises
    ------
    UsageError
        When the machine has no peak for the dtype, or lacks a link that the operator uses, or the view of
        time cannot be had.
    """
    if timing not in TIMINGS:
        raise unknown_name("timing", timing, TIMINGS)
    if timing != "kernel":
        raise UsageError(f"timing={timing!r} is not modelled yet.", remedy="Use timing='kernel'.")
    work = op.work()
    peak = _peak(op, hardware, work)
    times = _bounding_times(op, hardware, work, peak)
    cold = roofline.bound(times)
    fits_in, resident_time, resident_limiter = _resident(work, hardware, times)
    estimate = model.estimate(op, hardware, peak, work)
    predicted = plain(np.maximum(estimate.time_s, cold.time_s))
    return Prediction(
        op=op.op,
        name=op.name,
        params=op.params(),
        told=op.told(),
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
        predicted_time_s=predicted,
        predicted_time_low_s=estimate.low_s,
        predicted_time_high_s=estimate.high_s,
        prediction_model=model.name,
        prediction_basis=estimate.basis,
        attainable_flop_per_s=plain(np.divide(work.flop, cold.time_s)),
        attainable_bytes_per_s=plain(np.divide(work.bytes, cold.time_s)),
        advice=advise(cold.limiter, cold.time_s, predicted, launch_time(hardware), resident_time),
    )


def _peak(op: Operator, hardware: Hardware, work: Work) -> Peak | None:
    """Return the peak that the operator's arithmetic runs on, None where it computes nothing."""
    return resolve_peak(op, hardware) if np.any(work.flop) else None


def _ridge(hardware: Hardware, peak: Peak | None) -> float:
    bandwidth = hardware.main_memory.bandwidth_bytes_per_s
    return float(roofline.ridge_point(peak.flop_per_s, bandwidth)) if peak and bandwidth else np.nan


def _bounding_times(op: Operator, hardware: Hardware, work: Work, peak: Peak | None) -> dict[str, Number]:
    """Return the time that each datasheet ceiling alone would take [s], the launch floor among them."""
    links = op.link_traffic()
    ceilings = datasheet_ceilings(hardware, peak, links)
    times = ceiling_times(work, ceilings, links)
    return times if ceilings.launch_s is None else {**times, "launch": ceilings.launch_s}


def _resident(work: Work, hardware: Hardware, times: Mapping[str, Number]) -> tuple[Text, Number, Text]:
    """Return the smallest level that holds the working set, the bound inside it, and what sets that bound.

    Inside a cache the levels outside it see no traffic, so their terms drop out of the maximum. A cache whose
    bandwidth is not known gives no bound: what is left of the maximum would say too little.
    """
    index, levels = smallest_fit(work, hardware)
    names = np.asarray([NOWHERE, *(level.name for level in levels)])
    time = np.full(index.shape, np.nan)
    limiter = np.full(index.shape, "", dtype="<U16")
    for position, cache in enumerate(levels[1:], start=1):
        outside = {level.name for level in levels[:position]}
        here = index == position
        if cache.name in times and here.any():
            bound = roofline.bound({name: value for name, value in times.items() if name not in outside})
            time = np.where(here, bound.time_s, time)
            limiter = np.where(here, bound.limiter, limiter)
    return _text(names[index + 1]), plain(time), _text(limiter)


def _text(value: np.ndarray) -> Text:
    """Return a string for a 0-d array of strings, the array otherwise."""
    return str(value) if np.ndim(value) == 0 else value

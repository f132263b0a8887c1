"""The whole table of a profile by operator and shape: rates, limits and expectation of each entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfmodel.core.arrays import median
from perfmodel.core.vocabulary import Limiter
from perfmodel.diagnosis.limits import Limit
from perfmodel.diagnosis.result import Diagnosis
from perfmodel.profile.profile import ProfileEntry
from perfmodel.profile.timeline import Floats, Timeline


@dataclass(frozen=True)
class OperatorRow:
    """One operator of a profile with one shape; the attributes are the keys of the rows.

    Attributes
    ----------
    name, op, dimensions : the entry, and the operator of the model with its sizes; empty where it has none.
    calls : number of calls, or None.
    time_s, fraction : GPU time of all calls [s], and the share of the wall time.
    min_s, median_s, max_s : of the times of single calls [s]; None without a time line.
    flop_per_s, bytes_per_s : rates over ``time_s``, from counters or the operator's counts, or None.
    arithmetic_intensity_flop_per_byte : FLOP over bytes, or None.
    limiter, basis : what limits it, and the evidence for it.
    bound_time_s, efficiency : bound of all calls [s], and bound over measured time, or None.
    predicted_time_s, predicted_low_s, predicted_high_s : expectation of all calls with its 80 % interval [s], or None.
    kernels : names of its kernels, the longest-running first.
    flag : what is wrong where it is faster than its bound, or empty.
    not_modelled : why it has no bound, or empty.
    """

    name: str
    op: str
    dimensions: str
    calls: int | None
    time_s: float
    fraction: float | None
    min_s: float | None
    median_s: float | None
    max_s: float | None
    flop_per_s: float | None
    bytes_per_s: float | None
    arithmetic_intensity_flop_per_byte: float | None
    limiter: Limiter
    basis: str
    bound_time_s: float | None
    efficiency: float | None
    predicted_time_s: float | None
    predicted_low_s: float | None
    predicted_high_s: float | None
    kernels: tuple[str, ...]
    flag: str
    not_modelled: str


def operator_rows(diagnosis: Diagnosis) -> tuple[OperatorRow, ...]:
    """Return one row for each entry of a diagnosed profile, the longest first."""
    profile = diagnosis.profile
    wall_s = {entry.name: entry.time_s for entry in diagnosis.wall.entries}
    calls_s = call_times(profile.timeline, profile.entries) if profile.timeline else {}
    rows = [
        _row(limit, calls_s.get(index), wall_s.get(limit.entry.name, 0.0), diagnosis.total_s)
        for index, limit in enumerate(diagnosis.limits)
    ]
    return tuple(sorted(rows, key=lambda row: -row.time_s))


def call_times(timeline: Timeline, entries: Sequence[ProfileEntry]) -> dict[int, Floats]:
    """Return entry -> the time of each of its calls [s].

    Each event is a call of an entry that counts as many calls as it has events, as kernels by name do. A call of other
    entries is all that one operator launched; what was launched before the trace is of no operator in it, and left out
    where others are known.
    """
    gpu = timeline.gpu
    if not gpu.entry.size:
        return {}
    events = np.flatnonzero((gpu.entry >= 0) & timeline.in_window())
    entry, op = gpu.entry[events], gpu.op[events]
    counted = np.bincount(entry, minlength=len(entries))
    single = np.array([count == one.calls for count, one in zip(counted.tolist(), entries, strict=True)], dtype=bool)
    launched = np.bincount(entry, weights=op >= 0, minlength=len(entries)) > 0
    kept = single[entry] | (op >= 0) | ~launched[entry]
    events, entry, op = events[kept], entry[kept], op[kept]
    # the numbers of operators are below those of events
    call = np.where(single[entry] | (op < 0), len(timeline.ops) + events, op)
    keys, which = np.unique(entry * (len(timeline.ops) + len(gpu) + 1) + call, return_inverse=True)
    times_s: Floats = np.bincount(which, weights=gpu.duration_s[events], minlength=keys.size).astype(np.float64)
    # the keys are in the order of the entries
    edges = np.searchsorted(keys // (len(timeline.ops) + len(gpu) + 1), np.arange(len(entries) + 1))
    return {
        index: times_s[edges[index] : edges[index + 1]]
        for index in range(len(entries))
        if edges[index + 1] > edges[index]
    }


def _row(limit: Limit, calls_s: Floats | None, wall_s: float, total_s: float) -> OperatorRow:
    entry, op = limit.entry, limit.entry.op
    flop, moved = _work(limit)
    shown = "" if op is None else " ".join(f"{key}={op.params()[key]}" for key in op.given())
    spread = (None, None, None) if calls_s is None else (calls_s.min(), median(calls_s), calls_s.max())
    least, middle, most = (None if value is None else float(value) for value in spread)
    return OperatorRow(
        name=entry.name,
        op="" if op is None else op.op,
        dimensions=shown,
        calls=entry.calls,
        time_s=entry.time_s,
        fraction=wall_s / total_s if total_s else None,
        min_s=least,
        median_s=middle,
        max_s=most,
        flop_per_s=flop / entry.time_s if flop is not None and entry.time_s else None,
        bytes_per_s=moved / entry.time_s if moved is not None and entry.time_s else None,
        arithmetic_intensity_flop_per_byte=flop / moved if flop is not None and moved else None,
        limiter=limit.limiter,
        basis=str(limit.basis),
        bound_time_s=limit.attainable_time_s,
        efficiency=limit.efficiency,
        predicted_time_s=limit.predicted_time_s,
        predicted_low_s=limit.predicted_low_s,
        predicted_high_s=limit.predicted_high_s,
        kernels=entry.kernels,
        flag=limit.flag,
        not_modelled=limit.why_unknown or entry.not_modelled,
    )


def _work(limit: Limit) -> tuple[float | None, float | None]:
    """Return FLOP and bytes of all calls: what counters measured, else what the operator counts; None if unknown."""
    entry = limit.entry
    if entry.flop is not None or entry.bytes is not None:
        return entry.flop, entry.bytes
    if entry.op is None or not entry.calls:
        return None, None
    work, times = entry.op.work(), entry.calls * entry.op.count
    return float(work.flop) * times, float(work.least_bytes) * times

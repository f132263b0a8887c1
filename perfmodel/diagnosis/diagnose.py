"""From a profile to a diagnosis: the dimensions with their evidence, then the advice."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.hardware import Hardware
from perfmodel.core.kernel_name import function_of, short_name
from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import Dimension, Limiter
from perfmodel.diagnosis.advice.collect import collect_advice
from perfmodel.diagnosis.decompose import KERNEL_DIMENSIONS, Decomposition, decompose, dimension_of
from perfmodel.diagnosis.dispatches import dispatch_note
from perfmodel.diagnosis.evidence.busy import kernel_evidence, transfer_evidence
from perfmodel.diagnosis.evidence.gaps import idle_evidence, launch_evidence, sync_evidence
from perfmodel.diagnosis.limits import TOO_FAST, Basis, Limit, profile_limits
from perfmodel.diagnosis.measured_run import MeasuredRun
from perfmodel.diagnosis.result import Diagnosis, Evidence, Part, is_nothing
from perfmodel.diagnosis.untraced import untraced_notes, untraced_parts
from perfmodel.diagnosis.wall import wall_profile
from perfmodel.profile.effort import EFFORT, Effort
from perfmodel.profile.profile import Profile
from perfmodel.profile.timeline import Timeline

#: evidence for less than this share of the wall time is left out: it is rounding, or too small to matter
_LEAST_EVIDENCE = 1e-6
#: limiters from names alone are noted where they concern at least this share of the kernel time
_LEAST_BY_NAME = 0.01
#: time outside of the GPU's work is noted from this share of the trace on
_LEAST_OUTSIDE = 0.01
#: entries that a warning names
_LISTED = 3

_EVIDENCE: Mapping[Dimension, Callable[[MeasuredRun], tuple[Evidence, ...]]] = {
    **{dimension: partial(kernel_evidence, dimension=dimension) for dimension in KERNEL_DIMENSIONS},
    Dimension.LAUNCH: launch_evidence,
    Dimension.TRANSFER: transfer_evidence,
    Dimension.SYNC: sync_evidence,
    Dimension.IDLE: idle_evidence,
}


def diagnose(profile: Profile, hardware: Hardware | None = None, *, effort: Mapping[str, Effort] = EFFORT) -> Diagnosis:
    """Return where the time of a run goes, and which changes would save time.

    The wall time of a trace is divided without overlap into compute, memory, other kernels, launch, transfer, sync
    and idle (`perfmodel.diagnosis.decompose`); for several GPUs it is the mean over them. For a profile without a time
    line, only the dimensions that a table of times can tell are known.

    Parameters
    ----------
    profile : any profile.
    hardware : the machine that it was measured on. Without it, limiters follow from names and kinds of events, and
        there is no advice that needs a prediction (fusion, data types, bounds).
    effort : kind of change -> days of development and risk.
    """
    limits = profile_limits(profile, hardware)
    whole, profile, decomposition = profile.timeline, *_divided(profile, limits)
    timeline = profile.timeline
    if decomposition is None or whole is None or timeline is None:
        return _diagnose_untraced(profile, hardware, limits, effort)
    run = MeasuredRun(
        profile,
        wall_profile(profile, decomposition),
        decomposition.wall_s,
        {limit.entry.name: limit for limit in limits},
        hardware,
        decomposition,
        effort,
    )
    parts = tuple(_part(run, dimension) for dimension in Dimension)
    advice, not_advised = collect_advice(replace(run, evidence={part.dimension: part.evidence for part in parts}))
    notes = (*_outside_note(whole, timeline), *_notes(run))
    outside_s = _outside_s(whole, timeline)
    return Diagnosis(profile, hardware, decomposition, limits, run.wall, parts, advice, not_advised, notes, outside_s)


def wall_time(profile: Profile, hardware: Hardware | None = None) -> Profile:
    """Return a traced run as the profile of its wall time, as `Diagnosis.wall` is; any other profile as it is.

    Parameters
    ----------
    profile : any profile.
    hardware : as in `diagnose`.
    """
    if not is_traced(profile):
        return profile
    divided, decomposition = _divided(profile, profile_limits(profile, hardware))
    assert decomposition is not None  # as it is traced
    return wall_profile(divided, decomposition)


def is_traced(profile: Profile) -> bool:
    """Whether a profile has a time line with work of a GPU in its window, so that its wall time is known."""
    return profile.timeline is not None and bool(profile.timeline.overlaps_window().any())


def _divided(profile: Profile, limits: tuple[Limit, ...]) -> tuple[Profile, Decomposition | None]:
    """Return a traced profile between its first and last GPU work, and how its time divides; None without a trace."""
    if profile.timeline is None or not is_traced(profile):
        return profile, None
    timeline = profile.timeline.between_gpu_work()
    return replace(profile, timeline=timeline), decompose(timeline, _event_limiters(timeline, limits))


def _outside_s(whole: Timeline, timeline: Timeline) -> tuple[float, float]:
    """Return the time before the first and after the last piece of GPU work of a trace without steps [s]."""
    return timeline.window_s[0] - whole.window_s[0], whole.window_s[1] - timeline.window_s[1]


def _outside_note(whole: Timeline, timeline: Timeline) -> tuple[str, ...]:
    before_s, after_s = _outside_s(whole, timeline)
    if before_s + after_s < _LEAST_OUTSIDE * (whole.window_s[1] - whole.window_s[0]):
        return ()
    return (
        f"The trace marks no steps: {format_si(before_s, 's')} before the first and {format_si(after_s, 's')} after "
        "the last piece of GPU work stand apart, and count in no dimension.",
    )


def _event_limiters(timeline: Timeline, limits: tuple[Limit, ...]) -> NDArray[np.str_]:
    """Return the limiter of each GPU event: that of the entry that counts it."""
    # the last element stands for the entry -1
    by_entry = np.array([*(limit.limiter for limit in limits), Limiter.UNKNOWN])
    entry_of = timeline.gpu.entry
    return by_entry[entry_of] if entry_of.size else np.full(len(timeline.gpu), Limiter.UNKNOWN)


def _part(run: MeasuredRun, dimension: Dimension) -> Part:
    time_s = run.divided.time_s[dimension]
    least_s = _LEAST_EVIDENCE * run.total_s
    evidence = tuple(item for item in _EVIDENCE[dimension](run) if (item.time_s or 0.0) >= least_s)
    return Part(dimension, time_s, time_s / run.total_s, evidence)


def _diagnose_untraced(
    profile: Profile, hardware: Hardware | None, limits: tuple[Limit, ...], effort: Mapping[str, Effort]
) -> Diagnosis:
    by_name = {limit.entry.name: limit for limit in limits}
    run = MeasuredRun(profile, profile, profile.total_time_s, by_name, hardware, None, effort)
    advice, not_advised = collect_advice(run)
    notes = (*untraced_notes(run), *_machine_notes(run))
    return Diagnosis(profile, hardware, None, limits, profile, untraced_parts(run), advice, not_advised, notes)


def _notes(run: MeasuredRun) -> tuple[str, ...]:
    """Return notes that say what the times refer to, and how much time other work hides."""
    notes = []
    if run.num_gpus > 1:
        notes.append(f"Times are the mean over {run.num_gpus} GPUs.")
    divided = run.divided
    for work, what, time_s in (
        ("Kernels", "communication", divided.hidden_communication_s),
        ("Kernels and communication", "copies", divided.hidden_copy_s),
    ):
        if time_s > 0 and not is_nothing(time_s, run.total_s):
            notes.append(f"{work} hide {format_si(time_s / run.num_gpus, 's')} of {what}; it counts as their time.")
    return (*notes, *_machine_notes(run))


def _machine_notes(run: MeasuredRun) -> tuple[str, ...]:
    """Return notes on times that the machine cannot explain, on guessed limiters, and on dispatches in kernels."""
    return (*_too_fast(run), *_guessed(run), *dispatch_note(run.profile, run.hardware))


def _too_fast(run: MeasuredRun) -> tuple[str, ...]:
    """Return a note that names the entries that are faster than their bound, the longest first."""
    flagged = sorted((limit for limit in run.limits.values() if limit.flag), key=lambda limit: -limit.entry.time_s)
    if not flagged:
        return ()
    total_s = math.fsum(limit.entry.time_s for limit in run.limits.values())
    share = math.fsum(limit.entry.time_s for limit in flagged) / total_s
    names = ", ".join(
        f"{short_name(function_of(limit.entry.name))} ({1 / (limit.efficiency or 1.0):.2g} of its bound)"
        for limit in flagged[:_LISTED]
    )
    more = f" and {len(flagged) - _LISTED} more" if len(flagged) > _LISTED else ""
    return (f"WARNING: {100 * share:.3g} % of the time is {TOO_FAST}: {names}{more}.",)


def _guessed(run: MeasuredRun) -> tuple[str, ...]:
    """Return a note where the limiter of much kernel time is only a guess from names."""
    kernels = [
        limit for limit in run.limits.values() if dimension_of(limit.limiter) in (Dimension.COMPUTE, Dimension.MEMORY)
    ]
    time_s = sum(limit.entry.time_s for limit in kernels)
    by_name_s = sum(limit.entry.time_s for limit in kernels if limit.basis == Basis.NAME)
    if not time_s or by_name_s < _LEAST_BY_NAME * time_s:
        return ()
    remedy = "" if run.hardware else " Pass --on HW to compare with a machine."
    return (f"The limiter is only a guess from names for {100 * by_name_s / time_s:.0f} % of the kernel time.{remedy}",)

"""From a profile to a diagnosis: dimensions with evidence, then advice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.hardware import Hardware
from perfmodel.core.units import format_si
from perfmodel.diagnosis import tables
from perfmodel.diagnosis.advice.advise import advise
from perfmodel.diagnosis.case import Case
from perfmodel.diagnosis.decompose import (
    COMPUTE,
    DIMENSIONS,
    IDLE,
    LAUNCH,
    MEMORY,
    OTHER,
    SYNC,
    TRANSFER,
    decompose,
    event_dimensions,
)
from perfmodel.diagnosis.evidence.busy import kernel_evidence, transfer_evidence
from perfmodel.diagnosis.evidence.gaps import idle_evidence, launch_evidence, sync_evidence
from perfmodel.diagnosis.limits import UNKNOWN, Limit, limits
from perfmodel.diagnosis.result import Diagnosis, Evidence, Part
from perfmodel.diagnosis.wall import wall_profile
from perfmodel.profile.effort import EFFORT, Effort
from perfmodel.profile.profile import Profile
from perfmodel.profile.timeline import Timeline

#: evidence of less than this share of the wall is rounding, or nobody's concern
_LEAST_TOLD = 1e-6


def diagnose(profile: Profile, hardware: Hardware | None = None, *, effort: Mapping[str, Effort] = EFFORT) -> Diagnosis:
    """Return where the time of a run goes, and what would bring it back.

    The wall time of a trace is divided without overlap into compute, memory, other kernels, launch, transfer, sync
    and idle (`perfmodel.diagnosis.decompose`); for several GPUs it is the mean. A profile without a time
    line has the parts that a table of times can tell, the others are unknown.

    Parameters
    ----------
    profile : any profile.
    hardware : the machine that it was measured on. Without it names and kinds tell what limits a kernel, and advice
        that needs a prediction (fusion, data types, bounds) is not given.
    effort : kind of advice -> days of development and risk.
    """
    found = limits(profile, hardware)
    timeline = profile.timeline
    if timeline is None or not _has_gpu_work(timeline):
        return _of_table(profile, hardware, found, effort)
    limiter = _limiters(timeline, found)
    divided = decompose(timeline, limiter)
    case = Case(
        profile,
        wall_profile(profile, divided),
        divided.wall_s,
        {one.entry.name: one for one in found},
        hardware,
        divided,
        event_dimensions(timeline, limiter),
        effort,
    )
    parts = tuple(_part(case, dimension) for dimension in DIMENSIONS)
    advice, left = advise(replace(case, evidence={part.dimension: part.evidence for part in parts}))
    return Diagnosis(profile, hardware, divided, found, case.wall, parts, advice, left, _notes(case))


def _has_gpu_work(timeline: Timeline) -> bool:
    low, high = timeline.window_s
    return bool(((timeline.gpu.end_s > low) & (timeline.gpu.start_s < high)).any())


def _limiters(timeline: Timeline, found: tuple[Limit, ...]) -> NDArray[np.str_]:
    """Return what limits each event: what limits the entry that counts it."""
    named = np.array([*(one.limiter for one in found), UNKNOWN])
    linked = timeline.gpu.entry
    return named[linked] if linked.size else np.full(len(timeline.gpu), UNKNOWN)


_EVIDENCE: Mapping[str, Callable[[Case], tuple[Evidence, ...]]] = {
    **{name: partial(kernel_evidence, dimension=name) for name in (COMPUTE, MEMORY, OTHER)},
    LAUNCH: launch_evidence,
    TRANSFER: transfer_evidence,
    SYNC: sync_evidence,
    IDLE: idle_evidence,
}


def _part(case: Case, dimension: str) -> Part:
    time_s = case.divided.time_s[dimension]
    evidence = _EVIDENCE[dimension](case)
    told = tuple(one for one in evidence if (one.time_s or 0.0) >= _LEAST_TOLD * case.total_s)
    return Part(dimension, time_s, time_s / case.total_s, told)


def _of_table(
    profile: Profile, hardware: Hardware | None, found: tuple[Limit, ...], effort: Mapping[str, Effort]
) -> Diagnosis:
    by_name = {one.entry.name: one for one in found}
    none = np.empty(0, dtype=np.str_)
    case = Case(profile, profile, profile.total_time_s, by_name, hardware, None, none, effort)
    parts = tables.table_parts(case)
    advice, left = advise(case)
    notes = (*tables.table_notes(case), *_machine_notes(case))
    return Diagnosis(profile, hardware, None, found, profile, parts, advice, left, notes)


def _notes(case: Case) -> tuple[str, ...]:
    """Say what the figures are of, and what was hidden behind other work."""
    said = []
    if case.gpus > 1:
        said.append(f"Times are the mean over {case.gpus} GPUs.")
    hidden = case.divided.hidden_communication_s, case.divided.hidden_copy_s
    for what, time_s in zip(("communication", "copies"), hidden, strict=True):
        if time_s > 0:
            said.append(
                f"{format_si(time_s / case.gpus, 's')} of {what} is hidden behind kernels and counted as theirs."
            )
    return (*said, *_machine_notes(case))


def _machine_notes(case: Case) -> tuple[str, ...]:
    """Say how far it is known what limits the kernels."""
    kernels = [one for one in case.limits.values() if one.limiter in ("compute", "memory")]
    time_s = sum(one.entry.time_s for one in kernels)
    if not time_s:
        return ()
    by_name = sum(one.entry.time_s for one in kernels if one.basis == "name")
    if by_name < 0.01 * time_s:
        return ()
    return (
        f"For {100 * by_name / time_s:.0f} % of the kernel time only names tell what limits it"
        f"{'' if case.hardware else ': no machine is named to compare with (--on)'}.",
    )

"""Profiles without a time line: the dimensions that a table of times can tell, and the evidence in its API calls."""

from __future__ import annotations

import math

from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import Dimension, EventKind
from perfmodel.diagnosis.decompose import KERNEL_DIMENSIONS, dimension_of
from perfmodel.diagnosis.evidence.busy import limit_text
from perfmodel.diagnosis.measured_run import MeasuredRun
from perfmodel.diagnosis.result import Evidence, Part
from perfmodel.profile.profile import ProfileEntry

#: how calls of CUDA, HIP and HSA begin
_APIS = ("cuda", "hip", "cu", "__hip", "hsa_")
#: words in the names of such calls, by the dimension that they are evidence for
_CALLS = {
    Dimension.SYNC: ("synchronize", "waitevent", "hsa_signal_wait"),
    Dimension.TRANSFER: ("memcpy", "memset", "async_copy"),
    Dimension.LAUNCH: ("launch",),
}
#: dimensions that a table of kernels and copies can tell
_KNOWN = (*KERNEL_DIMENSIONS, Dimension.TRANSFER)


def untraced_parts(run: MeasuredRun) -> tuple[Part, ...]:
    """Return the dimensions of a profile that is a table of times: of kernels and copies, not of gaps.

    Launch, sync and idle time are unknown, since a table does not record when anything ran: time and fraction are
    None. Calls of the CUDA API in the table are evidence for them, in CPU time.
    """
    groups: dict[Dimension, list[ProfileEntry]] = {dimension: [] for dimension in Dimension}
    for entry in run.profile.entries:
        groups[_api_dimension(entry) or dimension_of(run.limits[entry.name].limiter)].append(entry)
    times = {
        dimension: math.fsum(entry.time_s for entry in group if not _api_dimension(entry))
        for dimension, group in groups.items()
    }
    total_s = math.fsum(times.values())
    parts = []
    for dimension, group in groups.items():
        evidence = tuple(
            Evidence(entry.name, entry.time_s, entry.calls, _detail(run, entry))
            for entry in sorted(group, key=lambda entry: -entry.time_s)
        )
        time_s = times[dimension] if dimension in _KNOWN and total_s > 0 else None
        parts.append(Part(dimension, time_s, None if time_s is None else time_s / total_s, evidence))
    return tuple(parts)


def _api_dimension(entry: ProfileEntry) -> Dimension | None:
    """Return the dimension that a call of the CUDA, HIP or HSA API is evidence for; None for other entries."""
    name = entry.name.lower()
    if entry.category != EventKind.HOST or not name.startswith(_APIS):
        return None
    matching = (dimension for dimension, words in _CALLS.items() if any(word in name for word in words))
    return next(matching, Dimension.IDLE)


def _detail(run: MeasuredRun, entry: ProfileEntry) -> str:
    if _api_dimension(entry):
        return "CPU time in this call"
    return ", ".join((limit_text(run.limits[entry.name]), *_readings(entry)))


def _readings(entry: ProfileEntry) -> list[str]:
    """Return further readings of the profile as text: occupancy, sectors per request, bytes and rate of copies."""
    metrics = entry.metrics
    texts = []
    occupancy = metrics.get("achieved_occupancy")
    if occupancy is not None:
        texts.append(f"{100 * occupancy:.0f} % of the warps resident")
    for op in ("load", "store"):
        sectors = metrics.get(f"{op}_sectors_per_request")
        if sectors is not None:
            texts.append(f"{sectors:.3g} sectors per {op}")
    moved, pageable = metrics.get("copied_bytes"), metrics.get("pageable_bytes")
    if moved and entry.time_s:
        texts.append(f"{format_si(moved, 'B')} at {format_si(moved / entry.time_s, 'B/s')}")
    if moved and pageable:
        texts.append(f"{100 * pageable / moved:.0f} % of it pageable")
    return texts


def untraced_notes(run: MeasuredRun) -> tuple[str, ...]:
    """Return notes that say what the fractions refer to, and what a table cannot tell."""
    if run.profile.timeline is not None:
        return ("The trace contains no GPU work: the times are CPU times.",)
    return (
        "The profile has no time line: fractions refer to the listed time, not to the wall time, and launch, sync and "
        "idle time are unknown. A trace (torch.profiler, nsys, rocprofv3) contains them.",
    )

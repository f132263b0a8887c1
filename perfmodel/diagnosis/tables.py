"""Profiles without a time line: what of the dimensions can be known, and what the API's own table adds."""

from __future__ import annotations

import math

from perfmodel.core.units import format_si
from perfmodel.diagnosis.case import Case
from perfmodel.diagnosis.decompose import COMPUTE, DIMENSIONS, IDLE, LAUNCH, MEMORY, OTHER, SYNC, TRANSFER
from perfmodel.diagnosis.evidence.busy import said_of
from perfmodel.diagnosis.result import Evidence, Part
from perfmodel.profile.profile import HOST, ProfileEntry

#: what calls of the CUDA and HIP API do, by words in their names
_CALLS = {SYNC: ("synchronize", "waitevent"), TRANSFER: ("memcpy", "memset"), LAUNCH: ("launch",)}


def table_parts(case: Case) -> tuple[Part, ...]:
    """Return the dimensions of a profile that is a table of times: of kernels and copies, not of gaps.

    Launch, sync and idle time are not known, since a table does not say when anything ran: time and fraction are
    None. Calls of the CUDA API in the table are evidence for them, on the CPU's clock.
    """
    named = {"compute": COMPUTE, "memory": MEMORY, "transfer": TRANSFER}
    groups: dict[str, list[ProfileEntry]] = {dimension: [] for dimension in DIMENSIONS}
    for entry in case.profile.entries:
        groups[_api_dimension(entry) or named.get(case.limits[entry.name].limiter, OTHER)].append(entry)
    times = {
        key: math.fsum(entry.time_s for entry in group if not _api_dimension(entry)) for key, group in groups.items()
    }
    whole_s = math.fsum(times.values())
    parts = []
    for dimension in DIMENSIONS:
        evidence = tuple(
            Evidence(entry.name, entry.time_s, entry.calls, _said(case, entry))
            for entry in sorted(groups[dimension], key=lambda entry: -entry.time_s)
        )
        known = dimension in _KNOWN and whole_s > 0
        time_s = times[dimension] if known else None
        parts.append(Part(dimension, time_s, None if time_s is None else time_s / whole_s, evidence))
    return tuple(parts)


#: what a table of kernels and copies can tell
_KNOWN = (COMPUTE, MEMORY, OTHER, TRANSFER)


def _api_dimension(entry: ProfileEntry) -> str:
    """Return the dimension that a call of the CUDA or HIP API is evidence for, or empty for other entries."""
    name = entry.name.lower()
    if entry.category != HOST or not name.startswith(("cuda", "hip", "cu")):
        return ""
    return next((dimension for dimension, words in _CALLS.items() if any(word in name for word in words)), IDLE)


def _said(case: Case, entry: ProfileEntry) -> str:
    if _api_dimension(entry):
        return "time of the CPU in this call"
    return ", ".join((said_of(case.limits[entry.name]), *_counted(entry)))


def _counted(entry: ProfileEntry) -> list[str]:
    """Return what the profile says beside the limit: occupancy, sectors of a request, bytes and rate of copies."""
    metrics = entry.metrics
    moved, pageable = metrics.get("copied_bytes"), metrics.get("pageable_bytes")
    copies = []
    if moved and entry.time_s:
        copies.append(f"{format_si(moved, 'B')} at {format_si(moved / entry.time_s, 'B/s')}")
    if moved and pageable:
        copies.append(f"{100 * pageable / moved:.0f} % of it pageable")
    occupancy = metrics.get("achieved_occupancy")
    said = [] if occupancy is None else [f"{100 * occupancy:.0f} % of the warps resident"]
    for key in ("load", "store"):
        sectors = metrics.get(f"{key}_sectors_per_request")
        if sectors is not None:
            said.append(f"{sectors:.3g} sectors a {key}")
    return [*said, *copies]


def table_notes(case: Case) -> tuple[str, ...]:
    """Say what the fractions are of, and what a table cannot tell."""
    if case.profile.timeline is not None:
        return ("The trace holds no work of a GPU: the times are those of the CPU.",)
    return (
        "The profile holds no time line: fractions are of the time that it lists, not of the wall, and what "
        "launching, waiting and idling cost is unknown. A trace (torch.profiler, nsys) shows them.",
    )

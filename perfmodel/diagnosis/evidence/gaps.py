"""What is behind the times in which a GPU runs nothing: who launches late, which calls wait, where the host is."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from perfmodel.core.units import format_si
from perfmodel.diagnosis.case import Case
from perfmodel.diagnosis.evidence.waits import calls_of, ops_around, stack_of
from perfmodel.diagnosis.evidence.whereabouts import where_away, where_busy, where_held_up, where_input
from perfmodel.diagnosis.gaps import AWAY_S, Gaps
from perfmodel.diagnosis.intervals import Floats
from perfmodel.diagnosis.result import Evidence
from perfmodel.profile.timeline import Ints

#: so many gaps of each reason say where they were spent, if they last `AWAY_S` or longer; the short ones are summed
_LISTED = 20
QUEUED_KERNELS = "between kernels that were queued"
#: what idle time is called
INPUT, AWAY, BUSY, HELD_UP = "input pipeline", "host away", "host busy", "held up"
#: where the gaps that are too short to be looked at one by one were
SHORT = "short ones"


def launch_evidence(case: Case) -> tuple[Evidence, ...]:
    """Return the late launches by the operator that was launching, and the gaps between queued kernels.

    The detail has the median gap, the median time from one launch to the next on that thread (the launch interval),
    and the median time of the kernels: where the interval is the longer one, the host sets the pace.
    """
    parts = [(launching(case, gaps), gaps.launch_s, gaps.after) for gaps in case.all_gaps()]
    label, length_s, after = (np.concatenate(column) for column in zip(*parts, strict=True))
    late = length_s > 0
    label, length_s, after = label[late], length_s[late], after[late]
    order = np.argsort(label, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(label[order])) + 1) if order.size else []
    found = []
    for mine in groups:
        detail = f"median gap {format_si(float(np.median(length_s[mine])), 's')}"
        detail += _pace(case, after[mine][after[mine] >= 0])
        name = _named(case, int(label[mine[0]]))
        found.append(Evidence(name, float(length_s[mine].sum()) / case.gpus, int(mine.size), detail))
    return tuple(sorted(found, key=lambda one: -(one.time_s or 0.0)))


#: labels of gaps beside the numbers of names: the kernel was queued, or the trace does not say who launched it
_QUEUED, _UNKNOWN = -2, -1


def launching(case: Case, gaps: Gaps) -> Ints:
    """Return for each gap the number of the name of the operator that was launching, else of the API call."""
    timeline = case.timeline
    if not len(timeline.api):
        return np.full(gaps.ahead.shape, _UNKNOWN, dtype=np.int64)
    call = np.where(gaps.after >= 0, timeline.gpu.launch[np.maximum(gaps.after, 0)], -1)
    known = np.maximum(call, 0)
    around = ops_around(timeline, np.where(call >= 0, timeline.api.op[known], -1))
    label = np.where(around >= 0, around, np.where(call >= 0, timeline.api.name[known], _UNKNOWN))
    return np.where(gaps.ahead, _QUEUED, label)


def _named(case: Case, label: int) -> str:
    if label == _QUEUED:
        return QUEUED_KERNELS
    return case.timeline.names[label] if label >= 0 else "an unknown call"


def _pace(case: Case, events: Ints) -> str:
    """Return the launch interval and the kernel time of some events, medians."""
    if not events.size:
        return ""
    gpu = case.timeline.gpu
    kernel = f", kernels {format_si(float(np.median(gpu.duration_s[events])), 's')}"
    interval_s = launch_intervals_s(case, gpu.launch[events])
    if not interval_s.size:
        return kernel
    return f", a launch every {format_si(float(np.median(interval_s)), 's')}{kernel}"


def launch_intervals_s(case: Case, calls: Ints) -> Floats:
    """Return the time from the launch before, on the same thread, to each of some launches [s]; -1 is no launch."""
    wanted = case.since_launch_s[calls[calls >= 0]]
    found: Floats = wanted[np.isfinite(wanted)]
    return found


def sync_evidence(case: Case) -> tuple[Evidence, ...]:
    """Return the waits by operator or API call: what the GPU lost, how often, in which call, and from which line."""
    timeline = case.timeline
    lost: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    longest: dict[str, tuple[float, int]] = {}
    for gaps in case.all_gaps():
        mine = np.flatnonzero(gaps.sync_s)
        labels = calls_of(timeline, gaps.sync_call[mine])
        for label, time_s, call in zip(labels, gaps.sync_s[mine].tolist(), gaps.sync_call[mine].tolist(), strict=True):
            lost[label] += time_s
            counts[label] += 1
            longest[label] = max(longest.get(label, (0.0, -1)), (time_s, call))
    found = []
    for label, time_s in lost.items():
        call = longest[label][1]
        stack = stack_of(timeline, call) if call >= 0 else ""
        api = timeline.names[timeline.api.name[call]] if call >= 0 else ""
        words = [f"the host waits in {api}" if api != label else "", f"at {stack}" if stack else ""]
        detail = ", ".join(word for word in words if word)
        found.append(Evidence(label, time_s / case.gpus, counts[label], detail))
    return tuple(sorted(found, key=lambda one: -(one.time_s or 0.0)))


def idle_evidence(case: Case) -> tuple[Evidence, ...]:
    """Return why the GPU idled otherwise, and where the host was: the longest gaps one by one, the rest summed."""
    found: list[Evidence] = []
    for part, what, where in (
        ("input_s", INPUT, where_input),
        ("away_s", AWAY, where_away),
        ("busy_s", BUSY, where_busy),
        ("queued_s", HELD_UP, where_held_up),
    ):
        times: dict[str, float] = defaultdict(float)
        counts: dict[str, int] = defaultdict(int)
        longest: dict[str, float] = defaultdict(float)
        for gaps in case.all_gaps():
            length_s = getattr(gaps, part)
            order = np.argsort(-length_s, kind="stable")[: int(np.count_nonzero(length_s))]
            for rank, index in enumerate(order.tolist()):
                told = rank < _LISTED and (length_s[index] >= AWAY_S or rank == 0)
                detail = where(case.timeline, gaps, index) if told else SHORT
                times[detail] += float(length_s[index])
                counts[detail] += 1
                longest[detail] = max(longest[detail], float(length_s[index]))
        for detail, time_s in times.items():
            most = f"longest {format_si(longest[detail], 's')}" if counts[detail] > 1 else ""
            said = ": ".join(word for word in (most, detail) if word)
            found.append(Evidence(what, time_s / case.gpus, counts[detail], said))
    return tuple(sorted(found, key=lambda one: -(one.time_s or 0.0)))

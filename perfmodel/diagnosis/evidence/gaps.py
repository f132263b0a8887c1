"""The late launches, waits and idle periods that account for the time in which a GPU runs nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from perfmodel.core.arrays import median
from perfmodel.core.units import format_si
from perfmodel.diagnosis.call_sites import operators_around, python_line, wait_labels
from perfmodel.diagnosis.evidence.busy import longest_first
from perfmodel.diagnosis.evidence.host_activity import (
    busiest_activity,
    delayed_event,
    input_range,
    operators_before_and_after,
)
from perfmodel.diagnosis.gaps import NOT_LAUNCHING_S, Gaps, IdleReason
from perfmodel.diagnosis.measured_run import MeasuredRun
from perfmodel.diagnosis.result import Evidence
from perfmodel.profile.timeline import Floats, Ints, Timeline

#: for each reason, so many gaps of `NOT_LAUNCHING_S` or longer are described one by one; the others are summed
_LISTED = 20
QUEUED_KERNELS = "between queued kernels"
#: detail of the gaps that are not described one by one
SHORT_GAPS = "short gaps"
#: labels of gaps that are no index of a name: the kernel was launched ahead, or the trace lacks its launch
_QUEUED, _UNKNOWN = -2, -1

_ACTIVITIES: Mapping[IdleReason, Callable[[Timeline, Gaps, int], str]] = {
    IdleReason.INPUT: input_range,
    IdleReason.UNTRACED: operators_before_and_after,
    IdleReason.HOST_WORK: busiest_activity,
    IdleReason.DELAYED: delayed_event,
}


@dataclass
class _Total:
    """Gaps with one label: their time on all GPUs [s], their number, and the longest with the call that waited."""

    time_s: float = 0.0
    count: int = 0
    longest_s: float = 0.0
    call: int = -1

    def add(self, time_s: float, call: int = -1) -> None:
        self.time_s += time_s
        self.count += 1
        if (time_s, call) > (self.longest_s, self.call):
            self.longest_s, self.call = time_s, call


def launch_evidence(run: MeasuredRun) -> tuple[Evidence, ...]:
    """Return the late launches by the operator that launched, and the gaps between queued kernels.

    The detail has the median gap, the median time from one launch to the next on that thread (the launch interval),
    and the median kernel time: where the launch interval is longer, the host sets the pace.
    """
    columns = [(launch_labels(run, gaps), gaps.launch_s, gaps.after) for gaps in run.all_gaps()]
    label, length_s, after = (np.concatenate(column) for column in zip(*columns, strict=True))
    late = length_s > 0
    label, length_s, after = label[late], length_s[late], after[late]
    order = np.argsort(label, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(label[order])) + 1) if order.size else []
    evidence = []
    for group in groups:
        detail = f"median gap {format_si(median(length_s[group]), 's')}"
        detail += _pace(run, after[group][after[group] >= 0])
        name = _label_text(run, int(label[group[0]]))
        evidence.append(Evidence(name, float(length_s[group].sum()) / run.num_gpus, int(group.size), detail))
    return longest_first(evidence)


def launch_labels(run: MeasuredRun, gaps: Gaps) -> Ints:
    """Return for each gap the name of the operator that launched, else of the API call; see `_QUEUED`, `_UNKNOWN`."""
    timeline = run.timeline
    if not len(timeline.api):
        return np.full(gaps.launched_ahead.shape, _UNKNOWN, dtype=np.int64)
    call = np.where(gaps.after >= 0, timeline.gpu.launch[np.maximum(gaps.after, 0)], -1)
    valid = np.maximum(call, 0)
    around = operators_around(timeline, np.where(call >= 0, timeline.api.op[valid], -1))
    label = np.where(around >= 0, around, np.where(call >= 0, timeline.api.name[valid], _UNKNOWN))
    return np.where(gaps.launched_ahead, _QUEUED, label)


def _label_text(run: MeasuredRun, label: int) -> str:
    if label == _QUEUED:
        return QUEUED_KERNELS
    return run.timeline.names[label] if label >= 0 else "unknown call"


def _pace(run: MeasuredRun, events: Ints) -> str:
    """Return the medians of launch interval and kernel time of some events as text."""
    if not events.size:
        return ""
    gpu = run.timeline.gpu
    kernel = f", kernels {format_si(median(gpu.duration_s[events]), 's')}"
    interval_s = launch_intervals_s(run, gpu.launch[events])
    if not interval_s.size:
        return kernel
    return f", a launch every {format_si(median(interval_s), 's')}{kernel}"


def launch_intervals_s(run: MeasuredRun, calls: Ints) -> Floats:
    """Return the time from the previous launch on the same thread to each launch [s]; a call of -1 is skipped."""
    since_s = run.since_launch_s[calls[calls >= 0]]
    intervals_s: Floats = since_s[np.isfinite(since_s)]
    return intervals_s


def sync_evidence(run: MeasuredRun) -> tuple[Evidence, ...]:
    """Return the waits by operator or API call: idle GPU time, number, the call that waits, and the line of Python."""
    timeline = run.timeline
    totals: defaultdict[str, _Total] = defaultdict(_Total)
    for gaps in run.all_gaps():
        waited = np.flatnonzero(gaps.sync_s)
        calls = gaps.sync_call[waited]
        for label, time_s, call in zip(
            wait_labels(timeline, calls), gaps.sync_s[waited].tolist(), calls.tolist(), strict=True
        ):
            totals[label].add(time_s, call)
    evidence = []
    for label, total in totals.items():
        line, api = "", ""
        if total.call >= 0:
            line, api = python_line(timeline, total.call), timeline.names[timeline.api.name[total.call]]
        texts = [f"the host waits in {api}" if api != label else "", f"at {line}" if line else ""]
        detail = ", ".join(text for text in texts if text)
        evidence.append(Evidence(label, total.time_s / run.num_gpus, total.count, detail))
    return longest_first(evidence)


def idle_evidence(run: MeasuredRun) -> tuple[Evidence, ...]:
    """Return the idle time by reason with the activity of the host: the longest gaps one by one, the others summed."""
    return longest_first([item for reason in IdleReason for item in _idle_with(run, reason)])


def _idle_with(run: MeasuredRun, reason: IdleReason) -> list[Evidence]:
    totals: defaultdict[str, _Total] = defaultdict(_Total)
    for gaps in run.all_gaps():
        length_s = gaps.idle_s[reason]
        order = np.argsort(-length_s, kind="stable")[: int(np.count_nonzero(length_s))]
        for rank, index in enumerate(order.tolist()):
            is_listed = rank < _LISTED and (length_s[index] >= NOT_LAUNCHING_S or rank == 0)
            detail = _ACTIVITIES[reason](run.timeline, gaps, index) if is_listed else SHORT_GAPS
            totals[detail].add(float(length_s[index]))
    evidence = []
    for detail, total in totals.items():
        longest = f"longest {format_si(total.longest_s, 's')}" if total.count > 1 else ""
        text = ": ".join(part for part in (longest, detail) if part)
        evidence.append(Evidence(reason, total.time_s / run.num_gpus, total.count, text))
    return evidence

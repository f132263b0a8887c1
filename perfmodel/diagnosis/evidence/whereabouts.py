"""Where the host was during a gap of the GPU: inside which call or operator, between which, under which annotation."""

from __future__ import annotations

import numpy as np

from perfmodel.core.units import format_si
from perfmodel.diagnosis.evidence.waits import op_around
from perfmodel.diagnosis.gaps import INPUT_PIPELINE, Gaps
from perfmodel.diagnosis.intervals import Floats
from perfmodel.profile.profile import Profile
from perfmodel.profile.timeline import STEP_NAME, HostRanges, Ints, Timeline

#: a call or operator that takes this share of a gap is where the host was
_MOST = 0.5


def _thread(timeline: Timeline, event: int) -> int | None:
    """Return the thread that launched an event, or None."""
    call = int(timeline.gpu.launch[event]) if event >= 0 else -1
    return int(timeline.api.thread[call]) if call >= 0 else None


def _overlap(start_s: Floats, end_s: Floats, low: float, high: float) -> Floats:
    found: Floats = np.minimum(end_s, high) - np.maximum(start_s, low)
    return found


def _under(timeline: Timeline, low: float, high: float) -> str:
    """Return the innermost annotation around a gap's middle but the profiler's steps: ", in forward"."""
    marks, middle = timeline.annotations, (low + high) / 2
    around = np.flatnonzero((marks.start_s <= middle) & (marks.end_s > middle))
    is_step = [timeline.names[number].startswith(STEP_NAME) for number in marks.name[around].tolist()]
    around = around[~np.array(is_step, dtype=bool)]
    if not around.size:
        return ""
    inner = around[np.argmin(marks.duration_s[around])]
    return f", in {timeline.names[marks.name[inner]]}"


def where_busy(timeline: Timeline, gaps: Gaps, index: int) -> str:
    """Return the runtime call, or else the innermost operator, that takes most of a gap."""
    low, high = float(gaps.start_s[index]), float(gaps.end_s[index])
    thread = _thread(timeline, int(gaps.after[index]))
    api, ops = timeline.api, timeline.ops
    under = _under(timeline, low, high)
    inside = _overlap(api.start_s, api.end_s, low, high) if len(api) else np.empty(0)
    if inside.size and thread is not None:
        inside = np.where(api.thread == thread, inside, 0.0)
    # of the gap's part that counts as busy
    least = _MOST * float(gaps.busy_s[index])
    if inside.size and inside.max() >= least:
        call = int(inside.argmax())
        op = op_around(timeline, int(api.op[call]))
        return f"{timeline.names[api.name[call]]}{f' under {op}' if op else ''}{under}"
    inner = _innermost(ops, thread, low, high, least)
    if inner >= 0:
        return f"{timeline.names[ops.name[inner]]} on the CPU{under}"
    return f"several operators on the CPU{under}"


def _innermost(ops: HostRanges, thread: int | None, low: float, high: float, least: float) -> int:
    """Return the shortest range that covers enough of a gap, or -1."""
    if not len(ops):
        return -1
    inside = _overlap(ops.start_s, ops.end_s, low, high)
    enough = np.flatnonzero((inside >= least) & ((ops.thread == thread) if thread is not None else True))
    return int(enough[np.argmin(ops.duration_s[enough])]) if enough.size else -1


def where_away(timeline: Timeline, gaps: Gaps, index: int) -> str:
    """Return which operators the host was between."""
    low, high = float(gaps.start_s[index]), float(gaps.end_s[index])
    thread = _thread(timeline, int(gaps.after[index]))
    ops = timeline.ops
    here = np.flatnonzero(ops.thread == thread) if thread is not None else np.arange(len(ops))
    before, after = _around(ops, here, (low + high) / 2)
    words = [
        f"after {timeline.names[ops.name[before]]}" if before >= 0 else "",
        f"before {timeline.names[ops.name[after]]}" if after >= 0 else "before the end",
    ]
    return f"{' and '.join(word for word in words if word)}{_under(timeline, low, high)}"


def _around(ops: HostRanges, here: Ints, middle_s: float) -> tuple[int, int]:
    """Return the operator that ended last before a time, and the one that begins first after it."""
    ended = here[ops.end_s[here] <= middle_s]
    begins = here[ops.start_s[here] >= middle_s]
    before = int(ended[np.argmax(ops.end_s[ended])]) if ended.size else -1
    return before, int(begins[0]) if begins.size else -1


def where_input(timeline: Timeline, gaps: Gaps, index: int) -> str:
    """Return the name of the input pipeline's range in a gap."""
    low, high = float(gaps.start_s[index]), float(gaps.end_s[index])
    for ranges in (timeline.ops, timeline.annotations):
        if not len(ranges):
            continue
        for one in np.flatnonzero(_overlap(ranges.start_s, ranges.end_s, low, high) > 0).tolist():
            name = timeline.names[int(ranges.name[one])]
            if INPUT_PIPELINE.search(name):
                return name
    return ""


def where_held_up(timeline: Timeline, gaps: Gaps, index: int) -> str:
    """Return which event was held up, when it was asked for, and what the host did meanwhile."""
    event = int(gaps.after[index])
    if event < 0:
        return ""
    gpu, api = timeline.gpu, timeline.api
    call = int(gpu.launch[event])
    asked = f", asked for {format_si(float(gpu.start_s[event] - api.end_s[call]), 's')} before" if call >= 0 else ""
    low, high = float(gaps.start_s[index]), float(gaps.end_s[index])
    inside = _overlap(api.start_s, api.end_s, low, high) if len(api) else np.empty(0)
    waits = int(inside.argmax()) if inside.size and inside.max() >= _MOST * (high - low) else -1
    meanwhile = f"; the host was in {timeline.names[api.name[waits]]}" if waits >= 0 else ""
    return f"{timeline.names[gpu.name[event]]}{asked}{meanwhile}{_under(timeline, low, high)}"


def count_steps(profile: Profile) -> int:
    """Return how many steps of the profiler (ProfilerStep#5) lie in the window, by more than half; 0 without any."""
    timeline = profile.timeline
    if timeline is None:
        return 0
    noted, (low, high) = timeline.annotations, timeline.window_s
    found = set()
    for name, start_s, duration_s in zip(
        noted.name.tolist(), noted.start_s.tolist(), noted.duration_s.tolist(), strict=True
    ):
        inside_s = min(start_s + duration_s, high) - max(start_s, low)
        if timeline.names[name].startswith(STEP_NAME) and inside_s > duration_s / 2:
            found.add(timeline.names[name])
    return len(found)

"""What the host did during a gap of the GPU: the call or operator it was in, or between, and the annotation."""

from __future__ import annotations

import numpy as np

from perfmodel.core.units import format_si
from perfmodel.diagnosis.call_sites import operator_around
from perfmodel.diagnosis.gaps import Gaps, is_input_pipeline
from perfmodel.profile.timeline import STEP_NAME, Floats, HostRanges, Ints, Timeline

#: a call or operator that takes this share of a gap is reported as the host's activity
_MOST = 0.5


def _launching_thread(timeline: Timeline, event: int) -> int | None:
    """Return the thread that launched an event, or None."""
    call = int(timeline.gpu.launch[event]) if event >= 0 else -1
    return int(timeline.api.thread[call]) if call >= 0 else None


def _overlap_s(start_s: Floats, end_s: Floats, low_s: float, high_s: float) -> Floats:
    """Return how long spans overlap an interval [s]; negative for spans outside it."""
    overlap_s: Floats = np.minimum(end_s, high_s) - np.maximum(start_s, low_s)
    return overlap_s


def _annotation(timeline: Timeline, low_s: float, high_s: float) -> str:
    """Return the innermost annotation around the middle of a gap as ", in forward"; the profiler's steps do not count.

    Empty where there is none.
    """
    ranges, middle_s = timeline.annotations, (low_s + high_s) / 2
    around = np.flatnonzero((ranges.start_s <= middle_s) & (ranges.end_s > middle_s))
    is_step = [timeline.names[name].startswith(STEP_NAME) for name in ranges.name[around].tolist()]
    around = around[~np.array(is_step, dtype=bool)]
    if not around.size:
        return ""
    inner = around[np.argmin(ranges.duration_s[around])]
    return f", in {timeline.names[ranges.name[inner]]}"


def busiest_activity(timeline: Timeline, gaps: Gaps, index: int) -> str:
    """Return the runtime call, else the innermost operator, that takes most of a gap's host work."""
    low_s, high_s = float(gaps.start_s[index]), float(gaps.end_s[index])
    thread = _launching_thread(timeline, int(gaps.after[index]))
    api, ops = timeline.api, timeline.ops
    annotation = _annotation(timeline, low_s, high_s)
    inside_s = _overlap_s(api.start_s, api.end_s, low_s, high_s) if len(api) else np.empty(0)
    if inside_s.size and thread is not None:
        inside_s = np.where(api.thread == thread, inside_s, 0.0)
    least_s = _MOST * float(gaps.host_work_s[index])
    if inside_s.size and inside_s.max() >= least_s:
        call = int(inside_s.argmax())
        op = operator_around(timeline, int(api.op[call]))
        return f"{timeline.names[api.name[call]]}{f' under {op}' if op else ''}{annotation}"
    inner = _innermost(ops, thread, low_s, high_s, least_s)
    if inner >= 0:
        return f"{timeline.names[ops.name[inner]]} on the CPU{annotation}"
    return f"several operators on the CPU{annotation}"


def _innermost(ops: HostRanges, thread: int | None, low_s: float, high_s: float, least_s: float) -> int:
    """Return the shortest range that covers a gap for ``least_s`` or longer, or -1."""
    if not len(ops):
        return -1
    inside_s = _overlap_s(ops.start_s, ops.end_s, low_s, high_s)
    enough = np.flatnonzero((inside_s >= least_s) & ((ops.thread == thread) if thread is not None else True))
    return int(enough[np.argmin(ops.duration_s[enough])]) if enough.size else -1


def operators_before_and_after(timeline: Timeline, gaps: Gaps, index: int) -> str:
    """Return the operators between which the host ran nothing that the trace records."""
    low_s, high_s = float(gaps.start_s[index]), float(gaps.end_s[index])
    thread = _launching_thread(timeline, int(gaps.after[index]))
    ops = timeline.ops
    on_thread = np.flatnonzero(ops.thread == thread) if thread is not None else np.arange(len(ops))
    before, after = _neighbours(ops, on_thread, (low_s + high_s) / 2)
    texts = [
        f"after {timeline.names[ops.name[before]]}" if before >= 0 else "",
        f"before {timeline.names[ops.name[after]]}" if after >= 0 else "before the end",
    ]
    return f"{' and '.join(text for text in texts if text)}{_annotation(timeline, low_s, high_s)}"


def _neighbours(ops: HostRanges, candidates: Ints, middle_s: float) -> tuple[int, int]:
    """Return the operator that ended last before a time, and the one that starts first after it; -1 for none."""
    ended = candidates[ops.end_s[candidates] <= middle_s]
    starts = candidates[ops.start_s[candidates] >= middle_s]
    before = int(ended[np.argmax(ops.end_s[ended])]) if ended.size else -1
    return before, int(starts[0]) if starts.size else -1


def input_range(timeline: Timeline, gaps: Gaps, index: int) -> str:
    """Return the name of the input pipeline's range in a gap, or empty."""
    low_s, high_s = float(gaps.start_s[index]), float(gaps.end_s[index])
    is_input = is_input_pipeline(timeline)
    for ranges in (timeline.ops, timeline.annotations):
        if len(ranges):
            inside = is_input[ranges.name] & (_overlap_s(ranges.start_s, ranges.end_s, low_s, high_s) > 0)
            if inside.any():
                return timeline.names[int(ranges.name[inside.argmax()])]
    return ""


def delayed_event(timeline: Timeline, gaps: Gaps, index: int) -> str:
    """Return the event that started late, how long before its start it was launched, and the host's activity."""
    event = int(gaps.after[index])
    if event < 0:
        return ""
    gpu, api = timeline.gpu, timeline.api
    call = int(gpu.launch[event])
    ahead_s = float(gpu.start_s[event] - api.end_s[call]) if call >= 0 else 0.0
    launched = f", launched {format_si(ahead_s, 's')} before its start" if call >= 0 else ""
    low_s, high_s = float(gaps.start_s[index]), float(gaps.end_s[index])
    inside_s = _overlap_s(api.start_s, api.end_s, low_s, high_s) if len(api) else np.empty(0)
    longest = int(inside_s.argmax()) if inside_s.size and inside_s.max() >= _MOST * (high_s - low_s) else -1
    meanwhile = f"; meanwhile the host was in {timeline.names[api.name[longest]]}" if longest >= 0 else ""
    return f"{timeline.names[gpu.name[event]]}{launched}{meanwhile}{_annotation(timeline, low_s, high_s)}"

"""Why a GPU had nothing to do: each gap between its events, divided into launch, sync and idle time.

A gap ends with an event that some call on the CPU started. Until that call the GPU waits for the CPU, and the activity
of the calling thread gives the reason. After the call the GPU waits for the event to start:

- sync: the thread was inside a call that waits for the GPU, or on its way from that call to the next launch: without
  the wait it would have launched earlier;
- launch: the thread was in the framework, or in Python between two framework operators, and launched late; also the
  latency between the call and the start of the event, and between two events that were both launched in time;
- idle: everything else, by `IdleReason`.

The division into host and device waits follows HolisticTraceAnalysis' idle-time breakdown ("host wait" and "kernel
wait"); the host's part is divided further.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.arrays import distinct
from perfmodel.diagnosis.intervals import complement, covered_s, minus, union
from perfmodel.profile.timeline import CallKind, Floats, Ints, Timeline

#: a thread that runs no operator and no runtime call for this long, or that works this long between two runtime calls
#: or inside one, is not launching [s]. In 9 open traces of PyTorch (2021-2026; TraceLens, HTA, Kineto, nsys-ai) 95 % of
#: the pauses between operators are below 75 us and 98.6 % or more below 0.2 ms; 99.3 % of the times from one runtime
#: call to the next are below 1 ms. Only a warm-up (AlexNet) and replayed graphs have more long ones.
NOT_LAUNCHING_S = 1e-3
#: longest usual time from the end of an event to the start of the next one that was launched in time [s]: in the same
#: traces 1.0 to 1.7 us in the median and 2 to 7 us for 95 % on NVIDIA GPUs, 1 ns and up to 4 us on MI300X
QUEUED_GAP_S = 5e-6
#: an event starts within this time after its call returned, unless something delays it [s]: on an idle GPU 0 to 4 us in
#: the median of the same traces and below 5 us for 99 %, except for replayed graphs; this leaves a margin
START_LATENCY_S = 20e-6
#: names of ranges in which a thread waits for its input
INPUT_PIPELINE = re.compile(r"dataloader|data_loader|_next_data|enumerate\(|DataLoaderIter", re.IGNORECASE)
#: copies that wait for the GPU
_BLOCKING_COPY = re.compile(r"(cuda|hip|cu)Memcpy(?!.*Async)", re.IGNORECASE)


class IdleReason(enum.StrEnum):
    """Why a GPU idles although the host neither launches nor waits for it."""

    INPUT = "input pipeline"  # the thread is in the input pipeline
    UNTRACED = "untraced host code"  # the thread runs nothing that the trace records, for `NOT_LAUNCHING_S` or longer
    HOST_WORK = "host work"  # it works for `NOT_LAUNCHING_S` or longer without a launch, or in one call (cudaMalloc)
    DELAYED = "delayed start"  # the event was launched, and did not start within `START_LATENCY_S`


@dataclass(frozen=True)
class Gaps:
    """The times in which a GPU ran nothing; one element for each gap.

    Attributes
    ----------
    start_s, end_s : [s].
    before, after : indices of the GPU events around the gap; -1 at the ends of the window.
    launch_s, sync_s, input_s, untraced_s, host_work_s, delayed_s : the parts of the gap [s], which add up to its
        length: launch, sync, and the four reasons for idling.
    sync_call : index of the API call that waited, or -1.
    launched_ahead : whether the event after the gap was launched before the gap began.
    """

    start_s: Floats
    end_s: Floats
    before: Ints
    after: Ints
    launch_s: Floats
    sync_s: Floats
    input_s: Floats
    untraced_s: Floats
    host_work_s: Floats
    delayed_s: Floats
    sync_call: Ints
    launched_ahead: NDArray[np.bool_]

    @property
    def idle_s(self) -> Mapping[IdleReason, Floats]:
        """The part of each gap that each reason for idling explains [s]."""
        return {
            IdleReason.INPUT: self.input_s,
            IdleReason.UNTRACED: self.untraced_s,
            IdleReason.HOST_WORK: self.host_work_s,
            IdleReason.DELAYED: self.delayed_s,
        }


class HostTimes(NamedTuple):
    """When a thread did something else than launching: disjoint unions of shape (n, 2) [s]."""

    sync: Floats
    input: Floats
    untraced: Floats
    work: Floats


def waiting_calls(timeline: Timeline) -> NDArray[np.bool_]:
    """Return which API calls wait for the GPU: synchronisations, and copies that are not asynchronous."""
    api = timeline.api
    if not len(api):
        return np.zeros(0, dtype=bool)
    blocking = np.array([bool(_BLOCKING_COPY.search(name)) for name in timeline.names], dtype=bool)
    waits: NDArray[np.bool_] = (api.category == CallKind.SYNC) | ((api.category == CallKind.COPY) & blocking[api.name])
    return waits


def find_gaps(timeline: Timeline, events: Ints, window_s: tuple[float, float]) -> Gaps:
    """Return the gaps of one GPU, divided by reason.

    Parameters
    ----------
    timeline : the traced run.
    events : indices of the events of this GPU, ordered by start.
    window_s : start and end of the analysed part [s].
    """
    gpu = timeline.gpu
    start_s, end_s = gpu.start_s[events], gpu.end_s[events]
    idle = complement(union(start_s, end_s), window_s)
    after = np.searchsorted(start_s, idle[:, 0], side="left")
    zeros = np.zeros(len(idle))
    gaps = Gaps(
        start_s=idle[:, 0],
        end_s=idle[:, 1],
        before=_at(events, np.where(after > 0, _last_to_end(end_s)[after - 1], -1) if events.size else after - 1),
        after=_at(events, np.where(after < events.size, after, -1)),
        launch_s=zeros,
        sync_s=zeros,
        input_s=zeros,
        untraced_s=zeros,
        host_work_s=zeros,
        delayed_s=zeros,
        sync_call=np.full(len(idle), -1, dtype=np.int64),
        launched_ahead=np.zeros(len(idle), dtype=bool),
    )
    return _divided(gaps, timeline)


def _last_to_end(end_s: Floats) -> Ints:
    """Return for each event the index of the event, up to and including it, that ends last."""
    latest = end_s >= np.maximum.accumulate(end_s)
    indices: Ints = np.maximum.accumulate(np.where(latest, np.arange(end_s.size), 0))
    return indices


def _at(values: Ints, index: Ints) -> Ints:
    """Return ``values[index]``, and -1 where the index is -1."""
    return np.where(index >= 0, values[np.maximum(index, 0)], -1) if values.size else np.full(index.shape, -1)


def _divided(gaps: Gaps, timeline: Timeline) -> Gaps:
    """Return the gaps divided into their parts; without API calls the whole gap counts as untraced host code."""
    api = timeline.api
    if not len(api):
        return replace(gaps, untraced_s=gaps.end_s - gaps.start_s)
    call = _at(timeline.gpu.launch, gaps.after)
    recorded = call >= 0
    # An event whose call the trace lacks counts as launched in time if the gap before it has a usual length.
    assumed_s = np.where(gaps.after >= 0, gaps.end_s - QUEUED_GAP_S, np.inf)
    called_s = np.where(recorded, api.start_s[call], assumed_s)
    returned_s = np.where(recorded, api.end_s[call], assumed_s)
    launch_from_s = np.clip(called_s, gaps.start_s, gaps.end_s)
    # The duration of the call and the usual latency are launch time; after that the start is delayed.
    on_time_s = np.maximum(returned_s + START_LATENCY_S, gaps.start_s + QUEUED_GAP_S)
    on_time_s = np.clip(on_time_s, launch_from_s, gaps.end_s)
    # A call that takes this long does more than launching: it loads a module, or waits for memory.
    long_call_s = np.minimum(returned_s, gaps.end_s) - launch_from_s
    long_call_s = np.where(long_call_s >= NOT_LAUNCHING_S, long_call_s, 0.0)
    gaps = replace(
        gaps,
        launched_ahead=called_s <= gaps.start_s,
        launch_s=on_time_s - launch_from_s - long_call_s,
        host_work_s=long_call_s,
        delayed_s=gaps.end_s - on_time_s,
    )
    threads = np.where(recorded, api.thread[call], _main_thread(timeline))
    for thread in distinct(threads):
        of_thread = np.flatnonzero(threads == thread)
        gaps = _with_host_part(gaps, of_thread, launch_from_s[of_thread], int(thread), timeline)
    return gaps


def _main_thread(timeline: Timeline) -> int:
    """Return the thread that makes most of the API calls."""
    threads, counts = np.unique(timeline.api.thread, return_counts=True)
    return int(threads[np.argmax(counts)])


def _with_host_part(gaps: Gaps, indices: Ints, launch_from_s: Floats, thread: int, timeline: Timeline) -> Gaps:
    """Return the gaps with the part until the launching call divided, for the gaps whose next launch is by one thread.

    Parameters
    ----------
    gaps : all gaps.
    indices : those whose next launch is by the thread.
    launch_from_s : end of the part in which the GPU waits for the host, of each of these gaps [s].
    """
    api = timeline.api
    waits = np.flatnonzero((api.thread == thread) & waiting_calls(timeline))
    times = host_times(timeline, thread, (float(gaps.start_s[0]), float(gaps.end_s[-1])))
    start_s = gaps.start_s[indices]
    sync_s, input_s, untraced_s, work_s = (covered_s(part, start_s, launch_from_s) for part in times)
    rest_s = np.maximum(launch_from_s - start_s - sync_s - input_s - untraced_s - work_s, 0.0)
    call = _last_wait(api.start_s[waits], api.end_s[waits], start_s, launch_from_s)
    waited = call >= 0
    # After the last event of the window there is nothing left to launch.
    at_end = gaps.after[indices] < 0
    parts_s = {
        "launch_s": np.where(waited | at_end, 0.0, rest_s),
        "sync_s": sync_s + np.where(waited & ~at_end, rest_s, 0.0),
        "input_s": input_s,
        "untraced_s": untraced_s + np.where(at_end, rest_s, 0.0),
        "host_work_s": work_s,
    }
    changed = {}
    for key, part_s in parts_s.items():
        whole_s = getattr(gaps, key).copy()
        whole_s[indices] += part_s
        changed[key] = whole_s
    sync_call = gaps.sync_call.copy()
    sync_call[indices] = _at(waits, call)
    return replace(gaps, sync_call=sync_call, **changed)


def host_times(timeline: Timeline, thread: int, window_s: tuple[float, float]) -> HostTimes:
    """Return when a thread did something else than launching; in the rest of the window it launches."""
    api, ops = timeline.api, timeline.ops
    calls, operators = api.thread == thread, ops.thread == thread
    waits = calls & waiting_calls(timeline)
    sync = union(api.start_s[waits], api.end_s[waits])
    ranges = _input_ranges(timeline, thread)
    inputs = minus(ranges, sync)
    starts = np.concatenate((api.start_s[calls], ops.start_s[operators], ranges[:, 0]))
    ends = np.concatenate((api.end_s[calls], ops.end_s[operators], ranges[:, 1]))
    untraced = _long(complement(union(starts, ends), window_s))
    # Between two consecutive starts or ends of runtime calls nothing can be launched.
    points = np.sort(np.concatenate((api.start_s[calls], api.end_s[calls], window_s)))
    silent = _long(np.column_stack((points[:-1], points[1:])))
    explained = np.concatenate((sync, inputs, untraced))
    work = _long(minus(union(silent[:, 0], silent[:, 1]), union(explained[:, 0], explained[:, 1])))
    return HostTimes(sync, inputs, untraced, work)


def _long(intervals: Floats) -> Floats:
    """Return the intervals of `NOT_LAUNCHING_S` or more."""
    long: Floats = intervals[intervals[:, 1] - intervals[:, 0] >= NOT_LAUNCHING_S]
    return long


def _last_wait(wait_start_s: Floats, wait_end_s: Floats, start_s: Floats, end_s: Floats) -> Ints:
    """Return the index of the last wait that overlaps each interval, or -1.

    ``wait_start_s`` is ordered, and the waits of one thread do not overlap, so their ends are ordered, too.
    """
    if not wait_start_s.size:
        return np.full(start_s.shape, -1, dtype=np.int64)
    last = np.searchsorted(wait_start_s, end_s, side="left") - 1
    overlaps = (last >= 0) & (wait_end_s[np.maximum(last, 0)] > start_s)
    return np.where(overlaps, last, -1)


def _input_ranges(timeline: Timeline, thread: int) -> Floats:
    """Return when a thread was in its input pipeline, by the names of its operators and annotations."""
    is_input = is_input_pipeline(timeline)
    starts, ends = [np.empty(0)], [np.empty(0)]
    for ranges in (timeline.ops, timeline.annotations):
        if len(ranges):
            chosen = (ranges.thread == thread) & is_input[ranges.name]
            starts.append(ranges.start_s[chosen])
            ends.append(ranges.end_s[chosen])
    return union(np.concatenate(starts), np.concatenate(ends))


def is_input_pipeline(timeline: Timeline) -> NDArray[np.bool_]:
    """Return which of the time line's names are those of an input pipeline; shape (names,)."""
    return np.array([bool(INPUT_PIPELINE.search(name)) for name in timeline.names], dtype=bool)

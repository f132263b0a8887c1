"""Why a GPU had nothing to do: each gap between its events, divided into launch, sync and idle time.

A gap ends with an event that some call on the CPU started. Up to that call the GPU waits for the CPU, and what the
thread of the call did meanwhile says why; from the call on it waits for the event to begin:

- sync: the thread was inside a call that waits for the GPU; and what it took afterwards to ask for work again, since
  without that wait it would have asked earlier;
- launch: the thread was busy in the framework, or in Python between two of its operators, and asked late;
  and the latency between the call and the event's start, and between two events that were both asked for;
- idle: the thread was in the input pipeline; or in no operator, or busy without any call of the runtime (or in a
  single one: cudaMalloc, the loading of a module), for `AWAY_S` or longer; or the event was asked for and still
  did not start (`LATENCY_S` after the call returned): it waited for something else.

The division into what the host and what the device waits for follows HolisticTraceAnalysis' idle-time breakdown
("host wait" and "kernel wait"), with the host's part resolved further.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.diagnosis.intervals import Floats, complement, covered_s, minus, union
from perfmodel.profile.timeline import COPY, SYNC, Timeline

Ints = NDArray[np.int64]

#: a thread that runs no operator and no runtime call for this long, or works this long between two runtime calls, does
#: something else than launching [s]. In 9 open traces of PyTorch (2021-2026; TraceLens, HTA, Kineto, nsys-ai) 95 % of
#: the pauses between operators are below 75 us and 98.6 % or more below 0.2 ms; 99.3 % of the times from one runtime
#: call to the next are below 1 ms. Only a warm-up (AlexNet) and replayed graphs have more long ones.
AWAY_S = 1e-3
#: from the end of an event to the start of the next one that was asked for in time [s]: in the same traces 1.0 to
#: 1.7 us in the median and 2 to 7 us for 95 % on NVIDIA GPUs, 1 ns and up to 4 us on MI300X
BETWEEN_S = 5e-6
#: an event that was asked for starts within this time after its call returned where nothing holds it up [s]: on an idle
#: GPU 0 to 4 us in the median of the same traces and below 5 us for 99 %, but for replayed graphs; with room to spare
LATENCY_S = 20e-6
#: ranges in which a thread waits for its input
INPUT_PIPELINE = re.compile(r"dataloader|data_loader|_next_data|enumerate\(|DataLoaderIter", re.IGNORECASE)
#: calls that wait for the GPU though they are named after what they copy
_BLOCKING_COPY = re.compile(r"(cuda|hip|cu)Memcpy(?!.*Async)", re.IGNORECASE)


@dataclass(frozen=True)
class Gaps:
    """The times in which a GPU ran nothing, one element a gap.

    Attributes
    ----------
    start_s, end_s : [s].
    before, after : index into the GPU's events of those around it; -1 at the ends of the window.
    launch_s, sync_s, input_s, away_s, busy_s, queued_s : its parts [s], which add up to its length: launch, sync, and
        idle in the input pipeline, with the host away, with the host busy with something else than launching, and
        with the event asked for but held up.
    ahead : whether the event after it was asked for before it began.
    sync_call : index into the API calls of the one that waited, or -1.
    """

    start_s: Floats
    end_s: Floats
    before: Ints
    after: Ints
    launch_s: Floats
    sync_s: Floats
    input_s: Floats
    away_s: Floats
    busy_s: Floats
    queued_s: Floats
    sync_call: Ints
    ahead: NDArray[np.bool_]

    @property
    def idle_s(self) -> Floats:
        """The part of each gap that neither launching nor waiting explains [s]."""
        return self.input_s + self.away_s + self.busy_s + self.queued_s


def waiting_calls(timeline: Timeline) -> NDArray[np.bool_]:
    """Return which API calls wait for the GPU: synchronisations, and copies that are not asynchronous."""
    api = timeline.api
    if not len(api):
        return np.zeros(0, dtype=bool)
    blocking = np.array([bool(_BLOCKING_COPY.search(name)) for name in timeline.names], dtype=bool)
    found: NDArray[np.bool_] = (api.category == SYNC) | ((api.category == COPY) & blocking[api.name])
    return found


def find_gaps(timeline: Timeline, events: Ints, window_s: tuple[float, float]) -> Gaps:
    """Return the gaps of one GPU and what each was lost to.

    Parameters
    ----------
    timeline : the traced run.
    events : indices of the events of this GPU, ordered by start.
    window_s : start and end of what is looked at [s].
    """
    gpu = timeline.gpu
    start_s, end_s = gpu.start_s[events], gpu.end_s[events]
    open_ = complement(union(start_s, end_s), window_s)
    after = np.searchsorted(start_s, open_[:, 0], side="left")
    zeros = np.zeros(len(open_))
    gaps = Gaps(
        start_s=open_[:, 0],
        end_s=open_[:, 1],
        before=_at(events, np.where(after > 0, _last_to_end(end_s)[after - 1], -1) if events.size else after - 1),
        after=_at(events, np.where(after < events.size, after, -1)),
        launch_s=zeros,
        sync_s=zeros,
        input_s=zeros,
        away_s=zeros,
        busy_s=zeros,
        queued_s=zeros,
        sync_call=np.full(len(open_), -1, dtype=np.int64),
        ahead=np.zeros(len(open_), dtype=bool),
    )
    return _divided(gaps, timeline)


def _last_to_end(end_s: Floats) -> Ints:
    """Return, for each event, which of those up to it ends last."""
    latest = end_s >= np.maximum.accumulate(end_s)
    found: Ints = np.maximum.accumulate(np.where(latest, np.arange(end_s.size), 0))
    return found


def _at(values: Ints, index: Ints) -> Ints:
    """Return the values at some places, and -1 where the place is -1."""
    return np.where(index >= 0, values[np.maximum(index, 0)], -1) if values.size else np.full(index.shape, -1)


def _divided(gaps: Gaps, timeline: Timeline) -> Gaps:
    """Return the gaps with their parts; without API calls all of a gap is the host's, away."""
    api = timeline.api
    if not len(api):
        return replace(gaps, away_s=gaps.end_s - gaps.start_s)
    called = _calls_after(gaps, timeline)
    known = called >= 0
    # an event whose call the trace lacks was asked for in time where the gap before it is a usual one
    unseen_s = np.where(gaps.after >= 0, gaps.end_s - BETWEEN_S, np.inf)
    asked_s = np.where(known, api.start_s[called], unseen_s)
    turn_s = np.clip(asked_s, gaps.start_s, gaps.end_s)
    returned_s = np.where(known, api.end_s[called], unseen_s)
    # From the call on: its own duration and the usual latency are the launch's, the rest is held up.
    started_s = np.clip(np.maximum(returned_s + LATENCY_S, gaps.start_s + BETWEEN_S), turn_s, gaps.end_s)
    # a call that takes this long does more than launching: it loads a module, or waits for memory
    loading_s = np.minimum(returned_s, gaps.end_s) - turn_s
    loading_s = np.where(loading_s >= AWAY_S, loading_s, 0.0)
    parts = {"launch_s": started_s - turn_s - loading_s, "busy_s": loading_s, "queued_s": gaps.end_s - started_s}
    gaps = replace(gaps, ahead=asked_s <= gaps.start_s, **parts)
    threads = np.where(known, api.thread[called], _main_thread(timeline))
    for thread in np.unique(threads):
        mine = np.flatnonzero(threads == thread)
        gaps = _host_part(gaps, mine, turn_s[mine], int(thread), timeline)
    return gaps


def _calls_after(gaps: Gaps, timeline: Timeline) -> Ints:
    """Return the API call that started the event after each gap, or -1."""
    return _at(timeline.gpu.launch, gaps.after)


def _main_thread(timeline: Timeline) -> int:
    """Return the thread that makes most of the API calls."""
    threads, counts = np.unique(timeline.api.thread, return_counts=True)
    return int(threads[np.argmax(counts)])


def _host_part(gaps: Gaps, mine: Ints, turn_s: Floats, thread: int, timeline: Timeline) -> Gaps:
    """Divide the part of some gaps in which the GPU waits for one thread of the host."""
    api = timeline.api
    waits = np.flatnonzero((api.thread == thread) & waiting_calls(timeline))
    kinds = host_times(timeline, thread, (float(gaps.start_s[0]), float(gaps.end_s[-1])))
    start_s = gaps.start_s[mine]
    sync_s, input_s, away_s, busy_s = (covered_s(part, start_s, turn_s) for part in kinds)
    rest_s = np.maximum(turn_s - start_s - sync_s - input_s - away_s - busy_s, 0.0)
    call = _wait_at(api.start_s[waits], api.end_s[waits], start_s, turn_s)
    waited = call >= 0
    # after the last event of the window nothing is asked for any more: then the host is not launching
    ends = gaps.after[mine] < 0
    parts = {
        "launch_s": np.where(waited | ends, 0.0, rest_s),
        "sync_s": sync_s + np.where(waited & ~ends, rest_s, 0.0),
        "input_s": input_s,
        "away_s": away_s + np.where(ends, rest_s, 0.0),
        "busy_s": busy_s,
    }
    changed = {}
    for key, values in parts.items():
        whole = getattr(gaps, key).copy()
        whole[mine] += values
        changed[key] = whole
    sync_call = gaps.sync_call.copy()
    sync_call[mine] = _at(waits, call)
    return replace(gaps, sync_call=sync_call, **changed)


def host_times(timeline: Timeline, thread: int, window_s: tuple[float, float]) -> tuple[Floats, Floats, Floats, Floats]:
    """Return when a thread waited for the GPU, was in its input pipeline, away, or busy without launching.

    Four unions of shape (n, 2) [s] that do not overlap; what is in none of them is time in which the thread launches.
    """
    api, ops = timeline.api, timeline.ops
    here, on_thread = api.thread == thread, ops.thread == thread
    waits = here & waiting_calls(timeline)
    sync = union(api.start_s[waits], api.end_s[waits])
    ranges = _input_ranges(timeline, thread)
    inputs = minus(ranges, sync)
    starts = np.concatenate((api.start_s[here], ops.start_s[on_thread], ranges[:, 0]))
    ends = np.concatenate((api.end_s[here], ops.end_s[on_thread], ranges[:, 1]))
    away = _long(complement(union(starts, ends), window_s))
    # from one beginning or end of a runtime call to the next nothing can be launched
    points = np.sort(np.concatenate((api.start_s[here], api.end_s[here], window_s)))
    silent = _long(np.column_stack((points[:-1], points[1:])))
    taken = np.concatenate((sync, inputs, away))
    busy = _long(minus(union(silent[:, 0], silent[:, 1]), union(taken[:, 0], taken[:, 1])))
    return sync, inputs, away, busy


def _long(intervals: Floats) -> Floats:
    """Return the intervals of `AWAY_S` or more."""
    found: Floats = intervals[intervals[:, 1] - intervals[:, 0] >= AWAY_S]
    return found


def _wait_at(wait_start_s: Floats, wait_end_s: Floats, start_s: Floats, turn_s: Floats) -> Ints:
    """Return the last wait that the thread was in during the host's part of each gap, or -1.

    ``wait_start_s`` is ordered, and the waits of one thread do not overlap, so their ends are ordered too.
    """
    if not wait_start_s.size:
        return np.full(start_s.shape, -1, dtype=np.int64)
    last = np.searchsorted(wait_start_s, turn_s, side="left") - 1
    overlaps = (last >= 0) & (wait_end_s[np.maximum(last, 0)] > start_s)
    return np.where(overlaps, last, -1)


def _input_ranges(timeline: Timeline, thread: int) -> Floats:
    """Return when a thread was in its input pipeline, by the names of its operators and annotations."""
    is_input = np.array([bool(INPUT_PIPELINE.search(name)) for name in timeline.names], dtype=bool)
    starts, ends = [np.empty(0)], [np.empty(0)]
    for ranges in (timeline.ops, timeline.annotations):
        if len(ranges):
            chosen = (ranges.thread == thread) & is_input[ranges.name]
            starts.append(ranges.start_s[chosen])
            ends.append(ranges.end_s[chosen])
    return union(np.concatenate(starts), np.concatenate(ends))

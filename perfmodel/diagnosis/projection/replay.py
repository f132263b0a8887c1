"""A time line run again with other durations: GPU work that waits for its launch, its stream and its streams' events.

If kernels become faster, a run does not become shorter where the host sets the pace, and a wait of the host ends
earlier. So every piece of GPU work starts when its launch, the work before it on its stream, and the work of another
stream that it waited for allow; and every call that waited for the GPU returns as long after the work as it did.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np

from perfmodel.core.arrays import median
from perfmodel.core.vocabulary import EventKind
from perfmodel.profile.timeline import CallKind, CopyDirection, Floats, Spans, Timeline

#: work that starts later than this after its launch and its stream allow has waited for something else [s]: five times
#: the usual gap between two kernels (`perfmodel.prediction.launching.KERNEL_GAP_S`)
_DELAYED_S = 10e-6
#: calls that take longer than this to launch have waited for room in the queue, if GPU work ended just before [s]
_QUEUE_FULL_S = 200e-6
#: longest usual time from a launch to the start on an idle GPU [s], see `perfmodel.diagnosis.gaps.START_LATENCY_S`
_LONGEST_LATENCY_S = 20e-6
#: the GPU's and the host's clock agree within this [s]
_CLOCKS_S = 2e-6
#: a call that copies from pageable memory returns when the last of it is in the driver's buffer, up to this before the
#: copy ends [s]: 30 to 91 us after 19 copies of 1 MB and more on three machines (traces/kineto_resnet50_train_nw0_2021,
#: _nw4_2021 and hta_alexnet_a100_big_gaps of the public data)
_STAGED_S = 100e-6

_Spans = TypeVar("_Spans", bound=Spans)


@dataclass
class _Clock:
    """The host's time on the other machine, piecewise linear in its time here: old and new points [s]."""

    rate: float
    old_s: list[float] = field(default_factory=list)
    new_s: list[float] = field(default_factory=list)

    def at(self, time_s: float) -> float:
        """Return the new time of a moment after the last point [s]."""
        return self.new_s[-1] + self.rate * (time_s - self.old_s[-1])

    def add(self, old_s: float, new_s: float) -> None:
        """Add a point; neither time goes backwards."""
        self.old_s.append(max(old_s, self.old_s[-1]))
        self.new_s.append(max(new_s, self.new_s[-1]))

    def of(self, times_s: Floats) -> Floats:
        """Return the new times of some moments [s]."""
        new_s = np.interp(times_s, self.old_s, self.new_s)
        beyond = np.maximum(times_s - self.old_s[-1], 0.0) * self.rate
        before = np.minimum(times_s - self.old_s[0], 0.0) * self.rate
        return np.asarray(new_s + beyond + before)


def replay(timeline: Timeline, factor: Floats, *, host: float = 1.0) -> Timeline:
    """Return a time line in which each piece of GPU work takes ``factor`` times as long.

    Parameters
    ----------
    timeline : the traced run.
    factor : new over old duration of each GPU event; shape (events,).
    host : new over old time of what the host does between two calls that wait for the GPU.
    """
    run = _Replay(timeline, factor, host)
    start_s = run.go()
    duration_s = timeline.gpu.duration_s * factor
    order = np.argsort(start_s, kind="stable")
    gpu = replace(timeline.gpu, start_s=start_s, duration_s=duration_s)
    columns = {item.name: getattr(gpu, item.name) for item in fields(gpu)}
    gpu = type(gpu)(**{name: values[order] if values.size else values for name, values in columns.items()})
    return replace(
        timeline,
        gpu=gpu,
        api=_moved(timeline.api, run.clock),
        ops=_moved(timeline.ops, run.clock),
        annotations=_moved(timeline.annotations, run.clock),
        window_s=run.window(),
    )


def _moved(spans: _Spans, clock: _Clock) -> _Spans:
    """Return ranges of the host at their new times."""
    start_s = clock.of(spans.start_s)
    return replace(spans, start_s=start_s, duration_s=clock.of(spans.end_s) - start_s)


class _Replay:
    """The state of one replay: when each stream is free, and the host's clock."""

    def __init__(self, timeline: Timeline, factor: Floats, host: float) -> None:
        gpu, api = timeline.gpu, timeline.api
        self.inside = timeline.overlaps_window()
        self.start_s, self.end_s = gpu.start_s.tolist(), gpu.end_s.tolist()
        self.new_duration_s = (gpu.duration_s * factor).tolist()
        launched = gpu.launch >= 0
        called = api.start_s[np.maximum(gpu.launch, 0)] if len(api) else gpu.start_s
        # clocks may disagree by some microseconds: no work starts before its launch
        self.launch_s = np.where(launched, np.minimum(called, gpu.start_s), np.nan)
        self.stream = ((gpu.device + 1) * (int(gpu.stream.max(initial=0)) + 2) + gpu.stream + 1).tolist()
        self.ends = np.argsort(gpu.end_s, kind="stable")
        self.ends_s = gpu.end_s[self.ends].tolist()
        self.latency_s = self._usual_latency()
        first_s = min([timeline.window_s[0], *self.start_s[:1], *api.start_s[:1].tolist()])
        self.clock = _Clock(host, [first_s], [first_s])
        self.new_start_s, self.new_end_s = [np.nan] * len(gpu), [np.nan] * len(gpu)
        self.free: dict[Any, tuple[float, float]] = {}
        self.exchanges = gpu.are(EventKind.COMMUNICATION).tolist()
        #: device -> the last work of it that was launched, but for exchanges
        self.launched: dict[int, int] = {}
        self.device = gpu.device.tolist()
        self.timeline = timeline

    def _usual_latency(self) -> float:
        """Return the usual time from a launch to the start on an idle GPU [s].

        That is the median of the work that its stream did not keep waiting; where there is none, the shortest of all.
        """
        starts, ends = np.array(self.start_s), np.array(self.end_s)
        latency_s = starts - self.launch_s
        waited_s = np.full(starts.size, np.inf)
        for stream in set(self.stream):
            events = np.flatnonzero(np.array(self.stream) == stream)
            waited_s[events[1:]] = starts[events[1:]] - np.maximum.accumulate(ends[events])[:-1]
        known = np.isfinite(latency_s)
        idle = known & (waited_s > latency_s)
        usual_s = float(latency_s[known].min()) if known.any() else 0.0
        if idle.any():
            usual_s = median(latency_s[idle])
        return min(usual_s, _LONGEST_LATENCY_S)

    def go(self) -> Floats:
        """Return the new start of each GPU event [s]."""
        waits = self._waits()
        moments = np.where(np.isfinite(self.launch_s), self.launch_s, np.array(self.start_s))
        kinds = np.concatenate((np.zeros(moments.size), np.ones(len(waits))))
        keys = np.concatenate((moments, [end_s for _, end_s, _ in waits]))
        # events of one call keep their order; a wait comes after what was launched before its end
        for item in np.lexsort((kinds, keys)).tolist():
            if item < moments.size:
                self._start(item)
            else:
                self._wait(*waits[item - moments.size])
        return np.array(self.new_start_s)

    def window(self) -> tuple[float, float]:
        """Return the new start and end of the window [s].

        Of GPU work that was launched before the window and runs in it, what ran when the window began, else the first,
        takes the start along: the window has the same part of it, and begins as long before it, however fast the host
        is. Without such work the start is a moment of the host. The end goes along with work that ended it, else it is
        a moment of the host, too. No work in the window is left out of it.
        """
        low_s, high_s = self.timeline.window_s
        new_low_s, new_high_s = self.clock.of(np.array(self.timeline.window_s)).tolist()
        inside, end_s = self.inside, self.timeline.gpu.end_s
        if inside.any():
            queued = inside & ~(self.launch_s > low_s)  # also work whose launch is not in the trace
            first_s = max(low_s, float(self.timeline.gpu.start_s[queued].min(initial=np.inf)))
            leading = queued & (self.timeline.gpu.start_s <= first_s)
            starts_s = np.where(leading, self._along(low_s), self.new_start_s)[inside]
            new_low_s = float(starts_s.min(initial=np.inf if leading.any() else new_low_s))
            ended_by_gpu = float(end_s[inside].max()) >= high_s - _CLOCKS_S
            new_high_s = float(self._along(high_s)[inside].max(initial=-np.inf if ended_by_gpu else new_high_s))
        return new_low_s, max(new_high_s, new_low_s)

    def _along(self, time_s: float) -> Floats:
        """Return when each event is as far as it was at a moment [s]: as long before its start; later, at its end."""
        gpu, new_start_s, new_end_s = self.timeline.gpu, np.array(self.new_start_s), np.array(self.new_end_s)
        since_s = time_s - gpu.start_s
        part = since_s / np.maximum(gpu.duration_s, np.finfo(float).tiny)
        within_s = new_start_s + np.clip(part, 0.0, 1.0) * (new_end_s - new_start_s)
        return np.asarray(within_s + np.minimum(since_s, 0.0))

    def _waits(self) -> list[tuple[float, float, int]]:
        """Return start and end of each call that waited for GPU work [s], and the event that it waited for."""
        api, copies = self.timeline.api, self._host_copies()
        waits = []
        slow = api.duration_s > _QUEUE_FULL_S
        chosen = (api.category == CallKind.SYNC) | (api.category == CallKind.COPY) | slow
        for call in np.flatnonzero(chosen).tolist():
            start_s, end_s = float(api.start_s[call]), float(api.start_s[call] + api.duration_s[call])
            event = copies.get(call, -1) if api.category[call] == CallKind.COPY else self._last_ended(end_s)
            if event >= 0 and start_s < self.end_s[event] <= end_s + self._late_s(event, end_s):
                waits.append((start_s, end_s, event))
        return waits

    def _host_copies(self) -> dict[int, int]:
        """Return call -> event of the copies between host and device.

        Only these wait for their own end: copies within or between devices, and settings of their memory, never do
        (CUDA Driver API, "API synchronization behavior").
        """
        gpu = self.timeline.gpu
        on_devices = (CopyDirection.DEVICE_TO_DEVICE, CopyDirection.BETWEEN_DEVICES)
        apart = gpu.are(EventKind.MEMCPY) & ~np.isin(gpu.direction, on_devices)
        return {int(gpu.launch[event]): event for event in np.flatnonzero(apart & (gpu.launch >= 0)).tolist()}

    def _late_s(self, event: int, return_s: float) -> float:
        """Return how long after the return of a call the work may end that it waited for [s].

        A copy from pageable memory that begins before its call returns is one that the call passes on piece by piece;
        a short one is in the driver's buffer at once, and its call returns long before it begins.
        """
        gpu = self.timeline.gpu
        staged = gpu.direction[event] == CopyDirection.HOST_TO_DEVICE and gpu.pinned[event] == 0
        return _STAGED_S if staged and self.start_s[event] < return_s else _CLOCKS_S

    def _last_ended(self, time_s: float) -> int:
        """Return the event that was the last to end before a moment, or -1."""
        place = bisect.bisect_right(self.ends_s, time_s + _CLOCKS_S) - 1
        return int(self.ends[place]) if place >= 0 else -1

    def _start(self, event: int) -> None:
        """Start one GPU event as soon as what it waited for allows."""
        stream, start_s = self.stream[event], self.start_s[event]
        free_old_s, free_new_s = self.free.get(stream, (-np.inf, -np.inf))
        launch_s = float(self.launch_s[event])
        gap_s, latency_s = start_s - free_old_s, start_s - launch_s
        # work that overlaps the one before it on its stream goes on overlapping it
        allowed_s = [free_new_s + min(gap_s, 0.0) if np.isfinite(free_old_s) else free_new_s]
        other = self._waited_for(event, free_old_s)
        if np.isnan(launch_s):
            allowed_s.append(free_new_s + gap_s if np.isfinite(gap_s) else self.clock.at(start_s))
        elif other >= 0:
            allowed_s.append(self.new_end_s[other] + start_s - self.end_s[other])
            allowed_s.append(self.clock.at(launch_s) + min(latency_s, self.latency_s))
        elif free_old_s <= launch_s + self.latency_s:  # its stream was idle
            allowed_s.append(self.clock.at(launch_s) + latency_s)
        else:
            allowed_s += [self.clock.at(launch_s) + min(latency_s, self.latency_s), free_new_s + gap_s]
        if self.exchanges[event]:
            allowed_s.append(self._computed_s(event))
        else:
            self.launched[self.device[event]] = event
        new_s = max(allowed_s)
        self.new_start_s[event], self.new_end_s[event] = new_s, new_s + self.new_duration_s[event]
        self.free[stream] = (max(free_old_s, self.end_s[event]), max(free_new_s, self.new_end_s[event]))

    def _computed_s(self, event: int) -> float:
        """Return when what was launched before an exchange has ended, if the exchange began after that [s].

        What it sends has to be computed. An exchange that waited longer for the one before it on its stream, as the
        buckets of a gradient do behind one that a late rank holds up, does not show that.
        """
        before = self.launched.get(self.device[event], -1)
        return self.new_end_s[before] if before >= 0 and self.end_s[before] <= self.start_s[event] else -np.inf

    def _waited_for(self, event: int, free_s: float) -> int:
        """Return the work of another stream that an event waited for, or -1.

        That is the last one to end before the start, of those launched before it: if it ended after the launch, and the
        event started later than its launch and its own stream, which was free at ``free_s``, allowed.
        """
        start_s, launch_s = self.start_s[event], float(self.launch_s[event])
        # no comparison holds for work without a launch
        if not start_s - max(launch_s + self.latency_s, free_s) > _DELAYED_S:
            return -1
        place = bisect.bisect_right(self.ends_s, start_s)
        while place > 0 and self.ends_s[place - 1] > launch_s:
            place -= 1
            other = int(self.ends[place])
            if not np.isnan(self.new_end_s[other]):
                return other if self.stream[other] != self.stream[event] else -1
        return -1

    def _wait(self, start_s: float, end_s: float, event: int) -> None:
        """Let a call of the host return when the work that it waited for has ended."""
        done_s = self.new_end_s[event]
        if np.isnan(done_s) or end_s <= self.clock.old_s[-1]:
            return
        new_start_s = self.clock.at(max(start_s, self.clock.old_s[-1]))
        rest_s = end_s - self.end_s[event]  # below 0 where the call returned first
        rest_s *= self.clock.rate if rest_s > 0 else 1.0
        self.clock.add(max(start_s, self.clock.old_s[-1]), new_start_s)
        self.clock.add(end_s, max(new_start_s, done_s + rest_s))

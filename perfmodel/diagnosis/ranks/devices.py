"""The GPUs of one file as ranks of a job: a profiler that follows all processes of a node writes one file for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.arrays import distinct
from perfmodel.core.vocabulary import EventKind
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.profile.timeline import Exchanges, GpuEvents, Spans, Timeline


def devices(profile: Profile) -> tuple[int, ...]:
    """Return the numbers of the GPUs of a profile that exchange with others; none without a time line."""
    timeline = profile.timeline
    if timeline is None:
        return ()
    inside = timeline.overlaps_window() & timeline.gpu.are(EventKind.COMMUNICATION)
    return tuple(distinct(timeline.gpu.device[inside]).tolist())


def of_device(profile: Profile, device: int) -> Profile:
    """Return what one GPU of a profile did; calls and operators of the host stay whole.

    Parameters
    ----------
    profile : with a time line.
    device : number of the GPU.
    """
    timeline = profile.timeline
    assert timeline is not None
    chosen = timeline.gpu.device == device
    gpu = timeline.gpu.take(chosen)
    own = replace(timeline, gpu=gpu, exchanges=_exchanges(timeline, device))
    return replace(
        profile,
        entries=tuple(_entries(profile, timeline.gpu, chosen)),
        timeline=_numbered(own, profile),
        notes=(f"Only GPU {device} of the file counts.",),  # those of the reader are about all of them
    )


def _exchanges(timeline: Timeline, device: int) -> Exchanges:
    """Return the exchanges that run on a GPU: those that start and last as one of its kernels does.

    Several that do so alike are each of another kernel, in the order of the trace.
    """
    kernels = timeline.gpu.take(timeline.gpu.are(EventKind.COMMUNICATION))
    devices_of: dict[tuple[float, float], deque[int]] = {}
    for span, number in zip(_spans(kernels), kernels.device.tolist(), strict=True):
        devices_of.setdefault(span, deque()).append(number)
    left = (devices_of.get(span, deque[int]()) for span in _spans(timeline.exchanges))
    ran_on = [own.popleft() if own else None for own in left]
    return timeline.exchanges.take(np.array([number == device for number in ran_on], dtype=bool))


def _spans(events: Spans) -> Iterator[tuple[float, float]]:
    return zip(events.start_s.tolist(), events.duration_s.tolist(), strict=True)


def _entries(profile: Profile, gpu: GpuEvents, chosen: NDArray[np.bool_]) -> list[ProfileEntry]:
    """Return the entries that the GPU has a part in, with its time and calls; counters belong to all GPUs."""
    count = len(profile.entries)
    counted = chosen & (gpu.entry >= 0) if gpu.entry.size else np.zeros(len(gpu), dtype=bool)
    calls = np.bincount(gpu.entry[counted], minlength=count)
    every = np.bincount(gpu.entry[gpu.entry >= 0], minlength=count)
    time_s = np.bincount(gpu.entry[counted], weights=gpu.duration_s[counted], minlength=count)
    return [
        replace(
            entry,
            time_s=float(time_s[index]),
            # an operator may launch several kernels
            calls=None if entry.calls is None else max(1, round(entry.calls * int(calls[index]) / int(every[index]))),
            flop=None,
            bytes=None,
        )
        for index, entry in enumerate(profile.entries)
        if calls[index]
    ]


def _numbered(own: Timeline, profile: Profile) -> Timeline:
    """Return the time line with the positions of the entries that are left."""
    entry = own.gpu.entry
    left = distinct(entry[entry >= 0])
    position = np.full(len(profile.entries) + 1, -1, dtype=np.int64)
    position[left] = np.arange(left.size)
    return replace(own, gpu=replace(own.gpu, entry=position[entry]))

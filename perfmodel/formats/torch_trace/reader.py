"""Chrome traces of PyTorch's profiler as profiles: CUDA, ROCm or CPU only, of 2021 to today.

GPU work is linked to the call of the runtime that started it (by correlation) and to the framework's operator around
that call (by time on the thread, else by external id); operators become operators of the model by their shapes
(`perfmodel.formats.torch_trace.operators.aten`). With profiler steps, only what starts inside them is counted,
as TraceLens does (`perfmodel.formats.torch_trace.links.build`).
"""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import replace
from typing import Any

from perfmodel.core.units import format_si
from perfmodel.errors import InputFileError
from perfmodel.formats.detect import ReadOptions
from perfmodel.formats.torch_trace.columns import Gathered
from perfmodel.formats.torch_trace.entries import Entries
from perfmodel.formats.torch_trace.events import Header
from perfmodel.formats.torch_trace.file import Source
from perfmodel.formats.torch_trace.links import Traced, build
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.profile.timeline import STEP_NAME

NAME = "torch trace"
PRECEDENCE = 100
#: keys of a trace that stand before its events
_KEYS = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"', b'"distributedInfo"', b'"baseTimeNanoseconds"')


def sniff(head: bytes) -> bool:
    """Tell whether a file that starts like this is a Chrome trace: an object with its keys, or a list of events."""
    start = head.lstrip()
    if start.startswith(b"{"):
        return any(key in head for key in _KEYS)
    return start.startswith(b"[") and b'"ph"' in head and b'"ts"' in head


def read(path: str | os.PathLike[str], options: ReadOptions) -> Profile:
    """Read a trace as a profile with a time line.

    Entries are sums of GPU time. By "shape" (the default) one entry is a framework's operator with the shapes of its
    tensors ("aten::addmm(bias 512, 16x2048, 2048x512) bf16"), a copy of one size, or a collective with one message;
    kernels without an operator stand by their names. By "op" shapes are summed, by "kernel" operators are left aside.
    A trace without GPU work has the operators of the CPU, by the time in themselves.

    Raises
    ------
    InputFileError
        When the file cannot be read, is cut off or no trace, or holds neither GPU work nor operators.
    """
    source = Source(path, options.stream_above_bytes)
    gathered = Gathered(source.skipped)
    for events in source.events():
        gathered.add(events)
        events.clear()
    traced = build(gathered, all_steps=options.all_steps)
    timeline = traced.timeline
    if not len(timeline.gpu) and not len(timeline.ops):
        raise _nothing(source)
    grouped = Entries(traced, gathered)
    entries = grouped.by(options.by)
    timeline = replace(timeline, gpu=replace(timeline.gpu, entry=grouped.entry_of_events(entries)))
    if not math.fsum(entry.time_s for entry in entries) > 0:
        raise InputFileError(
            "nothing that is counted takes any time.", place=source.place, remedy="Count all steps (--all)."
        )
    return Profile.from_entries(
        entries,
        source=source.place,
        notes=tuple(_notes(traced, gathered, entries, source)),
        skipped=source.skipped,
        format=NAME,
        device=_device(source.header, traced),
        timeline=timeline,
        rank=_rank(source.header),
    )


def _nothing(source: Source) -> InputFileError:
    """Return the error for a trace without anything to count."""
    left_out = ", ".join(f"{count} x {reason}" for reason, count in source.skipped.items())
    return InputFileError(
        f"holds neither GPU work nor operators{f'; left out: {left_out}' if left_out else ''}.",
        place=source.place,
        remedy="Profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
    )


def _notes(traced: Traced, gathered: Gathered, entries: list[ProfileEntry], source: Source) -> list[str]:
    """Return what was decided while reading."""
    notes = []
    total, counted = len(traced.timeline.gpu), int(traced.counted.sum())
    begin, end = traced.timeline.window_s
    if traced.steps:
        steps = sum(name.startswith(STEP_NAME) for name in _annotated(traced))
        what = f"{counted} of {total} pieces of GPU work, those that start" if total else "operators that start"
        length = format_si(end - begin, "s")
        notes.append(f"Counted: {what} within {traced.steps} ({steps} steps, {length}); --all counts the rest.")
    if total == 0:
        notes.append(
            "The trace holds no GPU work: the times are those of operators on the CPU, without what they call."
        )
    in_graph = int((traced.in_graph & traced.counted).sum())
    if in_graph:
        notes.append(f"{in_graph} kernels were launched in graphs: the trace does not say their operators and shapes.")
    if total and len(traced.timeline.ops) and not any(dims for dims, *_ in gathered.calls):
        notes.append("The trace holds no shapes: profile with record_shapes=True to compare it with the model.")
    time_s = math.fsum(entry.time_s for entry in entries)
    without = math.fsum(entry.time_s for entry in entries if entry.op is None)
    if total and without > 0:
        notes.append(f"Not modelled: {100 * without / time_s:.3g} % of the time ({format_si(without, 's')}).")
    notes.extend(f"Left out: {count} x {reason}." for reason, count in source.skipped.items())
    return notes


def _annotated(traced: Traced) -> list[str]:
    timeline = traced.timeline
    return [timeline.names[name] for name in timeline.annotations.name]


def _device(header: Header, traced: Traced) -> str:
    """Return the name of the GPU that did most of the events, or empty."""
    listed = header.deviceProperties if isinstance(header.deviceProperties, list) else []
    names = {one.get("id"): one.get("name") for one in listed if isinstance(one, dict)}
    used = Counter(traced.timeline.gpu.device.tolist()).most_common(1)
    # in a container a device may run under another number than it is listed with
    found: Any = names.get(used[0][0]) if used else None
    found = found if found or len(set(map(str, names.values()))) != 1 else next(iter(names.values()))
    return found if isinstance(found, str) else ""


def _rank(header: Header) -> int | None:
    """Return the rank of the process, or None."""
    info = header.distributedInfo if isinstance(header.distributedInfo, dict) else {}
    rank = info.get("rank")
    return rank if isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0 else None

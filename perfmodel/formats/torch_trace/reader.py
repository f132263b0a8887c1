"""Chrome traces of PyTorch's profiler as profiles: CUDA, ROCm or CPU only, from 2021 to today.

GPU work is linked to the call of the runtime that started it (by correlation) and to the framework's operator around
that call (by time on the thread, else by external id). Operators of the framework become operators of the model by
their shapes (`perfmodel.formats.torch_trace.operators.aten`). With profiler steps, only what starts inside them counts,
as in TraceLens (`perfmodel.formats.torch_trace.links.build`).
"""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import replace
from typing import Any

from perfmodel.core.units import format_count, format_si
from perfmodel.errors import InputFileError
from perfmodel.formats.detect import DEFAULTS, ReadOptions
from perfmodel.formats.torch_trace.columns import Recorded
from perfmodel.formats.torch_trace.entries import Entries, entry_of_events
from perfmodel.formats.torch_trace.events import Header
from perfmodel.formats.torch_trace.file import Source
from perfmodel.formats.torch_trace.gather import Gathered
from perfmodel.formats.torch_trace.job import place_in_job
from perfmodel.formats.torch_trace.links import Traced, build
from perfmodel.formats.torch_trace.results import with_results
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.profile.timeline import STEP_NAME

NAME = "torch trace"
PRECEDENCE = 100
#: a large trace is read in pieces
ANY_SIZE = True
#: keys that a trace has before its events
_KEYS = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"', b'"distributedInfo"', b'"baseTimeNanoseconds"')

#: categories that a message names
_LISTED = 3
#: a grouping -> the entries whose sizes it loses
_LOST = {
    "op": "the sizes of operators with calls of several shapes are not known",
    "kernel": "the sizes that kernels work on are not known",
}


def sniff(head: bytes) -> bool:
    """Recognise a Chrome trace: an object with the keys of one, or a list of events."""
    start = head.lstrip()
    if start.startswith(b"{"):
        return any(key in head for key in _KEYS)
    return start.startswith(b"[") and b'"ph"' in head and b'"ts"' in head


def read(path: str | os.PathLike[str], options: ReadOptions = DEFAULTS) -> Profile:
    """Read a trace as a profile with a time line.

    Entries are sums of GPU time. By "shape" (the default) an entry is a framework's operator with the shapes of its
    tensors ("aten::addmm(bias 512, 16x2048, 2048x512) bf16"), a copy of one size, or a collective with one message;
    kernels without an operator are entries by name. By "op" shapes are summed; by "kernel" operators are ignored. The
    entries of a trace without GPU work are the operators on the CPU, by their time outside inner operators.

    Raises
    ------
    InputFileError
        When the file cannot be read, is cut off or not a trace, or has neither GPU work nor operators.
    """
    source, gathered = _gathered(path, options.stream_above_bytes)
    recorded = with_results(gathered.recorded())
    traced = build(recorded, source.skipped, all_steps=options.all_steps)
    timeline = traced.timeline
    if not len(timeline.gpu) and not len(timeline.ops):
        raise _nothing(source, gathered)
    counted = Entries(traced, recorded).by(options.by)
    entries = [one.entry for one in counted]
    if not math.fsum(entry.time_s for entry in entries) > 0:
        remedy = "Count all steps (--whole-trace)." if traced.steps else "Record the trace again."
        raise InputFileError("nothing that is counted takes any time.", place=source.place, remedy=remedy)
    job = place_in_job(source.header)
    return Profile.from_entries(
        entries,
        source=source.place,
        notes=tuple(_notes(traced, recorded, entries, source, options.by)),
        skipped=source.skipped,
        format=NAME,
        device=_device(source.header, traced),
        timeline=replace(
            timeline,
            gpu=replace(timeline.gpu, entry=entry_of_events(counted, len(timeline.gpu))),
            origin_s=timeline.origin_s + _base_s(source.header),
        ),
        rank=job.rank,
        world_size=job.world_size,
        groups=job.groups,
        host=job.host,
    )


def _gathered(path: str | os.PathLike[str], limit: int) -> tuple[Source, Gathered]:
    """Return the events of a file, in columns.

    Block by block takes half the time and a tenth of the memory, and tells less about what is wrong with a file. So a
    file that cannot be read like that is read again, at once, unless it is larger than ``limit``.
    """
    source = Source(path, limit)
    gathered = Gathered(source.skipped)
    try:
        for events in source.blocks():
            gathered.add(events)
    except InputFileError:
        again = Source(path, limit)
        whole = again.whole()
        if whole is None:
            raise
        source, gathered = again, Gathered(again.skipped)
        gathered.add(whole)
    return source, gathered


def _nothing(source: Source, gathered: Gathered) -> InputFileError:
    """Return the error for a trace without anything to count."""
    others = (
        f"{format_count(count, 'event')} {f'of the category {category[:40]!r}' if category else 'without a category'}"
        for category, count in gathered.categories.most_common(_LISTED)
    )
    skipped = ", ".join((*(f"{count} x {reason}" for reason, count in source.skipped.items()), *others))
    return InputFileError(
        f"has neither GPU work nor operators{f'; left out: {skipped}' if skipped else ''}.",
        place=source.place,
        remedy="Profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
    )


def _notes(traced: Traced, recorded: Recorded, entries: list[ProfileEntry], source: Source, grouping: str) -> list[str]:
    """Return notes on what is counted and what the trace lacks."""
    notes = []
    total, counted = len(traced.timeline.gpu), int(traced.counted.sum())
    begin, end = traced.timeline.window_s
    if traced.steps:
        steps = traced.timeline.count_steps() or len(_steps_on_gpu(recorded))
        rows = f"{counted} of {total} pieces of GPU work, those that start" if total else "operators that start"
        length = f"{format_count(steps, 'step')}, {format_si(end - begin, 's')}"
        notes.append(f"Counted: {rows} within {traced.steps} ({length}); --whole-trace counts the rest.")
    if total == 0:
        notes.append("The trace has no GPU work: times are those of operators on the CPU, without inner operators.")
    in_graph = int((traced.in_graph & traced.counted).sum())
    if in_graph:
        notes.append(f"{in_graph} kernels were launched in graphs, for which the trace has no operators and shapes.")
    shapes = any(call.dims for call in recorded.calls)
    if total and shapes and grouping in _LOST and any(entry.op is None for entry in entries):
        notes.append(
            f"Grouped by {grouping}: {_LOST[grouping]}. Their limiters follow from names, and they have no bound, no "
            "prediction and no advice that needs one, so that shares and advice differ from those of --by shape."
        )
    if total and len(traced.timeline.ops) and not shapes:
        notes.append("The trace has no shapes: profile with record_shapes=True to compare it with the model.")
    repeated = int(((traced.same_as >= 0) & traced.counted).sum())
    if repeated:
        notes.append(
            f"{repeated} pieces of GPU work were launched before the trace; they come again later in the same order, "
            "and count for the operators there."
        )
    time_s = math.fsum(entry.time_s for entry in entries)
    without_s = math.fsum(entry.time_s for entry in entries if entry.op is None)
    if total and without_s > 0:
        notes.append(
            f"Not modelled: {100 * without_s / time_s:.3g} % of the work's time ({format_si(without_s, 's')})."
        )
    return notes


def _steps_on_gpu(recorded: Recorded) -> set[str]:
    """Return the names of the profiler's steps on the GPU, of which a trace may have no others."""
    names = {recorded.names[name] for name in recorded.gpu_annotations.name.tolist()}
    return {name for name in names if name.startswith(STEP_NAME)}


def _device(header: Header, traced: Traced) -> str:
    """Return the name of the GPU with most of the events, or ""."""
    listed = header.deviceProperties if isinstance(header.deviceProperties, list) else []
    if not listed:
        return ""
    names = {
        device["id"]: device.get("name")
        for device in listed
        if isinstance(device, dict) and isinstance(device.get("id"), int)
    }
    used = Counter(traced.timeline.gpu.device.tolist())
    # in a container a device may run under another number than it is listed with
    name: Any = names.get(max(used, key=used.__getitem__)) if used else None
    if not name and len(set(map(str, names.values()))) == 1:
        name = next(iter(names.values()))
    return name if isinstance(name, str) else ""


def _base_s(header: Header) -> float:
    """Return what recent traces subtract from all of their times [s]; 0 for older ones."""
    base = header.baseTimeNanoseconds
    return 1e-9 * base if isinstance(base, (int, float)) and not isinstance(base, bool) and abs(base) < 2**63 else 0.0

"""Writes a trace back with notes in the arguments of its GPU events, and counter tracks, for Perfetto."""

from __future__ import annotations

import gzip
import os
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from perfmodel import storage
from perfmodel.errors import InputFileError, UsageError
from perfmodel.files import opened, write_atomic
from perfmodel.formats.torch_trace.events import no_events, not_json, without_nan
from perfmodel.formats.torch_trace.gather import UNNAMED, is_gpu_category
from perfmodel.formats.torch_trace.pairs import BEGIN, COMPLETE, END, Open
from perfmodel.storage import gzipped

#: the largest trace that is written back, unpacked [B]: all its events have to be in memory
LARGEST_BYTES = 1_000_000_000
#: the key under which an event's arguments hold its notes, and the name of the counter tracks
KEY, TRACK = "perfmodel", "perfmodel efficiency"
#: notes that become counters -> their names
_COUNTERS = {"efficiency": "of bound"}
_BLOCK_BYTES = 1 << 20
#: later times are damage; whole numbers of any size occur in JSON
_LATEST_US = 1e300

Notes = Sequence[Mapping[str, Any] | None]
#: name and duration [s] of a piece of GPU work
Work = tuple[str, float]


def annotate(source: str | os.PathLike[str], target: str | os.PathLike[str], notes: Notes, work: Sequence[Work]) -> int:
    """Write a trace with notes on its GPU events, and return the number of events that got one.

    Everything else in the trace stays. Each noted event has the key "perfmodel" in its arguments; a counter track for
    each process (GPU) shows the efficiency while a kernel runs.

    Parameters
    ----------
    source : the trace that was read, plain or gzip.
    target : the new file; packed if its name ends in ".gz".
    notes : for each GPU event in the order of their starts, what to add, or None.
    work : names and durations [s] of these events, by which they are found in the file.

    Raises
    ------
    InputFileError
        When the source cannot be read, is too large, or does not have these events.
    UsageError
        When the target is the source.
    """
    if _is_same(source, target):
        raise UsageError("is the trace itself.", place=os.fspath(target), remedy="Write to another file.")
    document = _document(source)
    events = document if isinstance(document, list) else document.get("traceEvents")
    if not isinstance(events, list):
        raise no_events(os.fspath(source))
    noted = _noted(events, notes, work, os.fspath(source))
    counters = []
    for event, duration_us, note in noted:
        event["args"] = {**(event["args"] if isinstance(event.get("args"), dict) else {}), KEY: dict(note)}
        counters += _counters(event, duration_us, note)
    events.extend(counters)
    data = msgspec.json.encode(document)
    write_atomic(target, gzip.compress(data, mtime=0) if storage.suffix_of(target) == ".gz" else data)
    return len(noted)


def _noted(
    events: list[Any], notes: Notes, work: Sequence[Work], place: str
) -> list[tuple[dict[str, Any], float, Mapping[str, Any]]]:
    """Return the GPU events of a file that have a note, with their durations [us] and the note.

    Those of one name and duration are in the order of their starts in both. The file may have some that the reader left
    out, as work inside other work; where such a one looks like others, none of these has a note.

    Raises
    ------
    InputFileError
        When the file lacks some of the work.
    """
    found: defaultdict[Work, list[tuple[dict[str, Any], float]]] = defaultdict(list)
    for event, duration_us in sorted(_gpu_work(events), key=lambda one: float(one[0]["ts"])):
        found[str(event.get("name") or UNNAMED), duration_us * 1e-6].append((event, duration_us))
    wanted: defaultdict[Work, list[Mapping[str, Any] | None]] = defaultdict(list)
    for one, note in zip(work, notes, strict=True):
        wanted[one].append(note)
    if any(len(found[one]) < len(several) for one, several in wanted.items()):
        raise InputFileError("is no longer the trace that was read.", place=place, remedy="Diagnose it again.")
    alike = [(found[one], several) for one, several in wanted.items() if len(found[one]) == len(several)]
    pairs = ((event, note) for pair in alike for event, note in zip(*pair, strict=True))
    return [(event, duration_us, note) for (event, duration_us), note in pairs if note is not None]


def is_annotated(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a trace that `annotate` wrote: it has notes, or counters. One that cannot be read is not."""
    marks = (f'"{TRACK}'.encode(), f'"{KEY}":{{'.encode())
    last = b""
    try:
        with opened(path) as stream:
            while block := stream.read(_BLOCK_BYTES):
                if any(mark in last + block for mark in marks):
                    return True
                last = block[-len(marks[0]) :]
    except (OSError, EOFError, ValueError, zlib.error):
        return False
    return False


def _is_same(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> bool:
    """Whether two paths name one file."""
    if storage.is_remote(source) or storage.is_remote(target):
        return storage.place_of(source) == storage.place_of(target)
    return os.path.exists(target) and os.path.samefile(source, target)


def _document(source: str | os.PathLike[str]) -> Any:
    """Return the whole trace as Python objects."""
    data = Path(storage.local(source)).read_bytes()
    packed = data[:2] == gzipped.MAGIC
    plain = gzipped.unpacked(data, LARGEST_BYTES) if packed else data
    if plain is None or len(plain) > LARGEST_BYTES:
        raise InputFileError(
            f"is larger than {LARGEST_BYTES / 1e9:g} GB unpacked, too large to be written back.",
            place=os.fspath(source),
            remedy="Record fewer steps.",
        )
    try:
        return msgspec.json.decode(plain)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        cleaned = without_nan(plain)
        if cleaned is None:
            raise not_json(error, os.fspath(source)) from None
    try:
        return msgspec.json.decode(cleaned)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise not_json(error, os.fspath(source)) from None


def _gpu_work(events: list[Any]) -> Iterator[tuple[dict[str, Any], float]]:
    """Yield the pieces of GPU work that have times, with their durations [us]; of one in two parts its begin."""
    begun = Open[dict[str, Any]]()
    for event in events:
        if not isinstance(event, dict) or not _is_time(event.get("ts")):
            continue
        phase, thread = event.get("ph"), (str(event.get("pid")), str(event.get("tid")))
        if phase == BEGIN:
            begun.begin(thread, event)
        elif phase == END and (start := begun.end(thread)) and is_gpu_category(start.get("cat")):
            yield start, float(event["ts"]) - float(start["ts"])
        elif phase == COMPLETE and is_gpu_category(event.get("cat")) and _is_time(event.get("dur")):
            yield event, float(event["dur"])


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and abs(value) < _LATEST_US


def _counters(event: Mapping[str, Any], duration_us: float, note: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the counter events that show a note while an event runs."""
    values = {name: note[key] for key, name in _COUNTERS.items() if key in note}
    if not values:
        return []
    common = {"ph": "C", "name": f"{TRACK}, stream {event.get('tid')}", "pid": event.get("pid")}
    end = float(event["ts"]) + duration_us
    return [
        {**common, "ts": event["ts"], "args": values},
        {**common, "ts": end, "args": dict.fromkeys(values, 0.0)},
    ]

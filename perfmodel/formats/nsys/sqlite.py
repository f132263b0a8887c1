"""The SQLite file that ``nsys export`` writes, as a profile with its time line.

Tables exist only for what was traced, and their columns differ by version, so both are asked for first. Times are
nanoseconds; names are numbers into ``StringIds``. A kernel belongs to the API call of its process with the same
``correlationId``. Ranges of PyTorch's ``emit_nvtx`` ("aten::mm, op_id = 7") are operators of the framework.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from perfmodel.core.units import format_si
from perfmodel.errors import InputFileError
from perfmodel.formats.detect import ReadOptions
from perfmodel.formats.table.reader import LONGEST_TIME_S
from perfmodel.formats.text.events import Names, build_timeline, device_notes, entries_of, host_ranges
from perfmodel.profile.profile import Profile
from perfmodel.profile.timeline import DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, SYNC, HostRanges, Timeline

NAME = "nsys sqlite"
#: how every SQLite 3 file starts (https://www.sqlite.org/fileformat.html)
_MAGIC = b"SQLite format 3\0"
_KERNEL, _MEMCPY, _MEMSET = (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET"))
_RUNTIME, _SYNC = "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
#: the low 24 bits of a globalTid are the thread; the rest is the globalPid (Nsight Systems, "Exporter", Common SQLite)
_THREAD_BITS = 24
#: CUpti_ActivityMemcpyKind and CUpti_ActivityMemoryKind of the CUPTI documentation
_COPY_NAMES = {
    1: "Host-to-Device",
    2: "Device-to-Host",
    8: "Device-to-Device",
    9: "Host-to-Host",
    10: "Peer-to-Peer",
} | {
    11: "Unified Host-to-Device",
    12: "Unified Device-to-Host",
    13: "Unified Device-to-Device",
}
_DIRECTIONS = {1: HOST_TO_DEVICE, 2: DEVICE_TO_HOST, 8: DEVICE_TO_DEVICE, 10: DEVICE_TO_DEVICE} | {
    3: HOST_TO_DEVICE,
    4: DEVICE_TO_HOST,
    11: HOST_TO_DEVICE,
    12: DEVICE_TO_HOST,
    13: DEVICE_TO_DEVICE,
}
_PAGEABLE, _PINNED = 0, 1
#: NVTX events that are ranges with a start and an end: PushPop and StartEnd (ENUM_NSYS_EVENT_TYPE)
_NVTX_RANGES = (59, 60)
#: as torch.autograd.profiler.emit_nvtx writes them: "aten::mm, seq = 5, op_id = 7, sizes = [[2, 3], [3, 4]]"
_OP = re.compile(r"[^,]+, (?:seq|op_id) = \d+.*|aten::\w.*", re.DOTALL)


def sniff(head: bytes) -> bool:
    """Tell an SQLite file; which program made it is seen by its tables."""
    return head.startswith(_MAGIC)


def read(path: str | os.PathLike[str], options: ReadOptions | None = None) -> Profile:
    """Read an exported SQLite file of Nsight Systems.

    Entries are the kernels and memsets by name and the copies by name and size; with ``options.by`` "kernel" all
    by name; with "op" by the framework's operator that launched them, where NVTX ranges name operators. The time
    line holds them with the calls of the runtime, the operators and the other NVTX ranges. Nothing is written, and
    no journal is made.

    Raises
    ------
    InputFileError
        When it is no whole SQLite file, not from Nsight Systems, or holds no work of a GPU.
    """
    place = os.fspath(path)
    try:
        with open(path, "rb") as stream:
            head = stream.read(len(_MAGIC))
        if head.startswith(b"\x1f\x8b"):
            raise InputFileError("is packed with gzip.", place=place, remedy="Unpack it first: gunzip FILE.")
        if head != _MAGIC:
            raise InputFileError("is no SQLite file.", place=place, remedy="Export it: nsys export --type sqlite.")
        # immutable: a file in a folder that may not be written to is read without locks
        with closing(sqlite3.connect(f"file:{quote(str(Path(path).resolve()))}?mode=ro&immutable=1", uri=True)) as base:
            base.text_factory = lambda text: text.decode("utf-8", "replace")
            return _Reader(base, place).profile((options or ReadOptions()).by)
    except OSError as error:
        raise InputFileError(f"cannot be read: {error.strerror or error}.", place=place) from None
    # UnicodeDecodeError: a damaged schema breaks even the message about it
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise InputFileError(
            f"is not a whole SQLite file of Nsight Systems: {error}.", place=place, remedy="Export or copy it again."
        ) from None


class _Reader:
    """One open file: its tables, its texts, and what was left out."""

    def __init__(self, base: sqlite3.Connection, place: str) -> None:
        self.base = base
        self.place = place
        self.tables = {
            name: {row[1] for row in base.execute(f'PRAGMA table_info("{name}")')}
            for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
            if isinstance(name, str) and '"' not in name
        }
        self.names = Names()
        self.skipped: Counter[str] = Counter()
        self.notes: list[str] = []
        self.texts: dict[int, str] = {}

    def profile(self, by: str) -> Profile:
        """Return what the file holds."""
        self._check()
        self.texts = dict(self._rows("StringIds", "id", "value"))
        api, calls = self._api()
        gpu = self._gpu(calls)
        if not gpu["start_s"]:
            raise InputFileError(
                "holds no kernels and no copies.",
                place=self.place,
                remedy="Trace CUDA: nsys profile --trace cuda,nvtx.",
            )
        ops, annotations = self._ranges()
        timeline = build_timeline(self.names, gpu, api, ops, annotations)
        if by == "op" and not len(ops):
            self.notes.append("No NVTX range names an operator of a framework, so the entries are kernels.")
        entries, timeline = entries_of(timeline, by)
        self._notes(timeline)
        return Profile.from_entries(
            entries,
            source=self.place,
            notes=tuple(self.notes),
            skipped=self.skipped,
            format=NAME,
            device=self._device(),
            timeline=timeline,
        )

    def _check(self) -> None:
        """Raise where the file is of another program."""
        if "StringIds" in self.tables:
            return
        listed = ", ".join(sorted(self.tables)[:8]) or "none"
        nvprof = "StringTable" in self.tables
        raise InputFileError(
            f"is {'a database of nvprof' if nvprof else 'no export of Nsight Systems'}; its tables are: {listed}.",
            place=self.place,
            remedy="Give nvprof's CSV: nvprof -i FILE --csv."
            if nvprof
            else "Export: nsys export --type sqlite FILE.nsys-rep.",
        )

    def _rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return columns of a table, None for one that this version does not have; nothing where there is no table."""
        if table not in self.tables:
            return []
        wanted = ", ".join(f'"{name}"' if name in self.tables[table] else "NULL" for name in columns)
        # the names are this module's own, and are known to be in the file
        return self.base.execute(f'SELECT {wanted} FROM "{table}"').fetchall()  # noqa: S608

    def _timed(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return rows with start and duration [s] in front, those without a time counted and left out."""
        found = []
        for start, end, *rest in self._rows(table, "start", "end", *columns):
            if not isinstance(start, (int, float)) or not isinstance(end, (int, float)):
                self.skipped["an event without a start or an end"] += 1
            elif end < start or max(abs(start), abs(end)) > LONGEST_TIME_S * 1e9:
                self.skipped["an event whose end is before its start, or that lies 30 years away"] += 1
            else:
                found.append((start * 1e-9, (end - start) * 1e-9, *rest))
        return found

    def _text(self, number: Any, missing: str) -> int:
        """Return the number, in our names, of a text."""
        text = self.texts.get(number) if isinstance(number, int) else None
        return self.names.number(text if isinstance(text, str) and text else missing)

    def _api(self) -> tuple[dict[str, list[Any]], dict[tuple[int, int], int]]:
        """Return the calls of the runtime, and where the call with a process and correlation stands."""
        columns: dict[str, list[Any]] = {"start_s": [], "duration_s": [], "name": [], "thread": []}
        calls: dict[tuple[int, int], int] = {}
        for start, duration, tid, correlation, name in self._timed(_RUNTIME, "globalTid", "correlationId", "nameId"):
            tid = _whole(tid)
            if correlation is not None:
                calls.setdefault((_process(tid), _whole(correlation)), len(columns["start_s"]))
            for key, value in zip(columns, (start, duration, self._text(name, "(unnamed call)"), tid), strict=True):
                columns[key].append(value)
        # a wait whose call was not traced is a call of its own; the type's number differs by version, its label not
        labels = dict(self._rows("ENUM_CUPTI_SYNC_TYPE", "id", "label"))
        for start, duration, correlation, pid, kind in self._timed(_SYNC, "correlationId", "globalPid", "syncType"):
            if (_whole(pid), _whole(correlation)) in calls:
                continue
            label = str(labels.get(kind, "Unknown"))
            name = self.names.number(label if "wait" in label else f"Synchronize ({label})")
            for key, value in zip(columns, (start, duration, name, -1), strict=True):
                columns[key].append(value)
        return columns, calls

    def _gpu(self, calls: dict[tuple[int, int], int]) -> dict[str, list[Any]]:
        """Return the kernels, copies and memsets."""
        keys = ("start_s", "duration_s", "name", "device", "stream", "launch", "bytes", "direction", "pinned")
        columns: dict[str, list[Any]] = {key: [] for key in keys}

        def add(row: tuple[Any, ...], name: int, moved: Any = None, way: int = -1, pinned: int = -1) -> None:
            start, duration, device, stream, correlation, pid = row[:6]
            launch = calls.get((_whole(pid), _whole(correlation)), -1) if correlation is not None else -1
            size = float(moved) if isinstance(moved, (int, float)) and moved >= 0 else float("nan")
            values = (start, duration, name, _whole(device), _whole(stream), launch, size, way, pinned)
            for key, value in zip(keys, values, strict=True):
                columns[key].append(value)

        common = ("deviceId", "streamId", "correlationId", "globalPid")
        for row in self._timed(_KERNEL, *common, "demangledName", "shortName", "mangledName"):
            name = next((number for number in row[6:] if number in self.texts), None)
            add(row, self._text(name, "(unnamed kernel)"))
        for row in self._timed(_MEMCPY, *common, "bytes", "copyKind", "srcKind", "dstKind"):
            _, kind, *sides = row[6:]
            text = f"[CUDA memcpy {_COPY_NAMES.get(kind, 'of unknown direction')}]"
            pinned = 0 if _PAGEABLE in sides else 1 if _PINNED in sides else -1
            add(row, self.names.number(text), row[6], _DIRECTIONS.get(kind, -1), pinned)
        for row in self._timed(_MEMSET, *common, "bytes"):
            add(row, self.names.number("[CUDA memset]"), row[6])
        return columns

    def _ranges(self) -> tuple[HostRanges, HostRanges]:
        """Return the operators of the framework, and the other NVTX ranges."""
        ops: list[tuple[float, float, int, int]] = []
        others: list[tuple[float, float, int, int]] = []
        rows = self._timed_ranges()
        for start, duration, text, number, tid in rows:
            written = text if isinstance(text, str) else self.texts.get(number)
            if not isinstance(written, str) or not written:
                self.skipped["an NVTX range without a name"] += 1
                continue
            match = _OP.fullmatch(written)
            name = written.split(",")[0] if match else written
            (ops if match else others).append((start, duration, self.names.number(name), _whole(tid)))
        return _host_ranges(ops), _host_ranges(others)

    def _timed_ranges(self) -> list[tuple[Any, ...]]:
        """Return NVTX events that are ranges; marks and the like have no end and are no loss."""
        if "NVTX_EVENTS" not in self.tables:
            return []
        found = []
        for row in self._rows("NVTX_EVENTS", "start", "end", "eventType", "text", "textId", "globalTid"):
            start, end, kind, *rest = row
            if kind is not None and kind not in _NVTX_RANGES:
                continue
            if not isinstance(start, (int, float)) or not isinstance(end, (int, float)) or end < start:
                self.skipped["an NVTX range without an end"] += 1
            else:
                found.append((start * 1e-9, (end - start) * 1e-9, *rest))
        return found

    def _device(self) -> str:
        """Return the name of the GPU, where it was recorded."""
        names = {name for (name,) in self._rows("TARGET_INFO_GPU", "name") if isinstance(name, str)}
        return " and ".join(sorted(names))

    def _notes(self, timeline: Timeline) -> None:
        """Say what is missing for a whole picture, and how long the CPU waited."""
        self.notes.extend(device_notes(timeline))
        alone = int(np.count_nonzero(timeline.gpu.launch < 0))
        if alone:
            self.notes.append(f"{alone} of {len(timeline.gpu)} events of the GPU have no API call in the file.")
        waiting = timeline.api.category == SYNC
        if waiting.any():
            held_s = format_si(float(timeline.api.duration_s[waiting].sum()), "s")
            self.notes.append(f"Calls that wait for the GPU took {held_s} of the CPU's threads together.")


def _host_ranges(rows: list[tuple[float, float, int, int]]) -> HostRanges:
    if not rows:
        return HostRanges()
    start, duration, name, thread = zip(*rows, strict=True)
    return host_ranges(np.array(start), np.array(duration), np.array(name), np.array(thread))


def _whole(value: Any) -> int:
    """Return a number of the file that is one, else -1."""
    return value if isinstance(value, int) and -(2**62) < value < 2**62 else -1


def _process(thread: int) -> int:
    """Return the globalPid of a globalTid."""
    return thread >> _THREAD_BITS << _THREAD_BITS

"""The SQLite file that ``nsys export`` writes, as a profile with its time line.

Tables exist only for what was traced, and their columns differ by version, so the reader looks up both first. Times
are nanoseconds; names are numbers into ``StringIds``. A kernel belongs to the API call of its process with the same
``correlationId``. Ranges of PyTorch's ``emit_nvtx`` ("aten::mm, op_id = 7") are operators of the framework.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from typing import Any

import numpy as np

from perfmodel.core.units import format_si
from perfmodel.errors import InputFileError
from perfmodel.formats.database import MAGIC, Database, open_database, whole
from perfmodel.formats.detect import DEFAULTS, ReadOptions
from perfmodel.formats.interned import Interned
from perfmodel.formats.nsys.timeline import GpuEvent, HostEvent, build_timeline, device_notes, entries_of
from perfmodel.profile.profile import Profile
from perfmodel.profile.timeline import CallKind, CopyDirection, Timeline

NAME = "nsys sqlite"
PRECEDENCE = 100
#: queries read the file from the disk
ANY_SIZE = True
_KERNEL, _MEMCPY, _MEMSET = (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET"))
#: a launch of a CUDA graph as a whole, which Nsight Systems records in place of its kernels unless told otherwise
_GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_RUNTIME, _SYNC = "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
#: the low 24 bits of a globalTid are the thread, the next 24 the process's number, and all but the thread the globalPid
#: (Nsight Systems, "Exporter", Common SQLite)
_THREAD_BITS = 24
#: CUpti_ActivityMemcpyKind and CUpti_ActivityMemoryKind of the CUPTI documentation
_COPY_NAMES = {
    1: "Host-to-Device",
    2: "Device-to-Host",
    8: "Device-to-Device",
    9: "Host-to-Host",
    10: "Peer-to-Peer",
    11: "Unified Host-to-Device",
    12: "Unified Device-to-Host",
    13: "Unified Device-to-Device",
}
_DIRECTIONS = {
    **dict.fromkeys((1, 3, 11), CopyDirection.HOST_TO_DEVICE),
    **dict.fromkeys((2, 4, 12), CopyDirection.DEVICE_TO_HOST),
    **dict.fromkeys((8, 13), CopyDirection.DEVICE_TO_DEVICE),
    10: CopyDirection.BETWEEN_DEVICES,
}
_PAGEABLE, _PINNED = 0, 1
#: databases of other profilers: how the name of a table begins, the program, and what makes a readable file of it
_OTHERS = (
    ("StringTable", "nvprof", "Give nvprof's CSV: nvprof -i FILE --csv."),
    ("rocpd_", "rocprofv3", "Give its CSV, *_kernel_trace.csv: rocpd convert --output-format csv -i FILE."),
)
#: NVTX events that are ranges with a start and an end: PushPop and StartEnd, and those read from NVTX's own text format
#: (ENUM_NSYS_EVENT_TYPE)
_NVTX_RANGES = (59, 60, 70, 71)
#: ranges of torch.autograd.profiler.emit_nvtx: "aten::mm, seq = 5, op_id = 7, sizes = [[2, 3], [3, 4]]"
_OP = re.compile(r"[^,]+, (?:seq|op_id) = \d+.*|aten::\w.*", re.DOTALL)


def sniff(head: bytes) -> bool:
    """Recognise any SQLite file; its tables show later which program wrote it."""
    return head.startswith(MAGIC)


def read(path: str | os.PathLike[str], options: ReadOptions = DEFAULTS) -> Profile:
    """Read an exported SQLite file of Nsight Systems.

    Entries are kernels and memsets by name, CUDA graphs that were traced as a whole by number, and copies by name and
    size; with ``options.by`` "kernel" all of them by name; with "op" by the framework's operator that launched them, if
    NVTX ranges name operators. The time line also holds the calls of the runtime, the operators and the other NVTX
    ranges. Nothing is written, not even a journal.

    Raises
    ------
    InputFileError
        When it is not a complete SQLite file, not from Nsight Systems, or holds no work of a GPU.
    """
    with open_database(path, "Nsight Systems", "Export it: nsys export --type sqlite.") as base:
        return _Reader(base, os.fspath(path)).profile(options.by)


class _Reader:
    """One open file: its tables with their columns, its texts, and what was skipped."""

    def __init__(self, base: Database, place: str) -> None:
        self.base = base
        self.place = place
        self.names = Interned[str]()
        self.skipped: Counter[str] = Counter()
        self.notes: list[str] = []
        self.texts: dict[Any, Any] = {}
        self.graphs = 0
        # each process numbers the GPUs that it sees (CUDA_VISIBLE_DEVICES): its number and theirs -> the machine's
        self.gpus: dict[tuple[Any, Any], int] = {}

    def profile(self, by: str) -> Profile:
        """Return the profile of the file."""
        self._check()
        self.texts = dict(self.base.rows("StringIds", "id", "value"))
        self.gpus = {
            (process, number): gpu
            for process, number, gpu in self.base.rows("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId")
            if isinstance(gpu, int)
        }
        api, calls = self._api()
        gpu = self._gpu(calls)
        if not gpu:
            raise InputFileError(
                "holds no kernels and no copies.",
                place=self.place,
                remedy="Trace CUDA: nsys profile --trace cuda,nvtx.",
            )
        ops, annotations = self._ranges()
        timeline = build_timeline(self.names, gpu, api, ops, annotations)
        if by == "op" and not ops:
            self.notes.append("No NVTX range names an operator of a framework, so the entries are kernels.")
        entries, timeline = entries_of(timeline, by)
        self._notes(timeline)
        return Profile.from_entries(
            entries,
            source=self.place,
            notes=tuple(self.notes),
            skipped=self.skipped,
            format=NAME,
            device=self._device(set(timeline.gpu.device.tolist())),
            timeline=timeline,
        )

    def _check(self) -> None:
        """Raise if another program wrote the file."""
        if "StringIds" in self.base.tables:
            return
        what, remedy = "not an export of Nsight Systems", "Export: nsys export --type sqlite FILE.nsys-rep."
        for table, program, command in _OTHERS:
            if any(name.startswith(table) for name in self.base.tables):
                what, remedy = f"a database of {program}", command
        listed = ", ".join(sorted(self.base.tables)[:8]) or "none"
        raise InputFileError(f"is {what}; its tables are: {listed}.", place=self.place, remedy=remedy)

    def _timed(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return start and duration [s] and the columns of each row; rows without a time are skipped and counted."""
        rows = self.base.timed(table, self.skipped, *columns)
        return [(start * 1e-9, (end - start) * 1e-9, *rest) for start, end, *rest in rows]

    def _text(self, number: Any, missing: str) -> int:
        """Return the number in ``names`` of a text of the file."""
        text = self.texts.get(number) if isinstance(number, int) else None
        return self.names[text if isinstance(text, str) and text else missing]

    def _api(self) -> tuple[list[HostEvent], dict[tuple[int, int], int]]:
        """Return the calls of the runtime, and the position of each by process and correlation."""
        events: list[HostEvent] = []
        calls: dict[tuple[int, int], int] = {}
        for start, duration, thread, correlation, name in self._timed(_RUNTIME, "globalTid", "correlationId", "nameId"):
            if correlation is not None:
                calls.setdefault((_process(whole(thread)), whole(correlation)), len(events))
            events.append(HostEvent(start, duration, self._text(name, "(unnamed call)"), whole(thread)))
        # a wait whose call was not traced counts as a call; the numbers of its type differ by version, the labels not
        labels = dict(self.base.rows("ENUM_CUPTI_SYNC_TYPE", "id", "label"))
        for start, duration, correlation, pid, kind in self._timed(_SYNC, "correlationId", "globalPid", "syncType"):
            if (whole(pid), whole(correlation)) in calls:
                continue
            label = str(labels.get(kind, "Unknown"))
            name = self.names[label if "wait" in label else f"Synchronize ({label})"]
            events.append(HostEvent(start, duration, name))
        return events, calls

    def _gpu(self, calls: dict[tuple[int, int], int]) -> list[GpuEvent]:
        """Return the kernels, graphs, copies and memsets, each with the position of its call in ``calls``."""
        events: list[GpuEvent] = []

        def add(row: tuple[Any, ...], name: int, size: Any = None, direction: int = -1, pinned: int = -1) -> None:
            start, duration, device, stream, correlation, pid = row[:6]
            launch = calls.get((whole(pid), whole(correlation)), -1) if correlation is not None else -1
            moved = float(size) if isinstance(size, (int, float)) and size >= 0 else math.nan
            gpu = self.gpus.get((_number(whole(pid)), device), whole(device))
            events.append(GpuEvent(start, duration, name, gpu, whole(stream), launch, moved, direction, pinned))

        common = ("deviceId", "streamId", "correlationId", "globalPid")
        for row in self._timed(_KERNEL, *common, "demangledName", "shortName", "mangledName"):
            name = next((number for number in row[6:] if number in self.texts), None)
            add(row, self._text(name, "(unnamed kernel)"))
        # a graph may be instantiated again and again: its own number is that of what it does
        for row in self._timed(_GRAPH, *common, "graphId", "graphExecId"):
            number = next((f" {number}" for number in row[6:] if isinstance(number, int)), "")
            add(row, self.names[f"[CUDA graph{number}]"])
            self.graphs += 1
        for row in self._timed(_MEMCPY, *common, "bytes", "copyKind", "srcKind", "dstKind"):
            size, kind, *memory = row[6:]
            name = self.names[f"[CUDA memcpy {_COPY_NAMES.get(kind, 'of unknown direction')}]"]
            pinned = 0 if _PAGEABLE in memory else 1 if _PINNED in memory else -1
            add(row, name, size, _DIRECTIONS.get(kind, CopyDirection.UNKNOWN), pinned)
        for row in self._timed(_MEMSET, *common, "bytes"):
            add(row, self.names["[CUDA memset]"], row[6])
        return events

    def _ranges(self) -> tuple[list[HostEvent], list[HostEvent]]:
        """Return the operators of the framework, and the other NVTX ranges."""
        ops: list[HostEvent] = []
        others: list[HostEvent] = []
        for start, end, kind, text, number, thread in self.base.rows(
            "NVTX_EVENTS", "start", "end", "eventType", "text", "textId", "globalTid"
        ):
            # marks have no end, and are not ranges
            if kind is not None and kind not in _NVTX_RANGES:
                continue
            if not isinstance(start, (int, float)) or not isinstance(end, (int, float)) or end < start:
                self.skipped["NVTX range without an end"] += 1
                continue
            label = text if isinstance(text, str) else self.texts.get(number)
            if not isinstance(label, str) or not label:
                self.skipped["NVTX range without a name"] += 1
                continue
            is_op = _OP.fullmatch(label) is not None
            name = self.names[label.split(",")[0] if is_op else label]
            (ops if is_op else others).append(HostEvent(start * 1e-9, (end - start) * 1e-9, name, whole(thread)))
        return ops, others

    def _device(self, used: set[int]) -> str:
        """Return the name of the GPU that was used, if it was recorded; those of all GPUs where numbers do not tell."""
        listed = [(gpu, name) for gpu, name in self.base.rows("TARGET_INFO_GPU", "id", "name") if isinstance(name, str)]
        names = {name for gpu, name in listed if gpu in used} or {name for _, name in listed}
        return " and ".join(sorted(names))

    def _notes(self, timeline: Timeline) -> None:
        """Add notes on what is missing, and on how long the CPU waited."""
        self.notes.extend(device_notes(timeline))
        alone = int(np.count_nonzero(timeline.gpu.launch < 0))
        if alone:
            self.notes.append(f"{alone} of {len(timeline.gpu)} events of the GPU have no API call in the file.")
        if self.graphs:
            self.notes.append(
                f"{self.graphs} launches of CUDA graphs were traced as a whole, from the first to the last kernel of "
                "each: nsys profile --cuda-graph-trace=node records the kernels."
            )
        waiting = timeline.api.category == CallKind.SYNC
        if waiting.any():
            wait_s = format_si(float(timeline.api.duration_s[waiting].sum()), "s")
            self.notes.append(f"Calls that wait for the GPU took {wait_s}, summed over the CPU's threads.")


def _process(thread: int) -> int:
    """Return the globalPid of a globalTid."""
    return thread >> _THREAD_BITS << _THREAD_BITS


def _number(process: int) -> int:
    """Return the number that the system has for a process, from its globalPid."""
    return process >> _THREAD_BITS & (1 << _THREAD_BITS) - 1

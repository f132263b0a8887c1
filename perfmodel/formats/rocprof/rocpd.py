"""The database that rocprofv3 writes by default (rocpd, an SQLite file), as a profile with its time line.

Tables end in the number of the process that wrote them ("rocpd_kernel_dispatch_0000..."), and views without it hold
those of all processes; here the tables are read. Names are numbers into ``rocpd_string`` and
``rocpd_info_kernel_symbol``. A kernel belongs to the call of its process whose event has the same ``stack_id``, which
is what the CSV calls Correlation_Id (ROCprofiler-SDK, rocpd schema 3). Times are nanoseconds.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perfmodel.core.vocabulary import EventKind
from perfmodel.errors import InputFileError
from perfmodel.formats.database import MAGIC, Database, open_database, whole
from perfmodel.formats.detect import DEFAULTS, ReadOptions
from perfmodel.formats.interned import Interned
from perfmodel.formats.kernel_names import event_kind
from perfmodel.formats.nsys.timeline import GpuEvent, HostEvent, build_timeline, device_notes, entries_of
from perfmodel.formats.rocprof.reports import COUNTED_ALONE, UNDER_HIP, kernel_name
from perfmodel.profile.copies import copy_direction
from perfmodel.profile.profile import Profile
from perfmodel.profile.timeline import CopyDirection

NAME = "rocpd"
#: asked before the reader of nsys, which takes every SQLite file
PRECEDENCE = 110
#: queries read the file from the disk
ANY_SIZE = True
_KERNELS, _COPIES, _REGIONS = "rocpd_kernel_dispatch", "rocpd_memory_copy", "rocpd_region"
_EVENTS, _STRINGS, _SYMBOLS = "rocpd_event", "rocpd_string", "rocpd_info_kernel_symbol"
_AGENTS, _COUNTERS = "rocpd_info_agent", "rocpd_pmc_event"


def sniff(head: bytes) -> bool:
    """Recognise an SQLite file with tables of rocpd, whose names stand in its first pages."""
    return head.startswith(MAGIC) and b"rocpd_" in head


def read(path: str | os.PathLike[str], options: ReadOptions = DEFAULTS) -> Profile:
    """Read a database of rocprofv3.

    Entries are kernels by name, and copies by name and size; with ``options.by`` "kernel" all of them by name. The time
    line also holds the calls of HIP, or of HSA where HIP was not traced, and the ranges that the program marks.

    Raises
    ------
    InputFileError
        When it is not a complete SQLite file, or holds no work of a GPU.
    """
    place = os.fspath(path)
    with open_database(path, "rocprofv3", "Write it: rocprofv3 --sys-trace -- PROGRAM.") as base:
        run = _Run(base)
        # a view without the number holds the same again
        processes = sorted(name.removeprefix(_KERNELS) for name in base.tables if name.startswith(f"{_KERNELS}_"))
        for process in processes or [""]:
            run.add(process)
        counted = any(base.has_rows(name) for name in base.tables if name.startswith(_COUNTERS))
    if not run.gpu:
        raise InputFileError(
            "holds no kernels and no copies.", place=place, remedy="Trace them: rocprofv3 --sys-trace -- PROGRAM."
        )
    timeline = build_timeline(run.names, run.gpu, run.api, (), run.marks)
    entries, timeline = entries_of(timeline, options.by)
    return Profile.from_entries(
        entries,
        source=place,
        notes=(*device_notes(timeline), *((COUNTED_ALONE,) if counted else ())),
        skipped=run.skipped,
        format=NAME,
        device=" and ".join(sorted(run.devices)),
        timeline=None if counted else timeline,
    )


@dataclass
class _Run:
    """What the processes of a file did.

    Attributes
    ----------
    gpu : kernels and copies; ``launch`` is a position in ``api``.
    api, marks : calls of the runtime, and ranges of the program.
    devices : names of the GPUs that work.
    """

    base: Database
    names: Interned[str] = field(default_factory=Interned[str])
    gpu: list[GpuEvent] = field(default_factory=list)
    api: list[HostEvent] = field(default_factory=list)
    marks: list[HostEvent] = field(default_factory=list)
    devices: set[str] = field(default_factory=set)
    skipped: Counter[str] = field(default_factory=Counter)

    def add(self, suffix: str) -> None:
        """Add the tables of a process."""
        texts = dict(self.base.rows(_STRINGS + suffix, "id", "string"))
        stacks = {
            event: (stack, str(texts.get(category, "")))
            for event, category, stack in self.base.rows(_EVENTS + suffix, "id", "category_id", "stack_id")
        }
        calls = self._add_regions(suffix, texts, stacks)
        self._add_work(suffix, texts, {event: calls.get(stack, -1) for event, (stack, _) in stacks.items()})

    def _timed(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        rows = self.base.timed(table, self.skipped, *columns)
        return [(start * 1e-9, (end - start) * 1e-9, *rest) for start, end, *rest in rows]

    def _add_regions(
        self, suffix: str, texts: Mapping[Any, Any], stacks: Mapping[Any, tuple[Any, str]]
    ) -> dict[Any, int]:
        """Add the calls and ranges of a process; return the position of each call by its stack."""
        rows = [
            (*stacks.get(event, (None, "")), start_s, duration_s, thread, name, extra)
            for start_s, duration_s, thread, name, event, extra in self._timed(
                _REGIONS + suffix, "tid", "name_id", "event_id", "extdata"
            )
        ]
        hip = any(category.startswith("HIP") for _, category, *_ in rows)
        calls: dict[Any, int] = {}
        for stack, category, start_s, duration_s, thread, name, extra in rows:
            text = str(texts.get(name) or "(unnamed call)")
            if category.startswith("MARKER"):
                self.marks.append(HostEvent(start_s, duration_s, self.names[_message(extra) or text], whole(thread)))
            elif hip and category.startswith("HSA"):
                self.skipped[UNDER_HIP] += 1
            else:
                if stack is not None:
                    calls.setdefault(stack, len(self.api))
                self.api.append(HostEvent(start_s, duration_s, self.names[text], whole(thread)))
        return calls

    def _add_work(self, suffix: str, texts: Mapping[Any, Any], launches: Mapping[Any, int]) -> None:
        """Add the kernels and copies of a process; ``launches`` maps events to positions of calls."""
        symbols = {
            number: shown or written
            for number, shown, written in self.base.rows(_SYMBOLS + suffix, "id", "display_name", "kernel_name")
        }
        agents = {
            number: (index, str(product or name or ""), kind)
            for number, index, product, name, kind in self.base.rows(
                _AGENTS + suffix, "id", "absolute_index", "product_name", "name", "type"
            )
        }

        def add(row: tuple[float, float], name: str, agent: Any, stream: Any, event: Any, **copy: Any) -> None:
            index, device, _ = agents.get(agent, (-1, "", ""))
            self.devices.update({device} - {""})
            place = (whole(index), whole(stream), launches.get(event, -1))
            self.gpu.append(GpuEvent(*row, self.names[name], *place, **copy))

        columns = ("agent_id", "queue_id", "stream_id", "event_id")
        kernels = self._timed(_KERNELS + suffix, "kernel_id", *columns)
        by_stream = len({stream for *_, stream, _ in kernels}) > 1
        for start_s, duration_s, symbol, agent, queue, stream, event in kernels:
            name = kernel_name(str(symbols.get(symbol) or "(unnamed kernel)"))
            add((start_s, duration_s), name, agent, stream if by_stream else queue, event)
        copies = self._timed(
            _COPIES + suffix, "name_id", "dst_agent_id", "src_agent_id", "size", "stream_id", "event_id"
        )
        for start_s, duration_s, text, target, source, size, stream, event in copies:
            name = str(texts.get(text) or "MEMORY_COPY")
            gpus = [agent for agent in (target, source) if agents.get(agent, ("", "", ""))[2] == "GPU"]
            peer = len(gpus) == 2 and target != source
            name = f"{name} (peer)" if peer else name
            moved = float(size) if isinstance(size, int) and size >= 0 else math.nan
            direction = copy_direction(name) if event_kind(name) is EventKind.MEMCPY else CopyDirection.UNKNOWN
            agent = gpus[0] if gpus else target
            add((start_s, duration_s), name, agent, stream, event, bytes=moved, direction=int(direction))


def _message(extra: Any) -> str:
    """Return what a mark of the program says, from the further data of its range."""
    try:
        found = json.loads(extra)
    except (TypeError, ValueError):
        return ""
    message = found.get("message") if isinstance(found, Mapping) else None
    return message if isinstance(message, str) else ""

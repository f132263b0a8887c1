"""``key_averages()`` of PyTorch's profiler as a profile.

Operators and the kernels that they launch are both rows, so the device's time appears twice. Only one of the two is
counted: the rows that cover more of the profiler's own total, the operators if both cover the same.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import EventKind
from perfmodel.errors import InputFileError
from perfmodel.files import read_text
from perfmodel.formats.detect import DEFAULTS, ReadOptions
from perfmodel.formats.kernel_names import event_kind
from perfmodel.formats.key_averages.events import has_events, is_json, read_csv, read_json
from perfmodel.formats.key_averages.printed import find_header, has_table, read_table
from perfmodel.formats.key_averages.rows import Row, Rows
from perfmodel.formats.text.double_counting import NOT_ITEMISED
from perfmodel.profile.profile import Profile, ProfileEntry

NAME = "key_averages"
PRECEDENCE = 60
#: rows that Kineto adds for its own work (libkineto, ``ActivityType::OVERHEAD`` and CUPTI's overhead kinds)
_OVERHEAD = {
    *("Activity Buffer Request", "Command Buffer Full", "Buffer Flush", "Instrumentation", "Resource"),
    *("Runtime Triggered Module Loading", "Lazy Function Loading", "UVM Activity Initialization", "Unknown"),
}
#: times are printed with four digits, so a sum and a total may differ by up to 1 part in 1000 each
_ROUNDING = 2e-3
_NO_SHAPES = "the table has no shapes and data types"


def sniff(head: bytes) -> bool:
    """Recognise a table by its headers "Self CPU" and "# of Calls", a list of events by its keys."""
    text = head.decode("utf-8", "replace")
    return has_table(text) or has_events(text)


def read(path: str | os.PathLike[str], options: ReadOptions = DEFAULTS) -> Profile:
    """Read a table of ``key_averages()``.

    With time on a device, entries are operators (self time on the device) or kernels; ``options.by`` "op" and
    "kernel" choose, otherwise those that cover more of "Self CUDA time total". If the table was cut (``row_limit``),
    the part of this total that no row holds becomes "(not itemised)". Rows for the profiler's own work are skipped, as
    are ranges that repeat on the device the work inside them (ProfilerStep). Without a device, entries are operators
    by self time on the CPU, category "host".

    Raises
    ------
    InputFileError
        When the file cannot be read, has no such table, a time is damaged, or no time is above zero.
    """
    place = os.fspath(path)
    rows = _read_rows(read_text(path), place)
    if any(row.device_s > 0 for row in rows.rows):
        return _device_profile(rows, options.by, place)
    return _host_profile(rows, place)


def _read_rows(text: str, place: str) -> Rows:
    if is_json(text):
        return read_json(text, place)
    lines = text.replace("\r\n", "\n").split("\n")
    header = find_header(lines)
    return read_csv(lines, place) if header is None else read_table(lines, header, place)


def _device_profile(rows: Rows, by: str, place: str) -> Profile:
    """Return the profile of the device's time, by operator or by kernel."""
    skipped: Counter[str] = Counter()
    notes = list(rows.notes)
    real = [row for row in rows.rows if not _is_overhead(row, skipped)]
    operators = [row for row in real if not row.on_device and row.device_s > 0]
    # an annotated range appears on the device too, with everything inside it
    ranges = {row.name for row in real if not row.on_device}
    kernels = [row for row in real if row.on_device and row.device_s > 0]
    repeated = [row for row in kernels if row.name in ranges or row.name.startswith("ProfilerStep")]
    if repeated:
        skipped["range on the device that repeats the work inside it"] = len(repeated)
        kernels = [row for row in kernels if row not in repeated]
    chosen, reason = _choose(operators, kernels, by)
    if operators and kernels:
        all_s = math.fsum(row.device_s for row in rows.rows)
        total_s = rows.device_total_s or math.fsum(row.device_s for row in chosen)
        notes.append(
            f"Operators and their kernels are both rows: together they add up to {100 * all_s / total_s:.4g} % of "
            f"the device's time ({format_si(total_s, 's')}). {reason}"
        )
    if len({row.name for row in chosen}) < len(chosen) and any(row.name.endswith("...") for row in chosen):
        notes.append(
            "Names are cut, so rows with one name may be different kernels; max_name_column_width prints more."
        )
    entries = [_device_entry(row) for row in chosen]
    entries += _rest(entries, rows.device_total_s, notes)
    return _profile(entries, notes, skipped | rows.skipped, place)


def _is_overhead(row: Row, skipped: Counter[str]) -> bool:
    if row.name not in _OVERHEAD:
        return False
    skipped["row for the profiler's own work"] += 1
    return True


def _choose(operators: Sequence[Row], kernels: Sequence[Row], by: str) -> tuple[Sequence[Row], str]:
    """Return the rows to count, and why."""
    operators_s, kernels_s = (math.fsum(row.device_s for row in rows) for rows in (operators, kernels))
    sums = f"{format_si(operators_s, 's')} in operators, {format_si(kernels_s, 's')} in kernels"
    if by == "kernel" and kernels:
        return kernels, f"The kernels are counted, as requested ({sums})."
    if (by == "op" and operators) or operators_s >= kernels_s * (1 - _ROUNDING):
        return operators, f"The operators are counted, not the kernels ({sums})."
    return kernels, f"The kernels are counted, not the operators, since they cover more ({sums})."


def _device_entry(row: Row) -> ProfileEntry:
    kind = event_kind(row.name) if row.on_device or "::" not in row.name else EventKind.KERNEL
    if row.name.lower().startswith(("nccl", "c10d::", "record_param_comms")):
        kind = EventKind.COMMUNICATION
    return ProfileEntry(
        row.name,
        row.device_s,
        row.calls,
        kind,
        launched_by="" if row.on_device else row.name,
        metrics=_flop(row),
        not_modelled=_NO_SHAPES,
    )


def _flop(row: Row) -> Mapping[str, float]:
    """Return the FLOP from PyTorch's own formulas (``with_flops``), which are not counted by hardware."""
    return MappingProxyType({} if row.flop is None else {"estimated_flop": row.flop})


def _rest(
    entries: Sequence[ProfileEntry], total_s: float | None, notes: list[str], category: EventKind | str = ""
) -> list[ProfileEntry]:
    """Return, as an entry, the part of the profiler's own total that no row holds."""
    shown_s = math.fsum(entry.time_s for entry in entries)
    if total_s is None or abs(total_s - shown_s) <= _ROUNDING * total_s:
        return []
    if total_s < shown_s:
        notes.append(
            f"The rows add up to {format_si(shown_s, 's')}, more than the table's total of {format_si(total_s, 's')}."
        )
        return []
    notes.append(
        f"The table was cut: it shows {format_si(shown_s, 's')} of its total of {format_si(total_s, 's')}; "
        f"the rest is {NOT_ITEMISED!r}."
    )
    return [ProfileEntry(NOT_ITEMISED, total_s - shown_s, category=category)]


def _host_profile(rows: Rows, place: str) -> Profile:
    """Return the profile of the CPU's time."""
    skipped: Counter[str] = Counter()
    real = [row for row in rows.rows if not _is_overhead(row, skipped) and row.self_cpu_s > 0]
    entries = [ProfileEntry(row.name, row.self_cpu_s, row.calls, EventKind.HOST, metrics=_flop(row)) for row in real]
    notes = [*rows.notes, "No row has time on a device: these are times on the CPU."]
    entries += _rest(entries, rows.cpu_total_s, notes, EventKind.HOST)
    return _profile(entries, notes, skipped | rows.skipped, place)


def _profile(entries: Sequence[ProfileEntry], notes: Sequence[str], skipped: Counter[str], place: str) -> Profile:
    if not math.fsum(entry.time_s for entry in entries) > 0:
        raise InputFileError(
            "no row has a time above zero.", place=place, remedy="Print the table of a run that did work."
        )
    return Profile.from_entries(entries, source=place, notes=tuple(notes), skipped=skipped, format=NAME)

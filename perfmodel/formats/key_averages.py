"""``key_averages()`` of the PyTorch profiler, as the text of ``.table()``, or its events as JSON or CSV.

Operators and the kernels that they launch are both rows, so that the device's time stands twice. One of the two is
taken, never both: the rows that cover more of the profiler's own total, the operators where both cover the same.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from perfmodel.core.units import format_si
from perfmodel.errors import InputFileError
from perfmodel.files import read_text
from perfmodel.formats.detect import ReadOptions
from perfmodel.formats.key_averages_rows import Row, Rows, read_rows, sniff_text
from perfmodel.formats.text.events import category_word
from perfmodel.profile import profile as categories
from perfmodel.profile.profile import Profile, ProfileEntry

NAME = "key_averages"
#: rows that Kineto adds for its own work (libkineto, ``ActivityType::OVERHEAD`` and CUPTI's overhead kinds)
_OVERHEAD = {
    *("Activity Buffer Request", "Command Buffer Full", "Buffer Flush", "Instrumentation", "Resource"),
    *("Runtime Triggered Module Loading", "Lazy Function Loading", "UVM Activity Initialization", "Unknown"),
}
#: what the operators' table shows less than the total, more than rounding of its four digits explains
_ROUNDING = 2e-3
_MISSING = "(not itemised)"
_NO_SHAPES = "the table does not give shapes and data types"


def sniff(head: bytes) -> bool:
    """Tell a table by its header of "Self CPU" and "# of Calls", a list of events by its keys."""
    return sniff_text(head.decode("utf-8", "replace"))


def read(path: str | os.PathLike[str], options: ReadOptions | None = None) -> Profile:
    """Read a table of ``key_averages()``.

    With time on a device, entries are operators (self time on the device) or kernels; ``options.by`` "op" and
    "kernel" choose, otherwise those that cover more of "Self CUDA time total". What this total holds beyond the
    rows, because the table was cut (``row_limit``), becomes "(not itemised)". Rows that the profiler adds for
    itself, and ranges that repeat on the device what is inside them (ProfilerStep), are left out. Without a
    device, entries are operators by self time on the CPU, category "host".

    Raises
    ------
    InputFileError
        When the file cannot be read, has no such table, a time is none, or no time is above zero.
    """
    place = os.fspath(path)
    rows = read_rows(read_text(path), place)
    by = (options or ReadOptions()).by
    if any(row.device_s > 0 for row in rows.rows):
        return _device_profile(rows, by, place)
    return _host_profile(rows, place)


def _device_profile(rows: Rows, by: str, place: str) -> Profile:
    """Return the profile of the device's time: of operators or of kernels."""
    skipped: Counter[str] = Counter()
    notes = list(rows.notes)
    real = [row for row in rows.rows if not _is_overhead(row, skipped)]
    ops = [row for row in real if not row.on_device and row.device_s > 0]
    # an annotated range is shown on the device too, with all that is inside it
    ranges = {row.name for row in real if not row.on_device}
    kernels = [row for row in real if row.on_device and row.device_s > 0]
    repeated = [row for row in kernels if row.name in ranges or row.name.startswith("ProfilerStep")]
    if repeated:
        skipped["a range that repeats on the device what is inside it"] = len(repeated)
        kernels = [row for row in kernels if row not in repeated]
    chosen, said = _choose(ops, kernels, by)
    if ops and kernels:
        every_s = math.fsum(row.device_s for row in rows.rows)
        total_s = rows.device_total_s or math.fsum(row.device_s for row in chosen)
        notes.append(
            f"Operators and their kernels are both rows: together they add up to {100 * every_s / total_s:.4g} % of "
            f"the device's time ({format_si(total_s, 's')}). {said}"
        )
    if len({row.name for row in chosen}) < len(chosen) and any(row.name.endswith("...") for row in chosen):
        notes.append("Names are cut: rows that share one may be different kernels. Print more: max_name_column_width.")
    entries = [_device_entry(row) for row in chosen]
    entries += _rest(entries, rows.device_total_s, notes)
    notes.extend(f"Left out: {count} x {reason}." for reason, count in skipped.items())
    return _profile(entries, notes, skipped | rows.skipped, place)


def _is_overhead(row: Row, skipped: Counter[str]) -> bool:
    if row.name not in _OVERHEAD:
        return False
    skipped["a row of the profiler's own work"] += 1
    return True


def _choose(ops: Sequence[Row], kernels: Sequence[Row], by: str) -> tuple[Sequence[Row], str]:
    """Return the rows that are counted, and why."""
    ops_s, kernels_s = (math.fsum(row.device_s for row in rows) for rows in (ops, kernels))
    sums = f"{format_si(ops_s, 's')} in operators, {format_si(kernels_s, 's')} in kernels"
    if by == "kernel" and kernels:
        return kernels, f"The kernels are counted, as asked ({sums})."
    if (by == "op" and ops) or ops_s >= kernels_s * (1 - _ROUNDING):
        return ops, f"The operators are counted, not the kernels ({sums})."
    return kernels, f"The kernels are counted, not the operators: they show more ({sums})."


def _device_entry(row: Row) -> ProfileEntry:
    category = category_word(row.name) if row.on_device or "::" not in row.name else categories.KERNEL
    if row.name.lower().startswith(("nccl", "c10d::", "record_param_comms")):
        category = categories.COMMUNICATION
    return ProfileEntry(
        row.name,
        row.device_s,
        row.calls,
        category,
        launched_by="" if row.on_device else row.name,
        metrics=_flop(row),
        not_modelled=_NO_SHAPES,
    )


def _flop(row: Row) -> Mapping[str, float]:
    """Return the FLOP that PyTorch's own formulas give (``with_flops``), which no counter saw."""
    return MappingProxyType({} if row.flop is None else {"estimated_flop": row.flop})


def _rest(entries: Sequence[ProfileEntry], total_s: float | None, notes: list[str]) -> list[ProfileEntry]:
    """Return what the profiler's own total holds beyond the rows, as an entry."""
    shown_s = math.fsum(entry.time_s for entry in entries)
    if total_s is None or abs(total_s - shown_s) <= _ROUNDING * total_s:
        return []
    if total_s < shown_s:
        notes.append(
            f"The rows add up to {format_si(shown_s, 's')}, more than the table's total of {format_si(total_s, 's')}."
        )
        return []
    notes.append(
        f"The table was cut: of its total of {format_si(total_s, 's')} it shows {format_si(shown_s, 's')}; "
        f"the rest is {_MISSING!r}."
    )
    return [ProfileEntry(_MISSING, total_s - shown_s)]


def _host_profile(rows: Rows, place: str) -> Profile:
    """Return the profile of the CPU's time."""
    skipped: Counter[str] = Counter()
    real = [row for row in rows.rows if not _is_overhead(row, skipped) and row.self_cpu_s > 0]
    entries = [
        ProfileEntry(
            row.name,
            row.self_cpu_s,
            row.calls,
            categories.HOST,
            metrics=_flop(row),
        )
        for row in real
    ]
    notes = [*rows.notes, "No row has time on a device: these are times on the CPU."]
    entries += _rest(entries, rows.cpu_total_s, notes)
    return _profile(entries, notes, skipped | rows.skipped, place)


def _profile(entries: Sequence[ProfileEntry], notes: Sequence[str], skipped: Counter[str], place: str) -> Profile:
    if not math.fsum(entry.time_s for entry in entries) > 0:
        raise InputFileError(
            "no row has a time above zero.", place=place, remedy="Print the table of a run that did work."
        )
    return Profile.from_entries(entries, source=place, notes=tuple(notes), skipped=skipped, format=NAME)

"""Tables of measurements in perfmodel's own schema: CSV, plain or gzip, one measured call per row, SI units.

Columns: ``hardware, op, dtype``, the operator's dimensions under their own names, ``time_s``, ``timing`` (kernel,
event, graph), ``cache`` (cold, warm, rotating), ``implementation``, and optionally ``load`` (burst, sustained),
``source``, ``kernel`` and ``flags``. A blank dimension has its default; attention of a serving library
(`Attention.WRITING`) has ``kv_write``. Older tables call a cold cache "flushed".
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.accuracy.measured import SHORTEST_S, MeasuredCalls, Measurements, Skips, reason_of
from perfmodel.core.units import format_count
from perfmodel.core.vocabulary import CacheState, Load, Timing
from perfmodel.errors import UsageError, unknown_name
from perfmodel.operators import load_operator, operator_names
from perfmodel.operators.attention import Attention
from perfmodel.operators.base import Operator
from perfmodel.operators.checks import LARGEST_SIZE
from perfmodel.operators.collective import Collective
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.moe import Moe
from perfmodel.operators.parse import build_operator
from perfmodel.prediction.implementations import library_of
from perfmodel.records.layouts import as_computed, moe_words
from perfmodel.records.schema import is_measured
from perfmodel.records.table import Lines, Table, read_table

#: columns before and after the dimensions in a table that is written
_BEFORE = ("hardware", "op", "dtype")
_AFTER = ("time_s", "timing", "cache", "implementation", "kernel", "flags")
#: values in a table without the column
_TIMING, _CACHE, _LOAD = Timing.KERNEL, CacheState.COLD, Load.BURST
#: what the rows of one group share, beside the dimensions that are not sizes
_GROUP_KEYS = ("hardware", "op", "dtype", "timing", "cache", "load", "implementation", "source")
_OTHER = ("time_s", "kernel", "flags")
#: elementwise tables may give the shape beside the number of elements
_SHAPE = ("rows", "cols")
#: whose rows of collectives are single calls of a framework between two events
_SINGLE_CALLS = ("torch",)
#: kinds of dimensions that a table does not set: labels in results, and how often a call is made
_UNUSED_KINDS = ("label", "count")


def read_measurements(path: str | os.PathLike[str], hardware: str = "") -> Measurements:
    """Return the measured calls of a table, in groups that share everything but their sizes.

    Impossible rows (an unknown operator, a size below 1, a time that is not above zero, an elementwise ``numel`` that
    is not ``rows`` x ``cols``) are left out and counted in `Measurements.skipped`.

    Parameters
    ----------
    path : the table.
    hardware : the machine of rows that name none, as of a table without the column; "" where nobody states it.

    Raises
    ------
    InputFileError
        When the file cannot be read as such a table: not text, half a gzip file, a required column missing, a row
        with more or fewer cells than the header, text where a number is needed, or no rows.
    """
    table = read_table(path, hardware)
    skips = Skips()
    calls = [group for rows in _groups(table) if (group := _calls(table, rows, skips)) is not None]
    taken = (f"{table.place}: {format_count(table.unnamed, 'row')} without a machine; taken as {hardware}.",)
    return Measurements(table.place, tuple(calls), skips.all(), (*_notes(table), *(taken if table.unnamed else ())))


def _groups(table: Table) -> list[Lines]:
    """Return the rows of each group."""
    groups = []
    for rows in _split(table, _GROUP_KEYS, np.arange(table.line.size)):
        groups.extend(_split(table, _shared_columns(table, rows), rows))
    return groups


def _split(table: Table, names: Sequence[str], rows: Lines) -> list[Lines]:
    """Split rows by their cells in some columns."""
    if not names:
        return [rows]
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for row, key in zip(rows.tolist(), zip(*(table.cells(name, rows) for name in names), strict=True), strict=True):
        groups[key].append(row)
    return [np.array(group) for group in groups.values()]


def _shared_columns(table: Table, rows: Lines) -> tuple[str, ...]:
    """Return the columns in which the rows of a group have to be equal: dimensions that are not sizes, or blank."""
    op = table.columns["op"][rows[0]]
    if op not in operator_names():
        return ()
    return tuple(
        name
        for name, rule in _dimensions(op).items()
        if name in table.columns and (rule["kind"] != "size" or np.any(table.cells(name, rows) == ""))
    )


def _dimensions(op: str) -> dict[str, Mapping[str, Any]]:
    """Return the dimensions of an operator that a table can set, beside its dtype."""
    rules = load_operator(op).dimensions()
    return {name: rule for name, rule in rules.items() if name != "dtype" and rule["kind"] not in _UNUSED_KINDS}


_Given = tuple[dict[str, str], dict[str, NDArray[np.float64]]]
_SINGLE_VALUE = re.compile(r"\[\s*(\d+)\.?\s*\]")


def _calls(table: Table, rows: Lines, skips: Skips) -> MeasuredCalls | None:
    """Return the usable calls of one group, None where there are none."""
    hardware, op, implementation = (str(table.cells(key, rows[:1])[0]) for key in ("hardware", "op", "implementation"))
    timing = table.word("timing", int(rows[0]), _TIMING)
    cache = table.word("cache", int(rows[0]), _CACHE)
    load = table.word("load", int(rows[0]), _LOAD)
    if op not in operator_names():
        skips.add(reason_of(unknown_name("operator", op, operator_names())), table.place, table.line[rows])
        return None
    rows, time = _timed(table, rows, skips)
    if not rows.size:
        return None
    words, sizes = _given(table, op, rows)
    # One call of a serving library's attention turns and writes the new keys; the tables do not say so.
    if op == Attention.op and library_of(implementation) in Attention.WRITING:
        words.setdefault("kv_write", "true")
    if op == Moe.op and library_of(implementation).startswith(Attention.WRITING):
        moe_words(implementation, words)
    good = _usable(table, op, rows, sizes, skips)
    good = _buildable(table, op, rows, (words, sizes), good, skips)
    if not good.any():
        return None
    operator = build_operator(op, {**words, **{name: values[good] for name, values in sizes.items()}})
    try:
        operator = as_computed(operator, implementation, hardware)
    except UsageError as error:
        skips.add(reason_of(error), table.place, table.line[rows[good]])
        return None
    if timing is Timing.GRAPH and _is_call(operator, implementation):
        timing = Timing.EVENT
    if timing is Timing.EVENT and _is_queued(operator, library_of(implementation)):
        timing = Timing.KERNEL
    return MeasuredCalls(
        hardware=hardware,
        op=operator,
        time_s=time[good],
        timing=timing,
        cache=cache,
        implementation=implementation,
        flags=table.cells("flags", rows[good]).astype(str),
        place=table.place,
        line=table.line[rows[good]],
        load=load,
        source=str(table.cells("source", rows[:1])[0]),
    )


def _timed(table: Table, rows: Lines, skips: Skips) -> tuple[Lines, NDArray[np.float64]]:
    """Return the rows with a possible time, and that [s]; count the others by what stands in their cells."""
    time = table.numbers("time_s", rows)
    finite = np.isfinite(time)
    for row, cell in zip(rows[~finite], table.cells("time_s", rows[~finite]).tolist(), strict=True):
        found = str(cell).strip()
        skips.add(f"time_s is {found or 'blank'}", table.place, table.line[np.array([row])])
    possible = finite & (time >= SHORTEST_S)
    skips.add(f"time_s is not above zero ({SHORTEST_S:g} s)", table.place, table.line[rows[finite & ~possible]])
    return rows[possible], time[possible]


def _buildable(
    table: Table, op: str, rows: Lines, given: _Given, good: NDArray[np.bool_], skips: Skips
) -> NDArray[np.bool_]:
    """Return which of the good rows the operator accepts, and count the others with its reasons.

    A group that is refused is halved until the rows are found that it is refused for, so that one row costs one row.
    """
    words, sizes = given
    good, waiting = good.copy(), [np.flatnonzero(good)]
    while waiting:
        part = waiting.pop()
        if not part.size:
            continue
        try:
            build_operator(op, {**words, **{name: values[part] for name, values in sizes.items()}})
        except UsageError as error:
            if part.size > 1 and sizes:
                waiting += [part[part.size // 2 :], part[: part.size // 2]]
            else:
                good[part] = False
                skips.add(_without_arrays(reason_of(error)), table.place, table.line[rows[part]])
    return good


def _without_arrays(reason: str) -> str:
    """Return a reason with the only value of an array in place of the array: "heads=[32.]" is "heads=32"."""
    return _SINGLE_VALUE.sub(r"\1", reason)


def _is_call(op: Operator, implementation: str) -> bool:
    """Return whether rows were timed as calls from the host, although their table says that a graph was replayed.

    vLLM's products with scales of blocks have a least time for each kernel, whatever the sizes: 56 us (FlashInfer), 77
    (DeepGEMM), 168 (CUTLASS) and 285 (Triton) in aic_gemm_vllm, where bf16 products of the same sizes take 5 us.
    """
    return isinstance(op, Gemm) and op.scale.startswith("block") and implementation.startswith("vllm-")


def _is_queued(op: Operator, library: str) -> bool:
    """Return whether rows were timed as many calls in a queue between two events, whose dispatch the kernels hide.

    Benchmarks of collectives do so (nccl-tests; the tables of aiconfigurator, whose smallest all-reduces take 8 us
    where a dispatch takes 25); a framework's name is one of single calls.
    """
    return isinstance(op, Collective) and library not in _SINGLE_CALLS


def _given(table: Table, op: str, rows: Lines) -> _Given:
    """Return the dimensions of one group that are not blank: the shared ones as text, and the sizes."""
    words: dict[str, str] = {}
    sizes: dict[str, NDArray[np.float64]] = {}
    for name, rule in {**_dimensions(op), "dtype": {"kind": "dtype"}}.items():
        cell = str(table.cells(name, rows[:1])[0])
        if cell and rule["kind"] == "size":
            sizes[name] = table.numbers(name, rows)
        elif cell:
            words[name] = cell
    return words, sizes


def _usable(
    table: Table, op: str, rows: Lines, numbers: Mapping[str, NDArray[np.float64]], skips: Skips
) -> NDArray[np.bool_]:
    """Return which rows are possible, and count the others."""
    rules = load_operator(op).dimensions()
    good = np.ones(rows.shape, dtype=bool)
    for name, values in numbers.items():
        least = rules[name]["minimum"]
        possible = (values >= least) & (values <= LARGEST_SIZE) & (values == np.floor(values))
        reason = f"{op}: {name} is not a whole number from {least} to 2^53"
        skips.add(reason, table.place, table.line[rows[good & ~possible]])
        good &= possible
    if op == "elementwise" and all(name in table.columns for name in _SHAPE):
        area = table.numbers(_SHAPE[0], rows) * table.numbers(_SHAPE[1], rows)
        possible = np.isnan(area) | (area == numbers.get("numel", area))
        skips.add("elementwise: numel is not rows x cols", table.place, table.line[rows[good & ~possible]])
        good &= possible
    return good


def _notes(table: Table) -> tuple[str, ...]:
    """Return a sentence on columns that no operator uses, and one for each column that is missing."""
    ops = set(table.columns["op"]) & set(operator_names())
    known = {*_GROUP_KEYS, *_OTHER, *(_SHAPE if "elementwise" in ops else ())}.union(*map(_dimensions, ops))
    ignored = [name for name in table.columns if name not in known]
    notes = (
        [f"{table.place}: no operator of the table has a dimension {', '.join(ignored)}; ignored."] if ignored else []
    )
    defaults = {"timing": _TIMING, "cache": _CACHE}
    absent = {name: default for name, default in defaults.items() if name not in table.columns}
    notes += [f"{table.place}: has no column {name}; taken as {value}." for name, value in absent.items()]
    return tuple(notes)


# --- writing


def measurement_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of a record as rows of a table, all with the same columns in the same order.

    hardware, op, dtype, each dimension of any of the operators by name (empty for others), time_s (the median [s]),
    timing, cache, implementation (backend-kernel), kernel, flags. Rows without a time, and compositions, are left out.
    """
    kept = [row for row in rows if is_measured(row)]
    dimensions = dict.fromkeys(name for row in kept for name in row["params"])
    return [
        {
            **{key: row[key] for key in _BEFORE},
            **{name: _cell(row["params"].get(name)) for name in dimensions},
            "time_s": row["measured_time_s"],
            **{key: row[key] or "" for key in _AFTER[1:]},
        }
        for row in kept
    ]


def _cell(value: Any) -> Any:
    """Return a dimension as a cell: lower-case true and false, empty for None."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else value


def measurement_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of a record as the text of a table of measurements."""
    cells = measurement_rows(rows)
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, list(cells[0]) if cells else [*_BEFORE, *_AFTER], lineterminator="\n")
    writer.writeheader()
    writer.writerows(cells)
    return stream.getvalue()

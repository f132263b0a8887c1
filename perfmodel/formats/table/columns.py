"""Chooses the columns that hold the name, the time and the calls of a table, from its headers.

Profilers name these three in many ways: "Total Time (ns)", "Kernel duration (µs)_sum", "TotalDurationNs",
"self_cuda_time_us". A header is split into lower-case words, and the words decide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from perfmodel.errors import InputFileError
from perfmodel.formats.text.numbers import long_unit_s, unit_s

_WORDS = re.compile(r"[^\W_]+|[%/#]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

#: headers of the column of names, the likeliest first
_NAMES = (
    *("name", "kernel name", "kernel", "op name", "op", "operator", "operation", "function name", "function"),
    *("region", "range", "event", "label", "layer", "module", "stage", "phase", "section", "task", "part"),
    *("op category", "category"),
)
_CALLS = (
    *("calls", "count", "instances", "# of calls", "num calls", "number of calls", "ncalls", "n calls"),
    *("# calls", "call count", "invocations", "launches", "occurrences", "# occurrences"),
)
_TIME = {"time", "duration", "dur", "latency", "elapsed", "runtime"}
_PERCENTAGE = {"%", "percent", "percentage", "pct"}
_PERCENT = _PERCENTAGE | {"share", "fraction", "ratio"}
#: a spread, an extreme or a point in time: such times do not add up
_STATISTIC = {"min", "minimum", "max", "maximum", "std", "stddev", "stdev", "dev", "var", "variance"} | {
    *("start", "begin", "end", "stop", "ts", "timestamp")
}
_MEAN = {"avg", "average", "mean"}
_MEDIAN = {"med", "median", "p50"}
_ONE_CALL = {"call", "launch", "instance", "invocation", "iteration", "iter"}
_SELF = {"self", "direct", "exclusive"}
_SUM = {"total", "sum"}
_NESTED = {"subtree", "inclusive", "child", "children", "cumulative", "cum"}
#: a limit or an expectation, which is taken for the time only where nothing else is
_NOT_MEASURED = {"bound", "predicted", "prediction", "attainable", "theoretical", "ideal", "roofline", "projected"} | {
    *("saved", "saving", "resident")
}
_HOST = {"cpu", "host"}
_DEVICE = {"kernel", "gpu", "device", "cuda", "hip"}
#: how much of a machine is used, in percentages that need not add up: "Achieved Occupancy (%)", "Tensor Cores (%)"
_USE = {"occupancy", "utilization", "efficiency", "cores", "peak", "roofline", "bandwidth", "throughput", "hit", "busy"}


def words(header: str) -> list[str]:
    """Split a header into lower-case words at blanks, punctuation and capitals inside a word.

    >>> words("TotalDurationNs"), words("Kernel duration (µs)_sum")
    (['total', 'duration', 'ns'], ['kernel', 'duration', 'µs', 'sum'])
    """
    return _WORDS.findall(_CAMEL.sub(" ", header).lower())


@dataclass(frozen=True)
class TimeColumn:
    """A column that holds times.

    Attributes
    ----------
    index, header : its position and its header.
    unit_s : the unit in the header [s], or None without one.
    kind : "total" for all calls together, "mean" or "median" for one call.
    preference : sort key; the likelier column comes first.
    """

    index: int
    header: str
    unit_s: float | None
    kind: str
    preference: tuple[int, ...]


@dataclass(frozen=True)
class Columns:
    """The columns that a profile is read from; ``calls`` is None without such a column."""

    name: int
    time: TimeColumn
    calls: int | None
    notes: tuple[str, ...]


def choose_columns(headers: Sequence[str], unit_in_cells: Callable[[int], bool], *, place: str) -> Columns:
    """Choose the columns of name, time and calls.

    Totals are preferred to averages of one call, device time to host time, and the time of an entry alone to the time
    with its children, since nested times count twice. Limits and predictions come last. Percentages, extremes, time
    stamps and rates are never chosen.

    Parameters
    ----------
    headers : the headers in order.
    unit_in_cells : whether the cells of a column carry a unit.
    place : the file, for messages.

    Raises
    ------
    InputFileError
        When there is no column of names or of times, or no time has a unit.
    """
    name = find_name(headers)
    if name is None:
        raise _missing("a name", headers, place, "Name one 'name', 'kernel', 'op' or 'region'.")
    times = [column for column in time_columns(headers) if column.index != name]
    if not times:
        minutes = any(bag & _TIME and bag - _TIME == {"min"} for bag in (set(words(header)) for header in headers))
        means = " 'min' is taken for the least one: write 'minutes'." if minutes else ""
        raise _missing("a time", headers, place, f"Name one 'time_ms', 'time_us' or 'Time (ns)', for example.{means}")
    usable = [column for column in times if column.unit_s is not None or unit_in_cells(column.index)]
    if not usable:
        raise _no_unit(times[0].header, place)
    chosen = min(usable, key=lambda column: (*column.preference, column.index))
    calls = _find_calls(headers)
    return Columns(name, chosen, calls, _notes(headers, name, chosen, times, calls))


def find_name(headers: Sequence[str]) -> int | None:
    """Return the column of names: the likeliest header, else the first one that ends in "name"."""
    plain = [" ".join(words(header)) for header in headers]
    likeliest = next((plain.index(name) for name in _NAMES if name in plain), None)
    if likeliest is not None:
        return likeliest
    return next((index for index, text in enumerate(plain) if text.endswith(" name")), None)


def _find_calls(headers: Sequence[str]) -> int | None:
    """Return the column of calls: a usual header, or the count that belongs to a column of times."""
    split = [words(header) for header in headers]
    plain = [" ".join(parts) for parts in split]
    likeliest = next((plain.index(name) for name in _CALLS if name in plain), None)
    if likeliest is not None:
        return likeliest
    return next((i for i, parts in enumerate(split) if parts[-1:] == ["count"] and _TIME & set(parts)), None)


def time_columns(headers: Sequence[str]) -> list[TimeColumn]:
    """Return every column that may hold the times of a profile, in the order of the table."""
    columns = (_time_column(index, header) for index, header in enumerate(headers))
    return [column for column in columns if column is not None]


def percent_columns(headers: Sequence[str]) -> list[int]:
    """Return the columns that hold each row's percentage of the whole time, without running sums."""
    bags = (set(words(header)) for header in headers)
    return [index for index, bag in enumerate(bags) if bag & _PERCENTAGE and not bag & (_NESTED | _USE)]


def _time_column(index: int, header: str) -> TimeColumn | None:
    """Return a column of times as its header describes it, or None if its values are not times that add up."""
    parts = words(header)
    bag = set(parts)
    # the columns h and w of an image hold no times, and "min" is the least one more often than minutes
    found = [long_unit_s(word) if bag & _TIME and word != "min" else unit_s(word) for word in parts]
    units = [position for position, unit in enumerate(found) if unit is not None]
    if not units and not bag & _TIME:
        return None
    # "end to end" is a duration, "end" alone a time stamp
    if bag & (_PERCENT | _STATISTIC - ({"end"} if "to" in bag else set())) or parts[-1] in ("count", "calls"):
        return None
    if any(re.fullmatch(r"p\d+", word) and word not in _MEDIAN for word in parts):
        return None
    if units and units[-1] > 0 and parts[units[-1] - 1] in ("/", "per"):
        return None
    unit = found[units[-1]] if units else None
    kind = _kind(parts)
    order = ("total", "mean", "median").index(kind)
    where = 2 if bag & _HOST else 0 if bag & _DEVICE else 1
    model = int(bool(bag & _NOT_MEASURED))
    return TimeColumn(index, header, unit, kind, (model, order, int(not bag & _TIME), where, _scope(parts)))


def _kind(parts: list[str]) -> str:
    """Return whether a header means the time of all calls, or the mean or median of one."""
    if set(parts) & _MEDIAN:
        return "median"
    one_call = any(before in ("/", "per") and word in _ONE_CALL for before, word in pairwise(parts))
    return "mean" if one_call or set(parts) & _MEAN else "total"


def _scope(parts: list[str]) -> int:
    """Return the order of preference: 0 for the entry alone, 1 for a sum, 3 with its children, else 2."""
    bag = set(parts)
    if ("non", "child") in pairwise(parts):  # "DurNonChild" of nsys stats
        return 0
    for order, scope in ((0, _SELF), (3, _NESTED), (1, _SUM)):
        if bag & scope:
            return order
    return 2


def _notes(
    headers: Sequence[str], name: int, time: TimeColumn, times: list[TimeColumn], calls: int | None
) -> tuple[str, ...]:
    """Return notes on what was chosen where there was a choice, and on what may be wrong."""
    notes = []
    measured = [column for column in times if not set(words(column.header)) & _NOT_MEASURED]
    others = [column.header for column in measured or times if column is not time and column.kind == time.kind]
    if not measured:
        notes.append(f"Times come from column {time.header!r}: a limit or a prediction, not what was measured.")
    elif others:
        listed = ", ".join(repr(header) for header in others[:4]) + (", ..." if len(others) > 4 else "")
        notes.append(f"Times come from column {time.header!r}, not from {listed}.")
    if time.kind != "total":
        by_calls = f"times {headers[calls]!r}" if calls is not None else "of one call: there is no column of calls"
        notes.append(f"Times are the {time.kind} {time.header!r} {by_calls}.")
    if words(headers[name]) == ["range"]:
        notes.append("The rows are ranges. Where they nest, time counts twice and the total is too large.")
    return tuple(notes)


def _no_unit(header: str, place: str) -> InputFileError:
    """Return the error for a column of times whose unit is missing, or none that is known: "time (ticks)"."""
    plain = re.split(r"[(\[]", header)[0].strip()
    shown = f"{header}_ms" if plain == header or not plain else f"{plain} (ms)"
    return InputFileError(
        f"the time in column {header!r} has no unit.",
        place=place,
        remedy=f"Add it to the header, as in {shown!r} (s, ms, us, ns, minutes, hours), or to the cells: '12 ms'.",
    )


def _missing(what: str, headers: Sequence[str], place: str, remedy: str) -> InputFileError:
    shown = ", ".join(repr(header[:40]) for header in headers[:12]) + (", ..." if len(headers) > 12 else "")
    return InputFileError(f"no column holds {what}; the columns are {shown}.", place=place, remedy=remedy)

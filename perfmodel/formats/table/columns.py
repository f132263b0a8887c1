"""Which column of a table holds the name, the time and the calls, told from the headers.

Profilers name the same three things in many ways: "Total Time (ns)", "Kernel duration (µs)_sum",
"TotalDurationNs", "self_cuda_time_us". A header is split into lower-case words, and the words decide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from perfmodel.core.units import parse_quantity
from perfmodel.errors import InputFileError

_UNIT = re.compile(r"(milli|micro|nano|[munµμ])?(?:s|secs?|seconds?)")
_PREFIX = {"milli": "m", "micro": "u", "nano": "n"}
_WORDS = re.compile(r"[^\W_]+|[%/#]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

#: headers of the name, the likeliest first
_NAMES = (
    *("name", "kernel name", "kernel", "op name", "op", "operator", "operation", "function name", "function"),
    *("region", "range", "event", "label", "layer", "module", "stage", "phase", "section", "task", "part"),
)
_CALLS = (
    *("calls", "count", "instances", "# of calls", "num calls", "number of calls", "ncalls", "n calls"),
    *("# calls", "call count", "invocations", "launches", "occurrences"),
)
_TIME = {"time", "duration", "dur", "latency", "elapsed", "runtime"}
_PERCENTAGE = {"%", "percent", "percentage", "pct"}
_PERCENT = _PERCENTAGE | {"share", "fraction", "ratio"}
#: a spread, an extreme or a moment: no time that adds up
_STATISTIC = {"min", "minimum", "max", "maximum", "std", "stddev", "stdev", "dev", "var", "variance"} | {
    *("start", "begin", "end", "stop", "ts", "timestamp")
}
_MEAN = {"avg", "average", "mean"}
_MEDIAN = {"med", "median", "p50"}
_ONE_CALL = {"call", "launch", "instance", "invocation", "iteration", "iter"}
_SELF = {"self", "direct", "exclusive"}
_SUM = {"total", "sum"}
_NESTED = {"subtree", "inclusive", "children", "cumulative", "cum"}
_HOST = {"cpu", "host"}


def unit_s(word: str) -> float | None:
    """Return how many seconds a unit of time is, or None where the word is no such unit.

    >>> unit_s("usec"), unit_s("milliseconds"), unit_s("GB")
    (1e-06, 0.001, None)
    """
    match = _UNIT.fullmatch(word.lower())
    if match is None:
        return None
    prefix = match.group(1) or ""
    return parse_quantity(f"1 {_PREFIX.get(prefix, prefix)}s", "s")


def words(header: str) -> list[str]:
    """Split a header into lower-case words: at blanks, punctuation and capitals inside a word.

    >>> words("TotalDurationNs"), words("Kernel duration (µs)_sum")
    (['total', 'duration', 'ns'], ['kernel', 'duration', 'µs', 'sum'])
    """
    return _WORDS.findall(_CAMEL.sub(" ", header).lower())


@dataclass(frozen=True)
class TimeColumn:
    """A column that holds times.

    Attributes
    ----------
    index, header : where it stands and what it is called.
    unit_s : the unit that the header names [s], or None where it names none.
    kind : "total" for all calls together, "mean" or "median" for one call.
    preference : sorts the likelier column first.
    """

    index: int
    header: str
    unit_s: float | None
    kind: str
    preference: tuple[int, ...]


@dataclass(frozen=True)
class Columns:
    """The columns that a profile is read from; ``calls`` is None where there is no such column."""

    name: int
    time: TimeColumn
    calls: int | None
    notes: tuple[str, ...]


def choose_columns(headers: Sequence[str], unit_in_cells: Callable[[int], bool], *, place: str) -> Columns:
    """Choose the columns of name, time and calls.

    A total is taken before an average of one call; time on the device before time on the host; time of
    the entry itself before time with its children, since nested times count twice. Percentages, extremes,
    time stamps and rates are never taken.

    Parameters
    ----------
    headers : the headers in order.
    unit_in_cells : tells for a column whether its cells carry a unit.
    place : the file, for messages.

    Raises
    ------
    InputFileError
        When there is no column of names or of times, or no time has a unit.
    """
    name = find_name(headers)
    if name is None:
        raise _missing("a name", headers, place, "Call one 'name', 'kernel', 'op' or 'region'.")
    times = [column for column in time_columns(headers) if column.index != name]
    if not times:
        raise _missing("a time", headers, place, "Call one 'time_ms', 'time_us', 'Time (ns)' or the like.")
    usable = [column for column in times if column.unit_s is not None or unit_in_cells(column.index)]
    if not usable:
        header = times[0].header
        raise InputFileError(
            f"the time in column {header!r} has no unit.",
            place=place,
            remedy=f"Name it in the header, as in '{header}_ms' (s, ms, us, ns), or in the cells, as in '12 ms'.",
        )
    chosen = min(usable, key=lambda column: (*column.preference, column.index))
    calls = _find_calls(headers)
    return Columns(name, chosen, calls, _notes(headers, name, chosen, times, calls))


def find_name(headers: Sequence[str]) -> int | None:
    """Return the column of names: the likeliest header, else the first one that ends in "name"."""
    plain = [" ".join(words(header)) for header in headers]
    known = next((plain.index(name) for name in _NAMES if name in plain), None)
    if known is not None:
        return known
    return next((index for index, text in enumerate(plain) if text.endswith(" name")), None)


def _find_calls(headers: Sequence[str]) -> int | None:
    """Return the column of calls: a known header, or the count of a column of times."""
    split = [words(header) for header in headers]
    plain = [" ".join(parts) for parts in split]
    known = next((plain.index(name) for name in _CALLS if name in plain), None)
    if known is not None:
        return known
    return next((i for i, parts in enumerate(split) if parts[-1:] == ["count"] and _TIME & set(parts)), None)


def time_columns(headers: Sequence[str]) -> list[TimeColumn]:
    """Return every column that may hold the times of a profile, in the table's order."""
    found = (_time_column(index, header) for index, header in enumerate(headers))
    return [column for column in found if column is not None]


def percent_columns(headers: Sequence[str]) -> list[int]:
    """Return the columns that hold each row's percentage of the whole; running sums are none of them."""
    bags = (set(words(header)) for header in headers)
    return [index for index, bag in enumerate(bags) if bag & _PERCENTAGE and not bag & _NESTED]


def _time_column(index: int, header: str) -> TimeColumn | None:
    """Return what a header says of its times, or None where it holds no time that can be added up."""
    parts = words(header)
    bag = set(parts)
    units = [position for position, word in enumerate(parts) if unit_s(word) is not None]
    if not units and not bag & _TIME:
        return None
    # "end to end" is a duration, "end" alone a time stamp
    if bag & (_PERCENT | _STATISTIC - ({"end"} if "to" in bag else set())) or parts[-1] in ("count", "calls"):
        return None
    if any(re.fullmatch(r"p\d+", word) and word not in _MEDIAN for word in parts):
        return None
    if units and units[-1] > 0 and parts[units[-1] - 1] in ("/", "per"):
        return None
    unit = unit_s(parts[units[-1]]) if units else None
    kind = _kind(parts)
    order = ("total", "mean", "median").index(kind)
    return TimeColumn(index, header, unit, kind, (order, int(not bag & _TIME), int(bool(bag & _HOST)), _scope(bag)))


def _kind(parts: list[str]) -> str:
    """Tell the time of all calls from the average of one."""
    if set(parts) & _MEDIAN:
        return "median"
    one_call = any(before in ("/", "per") and word in _ONE_CALL for before, word in pairwise(parts))
    return "mean" if one_call or set(parts) & _MEAN else "total"


def _scope(bag: set[str]) -> int:
    """Order times: of the entry itself, a stated sum, unsaid, with its children."""
    for order, known in ((0, _SELF), (3, _NESTED), (1, _SUM)):
        if bag & known:
            return order
    return 2


def _notes(
    headers: Sequence[str], name: int, time: TimeColumn, times: list[TimeColumn], calls: int | None
) -> tuple[str, ...]:
    """Say what was chosen where there was a choice, and what to beware of."""
    notes = []
    others = [column.header for column in times if column is not time and column.kind == time.kind]
    if others:
        listed = ", ".join(repr(header) for header in others[:4]) + (", ..." if len(others) > 4 else "")
        notes.append(f"Times are taken from column {time.header!r}, not from {listed}.")
    if time.kind != "total":
        how = f"times {headers[calls]!r}" if calls is not None else "for one call each: there is no column of calls"
        notes.append(f"Times are the {time.kind} {time.header!r} {how}.")
    if words(headers[name]) == ["range"]:
        notes.append("The rows are ranges: where they nest, time is counted twice and the total is too large.")
    return tuple(notes)


def _missing(what: str, headers: Sequence[str], place: str, remedy: str) -> InputFileError:
    shown = ", ".join(repr(header[:40]) for header in headers[:12]) + (", ..." if len(headers) > 12 else "")
    return InputFileError(f"no column holds {what}; the columns are {shown}.", place=place, remedy=remedy)

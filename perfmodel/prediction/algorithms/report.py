"""The report of a choice: one row for each algorithm, and the sizes at which the choice changes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from perfmodel.core.report import Column, Report
from perfmodel.core.saved import with_columns
from perfmodel.core.units import format_interval
from perfmodel.prediction.algorithms.choice import Choice
from perfmodel.prediction.algorithms.crossover import Crossover

_NO_CONTEXT: Mapping[str, Any] = MappingProxyType({})


def _interval(row: Mapping[str, Any]) -> str:
    """Return the 80 % interval of the time, with one unit where both ends have the same."""
    return format_interval(row.get("time_low_s"), row.get("time_high_s"), "s")


def _refusal(row: Mapping[str, Any]) -> str:
    """Return why an algorithm does not apply, with its name: it has no number among the rows."""
    return f"{row['algorithm']}: {row['why_not']}" if row["why_not"] else ""


COLUMNS = (
    Column("problem", shown=False),
    Column("op", shown=False),
    Column("name", shown=False),
    Column("dimensions", shown=False),
    Column("params", shown=False),
    Column("dtype", shown=False),
    Column("hardware", shown=False),
    Column("rank", "#"),
    Column("algorithm"),
    Column("time_s", "time", "s"),
    Column("time_low_s", "low-high", "s", show_row=_interval, drop=2),
    Column("time_high_s", unit="s", shown=False),
    Column("speedup", "of the best", "x", shown=False),
    Column("flop", unit="FLOP", drop=1),
    Column("bytes", unit="B"),
    Column("kernels", drop=3),
    Column("workspace_bytes", "workspace", "B", drop=4),
    Column("why_not", "does not apply", show_row=_refusal, prose=True),
    Column("basis", shown=False),
)
CROSSOVER_COLUMNS = (
    Column("problem", shown=False),
    Column("dimensions", shown=False),
    Column("dtype", shown=False),
    Column("hardware", shown=False),
    Column("dimension", "size"),
    Column("size", "from"),
    Column("before", "instead of"),
    Column("after", "fastest"),
    Column("time_s", "time there", "s"),
)
#: title of the further table
_CROSSINGS = "Where the fastest algorithm changes"


def choice_report(
    choices: Choice | Sequence[Choice],
    *,
    command: str = "analyze",
    context: Mapping[str, Any] = _NO_CONTEXT,
    title: str = "",
) -> Report:
    """Return one row for each algorithm of one choice or several, and the crossovers as a further table."""
    listed = [choices] if isinstance(choices, Choice) else list(choices)
    hardware = list(dict.fromkeys(choice.hardware.name for choice in listed))
    crossings = [_crossover_row(choice, item) for choice in listed for item in choice.crossovers]
    rows = [row for choice in listed for row in _rows(choice)]
    columns = _columns(rows, CROSSOVER_COLUMNS)
    more = {"crossovers": Report(command, columns, crossings, title=_CROSSINGS)}
    return Report(
        command,
        _columns(rows, COLUMNS),
        rows,
        {"hardware": hardware, **context},
        notes=tuple(dict.fromkeys(note for choice in listed for note in _notes(choice))),
        title=title or _title(listed),
        more=more if crossings else {},
    )


def saved(table: Report) -> Report:
    """Return algorithms that were read from JSON as `analyze --algorithms` shows them."""
    more = {
        key: with_columns(one, _columns(table.rows, CROSSOVER_COLUMNS), title=_CROSSINGS)
        for key, one in table.more.items()
    }
    return with_columns(table, _columns(table.rows, COLUMNS), more=more)


def _columns(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns; those that tell choices apart are shown where there are several."""
    keys = ("problem", "dimensions", "dtype", "hardware")
    several = {key for key in keys if len({row[key] for row in rows}) > 1}
    return tuple(Column(column.key, merge=True) if column.key in several else column for column in columns)


def _dimensions(choice: Choice) -> str:
    given = (key for key in choice.op.given() if key != "algorithm")
    return " ".join(f"{key}={_shown(choice.op.params()[key])}" for key in given)


def _title(choices: Sequence[Choice]) -> str:
    titles = dict.fromkeys(choice.hardware.title or choice.hardware.name for choice in choices)
    first = choices[0]
    what = f"Algorithms of {first.problem.name}"
    if len(choices) == 1:
        what = f"{what}, {_dimensions(first)} {first.op.dtype}"
    return f"{what} on {', '.join(titles)}"


def _shown(value: Any) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _rows(choice: Choice) -> list[dict[str, Any]]:
    best = choice.rows[0].time_s if choice.rows and choice.rows[0].applies else math.nan
    common = {
        "problem": choice.problem.name,
        "op": choice.op.op,
        "name": choice.op.name or choice.op.op,
        "dimensions": _dimensions(choice),
        "params": choice.op.params(),
        "dtype": choice.op.dtype,
        "hardware": choice.hardware.name,
    }
    return [
        {
            **common,
            "rank": rank if cost.applies else None,
            "algorithm": cost.algorithm,
            "time_s": cost.time_s,
            "time_low_s": cost.time_low_s,
            "time_high_s": cost.time_high_s,
            "speedup": cost.time_s / best,
            "flop": cost.flop,
            "bytes": cost.bytes,
            "kernels": cost.kernels,
            "workspace_bytes": cost.workspace_bytes if math.isfinite(cost.time_s) else None,
            "why_not": cost.why_not,
            "basis": cost.basis,
        }
        for rank, cost in enumerate(choice.rows, start=1)
    ]


def _crossover_row(choice: Choice, item: Crossover) -> dict[str, Any]:
    return {
        "problem": choice.problem.name,
        "dimensions": _dimensions(choice),
        "dtype": choice.op.dtype,
        "hardware": choice.hardware.name,
        "dimension": choice.problem.size,
        "size": item.size,
        "before": item.before,
        "after": item.after,
        "time_s": item.time_s,
    }


def _notes(choice: Choice) -> list[str]:
    """Return what the rows assume, and a warning where the two fastest are too close to call."""
    able = [cost for cost in choice.rows if cost.applies]
    notes = [choice.problem.note] if choice.problem.note else []
    if len(able) > 1 and able[1].time_low_s < able[0].time_high_s:
        close = [cost.algorithm for cost in able[1:] if cost.time_s < 1.1 * able[0].time_s]
        if close:
            notes.append(f"{', '.join(close)} within 10 % of {able[0].algorithm}: too close to call.")
    return notes

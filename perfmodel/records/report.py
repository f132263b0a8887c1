"""The report of a record: the columns of `analyze`, or those of `bench`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from perfmodel.core.report import Column, Report, report
from perfmodel.core.units import format_fraction
from perfmodel.prediction.columns import PREDICTION_COLUMNS
from perfmodel.records.schema import MEASURED_KEYS, OPTIONAL_KEYS, Record, Status

#: columns of `analyze` in tables of a benchmark -> rank in which narrow tables drop them; the cell of the operator has
#: its dimensions and dtype. What was expected stays longest beside what was measured, then the share of the bound
#: times among the keys of a measurement that no column is for
_EXPECTED = ("own_bound_time_s", *(f"composition_time{end}_s" for end in ("", "_low", "_high")))
_KEPT = {"name": 0, "limiter": 4, "bound_time_s": 2, "predicted_time_s": 0}


@report.register
def _(record: Record) -> Report:
    """Return the report of a record; JSON and CSV have every key of its rows."""
    columns = bench_columns() if record.command == "bench" else PREDICTION_COLUMNS
    return Report(record.command, columns, record.values, record.facts, record.notes, record.title)


def bench_columns() -> tuple[Column, ...]:
    """Return the columns of a record of `bench`: those of `analyze`, then those of the measurement."""
    kept = [
        dataclasses.replace(column, shown=column.key in _KEPT, drop=_KEPT.get(column.key, 0))
        for column in PREDICTION_COLUMNS
    ]
    place = next(index for index, column in enumerate(kept) if column.key == "dtype")
    kept.insert(place, Column("kernel"))
    present = {column.key for column in (*kept, *_MEASURED_COLUMNS)} | set(OPTIONAL_KEYS)
    others = (
        Column(key, "statistics" if key == "time_s" else "", "s" if key in _EXPECTED else "", shown=False)
        for key in MEASURED_KEYS if key not in present
    )  # fmt: skip
    return (*kept, *_MEASURED_COLUMNS, *others)


def _measured(row: Mapping[str, Any]) -> str:
    """Return the measured time for people, or why there is none: every table has this column."""
    if row.get("status") != Status.OK:
        return str(row.get("status") or "-")
    return _TIME.text(row.get(_TIME.key))


def _share_of_bound(row: Mapping[str, Any]) -> str:
    """Return the efficiency for people; a share above 100 % would suggest that it is possible."""
    if row.get("faster_than_bound"):
        return "faster than the bound"
    efficiency = row.get("efficiency")
    return format_fraction(efficiency) if isinstance(efficiency, (int, float)) else "-"


_TIME = Column("measured_time_s", "measured", "s")
_MEASURED_COLUMNS = (
    dataclasses.replace(_TIME, show_row=_measured),
    Column("prediction_error", "error", "fraction"),
    Column("achieved_flop_per_s", "achieved", "FLOP/s", digits=3, drop=6),
    Column("achieved_bytes_per_s", "achieved", "B/s", digits=3, drop=5),
    Column("algorithm_bytes_per_s", "algorithm bandwidth", "B/s", digits=3, drop=3),
    Column("bus_bytes_per_s", "bus bandwidth", "B/s", digits=3),
    Column("efficiency", "share of bound", "fraction", drop=1, show_row=_share_of_bound),
)

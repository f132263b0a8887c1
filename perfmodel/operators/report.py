"""Reports of operators: the list of them, and the dimensions of one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from perfmodel.core.report import Column, Report, report
from perfmodel.core.saved import with_columns
from perfmodel.operators.listing import COMMON, OperatorInfo, OperatorListing


@report.register
def _(listing: OperatorListing, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return one row for each operator: op, dimensions (as they are written on the command line), summary."""
    rows = [{"op": info.name, "dimensions": _shown(info), "summary": info.summary} for info in listing.operators]
    notes = (
        "Dimensions without a default have to be given; those in brackets follow from the others. Every operator takes "
        "dtype, engine, name and count.",
        "`perfmodel operators NAME` explains the dimensions of one.",
    )
    return Report("operators", _LISTED, rows, context or {}, notes, "Operators and their dimensions")


@report.register
def _(info: OperatorInfo, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return one row for each dimension: name, kind, default, required, allowed, meaning."""
    rows = [dataclasses.asdict(item) for item in info.dimensions]
    return Report(
        "operators", _DIMENSIONS, rows, {"op": info.name, **(context or {})}, (), f"{info.name}: {info.summary}"
    )


def _shown(info: OperatorInfo) -> str:
    """Return the dimensions of an operator without those that all have."""
    own = tuple(item for item in info.dimensions if item.name not in COMMON)
    return dataclasses.replace(info, dimensions=own).usage


def _default(row: Mapping[str, Any]) -> str:
    """Return the default of a dimension for people, with the other names of a choice."""
    if row["required"]:
        return "required"
    others = ", ".join(name for name in row["allowed"] if name != row["default"])
    return f"{row['default']} ({others})" if 0 < len(row["allowed"]) - 1 <= _MOST_NAMES else str(row["default"])


#: other names of a choice that fit into a cell
_MOST_NAMES = 4
_LISTED = (Column("op", "operator"), Column("dimensions"), Column("summary", shown=False))
_DIMENSIONS = (
    Column("name", "dimension"),
    Column("default", show_row=_default),
    Column("kind", drop=1),
    Column("meaning"),
    Column("allowed", shown=False),
    Column("required", shown=False),
)


def saved(table: Report) -> Report:
    """Return operators, or the dimensions of one, that were read from JSON as `operators` lists them."""
    return with_columns(table, _DIMENSIONS if any("required" in row for row in table.rows) else _LISTED)

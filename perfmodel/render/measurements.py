"""A report of `bench` as a measurement table: CSV that `validate` and `calibrate --from` read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfmodel.core.report import Report

SUFFIXES = (".csv.gz",)
ALSO = (".csv",)
COMMANDS = ("bench",)


def render(report: Report) -> str:
    """Return the rows that have a time as CSV, with one column for each dimension."""
    from perfmodel.records.measurements import measurement_csv

    return measurement_csv(report.rows)

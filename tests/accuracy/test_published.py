"""Published runs by group: quantities are never merged, and a label that groups nothing has no column."""

from __future__ import annotations

import pytest

from perfmodel.accuracy.published import PublishedRow, PublishedRuns
from perfmodel.core.report import report


@pytest.fixture
def runs() -> PublishedRuns:
    """Return two quantities of two runs on each of two machines."""
    return PublishedRuns(
        tuple(
            PublishedRow(
                quantity, 1.0, 1.1, 0.9, 1.2, 2.0, {"table": "t", "hardware": machine}, "r", f"t.csv:{line}"
            )
            for quantity in ("tpot_s", "ttft_s")
            for machine in ("h100", "t4")
            for line in (2, 3)
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("by", "headings", "rows"),
    [
        ((), ["quantity"], 2),
        (("hardware",), ["hardware", "quantity"], 6),
        (("table", "quantity"), ["table", "quantity"], 2),
    ],
)
def test_the_labels_that_group_are_shown_and_each_quantity_is_a_group(runs, by, headings, rows) -> None:
    found = report(runs, by=by)
    shown = [column.heading for column in found.shown_columns()]
    assert shown[: shown.index("rows")] == headings
    assert len(found.rows) == rows
    assert {row["quantity"] for row in found.rows} == {"tpot_s", "ttft_s"}
    assert all("table" in row for row in found.rows), "JSON has the keys of every grouping"


def test_the_worst_runs_have_the_units_of_their_quantities() -> None:
    figures = {"step_time_s": 8.4, "memory_bytes": 80.0 * 2**30, "output_tokens_per_s": 3459.0}
    rows = tuple(
        PublishedRow(quantity, value, 2 * value, value, value, 1.0, {"table": "t"}, "r", "t.csv:2")
        for quantity, value in figures.items()
    )
    worst = report(PublishedRuns(rows), worst=3).more["worst"]
    (measured,) = (column for column in worst.columns if column.key == "measured")
    assert [measured.cell(row) for row in worst.rows] == ["8.4 s", "80 GiB", "3459"]
    assert [row["measured"] for row in worst.rows] == list(figures.values())

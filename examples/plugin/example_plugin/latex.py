"""A report as a LaTeX table."""

from __future__ import annotations

from perfmodel.core.report import Report

SUFFIXES = (".tex",)
_ESCAPES = str.maketrans({mark: f"\\{mark}" for mark in "&%$#_{}"} | {"\\": r"\textbackslash{}"})


def render(report: Report) -> str:
    """Return the columns for people as a tabular; columns with a unit are aligned to the right."""
    columns = report.shown_columns()
    lines = [_line(column.heading for column in columns) + r" \hline"]
    lines += [_line(column.cell(row) for column in columns) for row in report.shown_rows]
    alignment = "".join("r" if column.unit else "l" for column in columns)
    return "\n".join([rf"\begin{{tabular}}{{{alignment}}}", *lines, r"\end{tabular}", ""])


def _line(cells: object) -> str:
    return " & ".join(str(cell).translate(_ESCAPES) for cell in cells) + r" \\"  # type: ignore[attr-defined]

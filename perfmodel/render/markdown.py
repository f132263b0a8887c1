"""A report as a Markdown table, to paste into a pull request or a design document."""

from __future__ import annotations

import re

from perfmodel.core.report import Report


def render(report: Report) -> str:
    """Return the report as GitHub-flavoured Markdown."""
    columns = report.shown_columns()
    lines = [f"### {_html(report.title)}", ""] if report.title else []
    if report.decision:
        lines += [f"**Decision:** {_html(report.decision)}", ""]
    if report.assumptions:
        lines += [*(f"- {_html(assumption)}" for assumption in report.assumptions), ""]
    lines += [
        "| " + " | ".join(_cell(column.heading) for column in columns) + " |",
        "|" + "|".join("---:" if column.unit else "---" for column in columns) + "|",
    ]
    for row in report.shown_rows:
        lines.append("| " + " | ".join(_cell(column.text(row.get(column.key))) for column in columns) + " |")
    for note in report.notes:
        lines += ["", _html(note)]
    for table in report.more.values():
        lines += ["", render(table).rstrip("\n")]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Escape what would end a cell, and what kernels' names hold of Markdown: "fill<float*>(float*)"."""
    for mark in "\\|*`":
        text = text.replace(mark, f"\\{mark}")
    return _html(text).replace("\n", " ")


def _html(text: str) -> str:
    """Escape what pages take for a tag and leave out: the template arguments of "kernel<float>"."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)

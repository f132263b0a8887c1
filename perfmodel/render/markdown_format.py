"""A report as a Markdown table, to paste into a pull request or a design document."""

from __future__ import annotations

from perfmodel.core.report import Report


def render(report: Report) -> str:
    """Return the report as GitHub-flavoured Markdown."""
    columns = report.shown_columns()
    lines = [f"### {report.title}", ""] if report.title else []
    lines += [
        "| " + " | ".join(_cell(column.heading) for column in columns) + " |",
        "|" + "|".join("---:" if column.unit else "---" for column in columns) + "|",
    ]
    for row in report.rows:
        lines.append("| " + " | ".join(_cell(column.text(row.get(column.key))) for column in columns) + " |")
    for note in report.notes:
        lines += ["", note]
    for table in report.more.values():
        lines += ["", render(table).rstrip("\n")]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Escape what would end a cell."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")

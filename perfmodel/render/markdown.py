"""A report as Markdown, for a pull request or a design document."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfmodel.core.report import Report

SUFFIXES = (".md", ".markdown")


def render(report: Report) -> str:
    """Return the report as GitHub-flavoured Markdown: decision, assumptions, table, notes."""
    columns = report.shown_columns()
    parts = [f"### {_text(report.title)}"] if report.title else []
    if report.decision:
        parts.append(f"**Decision:** {_text(report.decision)}")
    if report.assumptions:
        parts.append("\n".join(f"- {_text(assumption)}" for assumption in report.assumptions))
    if report.shown_rows:
        lines = [_line(_cell(column.heading) for column in columns)]
        lines.append("|" + "|".join("---:" if column.unit else "---" for column in columns) + "|")
        lines += [_line(_cell(column.cell(row)) for column in columns) for row in report.shown_rows]
        parts.append("\n".join(lines))
    else:
        parts.append("(no rows)")
    parts += [_text(note) for note in report.shown_notes]
    parts += [render(table).rstrip("\n") for table in report.more.values() if not table.only_wide]
    return "\n\n".join(parts) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    """Escape the characters that Markdown interprets, as in the kernel name "fill<float*>(float*)".

    Underscores within a word are no emphasis, and brackets are a link only before parentheses.
    """
    text = re.sub(r"[\\|*`$]|(?<![^\W_])_|_(?![^\W_])|(?<=\])(?=\()", lambda found: f"\\{found.group()}", text)
    return _text(text)


def _text(text: str) -> str:
    """Remove line breaks, and escape what HTML would read as a tag, as in "kernel<float>"."""
    from perfmodel.core.report import printable

    line = re.sub(r"&(?=#?\w+;)", "&amp;", printable(text.replace("\n", " ")))
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", line)

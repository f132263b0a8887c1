"""A report as Markdown, for a pull request or a design document."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfmodel.core.report import Report

SUFFIXES = (".md", ".markdown")

#: underscores within a word are no emphasis, and brackets are a link only before parentheses
_MARKS = r"[\\*`$]|(?<![^\W_])_|_(?![^\W_])|(?<=\])(?=\()"


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
        parts.append(_text(report.nothing))
    parts += [_text(note) for note in report.shown_notes]
    parts += [render(table).rstrip("\n") for table in report.more.values() if not table.only_wide]
    return "\n\n".join(parts) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    """Escape the characters that Markdown interprets in a cell, as in the kernel name "fill<float*>(float*)"."""
    return _without_tags(re.sub(rf"\||{_MARKS}", _escaped, _one_line(text)))


def _text(text: str) -> str:
    """Escape the characters that Markdown interprets, as in the range "__init__"; words in backquotes stay code."""
    return _without_tags(re.sub(rf"`[^`]+`|{_MARKS}", _escaped, _one_line(text)))


def _escaped(found: re.Match[str]) -> str:
    """Return a mark with a backslash, and code as it is."""
    text = found.group()
    return text if len(text) > 1 else f"\\{text}"


def _one_line(text: str) -> str:
    """Remove line breaks and what does not print."""
    from perfmodel.core.report import printable

    return printable(text.replace("\n", " "))


def _without_tags(text: str) -> str:
    """Escape what HTML would read as a tag, as in "kernel<float>"."""
    line = re.sub(r"&(?=#?\w+;)", "&amp;", text)
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", line)

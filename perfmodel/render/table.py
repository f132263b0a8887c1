"""A report as a table for people, by rich: it fits the terminal, and is plain where there is none."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Mapping
from typing import Any

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from perfmodel.core.report import Column, Report

#: Width where the output is no terminal: wide enough for every table, so that no figure is cut in a pipe.
PIPE_WIDTH = 200
#: spaces between two columns
_GAP = 2


def render(report: Report, *, width: int | None = None, color: bool = False) -> str:
    """Return the report as text.

    Parameters
    ----------
    report : what to show.
    width : columns of the terminal; None where the output is no terminal.
    color : whether ANSI colours are wanted.
    """
    given = width
    if width is None:
        columns, width = report.shown_columns(), PIPE_WIDTH
        width = max(width, sum(_least(report, column) + _GAP for column in columns))
    else:
        columns = _fitting(report, width)
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
        highlight=False,
        soft_wrap=False,
    )
    if report.title:
        console.print(Text(report.title, style="bold"))
    if not report.shown_rows:
        console.print("(no rows)")
    elif not _fits(report, columns, width):
        _print_blocks(console, report, columns)
    else:
        console.print(_table(report, columns, width))
    if report.decision:
        console.print(Text(report.decision))
    for note in report.notes:
        console.print(Text(note, style="dim"))
    text = "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
    return "\n".join([text, *(render(table, width=given, color=color) for table in report.more.values())])


def terminal_width() -> int:
    """Return the width of the terminal, as COLUMNS or the system says."""
    return shutil.get_terminal_size((80, 24)).columns


def _table(report: Report, columns: list[Column], width: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold", show_edge=False)
    for column, size in zip(columns, _widths(report, columns, width), strict=True):
        justify: JustifyMethod = "right" if _is_numeric(report, column) else "left"
        # Widths are set here: left to itself, rich takes them from columns whose figures may not be cut.
        table.add_column(Text(column.heading), justify=justify, width=size)
    for row in report.shown_rows:
        table.add_row(*(_cell(column, row) for column in columns))
    return table


def _widths(report: Report, columns: list[Column], width: int) -> list[int]:
    """Return the width of each column: what it needs at least, and a share of what is left for text that folds."""
    least = [_least(report, column) for column in columns]
    wanted = [_longest(report, column) for column in columns]
    left = width - sum(least) - _GAP * (len(columns) - 1)
    sizes = list(least)
    # Columns that need little more get it first, so that one long text does not fold all the others.
    for index in sorted(range(len(columns)), key=lambda index: wanted[index] - least[index]):
        more = max(0, min(wanted[index] - least[index], left))
        sizes[index] += more
        left -= more
    return sizes


def _cell(column: Column, row: Mapping[str, Any]) -> Text:
    return Text(column.text(row.get(column.key)))


def _print_blocks(console: Console, report: Report, columns: list[Column]) -> None:
    """Print each row as lines of ``heading: value``: what still reads on a narrow terminal."""
    widest = max(len(column.heading) for column in columns)
    for row in report.shown_rows:
        for column in columns:
            text = column.text(row.get(column.key))
            console.print(Text(f"{column.heading:<{widest}}  {text}"), overflow="fold")
        console.print()


def _fitting(report: Report, width: int) -> list[Column]:
    """Return the columns for a terminal: those that may be dropped go, the least wanted first, until it fits."""
    columns = report.shown_columns()
    for drop in sorted({column.drop for column in columns if column.drop}, reverse=True):
        if _fits(report, columns, width):
            break
        columns = [column for column in columns if column.drop < drop]
    return columns if _fits(report, columns, width) else report.shown_columns()


def _fits(report: Report, columns: list[Column], width: int) -> bool:
    """Whether the columns fit side by side, with figures whole and text folded at its spaces only."""
    return sum(_least(report, column) for column in columns) + _GAP * (len(columns) - 1) <= width


def _least(report: Report, column: Column) -> int:
    """Return the width that a column needs: its longest cell if it is a number, else its longest word."""
    texts = [column.heading, *(column.text(row.get(column.key)) for row in report.shown_rows)]
    parts = texts if _is_numeric(report, column) else [word for text in texts for word in text.split()]
    return max(map(len, parts), default=1)


def _longest(report: Report, column: Column) -> int:
    """Return the width at which nothing in a column folds."""
    return max(len(column.heading), *(len(column.text(row.get(column.key))) for row in report.shown_rows))


def _is_numeric(report: Report, column: Column) -> bool:
    return bool(column.unit) or any(
        isinstance(row.get(column.key), (int, float)) and not isinstance(row.get(column.key), bool)
        for row in report.shown_rows
    )


def wants_color(stream: Any) -> bool:
    """Whether colours may be used: a terminal, and neither NO_COLOR nor a dumb one."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

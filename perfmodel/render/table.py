"""A report as a table that fits a width; with colours on a terminal, plain text in pipes and files."""

from __future__ import annotations

import functools
import io
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfmodel.core.report import WIDTH

if TYPE_CHECKING:
    from rich.console import JustifyMethod, RenderableType

    from perfmodel.core.report import Column, Report

SUFFIXES = (".txt",)
#: width of lines that are as long as needed [characters]
_ENDLESS = 10**6
#: spaces between two columns
_GAP = 2
#: if a table does not fit otherwise, words are folded that are longer than the first, at worst longer than the second
#: [characters]
_LONGEST_WORD, _SHORTEST_FOLD = 24, 12
#: optional columns are dropped if a cell would take more lines than this
_FEW_LINES = 2
#: spaces before the further lines of what a row is called
_HANGING = 2
#: heading of the column with the numbers of rows
_NUMBER = "#"


def render(report: Report, *, width: int = WIDTH, color: bool = False, wide: bool = False) -> str:
    """Return the report as text.

    Optional columns are left out until the table fits. If it does not fit without them, each row becomes a block of
    lines, one for each of the other columns that says something. Sentences stand below the table, after the number of
    their row.

    Parameters
    ----------
    report : the report.
    width : longest line [characters].
    color : use ANSI colours.
    wide : show every column; lines are as long as needed.
    """
    from rich.console import Console

    grid = _Grid.of(report, width, wide=wide)
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=max(width, grid.widest) if wide else width,
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
        highlight=False,
        emoji=False,  # ":x:" in the name of a kernel is no picture
        soft_wrap=False,
    )
    for part in _parts(report, grid, console.width):
        console.print(part)
    text = "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
    more = [table for table in report.more.values() if wide or not table.only_wide]
    return "\n".join([text, *(render(table, width=width, color=color, wide=wide) for table in more)])


@dataclass(frozen=True)
class _Grid:
    """The cells of a table as text, column by column, and the widths that the columns need.

    Attributes
    ----------
    columns : the columns side by side.
    prose : the columns whose sentences stand below the table.
    cells, sentences : texts of ``columns`` and of ``prose``, for each column from top to bottom.
    numeric : whether each column holds numbers.
    least : smallest width of each column [characters].
    """

    columns: Sequence[Column]
    prose: Sequence[Column]
    cells: Sequence[Sequence[str]]
    sentences: Sequence[Sequence[str]]
    numeric: Sequence[bool]
    least: Sequence[int]

    @classmethod
    def of(cls, report: Report, width: int, *, wide: bool) -> _Grid:
        """Return the cells that are shown in a width [characters].

        Optional columns are dropped until the table fits and no cell takes more than `_FEW_LINES`. If cells always take
        more, the table with the fewest lines is returned; if no table fits, the smallest one with words folded as
        little as possible; if that does not fit either, that without optional columns, which is printed as blocks.
        """
        shown = report.shown_columns(wide=wide)
        whole = cls._all(report, shown, _ENDLESS if wide else width)
        if wide:
            return whole
        drops = sorted({column.drop for column in shown if column.drop}, reverse=True)
        grids = [whole, *(whole._without(drop) for drop in drops)]
        fitting = [grid for grid in grids if grid.width <= width]
        if fitting:
            return min(fitting, key=lambda grid: max(_FEW_LINES, grid.lines(width)))
        folded = (grids[-1]._folded(longest) for longest in range(_LONGEST_WORD, _SHORTEST_FOLD - 1, -1))
        return next((grid for grid in folded if grid.width <= width), grids[-1])

    @classmethod
    def _all(cls, report: Report, shown: Sequence[Column], width: int) -> _Grid:
        """Return the cells of all columns for lines of a width [characters]; rows get numbers that sentences name."""
        from perfmodel.core.report import Column

        rows = report.shown_rows
        columns = [column for column in shown if not column.prose]
        prose = [column for column in shown if column.prose]
        cells = [[column.cell(row, width) for row in rows] for column in columns]
        sentences = [[column.cell(row, width) for row in rows] for column in prose]
        if prose and all(column.heading != _NUMBER for column in columns):
            columns = [Column("", _NUMBER), *columns]
            cells = [[str(number) for number in range(1, len(rows) + 1)], *cells]
        numeric = [_is_numeric(column, rows) for column in columns]
        least = [
            _least(column.heading, texts, whole=is_number)
            for column, texts, is_number in zip(columns, cells, numeric, strict=True)
        ]
        return cls(columns, prose, cells, sentences, numeric, least)

    def _without(self, drop: int) -> _Grid:
        """Return the grid without the columns whose rank for dropping is ``drop`` or higher."""
        kept = [index for index, column in enumerate(self.columns) if column.drop < drop]
        prose = [index for index, column in enumerate(self.prose) if column.drop < drop]
        return _Grid(
            [self.columns[index] for index in kept],
            [self.prose[index] for index in prose],
            [self.cells[index] for index in kept],
            [self.sentences[index] for index in prose],
            [self.numeric[index] for index in kept],
            [self.least[index] for index in kept],
        )

    def _folded(self, longest: int) -> _Grid:
        """Return the grid with columns of text narrowed to ``longest``, so that longer words are folded."""
        least = [
            size if is_number else min(size, longest) for size, is_number in zip(self.least, self.numeric, strict=True)
        ]
        return _Grid(self.columns, self.prose, self.cells, self.sentences, self.numeric, least)

    @property
    def width(self) -> int:
        """Smallest width of the table [characters]."""
        return sum(self.least) + _GAP * (len(self.least) - 1)

    @property
    def widest(self) -> int:
        """Width at which no cell and no sentence is folded [characters]."""
        table = sum(self.full_widths) + _GAP * (len(self.full_widths) - 1)
        numbers = _longest(str(index + 1) for index in range(len(self.cells[0]) if self.cells else 0))
        sentences = _longest(text for texts in self.sentences for text in texts)
        return max(table, numbers + _GAP + sentences)

    @property
    def full_widths(self) -> list[int]:
        """Width of each column at which none of its cells is folded [characters]."""
        return [_longest([column.heading, *texts]) for column, texts in zip(self.columns, self.cells, strict=True)]

    def widths(self, width: int) -> list[int]:
        """Return the width of each column: its smallest width and a share of the remaining space [characters]."""
        sizes = list(self.least)
        left = width - self.width
        more = [full - size for full, size in zip(self.full_widths, self.least, strict=True)]
        # The columns that need the least are served first, so that one long text does not fold all the others.
        for index in sorted(range(len(sizes)), key=lambda index: more[index]):
            extra = max(0, min(more[index], left))
            sizes[index] += extra
            left -= extra
        return sizes

    def lines(self, width: int) -> int:
        """Return the number of lines of the tallest row, estimated from the longest cell of each column."""
        longest = [max(texts, key=len, default="") for texts in self.cells]
        pairs = zip(longest, self.widths(width), strict=True)
        return max((len(textwrap.wrap(text, size)) for text, size in pairs), default=1)

    def hung(self, texts: Sequence[str], sizes: Sequence[int]) -> list[str]:
        """Return the cells of a row, that which says what the row is with its further lines indented."""
        at = self._label
        if at is None or not self._hangs(at, sizes[at]):
            return list(texts)
        return [*texts[:at], _hanging(texts[at], sizes[at]), *texts[at + 1 :]]

    def _hangs(self, at: int, size: int) -> bool:
        """Whether the names of all rows take no more lines with their further lines indented."""
        if size not in self._hanging_sizes:
            names = (text for text in set(self.cells[at]) if len(text) > size)
            fits = all(len(_hanging(text, size).split("\n")) <= len(textwrap.wrap(text, size)) for text in names)
            self._hanging_sizes[size] = fits
        return self._hanging_sizes[size]

    @functools.cached_property
    def _hanging_sizes(self) -> dict[int, bool]:
        return {}

    @functools.cached_property
    def _label(self) -> int | None:
        """The column that says what a row is: the first with text, behind the rows' numbers."""
        texts = (at for at, is_number in enumerate(self.numeric) if not is_number)
        return next((at for at in texts if self.columns[at].heading != _NUMBER), None)

    def rows(self) -> Iterable[list[str]]:
        """Yield the cells of each row; the cell of a merged column is empty if it repeats the row above."""
        above: Sequence[str] = ()
        for texts in zip(*self.cells, strict=True):
            row, repeats = list(texts), bool(above)
            for index, column in enumerate(self.columns):
                if column.merge:
                    repeats = repeats and texts[index] == above[index]
                    row[index] = "" if repeats else texts[index]
            yield row
            above = texts


def _parts(report: Report, grid: _Grid, width: int) -> Iterable[RenderableType]:
    """Yield the parts of a report in the order in which they are printed."""
    from rich.text import Text

    from perfmodel.core.report import printable

    if report.title:
        yield Text(printable(report.title), style="bold")
    if not report.shown_rows:
        yield Text(printable(report.nothing))
    elif grid.width > width:
        yield from _blocks(grid, width)
    else:
        yield _table(grid, width)
        yield from _sentences(grid)
    notes = report.notes_beside([*grid.columns, *grid.prose])
    if report.decision or notes:
        yield ""
    if report.decision:
        yield Text(printable(report.decision))
    for note in notes:
        yield Text(printable(note), style="dim")


def _table(grid: _Grid, width: int) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold", show_edge=False)
    sizes = grid.widths(width)
    for column, size, is_number in zip(grid.columns, sizes, grid.numeric, strict=True):
        justify: JustifyMethod = "right" if is_number else "left"
        # rich would narrow columns of numbers too, whose cells must stay whole.
        table.add_column(Text(column.heading), justify=justify, width=size, overflow="fold")
    for row in grid.rows():
        table.add_row(*map(_cell, grid.hung(row, sizes), sizes))
    return table


def _sentences(grid: _Grid) -> Iterable[RenderableType]:
    """Yield the sentences of each prose column under its heading; equal sentences are printed once, with all rows."""
    from rich.table import Table
    from rich.text import Text

    number = next((index for index, column in enumerate(grid.columns) if column.heading == _NUMBER), None)
    for column, texts in zip(grid.prose, grid.sentences, strict=True):
        numbers: dict[str, list[str]] = {}
        for index, text in enumerate(texts):
            if text not in ("", "-"):
                numbers.setdefault(text, []).append(str(index + 1) if number is None else grid.cells[number][index])
        table = Table(box=None, pad_edge=False, padding=(0, 1), show_header=False, show_edge=False)
        table.add_column(justify="left", max_width=_LONGEST_WORD)
        table.add_column(overflow="fold")
        for text, rows in numbers.items():
            table.add_row(Text(", ".join(rows)), Text(text))
        yield Text(f"\n{column.heading}", style="bold")
        yield table


def _blocks(grid: _Grid, width: int) -> Iterable[RenderableType]:
    """Yield each row as lines of ``heading  value``, for a terminal that is too narrow for a table.

    Long values go on below their beginning. Cells without a value, and those of merged columns that repeat the row
    above, are left out.
    """
    from rich.table import Table
    from rich.text import Text

    columns = [*grid.columns, *grid.prose]
    # headings that leave values too little room are folded, too
    widest = min(max(len(column.heading) for column in columns), max(1, width // 2 - _GAP))
    for number, row in enumerate(grid.rows()):
        texts = [*row, *(sentences[number] for sentences in grid.sentences)]
        if number:
            yield ""
        block = Table(box=None, pad_edge=False, padding=(0, 1), show_header=False, show_edge=False)
        block.add_column(width=widest, overflow="fold")
        block.add_column(overflow="fold")
        for column, text in zip(columns, texts, strict=True):
            if text not in ("", "-"):
                block.add_row(Text(column.heading), Text(text))
        yield block


def _least(heading: str, texts: Sequence[str], *, whole: bool) -> int:
    """Return the smallest width of a column: its longest cell if cells stay whole, else its longest word."""
    if whole:
        return max(_longest(texts), _longest(heading.split()))
    return _longest(word for text in (heading, *texts) for word in _words(text))


def _words(text: str) -> list[str]:
    """Return the words of a cell, the first one behind the spaces that indent it.

    >>> _words("  self attention")
    ['  self', 'attention']
    """
    words = text.split()
    return [" " * _indent(text) + words[0], *words[1:]] if words else []


def _indent(text: str) -> int:
    """Return how many spaces a cell begins with."""
    return len(text) - len(text.lstrip(" "))


def _hanging(text: str, size: int) -> str:
    """Return what a row is called with its further lines indented, so that none looks like another row.

    >>> print(_hanging("gemm m=4096 n=4096 k=4096", 12))
    gemm m=4096
      n=4096
      k=4096
    """
    longest = _longest(_words(text))
    if _longest([text]) <= size or not text.isascii() or _indent(text) or longest + _HANGING > size:
        return text
    return "\n".join(textwrap.wrap(text, size, subsequent_indent=" " * _HANGING, break_on_hyphens=False))


def _cell(text: str, size: int) -> RenderableType:
    """Return the cell of a column of a width [characters]; what does not fit goes on below, indented alike."""
    from rich.padding import Padding
    from rich.text import Text

    indent = min(_indent(text), size // 2)
    return Padding(Text(text.lstrip(" "), overflow="fold"), (0, 0, 0, indent)) if indent else Text(text)


def _longest(texts: Iterable[str]) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, texts), default=1)


def _is_numeric(column: Column, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a column holds numbers, which are never folded and are right-aligned."""
    values = (row.get(column.key) for row in rows)
    return bool(column.unit) or any(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)

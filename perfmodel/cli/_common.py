"""What every command shares: its options, and how a report leaves the process."""

from __future__ import annotations

import enum
import importlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel import __version__
from perfmodel.errors import UsageError

if TYPE_CHECKING:
    from perfmodel.core.report import Report


class Format(enum.StrEnum):
    """The output formats of every command."""

    table = "table"
    json = "json"
    csv = "csv"
    markdown = "markdown"


_SUFFIXES = {
    ".json": Format.json,
    ".csv": Format.csv,
    ".md": Format.markdown,
    ".markdown": Format.markdown,
    ".txt": Format.table,
}

FormatOption = Annotated[
    Format | None,
    typer.Option(
        "--format", "-f", help="Output format; default: table, or by the suffix of --output.", show_default=False
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write the result to FILE instead of stdout.", show_default=False
    ),
]
PlotOption = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Draw a plot into FILE (.png, .svg or .pdf).", show_default=False),
]
OnOption = Annotated[
    list[str] | None,
    typer.Option(
        "--on", metavar="HW", help="Machine: a catalog name, alias or spec file; may be repeated.", show_default=False
    ),
]
ComparedOnOption = Annotated[
    list[str] | None,
    typer.Option(
        "--on",
        metavar="HW",
        help="Machine to compare with: a catalog name, alias or spec file; default: this one.",
        show_default=False,
    ),
]


def emit(report: Report, format_: Format | None = None, output: Path | None = None) -> None:
    """Print a report, or write it to a file, in the format asked for or the one of the file's suffix.

    Raises
    ------
    UsageError
        When the suffix of the file names no format and none is given, or the file cannot be written.
    """
    if output is None or str(output) == "-":
        sys.stdout.write(_render(report, format_ or Format.table, to_terminal=True))
        sys.stdout.flush()
        return
    from perfmodel.files import write_atomic

    write_atomic(output, _render(report, output_format(format_, output), to_terminal=False))
    status(f"wrote {output}")


def output_format(format_: Format | None, output: Path) -> Format:
    """Return the format of a file: the one asked for, or what its suffix says."""
    if format_ is not None:
        return format_
    suffix = output.suffix.lower()
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if not suffix:
        return Format.table
    allowed = ", ".join(_SUFFIXES)
    raise UsageError(
        f"the suffix {suffix!r} names no format.", place=str(output), remedy=f"Use {allowed}, or give --format."
    )


def _render(report: Report, format_: Format, *, to_terminal: bool) -> str:
    """Render a report with the module of the format: ``perfmodel/render/<format>_format.py``."""
    renderer = importlib.import_module(f"perfmodel.render.{format_}")
    if format_ is not Format.table:
        return str(renderer.render(report))
    return str(renderer.render(report, width=_width(), color=to_terminal and _wants_color()))


def _width() -> int:
    """Return the width for text: COLUMNS, else that of the terminal, else 80."""
    return shutil.get_terminal_size((80, 24)).columns


def _wants_color() -> bool:
    """Return whether colours may be used: on a terminal that is not dumb, unless NO_COLOR is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def context(**extra: Any) -> Mapping[str, Any]:
    """Return the context of a report: perfmodel's version, and what the command adds."""
    return {"perfmodel": __version__, **extra}


def status(message: str) -> None:
    """Print one line for people on stderr."""
    print(message, file=sys.stderr)  # noqa: T201 -- the one place that speaks on stderr


def check_destination(path: Path, *suffixes: str) -> None:
    """Check before a long measurement that its result can be written.

    Raises
    ------
    UsageError
        When the suffix is not one of ``suffixes`` (if any are given), the folder does not exist, or the path is
        a folder itself.
    """
    if suffixes and path.suffix.lower() not in suffixes and str(path) != "-":
        raise UsageError(
            f"the suffix {path.suffix!r} is not known.", place=str(path), remedy=f"Use {', '.join(suffixes)}."
        )
    if path.is_dir():
        raise UsageError("is a directory.", place=str(path), remedy="Name a file in it.")
    if not path.parent.is_dir():
        raise UsageError("its folder does not exist.", place=str(path), remedy=f"Make {path.parent} first.")

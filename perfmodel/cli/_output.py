"""Destinations of results: checked before a command starts its work, and written in one step afterwards."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel import __version__, storage
from perfmodel.cli._stdin import told
from perfmodel.errors import InputFileError, UsageError
from perfmodel.render import DEFAULT, Renderer, format_of_suffix, known_suffixes, renderer

if TYPE_CHECKING:
    from perfmodel.core.report import GoesOn, Report

#: exit code for a negative result that the user asked to detect
BAD_FINDING = 1
#: exit code of a run that Ctrl-C ended; what was done is reported all the same
INTERRUPTED = 130
PLOT_SUFFIXES = (".png", ".svg", ".pdf")
_STDOUT = "-"
#: longer tables are written as they are made
_MANY_ROWS = 10_000
_PACKED = ".gz"
#: addresses of files that only this process has
_MEMORY = "memory://"
#: the words of the command line, see `remember_words`
_words: list[str] = []


@dataclasses.dataclass(frozen=True)
class Destination:
    """The format of a result, and its file.

    Attributes
    ----------
    renderer : the output format.
    path : the file; None for standard output.
    wide : whether tables show every column.
    """

    renderer: Renderer
    path: str | None = None
    wide: bool = False

    @classmethod
    def of(cls, command: str, format_: str | None, output: str | None, *, wide: bool = False) -> Destination:
        """Return the destination for the options of a command.

        Raises
        ------
        UsageError
            When the format is unknown, the suffix belongs to no format and there is no --format, or the file cannot be
            written.
        """
        if output is None or output == _STDOUT:
            return cls(renderer(format_ or DEFAULT, command), None, wide)
        check_writable(output, replaces=command == "bench")  # which has --resume and --overwrite
        of_suffix = format_of_suffix(output, command)
        chosen = renderer(format_ or of_suffix or _no_format(output, command), command)
        suffix = storage.suffix_of(output)
        if of_suffix not in (None, chosen.name) and suffix and suffix not in chosen.also:
            status(f"warning: {output} is written as {chosen.name} because of --format; its suffix means {of_suffix}.")
        return cls(chosen, output, wide)

    @property
    def holds_every_row(self) -> bool:
        """Whether the format has all rows: programs read it, or a page finds and sorts them; texts have the first."""
        return self.renderer.name in ("json", "csv", "html")

    def write(self, report: Report, *, quiet: bool = False, result: object = None) -> None:
        """Print a report, or write its file and report that on stderr unless ``quiet``.

        A format that draws may take more from the ``result`` that the report was made of.

        Raises
        ------
        UsageError
            When the file cannot be written, or the format cannot hold the report.
        """
        report = _told(report)
        if self.renderer.pieces is not None and len(report.rows) > _MANY_ROWS:
            self._write_pieces(report, self.renderer.pieces)
        elif self.path is None:
            sys.stdout.write(self._text(report, result, color=_wants_color()))
            sys.stdout.flush()
        else:
            with self._put() as put:
                put(self._text(report, result, color=False))
        if self.path is not None and not quiet:
            wrote(self.path)

    def _write_pieces(self, report: Report, pieces: Callable[[Report, GoesOn], Iterator[str]]) -> None:
        """Write a long report a piece at a time; Ctrl-C and SIGTERM end it after the rows that are finished."""
        from perfmodel.cli._progress import counted
        from perfmodel.signals import put_off

        total, done = len(report.rows), 0
        shows_rows = self.path is None and sys.stdout.isatty()
        with put_off() as came:
            with self._put() as put, contextlib.nullcontext() if shows_rows else counted(total) as advance:

                def goes_on(rows: int) -> bool:
                    nonlocal done
                    done += rows
                    if advance is not None:
                        advance(done)
                    return not came

                for text in pieces(report, goes_on):
                    put(text)
            if came:
                status(f"interrupted: {done} of {total} rows were written; the others are left out.")

    @contextlib.contextmanager
    def _put(self) -> Iterator[Callable[[str], object]]:
        """Yield a function that writes a piece of text to standard output, or to the file."""
        if self.path is None:
            yield sys.stdout.write
            sys.stdout.flush()
            return
        import gzip

        from perfmodel.files import written_atomic

        is_packed = storage.suffix_of(self.path) == _PACKED
        with (
            written_atomic(self.path) as plain,
            gzip.GzipFile("", "wb", fileobj=plain, mtime=0) if is_packed else contextlib.nullcontext(plain) as stream,
        ):
            # A name from the command line may contain bytes that are not UTF-8; they are written as escapes.
            yield lambda text: stream.write(text.encode("utf-8", "backslashreplace"))

    def _text(self, report: Report, result: object, *, color: bool) -> str:
        from perfmodel.api import known_machines

        return self.renderer.render(
            report, width=_width(), color=color, wide=self.wide, find=known_machines, result=result
        )


def _told(report: Report) -> Report:
    """Return a report that names standard input as the user did, and not its copy."""
    texts = {name: told(getattr(report, name)) for name in ("rows", "people_rows", "context", "notes", "title")}
    return dataclasses.replace(report, **texts, more={key: _told(table) for key, table in report.more.items()})


def remember_words(words: Sequence[str]) -> None:
    """Keep the words of the command line: a file that they name twice is read, and must not be written."""
    _words[:] = words


def abandon_stdout() -> None:
    """Redirect stdout to the null device: the interpreter flushes it again at exit, which would fail."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _check_no_input(output: str) -> None:
    """Refuse to replace a file that the command line names once more, as what the command reads."""
    target = storage.place_of(output)
    if storage.is_remote(output) or not os.path.isfile(target):
        return
    attached = any(word.startswith("-") and word.endswith(output) for word in _words)  # --output=FILE, -oFILE
    named = sum(any(_is_same(name, target) for name in _files_of(word)) for word in _words)
    if named + attached > 1:
        raise UsageError("is also read by this command.", place=output, remedy="Write to another file.")


def _files_of(word: str) -> Iterable[str]:
    """Return the existing files that a word may name: itself, or what its pattern matches."""
    with contextlib.suppress(OSError, ValueError):
        place = storage.place_of(word)
        return [place] if os.path.isfile(place) else glob.glob(place) if glob.has_magic(place) else []
    return []


def _is_same(name: str, target: str) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samefile(name, target)
    return False


def _check_not_held(output: str, may_replace: Callable[[str], bool] | None) -> None:
    """Refuse to replace what was measured or what a profiler wrote, unless the command may replace this very file."""
    from perfmodel.api.held import held_in

    held = ""
    with contextlib.suppress(InputFileError):  # who may write to a store need not be allowed to read there
        held = held_in(output) if storage.is_file(output) else ""
    if held and (may_replace is None or not may_replace(output)):
        raise UsageError(f"{held}.", place=output, remedy="Choose another file.")


def _no_format(output: str, command: str) -> str:
    raise UsageError(
        f"the suffix {storage.suffix_of(output)!r} names no format.",
        place=output,
        remedy=f"Use {', '.join(known_suffixes(command))}, or give --format.",
    )


def _width() -> int:
    """Return the width of text: COLUMNS, the width of the terminal, or 80 [characters]."""
    return shutil.get_terminal_size((80, 24)).columns


def _wants_color() -> bool:
    """Return whether colours may be used: on a terminal that is not dumb, unless NO_COLOR is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def context(**facts: Any) -> Mapping[str, Any]:
    """Return the context of a report: perfmodel's version and the facts of the command."""
    return {"perfmodel": __version__, **facts}


def status(message: str) -> None:
    """Print one line on stderr."""
    print(told(message), file=sys.stderr)  # noqa: T201 -- all messages pass here


def wrote(path: str, what: str = "") -> None:
    """Report on stderr that a file was written, with ``what`` in it, and which one is lost with this process."""
    lost = storage.place_of(path).lower().startswith(_MEMORY)
    status(
        f"wrote {path}{f' ({what})' if what else ''}"
        + (", which is lost when this process ends: name a file to keep it" if lost else "")
    )


def save_plot(figure: Any, path: str, drawn: str = "") -> None:
    """Write a figure and report its file on stderr, with what is ``drawn`` in it."""
    from perfmodel.render.plots.figure import save_figure

    note = save_figure(figure, path)
    wrote(path, drawn)
    if note:
        status(f"note: {note}.")


def draw(result: Any, path: str | None) -> None:
    """Draw the plot of a result into a file; None means no plot."""
    if path is not None:
        from perfmodel.render.plots import plot

        save_plot(plot(result), path)


def check_plot(path: str | None) -> None:
    """Check before the work starts that a plot can be written; None means no plot.

    Raises
    ------
    UsageError
        When the suffix is not that of an image format, or the file cannot be written.
    """
    if path == _STDOUT:
        raise UsageError("a plot is not written to standard output.", place="-", remedy="Name a file, as plot.png.")
    if path is not None:
        check_writable(path, *PLOT_SUFFIXES)


def check_stdout(report: str | None, **others: str | None) -> None:
    """Check that only one of a command's files goes to standard output.

    Parameters
    ----------
    report : where the report goes, None for standard output.
    others : option, with underscores -> its file, None without one.

    Raises
    ------
    UsageError
        When a second one would be written between its lines.
    """
    options = [f"--{option.replace('_', '-')}" for option, path in others.items() if path == _STDOUT]
    if len(options) + (report in (None, _STDOUT)) > 1:
        raise UsageError(
            "standard output holds the report or another file already.",
            place=options[-1],
            remedy="Name a file, or write the report to one: -o report.txt.",
        )


def check_writable(
    path: str, *suffixes: str, replaces: bool = False, may_replace: Callable[[str], bool] | None = None
) -> None:
    """Check before the work starts that a file can be written, and that nothing is lost by it.

    Raises
    ------
    UsageError
        When ``suffixes`` are not empty and lack the file's suffix, the folder does not exist, the path is a folder, or
        a remote store cannot be written; when the command line names the file as an input too, or it holds measurements
        or what a profiler wrote, and the command does not say itself when it ``replaces`` them, nor is this a file that
        it ``may_replace``, or adds to.
    """
    if not path:
        raise UsageError("the name of the file is empty.", place="output", remedy="Name a file.")
    suffix = storage.suffix_of(path)
    if suffixes and suffix not in suffixes and path != _STDOUT:
        wrong = f"the suffix {suffix!r} is not supported." if suffix else "the name has no suffix."
        raise UsageError(wrong, place=path, remedy=f"Use {', '.join(suffixes)}.")
    _check_no_input(path)
    if not replaces:
        _check_not_held(path, may_replace)
    if storage.is_remote(path):
        storage.check_writable(path)
        return
    local = Path(storage.place_of(path))
    if local.is_dir():
        raise UsageError("is a directory.", place=path, remedy="Name a file in it.")
    if not local.parent.is_dir():
        raise UsageError("its folder does not exist.", place=path, remedy=f"Create {local.parent} first.")

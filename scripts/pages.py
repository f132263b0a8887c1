"""The console examples of the pages: find them, run them, and write what they print.

    python scripts/pages.py            (or: make pages)

A ``console`` block holds commands (``$ perfmodel ...``, or ``$ COLUMNS=120 perfmodel ...``) with what a terminal of 80
columns shows of stdout, or of stderr where a command prints nothing on stdout; ``$ echo $?`` shows the exit code of the
command above it. An output that stands whole is written anew, and so is the first paragraph of one that ends in the
line ``...``; any other output with the word ``...``, which stands for any text, is only checked. tests/test_pages.py
checks all of them.

Commands of a page run one after another in a folder of their own that holds ``examples``. A page names a file from
``PERFMODEL_DATA`` with a comment, ``<!-- trace.json.gz: traces/some_trace.json.gz -->``; its commands need that folder.
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from perfmodel.cli.app import run

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 80
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_FILE = re.compile(r"^<!-- ([\w.]+): ([\w./-]+) -->$", re.MULTILINE)
_EXIT_CODE = "echo $?"


def pages() -> list[Path]:
    """Return the pages whose examples are checked."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").glob("*.md"))]


@dataclass(frozen=True)
class Example:
    """One command of a page and the output below it; ``start`` and ``end`` are the output's place in the text."""

    command: str
    output: str
    start: int
    end: int
    line: int

    def matches(self, printed: str) -> bool:
        """Whether the page shows what was printed; spaces and line ends do not count."""
        return doctest.OutputChecker().check_output(self.output, printed, FLAGS)

    @property
    def whole(self) -> bool:
        """Whether the page shows the whole output; dots within a word are part of a shortened name."""
        return "..." not in self.output.split()

    def renewed(self, printed: str) -> str | None:
        """Return the new output for the page, abridged as before; None if it is abridged in another way."""
        if self.whole:
            return printed.rstrip("\n") + "\n"
        paragraph, _, rest = self.output.partition("\n...\n")
        if rest.strip() or "..." in paragraph.split() or "\n\n" in paragraph:
            return None
        return printed.partition("\n\n")[0] + "\n...\n"


def examples(text: str) -> Iterator[Example]:
    """Return the commands of a page in their order."""
    for block in _BLOCK.finditer(text):
        for match in _COMMAND.finditer(block.group(1)):
            start, end = (block.start(1) + offset for offset in match.span(2))
            yield Example(match.group(1), match.group(2), start, end, text[:start].count("\n"))


def files(text: str) -> dict[str, str]:
    """Return the files that a page takes from ``PERFMODEL_DATA``: name on the page -> path in the folder."""
    return dict(_FILE.findall(text))


class _Terminal(io.StringIO):
    """A terminal without colours that keeps what is printed."""

    def isatty(self) -> bool:
        return True


def printed(command: str) -> tuple[str, int]:
    """Return what a command prints in a terminal, and its exit code."""
    width, program, *arguments = shlex.split(command.replace("\\\n", " "))
    if not width.startswith("COLUMNS="):
        width, program, arguments = f"COLUMNS={WIDTH}", width, [program, *arguments]
    if program != "perfmodel":
        raise ValueError(f"{command!r} is no command of perfmodel")
    settings = {"COLUMNS": width.partition("=")[2], "NO_COLOR": "1"}
    out, err = _Terminal(), io.StringIO()
    with mock.patch.dict(os.environ, settings), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        os.environ.pop("PERFMODEL_HARDWARE", None)
        code = run(arguments)
    return out.getvalue() or err.getvalue(), code


@contextlib.contextmanager
def workplace(needed: dict[str, str], data: Path | None) -> Iterator[None]:
    """Work in a new folder with the examples and the files that a page needs."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        for name, path in needed.items():
            if data is None:
                raise FileNotFoundError(f"{name} needs PERFMODEL_DATA")
            (Path(folder) / name).symlink_to((data / path).resolve())
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def outputs(text: str, data: Path | None) -> Iterator[tuple[Example, str]]:
    """Run the examples of a page; return each with what it prints."""
    code = 0
    with workplace(files(text), data):
        for example in examples(text):
            if example.command == _EXIT_CODE:
                shown = f"{code}\n"
            else:
                shown, code = printed(example.command)
            yield example, shown


def refreshed(text: str, data: Path | None) -> tuple[str, list[Example]]:
    """Return a page with new outputs where that is possible, and the other examples that no longer match."""
    pairs = list(outputs(text, data))
    stale = []
    for example, new in reversed(pairs):
        renewed = example.renewed(new)
        if renewed is not None:
            text = text[: example.start] + renewed + text[example.end :]
        elif not example.matches(new):
            stale.append(example)
    return text, stale[::-1]


def main() -> int:
    """Rewrite the pages, or those that are named; exit with 1 where an abridged output has to be edited by hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("named", metavar="PAGE", nargs="*", help="pages; all by default")
    named = parser.parse_args().named
    data = Path(os.environ["PERFMODEL_DATA"]) if "PERFMODEL_DATA" in os.environ else None
    stale = False
    for page in map(Path, named) if named else pages():
        text = page.read_text(encoding="utf-8")
        if files(text) and data is None:
            print(f"{page}: left as it is; set PERFMODEL_DATA")
            continue
        new, wrong = refreshed(text, data)
        if new != text:
            page.write_text(new, encoding="utf-8")
            print(f"{page}: written")
        for example in wrong:
            stale = True
            print(f"{page}:{example.line}: {example.command} prints something else now")
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())

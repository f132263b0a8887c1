"""The pages are true: their commands and Python lines give what stands below them."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", ROOT / "examples" / "worked_cases.md")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(page, language):
    """Each fenced block of a language with the number of its first line."""
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield text[: match.start()].count("\n") + 2, match.group(1)


def commands():
    """Each ``$ command`` of the console blocks, with the output below it."""
    for page in PAGES:
        for line, block in blocks(page, "console"):
            for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
                yield pytest.param(command, expected, id=f"{page.name} line {line}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_lines_give_what_the_page_says(page):
    code = "".join(block for _, block in blocks(page, "python"))
    test = doctest.DocTestParser().get_doctest(code, {}, page.name, str(page), 0)
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append)
    assert result.attempted > 5
    assert result.failed == 0, "".join(report)


@pytest.mark.parametrize(("command", "expected"), commands())
def test_the_commands_print_what_the_page_says(command, expected, perfmodel, monkeypatch):
    monkeypatch.chdir(ROOT)
    program, *arguments = shlex.split(command)
    assert program == "perfmodel"
    ran = perfmodel(*arguments)
    assert ran.code == 0, ran.err
    assert doctest.OutputChecker().check_output(expected, ran.out, FLAGS), ran.out

"""The page of worked cases is true: its commands and Python lines give what stands below them."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "examples" / "worked_cases.md"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
TEXT = PAGE.read_text(encoding="utf-8")


def blocks(language):
    """Each fenced block of a language with the number of its first line."""
    for match in re.finditer(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL):
        yield TEXT[: match.start()].count("\n") + 2, match.group(1)


def commands():
    """Each ``$ command`` of the console blocks, with the output below it."""
    for line, block in blocks("console"):
        for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            yield pytest.param(command, expected, id=f"line {line}")


def test_the_python_lines_give_what_the_page_says():
    code = "".join(block for _, block in blocks("python"))
    test = doctest.DocTestParser().get_doctest(code, {}, PAGE.name, str(PAGE), 0)
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append)
    assert result.attempted > 20
    assert result.failed == 0, "".join(report)


@pytest.mark.parametrize(("command", "expected"), commands())
def test_the_commands_print_what_the_page_says(command, expected, perfmodel, monkeypatch):
    monkeypatch.chdir(ROOT)
    program, *arguments = shlex.split(command)
    assert program == "perfmodel"
    ran = perfmodel(*arguments)
    assert ran.code == 0, ran.err
    assert doctest.OutputChecker().check_output(expected, ran.out, FLAGS), ran.out


def test_every_case_states_the_circulated_and_the_right_figure_and_why():
    cases = re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]
    assert [int(case.split(".")[0]) for case in cases] == list(range(1, 21))
    for case in cases:
        for part in ("Circulated", "Right", "Why"):
            assert re.search(rf"^- \*\*{part}:\*\* \S", case, re.MULTILINE), (part, case)


def test_cases_without_a_command_say_that_perfmodel_does_not_compute_them():
    cases = re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]
    by_hand = {int(case.split(".")[0]) for case in cases if "Not computed" in " ".join(case.split())}
    (said,) = re.findall(r"perfmodel computes cases ([^.]*?) today", " ".join(TEXT.split()))
    computed = {
        number
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", said)
        for number in range(int(first), int(last or first) + 1)
    }
    assert computed | by_hand == set(range(1, 21))
    assert not computed & by_hand

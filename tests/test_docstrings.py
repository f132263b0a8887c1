"""The examples in docstrings give what they say. Modules without one are not imported for it."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = [path for path in sorted(ROOT.glob("perfmodel/**/*.py")) if ">>> " in path.read_text(encoding="utf-8")]
MODULES = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in FILES]


def test_examples_are_found() -> None:
    assert "perfmodel.core.units" in MODULES
    assert "perfmodel.api.predictions" in MODULES


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_give_what_they_say(name: str) -> None:
    report: list[str] = []
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name)):
        runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).attempted > 0
    assert runner.summarize(verbose=False).failed == 0, "".join(report)

"""The page of worked cases has every case, and computes it."""

from __future__ import annotations

import re
from pathlib import Path

TEXT = (Path(__file__).resolve().parents[2] / "examples" / "worked_cases.md").read_text(encoding="utf-8")


def test_every_case_states_the_circulated_and_the_right_figure_and_why():
    cases = re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]
    assert [int(case.split(".")[0]) for case in cases] == list(range(1, 32))
    for case in cases:
        for part in ("Circulated", "Right", "Why"):
            assert re.search(rf"^- \*\*{part}:\*\* \S", case, re.MULTILINE), (part, case)


def test_every_case_is_computed_on_the_page():
    for case in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]:
        assert "Not computed" not in " ".join(case.split())
        assert re.search(r"^(>>> |\$ perfmodel )", case, re.MULTILINE), case[:60]

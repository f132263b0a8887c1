"""The page of worked cases has every case, and says which of them perfmodel computes."""

from __future__ import annotations

import re
from pathlib import Path

TEXT = (Path(__file__).resolve().parents[2] / "examples" / "worked_cases.md").read_text(encoding="utf-8")


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

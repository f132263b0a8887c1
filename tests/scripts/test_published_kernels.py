"""Kernels that others published: nothing is fitted on them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perfmodel as pm

SCRIPTS = Path(pm.__file__).parents[1] / "scripts"


#: table -> its sources and rows that are judged, and what error [%], share inside [%] and width it may have
BATCHES = {
    "second": ("71", "922", 30.0, 75.0, 2.5),
    "fifth": ("34", "284", 40.0, 75.0, 2.5),
    "sixth": ("81", "529", 35.0, 75.0, 3.6),
    "seventh": ("102", "471", 25.0, 80.0, 2.6),
    "eighth": ("86", "465", 30.0, 75.0, 3.0),
    "ninth": ("107", "607", 30.0, 80.0, 3.5),
    "tenth": ("78", "440", 27.0, 80.0, 2.4),
    "eleventh": ("54", "663", 30.0, 85.0, 2.7),
    "twelfth": ("54", "419", 36.0, 79.0, 2.8),
    "thirteenth": ("25", "294", 25.0, 85.0, 3.0),
    "fourteenth": ("27", "302", 23.0, 85.0, 2.7),
    "fifteenth": ("6", "52", 30.0, 80.0, 4.1),
    "sixteenth": ("15", "130", 25.0, 88.0, 4.3),
    "seventeenth": ("16", "149", 27.0, 88.0, 3.9),
    "eighteenth": ("15", "88", 25.0, 86.0, 3.6),
}


@pytest.fixture
def published_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import published_kernels

    yield published_kernels
    for name in ("published_kernels", "beside", "published_text", "published_earlier"):
        sys.modules.pop(name, None)


def figures(cells: list[str], *places: int) -> list[float]:
    """Return figures of a line of a table."""
    return [float(cells[place].removesuffix(" %")) for place in places]


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.waiting
def test_a_batch_lies_in_its_intervals_as_far_as_is_said(published_kernels: Any, name: str) -> None:
    sources, rows, most_error, least_inside, most_width = BATCHES[name]
    *_, last = published_kernels.by_machine(published_kernels.judged(published_kernels.BATCHES[name]))
    assert last[:4] == ["all", "all", sources, rows]
    error, inside, width = figures(last, 4, 6, 7)
    assert error < most_error
    assert inside > least_inside
    assert width < most_width


def test_the_page_says_of_each_batch_what_its_chapter_says(published_kernels: Any) -> None:
    import published_text

    chapters = published_text.PUBLISHED.replace("\n", " ").split("## The ")
    said = {chapter.split()[0]: chapter for chapter in chapters}
    assert list(published_kernels.FIRST_SIGHT) == ["first", *published_kernels.BATCHES]
    for name, (sources, commit, *found) in published_kernels.FIRST_SIGHT.items():
        texts = [f"commit {commit})", f"{sources} sources"] if name != "first" else []
        assert not [text for text in (*texts, *found) if text != "-" and text not in said[name]], name


def test_the_line_of_a_batch_is_that_of_all_its_rows(published_kernels: Any) -> None:
    parts = published_kernels.judged(published_kernels.BATCHES["fourth"])
    (line,) = published_kernels.by_batch({"fourth": parts})
    *_, last = published_kernels.by_machine(parts)
    assert line[8:] == [last[3], last[4], line[10], last[6], last[7]]
    errors = [abs(row.error) for part in parts for row in published_kernels._unflagged(part)]
    assert sum(error <= float(line[10][:-2]) / 100 for error in errors) == pytest.approx(len(errors) / 2, abs=2)


def test_rows_of_equal_numbers_are_judged_apart(published_kernels: Any) -> None:
    *_, alike, others = published_kernels.lines(published_kernels.judged())
    assert [alike[4], others[4]] == ["76", "185"]
    error, inside = figures(others, 5, 7)
    assert error < 30.0
    assert inside > 65.0


@pytest.mark.waiting
def test_exchanges_between_nodes_of_all_tables_are_judged_together(published_kernels: Any) -> None:
    *_, last = published_kernels.crossing()
    assert last[:4] == ["all", "all", "all", "394"]
    error, inside, width = figures(last, 4, 6, 7)
    assert error < 40.0
    assert inside > 70.0
    assert width < 5.0

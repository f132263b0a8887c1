"""Tests of which release of an engine a text stands for."""

from __future__ import annotations

from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.serving.engine import engine_names, find_engine, is_before, read_engine
from perfmodel.serving.release_text import read_release
from perfmodel.serving.releases import edges, find_release, release_of, releases

ENGINES = sorted(releases())
#: engines whose releases all have their day; builds have one a change, of which the file has a few
LISTED = [name for name in ENGINES if not releases()[name].builds]


@pytest.mark.parametrize(
    ("text", "number", "before"),
    [
        ("0.6.3.dev109+gcb3b2b9b (rocm)", "0.6.3.dev109+gcb3b2b9b (rocm)", False),
        ("v0.10.0", "0.10.0", False),
        ("about 0.11 (latest image, Oct-Nov 2025)", "0.11", False),
        ("unknown, 2024 (about 0.5)", "0.5", False),
        ("main of Aug 2025 (0.10)", "0.10", False),
        ("main of 2024-03-28 (after 0.3.3) + this PR", "0.3.3", False),
        ("main of February 2026 (before 0.16)", "0.16", True),
        ("PR 19053 (Jan 2026)", "", False),
        ("PR 22298 (14293fbb9)", "", False),
        ("main 5a84b76 (Nov 2025)", "", False),
        ("torch 2.5.1", "", False),
        ("2025", "", False),
        ("2025-03, unknown", "", False),
        ("0.0.0.dev1+g631db6c75 (June 2026)", "", False),  # what a copy without its history calls itself
    ],
)
def test_the_number_of_a_release_is_told_from_other_numbers(text: str, number: str, before: bool) -> None:
    told = read_release(text)
    assert (told.number, told.before) == (number, before)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2025-03, unknown", date(2025, 3, 1), date(2025, 3, 31)),
        ("main of 2024-03-28", date(2024, 3, 28), date(2024, 3, 28)),
        ("nightly-dev-20260402", date(2026, 4, 2), date(2026, 4, 2)),
        ("March 2025", date(2025, 3, 1), date(2025, 3, 31)),
        ("Mar 2025", date(2025, 3, 1), date(2025, 3, 31)),
        ("February 2024", date(2024, 2, 1), date(2024, 2, 29)),
        ("main of 19 December 2025", date(2025, 12, 19), date(2025, 12, 19)),
        ("June 11, 2024", date(2024, 6, 11), date(2024, 6, 11)),
        ("Oct-Dec 2023", date(2023, 10, 1), date(2023, 12, 31)),
        ("Dec-Jan 2025", date(2024, 12, 1), date(2025, 1, 31)),
        ("Dec 2024 to Jan 2025", date(2024, 12, 1), date(2025, 1, 31)),
        ("spring 2026, not told", date(2026, 3, 1), date(2026, 5, 31)),
        ("early 2026 (not told)", date(2026, 1, 1), date(2026, 4, 30)),
        ("Q3 2025", date(2025, 7, 1), date(2025, 9, 30)),
        ("unknown, 2024", date(2024, 1, 1), date(2024, 12, 31)),
    ],
)
def test_dates_become_days(text: str, first: date, last: date) -> None:
    assert read_release(text).days == (first, last)


@pytest.mark.parametrize(
    "text",
    ["", "unknown", "sha-11d7af7-rocm", "PR 2024", "pull request 2025", "c16cf49c", "b50-5aba536", "2025-13", "maybe"],
)
def test_a_text_without_a_number_or_a_date_tells_nothing(text: str) -> None:
    told = read_release(text)
    assert (told.number, told.days) == ("", None)
    assert all(release_of(text, engine) == "" for engine in engine_names())


@pytest.mark.parametrize("engine", LISTED)
def test_the_day_of_a_release_gives_it(engine: str) -> None:
    for release, day in releases()[engine].released.items():
        assert release_of(str(day), engine) == release


@pytest.mark.parametrize("engine", ENGINES)
def test_a_later_day_gives_no_older_release(engine: str) -> None:
    known = releases()[engine].released
    assert all(one < other for one, other in pairwise(known.values()))
    assert all(is_before(one, other) for one, other in pairwise(known))
    days = [min(known.values()) + timedelta(days=step) for step in range(0, 1300, 5)]
    found = [release for day in days if (release := release_of(f"main of {day}", engine))]
    assert len(found) > 200
    assert not any(is_before(later, earlier) for earlier, later in pairwise(found))


@pytest.mark.parametrize("engine", ENGINES)
def test_each_edge_of_the_profiles_has_its_day(engine: str) -> None:
    known = releases()[engine]
    assert edges(engine)
    for edge in edges(engine):
        if known.builds:  # within a month
            days = [
                [day for name, day in known.released.items() if is_before(name, edge) is older]
                for older in (True, False)
            ]
            assert min(days[1]) - max(days[0]) < timedelta(days=31)
        else:
            assert edge in known.released


def test_engines_whose_profiles_differ_by_release_have_days() -> None:
    families = {find_engine(name).family for name in engine_names()}
    assert {family for family in families if edges(family)} == set(ENGINES)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_month_is_a_release_only_where_its_days_have_one_profile(engine: str) -> None:
    """The months that tell nothing are those of an edge; all others have the release of their first day."""
    known = releases()[engine]
    start = min(known.released.values())
    months = [f"{year}-{month:02}" for year in range(start.year, 2027) for month in range(1, 13)]
    for month in months[start.month :]:
        found, first = release_of(month, engine), release_of(f"{month}-01", engine)
        inside = [edge for edge in edges(engine) if not known.builds and str(known.released[edge])[:7] == month
                  and known.released[edge].day > 1]  # fmt: skip
        assert bool(inside) == (not found) or known.builds
        assert found in ("", first)


def test_a_state_of_the_source_may_have_what_the_next_release_has() -> None:
    """A release of February 2025 is 0.7.1, but main of its end may be what became 0.8, which has another profile."""
    assert release_of("2025-02-25", "vllm") == "0.7.1"
    assert release_of("main of 2025-02-25", "vllm") == ""
    assert release_of("main of 2025-01-05", "vllm") == "0.6"


def test_a_release_before_another_is_the_one_before_it() -> None:
    assert release_of("main of February 2026 (before 0.16)", "vllm") == "0.15"
    assert release_of("before 0.1", "vllm") == ""
    assert release_of("before 0.16", "lmdeploy") == ""


def test_builds_have_their_number_with_and_without_a_letter() -> None:
    for text in ("b9559", "715b86a (9559)", "9559"):
        assert release_of(text, "llama.cpp") == "b9559"
    assert release_of("715b86a (9559)", "vllm") == ""
    assert release_of("0.3.0", "llama.cpp") == ""  # of August 2026, and no build before b3000
    assert release_of("May 2024", "llama.cpp") == ""  # b3000 came out within it
    assert find_engine("llama.cpp", release_of("April 2024", "llama.cpp")).name == "llama.cpp-2024"


def test_a_deployment_takes_a_date() -> None:
    by_date, by_number = (
        pm.Deployment("llama-3.1-8b", "h100", engine_version=text) for text in ("March 2024", "0.4.0")
    )
    assert (by_date.engine_version, by_date.profile.name) == ("0.3", "vllm-0.5")
    assert by_date.profile == by_number.profile
    assert by_date.elsewhere == by_number.elsewhere
    with pytest.raises(UsageError, match=r"'March 2025' may be 0\.7\.1 to 0\.8, which differ from 0\.8 on\."):
        pm.Deployment("llama-3.1-8b", "h100", engine_version="March 2025")


@pytest.mark.parametrize(
    ("text", "engine", "message"),
    [
        ("abc", "vllm", "'abc' is no version, and no date. Write 0.6.3, 2025-06 or June 2025, say."),
        ("PR 19053", "llama.cpp", "no date. Write b6213, 2025-06"),
        ("May 2022", "vllm", "'May 2022' tells no release: vllm had no release then."),
        ("May 2024", "lmdeploy", "no day of a release of lmdeploy is known. Write 0.6.3, say, or leave it out."),
        ("2024", "vllm", "'2024' may be 0.2 to 0.6, which differ from 0.6 on. Write the release"),
    ],
)
def test_a_text_that_tells_no_release_is_refused(text: str, engine: str, message: str) -> None:
    with pytest.raises(UsageError) as found:
        find_release(text, engine)
    assert message in str(found.value)
    assert "engine_version" in str(found.value)


def test_a_file_describes_one_version(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('name = "own"\n')
    assert find_release("2025-06", str(path)) == "2025-06"  # which find_engine refuses
    assert find_release("", read_engine(path)) == ""
    with pytest.raises(UsageError, match="a file describes one version"):
        pm.Deployment("llama-3.1-8b", "h100", engine=str(path), engine_version="2025-06")

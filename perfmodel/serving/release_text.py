"""What a text says about the release of an engine: its number, or the days on which it was run."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from datetime import date
from typing import NamedTuple

#: a release, or the number of a build of llama.cpp, at the beginning of a text
_LEADING = re.compile(r"\d{1,3}(\.\d|$)|b\d{3,5}\b")
#: what builds from a copy of the source without its history call themselves
_NO_RELEASE = re.compile(r"0\.0\.0\b")
_NUMBER = r"v?(\d{1,2}\.\d+[\w.+]*|b\d{3,5})\b"
#: a release within a text: "about 0.11", "main of 2024-03-28 (after 0.3.3)", "main of Aug 2025 (0.10)"
_NAMED = re.compile(rf"\b(about|around|after|before)\s+{_NUMBER}"), re.compile(rf"(\(){_NUMBER}")
#: a build within a text, as llama-bench prints it behind its commit: "715b86a (9559)"
_PRINTED = re.compile(r"\((\d{4,5})\)")
#: a build alone, without its letter; four digits from 2000 on may be a year
_BARE_BUILD = re.compile(r"(?!20\d\d$)(\d{3,5})$")
#: numbers that are neither releases nor years
_COUNTED = re.compile(r"(\b(pr|prs|pull requests?|issues?|builds?|commits?)|#)\s*#?\d+")
#: words for a state of the source between two releases
_MOVING = re.compile(r"\b(main|master|head|nightly|branch|dev|pr|pull request)\b")
_NAMES = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
#: a name's first letters or the whole of it -> month
_MONTHS = {text: number for number, name in enumerate(_NAMES, 1) for text in (name, name[:3])} | {"sept": 9}
_MONTH = rf"\b({'|'.join(sorted(_MONTHS, key=len, reverse=True))})\b\.?"
_YEAR = r"(20\d\d)(?!\d)"
_ISO = re.compile(r"(?<![\d.])(20\d\d)[-/](\d\d)(?:[-/](\d\d))?(?!\d)|(?<![\w.])(20\d\d)(\d\d)(\d\d)(?!\w)")
_NAMED_MONTH = re.compile(
    rf"(?:\b(\d{{1,2}})\s+)?(?:{_MONTH}\s*(?:-|to|/|and)\s*)?{_MONTH}\s+(?:(\d{{1,2}}),?\s+)?{_YEAR}"
)
_PART = re.compile(rf"\b(early|mid|late|spring|summer|autumn|fall|q[1-4])[\s-]+(?:of\s+)?{_YEAR}")
#: part of a year -> its months; early, mid and late are thirds of it
_PARTS = {
    "early": (1, 4), "mid": (5, 8), "late": (9, 12), "spring": (3, 5), "summer": (6, 8), "autumn": (9, 11),
    "fall": (9, 11), "q1": (1, 3), "q2": (4, 6), "q3": (7, 9), "q4": (10, 12),
}  # fmt: skip
_YEAR_ALONE = re.compile(r"(?<![\w.#/-])(20[12]\d)(?![\w./-])")

#: first and last day
Days = tuple[date, date]


class Told(NamedTuple):
    """What a text says.

    Attributes
    ----------
    number : release or build that it names; "" for none.
    before : whether it says that the release is an older one.
    days : first and last day on which the release may have been run; None for none.
    moving : whether it was a state of the source between two releases.
    """

    number: str = ""
    before: bool = False
    days: Days | None = None
    moving: bool = False


def read_release(text: str, *, builds: bool = False) -> Told:
    """Return what a text says about a release; a number in it counts more than a date.

    The number of a pull request, a commit and a year are no releases. Several dates are the span from the first to the
    last; a year counts only where no month stands. ``builds`` is whether the engine's releases are numbered builds.

    >>> read_release("main of 2024-03-28 (after 0.3.3)").number
    '0.3.3'
    >>> read_release("Oct-Dec 2023").days
    (datetime.date(2023, 10, 1), datetime.date(2023, 12, 31))
    """
    lower = text.strip().lower()
    number, before = _number_of(lower, builds)
    if number:
        return Told(number, before)
    return Told(days=_days_of(lower), moving=_MOVING.search(lower) is not None)


def _number_of(lower: str, builds: bool) -> tuple[str, bool]:
    """Return the release that a text names, and whether an older one is meant."""
    version = lower.removeprefix("v")
    if builds and (build := _BARE_BUILD.match(version) or _PRINTED.search(lower)):
        return f"b{build[1]}", False
    if _LEADING.match(version) and not _NO_RELEASE.match(version):
        number, word = version, ""
    else:
        match = next(filter(None, (pattern.search(lower) for pattern in _NAMED)), None)
        word, number = match.groups() if match else ("", "")
    # llama.cpp numbers its releases, too, since August 2026 (0.3.0), which says nothing of their builds
    return ("", False) if builds and not number.startswith("b") else (number, word == "before")


def _days_of(lower: str) -> Days | None:
    """Return the first and the last day that a text names."""
    found = list(_dates(lower)) or [
        (date(int(year), 1, 1), date(int(year), 12, 31)) for year in _YEAR_ALONE.findall(_COUNTED.sub(" ", lower))
    ]
    return (min(first for first, _ in found), max(last for _, last in found)) if found else None


def _dates(lower: str) -> Iterator[Days]:
    """Yield the days, months and parts of a year of a text; those that no calendar has are left out."""
    for match in _ISO.finditer(lower):
        year, month, day = match.groups()[:3] if match[1] else match.groups()[3:]
        yield from _months(int(year), int(month), int(month), int(day or 0))
    for match in _NAMED_MONTH.finditer(lower):
        day, start, end, other_day, year = match.groups()
        yield from _months(int(year), _MONTHS[start or end], _MONTHS[end], 0 if start else int(day or other_day or 0))
    for match in _PART.finditer(lower):
        yield from _months(int(match[2]), *_PARTS[match[1]])


def _months(year: int, start: int, end: int, day: int = 0) -> Iterator[Days]:
    """Yield the days from one month to another, which may be of the year before, or a day; nothing for no such day."""
    if not (1 <= start <= 12 and 1 <= end <= 12):
        return
    last = calendar.monthrange(year, end)[1]
    if day:
        if day <= last:
            yield date(year, end, day), date(year, end, day)
        return
    yield date(year - (start > end), start, 1), date(year, end, last)

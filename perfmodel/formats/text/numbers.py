"""Numbers and units as profilers print them: marks between thousands, decimal commas, "usec", "n/a"."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from perfmodel.core.units import parse_quantity
from perfmodel.errors import InputFileError

#: cells that mean "no value" in the tables of profilers
MISSING = frozenset({"", "-", "--", "n/a", "na", "nan", "-nan", "(!) nan", "(!) n/a", "none", "null"})
#: about 30 years: a longer time has the wrong unit
LONGEST_TIME_S = 1e9
#: above this a float64 no longer holds every whole number
_LARGEST_COUNT = 2**53
#: marks between thousands that are never a decimal mark: blank, no-break blanks, apostrophes
_BLANKS = re.compile(r"(?<=\d)[ \u00a0\u202f'\u2019](?=\d{3})")
_PLAIN = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
#: a longer run of digits may exceed the largest float64, 1.8e308
_SAFE_DIGITS = 300
_UNIT = re.compile(r"(milli|micro|nano|[munµμ])?(?:s|secs?|seconds?)")
_LONG_UNIT = re.compile(r"min|minutes?|h|hours?")
_PREFIX = {"milli": "m", "micro": "u", "nano": "n"}


def unit_s(word: str) -> float | None:
    """Return how many seconds a unit of time is, or None if the word is not a unit of time.

    >>> unit_s("usec"), unit_s("milliseconds"), unit_s("GB")
    (1e-06, 0.001, None)
    """
    match = _UNIT.fullmatch(word.lower())
    if match is None:
        return None
    prefix = match.group(1) or ""
    return parse_quantity(f"1 {_PREFIX.get(prefix, prefix)}s", "s")


def long_unit_s(word: str) -> float | None:
    """Return how many seconds a unit of time is, also minutes and hours, which profilers do not write and people do.

    >>> long_unit_s("h"), long_unit_s("min"), long_unit_s("ms"), long_unit_s("GB")
    (3600.0, 60.0, 0.001, None)
    """
    is_long = _LONG_UNIT.fullmatch(word.lower()) is not None
    return parse_quantity(f"1 {word.lower()}", "s") if is_long else unit_s(word)


def _evidence(decimal: str, grouping: str) -> re.Pattern[str]:
    """Return the pattern of numbers that only fit this decimal mark; "1,234" and "1.234" fit both."""
    d, g = re.escape(decimal), re.escape(grouping)
    several = rf"\d{{1,3}}(?:{g}\d{{3}}){{2,}}"
    both = rf"\d{{1,3}}(?:{g}\d{{3}})+{d}\d*"
    # a lone mark is a decimal mark unless exactly three digits follow it, or if 0 or over three digits precede it
    lone = rf"\d*{d}(?:\d{{1,2}}|\d{{4,}})|(?:0|\d{{4,}}){d}\d+"
    return re.compile(rf"[+-]?(?:{several}|{both}|(?:{lone})(?:[eE][+-]?\d+)?)")


_ENGLISH, _EUROPEAN = _evidence(".", ","), _evidence(",", ".")


@dataclass(frozen=True)
class NumberFormat:
    """How one file writes numbers; ``decimal`` is its decimal mark."""

    decimal: str = "."

    @property
    def grouping(self) -> str:
        """The mark between thousands."""
        return "," if self.decimal == "." else "."

    def parse(self, text: str) -> float | None:
        """Return the number in a text, or None if it is not a finite number.

        >>> NumberFormat(",").parse("27.595.520"), NumberFormat().parse("1,215,000,000.00")
        (27595520.0, 1215000000.0)
        """
        # most numbers of a long trace are plain whole numbers
        if text.isdecimal() and text.isascii() and len(text) < _SAFE_DIGITS:
            return float(text)
        plain = _BLANKS.sub("", text.strip()).replace(self.grouping, "").replace(self.decimal, ".")
        if _PLAIN.fullmatch(plain) is None:
            return None
        number = float(plain)
        return number if math.isfinite(number) else None

    def count(self, text: str) -> int | None:
        """Return the number of calls in a text, or None if it is not a count."""
        number = self.parse(text)
        return None if number is None else whole_count(number)


def whole_count(number: float) -> int | None:
    """Return a number as a count, rounded down; None below 0, and from 2^53 where float64 loses whole numbers."""
    return int(number) if 0 <= number < _LARGEST_COUNT else None


def number_format(texts: Iterable[str], *, place: str = "") -> NumberFormat:
    """Return how a file writes its numbers, decided from all of them; "." if nothing says otherwise.

    Raises
    ------
    InputFileError
        When some numbers can only be English and others only European.

    >>> number_format(["27.595.520", "66,61"]).decimal
    ','
    """
    english = european = ""
    for text in texts:
        plain = _BLANKS.sub("", text.strip())
        if not english and _ENGLISH.fullmatch(plain):
            english = plain
        elif not european and _EUROPEAN.fullmatch(plain):
            european = plain
    if english and european:
        raise InputFileError(
            f"the numbers {english[:30]!r} and {european[:30]!r} use different decimal marks.",
            place=place,
            remedy="Use one decimal mark in the whole file.",
        )
    return NumberFormat("," if european else ".")

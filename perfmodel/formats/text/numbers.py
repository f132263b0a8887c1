"""Numbers as profilers print them: with marks between thousands, and in the manner of the user's country."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from perfmodel.errors import InputFileError

#: what stands for "no value" in the tables of profilers
MISSING = frozenset({"", "-", "--", "n/a", "na", "nan", "-nan", "(!) nan", "(!) n/a", "none", "null"})
#: marks between thousands that are never a decimal mark: blank, no-break blanks, apostrophes
_BLANKS = re.compile(r"(?<=\d)[ \u00a0\u202f'\u2019](?=\d{3})")
_PLAIN = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def _evidence(decimal: str, grouping: str) -> re.Pattern[str]:
    """Return what only a number with this decimal mark looks like; "1,234" and "1.234" tell nothing."""
    d, g = re.escape(decimal), re.escape(grouping)
    several = rf"\d{{1,3}}(?:{g}\d{{3}}){{2,}}"
    both = rf"\d{{1,3}}(?:{g}\d{{3}})+{d}\d*"
    # a decimal mark is what does not stand before exactly three digits, or stands behind 0 or over three digits
    lone = rf"\d*{d}(?:\d{{1,2}}|\d{{4,}})|(?:0|\d{{4,}}){d}\d+"
    return re.compile(rf"[+-]?(?:{several}|{both}|(?:{lone})(?:[eE][+-]?\d+)?)")


_ENGLISH, _EUROPEAN = _evidence(".", ","), _evidence(",", ".")


@dataclass(frozen=True)
class NumberFormat:
    """How the numbers of one file are written: which mark is the decimal one."""

    decimal: str = "."

    @property
    def grouping(self) -> str:
        """The mark between thousands."""
        return "," if self.decimal == "." else "."

    def parse(self, text: str) -> float | None:
        """Return the number in a text, or None where it is none or is not finite.

        >>> NumberFormat(",").parse("27.595.520"), NumberFormat().parse("1,215,000,000.00")
        (27595520.0, 1215000000.0)
        """
        # most numbers of a long trace are plain whole ones
        if text.isdecimal() and text.isascii() and len(text) < 300:
            return float(text)
        plain = _BLANKS.sub("", text.strip()).replace(self.grouping, "").replace(self.decimal, ".")
        if _PLAIN.fullmatch(plain) is None:
            return None
        number = float(plain)
        return number if math.isfinite(number) else None


def number_format(texts: Iterable[str], *, place: str = "") -> NumberFormat:
    """Tell from all numbers of a file which mark is the decimal one: "." where nothing says otherwise.

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
            f"the numbers {english[:30]!r} and {european[:30]!r} are written in two ways.",
            place=place,
            remedy="Write all decimal marks alike.",
        )
    return NumberFormat("," if european else ".")

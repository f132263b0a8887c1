"""The errors that perfmodel raises on purpose: a message, the place, and a remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PerfModelError(Exception):
    """Base of every error that perfmodel raises on purpose.

    Parameters
    ----------
    message : what was found and what is allowed, one sentence.
    place : file, line or key where it was found, or an empty string.
    remedy : what to do about it, or an empty string.
    """

    def __init__(self, message: str, *, place: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.remedy = remedy

    def __str__(self) -> str:
        place = f"{self.place}: " if self.place else ""
        remedy = f" {self.remedy}" if self.remedy else ""
        return f"{place}{self.message}{remedy}"


class UsageError(PerfModelError):
    """The caller asked for something that does not exist or does not fit together."""


class InputFileError(PerfModelError):
    """A file that was given as input is missing, unreadable or wrong."""


class UnavailableError(PerfModelError):
    """A device or an optional dependency that was asked for is not there."""


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return ``"Did you mean 'x'?"`` for the closest allowed name, or an empty string.

    >>> nearest("gem", ["gemm", "softmax"])
    "Did you mean 'gemm'?"
    >>> nearest("zzz", ["gemm"])
    ''
    """
    found = difflib.get_close_matches(name.lower(), list(allowed), n=1, cutoff=0.5)
    return f"Did you mean {found[0]!r}?" if found else ""


def unknown_name(
    what: str,
    name: str,
    allowed: Iterable[str],
    *,
    place: str = "",
    kind: type[PerfModelError] = UsageError,
    main: Iterable[str] = (),
) -> PerfModelError:
    """Build the error for a name that is not one of ``allowed``: nearest name, then the list.

    ``what`` says what is named ("operator"); ``kind`` is the error class to build; ``main`` names the ones to
    list where others are only other spellings of them.
    """
    names = sorted(allowed)
    shown = sorted(main) or names
    listed = ", ".join(shown[:40]) + (", ..." if len(shown) > 40 else "")
    hint = nearest(name, names)
    remedy = f"{hint} Allowed: {listed}.".strip()
    return kind(f"unknown {what} {name!r}.", place=place, remedy=remedy)

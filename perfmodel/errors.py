"""The errors that perfmodel raises on purpose: each has a message, a place and a remedy."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable
from types import UnionType

#: names that a message lists where a command lists them, too: all operators, but not all machines
_LISTED = 50
#: smallest similarity of a name to the one that is suggested, 2 x equal letters / letters of both, as in difflib
_ALIKE = 0.6


class PerfModelError(Exception):
    """Base of every error that perfmodel raises on purpose.

    Parameters
    ----------
    message : one sentence that states what is wrong.
    place : the file, line, key or option, or an empty string.
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
        # names from files are part of messages, and may hold line breaks: a message is one line all the same
        return " ".join(f"{place}{self.message}{remedy}".splitlines())


class UsageError(PerfModelError):
    """The caller named something that does not exist, or options that contradict each other."""


class ArgumentError(UsageError, TypeError):
    """A call has an argument that does not exist, or lacks one; a TypeError as well, as Python raises."""


class InputFileError(PerfModelError):
    """An input file is missing, unreadable or wrong."""


class UnavailableError(PerfModelError):
    """A device or an optional dependency is missing."""


def not_installed(need: str, extra: str, *, place: str = "", instead: str = "") -> UnavailableError:
    """Build the error for a package of an extra that is not installed.

    Parameters
    ----------
    need : what needs which package ("capturing needs torch").
    extra : the extra of perfmodel that installs it.
    place : the file or option that asked for it.
    instead : what else would do ("convert the table to CSV").

    >>> print(not_installed("capturing needs torch", "bench"))
    capturing needs torch, which is not installed. pip install 'perfmodel[bench]'
    """
    command = f"pip install 'perfmodel[{extra}]'"
    remedy = f"Install it ({command}), or {instead}." if instead else command
    return UnavailableError(f"{need}, which is not installed.", place=place, remedy=remedy)


def expect(value: object, kind: type | UnionType, what: str, *, place: str, remedy: str) -> None:
    """Raise for an argument of another type.

    Parameters
    ----------
    value : the argument.
    kind : type that it must have.
    what : the kind of thing that it is to be ("operator").
    place : name of the parameter.
    remedy : what to write instead.

    Raises
    ------
    UsageError
        When the argument has another type.

    >>> expect("gemm", int, "number", place="size", remedy="Write 64.")
    Traceback (most recent call last):
    perfmodel.errors.UsageError: size: 'gemm' is no number. Write 64.
    """
    if not isinstance(value, kind):
        raise wrong_type(value, what, place=place, remedy=remedy)


def wrong_type(value: object, what: str, *, place: str, remedy: str) -> UsageError:
    """Build the error for an argument of another type; see `expect`."""
    return UsageError(f"{reprlib.repr(value)} is no {what}.", place=place, remedy=remedy)


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return ``"Did you mean 'x'?"`` for the closest allowed name, or an empty string.

    >>> nearest("gem", ["gemm", "softmax"])
    "Did you mean 'gemm'?"
    >>> nearest("Lineaar", ["Bilinear", "Linear"])
    "Did you mean 'Linear'?"
    >>> nearest("zzz", ["gemm"]), nearest("nope", ["compiled", "naive"])
    ('', '')

    One wrong character is half of a name of two, and a slip all the same:

    >>> nearest("s4", ["gs", "s3"])
    "Did you mean 's3'?"
    """
    spelt = {allowed_name.lower(): allowed_name for allowed_name in allowed}
    wrong = name.lower()
    matches = difflib.get_close_matches(wrong, spelt, n=1, cutoff=_ALIKE) or [
        one for one in spelt if len(one) == len(wrong) > 1 and one[:-1] == wrong[:-1]
    ]
    return f"Did you mean {spelt[matches[0]]!r}?" if matches else ""


def unknown_name(
    what: str,
    name: str,
    allowed: Iterable[str],
    *,
    place: str = "",
    kind: type[PerfModelError] = UsageError,
    main: Iterable[str] = (),
    listing: str = "",
) -> PerfModelError:
    """Build the error for a name that is not one of ``allowed``: it suggests the nearest name and lists all.

    Parameters
    ----------
    what : the kind of thing that is named ("operator").
    name : the unknown name.
    allowed : the names that exist, with other spellings of them.
    place : where the name stands.
    kind : class of the error.
    main : the names to list, where some of ``allowed`` are other spellings; empty to list all.
    listing : the command that lists the names, for more of them than anybody reads in a message.
    """
    names = sorted(allowed)
    shown = sorted(main) or names
    known = f"Allowed: {', '.join(shown)}." if shown else "There is none."
    if listing and len(shown) > _LISTED:
        known = f"Allowed: the {len(shown)} of `{listing}`."
    remedy = f"{nearest(name, names)} {known}".strip()
    return kind(f"unknown {what} {name!r}.", place=place, remedy=remedy)

"""The errors that perfmodel raises on purpose: each has a message, a place and a remedy."""

from __future__ import annotations

import difflib
import functools
import inspect
import reprlib
import warnings
from collections.abc import Callable, Iterable
from numbers import Real
from types import UnionType
from typing import Any, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Kind = TypeVar("Kind", bound=type)

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


def first_line(error: BaseException) -> str:
    r"""Return the first line of what a library's error says, without a full stop, or the error's name.

    >>> first_line(RuntimeError("\n  CUDA error.\nCompile with ...")), first_line(KeyboardInterrupt())
    ('CUDA error', 'KeyboardInterrupt')
    """
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__).rstrip(".")


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


def expect_numbers(kind: type, **values: object) -> None:
    """Raise for arguments, by name, that are no numbers of a kind.

    Raises
    ------
    UsageError
        When one is none.

    >>> from numbers import Real
    >>> expect_numbers(Real, spread="wide")
    Traceback (most recent call last):
    perfmodel.errors.UsageError: spread: 'wide' is no number. Give a number.
    """
    what = "number" if kind is Real else "whole number"
    for name, value in values.items():
        expect(value, kind, what, place=name, remedy=f"Give a {what}.")


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
    name : the unknown name, or what was given in its place.
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
    remedy = f"{nearest(str(name), names)} {known}".strip()
    return kind(f"unknown {what} {name!r}.", place=place, remedy=remedy)


def suggesting(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a function: for an argument that it does not have, the error suggests the nearest that it has.

    >>> suggesting(nearest)("gem", allowd=["gemm"])
    Traceback (most recent call last):
    perfmodel.errors.ArgumentError: nearest: unknown argument 'allowd'. Did you mean 'allowed'? Allowed: allowed, name.
    """
    return _suggesting(function, function.__name__)


def suggesting_class(kind: Kind) -> Kind:
    """Decorate a class as `suggesting` does a function: its objects are made with the arguments of ``__init__``."""
    kind.__init__ = _suggesting(kind.__init__, kind.__name__)  # type: ignore[misc]
    return kind


def _suggesting(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*given: Any, **options: Any) -> Any:
        try:
            return function(*given, **options)
        except TypeError:
            check_options(options, function, place=name)
            raise

    return called


def renaming(**renamed: str) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Decorate a function whose arguments have new names: the old ones, old=new, work in 0.2 with a warning."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*given: Any, **options: Any) -> Any:
            for old in renamed.keys() & options.keys():
                message = f"{function.__name__}: {old} is now {renamed[old]}; perfmodel 0.3 removes the old name."
                warnings.warn(message, DeprecationWarning, stacklevel=2)
                options[renamed[old]] = options.pop(old)
            return function(*given, **options)

        return called

    return decorate


def check_options(options: Iterable[str], function: Callable[..., Any], *, place: str) -> None:
    """Raise an `ArgumentError` for the first name that is no argument of a function, unless it takes any name."""
    parameters = list(inspect.signature(function).parameters.values())
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        check_names(options, [one.name for one in parameters if one.name != "self"], place=place)


def check_names(names: Iterable[str], allowed: Iterable[str], *, place: str, what: str = "argument") -> None:
    """Raise an `ArgumentError` for the first of some names that is not allowed."""
    known = list(allowed)
    for name in names:
        if name not in known:
            raise unknown_name(what, name, known, place=place, kind=ArgumentError)

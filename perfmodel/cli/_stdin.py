"""Standard input on the command line: a ``-`` in the place of a file that is read; also ``<(COMMAND)``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from perfmodel.errors import UsageError

_STDIN = "-"
#: options whose value is a file that is written: there ``-`` is standard output
_WRITTEN = frozenset((
    "-o", "--output", "--plot", "--plan-output", "--annotate", "--operators", "--record", "--prometheus", "--timeline",
))  # fmt: skip
_SHARED = ("--workers", "--scheduler")
_HELP = ("-h", "--help")


def with_stdin(arguments: Sequence[str]) -> list[str]:
    """Return a command line in which the copy of standard input, and of the shell's pipes, stands for them.

    Raises
    ------
    UsageError
        When workers would share the work: they have a standard input of their own; and when standard input stands in
        several places, since it can be read once.
    InputFileError
        When standard input is closed or a terminal, or cannot be read.
    """
    words = list(arguments)
    read = [] if set(_HELP) & set(words) else [at for at in range(len(words)) if _value(words, at)]
    if not read:
        return words
    if any(_shares(words, at) for at in range(len(words))):
        raise UsageError(
            "standard input and pipes cannot be shared with workers.",
            place=_value(words, read[0]),
            remedy="Write it to a file first: COMMAND > FILE.",
        )
    from perfmodel.storage.spool import copy_of, is_stdin

    if sum(is_stdin(_value(words, at)) for at in read) > 1:
        raise UsageError(
            "standard input is given in several places, and can be read once.",
            place=_STDIN,
            remedy="Write one of the inputs to a file first: COMMAND > FILE.",
        )
    for at in read:
        stream = _value(words, at)
        words[at] = words[at].removesuffix(stream) + copy_of(stream)
    return words


def told(value: Any) -> Any:
    """Return a text, or what holds texts, in which standard input and pipes have the names that the user gave them."""
    spool = sys.modules.get("perfmodel.storage.spool")  # where nothing loaded it, nothing was copied
    return value if spool is None else spool.told(value)


def _value(words: Sequence[str], at: int) -> str:
    """Return the stream that a word names as a file to read, or "": ``-``, ``/dev/stdin``, ``--on=-``."""
    if "--" in words[:at]:
        return ""
    option, assigned, value = words[at].partition("=")
    if not (assigned and option.startswith("--")):
        option, value = words[at - 1] if at else "", words[at]
    if option in _WRITTEN or not (value == _STDIN or value.startswith(("/dev/", "/proc/"))):
        return ""
    from perfmodel.storage.spool import is_stream

    return value if is_stream(value) else ""


def _shares(words: Sequence[str], at: int) -> bool:
    """Return whether a word asks for workers: several processes, or those of a scheduler."""
    option, assigned, value = words[at].partition("=")
    value = value if assigned else (words[at + 1] if at + 1 < len(words) else "")
    return option in _SHARED and not (option == "--workers" and value == "1")

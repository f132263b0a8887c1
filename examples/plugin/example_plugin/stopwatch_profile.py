"""Profiles of an imaginary profiler: a line "# stopwatch", then a line "NAME CALLS SECONDS" for each kernel."""

from __future__ import annotations

import os

from perfmodel.core.vocabulary import EventKind
from perfmodel.errors import InputFileError
from perfmodel.files import read_text
from perfmodel.formats.detect import DEFAULTS, ReadOptions
from perfmodel.profile.profile import Profile, ProfileEntry

NAME = "stopwatch"
PRECEDENCE = 100
_HEAD = "# stopwatch"


def sniff(head: bytes) -> bool:
    """Return whether a file starts with the line of the profiler."""
    return head.startswith(_HEAD.encode())


def read(path: str | os.PathLike[str], options: ReadOptions = DEFAULTS) -> Profile:
    """Return the kernels in a file.

    Raises
    ------
    InputFileError
        When the file cannot be read, or a line is wrong.
    """
    place = os.fspath(path)
    entries = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            name, calls, seconds = line.rsplit(maxsplit=2)
            entries.append(ProfileEntry(name, float(seconds), int(calls), EventKind.KERNEL))
        except ValueError:
            raise InputFileError(
                f"line {number} is not NAME CALLS SECONDS.", place=place, remedy="Record it again."
            ) from None
    return Profile.from_entries(entries, source=place, format=NAME)

"""Which format a profile has, told from its content, and the reader for it.

A reader is a module of this package with ``NAME`` (what `Profile.format` says), ``sniff(head)`` (whether the first
`HEAD_BYTES` of the file, unpacked where it is gzip, are of its format) and ``read(path, options)``. `READERS` lists
them; the first that recognises the head reads the file.
"""

from __future__ import annotations

import functools
import gzip
import importlib
import os
import stat
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, cast

from perfmodel.errors import InputFileError, UsageError, unknown_name
from perfmodel.files import read_text
from perfmodel.profile.profile import Profile

#: modules of this package, the most particular format first; a plain table is what nothing else recognised
READERS: tuple[str, ...] = (
    "torch_trace.reader",
    "nsys.sqlite",
    "ncu",
    "nvprof",
    "key_averages",
    "nsys.stats",
)
#: what `Reader.sniff` gets to see
HEAD_BYTES = 65536
#: how entries of a trace are told apart
GROUPINGS = ("shape", "op", "kernel")
#: a trace above this size is read piece by piece
STREAM_ABOVE_BYTES = 1_000_000_000


@dataclass(frozen=True)
class ReadOptions:
    """What a reader may be asked for; each takes what concerns its format.

    Attributes
    ----------
    by : what makes an entry of a trace: an operator with its "shape", an "op" by its name, or a "kernel".
    all_steps : count what ran outside the profiler's steps too.
    stream_above_bytes : unpacked size from which on a trace is read piece by piece [B].

    Raises
    ------
    UsageError
        On construction, for an unknown grouping.
    """

    by: str = "shape"
    all_steps: bool = False
    stream_above_bytes: int = field(default=STREAM_ABOVE_BYTES, kw_only=True)

    def __post_init__(self) -> None:
        if self.by not in GROUPINGS:
            raise unknown_name("grouping", self.by, GROUPINGS, place="by")


class Reader(Protocol):
    """What a module of `READERS` offers."""

    NAME: str

    def sniff(self, head: bytes) -> bool:
        """Whether a file that starts like this is of the format."""
        ...

    def read(self, path: str | os.PathLike[str], options: ReadOptions) -> Profile:
        """Read the file."""
        ...


def read_profile(
    path: str | os.PathLike[str],
    *,
    by: str = "shape",
    all_steps: bool = False,
    stream_above_bytes: int = STREAM_ABOVE_BYTES,
) -> Profile:
    """Read a profile of any known format, recognised by its content.

    Parameters
    ----------
    path : the file, plain or gzip.
    by : what makes an entry of a trace: a framework's operator with its "shape", an "op" by its name, or a "kernel".
    all_steps : of a trace with profiler steps, count what ran outside of them too.
    stream_above_bytes : unpacked size from which on a trace is read piece by piece [B].

    Raises
    ------
    InputFileError
        When the file cannot be read, or is of no known format.
    UsageError
        For an unknown grouping.
    """
    options = ReadOptions(by, all_steps, stream_above_bytes=stream_above_bytes)
    reader = find_reader(path)
    if reader is None:
        from perfmodel.formats.table import reader as table

        return table.read_profile(path)
    return reader.read(path, options)


def read_profiles(
    paths: Sequence[str | os.PathLike[str]], *, by: str = "shape", all_steps: bool = False, processes: int = 1
) -> list[Profile]:
    """Read the profiles of several ranks, in the order given; see `read_profile`.

    Parameters
    ----------
    paths : the files.
    by, all_steps : as for `read_profile`.
    processes : read in so many processes side by side, each with the memory that one file takes. Starting them takes
        about 0.6 s, as long as reading 25 MB of events, so that it pays for large files only: two processes on two
        cores took 1.3 s for 100 MB in 4 files that one process read in 1.6 s, and 1.6 s for 50 MB in 2 files
        instead of 0.8 s. Processes are spawned: a script needs ``if __name__ == "__main__"``.

    Raises
    ------
    InputFileError
        When a file cannot be read.
    UsageError
        For an unknown grouping, or fewer processes than one.
    """
    if processes < 1:
        raise UsageError(f"processes={processes} is below 1.", remedy="Give 1 or more.")
    if min(processes, len(paths)) < 2:
        return [read_profile(path, by=by, all_steps=all_steps) for path in paths]
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # a fork would copy locks that other threads hold
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(paths)), mp_context=context) as pool:
        return list(pool.map(functools.partial(_read_plain, by=by, all_steps=all_steps), paths))


def _read_plain(path: str | os.PathLike[str], *, by: str, all_steps: bool) -> Profile:
    """Read a profile whose mappings can be sent to another process."""
    profile = read_profile(path, by=by, all_steps=all_steps)
    entries = tuple(replace(entry, metrics=dict(entry.metrics)) for entry in profile.entries)
    return replace(profile, entries=entries, skipped=dict(profile.skipped))


def find_reader(path: str | os.PathLike[str]) -> Reader | None:
    """Return the first reader that recognises a file, or None: a plain table."""
    head = read_head(path)
    for name in READERS:
        reader = cast(Reader, importlib.import_module(f"perfmodel.formats.{name}"))
        if reader.sniff(head):
            return reader
    return None


def _check_seekable(path: str | os.PathLike[str]) -> None:
    """Refuse pipes and devices: a reader looks at the beginning first, and then reads the whole."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return  # reading it says what is wrong
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise InputFileError(
            "is a pipe or a device, which cannot be read twice.",
            place=os.fspath(path),
            remedy="Write it to a file first: COMMAND > profile.json.",
        )


def read_head(path: str | os.PathLike[str]) -> bytes:
    """Return the first `HEAD_BYTES` of a file, unpacked where it is gzip, without a byte order mark.

    Raises
    ------
    InputFileError
        When the file is missing, a directory, a pipe, unreadable or empty.
    """
    _check_seekable(path)
    try:
        with Path(path).open("rb") as stream:
            head = stream.read(HEAD_BYTES)
        if head.startswith(b"\x1f\x8b"):
            with gzip.open(path) as unpacked:
                head = unpacked.read(HEAD_BYTES)
    except (OSError, EOFError, ValueError, zlib.error):
        head = b""
    if not head.strip():
        read_text(path)  # says what is wrong
    return head.removeprefix(b"\xef\xbb\xbf")

"""Recognises the format of a profile from its content and reads it.

A format is a module, or a package, of ``perfmodel.formats``, or the module that an entry point of the group
``perfmodel.formats`` names. A module is a reader if it has the attributes of `Reader`; a package with several formats
lists its readers in ``READERS``. Other modules are helpers.
"""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, cast

from perfmodel import storage
from perfmodel.errors import (
    InputFileError,
    PerfModelError,
    UsageError,
    expect,
    renaming,
    suggesting,
    unknown_name,
    wrong_type,
)
from perfmodel.files import LARGEST_TEXT_BYTES, check_regular, check_text_size, opened, read_text, refuse_foreign
from perfmodel.plugins import load_module, module_names, warn_of_plugin
from perfmodel.profile.profile import Profile

_PACKAGE = "perfmodel.formats"
#: bytes at the start of a file that `Reader.sniff` sees
HEAD_BYTES = 65536
#: what tells the entries of a trace apart
GROUPINGS = ("shape", "op", "kernel")
#: a trace above this size is read piece by piece
STREAM_ABOVE_BYTES = 1_000_000_000
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading; each reader uses those that concern its format.

    Attributes
    ----------
    by : what an entry of a trace is: a framework's operator with its "shape", an "op" by name, or a "kernel".
    all_steps : also count what ran outside the profiler's steps.
    stream_above_bytes : unpacked size above which a trace is read piece by piece [B].

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


DEFAULTS = ReadOptions()


class Reader(Protocol):
    """What the module of a format provides.

    Attributes
    ----------
    NAME : name of the format, which `Profile.format` repeats.
    PRECEDENCE : readers are asked in falling order, the most particular format first: 100 for a format with a magic
        number or keys of its own, 50 to 90 for one recognised by the headers of its tables, 0 for the plain table.

    A reader that does not hold the whole file in memory sets ``ANY_SIZE = True``; others get files of up to
    `LARGEST_TEXT_BYTES`, unpacked.
    """

    NAME: str
    PRECEDENCE: int

    def sniff(self, head: bytes) -> bool:
        """Whether a file with these first `HEAD_BYTES`, unpacked if it is gzip, has the format."""
        ...

    def read(self, path: str | os.PathLike[str], options: ReadOptions) -> Profile:
        """Read the file; raise `InputFileError` if it is damaged."""
        ...


_ATTRIBUTES = ("NAME", "PRECEDENCE", "sniff", "read")


@dataclass(frozen=True)
class Format:
    """A profile format and its reader.

    Attributes
    ----------
    reader : the module that reads it.
    plugin, module : the entry point that added it and the module which that names; empty for perfmodel's own.
    """

    reader: Reader
    plugin: str = ""
    module: str = ""

    def recognises(self, head: bytes) -> bool:
        """Whether the reader takes a file with this head; a plugin that fails here is skipped with a warning."""
        try:
            return bool(self.reader.sniff(head))
        except Exception as error:
            if not self.plugin:
                raise
            warn_of_plugin(self.plugin, self.module, f"sniff: {type(error).__name__}: {error}")
            return False

    def read(self, path: str | os.PathLike[str], options: ReadOptions) -> Profile:
        """Read a file.

        Raises
        ------
        InputFileError
            When the file is damaged, or a plugin fails on it in any way.
        """
        if not getattr(self.reader, "ANY_SIZE", False):
            _check_size(path)
        try:
            # a plugin opens what it gets
            return self.reader.read(storage.local(path) if self.plugin else path, options)
        except PerfModelError:
            raise
        except Exception as error:
            if not self.plugin:
                raise
            raise InputFileError(
                f"the plugin {self.plugin!r} ({self.module}) failed: {type(error).__name__}: {error}.",
                place=os.fspath(path),
                remedy="Update or uninstall the plugin.",
            ) from error


@functools.cache
def formats() -> tuple[Format, ...]:
    """Return all profile formats in the order in which they are tried."""
    every = sorted(_discovered(), key=lambda one: (-one.reader.PRECEDENCE, one.reader.NAME))
    return tuple(every)


def _discovered() -> Iterator[Format]:
    """Import the modules of perfmodel.formats and of its plugins, and yield the readers among them."""
    modules = module_names(_PACKAGE, "formats")
    for name, path in modules.items():
        module = load_module(name, modules)
        if module is None:
            continue
        own = path.startswith(f"{_PACKAGE}.")
        for reader in getattr(module, "READERS", (module,)):
            missing = [attribute for attribute in _ATTRIBUTES if not hasattr(reader, attribute)]
            if not missing:
                yield Format(cast(Reader, reader)) if own else Format(cast(Reader, reader), name, path)
            elif not own:
                warn_of_plugin(name, path, f"a profile format needs {', '.join(_ATTRIBUTES)}; {missing[0]} is missing")


@renaming(all_steps="whole_trace")
@suggesting
def read_profile(
    path: str | os.PathLike[str],
    *,
    by: str = "shape",
    whole_trace: bool = False,
    stream_above_bytes: int = STREAM_ABOVE_BYTES,
) -> Profile:
    """Read a profile of any known format, recognised by its content.

    Parameters
    ----------
    path : the file, plain or gzip, or a pattern that matches one; also ``s3://``, ``gs://``, ``https://`` and others.
    by : what an entry of a trace is: a framework's operator with its "shape", an "op" by name, or a "kernel". By "op"
        the sizes are known only of operators whose calls have one shape, by "kernel" of none: those have no bound, no
        prediction, and no advice that needs one.
    whole_trace : in a trace with profiler steps, also count what ran outside them.
    stream_above_bytes : unpacked size above which a trace is read piece by piece [B].

    Raises
    ------
    InputFileError
        When the file cannot be read, or has no known format.
    UsageError
        For an unknown grouping, or what is no path.
    """
    expect(path, str | os.PathLike, "path", place="path", remedy='Write "trace.json.gz".')
    options = ReadOptions(by, whole_trace, stream_above_bytes=stream_above_bytes)
    file = storage.one(path)
    return find_format(file).read(file, options)


@renaming(all_steps="whole_trace", processes="workers")
@suggesting
def read_profiles(
    paths: Sequence[str | os.PathLike[str]], *, by: str = "shape", whole_trace: bool = False, workers: int = 1
) -> list[Profile]:
    """Read the profiles of several ranks, in the order of ``paths``; see `read_profile`.

    Parameters
    ----------
    paths : the files, and patterns of files (``rank*.json.gz``), each of which becomes what it matches, sorted.
    by, whole_trace : as for `read_profile`.
    workers : number of processes that read side by side, each with the memory that one file takes. Starting them
        takes about 0.6 s, as long as reading 25 MB of events, so they pay for large files only: on two cores, two
        processes took 1.3 s for 100 MB in 4 files where one took 1.6 s, and 1.6 s for 50 MB in 2 files where one took
        0.8 s. Processes are spawned, so a script needs ``if __name__ == "__main__"``.

    Raises
    ------
    InputFileError
        When a file cannot be read, or nothing matches a pattern.
    UsageError
        For an unknown grouping, or fewer processes than one.
    """
    if isinstance(paths, str | os.PathLike):
        remedy = f"Write pm.read_profiles([{os.fspath(paths)!r}]), or pm.read_profile."
        raise wrong_type(paths, "list of files", place="paths", remedy=remedy)
    if workers < 1:
        raise UsageError(f"workers={workers} is below 1.", remedy="Give 1 or more.")
    paths = storage.expand(paths)
    if min(workers, len(paths)) < 2:
        return [read_profile(path, by=by, whole_trace=whole_trace) for path in paths]
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # a fork would copy locks that other threads hold
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(paths)), mp_context=context) as pool:
        return list(pool.map(functools.partial(_read_picklable, by=by, whole_trace=whole_trace), paths))


def _read_picklable(path: str | os.PathLike[str], *, by: str, whole_trace: bool) -> Profile:
    """Read a profile with plain mappings, which can be sent to another process."""
    profile = read_profile(path, by=by, whole_trace=whole_trace)
    entries = tuple(replace(entry, metrics=dict(entry.metrics)) for entry in profile.entries)
    return replace(profile, entries=entries, skipped=dict(profile.skipped))


def find_format(path: str | os.PathLike[str]) -> Format:
    """Return the first format that recognises a file; the plain table takes every file that no other does."""
    head = read_head(path)
    return next(one for one in formats() if one.recognises(head))


def _check_size(path: str | os.PathLike[str]) -> None:
    """Refuse files that are too large to be held in memory, as a small gzip file may be once it is unpacked."""
    size = 0
    try:
        with opened(path) as stream:
            while (block := stream.read(_BLOCK_BYTES)) and size <= LARGEST_TEXT_BYTES:
                size += len(block)
    except (OSError, EOFError, ValueError, zlib.error):
        return  # reading the file raises a better message
    check_text_size(size, os.fspath(path), LARGEST_TEXT_BYTES)


def read_head(path: str | os.PathLike[str]) -> bytes:
    """Return the first `HEAD_BYTES` of a file, unpacked if it is gzip, without a byte order mark.

    Raises
    ------
    InputFileError
        When the file is missing, a directory, a pipe, unreadable, empty or of a kind that perfmodel does not read.
    """
    check_regular(path)
    try:
        with opened(path) as stream:
            head = stream.read(HEAD_BYTES)
    except (OSError, EOFError, ValueError, zlib.error):
        head = b""
    if not head or head.isspace():
        read_text(path)  # raises the message for what is wrong
    refuse_foreign(path, head)
    return head.removeprefix(b"\xef\xbb\xbf")

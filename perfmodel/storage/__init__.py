"""Files of this machine and of remote stores by one name: ``trace.json``, ``s3://bucket/trace.json``, ``https://...``.

Whatever takes a path opens it through this package. Reading goes through `local`: the path itself, or a copy of a
remote file or of a text that is not in UTF-8. Remote stores are reached by fsspec; it and the drivers are imported when
the first address is met.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from perfmodel.errors import InputFileError, PerfModelError, UsageError
from perfmodel.storage.place import (
    NO_FILE,
    AnyPath,
    is_remote,
    name_of,
    place_of,
    stem_of,
    suffix_of,
    url_of,
)
from perfmodel.storage.recoded import in_utf8

if TYPE_CHECKING:
    from perfmodel.storage.growing import WorkingCopy

__all__ = [
    "NO_FILE",
    "AnyPath",
    "check_writable",
    "exists",
    "expand",
    "held",
    "is_file",
    "is_remote",
    "local",
    "name_of",
    "one",
    "place_of",
    "size",
    "stem_of",
    "suffix_of",
    "working_path",
    "write",
]


def local(path: AnyPath) -> str:
    """Return a path of this machine under which a file can be read; a pattern stands for the one file that it matches.

    Raises
    ------
    InputFileError
        When a remote file is not there or cannot be fetched, or a pattern matches none or several.
    UsageError
        When the store is of an unknown kind.
    UnavailableError
        When the driver of the store is not installed.
    """
    place = one(path)
    url = url_of(place)
    if url is None:
        return in_utf8(place)
    from perfmodel.storage.cache import copy_of
    from perfmodel.storage.growing import working_copy

    copy = working_copy(place)
    return str(copy.path) if copy else in_utf8(copy_of(url))


def exists(path: AnyPath) -> bool:
    """Whether there is a file, a folder, a pipe or a device; in a remote store, whether there is a file."""
    return is_file(path) if is_remote(path) else os.path.exists(place_of(path))


def is_file(path: AnyPath, kind: type[PerfModelError] = InputFileError) -> bool:
    """Whether there is a regular file.

    Raises
    ------
    InputFileError
        Or an error of class ``kind``: when the remote store cannot be asked.
    """
    url = url_of(path)
    if url is None:
        return os.path.isfile(place_of(path))
    from perfmodel.storage.growing import working_copy
    from perfmodel.storage.remote import is_there

    copy = working_copy(path)
    return copy.path.is_file() if copy else is_there(url, kind)


def size(path: AnyPath) -> int:
    """Return the size of a file [B]; that of a remote one by fetching it.

    Raises
    ------
    InputFileError
        When the remote file is not there.
    """
    return os.path.getsize(local(path))


def write(path: AnyPath, data: bytes) -> None:
    """Write a file of a remote store in one step, or its working copy while this process holds one.

    Raises
    ------
    UsageError
        When the store cannot be written.
    """
    from perfmodel.storage import cache, remote
    from perfmodel.storage.growing import working_copy

    url = url_of(path)
    assert url is not None
    copy = working_copy(path)
    if copy:
        part = copy.path.with_name(f"{copy.path.name}.part")
        part.write_bytes(data)
        os.replace(part, copy.path)
        copy.changed()
        return
    remote.put(url, data)
    cache.forget(url)


def check_writable(path: AnyPath) -> None:
    """Check before the work starts that a remote file can be written, as far as that shows without writing it.

    Raises
    ------
    UsageError
        When the store is read-only, unknown or cannot be reached, or its bucket is not there.
    UnavailableError
        When the driver of the store is not installed.
    """
    from perfmodel.storage.remote import check_bucket, check_scheme, is_there

    url = url_of(path)
    assert url is not None
    check_scheme(url)
    try:
        if not is_there(url, UsageError):
            check_bucket(url)
    except UsageError as error:
        if "denied" not in error.message:  # who may write need not be allowed to look
            raise


def working_path(path: AnyPath) -> Path:
    """Return the local file that stands for a remote one while `held` holds it, or that a killed process left."""
    from perfmodel.storage.growing import unsaved

    url = url_of(path)
    assert url is not None
    return unsaved(url)


def held(path: AnyPath, *, keep: bool) -> AbstractContextManager[WorkingCopy]:
    """Let a local working copy stand for a remote file until the end of the block; see `perfmodel.storage.growing`."""
    from perfmodel.storage import growing

    return growing.held(path, keep=keep)


def one(path: AnyPath) -> str:
    """Return the file that a path names, or that a pattern matches; a copy of standard input for "-".

    Raises
    ------
    InputFileError
        When no file matches the pattern, or more than one, or standard input cannot be read.
    """
    text = os.fspath(path)
    if not text:
        raise InputFileError("the path is empty.", remedy="Is the variable in the command line set?")
    if text == "-" or text.startswith(("/dev/", "/proc/")):
        from perfmodel.storage import spool

        if spool.is_stream(path):
            return spool.copy_of(path)
    if "*" not in text and "?" not in text and "[" not in text:
        return place_of(path)
    from perfmodel.storage import globs

    return globs.one(path) if globs.is_pattern(path) else place_of(path)


def expand(paths: Sequence[AnyPath]) -> list[str]:
    """Return the files of a list of paths and patterns: each pattern becomes what it matches, sorted.

    Raises
    ------
    InputFileError
        When nothing matches a pattern.
    """
    from perfmodel.storage.globs import expand as expanded

    return expanded(paths)

"""The file that a run writes its measurements to: one writer at a time, and nothing in it is lost."""

from __future__ import annotations

import contextlib
import csv
import datetime
import gzip
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from perfmodel import storage
from perfmodel.errors import UsageError
from perfmodel.storage import gzipped

#: bytes of a file that hold the header of a table, and the command of a record
_HEAD_BYTES, _COMMAND_BYTES = 65536, 4096
_RECORD = re.compile(rb'^\s*\{.*?"command"\s*:\s*"bench"', re.DOTALL)
#: columns of rows of `bench` as CSV, and of those of its algorithms
_ROWS = ({"op", "kernel", "time_s.median"}, {"op", "algorithm", "least_time_s"})
#: what `calibrate` writes into a specification or a profile of an engine, and nothing else does
_CALIBRATED = re.compile(rb'^\[latency\.|"[^"\n]*perfmodel calibrate', re.MULTILINE)


@contextlib.contextmanager
def output_file(path: str | os.PathLike[str], *, keep: bool = False, replace: bool = False) -> Iterator[None]:
    """Lock a file against other writers until the end of the block; check first that nothing in it is lost.

    The lock is a file ``.NAME.lock`` beside it, which the operating system releases when the process ends, however it
    ends. Pipes and devices are neither locked nor checked. For a file in a remote store a local working copy is locked
    and written, which goes into the store at intervals and at the end (`perfmodel.storage.growing`); processes of other
    machines are not kept out.

    Parameters
    ----------
    path : the file.
    keep : the block keeps the content of an existing file.
    replace : an existing file may be replaced.

    Raises
    ------
    UsageError
        When another process writes the file, its folder is missing or read-only, or it exists with some content and
        neither ``keep`` nor ``replace`` is set.
    """
    place = os.fspath(path)
    target = _target(path)
    if target.exists() and not target.is_file():
        yield
        return
    if not target.parent.is_dir():  # the lock would create it
        raise UsageError("its folder does not exist.", place=place, remedy=f"Make {target.parent} first.")
    from filelock import FileLock, Timeout

    lock_path = target.with_name(f".{target.name[:200]}.lock")
    lock = FileLock(lock_path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise UsageError(
            f"is being written by {_owner(lock_path) or 'another process'}.",
            place=place,
            remedy="Wait for it, or give another file to -o.",
        ) from None
    except OSError as error:
        raise UsageError(f"cannot be locked: {error.strerror or error}.", place=place) from None
    try:
        if not (keep or replace):
            _check_new(
                path, target, "Use --resume to measure only what is missing in it, or --overwrite to replace it."
            )
        _write_owner(lock_path, f"process {os.getpid()}, since {datetime.datetime.now():%Y-%m-%d %H:%M:%S}")
        with storage.held(path, keep=keep) if storage.is_remote(path) else contextlib.nullcontext():
            yield
    finally:
        with contextlib.suppress(OSError):
            lock_path.unlink()  # before the release: a process that waits in between finds no link and starts anew
        lock.release()


def _check_new(path: str | os.PathLike[str], target: Path, remedy: str) -> None:
    """Refuse a file that has content: in its store, or in a working copy that a killed process left."""
    has_content = target.is_file() and target.stat().st_size
    if has_content or (storage.is_remote(path) and storage.is_file(path, UsageError)):
        raise UsageError("exists already.", place=os.fspath(path), remedy=remedy)


def measurements_in(path: str | os.PathLike[str]) -> str:
    """Return what measurements in words of perfmodel are in an existing file, also packed; "" if there are none.

    A record of `bench` or a table is told from its beginning, a file of `calibrate` (.toml) from what only that command
    writes.
    """
    from perfmodel.records.layouts import tidy
    from perfmodel.records.table import REQUIRED

    if storage.suffix_of(os.fspath(path)) == ".toml":
        return "what perfmodel calibrate found" if _CALIBRATED.search(_head(path, -1)) else ""
    head = _head(path, _HEAD_BYTES)
    columns = header(head)
    if _RECORD.match(head[:_COMMAND_BYTES]) or any(rows.issubset(columns) for rows in _ROWS):
        return "measurements of perfmodel bench"
    return "a table of measurements" if {*REQUIRED}.issubset(tidy(dict.fromkeys(columns, ()))) else ""


def header(head: bytes) -> tuple[str, ...]:
    """Return the names in the first line of a table, by its first bytes."""
    first = head.decode("utf-8-sig", "replace").partition("\n")[0]
    try:
        return tuple(name.strip() for name in next(csv.reader([first]), []))
    except csv.Error:
        return ()


def check_new(path: str | os.PathLike[str], remedy: str) -> None:
    """Refuse a file that exists with some content.

    Raises
    ------
    UsageError
        When it does, with a remedy.
    """
    _check_new(path, _target(path), remedy)


def _target(path: str | os.PathLike[str]) -> Path:
    """Return the local file that is written: the working copy of a remote one."""
    if storage.is_remote(path):
        return storage.working_path(path)
    return Path(os.path.realpath(storage.place_of(path)))


def _head(path: str | os.PathLike[str], most: int) -> bytes:
    """Return the first bytes of a file, unpacked, or all of them for -1; none of one that cannot be read."""
    try:
        with open(storage.local(path), "rb") as stream:
            packed = stream.read(len(gzipped.MAGIC)) == gzipped.MAGIC
            stream.seek(0)
            return (gzip.GzipFile(fileobj=stream) if packed else stream).read(most)
    except (OSError, EOFError, ValueError, zlib.error):
        return b""


def _owner(lock_path: Path) -> str:
    """Return the process that holds a lock; empty where it has not written its name, or cannot."""
    with contextlib.suppress(OSError):
        return lock_path.read_text(encoding="utf-8", errors="replace").strip()[:200]
    return ""


def _write_owner(lock_path: Path, owner: str) -> None:
    with contextlib.suppress(OSError):
        lock_path.write_text(owner, encoding="utf-8")

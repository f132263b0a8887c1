"""Working copies of remote files that grow: a record that is written after every row, the log of a monitor.

Objects of a store cannot be appended to, and putting the whole of one after every row would cost more than measuring
it. So the rows go to a local working copy, which is put into the store after the first row, then at intervals, and at
the end. The copy is removed when the store has all of it. What a killed process leaves is found again by `held`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from perfmodel.errors import PerfModelError, UsageError
from perfmodel.storage import cache, remote
from perfmodel.storage.place import AnyPath, Url, place_of, url_of

#: a working copy is put into its store this often [s], or less often where that would take over 5 % of the time
INTERVAL_S = 30.0
_LARGEST_SHARE = 0.05

#: address -> the working copy that stands for it in this process
_held: dict[str, WorkingCopy] = {}


class WorkingCopy:
    """The local file that stands for a remote one while this process writes it.

    Attributes
    ----------
    path : the local file; it need not exist.
    """

    def __init__(self, url: Url) -> None:
        self.path = unsaved(url)
        self._url = url
        self._next_s = -float("inf")
        self._saved = True
        self._begun = False

    def changed(self) -> None:
        """Note that the file has more content; put it into the store if the interval is over.

        Raises
        ------
        UsageError
            When the store refuses the first time. Later failures wait for the next interval, and for the end.
        """
        self._saved = False
        if time.monotonic() < self._next_s:
            return
        with contextlib.ExitStack() as stack:
            if self._begun:
                stack.enter_context(contextlib.suppress(PerfModelError))
            self.save()

    def save(self) -> None:
        """Put the file into the store.

        Raises
        ------
        UsageError
            When the store refuses; the file is kept, and the message names it.
        """
        begin = time.monotonic()
        try:
            remote.put(self._url, self.path.read_bytes())
        except PerfModelError as error:
            raise UsageError(
                error.message,
                place=error.place,
                remedy=f"{error.remedy} Nothing is lost: the content is in {self.path}.".strip(),
            ) from error
        finally:
            now = time.monotonic()
            self._next_s = now + max(INTERVAL_S, (now - begin) / _LARGEST_SHARE)
        self._saved = self._begun = True
        cache.forget(self._url)

    def close(self) -> None:
        """Put what is not saved yet, then remove the local file."""
        if not self._saved:
            self.save()
        self.path.unlink(missing_ok=True)


def unsaved(url: Url) -> Path:
    """Return where the working copy of an address is, or was left by a killed process."""
    return cache.folder("unsaved") / cache.file_name(url)


@contextlib.contextmanager
def held(path: AnyPath, *, keep: bool) -> Iterator[WorkingCopy]:
    """Let a working copy stand for a remote file until the end of the block: reads and writes go to it.

    Parameters
    ----------
    path : the remote file.
    keep : begin with its content: that of the store, or the longer one that a killed process left on this machine.

    Raises
    ------
    UsageError
        When the store cannot be asked, or refuses the content.
    """
    url = url_of(path)
    assert url is not None
    remote.check_scheme(url)
    there = keep and remote.is_there(url, UsageError)
    copy = WorkingCopy(url)
    left = copy.path.exists()
    if not keep:
        copy.path.unlink(missing_ok=True)
    elif there and not (left and _is_newer(copy.path, cache.copy_of(url))):
        copy.path.write_bytes(Path(cache.copy_of(url)).read_bytes())
    elif left:
        copy.save()
    _held[url.text] = copy
    try:
        yield copy
    finally:
        del _held[url.text]
        copy.close()


def _is_newer(left: Path, stored: str) -> bool:
    """Whether a working copy that a killed process left has more than the store."""
    return left.stat().st_size > os.path.getsize(stored)


def working_copy(path: AnyPath) -> WorkingCopy | None:
    """Return the working copy that stands for a place in this process, if any."""
    return _held.get(place_of(path)) if _held else None

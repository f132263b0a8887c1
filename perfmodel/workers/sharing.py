"""Files that workers read side by side, and what they may not see."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from perfmodel import storage
from perfmodel.errors import InputFileError
from perfmodel.workers import executor, mapped
from perfmodel.workers.lost import Ended

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass
class Sharing:
    """Who shares the work: processes of this machine, or the workers of a Dask scheduler.

    ``ended`` is what ended it before all of it was done, where the work survives that: see `end`.
    """

    workers: int = 1
    scheduler: str = ""
    ended: Ended | None = None

    def mapped(
        self,
        function: Callable[[_Item], _Result],
        items: Sequence[_Item],
        *,
        keep: bool = False,
        done: str = "files were read",
    ) -> dict[int, _Result]:
        """Return the results of a function of a module by the places of their items, in order.

        Parameters
        ----------
        keep, done : whether what is done outlasts the end of the work, and what it is, for those who can say so to a
            user; an error or Ctrl-C ends it here.
        """
        with executor(self.workers, self.scheduler) as pool:
            return dict(enumerate(mapped(function, items, pool)))

    def end(self, error: Ended, known: str, left: str = "; the others are left out") -> None:
        """Raise what ended the work: here nobody is told what of it is known, and what is left out."""
        raise error

    def check_seen(self, paths: Sequence[str], problems: Sequence[str]) -> None:
        """Raise an InputFileError where the workers of a cluster lack a file that this machine has.

        Parameters
        ----------
        paths : the files.
        problems : why each of them cannot be read; "" where it can.
        """
        if not self.scheduler:
            return
        pairs = zip(paths, problems, strict=True)
        unseen = [path for path, problem in pairs if storage.NO_FILE in problem and storage.exists(path)]
        if unseen:
            raise InputFileError(
                f"{len(unseen)} of {len(paths)} files are on this machine, but a worker of {self.scheduler} does not "
                "see them.",
                place=unseen[0],
                remedy="Put them into a folder that all machines share, or into s3:// or gs://.",
            )


def for_workers(path: str) -> str:
    """Return a path that holds in another process's folder; an address holds everywhere."""
    return path if storage.is_remote(path) or not storage.exists(path) else os.path.abspath(storage.local(path))

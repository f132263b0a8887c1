"""Files that workers read side by side, and what they may not see."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from perfmodel import storage
from perfmodel.cli._progress import counted
from perfmodel.errors import InputFileError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Sharing(NamedTuple):
    """Who shares the work: processes of this machine, or the workers of a Dask scheduler."""

    workers: int = 1
    scheduler: str = ""

    def mapped(self, function: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """Return the results of a function of a module, in the order of the items, with a bar of progress."""
        from perfmodel.workers import executor, mapped

        with executor(self.workers, self.scheduler) as pool, counted(len(items)) as advance:
            return list(mapped(function, items, pool, advance))

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

"""Files that workers read side by side, and what they may not see."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from perfmodel import storage
from perfmodel.cli._output import INTERRUPTED, status
from perfmodel.cli._progress import counted
from perfmodel.errors import InputFileError
from perfmodel.workers.lost import ENDS, Ended, WorkersLostError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass
class Sharing:
    """Who shares the work: processes of this machine, or the workers of a Dask scheduler.

    ``ended`` is what ended it before all of it was done: see `end_code`.
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
        """Return the results of a function of a module by the places of their items, in order, with a bar of progress.

        With ``keep``, Ctrl-C and the loss of the workers end the work and not the program: the results of all items
        that are done are returned, also of those behind one that is not. ``done`` says what they are.
        """
        from perfmodel.workers import executor, mapped

        kept: dict[int, _Result] = {}
        try:
            with executor(self.workers, self.scheduler) as pool, counted(len(items)) as advance:
                for _ in mapped(function, items, pool, advance, kept):
                    pass
        except ENDS as error:
            if not keep or not kept:
                raise
            self.end(error, f"{len(kept)} of {len(items)} {done}")
        return dict(sorted(kept.items()))

    def end(self, error: Ended, known: str, left: str = "; the others are left out") -> None:
        """Keep what ended the work, and say on stderr what is known."""
        self.ended = error
        status(f"interrupted: {known}{left}.")

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


def end_code(ended: Ended | None) -> int:
    """Return the exit code of a command by what ended its work early; asked when what was done is reported.

    Raises
    ------
    WorkersLostError
        When the loss of the workers did.
    """
    if isinstance(ended, WorkersLostError):
        raise ended
    return 0 if ended is None else INTERRUPTED


def for_workers(path: str) -> str:
    """Return a path that holds in another process's folder; an address holds everywhere."""
    return path if storage.is_remote(path) or not storage.exists(path) else os.path.abspath(storage.local(path))

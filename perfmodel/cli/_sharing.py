"""Work that a command shares out: a bar of progress, and what is kept when it is ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from perfmodel.cli._output import INTERRUPTED, status
from perfmodel.cli._progress import counted
from perfmodel.workers import sharing
from perfmodel.workers.lost import ENDS, Ended, WorkersLostError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Sharing(sharing.Sharing):
    """Who shares the work of a command.

    ``ended`` is what ended it before all of it was done: see `end_code`.
    """

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

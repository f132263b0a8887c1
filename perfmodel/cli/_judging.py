"""Files of measurements beside predictions, which workers judge side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import NamedTuple, TypeVar

from perfmodel.accuracy.judge import JudgedCalls, judge_calls
from perfmodel.accuracy.measured import Skipped, Skips
from perfmodel.accuracy.published import PublishedRuns, combined
from perfmodel.accuracy.validate import Accuracy
from perfmodel.cli._sharing import Sharing, for_workers
from perfmodel.core.hardware import Hardware
from perfmodel.errors import InputFileError, UsageError
from perfmodel.hardware_catalog import hardware, same_machine

_Judged = TypeVar("_Judged")


class JudgedFile(NamedTuple):
    """What came of a file: its place and notes, the names of its machines, and its rows."""

    place: str
    notes: tuple[str, ...]
    machines: tuple[str, ...]
    judged: tuple[JudgedCalls, ...]
    skipped: tuple[Skipped, ...]


class Judging(NamedTuple):
    """What is judged: some files, on some machines (none: those of the catalog), flagged rows too or not, by whom."""

    paths: tuple[str, ...]
    machines: tuple[Hardware, ...]
    flagged: bool
    sharing: Sharing

    def calls(self) -> tuple[list[JudgedFile], Accuracy]:
        """Return what came of each file with measured calls, and all of their rows; with any number of workers.

        Raises
        ------
        InputFileError
            When a file cannot be read.
        UsageError
            When no row was measured on one of the machines.
        """
        files = list(self._each(_judge_file, "").values())
        _check_machines(self.machines, [name for file in files for name in file.machines])
        skips = Skips()
        for file in files:
            skips.update(file.skipped)
        return files, Accuracy(tuple(part for file in files for part in file.judged), skips.all())

    def runs(self, room: ModuleType) -> tuple[tuple[str, ...], PublishedRuns]:
        """Return the files that were read, and their published runs, judged by the room that predicts them.

        Raises
        ------
        InputFileError
            When a file cannot be read.
        """
        runs = self._each(_judge_runs, room.__name__)
        return tuple(self.paths[place] for place in runs), combined(list(runs.values()))

    def _each(self, function: Callable[[_Task], _Judged], room: str) -> dict[int, _Judged]:
        """Return what a function makes of the files that were read, by their places in ``paths``."""
        remote = bool(self.sharing.scheduler)
        paths = [for_workers(path) if remote else path for path in self.paths]
        try:
            tasks = [_Task(path, self.machines, self.flagged, room) for path in paths]
            return self.sharing.mapped(function, tasks, keep=True)
        except InputFileError as error:
            self.sharing.check_seen(paths, [str(error) if path == error.place else "" for path in paths])
            raise


class _Task(NamedTuple):
    """A file, the machines and the choice of `Judging`, and the name of the module that judges published runs."""

    path: str
    machines: tuple[Hardware, ...]
    flagged: bool
    room: str


def _judge_file(task: _Task) -> JudgedFile:
    """Judge a file of measured calls; a function of a worker."""
    from perfmodel.kernels.registry import parts_of
    from perfmodel.records.calls import read_calls

    table = read_calls(task.path, parts_of)
    names = tuple(dict.fromkeys(calls.hardware for calls in table.calls))
    judged, skipped = judge_calls([table], _among(task.machines), flagged=task.flagged)
    return JudgedFile(table.place, table.notes, names, judged, skipped)


def _judge_runs(task: _Task) -> PublishedRuns:
    """Judge a file of published runs; a function of a worker."""
    from perfmodel.accuracy.run_table import read_run_table

    runs: PublishedRuns = import_module(task.room).judge(read_run_table(task.path), _among(task.machines))
    return runs


def _check_machines(chosen: Sequence[Hardware], names: Sequence[str]) -> None:
    """Raise a UsageError where no row was measured on a machine that was chosen."""
    if chosen and names and not any(same_machine(name, machine) for name in names for machine in chosen):
        asked, found = (", ".join(sorted(set(some))) for some in ((one.name for one in chosen), names))
        raise UsageError(f"no row was measured on {asked}.", place="--on", remedy=f"The rows are of {found}.")


def _among(chosen: Sequence[Hardware]) -> Callable[[str], Hardware]:
    """Return a function from a name to the machine: one of ``chosen``, or any of the catalog if that is empty."""

    def find(name: str) -> Hardware:
        for machine in chosen:
            if same_machine(name, machine):
                return machine
        raise UsageError("measured on machines that are not among those of --on")  # one reason for all such rows

    return find if chosen else hardware

"""Files of measurements beside predictions, which workers judge side by side: measured calls and published runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import NamedTuple, TypeVar

from perfmodel import storage
from perfmodel.accuracy.judge import JudgedCalls, judge_calls
from perfmodel.accuracy.measured import Skipped, Skips
from perfmodel.accuracy.published import PublishedRuns, combined
from perfmodel.accuracy.run_table import HARDWARE, read_run_table, run_columns
from perfmodel.accuracy.validate import Accuracy
from perfmodel.api.recorded import recorded_machine
from perfmodel.core.hardware import Hardware
from perfmodel.errors import InputFileError, UsageError
from perfmodel.hardware_catalog import hardware, same_machine
from perfmodel.workers.lost import ENDS
from perfmodel.workers.sharing import Sharing, for_workers

#: modules that judge tables of published runs: each has ``recognises(columns)``, ``judge(table, find)`` and ``KEYS``
ROOMS = ("perfmodel.training.published", "perfmodel.serving.published")
#: package of the module that judges a table -> what the table holds
_HOLDS = {"": "measured calls", "training": "runs of training", "serving": "runs of serving"}

_Judged = TypeVar("_Judged")


class JudgedFile(NamedTuple):
    """What came of a file with measured calls: its place and notes, the names of its machines, and its rows."""

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

    def calls(self) -> tuple[tuple[str, ...], Accuracy]:
        """Return the files with measured calls that were read, and their rows beside their predictions.

        Where no machine is chosen, a record whose machine the catalog lacks is judged on the specification in it.

        Raises
        ------
        InputFileError
            When a file cannot be read, or no row can be judged.
        UsageError
            When no row was measured on one of the machines.
        """
        files: list[JudgedFile] = []
        for part in self._by_machines():
            if self.sharing.ended is not None:
                break
            try:
                files += part._files()
            except ENDS as error:
                if not files:
                    raise
                self.sharing.end(error, f"{len(files)} of {len(self.paths)} files were read")
        skips = Skips()
        for file in files:
            skips.update(file.skipped)
        judged = tuple(one for file in files for one in file.judged)
        accuracy = Accuracy(judged, skips.all(), tuple(note for file in files for note in file.notes))
        places = tuple(file.place for file in files)
        _check_rows(accuracy, places)
        return places, accuracy

    def runs(self, room: ModuleType) -> tuple[tuple[str, ...], PublishedRuns]:
        """Return the files that were read, and their published runs, judged by the room that predicts them.

        Raises
        ------
        InputFileError
            When a file cannot be read, or no run can be judged.
        """
        found = self._each(_judge_runs, room.__name__)
        places, runs = tuple(self.paths[place] for place in found), combined(list(found.values()))
        _check_rows(runs, places)
        return places, runs

    def _by_machines(self) -> list[Judging]:
        """Return the files whose machines are those chosen or of the catalog, and each record with one of its own."""
        found = {} if self.machines else {path: recorded_machine(path) for path in self.paths}
        own = {path: machine for path, machine in found.items() if machine is not None}
        others = tuple(path for path in self.paths if path not in own)
        parts = [self._replace(paths=others)] if others else []
        return parts + [self._replace(paths=(path,), machines=(machine,)) for path, machine in own.items()]

    def _files(self) -> list[JudgedFile]:
        files = list(self._each(_judge_file, "").values())
        _check_machines(self.machines, [name for file in files for name in file.machines])
        return files

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

    table = read_calls(task.path, parts_of, stated(task.machines))
    names = tuple(dict.fromkeys(calls.hardware for calls in table.calls))
    judged, skipped = judge_calls([table], _among(task.machines), flagged=task.flagged)
    return JudgedFile(table.place, table.notes, names, judged, skipped)


def _judge_runs(task: _Task) -> PublishedRuns:
    """Judge a file of published runs; a function of a worker."""
    runs: PublishedRuns = import_module(task.room).judge(
        read_run_table(task.path, stated(task.machines)), _among(task.machines)
    )
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


def _check_rows(judged: Accuracy | PublishedRuns, places: Sequence[str]) -> None:
    """Raise an InputFileError where nothing could be judged, with the reasons."""
    if not len(judged):
        unknown = "unknown hardware" in judged.main_reasons
        raise InputFileError(
            f"holds no row that can be judged: {judged.main_reasons}.",
            place=", ".join(places),
            remedy="Name the machine's file with --on FILE.toml; calibrate -o writes one." if unknown else "",
        )


def stated(machines: Sequence[Hardware]) -> str:
    """Return the machine that stands for a column of machines that a table lacks, and for its blank cells.

    It is the one that was chosen; of several nobody knows which.
    """
    return machines[0].name if len(machines) == 1 else ""


def room_of(paths: Sequence[str], machines: Sequence[Hardware] = ()) -> ModuleType | None:
    """Return the module that predicts the runs of some tables; None for measured calls of operators.

    Parameters
    ----------
    paths : the tables.
    machines : those that were chosen: see `stated`.

    Raises
    ------
    UsageError
        When the tables are of several kinds.
    InputFileError
        When a table looks like one of training runs and lacks columns that those need.
    """
    rooms = [_published_room(path, stated(machines)) for path in paths]
    firsts: dict[ModuleType | None, str] = {}  # kind -> its first table
    for room, path in zip(rooms, paths, strict=True):
        firsts.setdefault(room, path)
    if len(firsts) > 1:
        held = ", ".join(f"{path} holds {_HOLDS[_name_of(room)]}" for room, path in firsts.items())
        raise UsageError(
            f"the tables are of several kinds: {held}.", place="TABLE", remedy="Validate one kind at a time."
        )
    return rooms[0]


def _name_of(room: ModuleType | None) -> str:
    """Return the package of a module that judges tables; "" for that of measured calls."""
    return room.__name__.split(".")[1] if room else ""


def _published_room(path: str, hardware: str) -> ModuleType | None:
    """Return the module that predicts the runs of a table; None where it holds measured calls."""
    from perfmodel.training.published import missing

    if storage.name_of(path).removesuffix(".gz").endswith((".json", ".parquet")) or not storage.is_file(path):
        return None  # a record of bench, or what the reader of measurements explains
    columns = frozenset((*run_columns(path), *([HARDWARE] if hardware else ())))
    found = next((module for module in map(import_module, ROOMS) if module.recognises(columns)), None)
    if found is None and (lacking := missing(columns)):
        raise InputFileError(
            f"looks like a table of training runs, and has no column {', '.join(lacking)}.",
            place=path,
            remedy='docs/data_formats.md, "Tables of training runs", lists the columns.'
            + (" --on HW states one machine for all runs." if HARDWARE in lacking else ""),
        )
    return found

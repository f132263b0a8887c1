"""What was written and measured: records read back, two of them compared, and measured times beside predictions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Union

from perfmodel import storage
from perfmodel.api.arguments import check_number
from perfmodel.api.machines import Machine, find_machine
from perfmodel.errors import InputFileError, UsageError, expect, expect_numbers, suggesting

if TYPE_CHECKING:
    from perfmodel.accuracy.published import PublishedRuns
    from perfmodel.accuracy.validate import Accuracy
    from perfmodel.api.saved import SavedResult
    from perfmodel.comparison.compare import Comparison, Rules
    from perfmodel.comparison.pairing import BenchRun
    from perfmodel.measure.monitor.record import Recorded
    from perfmodel.records.schema import Record

#: a file or a pattern of files
Path = str | os.PathLike[str]
#: a benchmark record: its file, or what `perfmodel.read_record` returned
Benchmark = Union[Path, "Record", "BenchRun"]


@suggesting
def read_record(path: Path) -> Record | Recorded | SavedResult:
    """Return what perfmodel wrote into a file, whose report is the table that the command printed.

    ``pm.report(pm.read_record("record.json"))`` is that table; ``pm.compare`` and ``pm.html_report`` take the record as
    it is.

    Parameters
    ----------
    path : JSON of any command, plain or gzip, or what `monitor` recorded (.jsonl).

    Returns
    -------
    A `Record` for analyze and bench (``rows`` have the keys as attributes, ``context`` the conditions), `Recorded` for
    readings of monitor, and for the JSON of any other command a `SavedResult` (``rows`` are mappings).

    Raises
    ------
    InputFileError
        When the file cannot be read, or holds something else; the message says what, and what reads it.
    """
    from perfmodel.api.saved import read_saved

    remedy = 'Write "record.json".'
    expect(path, str | os.PathLike, "path", place="path", remedy=remedy)
    return read_saved(path)


@suggesting
def compare(
    before: Benchmark | Sequence[Benchmark],
    after: Benchmark | Sequence[Benchmark],
    *,
    fail_on: float | None = None,
    threshold: float | None = None,
    drift: float | None = None,
    across: Sequence[str] = (),
) -> Comparison:
    """Return which rows of two benchmark records became slower or faster; see `perfmodel.comparison.compare.compare`.

    Parameters
    ----------
    before, after : JSON of bench, nvbench, pytest-benchmark, google-benchmark or hyperfine, or what
        `perfmodel.read_record` returns. Several are runs of the same code, which measure how much runs differ.
    fail_on : slowdown at which `Comparison.gate_failures` names a row, as a fraction; None for no gate.
    threshold : smallest change that matters, as a fraction; None: 2 %, or ``fail_on`` if that is smaller.
    drift : standard deviation of a row's median from run to run, as a fraction; None: measured from the repeats, or
        else what is usual for the kind of device.
    across : settings that may differ: device, dtype, cache, timing, kernel, or all.

    Raises
    ------
    UsageError
        For a setting that does not exist, and where rows differ in one that ``across`` does not name.
    InputFileError
        When a file is no benchmark record, no row of one side is on the other, or a repeat is a copy.
    """
    from perfmodel.comparison.compare import Rules
    from perfmodel.comparison.pairing import check_across

    for name, value in (("fail_on", fail_on), ("threshold", threshold), ("drift", drift)):
        check_number(value, name, "Give a fraction, as 0.05.")
        if value is not None and not 0 <= value < float("inf"):
            raise UsageError(f"{value:g} is no fraction.", place=name, remedy="Give 0 or more, as 0.05.")
    names = check_across([across] if isinstance(across, str) else across)
    rules = Rules.of(threshold=threshold, limit=fail_on, drift=drift)
    return compare_runs(read_runs(_several(before)), read_runs(_several(after)), rules, names)


def compare_runs(
    before: Sequence[BenchRun], after: Sequence[BenchRun], rules: Rules, across: Sequence[str]
) -> Comparison:
    """Return what changed between two sides, whose repeats are runs of their own."""
    from perfmodel.comparison.compare import compare as compare_sides
    from perfmodel.comparison.pairing import check_repeats

    for side in (before, after):
        check_repeats(side)
    return compare_sides(before, after, rules, across)


def read_runs(records: Iterable[Benchmark]) -> list[BenchRun]:
    """Return benchmark records, of files and patterns in their order.

    Raises
    ------
    InputFileError
        When a file is no benchmark record; that for a profile says what compares those.
    """
    from perfmodel.comparison.pairing import BenchRun
    from perfmodel.records.benchmark_formats.bench import run_of
    from perfmodel.records.schema import Record

    runs: list[BenchRun] = []
    for record in records:
        if isinstance(record, BenchRun):
            runs.append(record)
        elif isinstance(record, Record):
            runs.append(run_of(record))
        else:
            remedy = 'Write "before.json", or pm.read_record("before.json").'
            expect(record, str | os.PathLike, "benchmark record", place="compare", remedy=remedy)
            runs += map(_read_run, storage.expand([record]))
    if not runs:
        raise UsageError("a side has no record.", place="compare", remedy='Write pm.compare("a.json", "b.json").')
    return runs


def _read_run(path: str) -> BenchRun:
    from perfmodel.formats.detect import find_format
    from perfmodel.formats.table import NAME as TABLE
    from perfmodel.records.runs import read_bench_run

    try:
        return read_bench_run(path)
    except InputFileError:
        if (name := find_format(path).reader.NAME) == TABLE:
            raise
        remedy = "Compare profiles by: perfmodel diagnose BEFORE --against AFTER"
        raise InputFileError(f"is a profile ({name}), not a benchmark record.", place=path, remedy=remedy) from None


@suggesting
def validate(
    tables: Path | Sequence[Path],
    hardware: Machine | Sequence[Machine] | None = None,
    *,
    flagged: bool = False,
    workers: int = 1,
    scheduler: str = "",
) -> Accuracy | PublishedRuns:
    """Return measured times beside their predictions, each row under its own conditions.

    ``by(["family", "hardware"])`` of the result has the error of each group: MAPE, bias, coverage of the 80 % intervals
    (`perfmodel.accuracy.validate.score`). ``pm.report(result, by=["regime"], worst=10)`` is the table of the command.

    Parameters
    ----------
    tables : tables of measurements and records of bench, or tables of published runs of training or of serving: files
        and patterns.
    hardware : the machine, or several; only rows measured on them are used, with their figures. A single one is that of
        rows that name none, too, as of a table without the column. None: the machine that each row names, or of a
        record whose machine the catalog lacks, the specification in it.
    flagged : whether rows count that the author of the table flagged as doubtful.
    workers, scheduler : processes that share the files, or the address of a Dask scheduler.

    Returns
    -------
    An `Accuracy` for measured calls, `PublishedRuns` for tables of published runs.

    Raises
    ------
    UsageError
        When a machine's name is unknown, no row was measured on it, or the tables are of several kinds.
    InputFileError
        When a file cannot be read, or no row can be judged.
    """
    from perfmodel.api.judging import Judging, room_of
    from perfmodel.workers.sharing import Sharing

    listed = _several(tables)
    for table in listed:
        remedy = 'Write pm.validate("measurements.csv").'
        expect(table, str | os.PathLike, "path of a table", place="tables", remedy=remedy)
    expect_numbers(Integral, workers=workers)
    paths = tuple(dict.fromkeys(storage.expand(listed)))
    if not paths:
        raise UsageError("there is no table.", place="tables", remedy='Write pm.validate("measurements.csv").')
    machines = () if hardware is None else tuple(map(find_machine, _several(hardware)))
    room = room_of(paths, machines)
    judging = Judging(paths, machines, flagged, Sharing(workers, scheduler))
    return judging.calls()[1] if room is None else judging.runs(room)[1]


def _several(given: object) -> list[Any]:
    """Return what is given as a list, one thing or several."""
    return list(given) if isinstance(given, list | tuple) else [given]

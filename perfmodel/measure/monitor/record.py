"""The record of a monitor: JSON lines, one a value, appended as they come, and rotated before they fill a disk."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING

from perfmodel import storage
from perfmodel.core.report import Reportable
from perfmodel.errors import InputFileError, PerfModelError
from perfmodel.files import read_text, write_atomic
from perfmodel.measure.monitor.findings import Finding, find
from perfmodel.measure.monitor.series import Series
from perfmodel.measure.monitor.sources import Sample

if TYPE_CHECKING:
    from perfmodel.storage.growing import WorkingCopy

#: longest line of a record [characters]
_LONGEST_LINE = 100_000
#: size from which a record continues in a new file [B], and how many older ones are kept
ROTATE_BYTES, KEPT = 100_000_000, 3
#: beyond this no reading is believed; differences and squares of such numbers overflow
_LARGEST = 1e100
#: the end of the calendar, the year 9999 [s since 1970]
_LAST_S = 253_402_300_000.0


class Recorder:
    """Appends readings and findings to a file.

    A file that exists is continued. From `ROTATE_BYTES` on it becomes FILE.1, and FILE.1 becomes FILE.2. A file in a
    remote store is written on this machine first, and put into the store at intervals and at the end.
    """

    def __init__(self, path: str | os.PathLike[str], rotate_bytes: int = ROTATE_BYTES) -> None:
        self._place, self._rotate_bytes = os.fspath(path), rotate_bytes
        self._file: IO[str] | None = None
        self._held = contextlib.ExitStack()
        self._copy: WorkingCopy | None = None

    def __enter__(self) -> Recorder:
        with contextlib.ExitStack() as held:  # given up if the file cannot be opened
            if storage.is_remote(self._place):
                self._copy = held.enter_context(storage.held(self._place, keep=True))
            self._path = self._copy.path if self._copy else Path(storage.place_of(self._place))
            _drop_cut_line(self._path)
            self._file = open(self._path, "a", encoding="utf-8")
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._held.close()

    def write(self, time_s: float, samples: Iterable[Sample], findings: Iterable[Finding] = ()) -> None:
        """Append the readings of one moment, and findings that are new; they are in the file when this returns."""
        assert self._file is not None
        lines = [{"time": time_s, "metric": s.metric, "of": s.of, "value": s.value, "finding": ""} for s in samples]
        lines += [
            {"time": time_s, "metric": "finding", "of": one.of, "value": None, "finding": str(one)} for one in findings
        ]
        self._file.write("".join(f"{json.dumps(line)}\n" for line in lines))
        self._file.flush()
        if self._copy is not None:
            self._copy.changed()
        if self._file.tell() > self._rotate_bytes:
            self._rotate()

    def _rotate(self) -> None:
        assert self._file is not None
        self._file.close()
        for number in range(KEPT - 1, 0, -1):
            older = Path(f"{self._path}.{number}")
            if older.exists():
                os.replace(older, f"{self._path}.{number + 1}")
        os.replace(self._path, f"{self._path}.1")
        if self._copy is not None:
            self._put_older()
        self._file = open(self._path, "a", encoding="utf-8")  # noqa: SIM115 -- closed by __exit__

    def _put_older(self) -> None:
        """Put the files that are finished into the store, beside the one that is written."""
        for number in range(1, KEPT + 1):
            older = Path(f"{self._path}.{number}")
            if older.exists():
                write_atomic(f"{self._place}.{number}", older.read_bytes())


def _drop_cut_line(path: Path) -> None:
    """Remove the end of a record that a killed process left in the middle of a line."""
    if not path.is_file() or path.stat().st_size == 0:
        return
    with open(path, "rb+") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def read_series(path: str | os.PathLike[str]) -> Series:
    """Return the readings of a record, with those of the files that it was rotated into.

    A last line that was cut off is left out.

    Raises
    ------
    InputFileError
        When a file cannot be read, or a line is no reading.
    """
    series, place = Series(), os.fspath(path)
    older = [f"{place}.{number}" for number in range(KEPT, 0, -1)]
    for part in (*filter(storage.is_file, older), place):
        _read_into(series, part)
    if not series.names():
        raise InputFileError(
            "holds no reading.", place=place, remedy="Write it with perfmodel monitor --record FILE.jsonl."
        )
    return series


def _read_into(series: Series, place: str) -> None:
    """Add the readings of one file."""
    lines = read_text(place).splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if row["metric"] != "finding":
                sample = Sample(str(row["metric"]), str(row["of"]), _number(row["value"]))
                series.add(_time(row["time"]), [sample])
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            if number == len(lines):
                break
            raise InputFileError(
                f"is no reading of a monitor: {error}.",
                place=f"{place}:{number}",
                remedy="Write it with perfmodel monitor.",
            ) from None


def _number(value: float | str) -> float:
    number = float(value)
    if not abs(number) <= _LARGEST:
        raise ValueError(f"{number:g} is no reading")
    return number


def _time(value: float | str) -> float:
    time_s = float(value)
    if not 0 <= time_s <= _LAST_S:
        raise ValueError(f"{time_s:g} s is no time since 1970")
    return time_s


@dataclass(frozen=True)
class Recorded(Reportable):
    """What a monitor recorded.

    Attributes
    ----------
    series : the readings.
    findings : what is wrong in them.
    place : the record.
    """

    series: Series
    findings: tuple[Finding, ...]
    place: str


def read_recorded(path: str | os.PathLike[str]) -> Recorded:
    """Return the readings of a record and what is wrong in them; see `read_series`."""
    series = read_series(path)
    return Recorded(series, tuple(find(series)), os.fspath(path))


def is_monitored(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a record of a monitor, by its first line; what cannot be read is none."""
    try:
        if not storage.is_file(path):
            return False  # a pipe can be read once only
        with open(storage.local(path), encoding="utf-8") as file:
            first = json.loads(file.readline(_LONGEST_LINE))
    except (OSError, ValueError, RecursionError, PerfModelError):
        return False
    return isinstance(first, dict) and {"time", "metric", "of", "value"} <= first.keys()

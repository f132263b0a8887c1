"""Resuming a benchmark: which jobs its record has already, and whether the run is the same."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel import storage
from perfmodel.errors import InputFileError, UsageError
from perfmodel.measure.benchmark.jobs import Job, key_of_row
from perfmodel.records.record import read_record

#: facts that identify a device and its software; clocks and temperatures differ from minute to minute
_DEVICE = ("kind", "name", "uuid_sha256", "driver", "cuda", "torch", "triton", "threads", "power_limit_w", "ecc", "mig")
_REMEDY = "Give the options of the earlier run, or another file to -o."

Row = Mapping[str, Any]


@dataclass(frozen=True)
class EarlierRun:
    """The record of an earlier run.

    Attributes
    ----------
    place : its file.
    context : the conditions that its rows hold under.
    rows : its rows, all of them finished.
    """

    place: str
    context: Mapping[str, Any]
    rows: Sequence[Row]

    @property
    def spec(self) -> Mapping[str, Any]:
        """The specification of the machine that it was compared with.

        Raises
        ------
        InputFileError
            When the record holds none.
        """
        spec = self.context.get("spec")
        if not isinstance(spec, dict) or "name" not in spec:
            raise InputFileError("holds no context.spec to go on with.", place=self.place, remedy=_REMEDY)
        return spec

    def check_same(self, context: Mapping[str, Any]) -> None:
        """Check that a run in some context may add rows to the record: it must not mix two kinds of measurement.

        Raises
        ------
        UsageError
            When machine, device, software or settings differ; it names what, then and now.
        """
        then, now = _identity(self.context), _identity(context)
        differing = [name for name in dict.fromkeys([*then, *now]) if not _same(then.get(name), now.get(name))]
        if differing:
            pairs = ", ".join(_pair(name, then.get(name), now.get(name)) for name in differing)
            raise UsageError(f"the record was made otherwise: {pairs}.", place=self.place, remedy=_REMEDY)

    def continued(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Return the context of the resumed record: the earlier one, with the date of the resumption."""
        return {**self.context, "resumed": [*self.context.get("resumed", ()), context["date"]]}

    def remaining(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs that the record has no row of.

        Raises
        ------
        UsageError
            When the record has a row of none of the jobs.
        """
        done = {key_of_row(row) for row in self.rows}
        strange = done - {job.key for job in jobs}
        if strange:
            op, _, kernel, _ = min(strange)
            raise UsageError(
                f"the record has {len(strange)} rows that this run would not measure; one is {op} {kernel}.",
                place=self.place,
                remedy="Give the operators and kernels of the earlier run, or another file to -o.",
            )
        return [job for job in jobs if job.key not in done]


def read_earlier(path: str | os.PathLike[str]) -> EarlierRun | None:
    """Return the record of an earlier run, None where there is no file yet.

    Raises
    ------
    InputFileError
        When the file is not a record of ``perfmodel bench`` whose rows can be recognised.
    """
    place = os.fspath(path)
    if not storage.exists(place):
        return None
    record = read_record(path, ("bench",))
    for number, row in enumerate(record.rows, start=1):
        if row.name is None or row.count is None or row.status is None:
            raise InputFileError(
                "lacks the name, count or status by which it is recognised.",
                place=f"{place}: row {number}",
                remedy=_REMEDY,
            )
    return EarlierRun(place, record.facts, record.values)


def _identity(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return what has to be equal in both parts of a record."""
    device = context.get("device") or {}
    return {
        "perfmodel": context.get("perfmodel"),
        "hardware": context.get("hardware"),
        **{name: device.get(name) for name in _DEVICE},
        **(context.get("libraries") or {}),
        **(context.get("settings") or {}),
    }


def _same(then: Any, now: Any) -> bool:
    """Whether two settings are equal, but for the rounding of a float."""
    if isinstance(then, float) and isinstance(now, float):
        return math.isclose(then, now, rel_tol=1e-9)
    return bool(then == now)


def _pair(name: str, then: Any, now: Any) -> str:
    """Return what differs, then and now: numbers as people write them, 0.01 for 0.1 * 0.1, where that tells them apart.

    >>> _pair("min_time_s", 0.1, 0.1 * 0.1), _pair("min_time_s", 0.1, 0.10000001)
    ('min_time_s 0.1 then, 0.01 now', 'min_time_s 0.1 then, 0.10000001 now')
    """
    texts = [f"{value:g}" if isinstance(value, float) else _text(value) for value in (then, now)]
    before, after = texts if texts[0] != texts[1] else (_text(then), _text(now))
    return f"{name} {before} then, {after} now"


def _text(value: Any) -> str:
    return "unknown" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)

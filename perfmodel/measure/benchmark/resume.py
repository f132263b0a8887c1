"""Going on with the record of an earlier run: what it has done already, and whether it is the same run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from perfmodel.errors import InputFileError, UsageError
from perfmodel.files import read_document
from perfmodel.measure.benchmark.one_kernel import Job

#: what tells one device and its software from another; clocks and temperatures differ from minute to minute
_DEVICE = ("kind", "name", "uuid_sha256", "driver", "cuda", "torch", "triton", "threads", "power_limit_w", "ecc", "mig")
_REMEDY = "Give the options of the earlier run, or another file to -o."

Row = dict[str, Any]


class _Row(msgspec.Struct):
    """What a row must have so that it can be recognised."""

    op: str
    name: str
    dtype: str
    count: int
    params: dict[str, Any]
    status: str
    kernel: str | None = None
    backend: str | None = None


class _Record(msgspec.Struct):
    command: str
    rows: list[_Row]
    context: dict[str, Any]


@dataclass(frozen=True)
class Earlier:
    """The record of an earlier run.

    Attributes
    ----------
    place : its file.
    context : what its rows hold for.
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
        """Check that a run on some context would go on with the record, and not mix two kinds of measurement.

        Raises
        ------
        UsageError
            When machine, device, software or settings differ; it names what, then and now.
        """
        then, now = _telling(self.context), _telling(context)
        differing = [name for name in dict.fromkeys([*then, *now]) if then.get(name) != now.get(name)]
        if differing:
            said = ", ".join(f"{name} {_text(then.get(name))} then, {_text(now.get(name))} now" for name in differing)
            raise UsageError(f"the record was made otherwise: {said}.", place=self.place, remedy=_REMEDY)

    def continued(self, context: Mapping[str, Any]) -> dict[str, Any]:
        """Return the context of the record that goes on: the earlier one, and when it was resumed."""
        return {**self.context, "resumed": [*self.context.get("resumed", ()), context["date"]]}

    def left(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs that the record has no row of.

        Raises
        ------
        UsageError
            When the record has a row that is none of the jobs.
        """
        done = {_key_of_row(row) for row in self.rows}
        strange = done - {key_of_job(job) for job in jobs}
        if strange:
            op, _, kernel, _ = min(strange)
            raise UsageError(
                f"the record has rows that this run would not measure ({len(strange)} in all; one is {op} {kernel}).",
                place=self.place,
                remedy="Give the operators and kernels of the earlier run, or another file to -o.",
            )
        return [job for job in jobs if key_of_job(job) not in done]


def read_earlier(path: str | os.PathLike[str]) -> Earlier | None:
    """Return the record of an earlier run, None where there is no file yet.

    Raises
    ------
    InputFileError
        When the file is no record of ``perfmodel bench``.
    """
    place = os.fspath(path)
    if not os.path.exists(place):
        return None
    document = read_document(path)
    try:
        record = msgspec.convert(document, _Record)
    except msgspec.ValidationError as error:
        raise InputFileError(f"is no record to go on with: {error}.", place=place, remedy=_REMEDY) from None
    if record.command != "bench":
        raise InputFileError(f"a record of {record.command!r} cannot be resumed.", place=place, remedy=_REMEDY)
    return Earlier(place, record.context, document["rows"])


def _telling(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return what has to be the same in both parts of a record."""
    device = context.get("device") or {}
    return {
        "perfmodel": context.get("perfmodel"),
        "hardware": context.get("hardware"),
        **{name: device.get(name) for name in _DEVICE},
        **(context.get("settings") or {}),
    }


def _text(value: Any) -> str:
    return "unknown" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _key(op: str, what: Sequence[Any], kernel: str, backend: str) -> tuple[str, str, str, str]:
    return op, json.dumps(what, sort_keys=True), kernel, backend


def without_repeats(jobs: Sequence[Job]) -> list[Job]:
    """Return each job once, where it comes first."""
    return list({key_of_job(job): job for job in reversed(jobs)}.values())[::-1]


def _key_of_row(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    what = [row["name"], row["dtype"], row["count"], row["params"]]
    return _key(row["op"], what, row.get("kernel") or "", row.get("backend") or "")


def key_of_job(job: Job) -> tuple[str, str, str, str]:
    """Return what tells a job from others: operator, dimensions, kernel and backend."""
    row = job.prediction.rows()[0]  # dimensions as a record has them
    kernel = job.kernel
    what = [row["name"] or job.op.op, row["dtype"], row["count"], row["params"]]
    return _key(job.op.op, what, kernel.name if kernel else "", kernel.backend if kernel else "")

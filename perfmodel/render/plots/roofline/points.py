"""What a roofline plot shows of predictions and of the rows of `analyze` and `bench` records."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfmodel.core.dtypes import canonical_dtype
from perfmodel.errors import UsageError
from perfmodel.prediction.result import Prediction
from perfmodel.render.plots.figure import printable

Point = Prediction | Mapping[str, Any]
_LONGEST_LABEL = 200


@dataclass(frozen=True)
class Measurement:
    """One kernel's achieved rate [FLOP/s], its share of the attainable one, and whether it beats the bound."""

    kernel: str
    flop_per_s: float
    efficiency: float
    faster_than_bound: bool


@dataclass
class Mark:
    """One operator with its dimensions: where it stands, what is attainable there, what kernels achieved.

    ``engine`` is as in the rows, "tensor fp16"; rates are in FLOP/s, the intensity in FLOP/B.
    """

    name: str
    op: str
    dtype: str
    engine: str
    dimensions: str
    intensity: float
    attainable_flop_per_s: float
    measured: list[Measurement] = field(default_factory=list)
    label: str = ""


@dataclass(frozen=True)
class Collected:
    """The marks of one machine, and notes on what has no place on the plot."""

    marks: list[Mark]
    notes: list[str]


def collect(points: Iterable[Point], dtype: str | None = None) -> Collected:
    """Return the marks of some points, each operator with its dimensions once, and what was left out.

    Parameters
    ----------
    points : predictions, or rows of an `analyze` or `bench` record.
    dtype : only points of this dtype; by default all.

    Raises
    ------
    UsageError
        When a point is neither, lacks a key that a row has to have, or the dtype is not known.
    """
    wanted = canonical_dtype(dtype) if dtype else None
    marks: dict[Any, Mark] = {}
    failed: Counter[str] = Counter()
    idle: dict[str, None] = {}
    others: Counter[str] = Counter()
    for row in _rows(points):
        name = str(row.get("name") or row["op"])
        if wanted and row["dtype"] != wanted:
            others[str(row["dtype"])] += 1
        elif row.get("status", "ok") != "ok":
            failed[str(row["status"])] += 1
        elif not _positive(row["arithmetic_intensity_flop_per_byte"], row["attainable_flop_per_s"]):
            idle[name] = None
        else:
            mark = _mark(row, name)
            key = (name, mark.op, mark.dtype, mark.engine, mark.dimensions, mark.intensity)
            marks.setdefault(key, mark).measured.extend(_measured(row))
    found = list(marks.values())
    _label(found)
    return Collected(found, _notes(found, idle, failed, others))


def _rows(points: Iterable[Point]) -> Iterable[Mapping[str, Any]]:
    needed = ("op", "dtype", "arithmetic_intensity_flop_per_byte", "attainable_flop_per_s")
    for point in points:
        if isinstance(point, Prediction):
            yield from point.rows()
            continue
        if not isinstance(point, Mapping):
            raise UsageError(f"{type(point).__name__} is no point of a roofline plot: give a Prediction or a row.")
        missing = [key for key in needed if key not in point]
        if missing:
            raise UsageError(f"a row lacks {', '.join(missing)}.", remedy="Give rows of analyze or bench records.")
        yield point


def _positive(*values: Any) -> bool:
    """Whether all are numbers that a logarithmic axis can show; JSON has null for what is not finite."""
    return all(isinstance(v, (int, float)) and math.isfinite(v) and v > 0 for v in values)


def _mark(row: Mapping[str, Any], name: str) -> Mark:
    return Mark(
        name=name,
        op=str(row["op"]),
        dtype=str(row["dtype"]),
        engine=str(row.get("engine") or ""),
        dimensions=str(row.get("dimensions") or ""),
        intensity=float(row["arithmetic_intensity_flop_per_byte"]),
        attainable_flop_per_s=float(row["attainable_flop_per_s"]),
    )


def _measured(row: Mapping[str, Any]) -> list[Measurement]:
    if not _positive(row.get("achieved_flop_per_s")):
        return []
    rate = float(row["achieved_flop_per_s"])
    share = rate / float(row["attainable_flop_per_s"])
    return [Measurement(str(row.get("kernel") or "measured"), rate, share, bool(row.get("faster_than_bound")))]


def _label(marks: Sequence[Mark]) -> None:
    """Name each mark; where several have one name, add the dimensions in which they differ."""
    by_name: dict[str, list[Mark]] = {}
    for mark in marks:
        by_name.setdefault(mark.name, []).append(mark)
    for name, group in by_name.items():
        told = [_told(mark) for mark in group]
        keys = dict.fromkeys(key for facts in told for key in facts)
        differing = [key for key in keys if any(facts.get(key) != told[0].get(key) for facts in told)]
        for mark, facts in zip(group, told, strict=True):
            said = [name, *(_fact(key, facts[key]) for key in differing if key in facts)]
            mark.label = printable(" ".join(said), _LONGEST_LABEL) or mark.op


def _told(mark: Mark) -> dict[str, str]:
    """Return the dimensions that people are shown, as they are written on the command line, and the dtype."""
    pairs = (word.partition("=") for word in mark.dimensions.split())
    return {key: value for key, _, value in pairs} | {"dtype": mark.dtype}


def _fact(key: str, value: str) -> str:
    """Return "m=64" for a size, "flash" for a name, "causal" for a flag."""
    if value in ("true", "false"):
        return key if value == "true" else f"not {key}"
    return f"{key}={value}" if value[:1].isdigit() else value


def _notes(
    marks: Sequence[Mark], idle: Iterable[str], failed: Mapping[str, int], others: Mapping[str, int]
) -> list[str]:
    """Say what is not drawn, and which kernels beat their bound."""
    notes = []
    idle = list(idle)
    if idle:
        notes.append(f"No arithmetic, so no place on this plot: {', '.join(idle)}.")
    if failed:
        what = ", ".join(f"{count} {status}" for status, count in failed.items())
        notes.append(f"Not drawn, without a result: {what}.")
    if others:
        what = ", ".join(f"{count} {dtype}" for dtype, count in others.items())
        notes.append(f"Not drawn, of another dtype: {what}.")
    fast = [f"{m.label} ({k.kernel})" for m in marks for k in m.measured if k.faster_than_bound]
    if fast:
        notes.append(f"Faster than its bound, see the record for the likely reasons: {', '.join(fast)}.")
    return notes

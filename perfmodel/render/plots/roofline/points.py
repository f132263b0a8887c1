"""Points of a roofline plot, from predictions and from the rows of `analyze` and `bench` records."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfmodel.core.dtypes import canonical_dtype
from perfmodel.errors import UsageError
from perfmodel.prediction.result import Prediction
from perfmodel.records.schema import is_composed
from perfmodel.render.plots.figure import drawable, printable

Point = Prediction | Mapping[str, Any]
_LONGEST_LABEL = 200


@dataclass(frozen=True)
class Measurement:
    """One kernel: achieved rate [FLOP/s], fraction of the attainable rate, and whether it is faster than the bound.

    ``kind`` tells only whose kernel it is: "torch", "triton", or "several kernels".
    """

    kernel: str
    flop_per_s: float
    efficiency: float
    faster_than_bound: bool
    kind: str = ""


@dataclass
class Mark:
    """One operator with its dimensions: intensity [FLOP/B], attainable rate [FLOP/s], and the rates of its kernels.

    ``engine`` is written as in the rows: "tensor fp16".
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
    """The marks of one machine, and notes about rows that are not drawn."""

    marks: list[Mark]
    notes: list[str]


def collect(points: Iterable[Point], dtype: str | None = None) -> Collected:
    """Return one mark for each operator and its dimensions, and notes about points that are left out.

    Parameters
    ----------
    points : predictions, or rows of an `analyze` or `bench` record.
    dtype : only points of this dtype; by default all.

    Raises
    ------
    UsageError
        When a point is neither, a row lacks a required key, or the dtype is unknown.
    """
    canonical = canonical_dtype(dtype) if dtype else None
    marks: dict[Any, Mark] = {}
    failed: Counter[str] = Counter()
    idle: dict[str, None] = {}
    others: Counter[str] = Counter()
    for row in _rows(points):
        name = str(row.get("name") or row["op"])
        if canonical and row["dtype"] != canonical:
            others[str(row["dtype"])] += 1
        elif row.get("status", "ok") != "ok":
            failed[str(row["status"])] += 1
        elif not _positive(row["arithmetic_intensity_flop_per_byte"], row["attainable_flop_per_s"]):
            idle[name] = None
        elif not drawable(row["arithmetic_intensity_flop_per_byte"], row["attainable_flop_per_s"]):
            failed["with an impossible figure"] += 1
        else:
            mark = _mark(row, name)
            key = (name, mark.op, mark.dtype, mark.engine, mark.dimensions, mark.intensity)
            marks.setdefault(key, mark).measured.extend(_measured(row))
    drawn = list(marks.values())
    _label(drawn)
    return Collected(drawn, _notes(drawn, idle, failed, others))


def _rows(points: Iterable[Point]) -> Iterable[Mapping[str, Any]]:
    needed = ("op", "dtype", "arithmetic_intensity_flop_per_byte", "attainable_flop_per_s")
    for point in points:
        if isinstance(point, Prediction):
            yield from point.rows()
            continue
        if not isinstance(point, Mapping):
            raise UsageError(f"{type(point).__name__} cannot be drawn on a roofline plot: give a Prediction or a row.")
        missing = [key for key in needed if key not in point]
        if missing:
            raise UsageError(f"a row lacks {', '.join(missing)}.", remedy="Give rows of analyze or bench records.")
        yield point


def _positive(*values: Any) -> bool:
    """Whether all values are positive numbers; JSON has null for numbers that are not finite."""
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
    if not drawable(row.get("achieved_flop_per_s")):
        return []
    rate = float(row["achieved_flop_per_s"])
    share = rate / float(row["attainable_flop_per_s"])
    kernel = str(row.get("kernel") or "measured")
    kind = "several kernels" if is_composed(row) else str(row.get("backend") or kernel.partition(".")[0])
    return [Measurement(kernel, rate, share, bool(row.get("faster_than_bound")), kind)]


def _label(marks: Sequence[Mark]) -> None:
    """Set the label of each mark: its name, and the dimensions that differ between marks of that name."""
    by_name: dict[str, list[Mark]] = {}
    for mark in marks:
        by_name.setdefault(mark.name, []).append(mark)
    for name, group in by_name.items():
        dimensions = [_dimensions(mark) for mark in group]
        keys = dict.fromkeys(key for facts in dimensions for key in facts)
        differing = [key for key in keys if any(facts.get(key) != dimensions[0].get(key) for facts in dimensions)]
        for mark, facts in zip(group, dimensions, strict=True):
            words = [name, *(_fact(key, facts[key]) for key in differing if key in facts)]
            mark.label = printable(" ".join(words), _LONGEST_LABEL) or mark.op


def _dimensions(mark: Mark) -> dict[str, str]:
    """Return the dimensions as written on the command line, and the dtype."""
    pairs = (word.partition("=") for word in mark.dimensions.split())
    return {key: value for key, _, value in pairs} | {"dtype": mark.dtype}


def _fact(key: str, value: str) -> str:
    """Return "m=64" for a size, "flash" for a word, "causal" for a flag."""
    if value in ("true", "false"):
        return key if value == "true" else f"not {key}"
    return f"{key}={value}" if value[:1].isdigit() else value


def _notes(
    marks: Sequence[Mark], idle: Iterable[str], failed: Mapping[str, int], others: Mapping[str, int]
) -> list[str]:
    """Return notes about rows that are not drawn, and kernels that are faster than their bound."""
    notes = []
    idle = list(idle)
    if idle:
        notes.append(f"Not drawn (no arithmetic): {', '.join(idle)}.")
    if failed:
        what = ", ".join(f"{count} {status}" for status, count in failed.items())
        notes.append(f"Not drawn (no result): {what}.")
    if others:
        what = ", ".join(f"{count} {dtype}" for dtype, count in others.items())
        notes.append(f"Not drawn (another dtype): {what}.")
    fast = [f"{m.label} ({k.kernel})" for m in marks for k in m.measured if k.faster_than_bound]
    if fast:
        notes.append(f"Faster than the bound (likely causes are in the record): {', '.join(fast)}.")
    return notes

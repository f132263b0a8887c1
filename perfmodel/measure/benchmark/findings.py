"""What a benchmark found, in sentences: rows without a time, what fusion gains, how good the prediction was."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfmodel.core.units import format_si
from perfmodel.measure.benchmark.sustain import burst_and_sustained
from perfmodel.records.schema import Status, is_composed

Row = Mapping[str, Any]


def findings(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the sentences below the table of a benchmark."""
    return (
        *_without_time(rows),
        *(f"{_label(row)}: {row['note']}" for row in rows if row["note"]),
        *_discarded(rows),
        *_compositions(rows),
        *_prediction(rows),
        *_sustained(rows),
    )


def _label(row: Row) -> str:
    return " ".join(filter(None, (row["name"], row["dimensions"], row["dtype"], row["kernel"])))


def _without_time(rows: Sequence[Row]) -> Iterator[str]:
    """Yield which rows have no time and why; one sentence for the rows of one kernel with one reason."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row["status"] != Status.OK:
            groups.setdefault((row["op"], row["kernel"] or "", row["status"], row["reason"]), []).append(row)
    for (op, kernel, status, reason), group in groups.items():
        single = len(group) == 1
        label = _label(group[0]) if single else f"{' '.join(filter(None, (op, kernel)))}, {len(group)} shapes"
        yield f"{label}: {status}: {reason}"


def _discarded(rows: Sequence[Row]) -> Iterator[str]:
    """Yield how many samples were discarded, and why."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts.update(row.get("discarded") or {})
    if counts:
        kept = sum(row["time_s"]["samples"] for row in rows if row["time_s"])
        reasons = ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
        yield f"samples discarded: {reasons}; kept: {kept}"


def _compositions(rows: Sequence[Row]) -> Iterator[str]:
    """Yield how much slower each composition is than the first single kernel, and how much the model expects.

    The expected factor is the expected time of the composition, with its interval, over that of the operator.
    """
    groups: dict[tuple[str, str, str], list[tuple[float, Row]]] = {}
    single: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        if row["status"] == Status.OK and not is_composed(row):
            single.setdefault(_point(row), row)
    for row in rows:
        other = single.get(_point(row))
        if row["status"] == Status.OK and is_composed(row) and other:
            factor = row["measured_time_s"] / other["measured_time_s"]
            groups.setdefault((row["op"], row["kernel"], other["kernel"]), []).append((factor, row))
    for (op, kernel, other_kernel), points in groups.items():
        plural = "s" if len(points) > 1 else ""
        median = statistics.median(factor for factor, _ in points)
        yield (
            f"{op}: {kernel}, a composition, takes {median:.2f} x the time of {other_kernel} (median of "
            f"{len(points)} shape{plural}){_expected(points)}"
        )


def _point(row: Row) -> tuple[str, str, str]:
    """Return what the kernels of one point share."""
    return row["name"], row["dimensions"], row["dtype"]


def _expected(points: Sequence[tuple[float, Row]]) -> str:
    """Return what the model expects of compositions, and for how many shapes its interval holds the measured factor."""
    judged = [(factor, *_factor(row)) for factor, row in points if row.get("composition_time_s")]
    if not judged:
        return ""
    expected, low, high = (statistics.median(shape[column] for shape in judged) for column in (1, 2, 3))
    inside = sum(low <= factor <= high for factor, _, low, high in judged)
    return f"; the model expects {expected:.2f} x ({low:.2f} to {high:.2f}), which holds for {inside} of {len(judged)}"


def _factor(row: Row) -> tuple[float, float, float]:
    """Return the expected time of a composition over that of the operator, with the ends of independent errors."""
    apart, alone = (
        [float(row[f"{name}_time{end}_s"]) for end in ("", "_low", "_high")] for name in ("composition", "predicted")
    )
    down = math.hypot(math.log(apart[0] / apart[1]), math.log(alone[2] / alone[0]))
    up = math.hypot(math.log(apart[2] / apart[0]), math.log(alone[0] / alone[1]))
    expected = apart[0] / alone[0]
    return expected, expected * math.exp(-down), expected * math.exp(up)


def _prediction(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the error of the prediction, for single kernels, which it is meant for."""
    errors: dict[str, list[float]] = {}
    for row in rows:
        if row["status"] == Status.OK and not is_composed(row):
            errors.setdefault(row["op"], []).append(row["prediction_error"])
    if errors:
        medians = ", ".join(
            f"{op} {100 * statistics.median(map(abs, values)):.0f} % ({100 * statistics.median(values):+.0f} %)"
            for op, values in errors.items()
        )
        yield f"prediction error of single kernels, median of its size (and with its sign): {medians}"


def _sustained(rows: Sequence[Row]) -> Iterator[str]:
    """Yield what is left of each kernel's rate after it has run for a while."""
    for row in rows:
        series = row.get("sustain")
        rates = burst_and_sustained(series) if series else None
        if not series or not rates:
            continue
        burst, lasting = (format_si(rate, series["rate_unit"], 3) for rate in rates)
        clocks = series["sm_clock_hz"]
        heat = f", SM clock {format_si(clocks[0], 'Hz', 3)} to {format_si(clocks[-1], 'Hz', 3)}" if clocks else ""
        yield (
            f"{_label(row)}: {burst} at first, {lasting} after {series['time_s'][-1]:.0f} s: "
            f"sustained / burst = {rates[1] / rates[0]:.3f}{heat}"
        )

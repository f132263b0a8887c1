"""What a bench record says in sentences: what was left out, what fusion gains, how good the prediction was."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfmodel.core.units import format_si
from perfmodel.measure.benchmark.rows import OK
from perfmodel.measure.benchmark.sustain import burst_and_sustained
from perfmodel.records.measurement_table import is_composed

Row = Mapping[str, Any]


def findings(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the sentences below the table of a bench run."""
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
    """Say which rows have no time and why; those of one kernel with one reason together."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row["status"] != OK:
            found.setdefault((row["op"], row["kernel"] or "", row["status"], row["reason"]), []).append(row)
    for (op, kernel, status, reason), alike in found.items():
        what = _label(alike[0]) if len(alike) == 1 else f"{' '.join(filter(None, (op, kernel)))}, {len(alike)} shapes"
        yield f"{what}: {status}: {reason}"


def _discarded(rows: Sequence[Row]) -> Iterator[str]:
    """Say how many samples did not count, and why."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts.update(row.get("discarded") or {})
    if counts:
        kept = sum(row["time_s"]["samples"] for row in rows if row["time_s"])
        said = ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
        yield f"samples that did not count: {said}; {kept} did"


def _compositions(rows: Sequence[Row]) -> Iterator[str]:
    """Say how much slower compositions are than the first kernel that is none, and how much the model expects.

    The expected factor is the time to expect of the composition, with its interval, over that of the operator.
    """
    found: dict[tuple[str, str, str], list[tuple[float, Row]]] = {}
    whole: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        if row["status"] == OK and not is_composed(row):
            whole.setdefault(_point(row), row)
    for row in rows:
        other = whole.get(_point(row))
        if row["status"] == OK and is_composed(row) and other:
            factor = row["measured_time_s"] / other["measured_time_s"]
            found.setdefault((row["op"], row["kernel"], other["kernel"]), []).append((factor, row))
    for (op, kernel, other_kernel), points in found.items():
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
    """Return what the model expects of compositions, and in how many shapes the measured factor is in its interval."""
    judged = [
        (factor, *(row[f"composition_time{end}_s"] / row["predicted_time_s"] for end in ("", "_low", "_high")))
        for factor, row in points
        if row.get("composition_time_s")
    ]
    if not judged:
        return ""
    expected, low, high = (statistics.median(one[column] for one in judged) for column in (1, 2, 3))
    inside = sum(low <= factor <= high for factor, _, low, high in judged)
    return f"; the model expects {expected:.2f} x ({low:.2f} to {high:.2f}), which holds for {inside} of {len(judged)}"


def _prediction(rows: Sequence[Row]) -> Iterator[str]:
    """Say how far the prediction was off, for the kernels that it means: no compositions."""
    errors: dict[str, list[float]] = {}
    for row in rows:
        if row["status"] == OK and not is_composed(row):
            errors.setdefault(row["op"], []).append(row["prediction_error"])
    if errors:
        said = ", ".join(
            f"{op} {100 * statistics.median(map(abs, found)):.0f} % ({100 * statistics.median(found):+.0f} %)"
            for op, found in errors.items()
        )
        yield f"prediction error, library kernels, median of its size (and with its sign): {said}"


def _sustained(rows: Sequence[Row]) -> Iterator[str]:
    """Say what is left of each kernel's rate after it has run for a while."""
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

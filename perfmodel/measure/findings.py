"""What a bench record says in sentences: what was left out, what fusion gains, how good the prediction was."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfmodel.measure.rows import OK

Row = Mapping[str, Any]


def findings(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the sentences below the table of a bench run."""
    return (
        *(f"{_label(row)}: {row['status']}: {row['reason']}" for row in rows if row["status"] != OK),
        *(f"{_label(row)}: {row['note']}" for row in rows if row["note"]),
        *_fusion(rows),
        *_prediction(rows),
    )


def _label(row: Row) -> str:
    return " ".join(filter(None, (row["name"], row["dimensions"], row["dtype"], row["kernel"])))


def _fusion(rows: Sequence[Row]) -> Iterator[str]:
    """Say how much slower the naive composition is than the library's call, operator by operator."""
    ratios: dict[str, list[float]] = {}
    library: dict[tuple[str, str, str], float] = {}
    for row in rows:
        if row["status"] != OK:
            continue
        key = (row["name"], row["dimensions"], row["dtype"])
        if row["kernel"] != "naive":
            library.setdefault(key, row["measured_time_s"])
        elif key in library:
            ratios.setdefault(row["op"], []).append(row["measured_time_s"] / library[key])
    for op, found in ratios.items():
        plural = "s" if len(found) > 1 else ""
        yield (
            f"{op}: the naive composition takes {statistics.median(found):.2f} x the time of the library call "
            f"(median of {len(found)} shape{plural})"
        )


def _prediction(rows: Sequence[Row]) -> Iterator[str]:
    """Say how far the prediction was off, for the kernels that it means: not the naive ones."""
    errors: dict[str, list[float]] = {}
    for row in rows:
        if row["status"] == OK and row["kernel"] != "naive":
            errors.setdefault(row["op"], []).append(row["prediction_error"])
    if errors:
        said = ", ".join(
            f"{op} {100 * statistics.median(map(abs, found)):.0f} % ({100 * statistics.median(found):+.0f} %)"
            for op, found in errors.items()
        )
        yield f"prediction error, library kernels, median of its size (and with its sign): {said}"

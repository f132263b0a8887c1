"""Rows of a benchmark as a table of measurements, which `validate` and `calibrate --from` read."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Mapping, Sequence
from typing import Any

from perfmodel.measure.benchmark.rows import OK

_BEFORE = ("hardware", "op", "dtype")
_AFTER = ("time_s", "timing", "cache", "implementation", "kernel", "flags")

#: what records called a composition before they said what it is composed of
NAIVE = "naive"

Row = Mapping[str, Any]


def is_measured(row: Row) -> bool:
    """Whether a row is the time of the operator itself, and not of a composition of others."""
    return row["status"] == OK and not is_composed(row)


def is_composed(row: Row) -> bool:
    """Whether a row's kernel is several operators in a row, whose traffic is not the operator's."""
    return row.get("kernel") == NAIVE or row.get("composition_time_s") is not None


def measurement_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the rows of a table of measurements, all with the same columns in the same order.

    hardware, op, dtype, each dimension of any of the operators by name (empty for others), time_s (the median [s]),
    timing, cache, implementation (backend-kernel), kernel, flags. Rows without a time, and compositions, are left out.
    """
    kept = [row for row in rows if is_measured(row)]
    dimensions = dict.fromkeys(name for row in kept for name in row["params"])
    return [
        {
            **{key: row[key] for key in _BEFORE},
            **{name: _cell(row["params"].get(name)) for name in dimensions},
            "time_s": row["measured_time_s"],
            **{key: row[key] or "" for key in _AFTER[1:]},
        }
        for row in kept
    ]


def _cell(value: Any) -> Any:
    """Return a dimension as the table has it: true and false in small letters, nothing where there is none."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else value


def measurement_csv(rows: Sequence[Row]) -> str:
    """Return the rows of a benchmark as the text of a table of measurements."""
    made = measurement_rows(rows)
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, list(made[0]) if made else [*_BEFORE, *_AFTER], lineterminator="\n")
    writer.writeheader()
    writer.writerows(made)
    return stream.getvalue()


def measurement_bytes(rows: Sequence[Row], *, packed: bool) -> bytes:
    """Return the table as bytes, gzip where ``packed``; the same rows give the same bytes."""
    data = measurement_csv(rows).encode()
    return gzip.compress(data, mtime=0) if packed else data

"""A report as CSV: full precision, SI base units, one column a key."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from perfmodel.core.report import Report, finite


def render(report: Report) -> str:
    """Return the report as CSV text. A mapping spreads over columns ``key.inner``; null is empty."""
    rows = [_flatten(row) for row in report.as_json()["rows"]]
    keys: dict[str, None] = {}
    for row in rows:
        keys.update(dict.fromkeys(row))
    header = list(keys) or [column.key for column in report.columns]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, header, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _flatten(row: Mapping[str, Any]) -> dict[str, Any]:
    """Spread mappings over dotted keys; join lists with a semicolon."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{inner}": item for inner, item in _flatten(value).items()}
        elif isinstance(value, (list, tuple)):
            flat[key] = ";".join(str(finite(item)) for item in value)
        elif isinstance(value, bool):
            flat[key] = str(value).lower()
        else:
            flat[key] = "" if value is None else value
    return flat

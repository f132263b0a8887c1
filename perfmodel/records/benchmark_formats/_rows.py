"""What the readers of benchmark records share: rows from samples or from statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from perfmodel.comparison.noise import Centre, centre_of_samples
from perfmodel.comparison.pairing import OK, BenchRow


def named(name: str, **identity: str) -> dict[str, str]:
    """Return the identity of a benchmark that is known by its name."""
    return {"op": name, "name": name, **identity}


def measured(identity: Mapping[str, str], centre: Centre | None) -> BenchRow:
    """Return the row of a benchmark; without a centre its status is "failed"."""
    return BenchRow(identity, centre, OK if centre else "failed", "" if centre else "the record holds no time")


def samples_centre(values: Any) -> Centre | None:
    """Return the centre of a list of times [s]; None unless it is a list of two or more positive numbers."""
    if not isinstance(values, list) or len(values) < 2:
        return None
    usable = all(isinstance(value, (int, float)) and 0 < value < math.inf for value in values)
    return centre_of_samples(values) if usable else None


def benchmarks_with(document: Any, *keys: str) -> bool:
    """Whether the first entry of the document's list ``benchmarks`` has one of some keys."""
    entries = document.get("benchmarks") if isinstance(document, dict) else None
    first = entries[0] if isinstance(entries, list) and entries else None
    return isinstance(first, dict) and any(key in first for key in keys)

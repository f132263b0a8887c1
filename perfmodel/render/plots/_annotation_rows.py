"""Annotated ranges of a time line as rows: the outermost on top, none over another, few enough to draw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel.profile.timeline import Timeline

#: rows that are drawn, and ranges of one row: the longest
_MOST_ROWS, _MOST_RANGES = 3, 400


@dataclass(frozen=True)
class Mark:
    """An annotated range [s]."""

    name: str
    start_s: float
    end_s: float


def annotation_rows(timeline: Timeline) -> tuple[tuple[Mark, ...], ...]:
    """Return the annotated ranges in the window, in rows from the outermost inwards; at most three rows.

    A range goes into the first row in which it covers no other. Ranges of all threads share the rows; one that another
    thread repeats within the same time is left out.
    """
    noted = timeline.annotations
    low, high = timeline.window_s
    inside = np.flatnonzero((noted.end_s > low) & (noted.start_s < high)) if len(noted) else np.empty(0, dtype=np.int64)
    longest = inside[np.argsort(-noted.duration_s[inside], kind="stable")][: _MOST_ROWS * _MOST_RANGES]
    rows: list[list[Mark]] = []
    for at in longest:
        mark = Mark(timeline.names[noted.name[at]], float(noted.start_s[at]), float(noted.end_s[at]))
        if any(_repeats(mark, other) for row in rows for other in row):
            continue
        row = next((row for row in rows if all(_apart(mark, other) for other in row)), None)
        if row is not None:
            row.append(mark)
        elif len(rows) < _MOST_ROWS:
            rows.append([mark])
    return tuple(tuple(sorted(row, key=lambda mark: mark.start_s)) for row in rows)


def _apart(one: Mark, other: Mark) -> bool:
    return one.end_s <= other.start_s or other.end_s <= one.start_s


def _repeats(one: Mark, other: Mark) -> bool:
    """Whether a range has the name of a longer one and lies within it."""
    return one.name == other.name and other.start_s <= one.start_s and one.end_s <= other.end_s

"""How far predictions are from measured rows: errors by group, coverage of the intervals, and the worst rows.

Error of a row = predicted / measured - 1. MAPE is the mean of its size, bias its mean with the sign, coverage the
share of rows inside their stated interval; the datasheet roofline's error stands beside them, since a model that
does not beat it is worth nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.accuracy.judge import GROUPINGS, Floats, JudgedCalls, judged_calls
from perfmodel.accuracy.measured import Measurements, Skipped
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import REGIMES
from perfmodel.errors import unknown_name
from perfmodel.prediction.latency.model import CALIBRATIONS

#: in the place of a label: rows of every kind together
ALL = "all"
#: keys that every row of the result has
ALWAYS = ("family", "hardware")
_ORDERS = {"regime": REGIMES, "calibration": CALIBRATIONS}


def judge(tables: Iterable[Measurements], find: Callable[[str], Hardware], *, flagged: bool = False) -> Accuracy:
    """Predict the rows of some tables, each in its own view of time, state of the caches and library.

    Parameters
    ----------
    tables : the measurements.
    find : returns the machine for a name in them; its `UsageError` is the reason why such rows are left out.
    flagged : whether rows that their author flagged are judged too.
    """
    return Accuracy(*judged_calls(tables, find, flagged=flagged))


@dataclass(frozen=True)
class Accuracy:
    """Judged rows of any number of tables, and what was left out."""

    judged: tuple[JudgedCalls, ...]
    skipped: tuple[Skipped, ...]

    def __len__(self) -> int:
        return int(self.measured_s.size)

    @cached_property
    def measured_s(self) -> Floats:
        """Measured time of every row [s]."""
        return _joined([part.calls.time_s for part in self.judged])

    @cached_property
    def predicted_s(self) -> Floats:
        """Predicted time of every row [s]."""
        return _joined([part.predicted_s for part in self.judged])

    def labels(self, key: str) -> tuple[list[str], NDArray[np.intp]]:
        """Return the labels that a grouping key gives, in order, and the index of each row's.

        Raises
        ------
        UsageError
            When rows cannot be grouped by the key.
        """
        dimensions = {name for part in self.judged for name in part.calls.op.params()}
        if key not in GROUPINGS and key not in dimensions:
            raise unknown_name("grouping", key, [*GROUPINGS, *sorted(dimensions)], place="--by")
        codes: dict[Any, int] = {}
        parts = []
        for part in self.judged:
            found, inverse = np.unique(part.label(key), return_inverse=True)
            known = np.array([codes.setdefault(label, len(codes)) for label in found.tolist()])
            parts.append(np.broadcast_to(known[inverse.ravel()], (len(part.calls),)))
        ordered = sorted(codes, key=lambda label: _order(key, label))
        place = np.empty(len(codes), dtype=np.intp)
        place[[codes[label] for label in ordered]] = np.arange(len(codes))
        return [_text(label) for label in ordered], place[np.concatenate(parts)]

    def by(self, keys: Sequence[str] = ALWAYS) -> list[dict[str, Any]]:
        """Return one row a group, with its labels and its `score`.

        Groups that share their first label are followed by a row for all of them, and the last row is for all
        groups; "all" stands for the labels that are taken together. No keys give that last row alone.

        Raises
        ------
        UsageError
            When rows cannot be grouped by a key.
        """
        labels = {key: self.labels(key) for key in dict.fromkeys(keys)}
        columns = [codes for _, codes in labels.values()]
        everywhere = np.arange(len(self))
        made: list[dict[str, Any]] = []
        outer = _split(columns[:1], everywhere)
        for first in outer:
            inner = _split(columns[1:], first)
            made.extend(self._row(labels, rows, len(labels)) for rows in inner)
            if len(inner) > 1:
                made.append(self._row(labels, first, 1))
        if len(outer) > 1:
            made.append(self._row(labels, everywhere, 0))
        return made

    def _row(
        self, labels: dict[str, tuple[list[str], NDArray[np.intp]]], rows: NDArray[np.intp], named: int
    ) -> dict[str, Any]:
        """Return the row of one group, with its first ``named`` labels and "all" for the others."""
        names = {key: found[codes[rows[0]]] for key, (found, codes) in itertools.islice(labels.items(), named)}
        return {**dict.fromkeys((*ALWAYS, *labels), ALL), **names, **self._score(rows)}

    def _score(self, rows: NDArray[np.intp]) -> dict[str, Any]:
        return score(self.measured_s[rows], self.predicted_s[rows], *(ends[rows] for ends in self._ends))

    @cached_property
    def _ends(self) -> tuple[Floats, Floats, Floats]:
        return (
            _joined([part.low_s for part in self.judged]),
            _joined([part.high_s for part in self.judged]),
            _joined([part.bound_s for part in self.judged]),
        )

    def worst(self, most: int) -> list[tuple[JudgedCalls, int]]:
        """Return the rows with the largest |ln(predicted / measured)|, so that half is as bad as double."""
        off = np.abs(np.log(self.predicted_s / self.measured_s))
        ends = np.cumsum([len(part.calls) for part in self.judged])
        found = []
        for index in np.argsort(-off, kind="stable")[:most]:
            which = int(np.searchsorted(ends, index, side="right"))
            found.append((self.judged[which], int(index - (ends[which - 1] if which else 0))))
        return found


def score(measured_s: Floats, predicted_s: Floats, low_s: Floats, high_s: Floats, bound_s: Floats) -> dict[str, Any]:
    """Return the figures of accuracy of some rows, as fractions: 0.08 is 8 %.

    Returns
    -------
    rows : how many.
    mape, median_ape, p90_ape : mean, median and 90th percentile of |predicted / measured - 1|.
    bias : mean of predicted / measured - 1.
    coverage_80 : share of the rows whose measured time lies in the stated interval; NaN where none has one.
    bound_mape : mean of |bound / measured - 1|, the datasheet roofline taken as a prediction.
    """
    error = predicted_s / measured_s - 1.0
    size = np.abs(error)
    stated = np.isfinite(low_s) & np.isfinite(high_s)
    inside = (low_s <= measured_s) & (measured_s <= high_s)
    return {
        "rows": int(measured_s.size),
        "mape": float(size.mean()),
        "median_ape": float(np.median(size)),
        "p90_ape": float(np.quantile(size, 0.9)),
        "bias": float(error.mean()),
        "coverage_80": float(inside[stated].mean()) if stated.any() else float("nan"),
        "bound_mape": float(np.abs(bound_s / measured_s - 1.0).mean()),
    }


def _joined(parts: list[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.empty(0)


def _split(columns: Sequence[NDArray[np.intp]], rows: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Split rows by the codes of some columns, in the order of the codes."""
    groups = [rows]
    for codes in columns:
        parted = []
        for group in groups:
            order = group[np.argsort(codes[group], kind="stable")]
            parted.extend(np.split(order, np.flatnonzero(np.diff(codes[order])) + 1))
        groups = parted
    return groups


def _order(key: str, label: Any) -> tuple[float, str]:
    """Sort regimes and states by their own order, numbers by size, text by its letters."""
    if key in _ORDERS:
        return float(_ORDERS[key].index(label)), ""
    return (float(label), "") if isinstance(label, (int, float)) else (0.0, str(label))


def _text(label: Any) -> str:
    return f"{label:.15g}" if isinstance(label, float) else str(label)

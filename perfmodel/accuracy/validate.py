"""The error of predictions on measured rows: by group, with the coverage of the intervals and the worst rows.

The error of a row is predicted / measured - 1. MAPE is the mean of its absolute value, bias its mean, coverage the
share of rows inside their stated interval. The error of the datasheet roofline is listed beside them, since a model has
to beat it to be of use.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.accuracy.drawn import drawn_facts, group_name
from perfmodel.accuracy.judge import GROUPINGS, Floats, JudgedCalls, judge_calls
from perfmodel.accuracy.measured import Measurements, Skipped, Skips, likely_unit
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import REGIMES
from perfmodel.core.report import Reportable
from perfmodel.core.vocabulary import Calibration
from perfmodel.errors import unknown_name
from perfmodel.prediction.uncertainty import Z80

#: the label of rows of all kinds together
ALL = "all"
#: labels that every group has, and the default grouping
ALWAYS = ("family", "hardware")
#: keys of `score`
_SCORE = ("rows", "mape", "median_ape", "p90_ape", "bias", "coverage_80", "width_80", "bound_mape")
_ORDERS = {"regime": REGIMES, "calibration": tuple(Calibration)}


def judge(tables: Iterable[Measurements], find: Callable[[str], Hardware], *, flagged: bool = False) -> Accuracy:
    """Predict the rows of some tables, each with its own timing, state of the caches and library.

    Parameters
    ----------
    tables : the measurements.
    find : returns the machine for a name in the tables; rows for which it raises a `UsageError` are left out.
    flagged : whether rows that their author flagged are judged too.
    """
    return Accuracy(*judge_calls(tables, find, flagged=flagged))


@dataclass(frozen=True)
class Accuracy(Reportable):
    """Judged rows of any number of tables, the rows that were left out, and what the tables do not say."""

    judged: tuple[JudgedCalls, ...]
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return int(self.measured_s.size)

    @property
    def main_reasons(self) -> str:
        """The reasons for which most rows were left out."""
        ordered = sorted(self.skipped, key=lambda skipped: -skipped.rows)
        return "; ".join(map(str, ordered[:3]))

    @cached_property
    def measured_s(self) -> Floats:
        """Measured time of every row [s]."""
        return _concatenated([part.calls.time_s for part in self.judged])

    @cached_property
    def predicted_s(self) -> Floats:
        """Predicted time of every row [s]."""
        return _concatenated([part.predicted_s for part in self.judged])

    @property
    def too_fast(self) -> Skipped | None:
        """The rows that are faster than their bound, which count like all others; None where there are none."""
        skips = Skips()
        for part in self.judged:
            skips.add("faster than the bound", part.calls.place, part.calls.line[part.too_fast()])
        return next(iter(skips.all()), None)

    @property
    def likely_units(self) -> dict[str, str]:
        """The files whose times are most likely not in seconds, and the unit of each."""
        slower: dict[str, list[Floats]] = {}
        for part in filter(lambda one: len(one.calls), self.judged):
            slower.setdefault(part.calls.place, []).append(part.calls.time_s / part.predicted_s)
        units = {place: likely_unit(float(np.median(_concatenated(parts)))) for place, parts in slower.items()}
        return {place: unit for place, unit in units.items() if unit}

    def where(self, keep: Callable[[JudgedCalls], Any]) -> Accuracy:
        """Return the rows that a mask of each group of calls selects; True is all of them."""
        parts = ((part, np.broadcast_to(keep(part), (len(part.calls),))) for part in self.judged)
        return Accuracy(tuple(part.take(mask) for part, mask in parts if mask.any()), self.skipped, self.notes)

    def coverage(self, level: float) -> float:
        """Return the share of the rows inside an interval of another level than the stated 80 %.

        The logarithm of measured / predicted is taken as normal, below the prediction and above: the half widths are
        those that are stated, times z(level) / z(80 %).
        """
        scale = NormalDist().inv_cdf(0.5 + level / 2.0) / Z80
        low, high, _ = self._ends
        off = np.log(self.measured_s / self.predicted_s)
        below, above = scale * np.log(low / self.predicted_s), scale * np.log(high / self.predicted_s)
        return float(((below <= off) & (off <= above)).mean())

    def labels(self, key: str) -> tuple[list[str], NDArray[np.intp]]:
        """Return the labels of a grouping key, in order, and the index of each row's label.

        Raises
        ------
        UsageError
            If the key names no grouping.
        """
        dimensions = {name for part in self.judged for name in part.calls.op.params()}
        if key not in GROUPINGS and key not in dimensions:
            raise unknown_name("grouping", key, [*GROUPINGS, *sorted(dimensions)], place="--by")
        codes: dict[Any, int] = {}
        parts = []
        for part in self.judged:
            labels, inverse = np.unique(part.label(key), return_inverse=True)
            numbers = np.array([codes.setdefault(label, len(codes)) for label in labels.tolist()])
            parts.append(np.broadcast_to(numbers[inverse.ravel()], (len(part.calls),)))
        ordered = sorted(codes, key=lambda label: _order(key, label))
        place = np.empty(len(codes), dtype=np.intp)
        place[[codes[label] for label in ordered]] = np.arange(len(codes))
        return [_text(label) for label in ordered], place[np.concatenate(parts)]

    def by(self, keys: Sequence[str] = ALWAYS) -> list[dict[str, Any]]:
        """Return one row per group, with its labels and its `score`.

        A row for all groups with the same first label follows them, and the last row is for all groups; such rows have
        the label "all". Without keys there is only the last row. The keys of the labels are those of `label_key`.

        Raises
        ------
        UsageError
            If a key names no grouping.
        """
        labels = {label_key(key): self.labels(key) for key in dict.fromkeys(keys)}
        columns = [codes for _, codes in labels.values()]
        everywhere = np.arange(len(self))
        table: list[dict[str, Any]] = []
        outer = _split(columns[:1], everywhere)
        for first in outer:
            inner = _split(columns[1:], first)
            table.extend(self._row(labels, rows, len(labels)) for rows in inner)
            if len(inner) > 1:
                table.append(self._row(labels, first, 1))
        if len(outer) > 1:
            table.append(self._row(labels, everywhere, 0))
        return table

    def drawn(self, keys: Sequence[str] = ALWAYS) -> dict[str, Any]:
        """Return the rows that a page draws, by group: see `perfmodel.accuracy.drawn.drawn_facts`."""
        labels = {key: self.labels(key) for key in keys}
        columns = np.array([codes for _, codes in labels.values()]).reshape(len(labels), len(self))
        groups, codes = np.unique(columns, axis=1, return_inverse=True)
        names = [
            group_name({key: texts[at] for (key, (texts, _)), at in zip(labels.items(), group, strict=True)})
            for group in groups.T
        ]
        return drawn_facts(names, codes.ravel(), (self.measured_s, self.predicted_s, *self._ends[:2]))

    def _row(
        self, labels: dict[str, tuple[list[str], NDArray[np.intp]]], rows: NDArray[np.intp], named: int
    ) -> dict[str, Any]:
        """Return the row of one group, with its first ``named`` labels and "all" for the others."""
        names = {key: texts[codes[rows[0]]] for key, (texts, codes) in itertools.islice(labels.items(), named)}
        return {**dict.fromkeys((*ALWAYS, *labels), ALL), **names, **self._score(rows)}

    def _score(self, rows: NDArray[np.intp]) -> dict[str, Any]:
        return score(self.measured_s[rows], self.predicted_s[rows], *(ends[rows] for ends in self._ends))

    @cached_property
    def _ends(self) -> tuple[Floats, Floats, Floats]:
        return (
            _concatenated([part.low_s for part in self.judged]),
            _concatenated([part.high_s for part in self.judged]),
            _concatenated([part.bound_s for part in self.judged]),
        )

    def worst(self, most: int) -> list[tuple[JudgedCalls, int]]:
        """Return the rows with the largest |ln(predicted / measured)|, so that half is as bad as double.

        Each row is its group of calls and its index there.
        """
        error = np.abs(np.log(self.predicted_s / self.measured_s))
        ends = np.cumsum([len(part.calls) for part in self.judged])
        rows = []
        for index in np.argsort(-error, kind="stable")[:most]:
            which = int(np.searchsorted(ends, index, side="right"))
            rows.append((self.judged[which], int(index - (ends[which - 1] if which else 0))))
        return rows


def label_key(key: str) -> str:
    """Return the key of a group's label: that of the grouping, or params.NAME of a dimension named as a figure is.

    >>> label_key("cols"), label_key("rows")
    ('cols', 'params.rows')
    """
    return f"params.{key}" if key in _SCORE else key


def score(measured_s: Floats, predicted_s: Floats, low_s: Floats, high_s: Floats, bound_s: Floats) -> dict[str, Any]:
    """Return the accuracy of some rows, as fractions: 0.08 is 8 %.

    Returns
    -------
    rows : number of rows.
    mape, median_ape, p90_ape : mean, median and 90th percentile of |predicted / measured - 1|.
    bias : mean of predicted / measured - 1.
    coverage_80 : share of the rows whose measured time lies in the stated interval; NaN if none has one.
    width_80 : median of high / low of the stated intervals; NaN if there is none.
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
        "width_80": float(np.median(high_s[stated] / low_s[stated])) if stated.any() else float("nan"),
        "bound_mape": float(np.abs(bound_s / measured_s - 1.0).mean()),
    }


def _concatenated(parts: list[Floats]) -> Floats:
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
    """Return the sort key of a label: regimes and calibrations have their own order, numbers theirs, then texts."""
    if key in _ORDERS:
        return float(_ORDERS[key].index(label)), ""
    return (float(label), "") if isinstance(label, (int, float)) else (0.0, str(label))


def _text(label: Any) -> str:
    return f"{label:.15g}" if isinstance(label, float) else str(label)

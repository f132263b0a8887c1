"""The accuracy of predictions as a report, its worst rows with their explanation, and limits that it must keep."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.accuracy.judge import JudgedCalls
from perfmodel.accuracy.measured import Skipped
from perfmodel.accuracy.validate import ALWAYS, Accuracy
from perfmodel.core.report import Column, Report
from perfmodel.errors import UsageError, unknown_name
from perfmodel.prediction.explain import explain

#: what a row of the report says about its group, beside its labels
FIGURES = (
    Column("rows"),
    Column("mape", "MAPE", "fraction"),
    Column("median_ape", "median", "fraction", drop=3),
    Column("p90_ape", "p90", "fraction", drop=2),
    Column("bias", unit="fraction"),
    Column("coverage_80", "coverage", "fraction", drop=1),
    Column("bound_mape", "roofline", "fraction"),
)
WORST_COLUMNS = (
    Column("place", shown=False),
    Column("row"),
    Column("op", shown=False),
    Column("dimensions"),
    Column("dtype", drop=3),
    Column("hardware"),
    Column("timing", shown=False),
    Column("cache", shown=False),
    Column("implementation", drop=4),
    Column("measured_time_s", "measured", "s"),
    Column("predicted_time_s", "predicted", "s"),
    Column("predicted_time_low_s", "low", "s", drop=1),
    Column("predicted_time_high_s", "high", "s", drop=1),
    Column("ratio", digits=3),
    Column("explanation"),
)
_LEGEND = (
    "MAPE, median and p90 of |predicted / measured - 1|; bias: its mean with the sign; coverage: share of the rows in "
    "their stated 80 % interval; roofline: MAPE of the datasheet roofline."
)
_LIMIT = re.compile(r"\s*([a-z0-9_]+)\s*(<=|>=|<|>)\s*([+-]?(?:\d+\.?\d*|\.\d+))\s*(%?)\s*")
_BREAKS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


def accuracy_report(
    accuracy: Accuracy,
    by: Sequence[str] = ALWAYS,
    *,
    worst: int = 0,
    context: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> Report:
    """Return the accuracy by group, what was left out, and the worst rows.

    Raises
    ------
    UsageError
        When rows cannot be grouped by a key of ``by``.
    """
    rows = accuracy.by(by)
    extra = tuple(Column(key) for key in dict.fromkeys(by) if key not in ALWAYS)
    labels = tuple(Column(key, shown=key in by or not by) for key in ALWAYS)
    skipped = [{"reason": s.reason, "rows": s.rows, "first": s.place} for s in accuracy.skipped]
    more = {"worst": _worst_report(accuracy, worst)} if worst else {}
    many = "s" if len(accuracy) != 1 else ""
    return Report(
        "validate",
        (*labels, *extra, *FIGURES),
        rows,
        {"hardware": sorted({part.hardware.name for part in accuracy.judged}), **(context or {}), "skipped": skipped},
        notes=(_LEGEND, *_left_out(accuracy), *notes),
        title=f"Error of the predicted time on {len(accuracy):,} measured row{many}",
        more=more,
    )


def _left_out(accuracy: Accuracy) -> list[str]:
    return [f"Left out: {_counted(skipped)}." for skipped in accuracy.skipped]


def _counted(skipped: Skipped) -> str:
    """Return how many rows are left out, why, and where the first is."""
    many = "s" if skipped.rows != 1 else ""
    return f"{skipped.rows:,} row{many}: {skipped.reason.rstrip('.')} (first: {skipped.place})"


def _worst_report(accuracy: Accuracy, most: int) -> Report:
    rows = [_worst_row(judged, index) for judged, index in accuracy.worst(most)]
    return Report("validate", WORST_COLUMNS, rows, title="Worst rows")


def _worst_row(judged: JudgedCalls, index: int) -> dict[str, Any]:
    """Return one measured row beside its prediction, and what that is the sum of."""
    prediction = judged.prediction(index)
    (point,) = explain([prediction])
    calls = judged.calls
    measured = float(calls.time_s[index])
    kept = {key: point.row[key] for key in ("op", "dtype", "hardware", "timing", "cache")}
    low, high = point.row["predicted_time_low_s"], point.row["predicted_time_high_s"]
    return {
        "place": f"{calls.place}:{calls.line[index]}",
        "row": f"{os.path.basename(calls.place)}:{calls.line[index]}",
        **kept,
        "dimensions": f"{point.row['op']} {point.row['dimensions']}",
        "implementation": calls.implementation,
        "measured_time_s": measured,
        "predicted_time_s": point.time_s,
        "predicted_time_low_s": low,
        "predicted_time_high_s": high,
        "ratio": point.time_s / measured,
        "explanation": point.largest(),
        "predicted_terms_s": dict(point.adds),
    }


@dataclass(frozen=True)
class Limit:
    """A finding that fails a gate: ``mape>8%`` fails every group whose MAPE is above 8 %."""

    figure: str
    relation: str
    value: float
    text: str

    @classmethod
    def parse(cls, text: str) -> Limit:
        """Return the limit that a text like ``mape>8%`` or ``coverage_80<0.75`` states.

        Raises
        ------
        UsageError
            When it is not FIGURE, one of < <= > >=, and a number or a percentage.
        """
        figures = {column.key: column for column in FIGURES}
        match = _LIMIT.fullmatch(text)
        if match is None:
            raise UsageError(
                f"{text!r} is no limit.", place="--fail-on", remedy="Write mape>8%, p90_ape>0.2 or coverage_80<75%."
            )
        figure, relation, number, percent = match.groups()
        if figure not in figures:
            raise unknown_name("figure", figure, figures, place="--fail-on")
        if percent and figures[figure].unit != "fraction":
            raise UsageError(f"{figure} is no share: {text!r}.", place="--fail-on", remedy=f"Write {figure}<100.")
        return cls(figure, relation, float(number) / (100.0 if percent else 1.0), text.strip())

    def broken_by(self, row: Mapping[str, Any]) -> bool:
        """Whether a group's figure is on the wrong side, or not known: what is not known passes no gate."""
        value = row[self.figure]
        return bool(np.isnan(value) or _BREAKS[self.relation](value, self.value))

    def findings(self, report: Report) -> list[str]:
        """Return a sentence for each group of a report that breaks the limit."""
        column = next(column for column in FIGURES if column.key == self.figure)
        names = [column.key for column in report.columns if column.key not in {figure.key for figure in FIGURES}]
        return [
            f"{' '.join(str(row[name]) for name in names)}: {self.figure} is {column.text(row[self.figure])}, "
            f"and {self.text} fails."
            for row in report.rows
            if self.broken_by(row)
        ]


def no_rows_reason(accuracy: Accuracy) -> str:
    """Return why nothing could be judged: the reasons with the most rows first."""
    ordered = sorted(accuracy.skipped, key=lambda skipped: -skipped.rows)
    return "; ".join(_counted(skipped) for skipped in ordered[:3])

"""Limits that the accuracy of predictions has to keep."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.accuracy.report import FIGURES
from perfmodel.accuracy.validate import ALL
from perfmodel.core.report import Report
from perfmodel.core.units import parse_fraction
from perfmodel.errors import UsageError, unknown_name

_TEXT = re.compile(r"\s*([a-z0-9_]+)\s*(<=|>=|<|>)\s*([+-]?(?:\d+\.?\d*|\.\d+))\s*(%?)\s*")
_RELATIONS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


@dataclass(frozen=True)
class Gate:
    """A figure that must not be reached: ``mape>8%`` fails every group whose MAPE is above 8 %.

    Attributes
    ----------
    figure, relation, value : the figure, one of < <= > >=, and the limit; a fraction, but for ``rows``.
    text : as it was written.
    """

    figure: str
    relation: str
    value: float
    text: str

    @classmethod
    def parse(cls, text: str) -> Gate:
        """Return the gate that a text like ``mape>8%`` or ``coverage_80<0.75`` states.

        Raises
        ------
        UsageError
            If it is not a figure, one of < <= > >=, and a number or a percentage.
        """
        figures = {column.key: column for column in FIGURES}
        match = _TEXT.fullmatch(text)
        if match is None:
            raise UsageError(
                f"{text!r} is not a limit.", place="--fail-on", remedy="Write mape>8%, p90_ape>0.2 or coverage_80<75%."
            )
        figure, relation, number, percent = match.groups()
        if figure not in figures:
            raise unknown_name("figure", figure, figures, place="--fail-on")
        if figures[figure].unit == "fraction":
            value = math.copysign(parse_fraction(number.lstrip("+-") + percent, "--fail-on"), float(number))
            return cls(figure, relation, value, text.strip())
        if percent:
            raise UsageError(
                f"{figure} is a count, not a percentage: {text!r}.", place="--fail-on", remedy=f"Write {figure}<100."
            )
        return cls(figure, relation, float(number), text.strip())

    def fails(self, row: Mapping[str, Any]) -> bool:
        """Whether a group's figure is beyond the limit, or unknown: an unknown figure passes no gate."""
        value = row[self.figure]
        return bool(np.isnan(value) or _RELATIONS[self.relation](value, self.value))

    def findings(self, report: Report) -> list[str]:
        """Return a sentence for each group of a report that fails, by the labels that group it."""
        figures = {column.key: column for column in FIGURES}
        labels = [column.key for column in report.columns if column.key not in figures and column.shown]
        return [
            f"{_group([str(row[label]) for label in labels])}: {self.figure} is "
            f"{figures[self.figure].text(row[self.figure])}, so {self.text} fails."
            for row in report.rows
            if self.fails(row)
        ]


def _group(labels: Sequence[str]) -> str:
    """Return the name of a group for people.

    >>> _group(["gemm", "all"]), _group(["all", "all"]), _group([])
    ('gemm all', 'all rows', 'all rows')
    """
    return " ".join(labels) if any(label != ALL for label in labels) else f"{ALL} rows"

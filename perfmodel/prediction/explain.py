"""Why a prediction is what it is: the terms of its sum, and the time that each resource alone would take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from perfmodel.core.report import Reportable
from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.core.work import Number
from perfmodel.prediction.latency.families import known_terms
from perfmodel.prediction.latency.terms import Term
from perfmodel.prediction.result import Prediction

#: a name, of any kind of string
Name = TypeVar("Name", bound=str)

#: share of the predicted time below which tables for people and plots leave out a term
NEGLIGIBLE = 5e-4


@dataclass(frozen=True)
class Explained(Reportable):
    """One point: its prediction as a sum.

    Attributes
    ----------
    row : the row of the prediction.
    adds : term -> the time that it adds [s], without those that add nothing: they sum to the predicted time.
    alone : resource -> the time that it alone would take [s].
    """

    row: Mapping[str, Any]
    adds: Mapping[str, float]
    alone: Mapping[str, float]

    @property
    def time_s(self) -> float:
        """The predicted time [s]."""
        return float(self.row["predicted_time_s"])

    @property
    def notable(self) -> Mapping[str, float]:
        """The terms of ``adds`` that people see: those above `NEGLIGIBLE` of the sum."""
        return {name: time for name, time in self.adds.items() if abs(time) > NEGLIGIBLE * self.time_s}

    def largest(self, most: int = 3) -> str:
        """Return the largest terms in one line: ``"hbm 40 us, host 12 us"``."""
        ordered = sorted(self.adds.items(), key=lambda item: -item[1])
        return ", ".join(f"{name} {format_si(time, 's', 3)}" for name, time in ordered[:most])


@dataclass(frozen=True)
class IntervalShares(Reportable):
    """One point: what its interval is made of.

    Attributes
    ----------
    row : the row of the prediction.
    variances : source of error -> variance of ln(measured / predicted), without those that do not apply.
    centre : middle of the interval over the predicted time; far from 1 where the prediction is the fast end of what is
        to be expected.
    """

    row: Mapping[str, Any]
    variances: Mapping[ErrorSource, float]
    centre: float = 1.0


def explain_intervals(predictions: Iterable[Prediction]) -> list[IntervalShares]:
    """Return what the interval of each point of some predictions is made of; a sweep has many points."""
    points = []
    for prediction in predictions:
        rows = prediction.rows()
        of_points = _points(prediction.uncertainty.variances(prediction.regime), len(rows))
        centres = np.broadcast_to(prediction.estimate.spread.centre(), (len(rows),)).tolist()
        for row, variances, centre in zip(rows, of_points, centres, strict=True):
            points.append(IntervalShares(row, {source: value for source, value in variances.items() if value}, centre))
    return points


def explain(predictions: Iterable[Prediction]) -> list[Explained]:
    """Return each point of some predictions as a sum; a sweep has many points."""
    points = []
    for prediction in predictions:
        rows = prediction.rows()
        adds = _points(prediction.predicted_terms_s, len(rows))
        alone = _points(prediction.alone_s, len(rows))
        for row, added, resources in zip(rows, adds, alone, strict=True):
            points.append(Explained(row, {name: time for name, time in added.items() if time}, resources))
    return points


def meaning(term: str) -> str:
    """Return the meaning of a term: its own, that of the term of this name in a record, or "" for an unknown one."""
    known = term if isinstance(term, Term) else known_terms().get(term)
    return known.meaning if known is not None else ""


def _points(numbers: Mapping[Name, Number], count: int) -> list[dict[Name, float]]:
    """Return numbers by name for each point of a sweep."""
    flat = {name: np.broadcast_to(np.ravel(np.asarray(value)), (count,)).tolist() for name, value in numbers.items()}
    return [{name: values[index] for name, values in flat.items()} for index in range(count)]

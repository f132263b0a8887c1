"""Why a prediction is what it is: the terms of its sum, and the time that each resource alone would take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.core.report import Reportable
from perfmodel.core.units import format_si
from perfmodel.core.work import Number
from perfmodel.prediction.latency.families import known_terms
from perfmodel.prediction.latency.terms import Term
from perfmodel.prediction.result import Prediction

#: share of the predicted time below which a term is left out
NEGLIGIBLE = 5e-4


@dataclass(frozen=True)
class Explained(Reportable):
    """One point: its prediction as a sum.

    Attributes
    ----------
    row : the row of the prediction.
    adds : term -> the time that it adds [s], without those below `NEGLIGIBLE` of the sum.
    alone : resource -> the time that it alone would take [s].
    """

    row: Mapping[str, Any]
    adds: Mapping[str, float]
    alone: Mapping[str, float]

    @property
    def time_s(self) -> float:
        """The predicted time [s]."""
        return float(self.row["predicted_time_s"])

    def largest(self, most: int = 3) -> str:
        """Return the largest terms in one line: ``"hbm 40 us, host 12 us"``."""
        ordered = sorted(self.adds.items(), key=lambda item: -item[1])
        return ", ".join(f"{name} {format_si(time, 's', 3)}" for name, time in ordered[:most])


def explain(predictions: Iterable[Prediction]) -> list[Explained]:
    """Return each point of some predictions as a sum; a sweep has many points."""
    points = []
    for prediction in predictions:
        rows = prediction.rows()
        adds = _points(prediction.predicted_terms_s, len(rows))
        alone = _points(prediction.alone_s, len(rows))
        for row, added, resources in zip(rows, adds, alone, strict=True):
            kept = {name: time for name, time in added.items() if time > NEGLIGIBLE * row["predicted_time_s"]}
            points.append(Explained(row, kept, resources))
    return points


def meaning(term: str) -> str:
    """Return the meaning of a term: its own, that of the term of this name in a record, or "" for an unknown one."""
    known = term if isinstance(term, Term) else known_terms().get(term)
    return known.meaning if known is not None else ""


def _points(times: Mapping[str, Number], count: int) -> list[dict[str, float]]:
    """Return times by name for each point of a sweep."""
    flat = {name: np.broadcast_to(np.ravel(np.asarray(time)), (count,)).tolist() for name, time in times.items()}
    return [{name: values[index] for name, values in flat.items()} for index in range(count)]

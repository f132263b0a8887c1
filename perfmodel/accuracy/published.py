"""The error of predictions on published runs: training steps and served loads, one row a run and quantity.

A room that predicts whole runs reads its tables into `PublishedRuns`; grouping, figures and gates are those of
`perfmodel.accuracy.validate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.accuracy.drawn import drawn_facts, group_name
from perfmodel.accuracy.measured import Skipped
from perfmodel.accuracy.validate import ALL, score
from perfmodel.core.report import Reportable
from perfmodel.errors import unknown_name

#: the labels that every group has, and the default grouping
PUBLISHED_BY = ("table", "quantity")


@dataclass(frozen=True)
class PublishedRow:
    """One measured quantity of a published run beside its prediction.

    Attributes
    ----------
    quantity : what was measured, with its unit: "step_time_s", "tpot_s", "output_tokens_per_s", "memory_bytes".
    measured, predicted, low, high : the value, its prediction and the 80 % interval [unit of the quantity].
    baseline : what a rule of thumb predicts, as 6 N D at 45 % of the peak; NaN if there is none.
    labels : grouping keys of the run: "table", "hardware", "model", "engine", ...
    name : the run's own name in its table.
    place : file and line.
    terms : the terms of the prediction that add up to it, if they do.
    """

    quantity: str
    measured: float
    predicted: float
    low: float
    high: float
    baseline: float
    labels: Mapping[str, str]
    name: str
    place: str
    terms: Mapping[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.measured

    def label(self, key: str) -> str:
        """Return the label under a grouping key, or "" for a run without it."""
        return self.quantity if key == "quantity" else str(self.labels.get(key, ""))


@dataclass(frozen=True)
class PublishedRuns(Reportable):
    """Judged runs of any number of tables, and the runs that were left out.

    Attributes
    ----------
    rows : one for each quantity of a run.
    skipped : the runs that were left out, by reason.
    baseline : what the rule of thumb beside the predictions is, for people.
    """

    rows: tuple[PublishedRow, ...]
    skipped: tuple[Skipped, ...] = ()
    baseline: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def main_reasons(self) -> str:
        """The reasons for which most runs were left out."""
        return "; ".join(map(str, sorted(self.skipped, key=lambda skipped: -skipped.rows)[:3]))

    @property
    def keys(self) -> tuple[str, ...]:
        """The grouping keys that the runs have."""
        return tuple(dict.fromkeys(["quantity", *(key for row in self.rows for key in row.labels)]))

    def by(self, keys: Sequence[str] = PUBLISHED_BY) -> list[dict[str, Any]]:
        """Return one row a group with its labels and figures, and one for all runs of a quantity that several have.

        Quantities are never averaged together, whether ``keys`` name them or not.

        Raises
        ------
        UsageError
            If a key names no grouping.
        """
        check_keys(keys, self.keys)
        names = tuple(dict.fromkeys((*keys, "quantity")))
        groups: dict[tuple[str, ...], list[int]] = {}
        for index, row in enumerate(self.rows):
            groups.setdefault(tuple(row.label(name) for name in names), []).append(index)
        table = [self._row(names, group, groups[group]) for group in sorted(groups)]
        for quantity in dict.fromkeys(row.quantity for row in self.rows):
            members = [group for group in groups if group[names.index("quantity")] == quantity]
            if len(members) > 1:
                everywhere = tuple(quantity if name == "quantity" else ALL for name in names)
                table.append(self._row(names, everywhere, sorted(i for group in members for i in groups[group])))
        return table

    def drawn(self, keys: Sequence[str] = PUBLISHED_BY) -> dict[str, Any]:
        """Return the runs that a page draws, by group: see `perfmodel.accuracy.drawn.drawn_facts`."""
        names = tuple(dict.fromkeys((*keys, "quantity")))
        groups = [tuple(row.label(name) for name in names) for row in self.rows]
        order = {group: at for at, group in enumerate(sorted(set(groups)))}
        codes = np.array([order[group] for group in groups], dtype=np.intp)
        quantities = [group[names.index("quantity")] for group in order]
        described = [group_name(dict(zip(names, group, strict=True))) for group in order]
        return drawn_facts(described, codes, self._figures[:4], quantities)

    def _row(self, names: tuple[str, ...], group: tuple[str, ...], members: list[int]) -> dict[str, Any]:
        figures = score(*(column[members] for column in self._figures))
        return {**dict.fromkeys(PUBLISHED_BY, ALL), **dict(zip(names, group, strict=True)), **figures}

    @cached_property
    def _figures(self) -> tuple[NDArray[np.float64], ...]:
        names = ("measured", "predicted", "low", "high", "baseline")
        return tuple(np.array([getattr(row, name) for row in self.rows], dtype=np.float64) for name in names)

    def worst(self, most: int) -> list[PublishedRow]:
        """Return the rows with the largest |ln(predicted / measured)|."""
        return sorted(self.rows, key=lambda row: -abs(np.log(row.ratio)))[:most]


def check_keys(keys: Sequence[str], known: Sequence[str]) -> None:
    """Raise a UsageError for a key that is none of the known groupings."""
    for key in keys:
        if key not in known:
            raise unknown_name("grouping", key, sorted(known), place="--by")


def combined(parts: Sequence[PublishedRuns]) -> PublishedRuns:
    """Return the runs of several tables of one kind as one result."""
    return PublishedRuns(
        tuple(row for part in parts for row in part.rows),
        tuple(skipped for part in parts for skipped in part.skipped),
        next((part.baseline for part in parts if part.baseline), ""),
    )

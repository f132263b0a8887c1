"""Why a prediction is what it is: the terms of its sum, and what each resource alone would take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from perfmodel.core.report import Column, Report
from perfmodel.core.units import format_si
from perfmodel.core.work import Number
from perfmodel.prediction.result import Prediction

#: term -> what its time is spent on, in the order in which people read them
MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "math": "arithmetic, at the rate that is sustained",
        "softmax": "exponentials and running sums of the scores",
        "tile waste": "padding of the sizes to whole tiles",
        "wave quantisation": "SMs idle while the last wave of blocks ends",
        "pipeline": "filling and draining each block's pipeline, and its latency",
        "power": "clock held down by the power limit",
        "dram": "traffic to device memory",
        "l2": "traffic between the L2 cache and the SMs",
        "l1": "traffic between the L1 cache and the registers",
        "llc": "traffic to the last-level cache",
        "shared": "traffic to shared memory",
        **{name: f"traffic over {name.upper()} between devices" for name in ("nvlink", "pcie", "xgmi")},
        "rope and kv write": "rotating the keys, writing them to the cache",
        "synchronisation": "devices that wait for one another",
        "contention": "resources that overlap in part only",
        "split-k": "partial sums of a split contraction",
        "quantisation": "scaling the inputs to 8 bits first",
        "latency": "steps that a single wave cannot hide",
        "block setup": "start and end of each block of queries",
        "launch": "start and drain of the kernel",
        "host": "dispatch of the call, as events round it see",
        "bound": "what the formula fell short of the bound",
    }
)
#: share of the predicted time below which a term is not shown
NEGLIGIBLE = 5e-4
#: share of the predicted time that a resource must take alone for its being hidden to be worth a line
_NOTABLE = 0.05

TERM_COLUMNS = (
    Column("op", shown=False),
    Column("name", "operator"),
    Column("dimensions"),
    Column("dtype", drop=3),
    Column("hardware", drop=2),
    Column("term"),
    Column("time_s", "adds", "s"),
    Column("share", unit="fraction"),
    Column("alone_time_s", "alone", "s", drop=1),
    Column("meaning", drop=4),
)


@dataclass(frozen=True)
class Explained:
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
        """Return the largest terms as people read them: ``"dram 40 us, host 12 us"``."""
        ordered = sorted(self.adds.items(), key=lambda item: -item[1])
        return ", ".join(f"{name} {format_si(time, 's', 3)}" for name, time in ordered[:most])


def explain(predictions: Iterable[Prediction]) -> list[Explained]:
    """Return each point of some predictions as a sum; a sweep has many."""
    made = []
    for prediction in predictions:
        rows = prediction.rows()
        adds = _points(prediction.predicted_terms_s, len(rows))
        alone = _points(prediction.alone_s, len(rows))
        for row, added, lone in zip(rows, adds, alone, strict=True):
            kept = {name: time for name, time in added.items() if time > NEGLIGIBLE * row["predicted_time_s"]}
            made.append(Explained(row, kept, lone))
    return made


def _points(times: Mapping[str, Number], count: int) -> list[dict[str, float]]:
    """Return times by name for each point of a sweep."""
    flat = {name: np.broadcast_to(np.ravel(np.asarray(time)), (count,)).tolist() for name, time in times.items()}
    return [{name: values[index] for name, values in flat.items()} for index in range(count)]


def explain_report(predictions: Iterable[Prediction]) -> Report:
    """Return the terms of some predictions as a table, one row a term of a point.

    Terms below `NEGLIGIBLE` of the sum are left out. A resource that adds nothing is listed where it alone would
    take a notable part of the time: it is hidden behind the largest.
    """
    rows = [row for point in explain(predictions) for row in _rows(point)]
    return Report("analyze", TERM_COLUMNS, rows, title="What the predicted times are the sum of")


def _rows(point: Explained) -> list[dict[str, Any]]:
    kept = ("op", "name", "dimensions", "dtype", "hardware")
    same = {key: point.row[key] for key in kept} | {"name": point.row["name"] or point.row["op"]}
    hidden = [name for name in point.alone if name not in point.adds and point.alone[name] > _NOTABLE * point.time_s]
    rows = []
    for name in (*point.adds, *hidden):
        time = point.adds.get(name, 0.0)
        meaning = MEANINGS.get(name, "")
        rows.append(
            {
                **same,
                "term": name,
                "time_s": time,
                "share": time / point.time_s,
                "alone_time_s": point.alone.get(name),
                "meaning": meaning if time else f"{meaning} (hidden)".strip(),
            }
        )
    return rows

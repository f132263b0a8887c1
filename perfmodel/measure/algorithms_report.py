"""The report of measured algorithms: a row for each run, and a table of pairs with both crossovers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from perfmodel.core.report import Column, Report
from perfmodel.core.saved import with_columns
from perfmodel.measure.algorithms import Contests, Pair, Run, time_statistics

_NO_CONTEXT: Mapping[str, Any] = MappingProxyType({})

RUN_COLUMNS = (
    Column("problem", merge=True),
    Column("size", merge=True),
    Column("algorithm"),
    Column("op", shown=False),
    Column("params", shown=False),
    Column("status", drop=3),
    Column("least_time_s", "fastest", "s"),
    Column("time_s", shown=False),
    Column("predicted_time_s", "predicted", "s"),
    Column("predicted_time_low_s", unit="s", shown=False),
    Column("predicted_time_high_s", unit="s", shown=False),
    Column("prediction_error", "error", "fraction", drop=1),
    Column("correct", shown=False),
    Column("message", prose=True),
)
PAIR_COLUMNS = (
    Column("problem", merge=True),
    Column("dimension", drop=4),
    Column("first"),
    Column("second"),
    Column("measured_size", "measured at"),
    Column("predicted_size", "predicted at"),
    Column("largest_size", "ratio at", drop=3),
    Column("measured_ratio", "measured", show=lambda value: f"{value:.3g} x"),
    Column("predicted_ratio", "predicted", show=lambda value: f"{value:.3g} x", drop=1),
)


def contests_report(contests: Contests, *, context: Mapping[str, Any] = _NO_CONTEXT) -> Report:
    """Return the runs, and the pairs with their measured and predicted crossovers."""
    rows = [_run_row(run) for run in contests.runs]
    pairs = _pairs([_pair_row(pair) for pair in contests.pairs])
    correct = sum(row["correct"] for row in rows)
    apart = [run.predicted for run in contests.runs if run.predicted and math.isfinite(run.least_s)]
    note = (
        f"{correct} of {len(rows)} runs are correct, compared with float64; sampling by chi-square. Times are those of "
        "the fastest samples, which a busy machine disturbs least. Predictions are closed forms, within a factor of 2."
    )
    return Report(
        "bench",
        RUN_COLUMNS,
        rows,
        {"hardware": [contests.machine.name], **context},
        notes=(note,) if apart else (),
        title=f"Algorithms measured, compared with {contests.machine.title or contests.machine.name}",
        more={"crossovers": pairs},
    )


def _pairs(rows: Sequence[Mapping[str, Any]]) -> Report:
    return Report(
        "bench", PAIR_COLUMNS, rows, title="Where the second algorithm overtakes the first, or the first the second",
        notes=("'-': one of them is faster at all sizes; the ratio is the time of the first over that of the second.",),
    )  # fmt: skip


def saved(table: Report) -> Report:
    """Return measured algorithms that were read from JSON as `bench --algorithms` shows them."""
    more = {key: _pairs(one.rows) if key == "crossovers" else one for key, one in table.more.items()}
    return with_columns(table, RUN_COLUMNS, more=more)


def _run_row(run: Run) -> dict[str, Any]:
    predicted_s = run.predicted.time_s if run.predicted else math.nan
    return {
        "problem": run.problem,
        "algorithm": run.algorithm,
        "size": run.size,
        "op": run.op.op,
        "params": run.op.params(),
        "status": "ok" if run.timed else ("wrong" if run.message else "skipped"),
        "least_time_s": run.least_s,
        "time_s": time_statistics(run),
        "predicted_time_s": predicted_s,
        "predicted_time_low_s": run.predicted.time_low_s if run.predicted else math.nan,
        "predicted_time_high_s": run.predicted.time_high_s if run.predicted else math.nan,
        "prediction_error": predicted_s / run.least_s - 1.0,
        "correct": run.timed is not None and not run.message,
        "message": run.message,
    }


def _pair_row(pair: Pair) -> dict[str, Any]:
    return {
        "problem": pair.problem,
        "dimension": pair.dimension,
        "first": pair.first,
        "second": pair.second,
        "measured_size": pair.measured_size,
        "predicted_size": pair.predicted_size,
        "largest_size": pair.largest,
        "measured_ratio": pair.measured_ratio,
        "predicted_ratio": pair.predicted_ratio,
    }

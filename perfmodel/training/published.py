"""Published training runs: reading their tables, and predicting each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from perfmodel.accuracy.measured import Skipped
from perfmodel.accuracy.published import PUBLISHED_BY, PublishedRow, PublishedRuns
from perfmodel.accuracy.run_table import RunTable
from perfmodel.core.hardware import Hardware
from perfmodel.errors import PerfModelError
from perfmodel.training.kernels import arithmetic
from perfmodel.training.published_memory import GIB, memory_row
from perfmodel.training.published_run import (
    SIZES,
    PublishedRun,
    UnusableRunError,
    measured_time,
    read_run,
    reserved_gib,
)

#: the columns that a table of training runs has
REQUIRED = ("hardware", "num_gpus", "gbs", "seq", "step_time_s")
#: columns that only tables of training runs have beside ``seq``, under their names and under others in use
_OF_TRAINING = ("num_gpus", "gbs", "mbs", "step_time_s", "gpus", "global_batch", "micro_batch", "step_s", "pp", "dp")
#: the grouping keys of the runs
KEYS = (*PUBLISHED_BY, "source", "hardware", "model", "framework", "dtype", "kind", "gpus", "seq")
#: the rule of thumb beside the predictions
BASELINE = "6 N D FLOP at 45 % of the dense peak"
BASELINE_SHARE = 0.45


def recognises(columns: Collection[str]) -> bool:
    """Return whether a table with these columns is one of training runs."""
    return set(REQUIRED) <= set(columns)


def missing(columns: Collection[str]) -> tuple[str, ...]:
    """Return the columns that a table lacks which looks like one of training runs; none for one of another kind."""
    if recognises(columns) or "op" in columns or "seq" not in columns or not set(_OF_TRAINING) & set(columns):
        return ()
    sizes = () if "model" in columns else SIZES  # the catalog has those of a model
    return tuple(name for name in (*REQUIRED, *sizes) if name not in columns)


def judge(table: RunTable, find: Callable[[str], Hardware]) -> PublishedRuns:
    """Return the runs of a table beside their predictions."""
    rows: list[PublishedRow] = []
    reasons: Counter[str] = Counter()
    places: dict[str, str] = {}
    for run in table.runs:
        try:
            rows.extend(judged_rows(read_run(run, find)))
        except (UnusableRunError, PerfModelError) as error:
            reason = error.message if isinstance(error, PerfModelError) else str(error)
            reasons[reason] += 1
            places.setdefault(reason, run.place)
    skipped = tuple(Skipped(reason, count, places[reason]) for reason, count in reasons.items())
    return PublishedRuns(tuple(rows), skipped, BASELINE)


def judged_rows(published: PublishedRun) -> list[PublishedRow]:
    """Return the measured quantities of a run beside their predictions."""
    run, step = published.run, published.step()
    labels = run_labels(published)
    name, place = run.text("id") or run.place, run.place
    rows = []
    if measured_time(run) > 0:
        row = PublishedRow(
            quantity="step_time_s",
            measured=measured_time(run),
            predicted=step.time_s,
            low=step.low_s,
            high=step.high_s,
            baseline=rule_of_thumb(published),
            terms=step.terms_s,
            labels=labels,
            name=name,
            place=place,
        )
        rows.append(row)
    reserved = reserved_gib(run) * GIB
    if reserved > 0:
        set_up = (published.config, published.cluster, published.plan)
        laboratory = run.text("source")
        rows.append(memory_row(*set_up, reserved, labels=labels, name=name, place=place, laboratory=laboratory))
    return rows


def run_labels(published: PublishedRun) -> dict[str, str]:
    """Return the grouping keys of a run."""
    run, plan = published.run, published.plan
    return {
        "table": run.text("table") or run.table,
        "source": run.text("source"),
        "hardware": published.cluster.hardware.name,
        "model": run.text("model"),
        "framework": run.text("framework"),
        "dtype": plan.dtype,
        "kind": "moe" if published.config.experts else "dense",
        "gpus": str(published.cluster.gpus),
        "seq": str(plan.seq),
    }


def rule_of_thumb(published: PublishedRun) -> float:
    """Return 6 N D over 45 % of the dense peak, N the parameters that multiply a token [s]."""
    plan, cluster = published.plan, published.cluster
    flop = 6.0 * published.config.multiplied_parameters * plan.batch * plan.seq
    peak = cluster.hardware.native_peak(arithmetic(plan.dtype)).flop_per_s
    return flop / (BASELINE_SHARE * peak * cluster.gpus)

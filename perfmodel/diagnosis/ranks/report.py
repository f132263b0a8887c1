"""The ranks of a job as a report: dimensions by rank, steps, exchanges, who waits for whom; and on another machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Column, Report, report
from perfmodel.core.units import format_si
from perfmodel.diagnosis.projection.report import COLUMNS as PART_COLUMNS
from perfmodel.diagnosis.projection.report import part_row, times
from perfmodel.diagnosis.ranks.bandwidth import exchange_kinds
from perfmodel.diagnosis.ranks.decision import decision
from perfmodel.diagnosis.ranks.job import Job, incomplete_notes
from perfmodel.diagnosis.ranks.matching import APART
from perfmodel.diagnosis.ranks.projection import ProjectedJob
from perfmodel.diagnosis.ranks.remarks import CLOCKS_S
from perfmodel.diagnosis.ranks.stragglers import Straggler
from perfmodel.diagnosis.ranks.summary import DIMENSIONS, EXPOSED

#: rows of the further tables that people see
_LISTED = 12
#: ranks whose dimensions people see
_RANKS_SHOWN = 8
#: ranks and parts of a projected job that people see
_MOST_RANKS = 20

COLUMNS = (
    Column("rank", merge=True),
    Column("dimension"),
    Column("time_s", "time", "s"),
    Column("share", "of the wall", "fraction"),
)
_STEPS = (
    Column("rank", merge=True),
    Column("step"),
    Column("wall_s", "wall", "s"),
    Column("compute_s", "compute", "s"),
    Column("communication_s", "communication", "s", drop=1),
    Column("exposed_s", "exposed", "s"),
)
_EXCHANGES = (
    Column("operation"),
    Column("group", shown=False),
    Column("bytes", "message", "B"),
    Column("ranks", drop=2),
    Column("hosts", shown=False),
    Column("calls"),
    Column("time_s", "time", "s"),
    Column("skew_s", "arrival skew", "s"),
    Column("algorithm_bytes_per_s", "algorithm bandwidth", "B/s", shown=False),
    Column("bus_bytes_per_s", "bus bandwidth", "B/s", digits=3),
    Column("predicted_s", "expected", "s", drop=1),
    Column("low_s", "low", "s", shown=False),
    Column("high_s", "high", "s", shown=False),
)
_WAITS = (
    Column("rank"),
    Column("waits_for", "waits for rank"),
    Column("time_s", "time", "s"),
    Column("per_step_s", "the median step", "s"),
)


@report.register
def _job(job: Job, *, hardware: Hardware | None = None, context: Mapping[str, Any] | None = None) -> Report:
    """Return where the time of each rank goes, with the steps, the exchanges and the waits as further tables.

    Parameters
    ----------
    job : the ranks.
    hardware : the machine, for what is expected of the exchanges.
    context : facts for JSON.
    """
    kinds = [asdict(kind) for kind in exchange_kinds(job, hardware)]
    more = {
        "steps": _listed(_STEPS, list(_steps(job)), "Steps"),
        "exchanges": _listed(_EXCHANGES, kinds, "Exchanges"),
        "waits": _listed(_WAITS, sorted(_waits(job), key=lambda row: -row["time_s"]), "Who waits for whom"),
    }
    count, rows, shown = len(job.ranks), list(_dimensions(job)), _shown(job)
    return Report(
        "diagnose",
        COLUMNS,
        rows,
        {**(context or {}), **_facts(job)},
        tuple(_notes(job)),
        f"{count} ranks of one job, a step of {format_si(job.step_s, 's')}",
        {key: table for key, table in more.items() if table.rows},
        decision=decision(job),
        people_rows=[row for row in rows if row["rank"] in shown],
        unlisted=f"{count - len(shown)} more ranks in JSON and CSV." if count > len(shown) else "",
    )


def _shown(job: Job) -> list[int]:
    """Return the numbers of the ranks that people see: those that stand out, and the first others."""
    late = [one.rank for one in job.stragglers[: _RANKS_SHOWN // 2]]
    stalled = [job.stall.rank] if job.stall is not None else []
    standing_out = [*late, *stalled, job.numbers[job.pace], job.slowest]
    return list(dict.fromkeys([*standing_out, *job.numbers]))[:_RANKS_SHOWN]


def _listed(columns: tuple[Column, ...], rows: list[dict[str, Any]], title: str) -> Report:
    """Return a table of which people see the first rows."""
    rest = len(rows) - _LISTED
    unlisted = f"{rest} more rows in JSON and CSV." if rest > 0 else ""
    return Report("diagnose", columns, rows, title=title, people_rows=rows[:_LISTED], unlisted=unlisted)


def _dimensions(job: Job) -> Iterator[dict[str, Any]]:
    for number, rank in zip(job.numbers, job.ranks, strict=True):
        for dimension in DIMENSIONS:
            time_s = rank.times_s[dimension]
            if any(other.times_s[dimension] for other in job.ranks):
                yield {"rank": number, "dimension": dimension, "time_s": time_s, "share": time_s / rank.wall_s}


def _steps(job: Job) -> Iterator[dict[str, Any]]:
    for number, rank in zip(job.numbers, job.ranks, strict=True):
        for step in rank.steps:
            yield {"rank": number, "step": step.name, "wall_s": step.wall_s, **step._asdict()}


def _waits(job: Job) -> Iterator[dict[str, Any]]:
    waits_s = job.waits_s
    for waiting, number in enumerate(job.numbers):
        for late, other in enumerate(job.numbers):
            time_s = float(waits_s[waiting, late])
            if time_s > 0:
                typical_s = float(np.nanmedian(job.step_waits_s[:, waiting, late]))
                yield {"rank": number, "waits_for": other, "time_s": time_s, "per_step_s": typical_s}


def _facts(job: Job) -> dict[str, Any]:
    return {
        "ranks": list(job.numbers),
        "missing_ranks": list(job.missing),
        "left_out": list(job.left_out),
        "step_s": job.step_s,
        "imbalance": job.imbalance,
        "step_imbalance": job.step_imbalance,
        "slowest_rank": job.slowest,
        "clock_offset_s": {str(number): float(value) for number, value in zip(job.numbers, job.offset_s, strict=True)},
        "step_counts": {str(number): len(rank.steps) for number, rank in zip(job.numbers, job.ranks, strict=True)},
        "stragglers": [{"rank": one.rank, **_lateness(one)} for one in job.stragglers],
        "stragglers_together": job.together and {"ranks": list(job.together.ranks), **_lateness(job.together)},
        "stall": job.stall and asdict(job.stall),
        "overlap": {
            str(number): rank.hidden_share for number, rank in zip(job.numbers, job.ranks, strict=True)
        },
    }  # fmt: skip


def _lateness(late: Straggler) -> dict[str, Any]:
    """Return what JSON has of ranks that are late, besides their numbers."""
    return {key: value for key, value in asdict(late).items() if key != "ranks"}


def _notes(job: Job) -> Iterator[str]:
    yield (
        f"Imbalance of the computation, max / mean - 1: {job.imbalance:.1%} of the ranks' median steps, where rank "
        f"{job.slowest} computes longest; {job.step_imbalance:.1%} within a step, the median over the steps."
    )
    hidden = [rank.hidden_share for rank in job.ranks if rank.communication_s]
    exposed = float(np.mean([rank.times_s[EXPOSED] / rank.wall_s for rank in job.ranks]))
    covered = (
        f"Computation covers {np.mean(hidden):.0%} of the communication" if hidden else "No exchange takes any time"
    )
    yield f"{covered}; exposed: {exposed:.1%} of the wall time."
    if job.of_host:
        yield (
            "The ranks have no GPU: operators on the CPU compute; what waits for an exchange does not, and nor do the "
            "hooks of the backward pass."
        )
    apart_s = job.clocks_apart_s
    if APART * job.step_s < apart_s <= CLOCKS_S:  # ranks of one host leave an exchange within this share of a step
        yield (
            f"The clocks of the hosts differ by up to {format_si(apart_s, 's', 3)}; they are aligned on the ends of "
            "the exchanges."
        )
    yield from incomplete_notes(job)
    without = sum(one.key.counted for one in job.exchanges)
    in_step = " in the profiler's step" if any(one.key.step >= 0 for one in job.exchanges) else ""
    if without:
        yield (
            f"{without} of {len(job.exchanges)} exchanges have no sequence number and are matched by their count among "
            f"those of the same operation and message{in_step}."
        )


@report.register
def _projected_job(result: ProjectedJob, *, context: Mapping[str, Any] | None = None) -> Report:
    """Return the report of a job on another machine.

    Rows are the ranks, with the keys of a projection's parts; ``parts`` has those of the rank that sets the pace there,
    and ``whole`` one row: the job.
    """
    rows = [part_row(rank.whole) for rank in result.ranks]
    slowest = result.ranks[result.pace]
    parts = [part_row(part) for part in slowest.parts]
    whole = result.whole
    speedup = f"{whole.speedup:.3g}x as fast" if math.isfinite(whole.speedup) else "no time there"
    return Report(
        "project",
        PART_COLUMNS,
        rows,
        context or {},
        (_pace_note(result), *slowest.notes, *incomplete_notes(result.job)),
        f"{len(rows)} ranks from {result.source.name} to {result.target.name}: {times(whole)}, {speedup}",
        more={
            "parts": Report(
                "project", PART_COLUMNS, parts, title=f"Parts of {slowest.whole.name}", people_rows=parts[:_MOST_RANKS]
            ),
            "whole": Report("project", PART_COLUMNS, [part_row(whole)]),
        },
        people_rows=sorted(rows, key=lambda row: -row["projected_time_s"])[:_MOST_RANKS],
        unlisted=f"Faster ranks: {len(rows) - _MOST_RANKS}; JSON and CSV have them." if len(rows) > _MOST_RANKS else "",
    )


def _pace_note(result: ProjectedJob) -> str:
    here = max(result.ranks, key=lambda rank: rank.whole.time_s).whole.name
    return (
        "Times are of each rank without its waits for others, so that the job takes as long as its slowest one: "
        f"{here} here, {result.ranks[result.pace].whole.name} there."
    )

"""The ranks of a job as a report: dimensions by rank, steps, exchanges, who waits for whom; and on another machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Column, Report, report
from perfmodel.core.saved import with_columns
from perfmodel.core.units import format_si
from perfmodel.diagnosis.projection.report import COLUMNS as PART_COLUMNS
from perfmodel.diagnosis.projection.report import longest_parts, part_row, times
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


#: key of a further table -> its columns and title
_TABLES = {
    "steps": (_STEPS, "Steps"),
    "exchanges": (_EXCHANGES, "Exchanges"),
    "waits": (_WAITS, "Who waits for whom"),
}


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
        "steps": _listed("steps", list(_steps(job))),
        "exchanges": _listed("exchanges", kinds),
        "waits": _listed("waits", sorted(_waits(job), key=lambda row: -row["time_s"])),
    }
    told = decision(job)
    table = Report(
        "diagnose",
        COLUMNS,
        list(_dimensions(job)),
        {**(context or {}), **_facts(job), "decision": told},
        tuple(_notes(job)),
        f"{len(job.ranks)} ranks of one job, a step of {format_si(job.step_s, 's')}",
        {key: table for key, table in more.items() if table.rows},
        decision=told,
    )
    return _some_ranks(table, _shown(job), len(job.ranks))


def saved(table: Report) -> Report:
    """Return the ranks of a job that were read from JSON as `diagnose` shows them."""
    facts = table.context
    stragglers = [one["rank"] for one in facts.get("stragglers") or ()]
    stalled = [facts["stall"]["rank"]] if facts.get("stall") else []
    numbers = list(dict.fromkeys(row["rank"] for row in table.rows))
    slowest = facts.get("slowest_rank")
    more = {key: _listed(key, one.rows) if key in _TABLES else one for key, one in table.more.items()}
    shown = _first_ranks([*stragglers[: _RANKS_SHOWN // 2], *stalled, *([] if slowest is None else [slowest])], numbers)
    return _some_ranks(with_columns(table, COLUMNS, more=more), shown, len(numbers))


def _some_ranks(table: Report, shown: Sequence[int], count: int) -> Report:
    """Return the dimensions of some ranks of so many."""
    unlisted = f"{count - len(shown)} more ranks in JSON and CSV." if count > len(shown) else ""
    return replace(table, people_rows=[row for row in table.rows if row["rank"] in shown], unlisted=unlisted)


def _shown(job: Job) -> list[int]:
    """Return the numbers of the ranks that people see: those that stand out, and the first others."""
    late = [one.rank for one in job.stragglers[: _RANKS_SHOWN // 2]]
    stalled = [job.stall.rank] if job.stall is not None else []
    return _first_ranks([*late, *stalled, job.numbers[job.pace], job.slowest], job.numbers)


def _first_ranks(standing_out: Sequence[int], numbers: Sequence[int]) -> list[int]:
    return list(dict.fromkeys([*standing_out, *numbers]))[:_RANKS_SHOWN]


def _listed(key: str, rows: Sequence[Mapping[str, Any]]) -> Report:
    """Return a further table of which people see the first rows."""
    columns, title = _TABLES[key]
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
    whole = result.whole
    speedup = f"{whole.speedup:.3g}x as fast" if math.isfinite(whole.speedup) else "no time there"
    table = Report(
        "project",
        PART_COLUMNS,
        rows,
        context or {},
        (_pace_note(result), *slowest.notes, *incomplete_notes(result.job)),
        f"{len(rows)} ranks from {result.source.name} to {result.target.name}: {times(whole)}, {speedup}",
        more={
            "parts": _first_parts([part_row(part) for part in slowest.parts], f"Parts of {slowest.whole.name}"),
            "whole": Report("project", PART_COLUMNS, [part_row(whole)]),
        },
    )
    return _slowest_ranks(table)


def _first_parts(rows: Sequence[Mapping[str, Any]], title: str) -> Report:
    return Report("project", PART_COLUMNS, rows, title=title, people_rows=rows[:_MOST_RANKS])


def _slowest_ranks(table: Report) -> Report:
    """Return the ranks of a job there, of which people see the slowest."""
    hidden = len(table.rows) - _MOST_RANKS
    return replace(
        table,
        people_rows=sorted(table.rows, key=lambda row: -row["projected_time_s"])[:_MOST_RANKS],
        unlisted=f"Faster ranks: {hidden}; JSON and CSV have them." if hidden > 0 else "",
    )


def saved_projection(table: Report) -> Report:
    """Return a run, or the ranks of a job, on another machine that were read from JSON as `project` shows them."""
    more = {key: with_columns(one, PART_COLUMNS, title="") for key, one in table.more.items()}
    if "parts" in more:
        more["parts"] = _first_parts(more["parts"].rows, "Parts of the rank that sets the pace")
        return _slowest_ranks(with_columns(table, PART_COLUMNS, more=more))
    return longest_parts(with_columns(table, PART_COLUMNS, more=more), table.context["total_time_s"])


def _pace_note(result: ProjectedJob) -> str:
    here = max(result.ranks, key=lambda rank: rank.whole.time_s).whole.name
    return (
        "Times are of each rank without its waits for others, so that the job takes as long as its slowest one: "
        f"{here} here, {result.ranks[result.pace].whole.name} there."
    )

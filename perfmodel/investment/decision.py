"""From any profile to a decision: wall time if it was traced, candidates from a plan and from the diagnosis."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Reportable
from perfmodel.diagnosis.diagnose import diagnose, is_traced, wall_time
from perfmodel.diagnosis.ranks.job import Job, alone_notes
from perfmodel.diagnosis.wall import without_waiting_bounds
from perfmodel.errors import UsageError
from perfmodel.investment.chains import ROI
from perfmodel.investment.economics import Economics
from perfmodel.investment.headroom import headroom
from perfmodel.investment.plan import Plan
from perfmodel.investment.ranking import Ranking, rank_candidates
from perfmodel.investment.wall import WALL_NOTE, with_overlapped_entries
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.effort import EFFORT, Effort
from perfmodel.profile.profile import Profile


@dataclass(frozen=True)
class Decision(Reportable):
    """What is worth doing about a profile.

    Attributes
    ----------
    ranking : the candidates, or without any candidate the parts of the profile.
    parts : the headroom of each part, if candidates of a diagnosis are ranked; else None.
    """

    ranking: Ranking
    parts: Ranking | None = None


def decide(
    profile: Profile,
    *,
    plan: Plan | None = None,
    diagnosed: bool | None = None,
    hardware: Hardware | None = None,
    economics: Economics | None = None,
    effort: Mapping[str, Effort] = EFFORT,
    cap: bool = True,
    by: str = ROI,
    days: float | None = None,
    job: Job | None = None,
) -> Decision:
    """Rank what could be done about a profile.

    A traced profile is replaced by its wall time (`perfmodel.diagnosis.wall`): launch gaps, waits and idle times are
    entries of their own, so that a speedup is that of the clock on the wall. Without a plan and without any candidate
    from the diagnosis, the entries are ranked by what physics allows.

    Parameters
    ----------
    profile : the measured profile.
    plan : candidates, or None.
    diagnosed : whether the candidates of a diagnosis are ranked too; None: only for a traced profile without a plan.
    hardware : the machine that the profile was measured on, or None.
    economics : fleet and prices, or None.
    effort : kind of change -> days and risk, for candidates without days.
    cap, by, days : as in `perfmodel.investment.ranking.rank_candidates`.
    job : the ranks of which the profile is the one that sets the pace (`perfmodel.diagnosis.ranks.pace`): a change of
        that rank is one of the job. That it stops being late is a candidate, too.

    Raises
    ------
    UsageError, or InputFileError for a plan from a file
        As `rank_candidates`; and if days or a ranking are requested and there is no candidate.
    """
    wanted = plan is None and (is_traced(profile) or job is not None) if diagnosed is None else diagnosed
    advised: tuple[Candidate, ...] = ()
    if wanted:
        diagnosis = diagnose(profile, hardware, effort=effort)
        wall, advised = diagnosis.wall, diagnosis.candidates
    else:
        wall = wall_time(profile, hardware)
    notes = () if wall is profile else (WALL_NOTE,)
    if job is not None:
        from perfmodel.diagnosis.ranks.pace import lateness, pace_notes

        wall, late = lateness(job, wall)
        advised = (late, *advised) if late is not None and wanted else advised
        visible, notes = wall, (*pace_notes(job), *notes)
    else:
        visible = wall if wall is profile else without_waiting_bounds(wall)
        notes = (*alone_notes(profile, "roi"), *notes)
    plan = plan_with_advice(plan, advised)
    parts = headroom(visible, economics=economics, hardware=hardware)
    if plan is None:
        if days is not None or by != ROI:
            remedy = "Give a plan (--plan); diagnose finds no candidate." if wanted else "Give a plan (--plan)."
            raise UsageError("there is no candidate to rank or to choose from.", place=profile.source, remedy=remedy)
        hint = "Pass --plan PLAN to rank candidates by their return on investment."
        return Decision(_with_notes(parts, (*notes, hint)))
    plan, defaults = with_default_effort(plan, effort)
    ranking = rank_candidates(
        profile if wall is profile else with_overlapped_entries(wall, profile),
        plan,
        economics,
        hardware=hardware,
        cap=cap,
        by=by,
        days=days,
    )
    parts = dataclasses.replace(parts, notes=tuple(note for note in parts.notes if note not in ranking.notes))
    return Decision(_with_notes(ranking, (*notes, *defaults)), parts if advised else None)


def _with_notes(ranking: Ranking, notes: tuple[str, ...]) -> Ranking:
    return dataclasses.replace(ranking, notes=(*notes, *ranking.notes))


def plan_with_advice(plan: Plan | None, advised: Sequence[Candidate]) -> Plan | None:
    """Return the candidates of a plan and of a diagnosis as one plan; None if there are none.

    A candidate of the diagnosis with a name that the plan uses too gets "(diagnose)" added to its name.
    """
    if plan is None:
        return Plan(tuple(advised)) if advised else None
    names = {item.name for item in plan.candidates}
    renamed = [
        dataclasses.replace(item, name=f"{item.name} (diagnose)") if item.name in names else item for item in advised
    ]
    return Plan((*plan.candidates, *renamed), plan.source)


def with_default_effort(plan: Plan, effort: Mapping[str, Effort] = EFFORT) -> tuple[Plan, tuple[str, ...]]:
    """Return a plan in which candidates without dev_days have those of their kind, and a note that lists them.

    Parameters
    ----------
    plan : candidates; one without a kind, or of a kind that the table lacks, stays without days.
    effort : kind of change -> days and risk.
    """
    candidates, estimated = [], []
    for item in plan.candidates:
        default = effort.get(item.kind)
        if item.dev_days is None and default is not None:
            item = dataclasses.replace(item, dev_days=default.dev_days, risk=item.risk or default.risk)
            estimated.append(f"{item.name!r} {default.dev_days:g} d")
        candidates.append(item)
    if not estimated:
        return plan, ()
    note = f"Days assumed by perfmodel for the kind of change: {', '.join(estimated)}; --effort KIND=DAYS changes them."
    return Plan(tuple(candidates), plan.source), (note,)

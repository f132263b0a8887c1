"""From any profile to a decision: wall time where it was traced, candidates from a plan and from the diagnosis."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from perfmodel.core.hardware import Hardware
from perfmodel.errors import UsageError
from perfmodel.investment.candidates import joined, with_default_effort, with_hidden
from perfmodel.investment.economics import Economics
from perfmodel.investment.order import ROI
from perfmodel.investment.plan import Plan
from perfmodel.investment.ranking import Ranking
from perfmodel.investment.roi import headroom, rank
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.effort import EFFORT, Effort
from perfmodel.profile.profile import Profile


@dataclass(frozen=True)
class Question:
    """What is asked of a profile.

    Attributes
    ----------
    plan : candidates of a plan, or None.
    diagnosed : whether diagnose's candidates are ranked too; None: where there is no plan and the profile was traced.
    hardware : the machine that the profile was measured on, or None.
    economics : fleet and prices, or None.
    effort : kind of change -> days and risk, for candidates without days.
    cap, by, days : as in `perfmodel.investment.roi.rank`.
    """

    plan: Plan | None = None
    diagnosed: bool | None = None
    hardware: Hardware | None = None
    economics: Economics | None = None
    effort: Mapping[str, Effort] = field(default_factory=lambda: EFFORT)
    cap: bool = True
    by: str = ROI
    days: float | None = None


@dataclass(frozen=True)
class Decision:
    """What came of it: the ranking, and where candidates of a diagnosis are ranked, what each part is worth."""

    ranking: Ranking
    parts: Ranking | None = None


def decide(profile: Profile, question: Question) -> Decision:
    """Rank what could be done about a profile.

    A traced profile is looked at as the wall time (`perfmodel.diagnosis.wall`): launch gaps, waits and idle
    times are entries of their own, so that speedups are of what the clock shows. Without a plan and without any
    candidate from the diagnosis, the entries are ranked by what physics allows.

    Raises
    ------
    UsageError, or InputFileError for a plan from a file
        As `perfmodel.investment.roi.rank`; and where days or a ranking are asked for and there is no candidate.
    """
    traced = profile.timeline is not None and len(profile.timeline.gpu) > 0
    wanted = question.plan is None and traced if question.diagnosed is None else question.diagnosed
    advised: tuple[Candidate, ...] = ()
    said: tuple[str, ...] = ()
    seen = profile
    if traced or wanted:
        from perfmodel.diagnosis.diagnose import diagnose

        made = diagnose(profile, question.hardware, effort=question.effort)
        seen = made.wall
        advised = tuple(one.candidate for one in made.advice) if wanted else ()
        if seen is not profile:
            said = ("Of the wall time: the GPU's gaps are entries, and what overlaps is counted once.",)
    plan = joined(question.plan, advised)
    parts = headroom(seen, economics=question.economics, hardware=question.hardware)
    if plan is None:
        if question.days is not None or question.by != ROI:
            raise UsageError(
                "there is no candidate to rank or to choose from.",
                place=profile.source,
                remedy="Give a plan (--plan); diagnose finds none." if wanted else "Give a plan (--plan).",
            )
        return Decision(_noted(parts, (*said, "With --plan, candidates are ranked by their return on investment.")))
    plan, defaults = with_default_effort(plan, question.effort)
    ranking = rank(
        with_hidden(seen, profile) if seen is not profile else profile,
        plan,
        question.economics,
        hardware=question.hardware,
        cap=question.cap,
        by=question.by,
        days=question.days,
    )
    parts = dataclasses.replace(parts, notes=tuple(note for note in parts.notes if note not in ranking.notes))
    return Decision(_noted(ranking, (*said, *defaults)), parts if advised else None)


def _noted(ranking: Ranking, said: tuple[str, ...]) -> Ranking:
    return dataclasses.replace(ranking, notes=(*said, *ranking.notes))

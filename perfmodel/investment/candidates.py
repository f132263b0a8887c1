"""Where candidates come from: a plan, a diagnosis, or both; and the effort of those that nobody has estimated."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from perfmodel.investment.plan import Plan
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.effort import EFFORT, Effort
from perfmodel.profile.profile import Profile


def with_default_effort(plan: Plan, table: Mapping[str, Effort] = EFFORT) -> tuple[Plan, tuple[str, ...]]:
    """Return a plan whose candidates without dev_days have those of their kind, and a note that says which.

    Parameters
    ----------
    plan : candidates; one without a kind, or of a kind that the table lacks, stays without days.
    table : kind -> effort.
    """
    taken = []
    candidates = []
    for item in plan.candidates:
        effort = table.get(item.kind)
        if item.dev_days is None and effort is not None:
            item = dataclasses.replace(item, dev_days=effort.dev_days, risk=item.risk or effort.risk)
            taken.append(f"{item.name!r} {effort.dev_days:g} d")
        candidates.append(item)
    if not taken:
        return plan, ()
    said = f"Days by the kind of change, an assumption of perfmodel: {', '.join(taken)}; --effort KIND=DAYS changes it."
    return Plan(tuple(candidates), plan.source), (said,)


def joined(plan: Plan | None, advised: Sequence[Candidate]) -> Plan | None:
    """Return the candidates of a plan and of a diagnosis together; None where there is none.

    A candidate of the diagnosis whose name the plan has too gets "(diagnose)" behind its name.
    """
    if plan is None:
        return Plan(tuple(advised)) if advised else None
    names = {item.name for item in plan.candidates}
    renamed = [
        dataclasses.replace(item, name=f"{item.name} (diagnose)") if item.name in names else item for item in advised
    ]
    return Plan((*plan.candidates, *renamed), plan.source)


def with_hidden(wall: Profile, profile: Profile) -> Profile:
    """Return a profile of the wall time with the entries that others hide, at 0 s, so that a plan may name them."""
    shown = {entry.name for entry in wall.entries}
    hidden = tuple(
        dataclasses.replace(entry, time_s=0.0, calls=None, op=None, flop=None, bytes=None)
        for entry in profile.entries
        if entry.name not in shown
    )
    return dataclasses.replace(wall, entries=(*wall.entries, *hidden))

"""What another algorithm is worth: the ratio of the two algorithms' predicted times, on the operators of a profile."""

from __future__ import annotations

import dataclasses
import math

from perfmodel.core.hardware import Hardware
from perfmodel.errors import UsageError
from perfmodel.investment.plan import Plan
from perfmodel.operators import Operator
from perfmodel.prediction.algorithms import problems
from perfmodel.prediction.algorithms.choice import Choice, choose_for
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.profile import Profile


def time_ratio(op: Operator, hardware: Hardware, after: str, before: str = "") -> float:
    """Return the predicted time with one algorithm over that with another, on a machine.

    Parameters
    ----------
    op : the operator that states the problem.
    after, before : the algorithms; ``before`` is by default the operator's own, or where its problem has no such name
        the fastest that applies, which a library is taken to run.

    Raises
    ------
    UsageError
        When the operator states no problem with that algorithm, or the algorithm does not apply.
    """
    choice = _choice_with(op, hardware, after)
    names = [row.algorithm for row in choice.rows]
    own = getattr(op, "algorithm", "")
    now = choice[before or (own if own in names else choice.best)]
    then = choice[after]
    for row in (now, then):
        if not row.applies:
            raise UsageError(
                f"{row.algorithm} does not apply: {row.why_not}.",
                remedy="`perfmodel analyze --algorithms` lists those.",
            )
    return then.time_s / now.time_s


def _choice_with(op: Operator, hardware: Hardware, algorithm: str) -> Choice:
    """Return the choice of the problem that has an algorithm, among those that the operator states."""
    choices = [choose_for(problem, op, hardware) for problem in problems().values() if problem.stated_by(op)]
    for choice in choices:
        if any(row.algorithm == algorithm for row in choice.rows):
            return choice
    if not choices:
        raise UsageError(f"{op.op} has only one algorithm.", remedy="Remove it from the targets.")
    known = dict.fromkeys(row.algorithm for choice in choices for row in choice.rows)
    raise UsageError(f"{op.op} has no algorithm {algorithm!r}.", remedy=f"Allowed: {', '.join(known)}.")


def with_speedups(plan: Plan, profile: Profile, hardware: Hardware | None) -> Plan:
    """Return a plan in which candidates that name an algorithm have the speedup that the predictions give them.

    Each target's measured time is multiplied by the ratio of the two predicted times, so that an error that both share
    cancels; the speedup is that of all targets together.

    Raises
    ------
    UsageError, or InputFileError for a plan from a file
        When there is no machine, a target has no operator, or the algorithm does not apply to it.
    """
    if not any(item.algorithm for item in plan.candidates):
        return plan
    named = (_with_speedup(item, profile, hardware) if item.algorithm else item for item in plan.candidates)
    return Plan(tuple(named), plan.source)


def _with_speedup(candidate: Candidate, profile: Profile, hardware: Hardware | None) -> Candidate:
    if hardware is None:
        raise candidate.error("its algorithm needs a machine.", "Name it with --on.")
    entries = {entry.name: entry for entry in profile.entries}
    times, new = [], []
    for name in candidate.resolve(profile, entries):
        entry = entries[name]
        op = entry.op or candidate.operator
        if op is None:
            raise candidate.error(
                f"the operator of {name!r} is not known, so no algorithm can be predicted.",
                'Add operator = {op = "attention", ...}, or state a speedup.',
            )
        try:
            ratio = time_ratio(op, hardware, candidate.algorithm, candidate.instead_of)
        except UsageError as error:
            raise candidate.error(f"{name!r}: {error.message}", error.remedy) from None
        times.append(entry.time_s)
        new.append(entry.time_s * ratio)
    speedup = math.fsum(times) / math.fsum(new) if math.fsum(new) > 0 else 1.0
    # the speedup takes the place of the algorithm, which is done with
    return dataclasses.replace(candidate, algorithm="", instead_of="", operator=None, speedup=speedup)

"""Changes that are predicted by computing the changed run: candidates of a plan, and steps of a scenario.

The run before and after a change is a mapping of terms that add up to its time.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from perfmodel.investment.amdahl import amdahl_limit
from perfmodel.investment.scenario import Step
from perfmodel.investment.what_if import StepResult, claim_flags

Terms = Mapping[str, float]
#: terms that change by less than this share of the whole do not count as changed
_UNCHANGED = 1e-4


def changed_terms(before: Terms, after: Terms) -> tuple[tuple[str, ...], float]:
    """Return the terms that a change changes, and their new time, with that of terms that it adds [s].

    A change without effect names the longest term, whose time stays.
    """
    least = _UNCHANGED * sum(before.values())
    targets = [term for term in before if before[term] > 0 and abs(after.get(term, 0.0) - before[term]) > least]
    targets = targets or [max(before, key=lambda term: before[term])]
    old_s = math.fsum(before[term] for term in targets)
    new_s = math.fsum([*after.values(), old_s, *(-time_s for time_s in before.values())])
    # A change that only moves time from one term to another saves nothing, not what rounding leaves of it.
    return tuple(targets), old_s if math.isclose(new_s, old_s) else max(0.0, new_s)


def predicted_step(
    number: int,
    name: str,
    kind: str,
    begin_s: float,
    before: Terms,
    after: Terms,
    touched: Collection[str],
    *,
    items: float,
    basis: str,
    claimed_speedup: float | None = None,
    interval_s: tuple[float, float] | None = None,
) -> StepResult:
    """Return what one step of a scenario makes of a run.

    Parameters
    ----------
    number, name, kind : of the step.
    begin_s : time of the run before all steps [s].
    before, after : terms of the run before and after this step [s].
    touched : terms that this step and those before it change.
    items : what a run makes, for its throughput.
    basis : where the new time comes from.
    claimed_speedup : what somebody claims for this step.
    interval_s : 80 % interval of the run's time after this step [s].
    """
    low_s, high_s = interval_s or (None, None)
    targets, new_s = changed_terms(before, after)
    before_s, after_s = sum(before.values()), sum(after.values())
    targets_s = sum(before[term] for term in targets)
    untouched_s = sum(time_s for term, time_s in after.items() if term not in touched)
    longest = max(after, key=lambda term: after[term])
    share = after[longest] / after_s
    speedup = before_s / after_s
    step = Step(name, kind, claimed_speedup=claimed_speedup)
    return StepResult(
        step=number,
        name=name,
        kind=kind,
        targets=targets,
        time_before_s=targets_s,
        time_after_s=new_s,
        total_time_s=after_s,
        time_saved_s=before_s - after_s,
        step_speedup=speedup,
        speedup=begin_s / after_s,
        throughput_per_s=items / after_s,
        bottleneck=longest,
        bottleneck_fraction=share,
        max_further_speedup=float(amdahl_limit(share)),
        max_overall_speedup=begin_s / untouched_s if untouched_s else math.inf,
        basis=basis,
        flags=claim_flags(step, targets_s, before_s, after_s, speedup),
        total_low_s=low_s,
        total_high_s=high_s,
    )

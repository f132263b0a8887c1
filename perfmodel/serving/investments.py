"""Changes of a deployment as investments: a profile, a plan and a path, predicted by computing what was changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfmodel.errors import UsageError
from perfmodel.investment.plan import Plan
from perfmodel.investment.predicted import changed_terms, predicted_step
from perfmodel.investment.scenario import Scenario, Step
from perfmodel.investment.what_if import WhatIf
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.effort import EFFORT, Effort
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.serving.case import TOKENS, Case, Outcome
from perfmodel.serving.changes import KINDS, Change


def profile_of(case: Case) -> Profile:
    """Return the GPU time of a million tokens as a profile: one entry for each term of the steps.

    Time on several GPUs counts for each of them, so that a change that takes more GPUs has to pay for them.
    """
    outcome = case.outcome()
    entries = tuple(
        ProfileEntry(term, time_s * outcome.gpus) for term, time_s in outcome.terms_s.items() if time_s > 0
    )  # fmt: skip
    notes = (
        "Predicted, not measured: GPU time of a million output tokens in the steady state; --explain of `perfmodel "
        "serve` lists the terms.",
    )
    return Profile(entries, case.source, notes)


def plan_of(case: Case, changes: Sequence[Change], effort: Mapping[str, Effort] = EFFORT) -> Plan:
    """Return changes as candidates on `profile_of`, each with the predicted time of the changed deployment.

    Parameters
    ----------
    case : the deployment as it is.
    changes : what could be done.
    effort : kind of candidate -> days and risk, for changes without days.

    Raises
    ------
    InputFileError, UsageError
        When a changed deployment is impossible.
    """
    before = _gpu_terms(case.outcome())
    candidates = []
    for change in changes:
        after = _gpu_terms(change.applied(case).outcome())
        targets, new_s = changed_terms(before, after)
        kind = KINDS[change.kind]
        usual = effort.get(kind.candidate, kind.effort)
        candidates.append(
            Candidate(
                change.name,
                targets,
                new_time_s=new_s,
                dev_days=change.dev_days or usual.dev_days,
                risk=change.risk or usual.risk,
                after=change.after,
                excludes=_others(change, changes),
                place=change.place,
                kind=kind.candidate,
            )
        )
    return Plan(tuple(candidates), case.source)


def _others(change: Change, changes: Sequence[Change]) -> tuple[str, ...]:
    """Return the changes of the same kind: a deployment has one format, one number of GPUs, ... ."""
    return tuple(other.name for other in changes if other.kind == change.kind and other is not change)


def _gpu_terms(outcome: Outcome) -> dict[str, float]:
    return {term: time_s * outcome.gpus for term, time_s in outcome.terms_s.items()}


def path_of(case: Case, changes: Sequence[Change]) -> WhatIf:
    """Return the run after each of some changes, one upon the other: time of a million tokens, and tokens a second.

    Raises
    ------
    InputFileError, UsageError
        When a changed deployment is impossible.
    """
    if not changes:
        raise UsageError("there is no step.", place=case.source, remedy="Write at least one [[steps]] table.")
    begin = state = case.outcome()
    profile = Profile(
        tuple(ProfileEntry(term, time_s) for term, time_s in begin.terms_s.items() if time_s > 0), case.source
    )  # fmt: skip
    steps = []
    touched: set[str] = set()
    for number, change in enumerate(changes, start=1):
        case = change.applied(case)
        after = case.outcome()
        touched.update(changed_terms(state.terms_s, after.terms_s)[0])
        gpus = f"{after.gpus} GPU{'s' * (after.gpus > 1)}"
        steps.append(
            predicted_step(
                number,
                change.name,
                change.kind,
                begin.time_s,
                state.terms_s,
                after.terms_s,
                touched,
                items=TOKENS,
                basis=f"predicted on {gpus}: {TOKENS / after.high_s:.4g} to {TOKENS / after.low_s:.4g} tokens/s (80 %)",
                claimed_speedup=change.claimed_speedup,
                interval_s=(after.low_s, after.high_s),
            )
        )
        state = after
    scenario = Scenario(
        tuple(Step(change.name, change.kind) for change in changes), TOKENS, "tokens", source=case.source
    )  # fmt: skip
    notes = (
        "Each step acts on the deployment that the steps before it left, and is predicted by computing it; times are "
        "those of a million output tokens.",
    )
    return WhatIf(tuple(steps), profile, scenario, case.deployment.hardware, notes)

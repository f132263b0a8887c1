"""Changes of a training plan as investments: each is predicted by computing the changed plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.errors import InputFileError, PerfModelError, UsageError
from perfmodel.investment import fields as checked
from perfmodel.investment.plan import Plan
from perfmodel.investment.predicted import changed_terms, predicted_step
from perfmodel.investment.scenario import Scenario, Step
from perfmodel.investment.what_if import WhatIf
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.training.activations import UNFUSED
from perfmodel.training.case import CLUSTER_KEYS, PLAN_KEYS, TOKENS, TrainingCase
from perfmodel.training.framework import find_framework
from perfmodel.training.setup import attention_kernel

_CHANGE_KEYS = ("name", "set", "dev_days", "risk", "after", "claimed_speedup")
#: days and risk of a change of options, unless the file states others (assumed: a run to check the loss)
_DAYS, _RISK = 0.5, "low"
#: changes of the time by less than this share are not worth a row
_LEAST = 1e-3


@dataclass(frozen=True)
class PlanChange:
    """One change of a training plan: the values that it sets.

    Attributes
    ----------
    name : for people.
    values : keys of the plan or the cluster -> new values.
    dev_days, risk : effort.
    after : changes that have to come before.
    claimed_speedup : what somebody claims for this step, to be checked.
    place : file and position, for messages.
    """

    name: str
    values: Mapping[str, Any]
    dev_days: float = _DAYS
    risk: str = _RISK
    after: tuple[str, ...] = ()
    claimed_speedup: float | None = None
    place: str = ""

    def applied(self, case: TrainingCase) -> TrainingCase:
        """Return the changed case.

        Raises
        ------
        InputFileError, or UsageError for a change made in Python
            When the changed plan cannot run or does not fit.
        """
        try:
            changed = case.changed(self.values)
            changed.step()
        except (PerfModelError, TypeError, ValueError) as error:
            kind = InputFileError if self.place else UsageError
            message = error.message if isinstance(error, PerfModelError) else f"{error}."
            remedy = error.remedy if isinstance(error, PerfModelError) else ""
            raise kind(message, place=self.place or f"change {self.name!r}", remedy=remedy) from None
        return changed


def read_plan_changes(items: Sequence[Any], place: str) -> tuple[PlanChange, ...]:
    """Return the changes in a list of tables: name, set, dev_days, risk, after, claimed_speedup.

    Raises
    ------
    InputFileError
        When a key is unknown, missing or has a wrong value, or a name is used twice.
    """
    changes = tuple(_change(item, f"{place}: change {number}") for number, item in enumerate(items, start=1))
    checked.check_names([(change.name, change.place) for change in changes])
    return changes


def _change(item: Any, place: str) -> PlanChange:
    checked.check_keys(checked.table(item, place), _CHANGE_KEYS, place)
    values = item.get("set")
    if not isinstance(values, Mapping) or not values:
        raise InputFileError("sets nothing.", place=place, remedy='Write set = { recompute = "none", tp = 4 }.')
    checked.check_keys(values, (*PLAN_KEYS, *CLUSTER_KEYS), place)
    usual = ", ".join(f"{key}={value}" for key, value in values.items())
    claim = item.get("claimed_speedup")
    return PlanChange(
        checked.text(item.get("name", usual), "name", place),
        values,
        checked.positive(item.get("dev_days", _DAYS), "dev_days", place),
        checked.text(item.get("risk", _RISK), "risk", place),
        checked.texts(item.get("after", ()), "after", place),
        None if claim is None else checked.positive(claim, "claimed_speedup", place),
        place,
    )


def usual_plan_changes(case: TrainingCase) -> tuple[PlanChange, ...]:
    """Return the changes of one option that a plan could have, can run and fit, for a file without a list."""
    plan = case.plan
    framework = find_framework(plan.framework)
    unfused = attention_kernel(case.config, plan, framework) in UNFUSED
    wanted: list[dict[str, Any]] = [{"recompute": "none"}, {"recompute": "full"}]
    wanted += [{"recompute": "selective"}] if unfused else []
    wanted += [{"offload": "none"}] if plan.offload != "none" else []
    wanted += [{"micro_batch": 2 * plan.micro_batch}, {"dtype": "fp8"}, {"attention": "fa3"}, {"attention": "cudnn"}]
    wanted += [{"tp_overlap": True}, {"sp": True}] if plan.tp > 1 else []
    wanted += [{"expert_overlap": True}] if plan.ep > 1 else []
    wanted += [{"shared_expert_overlap": True}] if plan.ep > 1 and case.config.shared_ffn else []
    if plan.on_host("optimizer"):
        wanted += [{"cpu_optimizer": "fused"}]
        wanted += [{"cpu_overlap": way} for way in framework.host.overlaps if way != "none"]
    interleaves = plan.pp > 1 and "vp" in framework.parallel
    wanted += [{"vp": size} for size in (2, 4) if interleaves and size != plan.vp]
    wanted += [{"zero": zero} for zero in (1, 3) if zero != plan.zero and zero in framework.stages(plan.dtype)]
    for name in ("tp", "pp"):
        size = getattr(plan, name)
        wanted += [{name: 2 * size}] if name in framework.parallel else []
        wanted += [{name: size // 2}] if size > 1 else []
    changes = (
        PlanChange(", ".join(f"{key}={value}" for key, value in values.items()), values)
        for values in wanted
        if any(getattr(plan, key) != value for key, value in values.items())
    )
    before = sum(case.gpu_terms().values())
    return tuple(change for change in changes if abs(_time(change, case) / before - 1.0) > _LEAST)


def _time(change: PlanChange, case: TrainingCase) -> float:
    """Return the GPU time after a change, or the time before it where the changed plan cannot run."""
    try:
        return sum(change.applied(case).gpu_terms().values())
    except PerfModelError:
        return sum(case.gpu_terms().values())


def profile_of_plan(case: TrainingCase) -> Profile:
    """Return the GPU time of `TOKENS` tokens as a profile: one entry for each term of the step."""
    notes = (
        "Predicted, not measured: GPU time of 10^9 tokens; `perfmodel train --explain` lists the terms of a step.",
    )
    return Profile(tuple(ProfileEntry(term, time) for term, time in case.gpu_terms().items()), case.source, notes)


def candidates_of(case: TrainingCase, changes: Sequence[PlanChange]) -> Plan:
    """Return changes as candidates on `profile_of_plan`, each with the predicted time of the changed plan.

    Changes that set the same key exclude each other.

    Raises
    ------
    InputFileError, UsageError
        When a changed plan cannot run or does not fit.
    """
    before, candidates = case.gpu_terms(), []
    for change in changes:
        targets, new_s = changed_terms(before, change.applied(case).gpu_terms())
        others = tuple(
            other.name for other in changes if other is not change and set(other.values) & set(change.values)
        )
        candidates.append(
            Candidate(
                change.name,
                targets,
                new_time_s=new_s,
                dev_days=change.dev_days,
                risk=change.risk,
                after=change.after,
                excludes=others,
                place=change.place,
            )
        )
    return Plan(tuple(candidates), case.source)


def path_of_plan(case: TrainingCase, changes: Sequence[PlanChange]) -> WhatIf:
    """Return the step after each of some changes, one upon the other, as the time of `TOKENS` tokens on all GPUs.

    Raises
    ------
    InputFileError, UsageError
        When there is no change, or a changed plan cannot run or does not fit.
    """
    if not changes:
        raise UsageError("there is no step.", place=case.source, remedy="Write at least one [[steps]] table.")
    begin = before = _terms(case)
    profile = Profile(tuple(ProfileEntry(term, time) for term, time in begin.items()), case.source)
    results, touched = [], set[str]()
    for number, change in enumerate(changes, start=1):
        case = change.applied(case)
        after, step = _terms(case), case.step()
        touched.update(changed_terms(before, after)[0])
        share = TOKENS / step.tokens
        basis = f"predicted on {case.cluster.name}: {share * step.low_s:.4g} to {share * step.high_s:.4g} s (80 %)"
        results.append(
            predicted_step(
                number,
                change.name,
                "plan",
                sum(begin.values()),
                before,
                after,
                touched,
                items=TOKENS,
                basis=basis,
                interval_s=(share * step.low_s, share * step.high_s),
                claimed_speedup=change.claimed_speedup,
            )
        )
        before = after
    scenario = Scenario(tuple(Step(change.name, "plan") for change in changes), TOKENS, "tokens", source=case.source)
    notes = (
        "Each step acts on the plan that the steps before it left, and is predicted by computing it; times are those "
        "of 10^9 tokens on all GPUs.",
    )
    return WhatIf(tuple(results), profile, scenario, case.cluster.hardware, notes)


def _terms(case: TrainingCase) -> dict[str, float]:
    """Return the time of `TOKENS` tokens on all GPUs by term [s]."""
    return {term: time / case.cluster.gpus for term, time in case.gpu_terms().items()}

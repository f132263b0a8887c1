"""Changes of a deployment as investments: each is predicted by computing the changed deployment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from perfmodel.errors import InputFileError, PerfModelError, UsageError, unknown_name
from perfmodel.investment import fields as checked
from perfmodel.investment.plan import Plan
from perfmodel.investment.predicted import changed_terms, predicted_step
from perfmodel.investment.scenario import Scenario, Step
from perfmodel.investment.what_if import WhatIf
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.effort import EFFORT, Effort
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.serving.case import TOKENS, Case, Outcome
from perfmodel.serving.kernels import GREEDY

#: kernels of a layer, and traffic of norms, rotary positions and activation, of an engine with fused kernels: the
#: defaults of `perfmodel.serving.engine.Engine`
_FUSED_KERNELS, _FUSED_PASSES = 9, 1.0


@dataclass(frozen=True)
class Kind:
    """A kind of change: how it changes a case, what its value is, its effort, and its kind as a candidate."""

    change: Callable[[Case, Any], Case]
    value: str
    effort: Effort
    candidate: str = ""


def _cuda_graph(case: Case, value: Any) -> Case:
    del value
    return _deployed("graph")(case, True)


def _fuse(case: Case, value: Any) -> Case:
    del value
    engine = case.deployment.profile
    fused = replace(
        engine, kernels=min(engine.kernels, _FUSED_KERNELS), passes=min(engine.passes, _FUSED_PASSES)
    )  # fmt: skip
    return _deployed("engine")(case, fused)


def _deployed(key: str) -> Callable[[Case, Any], Case]:
    return lambda case, value: replace(case, deployment=replace(case.deployment, **{key: value}))


def _batch(case: Case, value: Any) -> Case:
    return replace(case, users=float(value))


def _prefix(case: Case, value: Any) -> Case:
    return replace(case, prefix=float(value))


#: kind -> what it does; the days are assumptions for an engine whose code one can change, as in
#: `perfmodel.profile.effort`
KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "cuda-graph": Kind(_cuda_graph, "", Effort(2.0, "medium"), "cuda-graph"),
        "fuse": Kind(_fuse, "", Effort(2.0, "medium"), "fuse"),
        "weights": Kind(_deployed("weights"), "format", Effort(1.0, "medium"), "dtype"),
        "kv": Kind(_deployed("kv"), "format", Effort(1.0, "medium"), "dtype"),
        "tensor-parallel": Kind(_deployed("tp"), "GPUs", Effort(3.0, "medium")),
        "batch": Kind(_batch, "users", Effort(0.5, "low"), "batch"),
        "prefix-cache": Kind(_prefix, "tokens", Effort(3.0, "medium"), "remove"),
        "sampling": Kind(_deployed("sampling"), "algorithm", Effort(1.0, "low"), "algorithm"),
        "engine": Kind(_deployed("engine"), "name", Effort(5.0, "medium")),
    }
)
_KEYS = ("name", "kind", "value", "dev_days", "risk", "after", "claimed_speedup")


@dataclass(frozen=True)
class Change:
    """One change of a deployment.

    Attributes
    ----------
    name, kind : its name for people, and one of `KINDS`.
    value : what the kind needs: a format, GPUs, users, tokens, an algorithm, an engine; "" for none.
    dev_days, risk : effort; None and "" for the default of the kind.
    after : changes that have to come before.
    claimed_speedup : what somebody claims for this step, to be checked; None for no claim.
    place : file and position, for messages.
    """

    name: str
    kind: str
    value: Any = ""
    dev_days: float | None = None
    risk: str = ""
    after: tuple[str, ...] = ()
    claimed_speedup: float | None = None
    place: str = ""

    def applied(self, case: Case) -> Case:
        """Return the changed case.

        Raises
        ------
        InputFileError, or UsageError for a change made in Python
            When the changed deployment is impossible.
        """
        try:
            changed = KINDS[self.kind].change(case, self.value)
            changed.outcome()
        except PerfModelError as error:
            raise self.error(error.message, error.remedy) from None
        except TypeError as error:
            raise self.error(f"value = {self.value!r} is not what {self.kind} needs: {error}.", "") from None
        return changed

    def error(self, message: str, remedy: str) -> PerfModelError:
        """Build an error about this change."""
        kind = InputFileError if self.place else UsageError
        return kind(message, place=self.place or f"change {self.name!r}", remedy=remedy)


def read_changes(items: Sequence[Any], place: str) -> tuple[Change, ...]:
    """Return the changes in a list of tables: name, kind, value, dev_days, risk, after, claimed_speedup.

    Raises
    ------
    InputFileError
        When a key is unknown, missing or has a wrong value, or a name is used twice.
    """
    changes = tuple(_change(item, f"{place}: change {number}") for number, item in enumerate(items, start=1))
    names = [change.name for change in changes]
    for change in changes:
        if names.count(change.name) > 1:
            raise change.error(f"the name {change.name!r} is used twice.", "Give each change its own name.")
    return changes


def _change(item: Any, place: str) -> Change:
    if not isinstance(item, Mapping):
        raise InputFileError(f"is not a table, but {str(item)[:40]!r}.", place=place)
    for key in item:
        if key not in _KEYS:
            raise unknown_name("key", str(key), _KEYS, place=place, kind=InputFileError)
    kind = checked.text(item.get("kind", ""), "kind", place)
    if kind not in KINDS:
        raise unknown_name("kind of change", kind, KINDS, place=place, kind=InputFileError)
    needed = KINDS[kind].value
    if needed and "value" not in item:
        raise InputFileError(f"has no value: {kind} needs the {needed}.", place=place, remedy="Add value = ...")
    value = item.get("value", "")
    if needed in ("GPUs", "users", "tokens"):
        value = checked.count(value, "value", place)
    days, claim = item.get("dev_days"), item.get("claimed_speedup")
    return Change(
        checked.text(item.get("name", f"{kind} {value}".strip()), "name", place),
        kind,
        value,
        None if days is None else checked.positive(days, "dev_days", place),
        checked.text(item.get("risk", ""), "risk", place),
        checked.texts(item.get("after", ()), "after", place),
        None if claim is None else checked.positive(claim, "claimed_speedup", place),
        place,
    )


def usual_changes(case: Case) -> tuple[Change, ...]:
    """Return the changes that a deployment could have and has not, for a file without a list of its own."""
    deployment, engine = case.deployment, case.deployment.profile
    changes = []
    if not engine.graph:
        changes.append(Change("CUDA graphs", "cuda-graph"))
    if engine.kernels > _FUSED_KERNELS or engine.passes > _FUSED_PASSES:
        changes.append(Change("fused kernels", "fuse"))
    if deployment.sampling not in (GREEDY, "gumbel_fused"):
        changes.append(Change("Gumbel-max sampling", "sampling", "gumbel_fused"))
    if deployment.format.bytes > 1.0:
        changes += [Change("fp8 weights", "weights", "fp8"), Change("int4 weights", "weights", "int4")]
    if deployment.kv not in ("fp8", "int8"):
        changes.append(Change("fp8 keys and values", "kv", "fp8"))
    changes.append(Change("twice the users", "batch", 2 * case.users))
    changes.append(Change(f"tensor parallel on {2 * deployment.tp} GPUs", "tensor-parallel", 2 * deployment.tp))
    return tuple(change for change in changes if _possible(change, case))


def _possible(change: Change, case: Case) -> bool:
    try:
        change.applied(case)
    except PerfModelError:
        return False
    return True


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
        "Overall ceiling: the speedup if everything that the steps so far touch took no time (Amdahl).",
    )
    return WhatIf(tuple(steps), profile, scenario, case.deployment.hardware, notes)

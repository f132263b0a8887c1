"""Changes of a deployment: kinds of them, those that a file lists, and those that are usual."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from perfmodel.core.units import network_text
from perfmodel.errors import InputFileError, PerfModelError, UsageError, unknown_name
from perfmodel.investment import fields as checked
from perfmodel.prediction.topology import nic_rate
from perfmodel.profile.effort import Effort
from perfmodel.serving.case import Case
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


def _engine(case: Case, value: Any) -> Case:
    """Return the case on another engine, of today: a version is that of the engine before it."""
    return replace(case, deployment=replace(case.deployment, engine=value, engine_version=""))


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
        "network": Kind(_deployed("nic"), "rate of a GPU's network", Effort(5.0, "low")),
        "engine": Kind(_engine, "name", Effort(5.0, "medium")),
    }
)
_KEYS = ("name", "kind", "value", "dev_days", "risk", "after", "claimed_speedup")


@dataclass(frozen=True)
class Change:
    """One change of a deployment.

    Attributes
    ----------
    name, kind : its name for people, and one of `KINDS`.
    value : what the kind needs: a format, GPUs, users, tokens, an algorithm, a rate, an engine; "" for none.
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
    checked.check_names([(change.name, change.place) for change in changes])
    return changes


def _change(item: Any, place: str) -> Change:
    checked.check_keys(checked.table(item, place), _KEYS, place)
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
    rate = nic_rate(deployment.machine)
    if deployment.hosts > 1 and rate:
        twice = network_text(2.0 * rate)
        changes.append(Change(f"a network of {twice} a GPU", "network", twice))
    return tuple(change for change in changes if _possible(change, case))


def _possible(change: Change, case: Case) -> bool:
    try:
        change.applied(case)
    except PerfModelError:
        return False
    return True

"""Arguments of the public functions: one of a wrong type gets one message, which says what to write instead."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from perfmodel.errors import UsageError, expect, wrong_type

if TYPE_CHECKING:
    from perfmodel.cluster.cluster import Cluster
    from perfmodel.operators import Operator


def check_operator(op: object, place: str = "op") -> None:
    """Raise a UsageError for what is no operator."""
    from perfmodel.operators import Operator

    if not isinstance(op, Operator):
        raise wrong_type(op, "operator", place=place, remedy=f"Write {_example(op)}.")


def operator_list(operators: object) -> list[Operator]:
    """Return operators as a list.

    Raises
    ------
    UsageError
        For what is no list of operators; a single operator is none either.
    """
    if not _is_list(operators):
        captured = callable(operators) or callable(getattr(operators, "operators", None))  # of `perfmodel.capture`
        remedy = "Call its operators()." if captured else f"Write [{_example(operators)}]."
        raise wrong_type(operators, "list of operators", place="operators", remedy=remedy)
    listed: list[Operator] = list(operators)  # type: ignore[call-overload]
    for op in listed:
        check_operator(op, "operators")
    return listed


def _example(value: object) -> str:
    """Return how to write the operator that a text names or that a value is, or else a matrix product."""
    from perfmodel.operators import class_names, load_operator

    written = {op: name for name, op in class_names().items()}
    op = next((word for word in str(getattr(value, "op", value)).split()[:1] if word in written), "gemm")
    needed = [field.name for field in dataclasses.fields(load_operator(op)) if field.default is dataclasses.MISSING]
    return f"pm.{written[op]}({', '.join(f'{name}=...' for name in needed)})"


def check_list(values: object, what: str, *, place: str, remedy: str) -> None:
    """Raise a UsageError for what is no list of some values."""
    if not _is_list(values):
        raise wrong_type(values, f"list of {what}", place=place, remedy=remedy)


def _is_list(values: object) -> bool:
    """Return whether something has several values; the letters of a text are none."""
    return isinstance(values, Iterable) and not isinstance(values, str)


def check_number(value: object, place: str, remedy: str) -> None:
    """Raise a UsageError for what is neither None nor a number."""
    if isinstance(value, bool) or not isinstance(value, Real | None):
        raise wrong_type(value, "number", place=place, remedy=remedy)


def check_plan(plan: object) -> None:
    """Raise a UsageError for what is no training plan, and for a framework that is not described.

    Plans of published runs name frameworks that are not, for which the nearest stands; a user's word is a misspelling.
    """
    from perfmodel.training.framework import find_framework
    from perfmodel.training.plan import TrainingPlan

    remedy = "Write pm.TrainingPlan(batch=128, seq=4096, tp=2)."
    expect(plan, TrainingPlan, "training plan", place="plan", remedy=remedy)
    find_framework(plan.framework)  # type: ignore[attr-defined]


def cluster_list(clusters: Cluster | Sequence[Cluster]) -> list[Cluster]:
    """Return one cluster, or several, as a list.

    Raises
    ------
    UsageError
        For anything else, with the call that makes a cluster.
    """
    from perfmodel.cluster.cluster import Cluster

    listed: list[Cluster] = list(clusters) if isinstance(clusters, list | tuple) else [clusters]  # type: ignore[list-item]
    if not listed:
        raise UsageError("there is no cluster.", place="cluster", remedy='Write pm.Cluster("h100", gpus=8).')
    for cluster in listed:
        name = cluster if isinstance(cluster, str) else "h100"
        expect(cluster, Cluster, "cluster", place="cluster", remedy=f"Write pm.Cluster({name!r}, gpus=8).")
    return listed


def range_values(ranges: dict[str, Sequence[object]]) -> dict[str, tuple[object, ...]]:
    """Return the values of the ranges of a search; NumPy's whole numbers become Python's.

    Raises
    ------
    UsageError
        For a range that is no list, or that has other values than whole numbers, or names for ``recompute``.
    """
    return {name: _range_of(name, values) for name, values in ranges.items()}


def _range_of(name: str, values: Sequence[object]) -> tuple[object, ...]:
    from perfmodel.training.plan import Recompute

    words = name == "recompute"
    remedy = f"Write {name}={['none', 'full'] if words else [1, 2, 4]!r}."
    check_list(values, "values", place=name, remedy=remedy)
    listed: tuple[Any, ...] = tuple(values)
    for value in listed:
        expect(value, str if words else Integral, "name" if words else "whole number", place=name, remedy=remedy)
    return tuple(Recompute.parse(value, place=name) if words else int(value) for value in listed)


def check_profile(profile: object) -> None:
    """Raise a UsageError for what is no profile."""
    from perfmodel.profile.profile import Profile

    path = os.fspath(profile) if isinstance(profile, str | os.PathLike) else "trace.json.gz"
    expect(profile, Profile, "profile", place="profile", remedy=f"Write pm.read_profile({path!r}).")


def check_economics(economics: object) -> None:
    """Raise a UsageError for what is neither None nor what time costs."""
    from perfmodel.investment.economics import Economics

    remedy = "Write pm.Economics(gpus=64, price_per_gpu_hour=2.5, dev_day_cost=1000)."
    expect(economics, Economics | None, "Economics", place="economics", remedy=remedy)


def check_candidates(candidates: object) -> None:
    """Raise a UsageError for what is neither a plan nor a list of candidates."""
    from perfmodel.investment.plan import Plan
    from perfmodel.profile.candidate import Candidate

    if isinstance(candidates, Plan):
        return
    remedy = 'Write [pm.Candidate("faster norms", ("norm*",), speedup=1.5)], or pm.read_plan("plan.toml").'
    check_list(candidates, "candidates", place="candidates", remedy=remedy)
    for candidate in candidates:  # type: ignore[attr-defined]
        expect(candidate, Candidate, "candidate", place="candidates", remedy=remedy)


def check_scenario(scenario: object) -> None:
    """Raise a UsageError for what is no scenario."""
    from perfmodel.investment.scenario import Scenario

    expect(scenario, Scenario, "scenario", place="scenario", remedy='Write pm.read_scenario("scenario.toml").')

"""A deployment under a load as the baseline of investments: read from a file, and evaluated after changes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from perfmodel import storage
from perfmodel.core.hardware import Hardware
from perfmodel.errors import InputFileError, PerfModelError
from perfmodel.files import holds_keys, read_document
from perfmodel.investment import fields as checked
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.steady import steady
from perfmodel.workloads.catalog import find_model

#: a run of a case generates so many tokens: the times of a profile are seconds for them
TOKENS = 1e6
#: facts of an engine that a file may change, for engines without fused kernels
_ENGINE_KEYS = ("kernels", "passes", "host_s", "gap_s")
_LOAD_KEYS = ("isl", "osl", "users", "prefix")
_OPTIONS = tuple(item.name for item in fields(Deployment) if item.name not in ("config", "hardware", "speculation"))
_DEPLOYMENT_KEYS = ("model", "hardware", *_OPTIONS)


@dataclass(frozen=True)
class Outcome:
    """What a case takes.

    Attributes
    ----------
    time_s, low_s, high_s : time to generate `TOKENS` tokens [s], with its 80 % interval.
    terms_s : its parts, as in a step [s].
    gpus : GPUs that it takes.
    """

    time_s: float
    low_s: float
    high_s: float
    terms_s: Mapping[str, float]
    gpus: int

    @property
    def tokens_per_s(self) -> float:
        """Tokens of answers a second [1/s]."""
        return TOKENS / self.time_s


@dataclass(frozen=True)
class Case:
    """A deployment and the load that it serves.

    Attributes
    ----------
    deployment : what is deployed.
    isl, osl : tokens of a prompt and of an answer.
    users : requests in the system.
    prefix : tokens of each prompt that the prefix cache has.
    source : the file, for messages.
    """

    deployment: Deployment
    isl: float = 1024
    osl: float = 256
    users: float = 64
    prefix: float = 0
    source: str = ""

    def outcome(self) -> Outcome:
        """Return the time of `TOKENS` tokens in the steady state, and its parts.

        Raises
        ------
        UsageError
            When the deployment is impossible, or a length or the load is.
        """
        state = steady(self.deployment, self.isl, self.osl, concurrency=self.users, prefix=self.prefix)
        ends = (state.output_tokens_per_s, state.output_tokens_per_s_high, state.output_tokens_per_s_low)
        time_s, low_s, high_s = (TOKENS / float(rate) for rate in ends)
        steps = TOKENS / float(state.step_tokens)
        terms = {term: float(np.asarray(part_s)) * steps for term, part_s in state.terms_s.items()}
        # no step computes a request that is in the server in front
        terms["host"] = terms.get("host", 0.0) + max(0.0, time_s - sum(terms.values()))
        return Outcome(time_s, low_s, high_s, terms, self.deployment.gpus)


def is_deployment_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a document with a model and a hardware: a deployment, not a profile."""
    return holds_keys(path, frozenset({"model", "hardware"}))


def read_case(path: str | os.PathLike[str], find: Callable[[str], Hardware]) -> tuple[Case, list[Any]]:
    """Return the deployment in a TOML, YAML or JSON file, and its ``[[changes]]``, not checked.

    Keys: model, hardware, and those of `Deployment` (engine, tp, weights, graph, sampling, ...); ``[load]`` with isl,
    osl, users, prefix; ``[engine_facts]`` with kernels, passes, host_s, gap_s, which replace those of the engine's
    profile.

    Parameters
    ----------
    path : the file.
    find : returns the machine with a name.

    Raises
    ------
    InputFileError
        When the file cannot be read, or a key or value is wrong.
    """
    place = storage.one(path)
    document = read_document(path)
    if not isinstance(document, Mapping) or not {"model", "hardware"} <= set(document):
        raise InputFileError("has no model and hardware.", place=place, remedy='Write model = "...", hardware = "...".')
    tables = {"load": _LOAD_KEYS, "engine_facts": _ENGINE_KEYS, "changes": ()}
    checked.check_keys(document, (*_DEPLOYMENT_KEYS, *tables), place)
    load = _table(document, "load", tables["load"], place)
    facts = _table(document, "engine_facts", tables["engine_facts"], place)
    values = {key: document[key] for key in _DEPLOYMENT_KEYS if key in document}
    try:
        machine, model = find(str(values.pop("hardware"))), find_model(str(values.pop("model")))
        deployment = Deployment(model, machine, **values)
        if facts:
            deployment = replace(deployment, engine=replace(deployment.profile, **_facts(facts, place)))
        case = Case(deployment, **_load(load, place), source=place)
        case.outcome()
    except PerfModelError as error:
        raise InputFileError(error.message, place=place, remedy=error.remedy) from None
    changes = document.get("changes", [])
    if not isinstance(changes, list):
        raise InputFileError("changes is not a list.", place=place, remedy="Write one [[changes]] table for each.")
    return case, changes


def _table(document: Mapping[str, Any], key: str, allowed: tuple[str, ...], place: str) -> Mapping[str, Any]:
    table = document.get(key, {})
    if not isinstance(table, Mapping):
        raise InputFileError(f"{key} is not a table.", place=place, remedy=f"Write [{key}].")
    checked.check_keys(table, allowed, f"{place}: {key}")
    return table


def _load(table: Mapping[str, Any], place: str) -> dict[str, float]:
    values = {key: float(checked.number(value, key, place)) for key, value in table.items()}
    for key, value in values.items():
        if not math.isfinite(value):
            raise InputFileError(f"{key} = {value:g} is not finite.", place=f"{place}: load")
    return values


def _facts(table: Mapping[str, Any], place: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in table.items():
        number = checked.number(value, key, f"{place}: engine_facts")
        if not 0 <= number < math.inf:
            raise InputFileError(
                f"{key} = {number:g} is not a finite number from 0 on.", place=f"{place}: engine_facts"
            )
        values[key] = int(number) if key == "kernels" else number
    return values

"""A training plan as the baseline of investments: read from a file, and predicted after changes."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perfmodel import storage
from perfmodel.cluster.cluster import Cluster
from perfmodel.core.hardware import Hardware
from perfmodel.errors import InputFileError, PerfModelError, UsageError
from perfmodel.files import holds_keys, read_document
from perfmodel.investment import fields as checked
from perfmodel.training.framework import find_framework
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.result import TrainingStep
from perfmodel.training.search import full_step
from perfmodel.workloads.catalog import find_model
from perfmodel.workloads.model_config import ModelConfig

#: the profile of a plan is the time of so many tokens, so that batches of several sizes compare
TOKENS = 1e9
CLUSTER_KEYS = ("hardware", "gpus", "gpus_per_node", "nic", "bridge", "host_memory", "host_bandwidth")
PLAN_KEYS = tuple(item.name for item in dataclasses.fields(TrainingPlan))
#: GPUs of a file that does not say
_USUAL_GPUS = 8
_KEYS = ("model", *CLUSTER_KEYS, "plan", "changes")


@dataclass(frozen=True)
class TrainingCase:
    """A model, its cluster and its plan.

    Attributes
    ----------
    config, cluster, plan : what is trained, where and how.
    find : returns the machine with a name, for changes of the machine.
    source : the file, for messages.
    """

    config: ModelConfig
    cluster: Cluster
    plan: TrainingPlan
    find: Callable[[str], Hardware]
    source: str = ""

    def step(self) -> TrainingStep:
        """Return the predicted step.

        Raises
        ------
        UsageError
            When the plan cannot run, does not fit in memory, or names an unknown framework.
        """
        find_framework(self.plan.framework)
        step = full_step(self.config, self.cluster, self.plan)
        if not step.fits:
            whose = "a GPU" if step.memory is None or step.memory.host_fits else "its hosts"
            raise UsageError(
                f"the plan does not fit in the memory of {whose}.",
                place=self.source or "training plan",
                remedy="perfmodel train names the changes after which it does.",
            )
        return step

    def gpu_terms(self) -> dict[str, float]:
        """Return the GPU time of `TOKENS` tokens by term [s]: more GPUs have to pay for themselves."""
        step = self.step()
        scale = TOKENS / step.tokens * self.cluster.gpus
        return {term: time * scale for term, time in step.terms_s.items() if time > 0}

    def changed(self, values: Mapping[str, Any]) -> TrainingCase:
        """Return the case with other values of the plan or the cluster."""
        cluster, own = self.cluster, {key: value for key, value in values.items() if key in CLUSTER_KEYS}
        if own:
            name = own.get("hardware", cluster.hardware.name if "bridge" in own else None)
            hardware = cluster.hardware if name is None else self.find(str(name))
            # another machine comes with hosts and a network of its own
            moved = "hardware" in own
            cluster = Cluster.of(
                hardware,
                int(own.get("gpus", cluster.gpus)),
                gpus_per_node=own.get("gpus_per_node", None if moved else cluster.gpus_per_node),
                nic=own.get("nic", None if moved else cluster.nic_bytes_per_s),
                bridge=_flag(own.get("bridge", True)),
                host_memory=own.get("host_memory", math.nan if moved else cluster.host_memory_bytes),
                host_bandwidth=own.get("host_bandwidth", math.nan if moved else cluster.host_bytes_per_s),
            )
        plan = self.plan.changed(**{key: value for key, value in values.items() if key in PLAN_KEYS})
        return dataclasses.replace(self, cluster=cluster, plan=plan)


def is_training_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a document with a model, a hardware and a plan: training, not a profile."""
    return holds_keys(path, frozenset({"model", "hardware", "plan"}))


def gpus_of(path: str | os.PathLike[str]) -> int | None:
    """Return the GPUs of the training plan in a file; None where the file is none, or says no number.

    Raises
    ------
    InputFileError
        When a pattern matches no file, or more than one.
    """
    if not is_training_file(path):
        return None
    gpus = read_document(storage.one(path)).get("gpus", _USUAL_GPUS)
    return gpus if isinstance(gpus, int) and gpus > 0 else None


def read_training_case(path: str | os.PathLike[str], find: Callable[[str], Hardware]) -> tuple[TrainingCase, list[Any]]:
    """Return the training plan in a TOML, YAML or JSON file, and its ``[[changes]]``, not checked.

    Keys: model, hardware, gpus, gpus_per_node, nic, bridge, host_memory, host_bandwidth, and ``[plan]`` with the
    attributes of `TrainingPlan`.

    Parameters
    ----------
    path : the file.
    find : returns the machine with a name.

    Raises
    ------
    InputFileError
        When the file cannot be read, a key or value is wrong, or the plan cannot run or does not fit.
    """
    place = storage.one(path)
    document = read_document(path)
    checked.check_keys(document, _KEYS, place)
    plan, changes = document["plan"], document.get("changes", [])
    if not isinstance(plan, Mapping) or not isinstance(changes, list):
        raise InputFileError("plan is no table, or changes no list.", place=place, remedy="Write [plan], [[changes]].")
    checked.check_keys(plan, PLAN_KEYS, f"{place}: plan")
    lacking = [key for key in ("batch", "seq") if key not in plan]
    if lacking:
        raise InputFileError(f"the plan has no {' and no '.join(lacking)}.", place=place, remedy="Add batch and seq.")
    try:
        cluster = Cluster.of(
            find(str(document["hardware"])),
            document.get("gpus", _USUAL_GPUS),
            gpus_per_node=document.get("gpus_per_node"),
            nic=document.get("nic"),
            bridge=_flag(document.get("bridge", True)),
            host_memory=document.get("host_memory"),
            host_bandwidth=document.get("host_bandwidth"),
        )
        case = TrainingCase(find_model(str(document["model"])), cluster, TrainingPlan(**plan), find, place)
        case.step()
    except PerfModelError as error:
        raise InputFileError(error.message, place=place, remedy=error.remedy) from None
    return case, changes


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"bridge = {value!r} is neither true nor false.", place="cluster")
    return value

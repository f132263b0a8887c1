"""The memory of published training runs beside its prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping

from perfmodel.accuracy.published import PublishedRow
from perfmodel.cluster.cluster import Cluster
from perfmodel.prediction.stretch import Stretch
from perfmodel.training.constants import constants
from perfmodel.training.memory import training_memory
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.unmeasured import MEMORY
from perfmodel.workloads.model_config import ModelConfig

GIB = 2.0**30


def memory_row(
    config: ModelConfig,
    cluster: Cluster,
    plan: TrainingPlan,
    measured_bytes: float,
    *,
    labels: Mapping[str, str],
    name: str,
    place: str,
    laboratory: str = "",
) -> PublishedRow:
    """Return the memory that a run reserved on its fullest GPU beside the prediction.

    The interval reaches from what lives at the peak to what is reserved with fragmentation; for laboratories whose runs
    were not fitted it also counts what these print: the peak of the allocator, what it has reserved, or the whole
    device's memory in use, and code of their own. There is no rule of thumb.

    Parameters
    ----------
    measured_bytes : what the framework prints [B].
    labels, name, place : as of `PublishedRow`.
    laboratory : who ran it, as in `perfmodel.training.step.train`.
    """
    memory = training_memory(config, cluster, plan)
    low, high = memory.low_bytes, min(memory.high_bytes, memory.capacity_bytes) if memory.fits else memory.high_bytes
    if not constants().ran(laboratory):
        stretch = Stretch(math.log(memory.total_bytes / low), math.log(max(1.0, high / memory.total_bytes)))
        low, high = stretch.beside(Stretch.of(constants().intervals[MEMORY])).around(memory.total_bytes)
    return PublishedRow(
        quantity="memory_bytes",
        measured=measured_bytes,
        predicted=memory.total_bytes,
        low=low,
        high=high,
        baseline=math.nan,
        labels=labels,
        name=name,
        place=place,
    )

"""The memory of published training runs beside its prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping

from perfmodel.accuracy.published import PublishedRow
from perfmodel.cluster.cluster import Cluster
from perfmodel.training.memory import training_memory
from perfmodel.training.plan import TrainingPlan
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
) -> PublishedRow:
    """Return the memory that a run reserved on its fullest GPU beside the prediction.

    The interval reaches from what lives at the peak to what is reserved with fragmentation; there is no rule of thumb.

    Parameters
    ----------
    measured_bytes : what the framework prints [B].
    labels, name, place : as of `PublishedRow`.
    """
    memory = training_memory(config, cluster, plan)
    return PublishedRow(
        quantity="memory_bytes",
        measured=measured_bytes,
        predicted=memory.total_bytes,
        low=memory.low_bytes,
        high=min(memory.high_bytes, memory.capacity_bytes) if memory.fits else memory.high_bytes,
        baseline=math.nan,
        labels=labels,
        name=name,
        place=place,
    )

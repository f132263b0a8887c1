"""GPUs of several kinds in one data parallel run: who gets how much, and what the slowest costs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.cluster.cluster import Cluster
from perfmodel.core.report import Reportable
from perfmodel.errors import UsageError
from perfmodel.training.adapters import adapter_parameters
from perfmodel.training.framework import nearest_framework
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.step import train
from perfmodel.workloads.model_config import ModelConfig


@dataclass(frozen=True)
class MixedStep(Reportable):
    """A step of unequal GPUs.

    Attributes
    ----------
    samples : samples of each GPU, in proportion to its rate as far as whole numbers allow.
    time_s : of the step: the GPU that ends last [s].
    equal_s : the same with equal shares: the slowest GPU sets the step [s].
    bound_s : with shares that need not be whole: all samples over all rates [s].
    names : of the GPUs, or of the clusters that train together.
    exchange_s : of these, the exchange of gradients between the clusters; 0 where a network is unknown [s].
    """

    samples: tuple[int, ...]
    time_s: float
    equal_s: float
    bound_s: float
    names: tuple[str, ...] = ()
    exchange_s: float = 0.0

    @property
    def speedup(self) -> float:
        """Of shares in proportion over equal ones."""
        return self.equal_s / self.time_s


def mixed_step(samples: int, rates_per_s: Sequence[float]) -> MixedStep:
    """Return the step of GPUs that each have a rate.

    Samples go one by one to the GPU that would end first with one more, which makes the longest time the smallest
    possible for whole samples.

    Parameters
    ----------
    samples : of the step, over all GPUs.
    rates_per_s : samples that each GPU trains in a second.

    Raises
    ------
    UsageError
        For no GPU, a rate that is not above 0, or no sample.

    >>> mixed_step(8, [1.0, 3.0]).samples
    (2, 6)
    """
    rates = [float(rate) for rate in rates_per_s]
    if not rates or any(not 0 < rate < math.inf for rate in rates):
        raise UsageError("every GPU needs a rate above 0.", place="mixed GPUs")
    if samples < 1:
        raise UsageError(f"{samples} samples are no step.", place="mixed GPUs")
    total = sum(rates)
    shares = [math.floor(samples * rate / total) for rate in rates]
    for _ in range(samples - sum(shares)):
        first = min(range(len(rates)), key=lambda i: (shares[i] + 1) / rates[i])
        shares[first] += 1
    return MixedStep(
        samples=tuple(shares),
        time_s=max(share / rate for share, rate in zip(shares, rates, strict=True)),
        equal_s=math.ceil(samples / len(rates)) / min(rates),
        bound_s=samples / total,
    )


def mixed_training(config: ModelConfig, clusters: Sequence[Cluster], plan: TrainingPlan) -> MixedStep:
    """Return the step of several clusters that train one model together, data parallel between them.

    Each cluster runs the plan on its own GPUs; its rate is that of its share of the batch by GPUs. Sequences are given
    in proportion to the rates. Gradients that are summed in each cluster are then summed between them, which nothing
    hides (`between_time`).

    Parameters
    ----------
    config : the shapes of the model.
    clusters : one for each kind of GPU.
    plan : how the model is trained; its batch is that of all clusters.

    Raises
    ------
    UsageError
        For fewer than two clusters, and where the plan cannot run on one of them.
    """
    if len(clusters) < 2:
        raise UsageError("mixed GPUs need two kinds.", place="mixed GPUs", remedy="Name a second machine.")
    total = sum(cluster.gpus for cluster in clusters)
    rates = []
    for cluster in clusters:
        unit = plan.dp(cluster.gpus) * plan.micro_batch
        share = max(1, round(plan.batch * cluster.gpus / total / unit)) * unit
        step = train(config, cluster, plan.changed(batch=share))
        rates.append(share / step.time_s)
    shared, between = mixed_step(plan.batch, rates), between_time(config, clusters, plan)
    return dataclasses.replace(
        shared,
        time_s=shared.time_s + between,
        equal_s=shared.equal_s + between,
        bound_s=shared.bound_s + between,
        names=tuple(cluster.name for cluster in clusters),
        exchange_s=between,
    )


def between_time(config: ModelConfig, clusters: Sequence[Cluster], plan: TrainingPlan) -> float:
    """Return the time of a ring all-reduce between clusters, each with the networks of all its GPUs [s].

    2 (k - 1) / k G / W + 2 (k - 1) alpha: k clusters, gradients of G bytes, and W the least bandwidth of one; 0 where
    the network of one is unknown.
    """
    rate = min(cluster.gpus * cluster.network_bytes_per_s for cluster in clusters)
    if any(math.isnan(cluster.network_bytes_per_s) for cluster in clusters):
        return 0.0
    framework, _ = nearest_framework(plan.framework, shards=plan.zero == 3)
    wide = 4.0 if (plan.grad_dtype or framework.gradient_dtype) == "fp32" else 2.0
    trained = adapter_parameters(config, plan.lora) if plan.lora else config.parameters
    k = len(clusters)
    alpha = max(cluster.alpha_s for cluster in clusters)
    return 2.0 * (k - 1) * (trained * wide / k / rate + alpha)

"""GPUs of several kinds in one data parallel run: who gets how much, and what the slowest costs."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

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
    samples : samples of each GPU, in proportion to its rate as far as whole numbers, or units of them, allow.
    time_s : of the step: the GPU that ends last [s].
    equal_s : the same with equal shares: the slowest GPU sets the step [s].
    bound_s : with shares that need not be whole, where all end together [s].
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


def mixed_step(
    samples: int,
    rates_per_s: Sequence[float],
    units: Sequence[int] = (),
    fixed_s: Sequence[float] = (),
    least: Sequence[int] = (),
) -> MixedStep:
    """Return the step of GPUs that each have a rate: with s samples one of rate r ends after t = fixed + s / r.

    The shares make the longest time the smallest possible: equal units of samples go one by one to the GPU that would
    end first with one more; of unequal ones all sums are compared.

    Parameters
    ----------
    samples : of the step, over all GPUs.
    rates_per_s : samples that each GPU trains in a second.
    units : samples that each GPU takes together, of which it has at least one; by default any number, or none.
    fixed_s : time of each GPU beside its samples [s]; by default 0.
    least : samples that each GPU has at least, a multiple of its unit; by default one unit where there are units.

    Raises
    ------
    UsageError
        For no GPU, a rate that is not above 0, no sample, or samples that are no sum of units.

    >>> mixed_step(8, [1.0, 3.0]).samples
    (2, 6)
    >>> mixed_step(12, [1.0, 3.0], units=[4, 4]).samples
    (4, 8)
    """
    rates = [float(rate) for rate in rates_per_s]
    if not rates or any(not 0 < rate < math.inf for rate in rates):
        raise UsageError("every GPU needs a rate above 0.", place="mixed GPUs")
    if samples < 1:
        raise UsageError(f"{samples} samples are no step.", place="mixed GPUs")
    fixed = [float(value) for value in fixed_s] or [0.0] * len(rates)

    def end_s(index: int, share: int) -> float:
        return fixed[index] + share / rates[index] if share else 0.0

    bound = (samples + sum(map(operator.mul, fixed, rates))) / sum(rates)
    steps = list(units) or [1] * len(rates)
    wanted = [math.floor((bound - start) * rate) for start, rate in zip(fixed, rates, strict=True)]
    shares = _shares(samples, steps, list(least) or list(units) or [0] * len(rates), wanted, end_s)
    equal = math.ceil(samples / sum(steps))
    return MixedStep(
        samples=tuple(shares),
        time_s=max(end_s(index, share) for index, share in enumerate(shares)),
        equal_s=max(end_s(index, equal * unit) for index, unit in enumerate(steps)),
        bound_s=bound,
    )


def _shares(
    samples: int, units: Sequence[int], least: Sequence[int], wanted: Sequence[int], end_s: Callable[[int, int], float]
) -> list[int]:
    """Return how many samples each GPU has.

    Parameters
    ----------
    samples : of all.
    units : samples that each takes together.
    least : samples that each has at least.
    wanted : samples that each has in any case, where units are equal and these are fewer than all.
    end_s : number and samples of a GPU -> when it ends [s].

    Raises
    ------
    UsageError
        When the samples are no sum of units.
    """
    left = samples - sum(least)
    if left < 0 or left % math.gcd(*units):
        raise _no_shares(samples, units, sum(least))
    if len(set(units)) > 1:
        return _of_unequal_units(samples, units, least, end_s)
    unit = units[0]
    shares = [max(few, many // unit * unit) for few, many in zip(least, wanted, strict=True)]
    if sum(shares) > samples:
        shares = list(least)
    for _ in range((samples - sum(shares)) // unit):
        first = min(range(len(shares)), key=lambda index: end_s(index, shares[index] + unit))
        shares[first] += unit
    return shares


def _of_unequal_units(
    samples: int, units: Sequence[int], least: Sequence[int], end_s: Callable[[int, int], float]
) -> list[int]:
    """Return the shares with the smallest longest time, by dynamic programming over what the first GPUs have together.

    best_i(s) = min over multiples k of unit i, from its least on, of max(best_(i-1)(s - k), end_i(k)).
    """
    common = math.gcd(*units)
    best = np.full(samples // common + 1, np.inf)
    best[0] = 0.0
    chosen = []
    for index, unit in enumerate(units):
        after, share = np.full(best.size, np.inf), np.zeros(best.size, np.int64)
        for own in range(least[index], samples + 1, unit):
            place = own // common
            ends = np.maximum(best[: best.size - place], end_s(index, own))
            better = ends < after[place:]
            after[place:][better], share[place:][better] = ends[better], own
        best = after
        chosen.append(share)
    if not np.isfinite(best[-1]):
        raise _no_shares(samples, units, sum(least))
    shares, place = [], samples // common
    for share in reversed(chosen):
        shares.append(int(share[place]))
        place -= shares[-1] // common
    return shares[::-1]


def _no_shares(samples: int, units: Sequence[int], least: int) -> UsageError:
    near = max(1, math.ceil(least / sum(units)), round(samples / sum(units))) * sum(units)
    sizes = ", ".join(map(str, units))
    fewest = f", and of {least} at least" if least > sum(units) else ""
    return UsageError(
        f"{samples} sequences are no shares in micro batches of all ranks, which take {sizes} of each cluster{fewest}.",
        place="mixed GPUs",
        remedy=f"Use batch={near}.",
    )


def mixed_training(config: ModelConfig, clusters: Sequence[Cluster], plan: TrainingPlan) -> MixedStep:
    """Return the step of several clusters that train one model together, data parallel between them.

    Each cluster runs the plan on its own GPUs. Sequences are given out in micro batches of all data parallel ranks of a
    cluster, since no GPU runs a part of one, and each cluster has one at least, or as many as its schedule needs. Their
    shares follow from the time of a step with few and with many of them; the times are those of steps with the shares.
    Gradients that are summed in each cluster are then summed between them, which nothing hides (`between_time`).

    Parameters
    ----------
    config : the shapes of the model.
    clusters : one for each kind of GPU.
    plan : how the model is trained; its batch is that of all clusters.

    Raises
    ------
    UsageError
        For fewer than two clusters, where the plan cannot run on one of them, and where the batch is no sum of micro
        batches of all ranks.
    """
    if len(clusters) < 2:
        raise UsageError("mixed GPUs need two kinds.", place="mixed GPUs", remedy="Name a second machine.")

    @functools.cache
    def time_s(index: int, share: int) -> float:
        return train(config, clusters[index], plan.changed(batch=share)).time_s

    units = [plan.batch_unit(cluster.gpus) for cluster in clusters]
    least = [plan.least_batch(cluster.gpus) for cluster in clusters]
    first = least[0] // units[0]
    rounds = max(first + 1, plan.batch // sum(units))
    rates, fixed = [], []
    for index, unit in enumerate(units):
        few, many = time_s(index, first * unit), time_s(index, rounds * unit)
        # of a unit: a pipeline may take no longer for a second one
        each = max((many - few) / (rounds - first), 1e-3 * few / first)
        rates.append(unit / each)
        fixed.append(max(0.0, few - first * each))
    shared = mixed_step(plan.batch, rates, units, fixed, least)
    between = between_time(config, clusters, plan)
    equal = max(first, math.ceil(plan.batch / sum(units)))
    time = max(time_s(index, share) for index, share in enumerate(shared.samples))
    return dataclasses.replace(
        shared,
        time_s=time + between,
        equal_s=max(time_s(index, equal * unit) for index, unit in enumerate(units)) + between,
        bound_s=min(shared.bound_s, time) + between,
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
    trained = adapter_parameters(config, plan.lora, plan.lora_targets) if plan.lora else config.parameters
    k = len(clusters)
    alpha = max(cluster.alpha_s for cluster in clusters)
    return 2.0 * (k - 1) * (trained * wide / k / rate + alpha)

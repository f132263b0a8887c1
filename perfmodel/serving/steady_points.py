"""Points of a serving study from the steady state: means for thousands of loads, without a simulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from perfmodel.core.work import Number
from perfmodel.errors import UsageError
from perfmodel.serving.clock import busiest
from perfmodel.serving.cycle import Steady
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.load import Fleet, limiter_of
from perfmodel.serving.points import CONCURRENCY, Point, Workload, facts_of
from perfmodel.serving.slo import Slo
from perfmodel.serving.steady import steady
from perfmodel.serving.step import Step


def steady_points(
    deployment: Deployment,
    workload: Workload,
    values: Sequence[float],
    *,
    slo: Slo | None = None,
    price_per_gpu_hour: float = math.nan,
) -> list[Point]:
    """Return the steady state at some numbers of clients: means without a simulation.

    Raises
    ------
    UsageError
        When a length or a load is impossible, or an objective is about another statistic than the mean.
    """
    if slo is not None and any(item.statistic != "mean" for item in slo.objectives):
        raise UsageError(f"the steady state has means only, not {slo}.", remedy="Write --slo ...,mean, or simulate.")
    loads, prefix = np.asarray(values, dtype=np.float64), float(workload.cached)
    lengths = {"prefix": prefix, "spread": workload.spread}
    result = steady(deployment, workload.isl, workload.osl, concurrency=loads, **lengths)
    facts = facts_of(deployment, Fleet())
    return [
        _steady_point(deployment, facts, workload, result, index, float(value), slo, price_per_gpu_hour)
        for index, value in enumerate(loads)
    ]


def _steady_point(
    deployment: Deployment,
    facts: Mapping[str, Any],
    workload: Workload,
    result: Steady,
    index: int,
    value: float,
    slo: Slo | None,
    price: float,
) -> Point:
    def at(numbers: Number) -> float:
        return float(np.asarray(numbers).reshape(-1)[index if np.ndim(numbers) else 0])

    figures = _figures(result, workload, at)
    rate = at(result.output_tokens_per_s)
    memory = deployment.memory()
    batch, terms = at(result.batch), {name: at(time) for name, time in result.terms_s.items()}
    step_s = sum(terms.values())
    low, high = rate / at(result.output_tokens_per_s_high), rate / at(result.output_tokens_per_s_low)
    step = Step(step_s, low * step_s, high * step_s, terms)
    answered = busiest(at(result.step_tokens), deployment.parallel.replicas)
    computed = answered * (1.0 + (workload.isl - workload.cached) / workload.osl)
    return Point(
        facts,
        CONCURRENCY,
        value,
        float(workload.isl),
        float(workload.osl),
        figures,
        {
            "output_tokens_per_s": rate,
            "output_tokens_per_s_low": at(result.output_tokens_per_s_low),
            "output_tokens_per_s_high": at(result.output_tokens_per_s_high),
            "total_tokens_per_s": rate * (workload.isl + workload.osl) / workload.osl,
            "requests_per_s": rate / workload.osl,
        },
        {
            "batch": batch,
            "decoding": batch,
            "kv_bytes": at(result.kv_tokens) * memory.kv_bytes_token,
            "kv_share": at(result.kv_tokens) / max(1, memory.kv_tokens),
            "mean_queued": max(0.0, at(result.concurrency) - batch),
            "preemptions_per_request": at(result.preemptions),
        },
        terms,
        (step_s, low * step_s, high * step_s),
        limiter_of(deployment, step, computed),
        price_per_gpu_hour=price,
        attainment=None if slo is None else math.nan,
        missed=() if slo is None else _missed(slo, figures),
    )


def _figures(result: Steady, workload: Workload, at: Callable[[Number], float]) -> dict[str, dict[str, float]]:
    """Return mean, low and high of the latencies at one load."""
    figures = {
        name: {"mean": at(getattr(result, name)), "mean_low": at(getattr(result, f"{name[:-2]}_low_s")),
               "mean_high": at(getattr(result, f"{name[:-2]}_high_s"))}
        for name in ("ttft_s", "tpot_s")
    }  # fmt: skip
    first, later = figures["ttft_s"], figures["tpot_s"]
    figures["latency_s"] = {key: first[key] + (workload.osl - 1) * later[key] for key in first}
    if workload.osl == 1:  # no answer has a further token
        figures["tpot_s"] = dict.fromkeys(later, math.nan)
    return figures


def _missed(slo: Slo, figures: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    """Return the objectives that the means do not meet; in the mean, the gaps between tokens are TPOT.

    As in `perfmodel.serving.slo.Slo.missed`, a quantity that no request has is met.
    """
    names = {"itl": "tpot_s"}
    return tuple(
        str(item) for item in slo.objectives if figures[names.get(item.name, item.quantity)]["mean"] > item.limit_s
    )  # fmt: skip

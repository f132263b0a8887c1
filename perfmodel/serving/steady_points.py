"""Points of a serving study from the steady state: means for thousands of loads, without a simulation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perfmodel.core.work import Number
from perfmodel.serving.cycle import Steady
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.load import Fleet, limiter_of
from perfmodel.serving.points import CONCURRENCY, Point, Workload, facts_of
from perfmodel.serving.slo import Slo
from perfmodel.serving.steady import steady


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
        When a length or a load is impossible.
    """
    loads, prefix = np.asarray(values, dtype=np.float64), float(workload.cached)
    result = steady(deployment, workload.isl, workload.osl, concurrency=loads, prefix=prefix)
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

    figures = {
        name: {"mean": at(getattr(result, name)), "mean_low": at(getattr(result, f"{name[:-2]}_low_s")),
               "mean_high": at(getattr(result, f"{name[:-2]}_high_s"))}
        for name in ("ttft_s", "tpot_s")
    }  # fmt: skip
    figures["latency_s"] = {
        key: figures["ttft_s"][key] + (workload.osl - 1) * figures["tpot_s"][key] for key in figures["ttft_s"]
    }
    rate = at(result.output_tokens_per_s)
    memory = deployment.memory()
    batch, terms = at(result.batch), {name: at(time) for name, time in result.terms_s.items()}
    step = deployment.step(decode=batch, context=workload.isl + workload.osl / 2)
    missed: tuple[str, ...] = ()
    if slo is not None:
        means = {"ttft": "ttft_s", "tpot": "tpot_s", "itl": "tpot_s", "latency": "latency_s"}
        missed = tuple(str(item) for item in slo.objectives if figures[means[item.name]]["mean"] > item.limit_s)
    total_s = sum(terms.values())
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
        },
        terms,
        (total_s, total_s * float(step.low_s / step.time_s), total_s * float(step.high_s / step.time_s)),
        limiter_of(deployment, step, batch * (1 + workload.isl / workload.osl)),
        price_per_gpu_hour=price,
        attainment=None if slo is None else math.nan,
        missed=missed,
    )

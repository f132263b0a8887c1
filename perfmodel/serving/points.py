"""Points of a serving study: a deployment at a load, with its latencies, throughput, cache, limiter, cost and goals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from perfmodel.core.report import Reportable
from perfmodel.core.units import HOUR_S
from perfmodel.core.vocabulary import Limiter
from perfmodel.errors import UsageError
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.kv_link import kv_link
from perfmodel.serving.load import Fleet, limiter_of, mean_step
from perfmodel.serving.replay import PERCENTILES, Replay
from perfmodel.serving.requests import POISSON, Requests, closed_loop, open_loop
from perfmodel.serving.slo import Slo
from perfmodel.serving.stability import sustained_per_s
from perfmodel.serving.steady import steady

CONCURRENCY, QPS, REQUESTS = "concurrency", "qps", "requests"
#: what a load can be: clients of a closed loop, requests a second, a file of requests
LOADS = (CONCURRENCY, QPS, REQUESTS)
#: requests of a closed loop: so many waves, as benchmarks have, but at least and at most so many requests
_WAVES, _LEAST, _MOST = 10, 64, 20_000
#: requests of an open loop, where not told
_OPEN = 1000


@dataclass(frozen=True)
class Workload:
    """The requests of a study.

    Attributes
    ----------
    isl, osl : mean tokens of a prompt and of an answer.
    spread : half the width of the range of both over their mean; of a prompt, over that of its part behind the prefix.
    cached : leading tokens of each prompt that the prefix cache has, the same of all.
    count : requests of each load; 0: ten for each client, or 1000.
    spacing, burstiness, seed : see `perfmodel.serving.requests.open_loop`.
    ramp_s : time over which the users of a closed loop start [s].
    trace : requests of a file, which give the lengths, and the arrivals where the load is "requests".
    """

    isl: float = 1024
    osl: float = 256
    spread: float = 0.0
    cached: int = 0
    count: int = 0
    spacing: str = POISSON
    burstiness: float = 1.0
    seed: int = 0
    ramp_s: float = 0.0
    trace: Requests | None = None

    def requests(self, load: str, value: float) -> Requests:
        """Return the requests of a load.

        Parameters
        ----------
        load : one of `LOADS`.
        value : clients, or requests a second; of no meaning for a file with arrivals.

        Raises
        ------
        UsageError
            When the load or a length is impossible.
        """
        if load == REQUESTS:
            assert self.trace is not None
            return self._with_prefix(self.trace)
        closed = load == CONCURRENCY
        count = self.count or (min(max(_WAVES * int(value), _LEAST), _MOST) if closed else _OPEN)
        isl, osl = self._lengths(count)
        prefix = self.cached if self.trace is None and 0 < self.cached < self.isl else 0
        isl = isl - prefix  # only what comes behind the prefix differs between prompts
        if closed:
            arriving = closed_loop(
                int(value), count, isl, osl, spread=self.spread, ramp_s=self.ramp_s, seed=self.seed
            )  # fmt: skip
        else:
            arriving = open_loop(
                value, count, isl, osl, spacing=self.spacing, burstiness=self.burstiness, spread=self.spread,
                seed=self.seed,
            )  # fmt: skip
        return self._with_prefix(replace(arriving, prompt=arriving.prompt + prefix))

    def _lengths(self, count: int) -> tuple[Any, Any]:
        """Return the means, or the lengths of the file in their order, from its start again where it has too few."""
        if self.trace is None:
            return self.isl, self.osl
        return np.resize(self.trace.prompt, count), np.resize(self.trace.output, count)

    def _with_prefix(self, requests: Requests) -> Requests:
        if not self.cached:
            return requests
        return Requests(requests.arrival_s, requests.prompt, requests.output, requests.concurrency, self.cached)


@dataclass(frozen=True, eq=False)
class Point(Reportable):
    """A deployment at a load.

    Attributes
    ----------
    facts : what was deployed: hardware, engine, tp, pp, ep, dp, weights, kv, replicas, gpus.
    load, value : kind of the load, and its clients or requests a second (NaN for a file).
    isl, osl : mean tokens of a prompt and of an answer.
    figures : statistics of ttft_s, tpot_s, itl_s, latency_s, queued_s: mean, p50, ..., each with low and high.
    rates : output_tokens_per_s, total_tokens_per_s, requests_per_s, with ``_low`` and ``_high`` for the first; and
        sustained_requests_per_s, see `perfmodel.serving.stability.sustained_per_s`.
    state : batch, kv_bytes, kv_share, mean_queued, preemptions, preemptions_per_request, busy_share.
    terms_s : the parts of the mean step [s].
    step_s : time of the mean step, low and high [s].
    limiter : what limits the mean step.
    growth_per_s, capacity_per_s : growth of the queue, and requests that start a second, where the load is above
        capacity; NaN where it is not.
    price_per_gpu_hour : price, or NaN.
    attainment, missed : share of the requests within all objectives, and the objectives that are missed; None and empty
        without objectives.
    replay : the simulation; None for the steady state.
    """

    facts: Mapping[str, Any]
    load: str
    value: float
    isl: float
    osl: float
    figures: Mapping[str, Mapping[str, float]]
    rates: Mapping[str, float]
    state: Mapping[str, float]
    terms_s: Mapping[str, float]
    step_s: tuple[float, float, float]
    limiter: Limiter
    growth_per_s: float = math.nan
    capacity_per_s: float = math.nan
    price_per_gpu_hour: float = math.nan
    attainment: float | None = None
    missed: tuple[str, ...] = ()
    replay: Replay | None = field(default=None, repr=False)

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return int(self.facts["gpus"])

    @property
    def met(self) -> bool:
        """Whether there are objectives, all are met, and the queue does not grow."""
        return self.attainment is not None and not self.missed and math.isnan(self.growth_per_s)

    @property
    def tokens_per_s_per_gpu(self) -> float:
        """Tokens of answers a second and GPU [1/s]."""
        return self.rates["output_tokens_per_s"] / self.gpus

    @property
    def tokens_per_s_per_user(self) -> float:
        """Tokens that one user sees a second, once the first has come [1/s]."""
        return 1.0 / self.figures["tpot_s"]["mean"]

    @property
    def cost_per_million_tokens(self) -> float:
        """Price of a million tokens of answers; NaN without a price."""
        return cost_per_million(self.price_per_gpu_hour, self.gpus, self.rates["output_tokens_per_s"])

    @property
    def requests_per_money(self) -> float:
        """Requests for one unit of the price's currency; NaN without a price."""
        return self.rates["requests_per_s"] * HOUR_S / (self.price_per_gpu_hour * self.gpus)

    @property
    def sustained_per_s(self) -> float:
        """Requests that end a second as long as the load lasts [1/s]."""
        return self.rates.get("sustained_requests_per_s", self.rates["requests_per_s"])

    @property
    def goodput_per_s(self) -> float:
        """Requests a second within all objectives [1/s]; NaN without objectives."""
        return math.nan if self.attainment is None else self.attainment * self.sustained_per_s

    def gpus_for(self, requests_per_s: float) -> int:
        """Return the GPUs of as many of these deployments as serve so many requests a second at this point."""
        return math.ceil(requests_per_s / self.sustained_per_s - 1e-9) * self.gpus


def cost_per_million(price_per_gpu_hour: float, gpus: int, tokens_per_s: float) -> float:
    """Return the price of a million tokens."""
    return 1e6 * price_per_gpu_hour * gpus / HOUR_S / tokens_per_s


def spread_start(deployment: Deployment, workload: Workload, users: float) -> Workload:
    """Return a workload whose users start over the time of one request in the steady state, so that none queue.

    ``users`` are those of the deployment, of which a fleet may have several.
    """
    lengths = {"prefix": float(workload.cached), "spread": workload.spread}
    mean = steady(deployment, workload.isl, workload.osl, concurrency=users, **lengths)
    return replace(workload, ramp_s=float(np.asarray(mean.ttft_s) + workload.osl * np.asarray(mean.tpot_s)))


def facts_of(deployment: Deployment, fleet: Fleet) -> dict[str, Any]:
    """Return what was deployed, for reports."""
    apart = kv_link(deployment, fleet.kv_link_bytes_per_s) if fleet.prefill_replicas else None
    return {
        "hardware": deployment.hardware.name,
        "engine": deployment.profile.name,
        "tp": deployment.tp,
        "pp": deployment.pp,
        "ep": deployment.ep,
        "dp": deployment.dp,
        "hosts": deployment.hosts,
        "weights": deployment.weights,
        "kv": deployment.kv,
        **({"states": deployment.state_dtype} if deployment.config.has_states else {}),
        "max_batched_tokens": deployment.token_budget,
        "policy": fleet.policy_for(deployment).name,
        "replicas": fleet.replicas,
        "prefill_replicas": fleet.prefill_replicas,
        "kv_link_bytes_per_s": apart.bytes_per_s if apart else None,
        "kv_link_basis": apart.basis if apart else None,
        "gpus": deployment.gpus * (fleet.replicas + fleet.prefill_replicas),
        "kv_tokens": deployment.memory().kv_tokens,
    }


def point_of(
    deployment: Deployment,
    fleet: Fleet,
    replay: Replay,
    load: str,
    value: float = math.nan,
    *,
    slo: Slo | None = None,
    percentiles: Sequence[float] = PERCENTILES,
    price_per_gpu_hour: float = math.nan,
) -> Point:
    """Return the figures of a simulation.

    Raises
    ------
    UsageError
        When it was interrupted before a request ended.
    """
    if not replay.count:
        raise UsageError("interrupted before a request ended.", remedy="Let it run longer, or give fewer requests.")
    step = mean_step(deployment, replay)
    names = ("ttft_s", "tpot_s", "itl_s", "latency_s", "queued_s")
    rates = {name: float(getattr(replay, name)) for name in ("output_tokens_per_s", "total_tokens_per_s")}
    rates |= {"requests_per_s": replay.requests_per_s, "sustained_requests_per_s": sustained_per_s(replay)}
    rates["output_tokens_per_s_low"], rates["output_tokens_per_s_high"] = replay.interval("output_tokens_per_s")
    growth = replay.growth
    return Point(
        facts_of(deployment, fleet),
        load,
        value,
        float(replay.requests.prompt.mean()),
        float(replay.requests.output.mean()),
        {name: replay.statistics(name, percentiles) for name in names},
        rates,
        {
            "batch": replay.mean_running,
            "decoding": replay.mean_batch,
            "mean_queued": replay.mean_queued,
            "kv_bytes": replay.kv_bytes,
            "kv_share": replay.kv_share,
            "preemptions": replay.preemptions,
            "preemptions_per_request": replay.preemptions / int(np.isfinite(replay.started_s).sum()),
            "busy_share": replay.busy_share,
        },
        {name: float(np.asarray(value)) for name, value in step.terms_s.items()},
        (float(step.time_s), float(step.low_s), float(step.high_s)),
        limiter_of(deployment, step, replay.computed_tokens / max(1, replay.steps)),
        math.nan if growth is None else growth.per_s,
        math.nan if growth is None else growth.capacity_per_s,
        price_per_gpu_hour,
        None if slo is None else slo.attainment(replay),
        () if slo is None else tuple(map(str, slo.missed(replay))),
        replay,
    )

"""The steady state of a deployment to which requests come at random times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perfmodel.core.work import Number, plain
from perfmodel.errors import UsageError
from perfmodel.serving.cost import Array
from perfmodel.serving.cycle import Steady
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.steady import capacity, steady

#: halvings of the interval in which the number of running sequences lies
_HALVINGS = 24


def open_loop(deployment: Deployment, isl: Number, osl: Number, qps: Number, *, prefix: Number = 0.0) -> Steady:
    """Return throughput and latency under requests that arrive at random, ``qps`` a second (Poisson).

    Little's law: a request finds qps x (its own time in the system) others there, so that B = 1 + qps T(B) run. A
    prompt also waits for the rest of the step in progress, and for other prompts as in a queue with constant service
    times, rho / (2 (1 - rho)) s (Pollaczek and Khinchine).

    Parameters
    ----------
    isl, osl : mean tokens of a prompt and of an answer.
    qps : requests a second, of the whole deployment.
    prefix : tokens of the prompt that the cache already has.

    Raises
    ------
    UsageError
        As `steady`; for a rate that is not above 0; and when the load is above the capacity, whose queue never ends.
    """
    rate = np.asarray(qps, dtype=np.float64)
    if np.any(~np.isfinite(rate)) or np.any(rate <= 0):
        raise UsageError("the rate of requests is not above 0.", place="qps", remedy="Give requests a second.")
    most = capacity(deployment, isl, osl)
    shape = np.broadcast_shapes(rate.shape, np.shape(isl), np.shape(osl))
    low, high = np.ones(shape), np.maximum(1.0, np.broadcast_to(np.asarray(most, dtype=np.float64), shape))
    full = steady(deployment, isl, osl, batch=high, prefix=prefix)
    served = np.asarray(full.output_tokens_per_s) / np.asarray(osl)
    if np.any(rate >= served):
        worst = int(np.argmax(np.broadcast_to(rate / served, shape)))
        load, room = (float(np.broadcast_to(value, shape).flat[worst]) for value in (rate, served))
        raise UsageError(
            f"{load:.4g} requests a second are more than the deployment's {room:.4g}: the queue grows by "
            f"{load - room:.3g} a second.",
            place="qps",
            remedy="Lower the rate, or add replicas.",
        )
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        state = steady(deployment, isl, osl, batch=middle, prefix=prefix)
        time = np.asarray(state.ttft_s) + np.asarray(state.tpot_s) * osl
        more = 1.0 + rate * time > middle
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return _queued(steady(deployment, isl, osl, batch=high, prefix=prefix), rate, deployment.dp)


def _queued(state: Steady, rate: Array, copies: int) -> Steady:
    """Return the state with the waiting of prompts, and the throughput of the load."""
    first, token = np.asarray(state.ttft_s), np.asarray(state.tpot_s)
    busy = np.minimum(0.98, rate / copies * np.maximum(first - token, 0.0))
    waiting = 0.5 * token + busy / (2.0 * (1.0 - busy)) * first
    ratio, tokens = (first + waiting) / first, rate * np.asarray(state.osl)
    return replace(
        state,
        ttft_s=plain(first + waiting),
        ttft_low_s=plain(np.asarray(state.ttft_low_s) * ratio),
        ttft_high_s=plain(np.asarray(state.ttft_high_s) * ratio),
        concurrency=state.batch,
        output_tokens_per_s=plain(tokens),
        output_tokens_per_s_low=plain(tokens),
        output_tokens_per_s_high=plain(tokens),
        tokens_per_s_per_gpu=plain(
            tokens * np.asarray(state.tokens_per_s_per_gpu) / np.asarray(state.output_tokens_per_s)
        ),
    )

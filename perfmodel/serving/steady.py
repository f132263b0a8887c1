"""The steady state of a deployment under load: throughput and latency without a simulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from perfmodel.core.work import Number, plain
from perfmodel.errors import UsageError, expect, suggesting
from perfmodel.serving.clients import Clients, Places, unlimited
from perfmodel.serving.cost import Array
from perfmodel.serving.cycle import Cycle, Steady
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.full_cache import places
from perfmodel.serving.given import check_prefix
from perfmodel.serving.load import Fleet
from perfmodel.serving.prompts_first import PromptsFirst
from perfmodel.serving.static_batch import batches_in_turn
from perfmodel.serving.step_input import arrays, common_shape


@suggesting
def steady(
    deployment: Deployment,
    isl: Number,
    osl: Number,
    *,
    batch: Number | None = None,
    concurrency: Number | None = None,
    prefix: Number = 0.0,
    requests: Number | None = None,
    spread: float = 0.0,
) -> Steady:
    """Return throughput and latency of a deployment that is kept busy by a constant number of requests.

    While a sequence decodes its ``osl`` tokens, each of the B sequences is replaced once, so that the prompts of B
    sequences are read. The steps that read them are longer:

        t_cycle = osl t(B, c) + N (t(B, c, prompts) - t(B, c)),  c = isl + osl / 2,  N the steps with prompts.

    An engine with static batches computes them in turn, see `perfmodel.serving.static_batch.batches_in_turn`. Copies of
    the model that share nothing (dp without ep) are replicas, among which the requests are dealt out evenly.

    Parameters
    ----------
    isl, osl : tokens of a prompt and of an answer.
    batch : sequences that run at once; by default as many as fit, of static batches those of the simulation's policy.
    concurrency : requests in the system; those that do not fit wait, and engines that admit them by their prompts
        preempt some, see `perfmodel.serving.full_cache.places`. A ``batch`` is never preempted.
    prefix : tokens of the prompt that the cache already has.
    requests : requests of the whole run, of one length, for a throughput with its ends: they run in waves, and the last
        one need not be full. None: an endless run.
    spread : half the width of the range of both lengths over their mean, as `perfmodel.serving.requests.lengths` has
        it, of a prompt that of its part behind the prefix. It matters where the cache is full.

    Raises
    ------
    UsageError
        For lengths or a load below 1, lengths beyond the model's positions, when not one sequence fits, and for an
        argument of a wrong type.
    """
    remedy = 'Write pm.Deployment("llama-3.1-8b", "h100").'
    expect(deployment, Deployment, "deployment", place="deployment", remedy=remedy)
    if batch is not None and concurrency is not None:
        raise UsageError("batch and concurrency are both given.", place="steady", remedy="Give one of them.")
    load = {"concurrency": concurrency} if batch is None else {"batch": batch}
    optional = {name: value for name, value in {**load, "requests": requests}.items() if value is not None}
    named = arrays("steady", {"isl": isl, "osl": osl, "prefix": prefix, **optional})
    common_shape("steady", named)
    prompt, answer, cached = named["isl"], named["osl"], named["prefix"]
    _check(deployment, prompt, answer, cached)
    most = np.asarray((capacity if batch is None else _fitting)(deployment, prompt, answer, cached), dtype=np.float64)
    users = next((named[name] for name in load if name in named), most)
    if not np.all(users >= 1):  # NaN neither
        raise UsageError("the load is below 1.", place="steady", remedy="Give a batch or a concurrency from 1 on.")
    count = named.get("requests")
    if count is not None:
        if not np.all(count >= 1):  # NaN neither
            raise UsageError("requests are below 1.", place="steady", remedy="Give 1 or more, or leave them out.")
        users = np.minimum(users, count)
    one, copies, lengths = deployment.replica, deployment.parallel.replicas, (prompt, answer, cached)
    busy = np.minimum(users, copies)
    if concurrency is None or _static_batch(one):
        held = unlimited(np.minimum(users, most) / busy)
    else:
        held = places(one, *lengths, users / busy, spread)

    def state(held: Places, busy: Array, waves: Array | float = np.inf) -> Steady:
        clients = Clients(*lengths, users / busy, np.asarray(waves), held)
        if _static_batch(one):
            alone = batches_in_turn(one, clients)
        else:
            alone = (Cycle if one.profile.scheduler == "chunked" else PromptsFirst)(one, clients).result()
        return alone if copies == 1 else _together(alone, busy, copies)

    if count is None:
        return state(held, busy)
    rest = _rest(count, held.running * busy)
    last = np.minimum(rest, copies)
    return _with_ends(state(held, busy, count / users), state(unlimited(rest / last), last), count)


def _together(one: Steady, busy: Array, copies: int) -> Steady:
    """Return what so many copies have together, of which some are busy and each of these is as one."""
    names = ("concurrency", "batch", "output_tokens_per_s", "output_tokens_per_s_low", "output_tokens_per_s_high",
             "kv_tokens", "step_tokens")  # fmt: skip
    changed: dict[str, Any] = {name: plain(np.asarray(getattr(one, name)) * busy) for name in names}
    changed["tokens_per_s_per_gpu"] = plain(np.asarray(one.tokens_per_s_per_gpu) * busy / copies)
    return replace(one, **changed)


def capacity(deployment: Deployment, isl: Number, osl: Number, prefix: Number = 0.0) -> Number:
    """Return how many sequences of these lengths run at once: as many as fit, and the engine's limit at most.

    A static batch has no more than those of the simulation's policy. All share a cached prefix of their prompts. Copies
    that share nothing have as many each.

    Raises
    ------
    UsageError
        When not one fits.
    """
    one, copies = deployment.replica, deployment.parallel.replicas
    most = np.minimum(_fitting(deployment, isl, osl, prefix), copies * (_static_batch(one) or np.inf))
    return plain(most)


def _static_batch(deployment: Deployment) -> int:
    """Return the requests of a batch of the engine's scheduler; 0 for continuous batching."""
    return Fleet().policy_for(deployment).batch


def _fitting(deployment: Deployment, isl: Number, osl: Number, prefix: Number) -> Number:
    one = deployment.replica
    memory = one.memory()
    most = np.minimum(np.asarray(memory.most(isl, osl, prefix)), one.sequence_limit)
    if np.any(most < 1):
        raise UsageError(
            f"not one sequence of {np.max(np.add(isl, osl)):.0f} tokens fits: {memory.room()}.",
            place="deployment",
            remedy="Use more GPUs, fewer bits, or shorter sequences.",
        )
    return plain(most * deployment.parallel.replicas)


def _rest(requests: Array, running: Array) -> Array:
    """Return the requests of the last wave: those beyond full waves, or a full wave."""
    rest = np.mod(requests, running)
    return np.where(rest > 0, rest, running)


def _with_ends(full: Steady, end: Steady, requests: Array) -> Steady:
    """Return a run of so many requests: full waves, and a last one of fewer sequences."""
    running = np.asarray(full.batch)
    rest = np.asarray(end.batch)
    whole = (requests - rest) / running
    tokens = requests * np.asarray(full.osl)
    time = whole * running * full.osl / full.output_tokens_per_s + rest * full.osl / end.output_tokens_per_s
    share = tokens / time / np.asarray(full.output_tokens_per_s)
    changed: dict[str, Any] = {
        name: plain(np.asarray(getattr(full, name)) * share)
        for name in ("output_tokens_per_s", "output_tokens_per_s_low", "output_tokens_per_s_high",
                     "tokens_per_s_per_gpu")
    }  # fmt: skip
    return replace(full, **changed)


def _check(deployment: Deployment, isl: Number, osl: Number, prefix: Number) -> None:
    for name, value in {"isl": isl, "osl": osl}.items():
        if not np.all(np.isfinite(value)):
            raise UsageError(f"{name} is not finite.", place="steady", remedy="Give whole numbers of tokens.")
        if np.any(np.less(value, 1)):
            raise UsageError(f"{name} is below 1.", place="steady", remedy="Give whole numbers of tokens.")
    check_prefix(deployment.config, prefix)
    if np.any(np.greater_equal(prefix, isl)) or np.any(np.less(prefix, 0)):
        raise UsageError(
            f"a cached prefix of {np.max(prefix):.12g} tokens is not shorter than the prompt of {np.min(isl):.12g}.",
            place="prefix",
            remedy="Give a longer prompt, or a shorter prefix.",
        )
    deployment.check_length(float(np.max(np.add(isl, osl))))

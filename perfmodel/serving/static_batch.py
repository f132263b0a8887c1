"""Static batches: all prompts start and end at once, in one batch, as benchmarks run it, or in one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perfmodel.core.work import Number, plain
from perfmodel.serving.clients import Clients
from perfmodel.serving.cost import Array
from perfmodel.serving.cycle import Steady
from perfmodel.serving.deployment import Deployment


@dataclass(frozen=True)
class StaticBatch:
    """Times of one batch; numbers are floats, or arrays for arrays of batches and lengths.

    Attributes
    ----------
    batch, isl, osl : sequences, and tokens of each prompt and answer.
    ttft_s, tpot_s : time until every sequence has its first token, and of each further one [s], with 80 % intervals.
    output_tokens_per_s : tokens of answers over the whole time, with its interval [1/s].
    steps : that give an answer: those of the prompts, and one or less for each further token.
    terms_s : parts of the mean step [s].
    """

    batch: Number
    isl: Number
    osl: Number
    ttft_s: Number
    ttft_low_s: Number
    ttft_high_s: Number
    tpot_s: Number
    tpot_low_s: Number
    tpot_high_s: Number
    output_tokens_per_s: Number
    output_tokens_per_s_low: Number
    output_tokens_per_s_high: Number
    steps: Number
    terms_s: Mapping[str, Number]


def static_batch(deployment: Deployment, batch: Number, isl: Number, osl: Number, prefix: Number = 0.0) -> StaticBatch:
    """Return the times of a batch: its prompts in steps of the budget of tokens, then osl - 1 steps of decode.

    t = ceil(B (isl - prefix) / budget) t(prompts) + (osl - 1) t(B, isl + osl / 2); a step of a speculative decode
    gives several tokens. An engine of static batches computes all prompts in one step, as its simulation does: such
    a ``generate()`` calls the model once for them, whatever their tokens.

    Parameters
    ----------
    deployment : what is deployed.
    batch : sequences.
    isl, osl : tokens of a prompt and of an answer.
    prefix : tokens of each prompt that the cache already has.

    Raises
    ------
    UsageError
        When a sequence is longer than the model's positions.
    """
    count, prompt, answer, cached = (np.asarray(value, dtype=np.float64) for value in (batch, isl, osl, prefix))
    read, further = prompt - cached, (answer - 1.0) / deployment.gained
    whole_batch = deployment.profile.scheduler == "static"
    budget = np.inf if whole_batch else float(deployment.token_budget * deployment.slots)
    steps = np.maximum(1.0, np.ceil(count * read / budget))
    each = count / steps  # prompts of a step; below 1 where a prompt takes several
    whole = np.maximum(each, 1.0)
    new = read * each / whole
    first = deployment.step(prefill=[(whole, new, cached + (read + new) / 2.0)], rows=each)
    token = deployment.step(decode=count, context=prompt + answer / 2.0)
    ttft = steps * np.asarray(first.time_s)
    time = ttft + further * np.asarray(token.time_s)
    ends = [
        steps * np.asarray(a) + further * np.asarray(b)
        for a, b in ((first.low_s, token.low_s), (first.high_s, token.high_s))
    ]
    tokens = count * answer
    start = deployment.host.front_end_s
    soon, late = (start + steps * np.asarray(end) for end in (first.low_s, first.high_s))
    ttft_low, ttft_high = deployment.first_ends.widened(start + ttft, soon, late)
    terms = {
        name: plain((steps * first.terms_s.get(name, 0.0) + further * token.terms_s.get(name, 0.0)) / (steps + further))
        for name in {**first.terms_s, **token.terms_s}
    }
    token_s, fast, slow = (plain(np.divide(v, deployment.gained)) for v in (token.time_s, token.low_s, token.high_s))
    return StaticBatch(
        plain(count), plain(prompt), plain(answer),
        plain(start + ttft), ttft_low, ttft_high, token_s, fast, slow,
        plain(tokens / time), plain(tokens / ends[1]), plain(tokens / ends[0]), plain(steps + further), terms,
    )  # fmt: skip


def batches_in_turn(deployment: Deployment, clients: Clients) -> Steady:
    """Return throughput and latency of an engine that computes one batch after the other, for ever.

    A batch of B takes t, see `static_batch`. By Little's law (Little 1961, "A proof for the queuing formula") a request
    of one of U users takes

        latency = U / B (t + away),  TTFT = latency - (osl - 1) TPOT,

    since all requests that are in the system before it are answered first. The engine is idle for the time ``away``
    that the next requests of a batch's users spend in the server in front, unless others fill the next batch.

    Parameters
    ----------
    deployment : what is deployed.
    clients : the requests; those that run are a batch.
    """
    isl, osl, prefix, users, running = clients.isl, clients.osl, clients.prefix, clients.users, clients.running
    batch = static_batch(deployment, running, isl, osl, prefix)
    away_s = np.where(users < 2.0 * running, deployment.host.front_end_s, 0.0)
    tokens = running * osl

    def at(rate: Number, tpot_s: Number) -> tuple[Array, Array]:
        """Return tokens a second, and the time to the first one, from those of a batch alone."""
        turn_s = tokens / rate + away_s
        return tokens / turn_s, users / running * turn_s - (osl - 1.0) * tpot_s

    rate, ttft = at(batch.output_tokens_per_s, batch.tpot_s)
    high, soon = at(batch.output_tokens_per_s_high, batch.tpot_low_s)
    low, late = at(batch.output_tokens_per_s_low, batch.tpot_high_s)
    ttft_low, ttft_high = deployment.first_ends.widened(ttft, soon, late)
    memory = deployment.memory()
    values = {
        "isl": isl, "osl": osl, "concurrency": users, "batch": running,
        "ttft_s": ttft, "ttft_low_s": ttft_low, "ttft_high_s": ttft_high,
        "tpot_s": batch.tpot_s, "tpot_low_s": batch.tpot_low_s, "tpot_high_s": batch.tpot_high_s,
        "output_tokens_per_s": rate, "output_tokens_per_s_low": low, "output_tokens_per_s_high": high,
        "tokens_per_s_per_gpu": rate / deployment.gpus, "tokens_per_s_per_user": 1.0 / np.asarray(batch.tpot_s),
        "kv_tokens": memory.shared(prefix) + running * memory.of_sequence(memory.length(isl - prefix, osl)),
        "step_tokens": tokens / np.asarray(batch.steps),
        "preemptions": 0.0,
    }  # fmt: skip
    shape = np.broadcast_shapes(*(np.shape(value) for value in values.values()))
    return Steady(
        **{name: plain(np.broadcast_to(value, shape)) for name, value in values.items()}, terms_s=batch.terms_s
    )

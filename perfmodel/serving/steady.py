"""The steady state of a deployment under load: throughput and latency without a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from perfmodel.core.report import Reportable
from perfmodel.core.work import Number, plain
from perfmodel.errors import UsageError
from perfmodel.serving.cost import Array
from perfmodel.serving.deployment import Deployment

#: closed-loop benchmarks run so many requests for each user: the first of them find an empty server and queue for it
WAVES = 10.0


@dataclass(frozen=True)
class Steady(Reportable):
    """Throughput and latency at some loads; numbers are floats, or arrays for arrays of loads and lengths.

    Attributes
    ----------
    isl, osl : tokens of a prompt and of an answer.
    concurrency : requests that are in the system.
    batch : sequences that run at once.
    ttft_s, tpot_s : mean time to the first token, and mean time of each further one [s], with their 80 % intervals.
    output_tokens_per_s : tokens of answers a second, of the whole deployment, with its interval.
    tokens_per_s_per_gpu, tokens_per_s_per_user : the same for each GPU; one over the time of a token.
    kv_tokens : tokens of keys and values in use.
    terms_s : parts of the mean step [s].
    """

    isl: Number
    osl: Number
    concurrency: Number
    batch: Number
    ttft_s: Number
    ttft_low_s: Number
    ttft_high_s: Number
    tpot_s: Number
    tpot_low_s: Number
    tpot_high_s: Number
    output_tokens_per_s: Number
    output_tokens_per_s_low: Number
    output_tokens_per_s_high: Number
    tokens_per_s_per_gpu: Number
    tokens_per_s_per_user: Number
    kv_tokens: Number
    terms_s: Mapping[str, Number]


def steady(
    deployment: Deployment,
    isl: Number,
    osl: Number,
    *,
    batch: Number | None = None,
    concurrency: Number | None = None,
    prefix: Number = 0.0,
    requests: Number | None = None,
) -> Steady:
    """Return throughput and latency of a deployment that is kept busy by a constant number of requests.

    While a sequence decodes its ``osl`` tokens, each of the B sequences is replaced once, so that the prompts of B
    sequences are read. The steps that read them are longer:

        t_cycle = osl t(B, c) + N (t(B, c, prompts) - t(B, c)),  c = isl + osl / 2,  N the steps with prompts.

    Parameters
    ----------
    isl, osl : tokens of a prompt and of an answer.
    batch : sequences that run at once; by default as many as fit.
    concurrency : requests in the system; those that do not fit wait.
    prefix : tokens of the prompt that the cache already has.
    requests : requests of the whole run, of one length, for a throughput with its ends: they run in waves, and the last
        one need not be full. None: an endless run.

    Raises
    ------
    UsageError
        For lengths below 1 or beyond the model's positions, and when neither a sequence fits.
    """
    _check(deployment, isl, osl, prefix)
    memory = deployment.memory()
    prompt, answer, cached = (np.asarray(value, dtype=np.float64) for value in (isl, osl, prefix))
    most = np.minimum(np.asarray(memory.most(prompt, answer)), deployment.sequence_limit)
    if np.any(most < 1):
        raise UsageError(
            f"not one sequence of {isl} + {osl} tokens fits: there is room for {memory.kv_tokens} tokens.",
            place="deployment",
            remedy="Use more GPUs, fewer bits, or shorter sequences.",
        )
    wanted = concurrency if batch is None else batch
    users = most if wanted is None else np.asarray(wanted, dtype=np.float64)
    if np.any(users <= 0):
        raise UsageError("the load is not above 0.", place="steady", remedy="Give a batch or a concurrency from 1 on.")
    running = np.minimum(users, most)
    if requests is None:
        return _Cycle(deployment, prompt, answer, cached, users, running).result()
    count = np.asarray(requests, dtype=np.float64)
    running = np.minimum(running, count)
    endless = _Cycle(deployment, prompt, answer, cached, users, running).result()
    return _with_ends(
        deployment, endless, _Cycle(deployment, prompt, answer, cached, users, _rest(count, running)), count
    )


def _rest(requests: Array, running: Array) -> Array:
    """Return the requests of the last wave: those beyond full waves, or a full wave."""
    rest = np.mod(requests, running)
    return np.where(rest > 0, rest, running)


def _with_ends(deployment: Deployment, full: Steady, last: _Cycle, requests: Array) -> Steady:
    """Return a run of so many requests: full waves, and a last one of fewer sequences."""
    running = np.asarray(full.batch)
    end = last.result()
    rest = np.asarray(end.batch)
    whole = (requests - rest) / running
    tokens = requests * np.asarray(full.osl)
    time = whole * running * full.osl / full.output_tokens_per_s + rest * full.osl / end.output_tokens_per_s
    share = tokens / time / np.asarray(full.output_tokens_per_s)
    changed = {
        name: plain(np.asarray(getattr(full, name)) * share)
        for name in ("output_tokens_per_s", "output_tokens_per_s_low", "output_tokens_per_s_high",
                     "tokens_per_s_per_gpu")
    }  # fmt: skip
    return replace(full, **changed)


def _check(deployment: Deployment, isl: Number, osl: Number, prefix: Number) -> None:
    for name, value in {"isl": isl, "osl": osl}.items():
        if np.any(~np.isfinite(value)) or np.any(np.less(value, 1)):
            raise UsageError(f"{name} is below 1.", place="steady", remedy="Give whole numbers of tokens.")
    if np.any(np.greater_equal(prefix, isl)) or np.any(np.less(prefix, 0)):
        raise UsageError("the cached prefix is not shorter than the prompt.", place="prefix")
    deployment.check_length(float(np.max(np.add(isl, osl))))


class _Cycle:
    """The steps in which each running sequence is replaced once."""

    def __init__(
        self, deployment: Deployment, isl: Array, osl: Array, prefix: Array, users: Array, running: Array
    ) -> None:
        self.deployment, self.users = deployment, users
        shape = np.broadcast_shapes(isl.shape, osl.shape, prefix.shape, users.shape, running.shape)
        self.isl, self.osl, prefix, self.running = (np.broadcast_to(v, shape) for v in (isl, osl, prefix, running))
        copies = deployment.dp
        new = self.isl - prefix
        # A copy reads whole prompts, as many as end in a step and the budget has room for, or one in several chunks.
        each = self.running / copies
        room = np.maximum(64.0, deployment.token_budget - each)
        self.prompts = np.clip(each / self.osl, 1.0, np.maximum(1.0, np.floor(room / new)))
        self.prompts = np.minimum(self.prompts, np.maximum(each, 1.0))
        self.chunks = np.maximum(1.0, np.ceil(new / room))
        self.new = new / self.chunks
        self.steps = each / self.prompts * self.chunks
        self.context = self.isl + self.osl / 2.0
        decoding = np.maximum(self.running - copies * self.prompts, 0.0)
        keys = self.isl - (self.chunks - 1.0) / 2.0 * self.new
        self.decode = deployment.device(self.running, self.context, [], self.running)
        count = copies * self.prompts
        self.mixed = deployment.device(
            decoding, self.context, [(count, self.new, keys)], decoding + count / self.chunks
        )

    def result(self) -> Steady:
        """Return throughput and latency."""
        deployment, osl, running = self.deployment, self.osl, self.running
        mixed = deployment.finished(self.mixed, running)
        cycle = deployment.finished(self.decode.blend(self.mixed, self.steps / osl), running)
        others = self.steps * np.maximum(0.0, 1.0 - deployment.dp / running)
        token = deployment.finished(self.decode.blend(self.mixed, others / osl), running)
        step, each = np.asarray(cycle.time_s), np.asarray(token.time_s)
        width, wide = np.asarray(cycle.high_s) / step, np.asarray(token.high_s) / each
        rate = running / step
        # a user's first request finds all others waiting for their prompts too, later ones at most those of one step
        own = self.chunks * np.asarray(mixed.time_s)
        busy = np.minimum(1.0, self.steps / osl)
        first = own * (1.0 + np.maximum(0.0, self.steps / self.chunks - 1.0) / 2.0)
        served = own * (1.0 + busy / 2.0) * (1.0 - 1.0 / WAVES) + first / WAVES
        ttft = deployment.profile.front_end_s + served + np.maximum(0.0, self.users - running) / rate * osl
        ratio = np.asarray(mixed.high_s) / np.asarray(mixed.time_s)
        values = {
            "ttft_s": ttft, "ttft_low_s": ttft / ratio, "ttft_high_s": ttft * ratio,
            "tpot_s": each, "tpot_low_s": each / wide, "tpot_high_s": each * wide,
            "output_tokens_per_s": rate,
            "output_tokens_per_s_low": rate / width, "output_tokens_per_s_high": rate * width,
            "tokens_per_s_per_gpu": rate / deployment.gpus, "tokens_per_s_per_user": 1.0 / each,
            "kv_tokens": self.running * self.context,
        }  # fmt: skip
        shape = step.shape
        return Steady(
            plain(self.isl), plain(self.osl), plain(np.broadcast_to(self.users, shape)), plain(self.running),
            **{name: plain(value) for name, value in values.items()}, terms_s=cycle.terms_s,
        )  # fmt: skip

"""The steps in which every running sequence is replaced once: throughput and latency of a steady state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perfmodel.core.report import Reportable
from perfmodel.core.work import Number, plain, same
from perfmodel.serving.clock import busiest
from perfmodel.serving.cost import Array
from perfmodel.serving.deployment import Deployment

#: steps of decode that a request waits for before its prompt is read, where others run: half of the running one, and
#: the one that engines schedule ahead while it runs (vLLM's async scheduling, SGLang's and TensorRT-LLM's overlap)
WAITED_STEPS = 1.5


@dataclass(frozen=True, eq=False)
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
    kv_tokens : tokens of keys and values in use; one that some layers have forgotten counts as the rest of it.
    step_tokens : tokens of answers that the mean step gives; fewer than ``batch`` where prompts fill several steps.
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
    step_tokens: Number
    terms_s: Mapping[str, Number]

    def __eq__(self, other: object) -> bool:
        """Return whether another one has the same numbers, at all points where they are arrays."""
        return same(vars(self), vars(other)) if isinstance(other, Steady) else NotImplemented


class Cycle:
    """The steps in which each running sequence is replaced once."""

    def __init__(
        self,
        deployment: Deployment,
        isl: Array,
        osl: Array,
        prefix: Array,
        users: Array,
        running: Array,
        waves: Array | float = np.inf,
    ) -> None:
        self.deployment, self.users, self.waves = deployment, users, waves
        shape = np.broadcast_shapes(isl.shape, osl.shape, prefix.shape, users.shape, running.shape)
        self.isl, self.osl, self.prefix, running = (np.broadcast_to(v, shape) for v in (isl, osl, prefix, running))
        slots = deployment.slots
        new = self.isl - self.prefix
        self.answer = 1.0 + (self.osl - 1.0) / deployment.gained  # steps of an answer: the prompt's gives one token
        # Where every step is full, r prompts end in each, and as many answers, which decode the rest of the steps:
        # r new + r (answer - 1) = budget. A long prompt fills several steps, so that one of them is always read, and
        # r (answer - 1) + max(1, r) sequences have a place. All others wait.
        ended = deployment.token_budget / (new + self.answer - 1.0)
        most = ended * (self.answer - 1.0) + np.maximum(1.0, ended)
        full = running > slots * most
        self.running = np.where(full, slots * most, running)
        # A copy, or a micro-batch of a pipeline, reads whole prompts, as many as end in a step and the budget has room
        # for, or one in several chunks.
        each = np.where(full, most, busiest(self.running, slots))
        room = np.maximum(64.0, deployment.token_budget - np.maximum(0.0, each - 1.0))  # one at least decodes nothing
        whole = np.clip(each / self.answer, 1.0, np.maximum(1.0, np.floor(room / new)))
        self.prompts = np.where(full, np.maximum(1.0, ended), np.minimum(whole, np.maximum(each, 1.0)))
        self.chunks = np.where(full, 1.0 / np.minimum(1.0, ended), np.ceil(np.maximum(1.0, new / room)))
        self.new = new / self.chunks
        own = each / self.prompts * self.chunks
        # steps from the first of a prompt to the last token, in which each sequence is replaced once
        self.life = np.maximum(self.answer - 1.0 + self.chunks, own)
        meeting, self.steps = self._meeting(slots, own)
        self.context = self.isl + self.osl / 2.0
        count = np.minimum(meeting * self.prompts, np.maximum(self.running, 1.0))
        decoding = np.maximum(self.running - count, 0.0)
        keys = self.isl - (self.chunks - 1.0) / 2.0 * self.new
        self.decode = deployment.device(self.running, self.context)
        prompts = [(count, self.new, keys)]
        self.mixed = deployment.device(decoding, self.context, shape, prompts, count / self.chunks)

    def _meeting(self, slots: int, own: Array) -> tuple[Array | float, Array]:
        """Return how many copies and micro-batches read prompts at once, and the steps in which any of them does.

        Each of them reads prompts in ``own`` steps of a sequence's life. With p the share of these, any of the s that
        have a sequence reads some in a share q = 1 - (1 - p)^s, and s p / q of them do at once. Copies of the attention
        that share experts read theirs in the same steps: 17 published throughputs of Qwen3-235B on TensorRT-LLM (H100,
        H200, B200) are 8 to 10 % off so, by machine, and 26 to 33 % otherwise.
        """
        if self.deployment.copies_share:
            return float(slots), own
        share, busy = own / self.life, np.minimum(slots, self.running)
        any_slot = 1.0 - (1.0 - share) ** busy
        return np.maximum(1.0, busy * share / any_slot), any_slot * self.life

    def result(self) -> Steady:
        """Return throughput and latency."""
        deployment, osl, running, gained = self.deployment, self.osl, self.running, self.deployment.gained
        mixed = deployment.finished(self.mixed, running)
        cycle = deployment.finished(self.decode.blend(self.mixed, self.steps / self.life), running)
        # a sequence decodes in all of its steps but those that read its own prompt
        others = np.minimum(1.0, (self.steps - self.chunks) / np.maximum(self.answer - 1.0, 1e-9))
        token = deployment.finished(self.decode.blend(self.mixed, np.maximum(0.0, others)), running)
        step, each = np.asarray(cycle.time_s), np.asarray(token.time_s)
        fast, slow = np.asarray(cycle.low_s) / step, np.asarray(cycle.high_s) / step
        token_fast, token_slow = np.asarray(token.low_s) / each, np.asarray(token.high_s) / each
        step, each = step * self.life / osl, each / gained
        decode, waiting = deployment.finished(self.decode, running), np.maximum(0.0, self.users - running) * osl
        # A user without an answer, whose request is in the server in front, has no place in the batch.
        away_s = np.maximum(0.0, deployment.front_end_s - waiting * step / running)
        rate = running / (step + away_s / osl)
        ends = (
            (mixed.time_s, decode.time_s, 1.0),
            (mixed.low_s, decode.low_s, fast),
            (mixed.high_s, decode.high_s, slow),
        )
        ttft, soon, late = (
            self._first_token(np.asarray(mixed_s), np.asarray(decode_s)) + waiting * ratio / rate
            for mixed_s, decode_s, ratio in ends
        )
        ttft_low, ttft_high = deployment.first_ends.widened(ttft, soon, late)
        memory = deployment.memory()
        values = {
            "ttft_s": ttft,
            "ttft_low_s": ttft_low,
            "ttft_high_s": ttft_high,
            "tpot_s": each, "tpot_low_s": each * token_fast, "tpot_high_s": each * token_slow,
            "output_tokens_per_s": rate,
            "output_tokens_per_s_low": rate / slow, "output_tokens_per_s_high": rate / fast,
            "tokens_per_s_per_gpu": rate / deployment.gpus, "tokens_per_s_per_user": 1.0 / each,
            "kv_tokens": memory.shared(self.prefix) + self.running * memory.of_sequence(self.context - self.prefix),
            "step_tokens": running * osl / self.life,
        }  # fmt: skip
        shape = step.shape
        return Steady(
            plain(self.isl), plain(self.osl), plain(np.broadcast_to(self.users, shape)), plain(self.running),
            **{name: plain(value) for name, value in values.items()}, terms_s=cycle.terms_s,
        )  # fmt: skip

    def _first_token(self, mixed_s: Array, decode_s: Array) -> Array:
        """Return the time from the start of a request, that has a place, to its first token [s].

        A request waits for half of the running step and for the one that was scheduled ahead of it; its prompt is read
        in the next ones. Copies of the attention that share experts may hold it back for each other. Of a run whose
        users start at once, the first request of each finds those of all others waiting, on average half of them
        before it.
        """
        deployment = self.deployment
        users = np.maximum(1.0, self.running / deployment.slots)
        service = mixed_s * self.chunks / self.prompts
        start = service * (users - 1.0) / 2.0 * np.clip(1.0 / self.waves, 0.0, 1.0)
        steps = WAITED_STEPS + deployment.held_back_steps
        wait = steps * decode_s * (1.0 - 1.0 / users)
        return np.asarray(deployment.front_end_s + wait + mixed_s * self.chunks + start)

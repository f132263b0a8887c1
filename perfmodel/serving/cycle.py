"""The steps in which every running sequence is replaced once: throughput and latency of a steady state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perfmodel.core.report import Reportable
from perfmodel.core.units import format_si
from perfmodel.core.work import Number, plain, same
from perfmodel.serving.clients import Clients
from perfmodel.serving.clock import busiest
from perfmodel.serving.cost import Array
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.first_token import FirstToken, Readers
from perfmodel.serving.sized_times import SizedTimes
from perfmodel.serving.step import Step


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
    preemptions : how often a request loses its place in a full cache, in the mean.
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
    preemptions: Number
    terms_s: Mapping[str, Number]

    def __repr__(self) -> str:
        """Return the load and what it gives in a line, or how many loads there are."""
        points = np.size(self.output_tokens_per_s)
        if points != 1:
            return f"<Steady: {points} loads>"
        ttft, tpot = (format_si(float(np.ravel(one)[0]), "s", 3) for one in (self.ttft_s, self.tpot_s))
        batch, rate = (format_si(float(np.ravel(one)[0]), "") for one in (self.batch, self.output_tokens_per_s))
        return f"<Steady: batch {batch}, TTFT {ttft}, TPOT {tpot}, {rate} tokens/s>"

    def __eq__(self, other: object) -> bool:
        """Return whether another one has the same numbers, at all points where they are arrays."""
        return same(vars(self), vars(other)) if isinstance(other, Steady) else NotImplemented


class Cycle:
    """The steps in which each running sequence is replaced once.

    Parameters
    ----------
    deployment : one engine.
    clients : the requests.
    """

    def __init__(self, deployment: Deployment, clients: Clients) -> None:
        running, shape, slots = clients.running, clients.running.shape, deployment.slots
        # where the budget of tokens leaves fewer places than the cache, that one is not full
        clients = clients.undisturbed(running > slots * self._places(deployment, clients)[1])
        self.deployment, self.clients = deployment, clients
        new, self.answer = clients.new, self._steps(deployment, clients)
        ended, most = self._places(deployment, clients)
        self.full = full = running > slots * most
        self.running = np.where(full, slots * most, running)
        # A copy, or a micro-batch of a pipeline, reads as many prompts as end in a step and the budget has room for,
        # the last one in part, or one in several chunks.
        each = np.where(full, most, busiest(self.running, slots))
        room = np.maximum(64.0, deployment.token_budget - np.maximum(0.0, each - 1.0))  # one at least decodes nothing
        self.room = np.maximum(1.0, room / new)  # prompts of a step
        if deployment.encoded_limit:
            self.room = np.minimum(self.room, deployment.encoded_limit)
        # those that were preempted come back together, when a place becomes free
        whole = np.clip(each / self.answer, np.minimum(clients.parts, self.room), self.room)
        self.prompts = np.where(full, np.maximum(1.0, ended), np.minimum(whole, np.maximum(each, 1.0)))
        self.chunks = np.where(full, 1.0 / np.minimum(1.0, ended), np.ceil(np.maximum(1.0, new / room)))
        self.new = new / self.chunks
        own = each / self.prompts * self.chunks
        # steps from the first of a prompt to the last token, in which each sequence is replaced once
        self.life = np.maximum(self.answer - 1.0 + self.chunks, own)
        self.meeting, self.steps = self._meeting(slots, own)
        self.context = clients.context
        count = np.minimum(self.meeting * self.prompts, np.maximum(self.running, 1.0))
        decoding = np.maximum(self.running - count, 0.0)
        self.keys = clients.isl - (self.chunks - 1.0) / 2.0 * self.new
        self.decode = deployment.device(self.running, self.context)
        prompts = [(count, self.new, self.keys)]
        self.mixed = deployment.device(decoding, self.context, shape, prompts, count / self.chunks)

    @staticmethod
    def _steps(deployment: Deployment, clients: Clients) -> Array:
        """Return the steps of an answer: the prompt's gives one token."""
        return np.asarray(1.0 + (clients.answer - 1.0) / deployment.gained)

    @staticmethod
    def _places(deployment: Deployment, clients: Clients) -> tuple[Array, Array]:
        """Return the prompts that end in a step which is full, and the sequences of such steps.

        Where every step is full, r prompts end in each, and as many answers, which decode the rest of the steps:
        r new + r (answer - 1) = budget. A long prompt fills several steps, so that one of them is always read, and
        r (answer - 1) + max(1, r) sequences have a place. All others wait.
        """
        further = Cycle._steps(deployment, clients) - 1.0
        ended = deployment.token_budget / (clients.new + further)
        return ended, ended * further + np.maximum(1.0, ended)

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
        deployment, clients, running = self.deployment, self.clients, self.running
        mixed = deployment.host.finished(self.mixed, running)
        decode = deployment.host.finished(self.decode, running)
        cycle = deployment.host.finished(self.decode.blend(self.mixed, self.steps / self.life), running)
        # a sequence decodes in all of its steps but those that read its own prompt
        others = np.minimum(1.0, (self.steps - self.chunks) / np.maximum(self.answer - 1.0, 1e-9))
        token = deployment.host.finished(self.decode.blend(self.mixed, np.maximum(0.0, others)), running)
        busy_s = np.asarray(cycle.time_s) * self.life
        # A user without an answer, whose request is in the server in front or held back, has no place in the batch: as
        # many others as there are places keep the engine busy while it is away.
        held = running / np.maximum(clients.users, running)
        away_s = deployment.host.away_s(np.asarray(decode.time_s), running) / clients.parts
        away_s = np.maximum(0.0, held * away_s - (1.0 - held) * busy_s)
        token_s, started_s = np.asarray(decode.time_s), self._started_s(np.asarray(mixed.time_s) * self.chunks)
        decoded_s = (self.answer - 1.0) * token_s
        first = self._first(token_s, busy_s, away_s)
        # requests that come and go together: while one half of them is away, the other half is read
        alone_s = away_s + first.waited_s + first.own_s + decoded_s
        cycle_s = np.maximum(busy_s + np.where(first.together, 0.0, away_s), alone_s)
        first_s = first.waited_s + first.own_s + np.where(first.together, cycle_s - alone_s, 0.0)
        # What is left of its steps are prompts of others beside its decode.
        stopped_s = np.where(first.together, 0.0, cycle_s - alone_s)
        each_s = token_s + stopped_s / np.maximum(self.answer - 1.0, 1e-9)
        return state_of(
            deployment, clients, running, cycle_s=cycle_s, steps=self.life, away_s=away_s, first_s=first_s,
            started_s=started_s, token_s=each_s / deployment.gained,
            of_cycle=cycle, of_token=token, of_prompt=mixed,
        )  # fmt: skip

    def _first(self, decode_s: Array, busy_s: Array, away_s: Array) -> FirstToken:
        """Return what a request with a place waits, and its prompt takes, see `perfmodel.serving.first_token`."""
        deployment, slots = self.deployment, self.deployment.slots
        most = np.maximum(1.0, np.minimum(self.room, self.running / slots))

        def time_s(prompts: Array) -> Array:
            count = np.minimum(prompts * self.meeting, np.maximum(self.running, 1.0))
            chunk = count, self.new, self.keys
            decoding = np.where(self.answer > 1.0, np.maximum(self.running - count, 0.0), 0.0)
            cost = deployment.device(decoding, self.context, prompts.shape, [chunk], count / self.chunks)
            return np.asarray(deployment.host.finished(cost, decoding + count).time_s)

        others = np.maximum(0.0, self.running / slots - 1.0)
        queued = self.clients.users > self.running
        front_s = np.where(queued, 0.0, deployment.host.front_end_s)
        readers = Readers(
            others, most, self.chunks, SizedTimes.of(most, time_s), decode_s, self.answer - 1.0, away_s, front_s,
            deployment.host.front_end_s > 0,
        )  # fmt: skip
        found = readers.settled(busy_s)
        return found._replace(waited_s=np.where(self.full, 0.0, found.waited_s))

    def _started_s(self, own_s: Array) -> Array:
        """Return what a request waits for in a run whose users start at once, in the mean over its waves [s].

        The first request of each finds those of all others waiting, on average half of them before it.
        """
        others = np.maximum(0.0, self.running / self.deployment.slots - 1.0)
        return np.asarray(own_s / self.prompts * others / 2.0 * np.clip(1.0 / self.clients.waves, 0.0, 1.0))


def state_of(
    deployment: Deployment,
    clients: Clients,
    running: Array,
    *,
    cycle_s: Array,
    steps: Array,
    away_s: Array,
    first_s: Array,
    started_s: Array,
    token_s: Array,
    of_cycle: Step,
    of_token: Step,
    of_prompt: Step,
) -> Steady:
    """Return the steady state of requests that each come back after a cycle.

    Parameters
    ----------
    deployment : one engine.
    clients : the requests.
    running : those that run at once; fewer than have a place where the budget of tokens keeps some from it.
    cycle_s : time from one request of a place, or part of one, to the next [s].
    steps : of a cycle in which each that runs is replaced once.
    away_s : time in the server in front, of a part of a request that no queue hides it from [s].
    first_s : time of a part with a place until its first token [s].
    started_s : the same that only the first requests of a run wait for [s].
    token_s : time of each further token of a part [s].
    of_cycle, of_token, of_prompt : steps that have the ends of the interval of throughput, of further tokens and of the
        first one.
    """
    isl, osl, prefix, users = clients.isl, clients.osl, clients.prefix, clients.users
    (fast, slow), (token_fast, token_slow), (soon, late) = map(_ends, (of_cycle, of_token, of_prompt))
    again_s = clients.later_s(clients.parts * cycle_s, first_s, token_s)
    token_s = token_s + again_s
    cycle_s, away_s, first_s = clients.parts * cycle_s, clients.parts * away_s, first_s + started_s
    queue_s = clients.queued(running) * cycle_s
    rate = running * osl / cycle_s
    ttft = away_s + first_s + queue_s
    ends = (away_s + first_s * prompt + queue_s * all_of for prompt, all_of in ((soon, fast), (late, slow)))
    ttft_low, ttft_high = _first_ends(deployment, users, ttft, *ends)
    memory, context = deployment.memory(), clients.context
    values = {
        "isl": isl, "osl": osl, "concurrency": users, "batch": running,
        "ttft_s": ttft, "ttft_low_s": ttft_low, "ttft_high_s": ttft_high,
        "tpot_s": token_s, "tpot_low_s": token_s * token_fast, "tpot_high_s": token_s * token_slow,
        "output_tokens_per_s": rate,
        "output_tokens_per_s_low": rate / slow, "output_tokens_per_s_high": rate / fast,
        "tokens_per_s_per_gpu": rate / deployment.gpus, "tokens_per_s_per_user": 1.0 / token_s,
        "kv_tokens": memory.shared(prefix) + running * memory.of_sequence(context - prefix),
        "step_tokens": running * clients.answer / steps,
        "preemptions": clients.places.preempted,
    }  # fmt: skip
    shape = np.shape(cycle_s)
    return Steady(
        **{name: plain(np.broadcast_to(value, shape)) for name, value in values.items()}, terms_s=of_cycle.terms_s
    )


def _first_ends(deployment: Deployment, users: Array, ttft: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return both ends of the time to the first token: less sure with several users, whose prompts meet."""
    alone = deployment.first_ends.widened(ttft, low, high)
    several = deployment.first_ends.beside(deployment.elsewhere.loaded_first).widened(ttft, low, high)
    more = np.asarray(users) > 1
    return np.where(more, several[0], alone[0]), np.where(more, several[1], alone[1])


def _ends(step: Step) -> tuple[Array, Array]:
    """Return low and high end of a step over its time."""
    return np.asarray(step.low_s) / step.time_s, np.asarray(step.high_s) / step.time_s

"""Several simulated engines: how requests are spread over them, and prefill and decode on different ones."""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perfmodel.serving.batches import BatchReplica
from perfmodel.serving.blocks import Windows, kept
from perfmodel.serving.journal import Journal
from perfmodel.serving.plain import PlainReplica
from perfmodel.serving.replica import Replica
from perfmodel.serving.requests import Requests
from perfmodel.serving.senders import Senders

ROUND_ROBIN, LEAST_LOADED = "round-robin", "least-loaded"
#: how requests are spread over replicas: in turn, or to the one with the fewest requests in its engine and queue
ROUTINGS = (ROUND_ROBIN, LEAST_LOADED)

AnyReplica = Replica | BatchReplica
#: called with the number of requests that have ended
Progress = Callable[[int], None]
#: events between two calls of a progress function
_EVENTS_A_REPORT = 256


@dataclass(frozen=True)
class Link:
    """The network over which one engine sends or receives keys and values, of one request after the other.

    Attributes
    ----------
    bytes_per_s : its bandwidth [B/s].
    latency_s : time until the first byte arrives [s].
    bytes_per_token : keys and values of a token [B].
    bytes_per_sequence : states of a sequence, however long it is [B].
    windows : of the layers that keep the last tokens alone.
    """

    bytes_per_s: float
    latency_s: float
    bytes_per_token: float
    bytes_per_sequence: float = 0.0
    windows: Windows = ()

    def transfer_s(self, tokens: int) -> float:
        """Return the time for what the layers keep of a sequence of some tokens, alone on the link [s]."""
        moved_bytes = self.bytes_per_sequence + float(kept(tokens, self.windows)) * self.bytes_per_token
        return self.latency_s + moved_bytes / self.bytes_per_s


def run_pool(
    engines: Sequence[AnyReplica], load: Requests, journal: Journal, routing: str, progress: Progress,
    back_s: float = 0.0,
) -> None:  # fmt: skip
    """Simulate a load on engines that each compute prompts and answers.

    The clients of a closed loop stay with their engine, which sees their next request ``back_s`` after the end of the
    last one: what the server in front takes. Round-robin engines do not influence each other, so that each is simulated
    from its first request to its last one.
    """
    numbers = range(len(load))
    if load.concurrency:
        clients = [load.concurrency // len(engines)] * len(engines)
        for index in range(load.concurrency % len(engines)):
            clients[index] += 1
        shares, start_s = _shares(numbers, clients), load.arrival_s.tolist()
        for engine, share, several in zip(engines, shares, clients, strict=True):
            first = [(start_s[number], number) for number in share[:several]]
            _serve(engine, Senders(first, iter(share[several:]), journal, back_s), progress)
        return
    journal.arrival_s[:] = load.arrival_s.tolist()
    if routing == LEAST_LOADED and len(engines) > 1:
        _least_loaded(engines, journal, progress)
        return
    for index, engine in enumerate(engines):
        share = numbers[index :: len(engines)]
        first = [(journal.arrival_s[number], number) for number in share[:1]]
        _serve(engine, Senders(first, iter(share[1:]), journal, None), progress)


def _shares(numbers: range, clients: Sequence[int]) -> list[Sequence[int]]:
    """Return the requests of each engine, in proportion to its clients."""
    if len(clients) == 1:
        return [numbers]
    ends = list(itertools.accumulate(clients))
    shares: list[list[int]] = [[] for _ in clients]
    for number in numbers:
        shares[bisect.bisect_right(ends, number % ends[-1])].append(number)
    return list(shares)


def _serve(engine: AnyReplica, senders: Senders, progress: Progress) -> None:
    """Simulate one engine until the last of its requests has ended."""
    done, events, plain = engine.journal.done, 0, engine if isinstance(engine, PlainReplica) else None
    while True:
        senders.deliver(engine)
        if not engine.outstanding:
            return
        passed = plain.plain_events(senders, _EVENTS_A_REPORT) if plain else 0
        if not passed:
            engine.advance(senders.next_s)
            senders.answer()
            passed = 1
        events += passed
        if events >= _EVENTS_A_REPORT:
            events = 0
            progress(len(done))


def _least_loaded(engines: Sequence[AnyReplica], journal: Journal, progress: Progress) -> None:
    """Give each request to the engine that has the fewest at that time."""
    for number, time_s in enumerate(journal.arrival_s):
        for engine in engines:
            while engine.outstanding and engine.time_s < time_s:
                engine.advance(time_s)
        _fewest(engines, time_s).submit(number, time_s)
        if not number % _EVENTS_A_REPORT:
            progress(len(journal.done))
    for engine in engines:
        while engine.outstanding:
            engine.advance(math.inf)


def _fewest(engines: Sequence[AnyReplica], time_s: float) -> AnyReplica:
    return min(engines, key=lambda engine: engine.outstanding_at(time_s))


class Disaggregated:
    """Engines that compute prompts, a link, and engines that decode (DistServe, Zhong et al. 2024).

    A prompt's last step gives the first token. Its keys and values then move to a decoding engine, as soon as the links
    of both engines are free, and the request joins the queue there.

    Parameters
    ----------
    prefill, decode : the engines; those of ``prefill`` write into a journal in which each answer has one token.
    link : between them.
    load : the requests.
    routing : one of `ROUTINGS`, for both pools.
    back_s : as for `run_pool`.
    """

    def __init__(
        self, prefill: Sequence[AnyReplica], decode: Sequence[AnyReplica], link: Link, load: Requests, routing: str,
        back_s: float = 0.0,
    ) -> None:  # fmt: skip
        self.back_s = back_s
        self.prefill, self.decode, self.link, self.load, self.routing = prefill, decode, link, load, routing
        self.prompts, self.answers = prefill[0].journal, decode[0].journal
        #: (time, request) of arrivals, of keys and values that wait for the link, and of those that have passed it
        self._arrivals: list[tuple[float, int]] = []
        self._leaving: list[tuple[float, int]] = []
        self._arrived: list[tuple[float, int]] = []
        self._next_client = 0
        #: times from which the engines of both pools send and receive nothing [s]
        self._sent_s, self._received_s = [0.0] * len(prefill), [0.0] * len(decode)
        #: request -> engine that computes its prompt, and then holds it until it has moved; and that it moves to
        self._sender: dict[int, int] = {}
        self._receiver: dict[int, int] = {}
        #: requests that each engine holds so, and that are on their way to each
        self._held, self._flying = [0] * len(prefill), [0] * len(decode)
        self._turns = [0, 0]
        self._prompts_done = self._answers_done = 0

    def run(self, progress: Progress) -> None:
        """Simulate until every request has ended: always the engine or message with the earliest time goes on."""
        load = self.load
        first = min(load.concurrency or len(load), len(load))
        self._next_client = first
        times = load.arrival_s.tolist()
        self._arrivals = [(times[number], number) for number in range(first)]
        events = 0
        while self._step():
            events += 1
            if not events % _EVENTS_A_REPORT:
                progress(len(self.answers.done))

    def _step(self) -> bool:
        """Handle the earliest event; return whether there was one."""
        busy = [engine for engine in (*self.prefill, *self.decode) if engine.outstanding]
        messages = [queue[0][0] for queue in (self._arrivals, self._leaving, self._arrived) if queue]
        times = sorted([*(engine.time_s for engine in busy), *messages])
        if not times:
            return False
        if messages and min(messages) <= times[0]:
            self._deliver(times[0])
            return True
        engine = min(busy, key=lambda engine: engine.time_s)
        engine.advance(times[1] if len(times) > 1 else math.inf)
        self._collect()
        return True

    def _deliver(self, time_s: float) -> None:
        """Hand over the message that is due."""
        if self._arrivals and self._arrivals[0][0] <= time_s:
            time_s, number = heapq.heappop(self._arrivals)
            self.prompts.arrival_s[number] = self.answers.arrival_s[number] = time_s
            chosen = self._sender[number] = self._route(0, self.prefill, time_s, self._held)
            self.prefill[chosen].submit(number, time_s)
            return
        if self._leaving and self._leaving[0][0] <= time_s:
            self._transfer(*heapq.heappop(self._leaving))
            return
        time_s, number = heapq.heappop(self._arrived)
        self._held[self._sender.pop(number)] -= 1
        chosen = self._receiver.pop(number)
        self._flying[chosen] -= 1
        self.decode[chosen].submit(number, time_s)

    def _transfer(self, time_s: float, number: int) -> None:
        """Send the keys and values of a prompt that ended at a time; those of earlier ones were sent before."""
        sender = self._sender[number]
        chosen = self._receiver[number] = self._route(1, self.decode, time_s, self._flying)
        start_s = max(time_s, self._sent_s[sender], self._received_s[chosen])
        end_s = self._sent_s[sender] = self._received_s[chosen] = start_s + self.link.transfer_s(
            self.prompts.prompt[number]
        )
        self._flying[chosen] += 1
        heapq.heappush(self._arrived, (end_s, number))

    def _route(self, pool: int, engines: Sequence[AnyReplica], time_s: float, more: Sequence[int]) -> int:
        """Return the index of the engine that takes a request; ``more`` counts those of each beside its own queue."""
        if self.routing == LEAST_LOADED:
            loads = [engine.outstanding_at(time_s) for engine in engines]
            return min(range(len(engines)), key=lambda index: loads[index] + more[index])
        self._turns[pool] += 1
        return (self._turns[pool] - 1) % len(engines)

    def _collect(self) -> None:
        """Note prompts that have ended, whose keys and values leave then, and send the requests after ended answers."""
        prompts, answers = self.prompts, self.answers
        for number in prompts.done[self._prompts_done :]:
            answers.started_s[number] = prompts.started_s[number]
            answers.first_s[number] = prompts.last_s[number]
            answers.given[number] = 1
            if answers.output[number] == 1:
                answers.last_s[number] = prompts.last_s[number]
                answers.done.append(number)
                continue
            self._held[self._sender[number]] += 1
            heapq.heappush(self._leaving, (prompts.last_s[number], number))
        self._prompts_done = len(prompts.done)
        if self.load.concurrency:
            for number in answers.done[self._answers_done :]:
                if self._next_client < len(self.load):
                    heapq.heappush(self._arrivals, (answers.last_s[number] + self.back_s, self._next_client))
                    self._next_client += 1
        self._answers_done = len(answers.done)

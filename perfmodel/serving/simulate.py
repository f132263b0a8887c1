"""Discrete-event simulation of a load on a deployment: queues, percentiles, use of the cache over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.core.units import format_count
from perfmodel.errors import UsageError, unknown_name
from perfmodel.serving.batches import BatchReplica
from perfmodel.serving.blocks import Blocks, Windows, kept
from perfmodel.serving.journal import Chunk, Clock, Journal
from perfmodel.serving.new_tokens import EstimatingReplica
from perfmodel.serving.plain import PlainReplica
from perfmodel.serving.policies import Policy
from perfmodel.serving.pools import ROUND_ROBIN, ROUTINGS, AnyReplica, Disaggregated, Link, Progress, run_pool
from perfmodel.serving.replay import Replay, replay_of
from perfmodel.serving.replica import Replica
from perfmodel.serving.requests import Requests
from perfmodel.serving.stability import growth_of

#: low and high end of a step's time over its expected time, for decoding sequences and their mean context
Spread = Callable[[float, float], tuple[float, float]]
#: most requests that are simulated again with steps of the low and of the high end of their interval
INTERVAL_REQUESTS = 10_000


class EnoughError(Exception):
    """Ends a simulation of which no more matters."""


@dataclass(frozen=True)
class Server:
    """What a simulation has to know of the engines that it simulates.

    Attributes
    ----------
    clock : times of the steps of one replica.
    policy : rules of its scheduler.
    kv_tokens : tokens that its cache holds beside a prefix that all prompts share; infinite for no limit.
    shared_tokens : tokens of that prefix, which lie in the cache all the time.
    gpus : GPUs of one replica.
    replicas : engines that are alike.
    routing : how requests are spread over them, see `perfmodel.serving.pools.ROUTINGS`.
    front_end_s : time that the server in front adds to the time to the first token [s]. A client of a closed loop waits
        for it, too, before the engine sees its next request.
    kv_bytes_token : keys and values of a token [B].
    sequence_tokens : tokens whose room a sequence takes of the cache besides its own: for its layers' states.
    sequence_bytes : these states, which move with its keys and values [B].
    windows : of the layers that keep the last tokens of a sequence alone, see `perfmodel.serving.blocks.Windows`.
    host_bytes_per_s : bandwidth between GPU and host, for preemption by swap [B/s].
    prefill : engines that only compute prompts (a disaggregated deployment), or None; then this server decodes.
    link : between the two.

    Raises
    ------
    UsageError
        On construction: no replica, an unknown routing, or prefill engines without a link.
    """

    clock: Clock
    policy: Policy
    kv_tokens: float = math.inf
    shared_tokens: float = 0.0
    gpus: int = 1
    replicas: int = 1
    routing: str = ROUND_ROBIN
    front_end_s: float = 0.0
    kv_bytes_token: float = 0.0
    sequence_tokens: float = 0.0
    sequence_bytes: float = 0.0
    windows: Windows = ()
    host_bytes_per_s: float = math.inf
    prefill: Server | None = None
    link: Link | None = None

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise UsageError(f"{self.replicas} replicas cannot serve.", remedy="Give 1 or more.")
        if self.routing not in ROUTINGS:
            raise unknown_name("routing", self.routing, ROUTINGS)
        if self.prefill is not None and (self.link is None or self.policy.batch or self.prefill.policy.batch):
            raise UsageError(
                "prefill and decode on different engines need a link between them, and continuous batching."
            )

    @property
    def all_gpus(self) -> int:
        """GPUs of all replicas, and of those that compute prompts."""
        return self.gpus * self.replicas + (self.prefill.all_gpus if self.prefill else 0)

    def scaled(self, factor: float) -> Server:
        """Return the server with steps that take ``factor`` times as long."""
        prefill = None if self.prefill is None else self.prefill.scaled(factor)
        return replace(self, clock=ScaledClock(self.clock, factor), prefill=prefill)

    def engines(self, journal: Journal) -> list[AnyReplica]:
        """Return the replicas, idle, with a journal to write into."""
        own: dict[str, Any] = {"sequence_tokens": self.sequence_tokens, "windows": self.windows}
        kind: type[AnyReplica] = BatchReplica
        if not self.policy.batch:
            kind = PlainReplica if self.policy.mixed and not self.policy.reserve else Replica
            kind = kind if self.policy.conservativeness is None else EstimatingReplica
            own["swap_s_per_token"] = self.kv_bytes_token / self.host_bytes_per_s
            own["swap_s_per_sequence"] = self.sequence_bytes / self.host_bytes_per_s
        return [kind(self.clock, self.policy, self.kv_tokens, journal, **own) for _ in range(self.replicas)]


class ScaledClock:
    """A clock whose steps take a constant factor longer."""

    def __init__(self, clock: Clock, factor: float) -> None:
        self._clock, self._factor = clock, factor

    def decode_s(self, sequences: int, context: float) -> float:
        """Return the time of a decode step [s]."""
        return self._factor * self._clock.decode_s(sequences, context)

    def mixed_s(self, sequences: int, context: float, prompts: Sequence[Chunk]) -> float:
        """Return the time of a step with prompts [s]."""
        return self._factor * self._clock.mixed_s(sequences, context, prompts)


def simulate_server(
    server: Server,
    requests: Requests,
    *,
    spread: Spread | None = None,
    progress: Progress | None = None,
    judged: Callable[[Replay], bool] | None = None,
    enough: Callable[[Journal], bool] | None = None,
) -> Replay:
    """Simulate a load; the same load gives the same result.

    A KeyboardInterrupt ends the simulation; the result holds what was simulated.

    Parameters
    ----------
    server : the engines.
    requests : the load.
    spread : returns low and high end of a step's time over its expected time, for decoding sequences and their mean
        context. The first `INTERVAL_REQUESTS` requests are simulated again with all steps at these ends, which is the
        interval of every figure: errors of steps are alike, so that they do not average out over a load. None: no
        interval.
    progress : called with the number of requests that have ended, now and then.
    judged : returns whether a longer simulation has to tell if the queue of a simulation grows. None: it always has.
    enough : called now and then with what is simulated; returns whether no more of it matters.

    Raises
    ------
    EnoughError
        When ``enough`` says so.
    UsageError
        When a request is larger than the cache.
    """
    _check_fit(server, requests)
    replay = _run(server, requests, progress or _silent, enough)
    if replay.interrupted or not replay.count:
        return replay
    try:
        if judged is None or judged(replay):
            replay = replace(replay, growth=growth_of(replay, lambda longer: whole(_run(server, longer, _silent))))
    except KeyboardInterrupt:
        return replace(replay, interrupted=True)
    return replay if spread is None else with_ends(server, replay, spread)


def with_ends(server: Server, replay: Replay, spread: Spread) -> Replay:
    """Return a simulated load with its interval; see `simulate_server`."""
    first = replay.requests.first(INTERVAL_REQUESTS)
    scales = spread(replay.mean_batch or 1.0, replay.mean_context or 1.0)
    try:
        low, high = (whole(_run(server.scaled(scale), first, _silent)) for scale in scales)
        expected = replay if len(first) == len(replay.requests) else whole(_run(server, first, _silent))
    except KeyboardInterrupt:
        return replace(replay, interrupted=True)
    return replace(replay, ends=(low, expected, high))


def whole(replay: Replay) -> Replay:
    """Return a simulation of which nothing is worth keeping if it is not complete.

    Raises
    ------
    KeyboardInterrupt
        When it was interrupted.
    """
    if replay.interrupted:
        raise KeyboardInterrupt
    return replay


def _silent(done: int) -> None:
    del done


def _run(
    server: Server, requests: Requests, report: Progress, enough: Callable[[Journal], bool] | None = None
) -> Replay:
    prompts, outputs = (requests.prompt - requests.cached).tolist(), requests.output.tolist()
    journal = Journal(prompts, outputs, requests.cached)

    def progress(done: int) -> None:
        report(done)
        if enough is not None and enough(journal):
            raise EnoughError

    engines = server.engines(journal)
    prefill: list[AnyReplica] = []
    interrupted = False
    try:
        if server.prefill is None:
            run_pool(engines, requests, journal, server.routing, progress, server.front_end_s)
        else:
            prefill = server.prefill.engines(Journal(prompts, [1] * len(prompts), requests.cached))
            assert server.link is not None
            Disaggregated(prefill, engines, server.link, requests, server.routing, server.front_end_s).run(progress)
    except KeyboardInterrupt:
        interrupted = True
    return replay_of(
        requests, journal, engines, prefill, gpus=server.all_gpus, front_end_s=server.front_end_s,
        kv_bytes_token=server.kv_bytes_token, shared_tokens=server.shared_tokens, interrupted=interrupted,
    )  # fmt: skip


def _check_fit(server: Server, requests: Requests) -> None:
    """Raise for a request that no empty engine could hold: it would wait for ever."""
    blocks = Blocks(server.kv_tokens, server.policy.block_tokens, server.sequence_tokens, server.windows)
    tokens = requests.prompt - requests.cached + requests.output - 1
    too_long = int((blocks.of(tokens) > blocks.total).sum())
    if too_long:
        largest, states = int(tokens.max()), server.sequence_tokens
        windowed = f" (in windows as much as {kept(largest, server.windows):.0f})" if server.windows else ""
        beside = f" and states as large as {states:.0f} more" if states else ""
        raise UsageError(
            f"{format_count(too_long, 'request')} of {len(requests)} never fit: the largest has {largest} "
            f"tokens{windowed}{beside}, the KV cache of one engine holds {blocks.total * blocks.block_tokens}.",
            remedy="Use more GPUs, a smaller kv or weights format, shorter requests, or correct --kv-tokens.",
        )
    if server.prefill is not None:
        _check_fit(server.prefill, replace(requests, output=requests.output * 0 + 1))

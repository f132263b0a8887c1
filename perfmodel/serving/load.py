"""A load on a deployment: the deployment's clock, cache and scheduler given to the simulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from perfmodel.core.hardware import Hardware
from perfmodel.core.vocabulary import Limiter
from perfmodel.errors import UsageError, check_names, expect, expect_numbers, renaming, suggesting
from perfmodel.prediction.stretch import NONE, Stretch
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.given import check_prefix
from perfmodel.serving.journal import Clock, Journal
from perfmodel.serving.kv_link import kv_link
from perfmodel.serving.policies import Policy, find_policy
from perfmodel.serving.pools import ROUND_ROBIN, Link, Progress
from perfmodel.serving.replay import Replay
from perfmodel.serving.requests import Requests
from perfmodel.serving.simulate import INTERVAL_REQUESTS, Server, Spread, simulate_server, whole, with_ends
from perfmodel.serving.step import Step

#: bandwidth of PCIe 4.0 x16 by direction [B/s], for swaps on a machine whose spec has no link to the host
_PCIE_BYTES_PER_S = 32e9
#: values of a policy that a load may change
RULES = ("max_num_seqs", "max_batched_tokens", "watermark", "conservativeness", "preemption", "batch", "max_wait_s")
_POLICY_OF = {
    "chunked": "chunked-prefill",
    "chunked_recompute": "chunked-recompute",
    "prefill_first": "prefill-first",
    "new_token_ratio": "new-token-ratio",
    "static": "static",
}
#: term of a step -> what it is limited by; products depend on the tokens that share a weight
_LIMITER = {
    "kv": Limiter.HBM,
    "prefill": Limiter.COMPUTE,
    "encoder": Limiter.COMPUTE,
    "exchange": Limiter.LINK,
    "sends": Limiter.LINK,
    "kernels": Limiter.HBM,
    "head": Limiter.HBM,
    "gaps": Limiter.LAUNCH,
    "host": Limiter.HOST,
}


class TabledClock:
    """A clock whose decode steps come from straight lines in the mean context, computed once where they are needed.

    Parameters
    ----------
    clock : the clock of a deployment, whose times are linear in the context between the points of a grid.
    """

    #: contexts of a line; the grids of `perfmodel.serving.clock` are wider from 500 tokens on
    WIDTH = 128.0
    #: more lines of a number of sequences than any model has positions for
    _LINES = 1 << 24

    __slots__ = ("_clock", "_lines", "mixed_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.mixed_s = clock.mixed_s
        self._lines: dict[int, tuple[float, float]] = {}

    def decode_s(self, sequences: int, context: float) -> float:
        """Return the time of a step in which each sequence decodes one token, with so many keys in the mean [s]."""
        number = int(context / self.WIDTH)
        line = self._lines.get(sequences * self._LINES + number)
        if line is None:
            line = self._line(sequences, number)
        return line[0] + line[1] * context

    def _line(self, sequences: int, number: int) -> tuple[float, float]:
        left, right = (self._clock.decode_s(sequences, self.WIDTH * (number + end)) for end in (0, 1))
        slope = (right - left) / self.WIDTH
        line = left - slope * self.WIDTH * number, slope
        self._lines[sequences * self._LINES + number] = line
        return line


@dataclass(frozen=True)
class Fleet:
    """How many deployments serve together, and by which rules.

    Attributes
    ----------
    policy : name of a policy of `perfmodel.serving.policies.POLICIES`; "" for that of the engine.
    rules : values of the policy that differ (max_wait_s, batch, watermark, conservativeness, preemption); None keeps a
        value.
    replicas : deployments that compute prompts and answers, or answers only.
    prefill_replicas : deployments that compute prompts only; 0: prompts and answers share the replicas.
    routing : see `perfmodel.serving.pools.ROUTINGS`.
    kv_link_bytes_per_s : bandwidth of one replica between prefill and decode [B/s]; None: that of its GPUs' networks,
        see `perfmodel.serving.kv_link.kv_link`.

    Raises
    ------
    UsageError
        On construction, for a number of another kind.
    """

    policy: str = ""
    rules: tuple[tuple[str, Any], ...] = ()
    replicas: int = 1
    prefill_replicas: int = 0
    routing: str = ROUND_ROBIN
    kv_link_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        expect_numbers(Integral, replicas=self.replicas, prefill_replicas=self.prefill_replicas)
        if self.kv_link_bytes_per_s is not None:
            expect_numbers(Real, kv_link_bytes_per_s=self.kv_link_bytes_per_s)

    def of_copies(self, deployment: Deployment) -> Fleet:
        """Return the fleet whose replicas are single copies of a deployment, where these share nothing."""
        copies = deployment.parallel.replicas
        return replace(self, replicas=copies * self.replicas, prefill_replicas=copies * self.prefill_replicas)

    def policy_for(self, deployment: Deployment) -> Policy:
        """Return the rules of the scheduler of one deployment.

        Raises
        ------
        UsageError
            When the policy is unknown, or a value is out of range.
        """
        engine = deployment.profile
        own = "no-evict" if engine.reserve and engine.scheduler == "chunked" else _POLICY_OF[engine.scheduler]
        policy = find_policy(self.policy or own)
        rules = dict(self.rules)
        if rules.get("max_wait_s") is not None and policy.name != "dynamic":
            raise UsageError("only dynamic batches have a longest wait.", remedy="Add --policy dynamic.")
        if rules.get("batch") is not None and not policy.batch:
            raise UsageError(f"the policy {policy.name} has no batches.", remedy="Add --policy static or dynamic.")
        if rules.get("batch") == 0:
            raise UsageError("a batch of 0 requests computes nothing.", place="batch", remedy="Give 1 or more.")
        if rules.get("preemption") is not None and policy.reserve:
            raise UsageError(f"the policy {policy.name} preempts nothing.", remedy="Add --policy chunked-prefill.")
        if rules.get("watermark") is not None and policy.batch:
            raise UsageError(f"the policy {policy.name} admits whole batches.", remedy="Leave out --watermark.")
        estimates = policy.conservativeness is not None
        if rules.get("watermark") is not None and estimates:
            raise UsageError(f"the policy {policy.name} has no watermark.", remedy="Use --conservativeness.")
        if rules.get("conservativeness") is not None and not estimates:
            raise UsageError(
                f"the policy {policy.name} does not estimate answers.", remedy="Add --policy new-token-ratio."
            )
        return policy.changed(
            max_num_seqs=deployment.sequence_limit,
            max_batched_tokens=deployment.token_budget * deployment.slots,
            block_tokens=engine.block_tokens,
            ahead=engine.ahead,
            encoded=deployment.encoded_limit * deployment.slots or None,
        ).changed(**rules)


@renaming(max_tokens="max_batched_tokens")
@suggesting
def simulate(
    deployment: Deployment,
    requests: Requests,
    policy: str = "",
    *,
    replicas: int = 1,
    prefill_replicas: int = 0,
    routing: str = ROUND_ROBIN,
    kv_link_bytes_per_s: float | None = None,
    interval: bool = True,
    progress: Progress | None = None,
    **rules: Any,
) -> Replay:
    """Simulate a load on a deployment, event by event.

    Parameters
    ----------
    deployment : one replica; copies of the model that share nothing (dp without ep) are replicas, too.
    requests : the load: `perfmodel.serving.requests.open_loop`, `closed_loop`, or of a file.
    policy : name of a scheduler's policy (chunked-prefill, chunked-recompute, no-evict, prefill-first,
        new-token-ratio, static, dynamic); "" for the engine's own.
    replicas, prefill_replicas : deployments that serve together; with ``prefill_replicas`` these compute the prompts
        and ``replicas`` the answers.
    routing : "round-robin" or "least-loaded".
    kv_link_bytes_per_s : bandwidth of one replica between prefill and decode [B/s]; None: that of its GPUs' networks.
    interval : also simulate the ends of the steps' interval, for low and high of every figure.
    progress : called with the number of requests that have ended, now and then.
    rules : values of the policy: max_num_seqs, max_batched_tokens, watermark, conservativeness, preemption,
        batch, max_wait_s.

    Raises
    ------
    UsageError
        When a request is longer than the model's positions or than the cache, or a value is out of range.
    """
    check_names(rules, RULES, place="simulate", what="rule")
    fleet = Fleet(policy, tuple(rules.items()), replicas, prefill_replicas, routing, kv_link_bytes_per_s)
    return simulate_fleet(deployment, requests, fleet, interval=interval, progress=progress)


def simulate_fleet(
    deployment: Deployment,
    requests: Requests,
    fleet: Fleet,
    *,
    interval: bool = True,
    progress: Progress | None = None,
    judged: Callable[[Replay], bool] | None = None,
    enough: Callable[[Journal], bool] | None = None,
) -> Replay:
    """Simulate a load on several deployments; see `simulate`, and `simulate_server` for ``judged`` and ``enough``."""
    remedy = 'Write pm.Deployment("llama-3.1-8b", "h100").'
    expect(deployment, Deployment, "deployment", place="deployment", remedy=remedy)
    expect(requests, Requests, "load", place="requests", remedy="Write pm.closed_loop(8, 100, 512, 128).")
    deployment.check_length(float(np.max(requests.prompt + requests.output)))
    check_prefix(deployment.config, requests.cached)
    server, spread, first = _served(deployment, requests, fleet)
    ends = spread if interval else None
    replay = simulate_server(server, requests, spread=ends, progress=progress, judged=judged, enough=enough)
    return replace(replay, first_ends=first)


def with_interval(deployment: Deployment, replay: Replay, fleet: Fleet) -> Replay:
    """Return a simulated load with the interval that `simulate_fleet` gives it."""
    server, spread, _ = _served(deployment, replay.requests, fleet)
    return with_ends(server, replay, spread)


def _served(deployment: Deployment, requests: Requests, fleet: Fleet) -> tuple[Server, Spread, Stretch]:
    """Return what serves a load, the ends of its steps, and how far the time to the first token may lie beyond."""
    fleet, deployment = fleet.of_copies(deployment), deployment.replica
    server = _held_back(server_of(deployment, fleet, requests), requests, deployment)
    more, first = _open_ends(deployment, requests)

    def spread(batch: float, context: float) -> tuple[float, float]:
        step = deployment.step(decode=batch, context=context)
        return more.widened(1.0, float(step.low_s / step.time_s), float(step.high_s / step.time_s))

    return server, spread, deployment.first_ends.beside(first)


def _open_ends(deployment: Deployment, requests: Requests) -> tuple[Stretch, Stretch]:
    """Return what steps, and beyond them times to the first token, differ by as no client waits for an answer.

    Bursts were seen in servers: those that a program hands to an engine without one are as sure as other loads.
    """
    other = deployment.elsewhere
    if requests.concurrency:
        return NONE, other.loaded_first if requests.concurrency > 1 else NONE
    if len(requests) == 1 or np.ptp(requests.arrival_s):
        return other.open_step, other.open_first
    return (other.burst_step, other.burst_first) if deployment.host.front_end_s else (NONE, NONE)


def _held_back(server: Server, requests: Requests, deployment: Deployment) -> Server:
    """Return a server that also waits for the steps for which its engine holds a request back.

    They are steps of the mean batch of the load, which is simulated for it.
    """
    if not deployment.host.held_back_steps:
        return server
    replay = whole(simulate_server(server, requests.first(INTERVAL_REQUESTS)))
    batch = max(replay.mean_batch, 1.0)
    step_s = float(deployment.step(decode=batch, context=max(replay.mean_context, 1.0)).time_s)
    held_s = deployment.host.held_back_steps * step_s * (1.0 - 1.0 / batch)
    return replace(server, front_end_s=server.front_end_s + held_s)


def server_of(deployment: Deployment, fleet: Fleet, requests: Requests) -> Server:
    """Return what the simulation has to know of a deployment and its fleet."""
    memory = deployment.memory()
    policy = fleet.policy_for(deployment)
    shared = float(memory.shared(requests.cached))
    bytes_token, states = memory.kv_bytes_token, memory.all_state_bytes + memory.all_sequence_bytes
    server = Server(
        TabledClock(deployment.clock()),
        policy,
        memory.kv_tokens - shared,
        shared_tokens=shared,
        gpus=deployment.gpus,
        replicas=fleet.replicas,
        routing=fleet.routing,
        front_end_s=deployment.host.front_end_s,
        kv_bytes_token=bytes_token,
        sequence_tokens=memory.state_tokens,
        sequence_bytes=states,
        windows=memory.sharing_windows,
        host_bytes_per_s=_host_bytes_per_s(deployment.hardware) * deployment.tp * deployment.pp,
    )
    if not fleet.prefill_replicas:
        return server
    network = kv_link(deployment, fleet.kv_link_bytes_per_s)
    link = Link(network.bytes_per_s, network.latency_s, bytes_token, states, memory.windows)
    return replace(server, prefill=replace(server, replicas=fleet.prefill_replicas), link=link)


def _host_bytes_per_s(hardware: Hardware) -> float:
    for link in hardware.links:
        if link.name == "pcie":
            return link.bandwidth_bytes_per_s
    return _PCIE_BYTES_PER_S


def mean_step(deployment: Deployment, replay: Replay) -> Step:
    """Return the mean step of a simulated load: the steps that decode, that read prompts, and that do both.

    Each of these kinds has the mean of its sequences and prompts, and counts as often as it occurred. The parts are
    scaled to the mean time of the simulated steps, since a step is not linear in what it holds. The simulation counts a
    token of each sequence as a step; with a draft a step gains several. Copies that share nothing have steps of their
    own.
    """
    deployment = deployment.replica
    batch, context = max(replay.mean_batch, 1.0), max(replay.mean_context, 1.0)
    prompts = _prompts_of(replay)
    apart = float(replay.steps - replay.decode_steps)
    both = replay.prompt_steps - apart
    alone = max(0.0, replay.decode_steps / deployment.gained - both)
    kinds = ((alone, batch, ()), (apart, 0.0, prompts), (both, batch, prompts))
    steps = alone + apart + both
    parts = [
        (count / steps, deployment.step(decode=decode, context=context if decode else 0.0, prefill=read))
        for count, decode, read in kinds
        if count
    ]
    return _mean_of(parts, replay.step_s * replay.steps / steps)


def _prompts_of(replay: Replay) -> tuple[tuple[float, float, float], ...]:
    """Return the prompts of a step with prompts, in the mean: how many, new tokens and keys of each."""
    load = replay.requests
    keys = float(load.prompt.mean())
    several = replay.count / max(replay.prompt_steps, 1)
    return ((max(several, 1.0), min(several, 1.0) * (keys - load.cached), keys),)


def _mean_of(parts: Sequence[tuple[float, Step]], time_s: float) -> Step:
    """Return the mean of steps by their shares, with its parts scaled to a time [s]."""
    sums: dict[str, float] = {}
    for share, step in parts:
        figures = {"time": step.time_s, "low": step.low_s, "high": step.high_s, **step.terms_s}
        for name, figure in figures.items():
            sums[name] = sums.get(name, 0.0) + share * float(figure)
    scale = time_s / sums.pop("time")
    low_s, high_s = scale * sums.pop("low"), scale * sums.pop("high")
    return Step(time_s, low_s, high_s, {name: scale * figure for name, figure in sums.items()})


def limiter_of(deployment: Deployment, step: Step, tokens: float) -> Limiter:
    """Return what limits a step in the mean: the resource behind its largest term.

    Products are limited by the device's memory where the tokens that share a weight are fewer than the ridge point:
    2 tokens FLOP for the bytes of a weight (Williams et al. 2009, "Roofline").
    """
    term = step.limiter
    if term not in ("weights", "experts"):
        return _LIMITER.get(term, Limiter.UNKNOWN)
    machine, weight = deployment.hardware, deployment.format
    bandwidth = machine.main_memory.bandwidth_bytes_per_s
    ridge = machine.native_peak(weight.compute).flop_per_s / bandwidth if bandwidth else 0.0
    shared = tokens
    if term == "experts" and deployment.part.experts:
        shared = tokens * deployment.part.top_k / deployment.part.experts
    return Limiter.HBM if 2.0 * shared / weight.bytes < ridge else Limiter.COMPUTE

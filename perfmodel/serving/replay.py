"""The result of a simulation: times of each request, percentiles, throughput, state over time, stability."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.report import Reportable
from perfmodel.core.units import format_count, format_si
from perfmodel.errors import unknown_name
from perfmodel.prediction.stretch import NONE, Stretch
from perfmodel.serving.journal import Journal
from perfmodel.serving.requests import Requests
from perfmodel.serving.tally import Gaps, Tally

if TYPE_CHECKING:
    from perfmodel.serving.pools import AnyReplica

Times = NDArray[np.float64]
PERCENTILES = (50.0, 95.0, 99.0)
#: evenly spaced times at which the state is given, beside those of events
_EVEN = 400
#: quantities of a request: time to first token, time per later token, from first token to last, in the queue
QUANTITIES = ("ttft_s", "tpot_s", "latency_s", "queued_s")
TTFT = QUANTITIES[0]
ITL = "itl_s"


@dataclass(frozen=True)
class Growth:
    """Requests that pile up.

    Attributes
    ----------
    per_s : requests by which those in the engines and queues grow a second [1/s].
    rate_per_s, capacity_per_s : requests that arrive, and that end, a second [1/s].
    """

    per_s: float
    rate_per_s: float
    capacity_per_s: float


@dataclass(frozen=True, eq=False)
class States:
    """The state of the engines at times in ascending order: sequences that run, that wait, share of the cache."""

    time_s: Times
    running: Times
    queued: Times
    kv_share: Times


@dataclass(frozen=True, eq=False)
class Replay(Reportable):
    """A simulated load.

    Attributes
    ----------
    requests : the load.
    arrival_s, started_s, first_s, last_s : of each request: arrival, first computed step, first and last token [s];
        NaN for what had not happened when the simulation was interrupted.
    preemptions : how often sequences lost their place in the cache.
    gaps : times between two tokens of a sequence; the first holds the way of its keys and values to another engine.
    states : sequences and cache over time.
    gpus : GPUs of all engines.
    front_end_s : time that the server in front adds to the first token [s].
    busy_s : time in which the engines computed, added up [s].
    mean_running, mean_queued, kv_share : means over time of the sequences in the engines and in the queues, and of the
        share of the cache in use.
    mean_batch, mean_context : sequences of a decode step, and keys of each of them, in the mean.
    kv_bytes : mean bytes of keys and values in use [B].
    steps, computed_tokens, generated_tokens : of all engines; recomputed prompts count as computed.
    prompt_steps, decode_steps : of the steps, those with prompts and those in which sequences decode; some have both.
    step_s : mean time of a step [s].
    interrupted : the simulation was ended by the user.
    growth : how the requests pile up where the load is above the capacity, else None.
    ends : the first requests simulated with all steps at the low end of their interval, as expected, and at the high
        end.
    first_ends : how far the time to the first token may lie below and above what steps explain.
    """

    requests: Requests
    arrival_s: Times
    started_s: Times
    first_s: Times
    last_s: Times
    preemptions: int
    gaps: Gaps
    states: States
    gpus: int
    front_end_s: float
    busy_s: float
    mean_running: float
    mean_queued: float
    kv_share: float
    mean_batch: float
    mean_context: float
    kv_bytes: float
    steps: int
    computed_tokens: int
    generated_tokens: int
    prompt_steps: int
    decode_steps: int
    step_s: float
    interrupted: bool = False
    growth: Growth | None = None
    ends: tuple[Replay, Replay, Replay] | None = field(default=None, repr=False)
    first_ends: Stretch = NONE

    @cached_property
    def ended(self) -> NDArray[np.bool_]:
        """Which requests have ended."""
        return np.isfinite(self.last_s)

    def __repr__(self) -> str:
        """Return the main figures in a line: requests, throughput, means of both latencies."""
        both = (self.ttft_s, self.tpot_s)
        ttft, tpot = (format_si(float(times.mean()), "s") if times.size else "-" for times in both)
        rate = f"{self.output_tokens_per_s:.4g} tokens/s"
        return f"<Replay: {format_count(self.count, 'request')}, {rate}, mean TTFT {ttft}, mean TPOT {tpot}>"

    @property
    def count(self) -> int:
        """Requests that have ended."""
        return int(self.ended.sum())

    @cached_property
    def ttft_s(self) -> Times:
        """Time from arrival to first token of each request that has ended [s]."""
        return np.asarray((self.first_s - self.arrival_s)[self.ended] + self.front_end_s)

    @cached_property
    def tpot_s(self) -> Times:
        """Mean time between two tokens of each request that has ended and has two tokens [s]."""
        several = self.ended & (self.requests.output > 1)
        return np.asarray((self.last_s - self.first_s)[several] / (self.requests.output[several] - 1))

    @cached_property
    def latency_s(self) -> Times:
        """Time from arrival to last token of each request that has ended [s]."""
        return np.asarray((self.last_s - self.arrival_s)[self.ended] + self.front_end_s)

    @cached_property
    def queued_s(self) -> Times:
        """Time in the queue of each request that has ended [s]."""
        return np.asarray((self.started_s - self.arrival_s)[self.ended])

    @cached_property
    def duration_s(self) -> float:
        """Time from the first request, before the server in front, to the last token [s]."""
        return float(np.nanmax(self.last_s) - np.nanmin(self.arrival_s)) + self.front_end_s if self.count else 0.0

    def per_s(self, count: float) -> float:
        """Return a number of things over the whole time [1/s]."""
        return count / self.duration_s if self.duration_s > 0 else math.nan

    @property
    def requests_per_s(self) -> float:
        """Requests that end a second, from first arrival to last token [1/s]."""
        return self.per_s(self.count)

    @property
    def output_tokens_per_s(self) -> float:
        """Tokens of answers a second, from first arrival to last token [1/s]."""
        return self.per_s(float(self.requests.output[self.ended].sum()))

    @property
    def total_tokens_per_s(self) -> float:
        """Tokens of prompts and answers a second [1/s]."""
        return self.per_s(float((self.requests.output + self.requests.prompt)[self.ended].sum()))

    @property
    def busy_share(self) -> float:
        """Share of the time in which an engine computes, in the mean over the engines."""
        return self.per_s(self.busy_s)

    def statistics(self, quantity: str, percentiles: Sequence[float] = PERCENTILES) -> dict[str, float]:
        """Return mean and percentiles of a quantity, each with low and high end: mean, mean_low, p50, p50_low, ...

        Raises
        ------
        UsageError
            When the quantity is none of `QUANTITIES` and ``itl_s``.
        """
        names = ("mean", *(f"p{share:g}" for share in percentiles))
        own = _figures(self, quantity, percentiles)
        figures = dict(zip(names, own, strict=True))
        if self.ends is None:
            return figures
        fast, expected, slow = (_figures(end, quantity, percentiles) for end in self.ends)
        more = self.first_ends if quantity == TTFT else NONE
        for name, value, low, middle, high in zip(names, own, fast, expected, slow, strict=True):
            ends = value, value
            if min(value, low, middle, high) > 0:  # requests may wait at one speed of the steps and not at another
                ends = more.widened(value, value * low / middle, value * high / middle)
            figures[f"{name}_low"], figures[f"{name}_high"] = ends
        return figures

    def interval(self, figure: str) -> tuple[float, float]:
        """Return low and high of a rate ("output_tokens_per_s"): of slow and of fast steps; NaN without ends."""
        if self.ends is None:
            return math.nan, math.nan
        fast, expected, slow = (float(getattr(end, figure)) for end in self.ends)
        value = float(getattr(self, figure))
        return value * slow / expected, value * fast / expected


def _figures(replay: Replay, quantity: str, percentiles: Sequence[float]) -> list[float]:
    """Return mean and percentiles of a quantity."""
    if quantity == ITL:
        return [replay.gaps.mean_s, *(replay.gaps.quantile(share / 100.0) for share in percentiles)]
    if quantity not in QUANTITIES:
        raise unknown_name("quantity", quantity, (*QUANTITIES, ITL))
    values: Times = getattr(replay, quantity)
    if not len(values):
        return [math.nan] * (1 + len(percentiles))
    return [float(values.mean()), *(float(value) for value in np.percentile(values, list(percentiles)))]


def replay_of(
    requests: Requests,
    journal: Journal,
    engines: Sequence[AnyReplica],
    prefill: Sequence[AnyReplica],
    *,
    gpus: int,
    front_end_s: float,
    kv_bytes_token: float,
    shared_tokens: float,
    interrupted: bool,
) -> Replay:
    """Return the result of a simulation from what its engines wrote.

    Besides the sequences, the cache of each engine that decodes holds ``shared_tokens`` of a prefix of all prompts.
    """
    everyone = [*engines, *prefill]
    tallies = [engine.tally for engine in everyone]
    arrival_s, started_s, first_s, last_s = (
        np.array(values) for values in (journal.arrival_s, journal.started_s, journal.first_s, journal.last_s)
    )
    ended = last_s[np.isfinite(last_s)]
    start_s = float(np.nanmin(arrival_s)) if np.any(np.isfinite(arrival_s)) else 0.0
    duration_s = float(ended.max() - start_s) if len(ended) else math.nan
    gaps = Gaps()
    for tally in tallies[: len(engines)]:
        gaps = gaps.merged(tally.gaps)
    decode_steps = sum(tally.decode_steps for tally in tallies)
    decoded = sum(tally.decoded for tally in tallies)
    busy_s, steps = sum(tally.busy_s for tally in tallies), sum(tally.steps for tally in tallies)
    blocks = sum(engine.blocks.total for engine in engines)
    blocks_s = sum(tally.blocks_s for tally in tallies[: len(engines)])
    block_tokens, prefix_tokens = engines[0].blocks.block_tokens, len(engines) * shared_tokens
    held_tokens = prefix_tokens + (blocks_s / duration_s * block_tokens if duration_s else 0.0)
    room_tokens = prefix_tokens + blocks * block_tokens
    return Replay(
        requests, arrival_s, started_s, first_s, last_s,
        preemptions=sum(tally.preemptions for tally in tallies),
        gaps=gaps,
        states=_states(engines, prefill, arrival_s, started_s, prefix_tokens),
        gpus=gpus,
        front_end_s=front_end_s,
        busy_s=busy_s / len(everyone),
        mean_running=_mean(tallies, "running_s", duration_s),
        mean_queued=_mean(tallies, "queued_s", duration_s),
        kv_share=held_tokens / room_tokens,
        mean_batch=decoded / decode_steps if decode_steps else 0.0,
        mean_context=sum(tally.decode_contexts for tally in tallies) / decoded if decoded else 0.0,
        kv_bytes=held_tokens * kv_bytes_token,
        steps=steps,
        prompt_steps=sum(tally.prompt_steps for tally in tallies),
        decode_steps=decode_steps,
        step_s=busy_s / steps if steps else math.nan,
        computed_tokens=sum(tally.tokens for tally in tallies),
        generated_tokens=sum(tally.generated for tally in tallies),
        interrupted=interrupted,
    )  # fmt: skip


def _mean(tallies: Sequence[Tally], name: str, duration_s: float) -> float:
    return sum(float(getattr(tally, name)) for tally in tallies) / duration_s if duration_s else 0.0


def _states(
    engines: Sequence[AnyReplica], prefill: Sequence[AnyReplica], arrival_s: Times, started_s: Times,
    prefix_tokens: float,
) -> States:  # fmt: skip
    """Return the sums over the engines at the times at which one of them was sampled, and at even ones between.

    Requests that wait are counted from their arrivals and first steps; the cache fills evenly between two samples.
    """
    everyone = [*engines, *prefill]
    samples = [engine.tally.samples for engine in everyone]
    times = np.concatenate([rows[:, 0] for rows in samples])
    if not len(times):
        return States(*(np.zeros(0) for _ in range(4)))
    times = np.unique(np.concatenate([times, np.linspace(0.0, times.max(), _EVEN)]))
    running, blocks = np.zeros(len(times)), np.zeros(len(times))
    for index, rows in enumerate(samples):
        if not len(rows):
            continue
        place = np.searchsorted(rows[:, 0], times, side="right") - 1
        running += np.where(place >= 0, rows[np.maximum(place, 0), 1], 0.0)
        if index < len(engines):
            blocks += np.interp(times, rows[:, 0], rows[:, 3], left=0.0)
    came, began = (np.sort(when[np.isfinite(when)]) for when in (arrival_s, started_s))
    queued = np.searchsorted(came, times, side="right") - np.searchsorted(began, times, side="right")
    block_tokens = engines[0].blocks.block_tokens
    room = sum(engine.blocks.total for engine in engines) * block_tokens
    share = (blocks * block_tokens + prefix_tokens) / (room + prefix_tokens)
    return States(times, running, queued.astype(np.float64), share)

"""Whether a load is above the capacity of its engines, so that requests pile up as long as it lasts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from perfmodel.serving.replay import Growth, Replay
from perfmodel.serving.requests import Requests

#: fewer requests are not judged
_LEAST = 50
#: standard deviations of the number of arrivals by which the requests in the system have to grow. A load with fewer at
#: its end does not grow; one with more, as also slow answers have them, is simulated again for longer
_DEVIATIONS = 1.0
#: requests of that longer load: one that is 2 % above the capacity piles up 100 of them
LONG = 10_000
#: a load is near the capacity from this share of the rate on at which its first requests end that are all there at once
_NEAR, _BURST = 0.8, 2000


def growth_of(replay: Replay, simulate: Callable[[Requests], Replay]) -> Growth | None:
    """Return how the requests in an open loop pile up, or None if they do not.

    The requests in the system are those that run and those that wait: an engine that has places left answers more at
    once, and more slowly, before a queue shows. Where many are left at the last arrival, the load is simulated again
    and again in a row. Its two halves have the same arrivals, so that chance does not tell them apart, and the requests
    in the system at their ends are compared.

    Parameters
    ----------
    replay : the simulated load.
    simulate : simulates a longer one.
    """
    if not _is_judged(replay) or _in_system(replay, -1) < _DEVIATIONS * math.sqrt(len(replay.requests)):
        return None
    return _measured(simulate(repeated(replay.requests, LONG)))


def burst_of(load: Requests) -> Requests:
    """Return the first requests of a load, all at once: how many of them end a second is about the capacity."""
    few = load.first(_BURST)
    return replace(few, arrival_s=np.zeros(len(few)))


def is_near_capacity(load: Requests, burst_per_s: float) -> bool:
    """Return whether an open loop is near the capacity, or above it, so that few requests do not tell which.

    A thousand of them may end before the running batch, which grows in place of the queue, has filled the cache.

    Parameters
    ----------
    load : an open loop.
    burst_per_s : requests of `burst_of` that end a second [1/s].
    """
    return load.rate_per_s > _NEAR * burst_per_s


def sustained_per_s(replay: Replay) -> float:
    """Return the requests that end a second as long as a load lasts [1/s].

    Of an open loop these are the ones that arrive, or as many as the engines can where that is less. Those that end
    within a run, from its first arrival to its last token, are fewer, since the last ones end after the last arrival.
    """
    if not _is_judged(replay):
        return replay.requests_per_s
    return replay.requests.rate_per_s if replay.growth is None else replay.growth.capacity_per_s


def _is_judged(replay: Replay) -> bool:
    """Whether a load tells if requests pile up: an open loop of enough requests, simulated to its end."""
    load = replay.requests
    return not (load.concurrency or replay.interrupted or len(load) < _LEAST or math.isinf(load.rate_per_s))


def repeated(load: Requests, count: int) -> Requests:
    """Return at least ``count`` requests: an open loop, again and again at the same rate, an even number of times."""
    times = 2 * max(1, math.ceil(count / (2 * len(load))))
    period_s = float(load.arrival_s[-1]) + 1.0 / load.rate_per_s
    starts = np.repeat(np.arange(times) * period_s, len(load))
    return Requests(
        np.tile(load.arrival_s, times) + starts, np.tile(load.prompt, times), np.tile(load.output, times), 0,
        load.cached,
    )  # fmt: skip


def _in_system(replay: Replay, index: int) -> int:
    """Return how many requests are in the engines and queues when the one with an index arrives, without it."""
    arrivals = replay.arrival_s
    came = index % len(arrivals)
    return came - int(np.searchsorted(np.sort(replay.last_s), arrivals[index], side="right"))


def _measured(replay: Replay) -> Growth | None:
    """Return how the requests in the system grow from half of the arrivals to the last one; None if they do not."""
    arrivals = replay.arrival_s
    half = len(arrivals) // 2
    span_s = float(arrivals[-1] - arrivals[half])
    if not replay.ended.all() or span_s <= 0:
        return None
    came = len(arrivals) - 1 - half
    grown = _in_system(replay, -1) - _in_system(replay, half)
    if grown < _DEVIATIONS * math.sqrt(came):
        return None
    # arrivals that last less than a latency see no end: the whole run tells how many requests end a second
    ending = max((came - grown) / span_s, len(arrivals) / replay.duration_s)
    if came / span_s <= ending:
        return None
    return Growth(came / span_s - ending, replay.requests.rate_per_s, ending)

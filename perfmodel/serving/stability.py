"""Whether a load is above the capacity of its engines, so that requests pile up as long as it lasts."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from perfmodel.serving.replay import Growth, Replay
from perfmodel.serving.requests import Requests

#: fewer requests are not judged
_LEAST = 50
#: standard deviations of the number of arrivals by which the requests in the system have to grow
_DEVIATIONS = 3.0
#: the load that is judged lasts so many latencies, since requests pile up in any system until the first have been
#: through, and so many times the load in question, since near the capacity queues come and go
_LATENCIES, _TIMES = 6.0, 4
#: most requests of a longer load
_MOST = 10_000


def growth_of(replay: Replay, simulate: Callable[[Requests], Replay]) -> Growth | None:
    """Return how the requests in an open loop pile up, or None if they do not.

    The requests in the system at the ends of the second half of the arrivals are compared. Where they grow, the load
    is simulated again and again in a row, and judged for that longer time.

    Parameters
    ----------
    replay : the simulated load.
    simulate : simulates a longer one.
    """
    load = replay.requests
    if load.concurrency or replay.interrupted or len(load) < _LEAST or math.isinf(load.rate_per_s):
        return None
    if _measured(replay) is None:
        return None
    enough = _LATENCIES * float(np.median(replay.latency_s)) * load.rate_per_s
    return _measured(simulate(repeated(load, min(_MOST, max(_TIMES * len(load), math.ceil(enough))))))


def repeated(load: Requests, count: int) -> Requests:
    """Return at least ``count`` requests: an open loop, again and again at the same rate."""
    times = max(1, math.ceil(count / len(load)))
    period_s = float(load.arrival_s[-1]) + 1.0 / load.rate_per_s
    starts = np.repeat(np.arange(times) * period_s, len(load))
    return Requests(
        np.tile(load.arrival_s, times) + starts, np.tile(load.prompt, times), np.tile(load.output, times), 0,
        load.cached,
    )  # fmt: skip


def _measured(replay: Replay) -> Growth | None:
    arrivals = replay.arrival_s
    half = len(arrivals) // 2
    span_s = float(arrivals[-1] - arrivals[half])
    if not replay.ended.all() or span_s <= 0:
        return None
    ended = np.sort(replay.last_s)
    start, stop = (int(np.searchsorted(ended, arrivals[index], side="right")) for index in (half, -1))
    came = len(arrivals) - 1 - half
    grown = came - (stop - start)
    if grown < _DEVIATIONS * math.sqrt(came):
        return None
    # arrivals that last less than a latency see no end: the whole run tells how many requests end a second
    ending = max((stop - start) / span_s, len(arrivals) / replay.duration_s)
    if came / span_s <= ending:
        return None
    return Growth(came / span_s - ending, replay.requests.rate_per_s, ending)

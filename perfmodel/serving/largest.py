"""The largest load at which objectives are met: clients of a closed loop, or requests a second."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from perfmodel.serving.replay import Replay
from perfmodel.serving.slo import Objective, Slo

#: a rate is the largest within this share; and that within which fewer requests look for it first
_PRECISION, _ROUGH = 0.02, 0.06
#: factor between the first rates, where one that is likely starts; it grows as long as none is on the other side
_FIRST_STEP = 1.1
#: a rate that is so many times the first one, or as much below it, counts as unlimited, or as none
_MOST_TIMES = 2.0**24
#: largest factor between two rates
_LARGEST_STEP = 16.0
#: most simulations of a search
_MOST_TRIES = 60


@dataclass(frozen=True)
class Largest:
    """The largest load that meets objectives.

    Attributes
    ----------
    load : clients of a closed loop, or requests a second.
    replay : the simulation at that load.
    missed : objectives that a larger load misses; empty where the largest load that was allowed meets all.
    grows : a larger load is above the capacity, and misses no objective within the requests that were simulated.
    """

    load: float
    replay: Replay
    missed: tuple[Objective, ...]
    grows: bool = False


def largest_concurrency(simulate: Callable[[int], Replay], slo: Slo, most: int) -> Largest | None:
    """Return the most clients of a closed loop at which the objectives are met, by bisection; None if not even one.

    Latencies grow with the load; where they do not, as at the edges of tiles, the bisection finds one such edge.

    Parameters
    ----------
    simulate : returns the simulation with a number of clients.
    slo : the objectives.
    most : the most clients to try.
    """
    good = simulate(1)
    if not slo.met(good):
        return None
    low, high, best = 1, 1, good
    missed: tuple[Objective, ...] = ()
    while high < most:  # double until one misses
        high = min(2 * low, most)
        replay = simulate(high)
        if not slo.met(replay):
            missed = slo.missed(replay)
            break
        low, best = high, replay
    while low < high - 1 and missed:
        middle = (low + high) // 2
        replay = simulate(middle)
        if slo.met(replay):
            low, best = middle, replay
        else:
            high, missed = middle, slo.missed(replay)
    return Largest(low, best, missed)


@dataclass
class _Search:
    """The rates between which the largest one lies, from simulations at some.

    Attributes
    ----------
    slo : the objectives.
    precision : share of the lower rate that may be between both in the end.
    low, high : the highest rate that meets the objectives, and the lowest that misses them [1/s].
    best, worse : their simulations.
    slope : excess over the limits that a rate has more of, over the logarithm of the rate; 0 where it is not known.
    """

    slo: Slo
    precision: float
    slope: float = 0.0
    low: float = 0.0
    high: float = math.inf
    best: Replay | None = None
    worse: Replay | None = None
    _step: float = field(default=_FIRST_STEP, repr=False)

    def run(self, simulate: Callable[[float], Replay], start_per_s: float) -> None:
        """Simulate from a rate on, up or down in growing steps, until one side of each is known and both are near."""
        rate = start_per_s
        for _ in range(_MOST_TRIES):
            width = self.high / self.low if self.low else math.inf
            replay = simulate(rate)
            if self.slo.met(replay):
                self.low, self.best = rate, replay
            else:
                self.high, self.worse = rate, replay
            if self.high <= self.low * (1.0 + self.precision):
                return
            if not start_per_s / _MOST_TIMES < rate < start_per_s * _MOST_TIMES:
                return
            rate = self._next(width)

    def _next(self, width: float) -> float:
        """Return the rate to simulate next; ``width`` is what lay between both sides before the last one."""
        # just below where no excess is likely, and from there on just above the last rate that met the objectives
        near, far = 1.0 + 0.45 * self.precision, 1.0 + 0.99 * self.precision
        if self.worse is None or self.best is None:
            one = self.best or self.worse
            assert one is not None
            factor, self._step = self._step, min(self._step**2, _LARGEST_STEP)
            if self.slope > 0:
                factor = min(factor, max(far, near * math.exp(abs(self.slo.excess(one)) / self.slope)))
            return self.low * factor if self.worse is None else self.high / factor
        if self.high <= self.low * (1.0 + self.precision) ** 2:
            return math.sqrt(self.low * self.high)
        if math.log(self.high / self.low) > 0.5 * math.log(width):  # the last one said little
            return math.sqrt(self.low * self.high)
        below = -self.slo.excess(self.best)
        share = below / (self.rise * math.log(self.high / self.low)) if self.rise > 0 else 0.5
        rate = self.low * (self.high / self.low) ** min(max(share, 0.0), 1.0) / near
        if rate < self.low * near:
            return min(self.low * far, math.sqrt(self.low * self.high))
        return float(min(rate, self.high / near))

    @property
    def rise(self) -> float:
        """The slope between the two rates; 0 where they do not tell it."""
        if self.best is None or self.worse is None:
            return 0.0
        rise = self.slo.excess(self.worse) - self.slo.excess(self.best)
        return max(0.0, rise) / math.log(self.high / self.low)


def largest_rate(
    simulate: Callable[[float], Replay],
    slo: Slo,
    start_per_s: float,
    few: Callable[[float], Replay] | None = None,
) -> Largest | None:
    """Return the highest rate of requests at which the objectives are met, within 2 %; None if no rate has them met.

    The rate is looked for where the excess over the limits, at the rates known so far, would be none.

    Parameters
    ----------
    simulate : returns the simulation at a rate [1/s].
    slo : the objectives.
    start_per_s : the rate to try first [1/s].
    few : returns one of fewer requests, with which the rate is looked for first; what it finds is checked.
    """
    start, slope = start_per_s, 0.0
    if few is not None:
        rough = _Search(slo, _ROUGH)
        rough.run(few, start)
        if rough.best is not None and rough.worse is not None:
            start, slope = rough.low, rough.rise
    found = _Search(slo, _PRECISION, slope)
    found.run(simulate, start)
    if found.best is None:
        return None
    missed = () if found.worse is None else slo.missed(found.worse)
    return Largest(found.low, found.best, missed, grows=found.worse is not None and not missed)

"""The largest load at which objectives are met: clients of a closed loop, or requests a second."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

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
#: logarithm of the factor by which the largest load may differ from that of the steady state's means; the share by
#: which it may from that which an excess at a known load tells, over the distance to there; and the least, beyond the
#: noise of the percentiles of a few thousand requests
_DOUBT, _DOUBT_OF_EXCESS, _LEAST_DOUBT = 0.25, 0.3, 0.006
#: simulations of a bisection after which nothing is assumed any more
_MOST_GUESSED = 10

Array = NDArray[np.float64]


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


@dataclass(frozen=True)
class Likely:
    """What the steady state says of the largest load, before it is simulated.

    Attributes
    ----------
    users : numbers of clients in ascending order.
    excess : ln(mean / limit) of the objective that is nearest to its limit there; see `Slo.excess`.
    """

    users: Array
    excess: Array

    def edge(self, excess: float = 0.0) -> float:
        """Return the clients at which the excess is reached first; 0 and infinite where it is below or above all."""
        rising = np.maximum.accumulate(self.excess)
        if excess < rising[0]:
            return 0.0
        if excess >= rising[-1]:
            return math.inf
        last = int(np.searchsorted(rising, excess, side="right"))
        share = (excess - rising[last - 1]) / (rising[last] - rising[last - 1])
        return float(self.users[last - 1] * (self.users[last] / self.users[last - 1]) ** share)

    def at(self, users: float) -> float:
        """Return the excess with some clients."""
        return float(np.interp(math.log(users), np.log(self.users), np.maximum.accumulate(self.excess)))


def largest_concurrency(
    simulate: Callable[[int], Replay],
    slo: Slo,
    most: int,
    likely: Likely | None = None,
    known: Mapping[int, Replay] | None = None,
) -> Largest | None:
    """Return the most clients of a closed loop at which the objectives are met, by bisection; None if not even one.

    Latencies grow with the load; where they do not, as at the edges of tiles, the bisection finds one such edge. With
    ``likely`` it simulates only loads that are near to where the edge seems to be, and both of its sides.

    Parameters
    ----------
    simulate : returns the simulation with a number of clients.
    slo : the objectives.
    most : the most clients to try.
    likely : where the edge is likely; None: all loads of the bisection are simulated.
    known : simulations that there are.
    """
    search = _Bisection(simulate, slo, most, likely, dict(known or {}))
    while True:
        low, high = search.edge()
        assumed = [load for load in (low, high) if 1 <= load <= most and load not in search.known]
        if not assumed:
            break
        search.simulated(assumed[0])
    if low < 1:
        return None
    missed = slo.missed(search.known[high]) if high <= most else ()
    return Largest(low, search.known[low], missed)


@dataclass
class _Bisection:
    """The clients between which the largest load lies, from simulations of some.

    Attributes
    ----------
    simulate, slo, most, likely : of `largest_concurrency`.
    known : simulations by their clients.
    """

    simulate: Callable[[int], Replay]
    slo: Slo
    most: int
    likely: Likely | None
    known: dict[int, Replay]

    def edge(self) -> tuple[int, int]:
        """Return the most clients that meet the objectives, or 0, and one more; loads far from there are assumed."""
        if not self._met(1):
            return 0, 1
        low, high = 1, self.most + 1
        while low < self.most:  # double until one misses
            load = min(2 * low, self.most)
            if not self._met(load):
                high = load
                break
            low = load
        while low < high - 1:
            middle = (low + high) // 2
            if self._met(middle):
                low = middle
            else:
                high = middle
        return low, high

    def simulated(self, load: int) -> bool:
        """Return whether a load meets the objectives; it is simulated once."""
        if load not in self.known:
            self.known[load] = self.simulate(load)
        return self.slo.met(self.known[load])

    def _met(self, load: int) -> bool:
        """Return whether a load meets the objectives, as far as is known, or as is likely far from the edge."""
        if load in self.known or self.likely is None:
            return self.simulated(load)
        low, high = self._sides()
        if low < high and not low < load < high:
            return load <= low
        edge, doubt = self._guess(low, high)
        if low < high and edge * math.exp(-doubt) > load:
            return True
        if low < high and edge * math.exp(doubt) < load:
            return False
        return self.simulated(load)

    def _sides(self) -> tuple[float, float]:
        """Return the most clients that are known to meet the objectives, and the fewest that are known to miss."""
        met = [load for load, replay in self.known.items() if self.slo.met(replay)]
        missed = [load for load in self.known if load not in met]
        return max(met, default=0), min(missed, default=math.inf)

    def _guess(self, low: float, high: float) -> tuple[float, float]:
        """Return where the edge seems to be, and by which factor it may differ, as its logarithm."""
        assert self.likely is not None
        if len(self.known) > _MOST_GUESSED:
            return 1.0, math.inf
        if not self.known:
            return self.likely.edge(), _DOUBT
        excess = {load: self.slo.excess(self.known[int(load)]) for load in (low, high) if load in self.known}
        if len(excess) == 2 and excess[low] <= 0.0 < excess[high]:
            width = math.log(high / low)
            edge = low * math.exp(width * excess[low] / (excess[low] - excess[high]))
            return edge, max(_LEAST_DOUBT, _DOUBT_OF_EXCESS * width)
        load = high if high in excess else low
        # percentiles are beyond means by about as much at loads that are near
        edge = self.likely.edge(self.likely.at(load) - excess[load])
        if not 0.0 < edge < math.inf:
            return edge, _LEAST_DOUBT
        return edge, max(_LEAST_DOUBT, _DOUBT_OF_EXCESS * abs(math.log(edge / load)))


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

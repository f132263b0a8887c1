"""Service objectives: limits of latencies, and the requests that keep them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from perfmodel.core.lists import list_items
from perfmodel.core.units import format_si, parse_duration
from perfmodel.errors import UsageError, unknown_name
from perfmodel.serving.journal import Journal
from perfmodel.serving.replay import Replay
from perfmodel.serving.requests import Requests
from perfmodel.serving.stability import sustained_per_s

#: the option that holds objectives
_PLACE = "--slo"
#: name in an objective -> quantity of a replay
_QUANTITIES = {"ttft": "ttft_s", "tpot": "tpot_s", "itl": "itl_s", "latency": "latency_s", "e2e": "latency_s"}
_STATISTIC = re.compile(r"p(\d{1,2}(?:\.\d+)?)$|mean$")
#: the statistic that an objective limits where none is named
DEFAULT_STATISTIC = "p95"


@dataclass(frozen=True)
class Objective:
    """One limit: a statistic of a quantity that must not be above a time.

    Attributes
    ----------
    name : "ttft", "tpot", "itl" or "latency".
    limit_s : the longest time [s].
    statistic : "mean", or a percentile as "p99".
    """

    name: str
    limit_s: float
    statistic: str = DEFAULT_STATISTIC

    @property
    def quantity(self) -> str:
        """The quantity of a replay."""
        return _QUANTITIES[self.name]

    def value_s(self, replay: Replay) -> float:
        """Return the statistic in a simulated load [s]; NaN where it has no such value."""
        shares = [] if self.statistic == "mean" else [float(self.statistic[1:])]
        return replay.statistics(self.quantity, shares)[self.statistic]

    def __str__(self) -> str:
        return f"{self.statistic} {self.name} <= {format_si(self.limit_s, 's')}"


@dataclass(frozen=True)
class Slo:
    """Objectives that all have to be met."""

    objectives: tuple[Objective, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.objectives))

    def missed(self, replay: Replay) -> tuple[Objective, ...]:
        """Return the objectives that a simulated load does not meet.

        A quantity that no request has, as the time of further tokens of one-token answers, is met.
        """
        return tuple(item for item in self.objectives if item.value_s(replay) > item.limit_s)

    def excess(self, replay: Replay) -> float:
        """Return ln(value / limit) of the objective that is nearest to its limit, or beyond it by most.

        A queue that grows is beyond the capacity by ln(arriving / ending).
        """
        values = [item.value_s(replay) / item.limit_s for item in self.objectives]
        if replay.growth is not None:
            values.append(replay.growth.rate_per_s / replay.growth.capacity_per_s)
        return math.log(max((value for value in values if value > 0), default=1e-9))

    def met(self, replay: Replay) -> bool:
        """Whether a simulated load meets every objective, and its queue does not grow."""
        return replay.count > 0 and replay.growth is None and not self.missed(replay)

    def attainment(self, replay: Replay) -> float:
        """Return the share of the requests that are each within all limits, whatever the statistic.

        An objective for the gaps between tokens is judged by the mean gap of each request.
        """
        good = replay.ended.copy()
        for item in self.objectives:
            values = np.full(len(good), -math.inf)
            if item.quantity in ("tpot_s", "itl_s"):
                values[replay.ended & (replay.requests.output > 1)] = replay.tpot_s
            else:
                values[replay.ended] = getattr(replay, item.quantity)
            good &= values <= item.limit_s
        return float(good.sum() / max(1, replay.count))

    def goodput_per_s(self, replay: Replay) -> float:
        """Return the requests a second that are within all limits as long as the load lasts [1/s].

        DistServe (Zhong et al. 2024); see `perfmodel.serving.stability.sustained_per_s`.
        """
        return self.attainment(replay) * sustained_per_s(replay)


class Misses:
    """Tells of a simulation that goes on whether its objectives can still be met.

    A percentile of all requests is beyond its limit as soon as so many of them are that the value below it is.
    Objectives for means and for gaps between tokens are judged in the end.

    Parameters
    ----------
    slo : the objectives.
    requests : all of the load.
    """

    def __init__(self, slo: Slo, requests: Requests) -> None:
        self._seen = 0
        self._items, self._left = [], []
        for item in slo.objectives:
            if item.statistic == "mean" or item.quantity == "itl_s":
                continue
            tpot = item.quantity == "tpot_s"
            count = int((requests.output > 1).sum()) if tpot else len(requests)
            # the value below the percentile, see numpy's linear interpolation, is that with this index
            below = math.floor(float(item.statistic[1:]) / 100.0 * (count - 1) - 1e-9)
            self._items.append(item)
            self._left.append(count - below)

    def certain(self, journal: Journal) -> bool:
        """Return whether an objective is missed whatever comes, by the requests that have ended."""
        new = journal.done[self._seen :]
        self._seen += len(new)
        arrival_s, first_s, last_s, output = journal.arrival_s, journal.first_s, journal.last_s, journal.output
        for index, item in enumerate(self._items):
            limit_s = item.limit_s
            if item.quantity == "tpot_s":
                several = (one for one in new if output[one] > 1)
                beyond = sum((last_s[one] - first_s[one]) / (output[one] - 1) > limit_s for one in several)
            else:
                ends = first_s if item.quantity == "ttft_s" else last_s
                beyond = sum(ends[one] - arrival_s[one] > limit_s for one in new)
            self._left[index] -= beyond
        return any(left <= 0 for left in self._left)


def parse_slo(text: str) -> Slo:
    """Return the objectives of a text as ``ttft=500ms,tpot=30ms,p99``.

    The last item may name the statistic of all: mean, p95 (the default), p99; an item may have its own, as
    ``ttft:p99=500ms``.

    Raises
    ------
    UsageError
        When a quantity, a statistic or a time is wrong, or a quantity occurs twice with one statistic.

    >>> print(parse_slo("ttft=0.5s,tpot:mean=30ms,p99"))
    p99 ttft <= 500 ms, mean tpot <= 30 ms
    """
    parts = [part for part in list_items(text, ",", place=_PLACE) if part]
    statistics = [part for part in parts if _STATISTIC.match(part)]
    if len(statistics) > 1:
        raise UsageError(f"{' and '.join(statistics)} are two statistics for all.", place=_PLACE, remedy="Name one.")
    default = statistics[0] if statistics else DEFAULT_STATISTIC
    items = [_objective(part, default) for part in parts if part not in statistics]
    if not items:
        raise UsageError(f"{text!r} has no objective.", place=_PLACE, remedy="Write ttft=500ms,tpot=30ms.")
    keys = [(item.name, item.statistic) for item in items]
    if len(set(keys)) < len(keys):
        raise UsageError(f"{text!r} limits one quantity twice.", place=_PLACE, remedy="Keep one of the limits.")
    return Slo(tuple(items))


def _objective(part: str, default: str) -> Objective:
    left, equals, limit = part.partition("=")
    name, colon, statistic = (word.strip().lower() for word in left.partition(":"))
    if not equals:
        raise UsageError(f"{part!r} is no objective.", place=_PLACE, remedy="Write ttft=500ms,tpot=30ms,p99.")
    if name not in _QUANTITIES:
        raise unknown_name("quantity", name, _QUANTITIES, place=_PLACE)
    if colon and not _STATISTIC.match(statistic):
        raise UsageError(f"{statistic!r} is no statistic.", place=_PLACE, remedy="Write mean, p95 or p99.")
    limit_s = parse_duration(limit, place=_PLACE, written=f"{left.strip()}=")
    if limit_s <= 0:
        raise UsageError(f"the limit of {name} is {limit_s:g} s.", place=_PLACE, remedy="Give a time above 0.")
    return Objective("latency" if name == "e2e" else name, limit_s, statistic or default)

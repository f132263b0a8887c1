"""How late each rank of a job comes to its exchanges, step by step.

TraceLens (NcclAnalyser/nccl_analyser.py) compares the total waits of the ranks; HTA (hta/analyzers/straggler.py) the
starts of the last long collective of an iteration. Here each rank is judged by its own arrival beside the median of the
others, whoever comes last, so that ranks that are equally late are all found. What it waits itself is taken off: with
several exchanges a step, ranks that are equally fast wait for each other in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from perfmodel.diagnosis.ranks.matching import Matched
from perfmodel.diagnosis.ranks.waits import JobSteps, joined_s
from perfmodel.profile.timeline import Floats


class Arrival(NamedTuple):
    """When somebody came to an exchange of a step, and when the others did [s]; ``who`` is an index."""

    step: int
    who: int
    came_s: float
    others_s: float


def net_lateness(arrivals: Iterable[Arrival], steps: int, count: int) -> Floats:
    """Return [step, who] -> how much longer the others wait for it than it waits for them [s].

    Negative where it waits, NaN where it has no exchange in a step. Waits that overlap count once.

    Parameters
    ----------
    arrivals : at all exchanges.
    steps, count : how many steps there are, and how many are judged.
    """
    net_s = np.full((steps, count), np.nan)
    spans: dict[tuple[int, int, int], list[tuple[float, float]]] = {}
    for step, who, came_s, others_s in arrivals:
        net_s[step, who] = 0.0
        if came_s != others_s:
            sign = 1 if came_s > others_s else -1
            spans.setdefault((step, who, sign), []).append((min(came_s, others_s), max(came_s, others_s)))
    for (step, who, sign), pairs in spans.items():
        net_s[step, who] += sign * joined_s(pairs)
    return net_s


def lateness(matched: Sequence[Matched], steps: JobSteps, count: int) -> Floats:
    """Return [step, rank] -> its `net_lateness` beside the median of the others at each exchange [s].

    Parameters
    ----------
    matched, steps : the exchanges, and the steps of the job.
    count : how many ranks there are.
    """
    arrivals = (
        Arrival(step, rank, came_s, others_s)
        for one, step in zip(matched, steps.of_exchange.tolist(), strict=True)
        for rank, came_s, others_s in zip(
            one.ranks.tolist(), one.start_s.tolist(), median_of_others(one.start_s).tolist(), strict=True
        )
    )
    return net_lateness(arrivals, len(steps.names), count)


def lateness_of_group(matched: Sequence[Matched], steps: JobSteps, members: Sequence[int]) -> Floats:
    """Return [step] -> `net_lateness` of the last of some ranks beside the median of all others [s].

    Parameters
    ----------
    matched, steps : the exchanges, and the steps of the job.
    members : indices of the ranks.
    """

    def arrivals() -> Iterator[Arrival]:
        for one, step in zip(matched, steps.of_exchange.tolist(), strict=True):
            inside = np.isin(one.ranks, members)
            if inside.any() and not inside.all():
                yield Arrival(step, 0, float(one.start_s[inside].max()), float(np.median(one.start_s[~inside])))

    return np.asarray(net_lateness(arrivals(), len(steps.names), 1)[:, 0])


def lateness_beside(matched: Sequence[Matched], steps: JobSteps, index: int, count: int) -> Floats:
    """Return [step, other rank] -> `net_lateness` of one rank beside each other one [s].

    Parameters
    ----------
    matched, steps : the exchanges, and the steps of the job.
    index : of the rank; its own column is NaN.
    count : how many ranks there are.
    """

    def arrivals() -> Iterator[Arrival]:
        for one, step in zip(matched, steps.of_exchange.tolist(), strict=True):
            for came_s in one.start_s[one.ranks == index].tolist():
                for other, others_s in zip(one.ranks.tolist(), one.start_s.tolist(), strict=True):
                    if other != index:
                        yield Arrival(step, other, came_s, others_s)

    return net_lateness(arrivals(), len(steps.names), count)


def median_of_others(times_s: Floats) -> Floats:
    """Return for each of several times the median of the others [s].

    >>> median_of_others(np.array([3.0, 0.0, 1.0])).tolist()
    [0.5, 2.0, 1.5]
    """
    order = np.argsort(times_s)
    ranked, place = times_s[order], np.empty_like(order)
    place[order] = np.arange(times_s.size)
    last = times_s.size - 2  # of the others
    # a place at or after the time that is left out moves up by one
    low, high = ((middle + (place <= middle)) for middle in (last // 2, last - last // 2))
    return np.asarray(0.5 * (ranked[low] + ranked[high]))

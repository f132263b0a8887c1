"""How late each rank of a job comes to its exchanges, step by step.

TraceLens (NcclAnalyser/nccl_analyser.py) compares the total waits of the ranks; HTA (hta/analyzers/straggler.py) the
starts of the last long collective of an iteration. Here two figures have to agree.

The first is how much longer the exchanges keep the others from computing (`perfmodel.diagnosis.ranks.stalls`). Between
two exchanges that ranks have in common, the same time passes on all of them, and what one is not kept waiting in is its
own: it computes, or its host is slow. So a rank costs the others as much as they are kept waiting longer than it. Waits
beside computation cost nothing, and a rank that is late since it waited for another one has no time of its own.

The second is its arrival beside the median of the others, whoever comes last, so that ranks that are equally late are
all found, less what it waits itself. It bounds the first: a rank that works while the others exchange something without
it has time of its own, too, but nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from perfmodel.diagnosis.ranks.matching import Matched
from perfmodel.diagnosis.ranks.meetings import Meetings
from perfmodel.diagnosis.ranks.waits import JobSteps, joined_s
from perfmodel.profile.timeline import Floats


class Arrival(NamedTuple):
    """When somebody came to an exchange of a step, and when the others did [s]; ``who`` is an index."""

    step: int
    who: int
    came_s: float
    others_s: float


def net_lateness(arrivals: Iterable[Arrival], steps: int, count: int) -> Floats:
    """Return [step, who] -> how much longer others are there before it than it is before them [s].

    Negative where it is, NaN where it has no exchange in a step. Times that overlap count once.

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


def lateness(together: Sequence[Meetings], steps: int, count: int) -> Floats:
    """Return [step, rank] -> how much longer it keeps the others waiting than they keep it, the median other [s].

    Negative where it waits, NaN where it has no exchange in a step.

    Parameters
    ----------
    together : as of `perfmodel.diagnosis.ranks.meetings.meetings`.
    steps, count : how many steps and ranks there are.
    """
    net_s = np.full((steps, count), np.nan)
    for index in range(count):
        beside_s = lateness_beside(together, index, steps, count)
        known = np.isfinite(beside_s)
        rows, met = known.any(axis=1), known.any(axis=0)
        if met.any():
            net_s[rows, index] = np.nanmedian(beside_s[np.ix_(rows, met)], axis=1)
    return net_s


def lateness_of_group(together: Meetings, steps: int, members: Sequence[int]) -> Floats:
    """Return [step] -> how much longer some ranks keep all others waiting than the last of them is kept waiting [s].

    Parameters
    ----------
    together : of all ranks.
    steps : how many there are.
    members : indices of the ranks.
    """
    inside = np.isin(together.ranks, members)
    net_s = np.full(steps, np.nan)
    if inside.any() and not inside.all():
        kept_s = together.kept_s
        net_s[together.steps] = np.median(kept_s[:, ~inside], axis=1) - kept_s[:, inside].min(axis=1)
    return net_s


def lateness_beside(together: Sequence[Meetings], index: int, steps: int, count: int) -> Floats:
    """Return [step, other rank] -> how much longer one rank keeps each other one waiting than that keeps it [s].

    NaN where the two do not meet in a step, and in its own column. Of ranks that meet it in fewer steps than others do,
    as along the columns of a mesh, it is what falls to as many steps as those have between two meetings.

    Parameters
    ----------
    together : as of `meetings`.
    index : of the rank.
    steps, count : how many steps and ranks there are.
    """
    own = [one for one in together if index in one.ranks]
    often = min((one.every for one in own), default=1.0)
    net_s, met = np.full((steps, count), np.nan), np.arange(count) == index
    for one in own:
        new = ~met[one.ranks]
        longer_s = one.kept_s[:, new] - one.kept_s[:, one.ranks == index]
        net_s[np.ix_(one.steps, one.ranks[new])] = longer_s * (often / one.every)
        met[one.ranks] = True
    return net_s


def arrivals(matched: Sequence[Matched], steps: JobSteps, count: int) -> Floats:
    """Return [step, rank] -> its `net_lateness` beside the median of the others at each exchange [s].

    Parameters
    ----------
    matched, steps : the exchanges, and the steps of the job.
    count : how many ranks there are.
    """
    came = (
        Arrival(step, rank, came_s, others_s)
        for one, step in zip(matched, steps.of_exchange.tolist(), strict=True)
        for rank, came_s, others_s in zip(
            one.ranks.tolist(), one.start_s.tolist(), median_of_others(one.start_s).tolist(), strict=True
        )
    )
    return net_lateness(came, len(steps.names), count)


def arrivals_beside(matched: Sequence[Matched], steps: JobSteps, index: int, count: int) -> Floats:
    """Return [step, other rank] -> `net_lateness` of one rank beside each other one [s].

    Parameters
    ----------
    matched, steps : the exchanges, and the steps of the job.
    index, count : of the rank, and how many ranks there are.
    """
    came = (
        Arrival(step, rank, float(one.start_s[one.ranks == index][0]), start_s)
        for one, step in zip(matched, steps.of_exchange.tolist(), strict=True)
        if index in one.ranks
        for rank, start_s in zip(one.ranks.tolist(), one.start_s.tolist(), strict=True)
        if rank != index
    )
    return net_lateness(came, len(steps.names), count)


def arrivals_of_group(matched: Sequence[Matched], steps: JobSteps, members: Sequence[int]) -> Floats:
    """Return [step] -> `net_lateness` of the last of some ranks beside the median of all others [s].

    Parameters
    ----------
    matched, steps : the exchanges, and the steps of the job.
    members : indices of the ranks.
    """

    def came() -> Iterator[Arrival]:
        for one, step in zip(matched, steps.of_exchange.tolist(), strict=True):
            inside = np.isin(one.ranks, members)
            if inside.any() and not inside.all():
                yield Arrival(step, 0, float(one.start_s[inside].max()), float(np.median(one.start_s[~inside])))

    return np.asarray(net_lateness(came(), len(steps.names), 1)[:, 0])


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

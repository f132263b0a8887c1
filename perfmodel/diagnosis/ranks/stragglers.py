"""The ranks that the others wait for: in most steps, or in few but for long."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from perfmodel.diagnosis.ranks.lateness import (
    arrivals,
    arrivals_of_group,
    lateness,
    lateness_of_group,
    median_of_others,
)
from perfmodel.diagnosis.ranks.matching import Matched
from perfmodel.diagnosis.ranks.meetings import Meetings
from perfmodel.diagnosis.ranks.summary import RankSummary
from perfmodel.diagnosis.ranks.waits import JobSteps
from perfmodel.profile.timeline import Floats

#: a rank is called a straggler when what the others wait for it, net, less its scatter between the steps is above this
#: share of the step. Ranks of even gloo trainings reach 2.3 % on a machine with as many busy processes as cores, and
#: one that sleeps 20 ms a step at least 11 % (40 recordings by scripts/record_ranks.py, 2026-11-27); with four times as
#: many processes as cores, some ranks get less of the cores, and are late
STRAGGLER_SHARE = 0.03
#: what is added to that for few steps n, as this share / n^2: one step has no scatter to compare with, two have little.
#: Of 156 steps of even gloo and NCCL trainings, each taken alone, 93 % stay below 3 % + 25 %, on a machine with up to
#: twice as many busy processes as cores; 16 % stay below 3 % (26 recordings by scripts/record_ranks.py, 2026-11-28)
_FEW_STEPS_SHARE = 0.25
#: a standard deviation of normal errors over the distance of the lower quartile from the median
_DEVIATION = 1.5
#: a rank that is late in few of n steps is named when it accounts for this share of all waits, and the job loses by it,
#: net, this share of the wall time and what even ranks may lose by chance: a share of a step, over sqrt(n). Of the same
#: even recordings none reaches both
MOST, _STALL_SHARE, _CHANCE_SHARE = 2 / 3, 0.05, 0.3
#: share of the step below which a wait at one exchange is no wait: ranks never arrive at the same instant
_NOTHING = 0.002


@dataclass(frozen=True)
class Straggler:
    """A rank that the others wait for, or several that are late together.

    Attributes
    ----------
    ranks : their numbers.
    waited_per_step_s : how much longer the others wait for it than it waits for them in the median step, where the
        others are the median one [s]. Waits that computation covers do not count. Several are waited for until the last
        of them comes.
    share : of the step.
    last_share : share of its exchanges with a wait at which it, or one of them, came last.
    compute_excess_s : how much longer it computes a step than the others in the median; of several the median [s].
    waited_per_synchronisation_s : as ``waited_per_step_s``, for all steps from one with an exchange to the next [s].
    steps_per_synchronisation : how many steps these are: 1 where each step has an exchange.
    """

    ranks: tuple[int, ...]
    waited_per_step_s: float
    share: float
    last_share: float
    compute_excess_s: float
    waited_per_synchronisation_s: float
    steps_per_synchronisation: int

    @property
    def rank(self) -> int:
        """Number of the rank; of several the first."""
        return self.ranks[0]

    @property
    def computes(self) -> bool:
        """Whether its computation explains most of the wait; else its host is late."""
        return self.compute_excess_s > 0.5 * self.waited_per_step_s


@dataclass(frozen=True)
class Stall:
    """A rank that accounts for most of the waits, but is not late in most steps.

    Attributes
    ----------
    rank : its number.
    waited_s : how long the others wait for it, the mean over those that do [s].
    share : of its wall time.
    wait_share : share of all waits of the job that are for it.
    step : name of the step with the longest waits for it; empty where the trace has no steps.
    step_waited_s : as ``waited_s``, in that step [s].
    """

    rank: int
    waited_s: float
    share: float
    wait_share: float
    step: str
    step_waited_s: float


class _Typical(NamedTuple):
    """The net wait of the median synchronisation [s], and that less its scatter [s].

    ``steps`` is how many steps a synchronisation covers, ``groups`` how many there are.
    """

    net_s: float
    least_s: float
    steps: int
    groups: int


class Late(NamedTuple):
    """What `late_ranks` finds.

    ``stragglers`` are the ranks that are late in most steps, the worst first; ``together`` is what they cost as one,
    None without any. ``stall`` is one that is late in few steps, None with a straggler.
    """

    stragglers: tuple[Straggler, ...]
    together: Straggler | None
    stall: Stall | None


NOBODY = Late((), None, None)


def late_ranks(
    ranks: Sequence[RankSummary], numbers: Sequence[int], matched: Sequence[Matched], steps: JobSteps,
    together: Sequence[Meetings], waits: Floats,
) -> Late:  # fmt: skip
    """Return the ranks that the others wait for.

    The net wait of a rank is its `lateness`, over the steps in which it has an exchange, and in each of them not above
    what its `arrivals` say. Where some steps have none, as with accumulated gradients, it is added over as many steps
    as lie between two synchronisations. A rank is late in most steps when

        median - 1.5 (median - lower quartile) > (3 % + 25 % / n^2) of the step,

    over n net waits: the median less what corresponds to a standard deviation, without the weight that one long step
    has in that. What varies between steps, as on a busy machine, goes both ways. A trace that marks no steps has one.

    Parameters
    ----------
    ranks, numbers : the ranks, and their numbers.
    matched, steps : the exchanges, and the steps of the job.
    together : as of `perfmodel.diagnosis.ranks.meetings.meetings`.
    waits : as of `perfmodel.diagnosis.ranks.waits.step_waits` [s].
    """
    judge = _Judge(ranks, numbers, matched)
    count = len(ranks)
    net_s, came_s = lateness(together, len(steps.names), count), arrivals(matched, steps, count)
    found = [
        (index, typical)
        for index, typical in enumerate(map(_smaller, net_s.T, came_s.T))
        if typical is not None and judge.stands_out(typical)
    ]
    if not found:
        return Late((), None, _stall(ranks, numbers, steps, waits, np.fmin(net_s, came_s)))
    found.sort(key=lambda pair: -pair[1].net_s / pair[1].steps)
    members = [index for index, _ in found]
    whole = None
    if len(together) == 1:  # ranks of several groups meet some of the others only
        group_s = lateness_of_group(together[0], len(steps.names), members)
        whole = _smaller(group_s, arrivals_of_group(matched, steps, members))
    return Late(
        tuple(judge.straggler([index], typical) for index, typical in found),
        judge.straggler(members, whole or found[0][1]),
        None,
    )


class _Judge:
    """The ranks with what all of them are compared with."""

    def __init__(self, ranks: Sequence[RankSummary], numbers: Sequence[int], matched: Sequence[Matched]) -> None:
        self.ranks, self.numbers = ranks, numbers
        self.compute_s = np.array([rank.step_compute_s for rank in ranks])
        self.spans_s: dict[int, float] = {}
        waited = [one for one in matched if one.skew_s > _NOTHING * self.span_s(1)]
        self.last = np.array([one.last for one in waited], dtype=np.int64)
        self.took_part = np.array([np.isin(np.arange(len(ranks)), one.ranks) for one in waited], dtype=bool)

    def span_s(self, steps: int) -> float:
        """Return how long so many consecutive steps take, the median over all ranks [s]."""
        if steps not in self.spans_s:
            spans_s = [
                last.end_s - first.start_s
                for rank in self.ranks
                for first, last in zip(rank.steps, rank.steps[steps - 1 :], strict=False)
            ]
            self.spans_s[steps] = float(np.median(spans_s)) if spans_s else steps * self.span_s(1)
        return self.spans_s[steps]

    def stands_out(self, typical: _Typical) -> bool:
        """Return whether a net wait is beyond what even ranks reach."""
        share = STRAGGLER_SHARE + _FEW_STEPS_SHARE / typical.groups**2
        return typical.least_s > share * self.span_s(typical.steps)

    def straggler(self, members: list[int], typical: _Typical) -> Straggler:
        """Return ranks that have a net wait together."""
        excess_s = self.compute_s[members] - median_of_others(self.compute_s)[members]
        return Straggler(
            ranks=tuple(self.numbers[index] for index in members),
            waited_per_step_s=typical.net_s / typical.steps,
            share=typical.net_s / self.span_s(typical.steps),
            last_share=self._last_share(members),
            compute_excess_s=float(np.median(excess_s)),
            waited_per_synchronisation_s=typical.net_s,
            steps_per_synchronisation=typical.steps,
        )

    def _last_share(self, members: list[int]) -> float:
        """Return the share of their exchanges with a wait at which one of some ranks came last."""
        if not self.last.size:
            return 0.0
        theirs = np.count_nonzero(self.took_part[:, members].any(axis=1))
        return int(np.count_nonzero(np.isin(self.last, members))) / max(int(theirs), 1)


def _typical(net_s: Floats) -> _Typical | None:
    """Return what a net wait by step is in the median synchronisation; None without an exchange.

    Steps without an exchange hand their lateness to the next one that has one, so they are added in groups of as many
    steps as lie between two synchronisations, in the interval that the median step is in.
    """
    with_exchange = np.flatnonzero(np.isfinite(net_s))
    if not with_exchange.size:
        return None
    distance = np.diff(with_exchange)
    steps = math.ceil(np.median(np.repeat(distance, distance))) if distance.size else 1
    group = (with_exchange - with_exchange[0]) // steps
    sums_s = np.bincount(group, weights=net_s[with_exchange])[np.unique(group)]
    low_s, middle_s = np.quantile(sums_s, (0.25, 0.5)).tolist()
    return _Typical(middle_s, middle_s - _DEVIATION * (middle_s - low_s), steps, sums_s.size)


def _smaller(net_s: Floats, came_s: Floats) -> _Typical | None:
    """Return the typical net wait, in each step not above the lateness of arrivals; None without any."""
    return _typical(np.fmin(net_s, came_s))


def _stall(
    ranks: Sequence[RankSummary], numbers: Sequence[int], steps: JobSteps, waits: Floats, net_s: Floats
) -> Stall | None:
    """Return the rank that most of the waits are for, where they are a good part of the wall time."""
    index, wait_share = most_waited_for(waits)
    least_share = _STALL_SHARE + _CHANCE_SHARE / math.sqrt(len(steps.names))
    if wait_share < MOST or float(np.nansum(net_s[:, index])) < least_share * ranks[index].wall_s:
        return None
    by_step_s = np.nansum(waits[:, :, index], axis=1) / np.count_nonzero(np.nansum(waits[:, :, index], axis=0))
    longest, waited_s = int(np.argmax(by_step_s)), float(by_step_s.sum())
    return Stall(
        numbers[index], waited_s, waited_s / ranks[index].wall_s, wait_share, steps.names[longest],
        float(by_step_s[longest]),
    )  # fmt: skip


def most_waited_for(waits: Floats) -> tuple[int, float]:
    """Return the index of the rank that most of the waits are for, and their share of all waits.

    Parameters
    ----------
    waits : as of `perfmodel.diagnosis.ranks.waits.step_waits` [s].
    """
    return _largest_share(np.nansum(waits, axis=(0, 1)))


def most_waiting(waits: Floats) -> tuple[int, float]:
    """Return the index of the rank that waits most for the others, and its share of all waits.

    Parameters
    ----------
    waits : as of `perfmodel.diagnosis.ranks.waits.step_waits` [s].
    """
    return _largest_share(np.nansum(waits, axis=(0, 2)))


def _largest_share(times_s: Floats) -> tuple[int, float]:
    """Return the index of the largest of some times, and its share of their sum."""
    index, all_s = int(np.argmax(times_s)), float(times_s.sum())
    return index, float(times_s[index]) / all_s if all_s > 0 else 0.0

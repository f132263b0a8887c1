"""Who waits for whom at the exchanges of a job, step by step.

Other tools compute, from the same matches: TraceLens (NcclAnalyser/nccl_analyser.py) wait_r = max(start) - start_r and
latency = min(duration). Here a wait is what the exchanges at which another rank came last keep a rank from computing
longer than that one (`perfmodel.diagnosis.ranks.stalls`), and not above the time from its arrivals to those of that
one, since a rank that came last may compute on: one that computation covers costs nothing, and of two at the same time
one does. All of a wait is for the rank that came last (`perfmodel.diagnosis.ranks.lateness` has how late each rank is).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfmodel.diagnosis.intervals import covered_s, union
from perfmodel.diagnosis.ranks.matching import Matched
from perfmodel.diagnosis.ranks.summary import RankSummary
from perfmodel.profile.timeline import STEP_NAME, Floats


class JobSteps(NamedTuple):
    """The steps of a job, and in which of them each exchange began.

    ``names`` has the profiler's names of the steps, ``of_exchange`` the index of a step for each exchange.
    """

    names: tuple[str, ...]
    of_exchange: NDArray[np.int64]

    @property
    def marked(self) -> bool:
        """Whether the traces have steps; else their whole windows are taken as one."""
        return any(self.names)


def job_steps(matched: Sequence[Matched], ranks: Sequence[RankSummary], offset_s: Floats) -> JobSteps:
    """Return the steps of the rank that has most of them, and before and after these the ones that others have.

    An exchange that was matched within a step belongs to it. Any other belongs to the step in which it began on that
    rank, or where that one takes no part, to the step in which the last rank came. Not to the step in which it ended:
    the ranks end a step at different times, and one may be in its next step before the last one has left the exchange.

    Parameters
    ----------
    matched : the exchanges, on the clock of the first rank.
    ranks : the ranks.
    offset_s : clock of each rank minus that of the first one [s].
    """
    reference, *others = sorted(range(len(ranks)), key=lambda index: -len(ranks[index].steps))
    steps = _on_first_clock(ranks[reference], float(offset_s[reference]))
    for index in others:
        own, low, high = _on_first_clock(ranks[index], float(offset_s[index])), steps[0].start_s, steps[-1].end_s
        known = {step.name for step in steps}  # a rank that waits for nobody is behind in the same steps
        more = [step for step in own if step.name not in known]
        before, after = (
            [step for step in more if step.middle_s < low],
            [step for step in more if step.middle_s > high],
        )
        steps = [*before, *steps, *after]
    names = tuple(step.name for step in steps)
    starts = np.array([step.start_s for step in steps])
    began = np.array([_began_s(one, reference) for one in matched])
    by_time = np.clip(np.searchsorted(starts, began, side="right") - 1, 0, len(steps) - 1).tolist()
    places = {name: place for place, name in enumerate(names)}
    of_exchange = [places.get(f"{STEP_NAME}{one.key.step}", place) for one, place in zip(matched, by_time, strict=True)]
    return JobSteps(names, np.array(of_exchange, dtype=np.int64))


def step_waits(matched: Sequence[Matched], steps: JobSteps, ranks: Sequence[RankSummary], offset_s: Floats) -> Floats:
    """Return [step, waiting rank, rank that is waited for] -> time [s].

    NaN where two ranks have no exchange with each other in a step.

    Parameters
    ----------
    matched, steps : the exchanges, and the steps of the job.
    ranks, offset_s : as of `job_steps`.
    """
    count = len(ranks)
    waits = np.full((len(steps.names), count, count), np.nan)
    spans: dict[tuple[int, int, int], list[tuple[float, float, float, float]]] = {}
    for one, step in zip(matched, steps.of_exchange.tolist(), strict=True):
        waits[step][np.ix_(one.ranks, one.ranks)] = 0.0
        last = int(np.argmax(one.start_s))
        arrival_s, left_s = float(one.start_s[last]), float(one.end_s[last])
        for rank, start_s, end_s in zip(one.ranks.tolist(), one.start_s.tolist(), one.end_s.tolist(), strict=True):
            if start_s < arrival_s:
                spans.setdefault((step, rank, one.last), []).append((start_s, end_s, arrival_s, left_s))
    stalls = [rank.stalls - offset for rank, offset in zip(ranks, offset_s.tolist(), strict=True)]
    for (step, rank, last), rows in spans.items():
        start_s, end_s, arrival_s, left_s = np.array(rows).T
        longer_s = _kept_s(stalls[rank], start_s, end_s) - _kept_s(stalls[last], arrival_s, left_s)
        waits[step, rank, last] = min(max(longer_s, 0.0), joined_s([row[0::2] for row in rows]))
    return waits


def _kept_s(stalls: Floats, start_s: Floats, end_s: Floats) -> float:
    """Return how long exchanges of some times keep a rank from computing [s]."""
    joined = union(start_s, end_s)
    return float(covered_s(stalls, joined[:, 0], joined[:, 1]).sum())


def joined_s(spans: Sequence[tuple[float, ...]]) -> float:
    """Return the length of a union of intervals [s].

    >>> joined_s([(0.0, 2.0), (1.0, 4.0)])
    4.0
    """
    joined = union(*np.array(spans).T)
    return float((joined[:, 1] - joined[:, 0]).sum())


class _Span(NamedTuple):
    """A step on the clock of the first rank."""

    name: str
    start_s: float
    end_s: float

    @property
    def middle_s(self) -> float:
        return 0.5 * (self.start_s + self.end_s)


def _on_first_clock(rank: RankSummary, offset_s: float) -> list[_Span]:
    return [_Span(step.name, step.start_s - offset_s, step.end_s - offset_s) for step in rank.steps]


def _began_s(one: Matched, reference: int) -> float:
    own = one.start_s[one.ranks == reference]
    return float(own[0]) if own.size else float(one.start_s.max())

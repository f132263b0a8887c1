"""How long exchanges keep the ranks of a job from computing, between the exchanges that they have in common.

Ranks leave an exchange together, so that from one to the next the same time passes on all of them: what exchanges keep
one longer from computing, the others have as time of their own. No clock has to be right for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from perfmodel.diagnosis.intervals import covered_s
from perfmodel.diagnosis.ranks.matching import Matched
from perfmodel.diagnosis.ranks.summary import RankSummary
from perfmodel.diagnosis.ranks.waits import JobSteps
from perfmodel.profile.timeline import Floats, Ints


class Meetings(NamedTuple):
    """How long the exchanges keep some ranks from computing, from the last one that all of them have in a step on.

    Attributes
    ----------
    ranks : indices of the ranks.
    steps : in which they have an exchange.
    kept_s : until the last exchange of the step, since that of the step before in which they have one; shape
        (steps, ranks) [s].
    """

    ranks: Ints
    steps: Ints
    kept_s: Floats

    @property
    def every(self) -> float:
        """In how many steps they have one, the median."""
        return float(np.median(np.diff(self.steps))) if self.steps.size > 1 else 1.0


def meetings(
    matched: Sequence[Matched], steps: JobSteps, ranks: Sequence[RankSummary], offset_s: Floats
) -> list[Meetings]:
    """Return the meetings of each set of ranks that has an exchange, those with the most steps first.

    Parameters
    ----------
    matched, steps : the exchanges, and the steps of the job.
    ranks : the ranks.
    offset_s : clock of each rank minus that of the first one [s].
    """
    of_set: dict[tuple[int, ...], dict[int, Matched]] = {}
    for one, step in zip(matched, steps.of_exchange.tolist(), strict=True):
        last = of_set.setdefault(tuple(one.ranks.tolist()), {})
        _later(last, step, one)
    begins_s = np.array([rank.window_s[0] for rank in ranks]) - offset_s
    stalls = [rank.stalls - offset for rank, offset in zip(ranks, offset_s.tolist(), strict=True)]
    sets = {ranks_of: set(ranks_of) for ranks_of in of_set}
    found = []
    for joint in of_set:
        last = {}
        for other, theirs in of_set.items():  # all of them also meet where others do with them
            if sets[joint] <= sets[other]:
                for step, one in theirs.items():
                    _later(last, step, one)
        order = sorted(last)
        begin_s = float(begins_s[list(joint)].max())
        columns = []
        for index in joint:
            ends_s = np.array([float(last[step].end_s[last[step].ranks == index][0]) for step in order])
            ends_s = np.maximum.accumulate(ends_s)  # an exchange may end after one of the next step
            columns.append(np.diff(covered_s(stalls[index], np.full(ends_s.size, begin_s), ends_s), prepend=0.0))
        found.append(Meetings(np.array(joint), np.array(order), np.array(columns).T))
    return sorted(found, key=lambda one: (-one.steps.size, -one.ranks.size))


def _later(last: dict[int, Matched], step: int, one: Matched) -> None:
    """Keep an exchange as the last one of its step unless that ends later."""
    if step not in last or one.end_s.max() > last[step].end_s.max():
        last[step] = one

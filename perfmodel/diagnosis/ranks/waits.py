"""Who waits for whom at the exchanges of a job, step by step, and the ranks that the others wait for.

Other tools compute, from the same matches: TraceLens (NcclAnalyser/nccl_analyser.py) wait_r = max(start) - start_r,
latency = min(duration), and calls the rank with the least total wait the straggler; HTA (hta/analyzers/straggler.py)
compares the start of the last long collective of an iteration. Here the waits of one rank for another are joined before
they are added, since two exchanges that wait at the same time cost the job only once, and what a rank itself waits for
the others is taken off: with several exchanges a step, ranks that are equally fast wait for each other in turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.diagnosis.intervals import union
from perfmodel.diagnosis.ranks.matching import Matched
from perfmodel.diagnosis.ranks.summary import RankSummary
from perfmodel.profile.timeline import Floats

#: a rank is called a straggler when what the others wait for it, net, less its scatter between the steps is above this
#: share of the median step. Ranks of even gloo trainings reach 2.3 % on a machine with as many busy processes as cores,
#: and one that sleeps 20 ms a step at least 11 % (40 recordings by scripts/record_ranks.py, 2026-11-27); with four
#: times as many processes as cores, some ranks get less of the cores, and are late
STRAGGLER_SHARE = 0.03
#: a standard deviation of normal errors over the distance of the lower quartile from the median
_DEVIATION = 1.5
#: share of the step below which a wait at one exchange is no wait: ranks never arrive at the same instant
_NOTHING = 0.002


@dataclass(frozen=True)
class Straggler:
    """A rank that the others wait for.

    Attributes
    ----------
    rank : its number.
    waited_per_step_s : how much longer the others wait for it than it waits for them, the mean over the others, in the
        median step [s].
    share : of the median step.
    last_share : share of the exchanges with a wait at which it came last.
    compute_excess_s : how much longer it computes a step than the others in the median [s].
    """

    rank: int
    waited_per_step_s: float
    share: float
    last_share: float
    compute_excess_s: float

    @property
    def computes(self) -> bool:
        """Whether its computation explains most of the wait; else its host is late."""
        return self.compute_excess_s > 0.5 * self.waited_per_step_s


def step_waits(matched: Sequence[Matched], ranks: Sequence[RankSummary], offset_s: Floats) -> Floats:
    """Return [step, waiting rank, rank that is waited for] -> time [s]; waits that overlap count once.

    Parameters
    ----------
    matched : the exchanges, on the clock of the first rank.
    ranks : the ranks.
    offset_s : clock of each rank minus that of the first one [s].
    """
    steps = _step_of(matched, ranks[0], float(offset_s[0]))
    spans: dict[tuple[int, int, int], list[tuple[float, float]]] = {}
    for one, step in zip(matched, steps.tolist(), strict=True):
        arrival = float(one.start_s.max())
        for rank, start_s in zip(one.ranks.tolist(), one.start_s.tolist(), strict=True):
            if start_s < arrival:
                spans.setdefault((step, rank, one.last), []).append((start_s, arrival))
    waits = np.zeros((int(steps.max()) + 1, len(ranks), len(ranks)))
    for place, pairs in spans.items():
        joined = union(*np.array(pairs).T)
        waits[place] = float((joined[:, 1] - joined[:, 0]).sum())
    return waits


def net_waits(waits: Floats, index: int) -> Floats:
    """Return how much longer each other rank waits for a rank than that one waits for it [s]; negative where it waits.

    Parameters
    ----------
    waits : [..., waiting rank, rank that is waited for] -> time [s].
    index : of the rank; the last axis of the result has the others, in their order.
    """
    return np.asarray(np.delete(waits[..., :, index] - waits[..., index, :], index, axis=-1))


def stragglers(
    ranks: Sequence[RankSummary], numbers: Sequence[int], matched: Sequence[Matched], waits: Floats
) -> tuple[Straggler, ...]:
    """Return the ranks that the others wait for in most steps, the worst first.

    The net wait of a step is the mean of `net_waits` over the other ranks. A rank is named when

        median - 1.5 (median - lower quartile) > 3 % of the median step,

    over the net waits of the steps: the median less what corresponds to a standard deviation, without the weight that
    one long step has in that. What varies between steps, as on a busy machine, goes both ways.
    """
    step_s = float(np.median([step.wall_s for rank in ranks for step in rank.steps]))
    last = Counter(one.last for one in matched if one.skew_s > _NOTHING * step_s)
    compute_s = np.array([rank.step_compute_s for rank in ranks])
    found = []
    for index, number in enumerate(numbers):
        net_s = net_waits(waits, index).mean(axis=-1)
        low_s, middle_s = np.quantile(net_s, (0.25, 0.5)).tolist()
        if middle_s - _DEVIATION * (middle_s - low_s) > STRAGGLER_SHARE * step_s:
            excess_s = float(compute_s[index] - np.median(np.delete(compute_s, index)))
            last_share = last[index] / max(last.total(), 1)
            found.append(Straggler(number, middle_s, middle_s / step_s, last_share, excess_s))
    return tuple(sorted(found, key=lambda one: -one.waited_per_step_s))


def _step_of(matched: Sequence[Matched], first: RankSummary, offset_s: float) -> NDArray[np.int64]:
    """Return for each exchange the step of the first rank in which it began there.

    Not the step in which it ended: the ranks end a step at different times, and the first one may be in its next step
    before the last one has left the exchange.
    """
    starts = np.array([step.start_s for step in first.steps]) - offset_s
    began = np.array([one.start_s[0] for one in matched])
    return np.asarray(np.clip(np.searchsorted(starts, began, side="right") - 1, 0, len(first.steps) - 1))

"""What laboratories differ by: how much wider intervals have to be for runs of those that constants were not fitted on.

Runs of one source on one machine share what its installation, code and habits differ by. Such a group counts once,
however many runs it has; the least widening is taken with which a tenth of the runs of a group lies below the interval
in the mean, and a tenth above. Where a run's own ends are d below and u above, its interval has

    down = sqrt(d^2 + D^2),  up = sqrt(u^2 + U^2)        [ln of measured / predicted]

with the widening D, U, as of independent errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

#: share of the runs outside each end of an 80 % interval
OUTSIDE = 0.1 + 1e-9  # sums of shares are rounded
#: steps of the search, ln of a ratio
STEP, MOST = 0.005, 3.0


class RunOff(NamedTuple):
    """A run: ln(measured / predicted), and how far its interval reaches without what laboratories differ by."""

    off: float
    down: float
    up: float


class Widening(NamedTuple):
    """How much further the ends lie: ln of the ratios to the prediction, both above 0."""

    down: float
    up: float

    @property
    def low(self) -> float:
        """The lower end over the prediction, of the widening alone."""
        return math.exp(-self.down)

    @property
    def high(self) -> float:
        """The upper end over the prediction."""
        return math.exp(self.up)


#: a source, and what of it stands apart from the rest: its machine, its framework
Source = tuple[str, ...]
Groups = Mapping[Source, Sequence[RunOff]]


def widening(groups: Groups) -> Widening:
    """Return the least widening with which each end leaves out a tenth of the runs of a source in the mean.

    Without any source none is asked for: a kind of which one source tells has no others to leave it out of.
    """
    if not groups:
        return Widening(0.0, 0.0)
    ends = []
    for sign in (-1.0, 1.0):
        needed, weight = _needed(groups, sign)
        order = np.argsort(needed)
        steps = np.arange(0.0, MOST, STEP)
        inside = np.concatenate(([0.0], np.cumsum(weight[order])))[np.searchsorted(needed[order], steps, side="right")]
        enough = steps[inside >= 1.0 - OUTSIDE]
        ends.append(float(enough[0]) if enough.size else MOST)
    return Widening(*ends)


def _needed(groups: Groups, sign: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the least widening to one side that holds each run, sqrt(off^2 - u^2), and its weight in the mean."""
    runs = [run for kept in groups.values() for run in kept]
    off = np.array([sign * run.off for run in runs])
    reach = np.array([run.up if sign > 0 else run.down for run in runs])
    needed = np.sqrt(np.where(off > reach, off**2 - reach**2, 0.0))
    return needed, np.repeat(
        [1.0 / (len(groups) * len(kept)) for kept in groups.values()], list(map(len, groups.values()))
    )


def covered(groups: Groups, by: Widening) -> dict[Source, float]:
    """Return the share of the runs of each source inside their widened intervals."""
    return {
        source: float(np.mean([
            -math.hypot(run.down, by.down) <= run.off <= math.hypot(run.up, by.up) for run in runs
        ]))
        for source, runs in groups.items()
    }  # fmt: skip


def left_out(groups: Groups) -> dict[Source, float]:
    """Return the share of the runs of each group inside intervals widened by what all other sources differ by."""
    found = {}
    for source, runs in groups.items():
        others = {other: kept for other, kept in groups.items() if other[0] != source[0]}
        found |= covered({source: runs}, widening(others))
    return found


def widths(groups: Groups, by: Widening) -> list[float]:
    """Return the width of each run's interval: its high end over its low end."""
    return [
        math.exp(math.hypot(run.down, by.down) + math.hypot(run.up, by.up)) for runs in groups.values() for run in runs
    ]

"""The clocks of a job's ranks: those of one host share a clock, and the clocks of hosts differ.

All ranks leave an exchange at nearly the same time, so the median over the exchanges of the differences of their ends
is the difference of the clocks. Before any exchange is matched, only the steps tell: ranks that exchange begin them
together to within a step, so clocks that differ by more than a step are seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfmodel.diagnosis.ranks.counting import step_numbers
from perfmodel.diagnosis.ranks.summary import RankSummary
from perfmodel.profile.timeline import Floats, Ints

#: passes over the exchanges; hosts of which none exchanges with all others need several
_PASSES = 50
#: change of all clocks below which they stay as they are [s]
_SETTLED_S = 1e-9


def clocks_of(ranks: Sequence[RankSummary]) -> Ints:
    """Return the number of each rank's clock: that of its host, or its own where its trace does not name the host."""
    number: dict[str, int] = {}
    return np.array([number.setdefault(rank.host or f"\0{place}", len(number)) for place, rank in enumerate(ranks)])


def coarse_offsets(ranks: Sequence[RankSummary], clocks: Ints) -> Floats:
    """Return the clock of each rank minus that of the first, from the starts of their steps [s]."""
    starts = [dict(zip(step_numbers(rank), (step.start_s for step in rank.steps), strict=False)) for rank in ranks]
    late_s = np.zeros(len(ranks))
    for place, own in enumerate(starts):
        common = [own[number] - starts[0][number] for number in own if number in starts[0]]
        late_s[place] = np.median(common) if common else 0.0
    offsets = np.array([np.median(late_s[clocks == clock]) for clock in clocks])
    return np.asarray(offsets - offsets[0])


def offsets_from_ends(members: Sequence[Ints], ends_s: Sequence[Floats], clocks: Ints, begin_s: Floats) -> Floats:
    """Return the clock of each rank minus that of the first one, from the ends of exchanges [s].

    Each clock is compared with the mean over the clocks of the same exchange, so that one that shares no exchange with
    the first is aligned, too.

    Parameters
    ----------
    members, ends_s : of each exchange the ranks, and its end on the clock of each [s].
    clocks : of each rank (`clocks_of`).
    begin_s : the offsets to begin with, which those keep that share no exchange with another clock [s].
    """
    count = int(clocks.max()) + 1
    exchange, clock, end_s = _by_clock(members, ends_s, clocks)
    offsets = np.array([begin_s[int(np.argmax(clocks == number))] for number in range(count)])
    of_clock = [np.flatnonzero(clock == number) for number in range(count)]
    parties = np.bincount(exchange)
    for _ in range(_PASSES):
        aligned_s = end_s - offsets[clock]
        late_s = aligned_s - (np.bincount(exchange, weights=aligned_s) / np.maximum(parties, 1))[exchange]
        change = np.array([np.median(late_s[rows]) if rows.size else 0.0 for rows in of_clock])
        offsets = offsets + change
        if float(np.abs(change).max()) < _SETTLED_S:
            break
    return np.asarray((offsets - offsets[clocks[0]])[clocks])


def _by_clock(members: Sequence[Ints], ends_s: Sequence[Floats], clocks: Ints) -> tuple[Ints, Ints, Floats]:
    """Return the exchange, the clock, and the mean end on it, of each clock of the exchanges of several clocks [s]."""
    count = int(clocks.max()) + 1
    if not len(members):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0)
    exchange = np.repeat(np.arange(len(members)), [len(one) for one in members])
    pair, inverse = np.unique(exchange * count + clocks[np.concatenate(members)], return_inverse=True)
    ends = np.concatenate(ends_s)
    # ends are seconds since 1970: their mean is taken beside the first, so that it loses nothing
    mean_s = ends[0] + np.bincount(inverse, weights=ends - ends[0]) / np.bincount(inverse)
    owner, clock = np.divmod(pair, count)
    shared = np.bincount(owner)[owner] > 1
    return owner[shared], clock[shared], mean_s[shared]

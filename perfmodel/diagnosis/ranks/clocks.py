"""The clocks of a job's ranks: those of one host share a clock, and the clocks of hosts differ.

All ranks leave a collective at nearly the same time, so the median over the exchanges of the same clocks of the
differences of their ends is the difference of these clocks. Where there are several such sets, as along the rows and
the columns of a mesh, the clocks are those that fit the medians of all sets best: a set that alone ties two others
together counts, however few exchanges it has. A broadcast or a message may be left before the others come, and counts
only where no collective ties the clocks. Before any exchange is matched, only the steps tell: ranks that exchange
begin them together to within a step, so clocks that differ by more than a step are seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfmodel.diagnosis.ranks.counting import step_numbers
from perfmodel.diagnosis.ranks.summary import RankSummary
from perfmodel.profile.timeline import Floats, Ints


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

    Within the exchanges of one set of clocks, each clock is ahead of their mean by the median over the exchanges. All
    sets together are solved by least squares, each with the weight of its exchanges.

    Parameters
    ----------
    members, ends_s : of each exchange the ranks, and its end on the clock of each [s].
    clocks : of each rank (`clocks_of`).
    begin_s : the offsets to begin with, which those keep that share no exchange with another clock [s].
    """
    count = int(clocks.max()) + 1
    exchange, clock, end_s = _by_clock(members, ends_s, clocks)
    begin = np.array([begin_s[int(np.argmax(clocks == number))] for number in range(count)])
    ahead_s = end_s - begin[clock]
    sides, known_s = np.zeros((count, count)), np.zeros(count)
    for joint, rows in _sets(exchange, clock).items():
        ends = ahead_s[rows]
        late_s = np.median(ends - ends.mean(axis=1, keepdims=True), axis=0)
        place = np.array(joint)
        sides[np.ix_(place, place)] += len(rows) * (np.eye(place.size) - 1.0 / place.size)
        known_s[place] += len(rows) * (late_s - late_s.mean())
    # clocks that no exchange joins stay apart as they were: of all solutions the smallest one
    offsets = begin + np.linalg.lstsq(sides, known_s, rcond=None)[0]
    return np.asarray((offsets - offsets[clocks[0]])[clocks])


def tied(members: Sequence[Ints], clocks: Ints) -> Ints:
    """Return for each rank the number of the set of clocks that its own belongs to, of those that exchanges tie.

    >>> tied([np.array([0, 2])], np.array([0, 1, 2, 3])).tolist()
    [0, 1, 0, 2]
    """
    part = clocks.copy()
    for joint in {one.tobytes(): one for one in members}.values():
        part[np.isin(part, part[joint])] = part[joint].min()
    return np.asarray(np.unique(part, return_inverse=True)[1])


def _sets(exchange: Ints, clock: Ints) -> dict[tuple[int, ...], Ints]:
    """Return for each set of clocks that share exchanges the rows of these, shape (exchanges, clocks).

    Parameters
    ----------
    exchange, clock : of each row, ordered by exchange and clock.
    """
    found: dict[tuple[int, ...], list[Ints]] = {}
    for rows in np.split(np.arange(exchange.size), np.flatnonzero(np.diff(exchange)) + 1):
        if rows.size:
            found.setdefault(tuple(clock[rows].tolist()), []).append(rows)
    return {joint: np.array(rows) for joint, rows in found.items()}


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

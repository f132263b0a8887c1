"""The exchanges of a job, matched over its ranks, and the clocks of its hosts.

An exchange is matched by its key (`perfmodel.diagnosis.ranks.keys`). Where a trace lists the groups of its rank but
does not say of which one an exchange is, `perfmodel.diagnosis.ranks.fitting` tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.diagnosis.ranks.clocks import clocks_of, coarse_offsets, offsets_from_ends, tied
from perfmodel.diagnosis.ranks.counting import numbered
from perfmodel.diagnosis.ranks.fitting import COLLECTIVE, Grid, Tolerance, fits
from perfmodel.diagnosis.ranks.groups import Groups
from perfmodel.diagnosis.ranks.keys import P2P, UNTOLD, Key, count_alone, keys_of, unmatched
from perfmodel.diagnosis.ranks.summary import RankSummary
from perfmodel.profile.timeline import Floats, Ints

#: ranks of one job leave an exchange together; recorded ones within 0.03 of a step in the median, and two ranks of
#: different jobs at least 0.2 from their mean, with clocks aligned (recorded gloo trainings, tests/diagnosis/ranks)
APART = 0.1
#: share of a step by which a rank may seem to leave an exchange before the last one has come: on one host, whose clock
#: all ranks share, and on several, whose clocks are aligned on ends that differ a little themselves
_EARLY, _EARLY_APART = 0.002, 0.01


@dataclass(frozen=True)
class Matched:
    """One exchange on the ranks that took part, on the clock of the first rank.

    Attributes
    ----------
    key : what identifies it.
    ranks : indices into `Job.ranks`.
    start_s, end_s : of each of these ranks [s].
    size : how many ranks take part, with those that are not given.
    even : whether all ranks have the same message; else ``key.bytes`` is the largest.
    """

    key: Key
    ranks: NDArray[np.int64]
    start_s: Floats
    end_s: Floats
    size: int
    even: bool = True

    @property
    def whole(self) -> bool:
        """Whether all ranks that take part are given."""
        return self.size == len(self.ranks)

    @property
    def left_together(self) -> bool:
        """Whether no rank leaves it before all have come, so that its ends say how far clocks are apart."""
        return self.key.operation in COLLECTIVE

    @property
    def last(self) -> int:
        """Index into `Job.ranks` of the rank that came last."""
        return int(self.ranks[int(np.argmax(self.start_s))])

    @property
    def skew_s(self) -> float:
        """How long the first rank waited for the last one [s]."""
        return float(self.start_s.max() - self.start_s.min())

    @property
    def time_s(self) -> float:
        """From the last start to the last end: the exchange itself, without waiting [s]."""
        return float(max(self.end_s.max() - self.start_s.max(), 0.0))


@dataclass(frozen=True)
class Matching:
    """What is matched, and what is not.

    Attributes
    ----------
    exchanges : those that several ranks have, on the clock of the first rank, ordered by their first start.
    offset_s : clock of each rank minus that of the first one [s].
    untold : collectives of which the process group cannot be told, counted on each rank.
    loose : others of which it cannot, as broadcasts, which a rank may leave before the others come.
    messages : messages between two ranks that cannot be matched, counted on each rank.
    uneven : exchanges of steps in which the ranks have different numbers of them, counted on each rank.
    alone : other exchanges that one rank has, and others of its process group ought to have.
    total : all exchanges, counted on each rank.
    """

    exchanges: tuple[Matched, ...]
    offset_s: Floats
    untold: int
    loose: int
    messages: int
    uneven: int
    alone: int
    total: int


def match(ranks: Sequence[RankSummary], numbers: Sequence[int]) -> Matching:
    """Return the exchanges that several ranks have.

    Parameters
    ----------
    ranks : of the job.
    numbers : their numbers.
    """
    groups, clocks = Groups(ranks, numbers), clocks_of(ranks)
    in_steps, coarse_s = numbered(ranks), coarse_offsets(ranks, clocks)
    counted = [
        keys_of(rank, index, number, groups, in_steps=in_steps)
        for index, (rank, number) in enumerate(zip(ranks, numbers, strict=True))
    ]
    one_clock, several = len(set(clocks.tolist())) == 1, any(key.group == UNTOLD for keys in counted for key in keys)
    step_s = float(np.median([step.wall_s for rank in ranks for step in rank.steps]))
    offset_s = np.where(np.abs(coarse_s) > step_s, coarse_s, 0.0)
    # ranks that never meet may drift apart by as much as their traces last, on one clock
    begin_s = np.where(np.abs(coarse_s) > max(rank.wall_s for rank in ranks), coarse_s, 0.0)
    early_s = (_EARLY if one_clock else APART) * step_s
    for _ in range(1 if one_clock or not several else 2):  # the second time with clocks that are nearly right
        keys = (
            _with_groups(ranks, counted, groups, offset_s, Tolerance(APART * step_s, early_s)) if several else counted
        )
        messages, uneven = unmatched(ranks, keys, groups)
        left_out = messages | uneven
        matched = _matched(ranks, keys, groups, left_out)
        offset_s, early_s = _offsets(matched, clocks, begin_s), _EARLY_APART * step_s
    aligned = (
        replace(one, start_s=one.start_s - offset_s[one.ranks], end_s=one.end_s - offset_s[one.ranks])
        for one in matched
    )
    every = [key for own in keys for key in own]
    return Matching(
        tuple(sorted(aligned, key=lambda one: float(one.start_s.min()))),
        offset_s,
        untold=sum(key.group == UNTOLD and key.operation in COLLECTIVE and key.number >= 0 for key in every),
        loose=sum(key.group == UNTOLD and key.operation not in (*COLLECTIVE, P2P) for key in every),
        messages=sum(key in messages for key in every),
        uneven=sum(key in uneven for key in every),
        alone=count_alone(keys, numbers, groups, left_out),
        total=len(every),
    )


def _offsets(matched: Sequence[Matched], clocks: Ints, begin_s: Floats) -> Floats:
    """Return the clock of each rank minus that of the first one, from the ends of exchanges [s].

    Exchanges that a rank may leave before the others come only tie clocks that the others leave apart.

    Parameters
    ----------
    matched, clocks : the exchanges, on the clocks of their hosts, and the number of each rank's clock.
    begin_s : the offsets to begin with [s].
    """
    left_together, loose = ([one for one in matched if one.left_together is side] for side in (True, False))
    members = [one.ranks for one in left_together]
    offset_s = offsets_from_ends(members, [one.end_s for one in left_together], clocks, begin_s)
    parts = tied(members, clocks)
    if not loose or not parts.any():
        return offset_s
    ends_s = [one.end_s - offset_s[one.ranks] for one in loose]
    return offset_s + offsets_from_ends([one.ranks for one in loose], ends_s, parts, np.zeros(len(clocks)))


def _with_groups(
    ranks: Sequence[RankSummary], counted: Sequence[list[Key]], groups: Groups, offset_s: Floats, tolerance: Tolerance
) -> list[list[Key]]:
    """Return the keys with the groups that can be told, and the number that the exchange has on their first rank."""
    fitted: dict[tuple[int, str, float, int], tuple[str, int]] = {}
    for (operation, size), grids in _grids(ranks, counted, offset_s).items():
        for fit in fits(grids, groups.shared(), tolerance):
            number = next(iter(fit.places.values()))
            fitted |= {(rank, operation, size, place): (fit.label, number) for rank, place in fit.places.items()}
    keys = []
    for index, own in enumerate(counted):
        found = [
            fitted.get((index, key.operation, key.bytes, key.number)) if key.group == UNTOLD else None for key in own
        ]
        keys.append([
            key if label is None else key._replace(group=label[0], number=label[1])
            for key, label in zip(own, found, strict=True)
        ])  # fmt: skip
    return keys


def _grids(
    ranks: Sequence[RankSummary], counted: Sequence[list[Key]], offset_s: Floats
) -> dict[tuple[str, float], dict[int, Grid]]:
    """Return for each operation and message without a group the exchanges of each rank, by place and step."""
    column = {step: place for place, step in enumerate(sorted({key.step for keys in counted for key in keys}))}
    rows: dict[tuple[str, float], dict[int, list[tuple[int, int, int]]]] = {}
    for index, keys in enumerate(counted):
        for row, key in enumerate(keys):
            if key.group == UNTOLD and key.operation in COLLECTIVE and key.number >= 0:
                of_rank = rows.setdefault((key.operation, key.bytes), {})
                of_rank.setdefault(index, []).append((key.number, column[key.step], row))
    grids: dict[tuple[str, float], dict[int, Grid]] = {}
    for kind, of_rank in rows.items():
        for index, found in of_rank.items():
            place, step, row = np.array(found).T
            sides = [np.full((place.max() + 1, len(column)), np.nan) for _ in range(2)]
            for side, values in zip(sides, (ranks[index].start_s, ranks[index].end_s), strict=True):
                side[place, step] = values[row] - offset_s[index]
            grids.setdefault(kind, {})[index] = Grid(*sides)
    return grids


def _matched(
    ranks: Sequence[RankSummary], keys: Sequence[list[Key]], groups: Groups, left_out: set[Key]
) -> list[Matched]:
    """Return the exchanges that several ranks have, on the clocks of their hosts."""
    members: dict[Key, list[tuple[int, int]]] = {}
    for index, own in enumerate(keys):
        for row, key in enumerate(own):
            if key not in left_out and key.group != UNTOLD:
                members.setdefault(key, []).append((index, row))
    starts_s, ends_s = [rank.start_s.tolist() for rank in ranks], [rank.end_s.tolist() for rank in ranks]
    matched = []
    for key, rows in members.items():
        if len(rows) < 2:
            continue
        size = _group_size(ranks, key, rows, groups)
        message, even = _message(ranks, key, rows, size)
        start_s, end_s = (np.array([side[index][row] for index, row in rows]) for side in (starts_s, ends_s))
        of_ranks = np.array([index for index, _ in rows])
        matched.append(Matched(key._replace(bytes=message), of_ranks, start_s, end_s, size, even))
    return matched


def _group_size(ranks: Sequence[RankSummary], key: Key, rows: Sequence[tuple[int, int]], groups: Groups) -> int:
    """Return how many ranks take part in an exchange, as the exchange itself says, or the list of groups.

    One of an unknown group that all given ranks have is of all ranks of the job. Messages have the ranks that they are
    matched on, two where the trace says the other one, though their group may have more.
    """
    if key.operation == P2P:
        return len(rows)
    index, row = rows[0]
    size = int(ranks[index].ranks[row]) or groups.size(key.group) or 0
    if not size and not key.group and len(rows) == len(ranks):
        size = ranks[index].world_size or 0
    return max(size, len(rows))


def _message(ranks: Sequence[RankSummary], key: Key, rows: Sequence[tuple[int, int]], size: int) -> tuple[float, bool]:
    """Return the largest message of the ranks of an exchange [B], 0 if unknown, and whether all have that.

    What gloo lists of an all-gather is the part that a rank sends, so its message is that times the ranks of the group.
    """
    sizes = {float(ranks[index].bytes[row]) for index, row in rows}
    known = {of_rank for of_rank in sizes if np.isfinite(of_rank)}
    largest = max(known, default=0.0)
    index, row = rows[0]
    if key.operation == "all_gather" and not ranks[index].ranks[row]:
        largest *= size
    return largest, len(known) < 2

"""The exchanges of a job, matched over its ranks, and the clocks of its hosts.

An exchange is matched by its process group and sequence number; where the trace has no sequence number, by its count
among the exchanges of the same operation, group and message in the profiler's step, and in the whole trace where there
are no steps. Matching by time would pair a late rank's exchange with the next one of the others. Where a trace lists
the groups of its rank but does not say of which one an exchange is, `perfmodel.diagnosis.ranks.fitting` tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfmodel.diagnosis.ranks.clocks import clocks_of, coarse_offsets, offsets_from_ends
from perfmodel.diagnosis.ranks.counting import numbered, places, queued_s, step_numbers, steps_of
from perfmodel.diagnosis.ranks.fitting import COLLECTIVE, Grid, Tolerance, fits
from perfmodel.diagnosis.ranks.groups import Groups
from perfmodel.diagnosis.ranks.summary import RankSummary
from perfmodel.profile.timeline import Floats

#: operation of messages between two ranks
P2P = "send_recv"
#: ranks of one job leave an exchange together; recorded ones within 0.03 of a step in the median, and two ranks of
#: different jobs at least 0.2 from their mean, with clocks aligned (recorded gloo trainings, tests/diagnosis/ranks)
APART = 0.1
#: share of a step by which a rank may seem to leave an exchange before the last one has come: on one host, whose clock
#: all ranks share, and on several, whose clocks are aligned on ends that differ a little themselves
_EARLY, _EARLY_APART = 0.002, 0.01
#: group of an exchange that may be of several
UNTOLD = "\0"


class Key(NamedTuple):
    """What the same exchange has in common on all ranks.

    ``number`` is its sequence number; where it is ``counted``, its place in the profiler's step with the number
    ``step``, or in the whole trace where that is -1.
    """

    operation: str
    group: str
    bytes: float
    number: int
    counted: bool
    step: int = -1


@dataclass(frozen=True)
class Matched:
    """One exchange on the ranks that took part, on the clock of the first rank.

    Attributes
    ----------
    key : what identifies it.
    ranks : indices into `Job.ranks`.
    start_s, end_s : of each of these ranks [s].
    """

    key: Key
    ranks: NDArray[np.int64]
    start_s: Floats
    end_s: Floats

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
    total : all exchanges, counted on each rank.
    """

    exchanges: tuple[Matched, ...]
    offset_s: Floats
    untold: int
    loose: int
    messages: int
    uneven: int
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
    counted = [_keys(rank, index, groups, in_steps=in_steps) for index, rank in enumerate(ranks)]
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
        messages, uneven = _unmatched(ranks, keys, groups)
        left_out = messages | uneven
        matched = _matched(ranks, keys, groups, left_out)
        ends = [one.ranks for one in matched], [one.end_s for one in matched]
        offset_s, early_s = offsets_from_ends(*ends, clocks, begin_s), _EARLY_APART * step_s
    aligned = (
        Matched(one.key, one.ranks, one.start_s - offset_s[one.ranks], one.end_s - offset_s[one.ranks])
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
        total=len(every),
    )


def _keys(rank: RankSummary, index: int, groups: Groups, *, in_steps: bool) -> list[Key]:
    """Return the key of each exchange of a rank; its group is `UNTOLD` where it may be one of several."""
    own = groups.of(index)
    unnamed = UNTOLD if len(own) > 1 else "".join(own)
    names = [groups.named(index, name) if name else unnamed for name in rank.group]
    sizes = np.where(np.isfinite(rank.bytes), rank.bytes, 0.0).tolist()
    kinds = list(zip(rank.operation, names, sizes, strict=True))
    order = np.argsort(queued_s(rank), kind="stable")
    steps = steps_of(rank) if in_steps else np.full(len(kinds), -1)
    before = step_numbers(rank)[0] - 1 if in_steps else None
    place = np.empty(len(kinds), dtype=np.int64)
    place[order] = places([kinds[row] for row in order.tolist()], steps[order], before)
    rows = zip(kinds, rank.sequence.tolist(), place.tolist(), steps.tolist(), strict=True)
    return [
        Key(*kind, sequence, counted=False) if sequence >= 0 else Key(*kind, number, counted=True, step=step)
        for kind, sequence, number, step in rows
    ]


def _with_groups(
    ranks: Sequence[RankSummary], counted: Sequence[list[Key]], groups: Groups, offset_s: Floats, tolerance: Tolerance
) -> list[list[Key]]:
    """Return the keys with the groups that can be told, and the number that the exchange has on their first rank."""
    told: dict[tuple[int, str, float, int], tuple[str, int]] = {}
    for (operation, size), grids in _grids(ranks, counted, offset_s).items():
        for fit in fits(grids, groups.shared(), tolerance):
            number = next(iter(fit.places.values()))
            told |= {(rank, operation, size, place): (fit.label, number) for rank, place in fit.places.items()}
    keys = []
    for index, own in enumerate(counted):
        found = [
            told.get((index, key.operation, key.bytes, key.number)) if key.group == UNTOLD else None for key in own
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


def _unmatched(ranks: Sequence[RankSummary], keys: Sequence[list[Key]], groups: Groups) -> tuple[set[Key], set[Key]]:
    """Return the messages between two ranks, and the other exchanges, whose count does not say which belong together.

    In a ring all ranks send as often as the others, and their count says which messages belong together. The stages of
    a pipeline do not: the first and the last one have one neighbour only. Of a collective, the ranks that have it at
    all have as many in a step; a GPU may have ended the last step of its trace later than the trace.
    """
    messages = [Counter(key.group for key in own if key.counted and key.operation == P2P) for own in keys]
    members = groups.shared()
    odd = {
        group for group in set().union(*messages)
        if group == UNTOLD or len({messages[index][group] for index in members.get(group, range(len(keys)))}) > 1
    }  # fmt: skip
    last = {own[-1] for own in map(step_numbers, ranks) if own} | {-1}
    counts: dict[tuple[str, str, float, int], set[int]] = {}
    for own in keys:
        kinds = (_of_step(key) for key in own if key.counted and key.operation != P2P and key.step not in last)
        for kind, count in Counter(kinds).items():
            counts.setdefault(kind, set()).add(count)
    every = [key for own in keys for key in own if key.counted]
    return (
        {key for key in every if key.operation == P2P and key.group in odd},
        {key for key in every if len(counts.get(_of_step(key), ())) > 1 and key.group != UNTOLD},
    )


def _of_step(key: Key) -> tuple[str, str, float, int]:
    return key.operation, key.group, key.bytes, key.step


def _matched(
    ranks: Sequence[RankSummary], keys: Sequence[list[Key]], groups: Groups, left_out: set[Key]
) -> list[Matched]:
    """Return the exchanges that several ranks have, on the clocks of their hosts.

    What gloo lists of an all-gather is the part that a rank sends, so its message is that times the ranks of the group.
    """
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
        index, row = rows[0]
        if key.operation == "all_gather" and not ranks[index].ranks[row]:
            size = groups.size(key.group) or (not key.group and ranks[index].world_size) or len(rows)
            key = key._replace(bytes=key.bytes * size)
        start_s, end_s = (np.array([side[index][row] for index, row in rows]) for side in (starts_s, ends_s))
        matched.append(Matched(key, np.array([index for index, _ in rows]), start_s, end_s))
    return matched

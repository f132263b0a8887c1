"""What identifies an exchange on each of its ranks, and which exchanges nothing identifies.

An exchange is identified by its process group and sequence number; where the trace has no sequence number, by its count
among the exchanges of the same operation, group and message in the profiler's step, and in the whole trace where there
are no steps. Matching by time would pair a late rank's exchange with the next one of the others. Collectives that are
put together (a coalescing manager of PyTorch) have one sequence number, and NCCL may run them, or the messages of a
large all-to-all, in several kernels; then the count of the kernel among those with the number identifies it too.

PyTorch numbers the messages between two ranks by one counter for all messages of a rank in a group, so that numbers of
different pairs do not correspond, unless the group is the pair. A trace says for a message which rank it comes from or
goes to: the messages from one rank to another come in the order in which they are sent, so their count identifies them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from perfmodel.diagnosis.ranks.counting import places, queued_s, step_numbers, steps_of
from perfmodel.diagnosis.ranks.groups import Groups
from perfmodel.diagnosis.ranks.summary import RankSummary

#: operation of messages between two ranks
P2P = "send_recv"
#: operations in which each rank may have a message of its own size: experts get different numbers of tokens
UNEVEN = ("alltoall", "gather", "scatter")
#: group of an exchange that may be of several
UNTOLD = "\0"


class Key(NamedTuple):
    """What the same exchange has in common on all ranks.

    ``number`` is its sequence number; where it is ``counted``, its place in the profiler's step with the number
    ``step``, or in the whole trace where that is -1. ``bytes`` is 0 where the ranks may have different messages, and
    where the number tells the exchange apart without it. ``pair`` has the numbers of the ranks that send and receive a
    message, where the trace says. ``again`` is how many exchanges of the rank have the same number before it.
    """

    operation: str
    group: str
    bytes: float
    pair: tuple[int, int] | None
    number: int
    counted: bool
    step: int = -1
    again: int = 0


def keys_of(rank: RankSummary, index: int, number: int, groups: Groups, *, in_steps: bool) -> list[Key]:
    """Return the key of each exchange of a rank; its group is `UNTOLD` where it may be one of several.

    Parameters
    ----------
    rank, index, number : the rank, its index in the job, and its number.
    groups : of the job.
    in_steps : whether exchanges are counted in the profiler's steps.
    """
    own = groups.of(index)
    unnamed = UNTOLD if len(own) > 1 else "".join(own)
    names = [groups.named(index, name) if name else unnamed for name in rank.group]
    sizes = np.where(np.isfinite(rank.bytes) & ~np.isin(rank.operation, UNEVEN), rank.bytes, 0.0).tolist()
    pairs = _pairs(rank, number)
    kinds = list(zip(rank.operation, names, sizes, pairs, strict=True))
    order = np.argsort(queued_s(rank), kind="stable")
    steps = steps_of(rank) if in_steps else np.full(len(kinds), -1)
    before = step_numbers(rank)[0] - 1 if in_steps else None
    place = np.empty(len(kinds), dtype=np.int64)
    place[order] = places([kinds[row] for row in order.tolist()], steps[order], before)
    of_pair = [size == 2 or groups.size(name) == 2 for size, name in zip(rank.ranks.tolist(), names, strict=True)]
    rows = zip(kinds, rank.sequence.tolist(), of_pair, place.tolist(), steps.tolist(), strict=True)
    keys = [
        Key(operation, name, 0.0, pair, sequence, counted=False)
        if sequence >= 0 and (two or operation != P2P)
        else Key(operation, name, size, pair, counted, counted=True, step=step)
        for (operation, name, size, pair), sequence, two, counted, step in rows
    ]
    seen: Counter[Key] = Counter()
    for row in order.tolist():
        key = keys[row]
        if seen[key]:
            keys[row] = key._replace(again=seen[key])
        seen[key] += 1
    return keys


def _pairs(rank: RankSummary, number: int) -> list[tuple[int, int] | None]:
    """Return the numbers of the ranks that send and receive each message, None where the trace does not say.

    PyTorch names the other rank only: that which a message goes to where it sends, that which it comes from else.
    """
    if not rank.sender.size:
        return [None] * len(rank.operation)
    return [
        (number if sender < 0 else sender, number if receiver < 0 else receiver)
        if operation == P2P and (sender >= 0) != (receiver >= 0)
        else None
        for operation, sender, receiver in zip(
            rank.operation, rank.sender.tolist(), rank.receiver.tolist(), strict=True
        )
    ]


def unmatched(ranks: Sequence[RankSummary], keys: Sequence[list[Key]], groups: Groups) -> tuple[set[Key], set[Key]]:
    """Return the messages between two ranks, and the other exchanges, whose count does not say which belong together.

    In a ring all ranks send as often as the others, and their count says which messages belong together. The stages of
    a pipeline do not: the first and the last one have one neighbour only. Of a collective, the ranks that have it at
    all have as many in a step; a GPU may have ended the last step of its trace later than the trace.
    """
    messages = [Counter(key.group for key in own if _is_loose_message(key)) for own in keys]
    members = groups.shared()
    odd = {
        group for group in set().union(*messages)
        if group == UNTOLD or len({messages[index][group] for index in members.get(group, range(len(keys)))}) > 1
    }  # fmt: skip
    last = {own[-1] for own in map(step_numbers, ranks) if own} | {-1}
    counts: dict[Key, set[int]] = {}
    for own in keys:
        kinds = (_of_step(key) for key in own if key.counted and not _is_loose_message(key) and key.step not in last)
        for kind, count in Counter(kinds).items():
            counts.setdefault(kind, set()).add(count)
    every = [key for own in keys for key in own if key.counted]
    return (
        {key for key in every if _is_loose_message(key) and key.group in odd},
        {key for key in every if len(counts.get(_of_step(key), ())) > 1 and key.group != UNTOLD},
    )


def _is_loose_message(key: Key) -> bool:
    """Return whether an exchange is a message of which nothing tells the other rank."""
    return key.counted and key.operation == P2P and key.pair is None


def _of_step(key: Key) -> Key:
    """Return what the exchanges of one kind in one step share."""
    return key._replace(number=0)


def count_alone(keys: Sequence[list[Key]], numbers: Sequence[int], groups: Groups, left_out: set[Key]) -> int:
    """Return how many exchanges one rank has alone, though another one that is given ought to have them.

    The traces begin and end at different exchanges, so only those count that lie, on every rank of the group, after the
    first and before the last one of its trace. A message counts on neither rank where the trace of one of them does not
    say the other rank of its messages: that trace has it, among those that match nothing.

    Parameters
    ----------
    keys : of the exchanges of each rank.
    numbers : of the ranks.
    groups : of the job.
    left_out : keys that are known to match nothing.
    """
    listed = groups.shared()
    having: dict[str, list[int]] = {}
    for index, own in enumerate(keys):
        for group in {key.group for key in own if key.group != UNTOLD}:
            having.setdefault(group, []).append(index)
    members = {group: listed.get(group, tuple(ranks)) for group, ranks in having.items()}
    places_of = [_places(own) for own in keys]
    ends = list(map(_ends_by_group, keys, places_of))
    counts = Counter(key for own in keys for key in own if key not in left_out)
    loose = {(index, key.group) for index, own in enumerate(keys) for key in own if _is_loose_message(key)}
    return sum(
        counts[key] == 1
        and len(others := _given(key, numbers, members)) > 1
        and not (key.pair and any((index, key.group) in loose for index in others))
        and all(_inside(*place, ends[index].get(key.group)) for index in others)
        for own, own_places in zip(keys, places_of, strict=True)
        for key, place in zip(own, own_places, strict=True)
    )


def _given(key: Key, numbers: Sequence[int], members: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the ranks, as indices, that ought to have an exchange and are given."""
    if key.pair is not None:
        return tuple(index for index, number in enumerate(numbers) if number in key.pair)
    return members.get(key.group, ())


def _places(own: Sequence[Key]) -> list[tuple[bool, int]]:
    """Return where each exchange of a rank is in its trace, apart for counted ones and those with a number.

    That is the number or the step; of a trace without steps the place among the exchanges of the group, since the count
    of one kind says nothing beside that of another.
    """
    seen: Counter[str] = Counter()
    found = []
    for key in own:
        place = key.step if key.counted and key.step >= 0 else key.number
        if key.counted and key.step < 0 <= key.number:  # no step; before the first one numbers are below 0
            place = seen[key.group]
            seen[key.group] += 1
        found.append((key.counted, place))
    return found


def _ends_by_group(own: Sequence[Key], places_of: Sequence[tuple[bool, int]]) -> dict[str, dict[bool, tuple[int, int]]]:
    """Return the first and the last place of the exchanges of each group, of the counted ones and of the others."""
    found: dict[str, dict[bool, list[int]]] = {}
    for key, (counted, place) in zip(own, places_of, strict=True):
        found.setdefault(key.group, {}).setdefault(counted, []).append(place)
    return {
        group: {counted: (min(all_), max(all_)) for counted, all_ in sides.items()} for group, sides in found.items()
    }


def _inside(counted: bool, place: int, ends: dict[bool, tuple[int, int]] | None) -> bool:
    """Return whether an exchange is not at the end of a trace; a rank that has none of the group has no ends."""
    if ends is None or counted not in ends:
        return True
    low, high = ends[counted]
    return low < place < high

"""The exchanges of a job, matched over its ranks, and the clocks of its hosts.

An exchange is matched by its process group and sequence number; where the trace has no sequence number, by its count
among the exchanges of the same operation, group and message. Matching by time would pair a late rank's exchange with
the next one of the others.

The clocks of hosts differ. All ranks leave an exchange at nearly the same time, so the median over the exchanges of the
differences of their ends is the difference of the clocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfmodel.diagnosis.ranks.summary import RankSummary
from perfmodel.profile.timeline import Floats

#: operation of messages between two ranks
P2P = "send_recv"


class Key(NamedTuple):
    """What the same exchange has in common on all ranks."""

    operation: str
    group: str
    bytes: float
    number: int
    counted: bool


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


def match(ranks: Sequence[RankSummary]) -> list[Matched]:
    """Return the exchanges that several ranks have, ordered by their first start."""
    members: dict[Key, list[tuple[int, float, float]]] = {}
    for index, rank in enumerate(ranks):
        for key, start_s, end_s in zip(_keys(rank), rank.start_s.tolist(), rank.end_s.tolist(), strict=True):
            members.setdefault(key, []).append((index, start_s, end_s))
    odd = _uneven_messages(ranks)
    matched = [
        Matched(key, np.array([row[0] for row in rows]), np.array([row[1] for row in rows]),
                np.array([row[2] for row in rows]))
        for key, rows in members.items()
        if len(rows) > 1 and not (key.counted and (key.operation, key.group) in odd)
    ]  # fmt: skip
    return sorted(matched, key=lambda one: float(one.start_s.min()))


def _uneven_messages(ranks: Sequence[RankSummary]) -> set[tuple[str, str]]:
    """Return the operation and group of messages between two ranks of which some ranks have more than others.

    In a ring all ranks send as often as the others, and their count says which messages belong together. The stages of
    a pipeline do not: the first and the last one have one neighbour only.
    """
    counts = [
        Counter(pair for pair in zip(rank.operation, rank.group, strict=True) if pair[0] == P2P) for rank in ranks
    ]
    return {pair for pair in set().union(*counts) if len({count[pair] for count in counts}) > 1}


def _keys(rank: RankSummary) -> list[Key]:
    """Return the key of each exchange of a rank."""
    seen: Counter[tuple[str, str, float]] = Counter()
    keys = []
    columns = zip(rank.operation, rank.group, rank.bytes.tolist(), rank.sequence.tolist(), strict=True)
    for operation, group, size, sequence in columns:
        kind = (operation, group, size if np.isfinite(size) else 0.0)
        number = sequence if sequence >= 0 else seen[kind]
        seen[kind] += 1
        keys.append(Key(*kind, number, sequence < 0))
    return keys


def clock_offsets(matched: Sequence[Matched], count: int) -> Floats:
    """Return the clock of each rank minus that of the first one, from the ends of their exchanges [s].

    Each rank is compared with the mean over the ranks of the same exchange, so that one that shares no exchange with
    the first is aligned, too.
    """
    offsets = np.zeros(count)
    for _ in range(2):  # the second pass compares with clocks that are nearly right
        differences: list[list[float]] = [[] for _ in range(count)]
        for one in matched:
            ends = one.end_s - offsets[one.ranks]
            for rank, difference in zip(one.ranks.tolist(), (ends - ends.mean()).tolist(), strict=True):
                differences[rank].append(difference)
        offsets = offsets + np.array([np.median(values) if values else 0.0 for values in differences])
    return np.asarray(offsets - offsets[0])

"""The ranks of a job together: who waits for whom at the exchanges that they share.

Other tools compute, from the same matches: TraceLens (NcclAnalyser/nccl_analyser.py) wait_r = max(start) - start_r,
latency = min(duration), and calls the rank with the least total wait the straggler; HTA (hta/analyzers/straggler.py)
compares the start of the last long collective of an iteration. Here the waits of one rank for another are joined before
they are added, since two exchanges that wait at the same time cost the job only once, and the time of an exchange runs
from the last start to the last end: with gloo an exchange begins when it is queued, so that its shortest duration still
contains waiting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.report import Reportable
from perfmodel.core.units import format_si
from perfmodel.diagnosis.intervals import union
from perfmodel.diagnosis.ranks.matching import Matched, clock_offsets, match
from perfmodel.diagnosis.ranks.summary import RankSummary
from perfmodel.errors import InputFileError
from perfmodel.profile.timeline import Floats

#: a rank is called a straggler when the others wait for it, in the median step, longer than this share of the step ...
STRAGGLER_SHARE = 0.03
#: ... and it is the last to arrive at this share of the exchanges at which anybody waits
STRAGGLER_LAST = 0.6
#: ranks of one job leave an exchange together; recorded ones within 0.03 of a step in the median, and two ranks of
#: different jobs at least 0.2 from their mean, with clocks aligned (recorded gloo trainings, tests/diagnosis/ranks)
APART = 0.1
#: share of the step below which a wait at one exchange is no wait: ranks never arrive at the same instant
_NOTHING = 0.002


@dataclass(frozen=True)
class Straggler:
    """A rank that the others wait for.

    Attributes
    ----------
    rank : its number.
    waited_per_step_s : how long a rank waits for it in the median step, the mean over the other ranks [s].
    share : of the median step.
    last_share : share of the exchanges with a wait at which it came last.
    compute_excess_s : how much longer it computes a step than the others in the median [s].
    """

    rank: int
    waited_per_step_s: float
    share: float
    last_share: float
    compute_excess_s: float


@dataclass(frozen=True)
class Job(Reportable):
    """The ranks of one job.

    Attributes
    ----------
    ranks : their summaries, ordered by rank.
    numbers : their numbers.
    exchanges : those that at least two ranks took part in.
    offset_s : clock of each rank minus that of the first one [s].
    waits_s : [waiting rank, rank that is waited for] -> time [s], shape (ranks, ranks).
    stragglers : the ranks that the others wait for, the worst first.
    imbalance : max / mean - 1 of the time that the ranks compute in a step, the median over the steps.
    missing : numbers of ranks of the job whose trace was not given.
    left_out : files that could not be read, and why.
    """

    ranks: tuple[RankSummary, ...]
    numbers: tuple[int, ...]
    exchanges: tuple[Matched, ...]
    offset_s: Floats
    waits_s: Floats
    stragglers: tuple[Straggler, ...]
    imbalance: float
    missing: tuple[int, ...]
    left_out: tuple[str, ...] = ()

    @property
    def slowest(self) -> int:
        """Number of the rank that computes longest."""
        return self.numbers[int(np.argmax([rank.compute_s for rank in self.ranks]))]

    @property
    def pace(self) -> int:
        """Index into ``ranks`` of the rank that sets the pace: a straggler, else the one that waits least."""
        if self.stragglers:
            return self.numbers.index(self.stragglers[0].rank)
        return int(np.argmin(self.waits_s.sum(axis=1)))

    def waits_of(self, index: int) -> tuple[Floats, Floats]:
        """Return start and wait of each exchange of a rank, in any order, the start on the clock of its host [s]."""
        mine = [one for one in self.exchanges if index in one.ranks]
        start_s = np.array([float(one.start_s[one.ranks == index][0]) for one in mine])
        arrived_s = np.array([float(one.start_s.max()) for one in mine])
        return start_s + self.offset_s[index], arrived_s - start_s

    @property
    def step_s(self) -> float:
        """Median length of a step over all ranks [s]."""
        return float(np.median([step.wall_s for rank in self.ranks for step in rank.steps]))


def join(summaries: Sequence[RankSummary], left_out: Sequence[str] = ()) -> Job:
    """Return the ranks of one job, matched and aligned.

    Raises
    ------
    InputFileError
        When a rank occurs twice, the files are of jobs of several sizes, the ranks have no exchange in common, or they
        do not leave their exchanges together.
    """
    ranks, numbers = _ordered(summaries)
    matched = match(ranks)
    if not matched:
        places = ", ".join(rank.place for rank in ranks)
        raise InputFileError(
            "the ranks have no exchange in common.",
            place=places,
            remedy="Give the traces of one job, of the same steps.",
        )
    offset = clock_offsets(matched, len(ranks))
    aligned = tuple(
        Matched(one.key, one.ranks, one.start_s - offset[one.ranks], one.end_s - offset[one.ranks]) for one in matched
    )
    _check_ends(ranks, aligned)
    world = max((rank.world_size or 0 for rank in ranks), default=0)
    steps = _step_of(aligned, ranks[0], offset[0])
    waits = _waits(aligned, steps, len(ranks))
    return Job(
        ranks=ranks,
        numbers=numbers,
        exchanges=aligned,
        offset_s=offset,
        waits_s=waits.sum(axis=0),
        stragglers=_stragglers(ranks, numbers, aligned, waits),
        imbalance=_imbalance(ranks),
        missing=tuple(number for number in range(world) if number not in numbers),
        left_out=tuple(left_out),
    )


def _ordered(summaries: Sequence[RankSummary]) -> tuple[tuple[RankSummary, ...], tuple[int, ...]]:
    """Return the ranks by their numbers; traces without numbers keep the order in which they were given."""
    for place, count in Counter(rank.place for rank in summaries).items():
        if count > 1:
            raise InputFileError(f"is given {count} times.", place=place, remedy="Give each rank once.")
    sizes = {rank.world_size for rank in summaries if rank.world_size}
    if len(sizes) > 1:
        raise InputFileError(
            f"the traces are of jobs with {' and '.join(map(str, sorted(sizes)))} ranks.",
            place=", ".join(rank.place for rank in summaries),
            remedy="Give the traces of one job.",
        )
    taken = {rank.rank for rank in summaries if rank.rank is not None}
    free = (number for number in range(len(summaries)) if number not in taken)
    numbered = [(next(free) if rank.rank is None else rank.rank, rank) for rank in summaries]
    for number, count in Counter(number for number, _ in numbered).items():
        if count > 1:
            places = ", ".join(rank.place for other, rank in numbered if other == number)
            raise InputFileError(f"rank {number} is given {count} times.", place=places, remedy="Give each rank once.")
    numbered.sort(key=lambda pair: pair[0])
    return tuple(rank for _, rank in numbered), tuple(number for number, _ in numbered)


def _check_ends(ranks: Sequence[RankSummary], matched: Sequence[Matched]) -> None:
    """Raise an InputFileError for traces of several jobs, or of other steps: their exchanges do not end together."""
    step_s = float(np.median([step.wall_s for rank in ranks for step in rank.steps]))
    apart_s: list[list[float]] = [[] for _ in ranks]
    for one in matched:
        late_s = one.end_s - np.median(one.end_s)
        for rank, value in zip(one.ranks.tolist(), np.abs(late_s).tolist(), strict=True):
            apart_s[rank].append(value)
    typical_s = [float(np.median(values)) if values else 0.0 for values in apart_s]
    worst = int(np.argmax(typical_s))
    if typical_s[worst] > APART * step_s:
        raise InputFileError(
            f"leaves the exchanges {format_si(typical_s[worst], 's')} before or after the other ranks, in steps of "
            f"{format_si(step_s, 's')}: it is of another job, or of other steps.",
            place=ranks[worst].place,
            remedy="Give the traces of one job, of the same steps.",
        )


def _step_of(matched: Sequence[Matched], first: RankSummary, offset_s: float) -> NDArray[np.int64]:
    """Return for each exchange the step of the first rank in which it ended, or the one after which it ended."""
    starts = np.array([step.start_s for step in first.steps]) - offset_s
    ends = np.array([one.end_s.max() for one in matched])
    return np.asarray(np.clip(np.searchsorted(starts, ends, side="right") - 1, 0, len(first.steps) - 1))


def _waits(matched: Sequence[Matched], steps: NDArray[np.int64], count: int) -> Floats:
    """Return [step, waiting rank, rank that is waited for] -> time [s]; waits that overlap count once."""
    spans: dict[tuple[int, int, int], list[tuple[float, float]]] = {}
    for one, step in zip(matched, steps.tolist(), strict=True):
        arrival = float(one.start_s.max())
        for rank, start_s in zip(one.ranks.tolist(), one.start_s.tolist(), strict=True):
            if start_s < arrival:
                spans.setdefault((step, rank, one.last), []).append((start_s, arrival))
    waits = np.zeros((int(steps.max()) + 1, count, count))
    for place, pairs in spans.items():
        joined = union(*np.array(pairs).T)
        waits[place] = float((joined[:, 1] - joined[:, 0]).sum())
    return waits


def _stragglers(
    ranks: Sequence[RankSummary], numbers: Sequence[int], matched: Sequence[Matched], waits: Floats
) -> tuple[Straggler, ...]:
    """Return the ranks that the others wait for in most steps."""
    step_s = float(np.median([step.wall_s for rank in ranks for step in rank.steps]))
    waited = [one.last for one in matched if one.skew_s > _NOTHING * step_s]
    last = Counter(waited)
    compute = np.array([np.median([step.compute_s for step in rank.steps]) for rank in ranks])
    found = []
    for index, number in enumerate(numbers):
        others = np.delete(waits[:, :, index], index, axis=1)
        per_step = float(np.median(others.mean(axis=1)))
        last_share = last[index] / len(waited) if waited else 0.0
        if per_step > STRAGGLER_SHARE * step_s and last_share >= STRAGGLER_LAST:
            excess = float(compute[index] - np.median(np.delete(compute, index)))
            found.append(Straggler(number, per_step, per_step / step_s, last_share, excess))
    return tuple(sorted(found, key=lambda one: -one.waited_per_step_s))


def _imbalance(ranks: Sequence[RankSummary]) -> float:
    """Return max / mean - 1 of the computation of the ranks, the median over the steps that all have."""
    steps = min(len(rank.steps) for rank in ranks)
    computed = np.array([[step.compute_s for step in rank.steps[:steps]] for rank in ranks])
    mean = computed.mean(axis=0)
    ratio = np.divide(computed.max(axis=0), mean, out=np.ones(steps), where=mean > 0)
    return max(float(np.median(ratio) - 1.0), 0.0)


def incomplete_notes(job: Job) -> tuple[str, ...]:
    """Return sentences about the ranks that are missing, and the files that were left out."""
    size = max((rank.world_size or 0 for rank in job.ranks), default=0)
    missing = (f"Missing: rank {_spans(job.missing)} of {size}.",) if job.missing else ()
    return (*missing, *(f"Left out: {reason}" for reason in job.left_out))


def _spans(numbers: Sequence[int]) -> str:
    """Return numbers as "3, 5-9, 12": hundreds of ranks fit into a line."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)

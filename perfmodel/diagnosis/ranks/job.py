"""The ranks of a job together: their exchanges matched, their clocks aligned, and who waits for whom.

The time of an exchange runs from the last start to the last end: with gloo an exchange begins when it is queued, so
that its shortest duration, which TraceLens calls its latency, still contains waiting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from perfmodel.core.report import Reportable
from perfmodel.core.units import format_si
from perfmodel.diagnosis.ranks.matching import Matched, clock_offsets, match
from perfmodel.diagnosis.ranks.summary import RankSummary
from perfmodel.diagnosis.ranks.waits import Straggler, step_waits, stragglers
from perfmodel.errors import InputFileError
from perfmodel.profile.profile import Profile
from perfmodel.profile.timeline import Floats

#: ranks of one job leave an exchange together; recorded ones within 0.03 of a step in the median, and two ranks of
#: different jobs at least 0.2 from their mean, with clocks aligned (recorded gloo trainings, tests/diagnosis/ranks)
APART = 0.1


@dataclass(frozen=True)
class Job(Reportable):
    """The ranks of one job.

    Attributes
    ----------
    ranks : their summaries, ordered by rank.
    numbers : their numbers.
    exchanges : those that at least two ranks took part in.
    offset_s : clock of each rank minus that of the first one [s].
    step_waits_s : [step, waiting rank, rank that is waited for] -> time [s], shape (steps, ranks, ranks).
    stragglers : the ranks that the others wait for, the worst first.
    imbalance : max / mean - 1 of the time that the ranks compute in their median step: what stays from step to step.
    step_imbalance : max / mean - 1 of the time that the ranks compute in one step, the median over the steps: also
        what goes from rank to rank.
    missing : numbers of ranks of the job whose trace was not given.
    left_out : files that could not be read, and why.
    """

    ranks: tuple[RankSummary, ...]
    numbers: tuple[int, ...]
    exchanges: tuple[Matched, ...]
    offset_s: Floats
    step_waits_s: Floats
    stragglers: tuple[Straggler, ...]
    imbalance: float
    step_imbalance: float
    missing: tuple[int, ...]
    left_out: tuple[str, ...] = ()

    @property
    def slowest(self) -> int:
        """Number of the rank that computes longest in its median step."""
        return self.numbers[int(np.argmax([rank.step_compute_s for rank in self.ranks]))]

    @property
    def waits_s(self) -> Floats:
        """[waiting rank, rank that is waited for] -> time over all steps [s], shape (ranks, ranks)."""
        return np.asarray(self.step_waits_s.sum(axis=0))

    def hosts_of(self, ranks: Iterable[int]) -> int | None:
        """Return on how many hosts some ranks are at least; None where the traces do not tell.

        Ranks whose GPUs have one number are on different hosts, if not all of the job have it, as where each rank sees
        its own GPU alone.

        Parameters
        ----------
        ranks : indices into ``ranks``.
        """
        if len({rank.local_gpu for rank in self.ranks}) < 2 or any(rank.local_gpu is None for rank in self.ranks):
            return None
        return max(Counter(self.ranks[index].local_gpu for index in ranks).values())

    @property
    def of_host(self) -> bool:
        """Whether its ranks have no GPU."""
        return all(rank.of_host for rank in self.ranks)

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
    waits = step_waits(aligned, ranks, offset)
    imbalance, step_imbalance = _imbalance(ranks)
    return Job(
        ranks=ranks,
        numbers=numbers,
        exchanges=aligned,
        offset_s=offset,
        step_waits_s=waits,
        stragglers=stragglers(ranks, numbers, aligned, waits),
        imbalance=imbalance,
        step_imbalance=step_imbalance,
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


def _imbalance(ranks: Sequence[RankSummary]) -> tuple[float, float]:
    """Return max / mean - 1 of the computation of the ranks: in their median steps, and the median over the steps."""
    steps = min(len(rank.steps) for rank in ranks)
    computed = np.array([[step.compute_s for step in rank.steps[:steps]] for rank in ranks])
    typical_s = np.array([rank.step_compute_s for rank in ranks])
    return _beyond_mean(typical_s), float(np.median([_beyond_mean(step_s) for step_s in computed.T]))


def _beyond_mean(times_s: Floats) -> float:
    mean_s = float(times_s.mean())
    return float(times_s.max()) / mean_s - 1.0 if mean_s > 0 else 0.0


def incomplete_notes(job: Job) -> tuple[str, ...]:
    """Return sentences about the ranks that are missing, and the files that were left out."""
    size = max((rank.world_size or 0 for rank in job.ranks), default=0)
    missing = (_missing(job.missing, size),) if job.missing else ()
    return (*missing, *(f"Left out: {reason}" for reason in job.left_out))


def alone_notes(profile: Profile) -> tuple[str, ...]:
    """Return a sentence that a profile is of one rank of several; none where it is of a job of its own."""
    missing = missing_beside(profile)
    if not missing:
        return ()
    return (
        f"This is rank {profile.rank} alone. {_missing(missing, profile.world_size or 0)} Waits for them count as "
        "communication; `perfmodel diagnose rank*.json.gz` compares all ranks of a job.",
    )


def missing_beside(profile: Profile) -> tuple[int, ...]:
    """Return the numbers of the other ranks of the job that a profile is of, where it says so."""
    if profile.rank is None or not profile.world_size:
        return ()
    return tuple(number for number in range(profile.world_size) if number != profile.rank)


def _missing(numbers: Sequence[int], size: int) -> str:
    return f"Missing: rank {_spans(numbers)} of {size}."


def _spans(numbers: Sequence[int]) -> str:
    """Return numbers as "3, 5-9, 12": hundreds of ranks fit into a line."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)

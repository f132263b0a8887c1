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
from perfmodel.diagnosis.ranks.counting import common_steps, numbered, step_numbers
from perfmodel.diagnosis.ranks.groups import spans
from perfmodel.diagnosis.ranks.matching import APART, Matched, Matching, match
from perfmodel.diagnosis.ranks.meetings import Meetings, meetings
from perfmodel.diagnosis.ranks.naming import numbered_by_name
from perfmodel.diagnosis.ranks.remarks import clock_remarks, joined, step_remarks, unmatched, why_unnamed
from perfmodel.diagnosis.ranks.stragglers import NOBODY, Late, Stall, Straggler, late_ranks
from perfmodel.diagnosis.ranks.summary import RankSummary, Step
from perfmodel.diagnosis.ranks.waits import JobSteps, job_steps, step_waits
from perfmodel.errors import InputFileError
from perfmodel.profile.profile import Profile
from perfmodel.profile.timeline import Floats

#: all exchanges of a rank, beside those with the same ranks
_EVERY = b""
#: exchanges of the same ranks that show whether these leave together
_SOME = 3


@dataclass(frozen=True)
class Job(Reportable):
    """The ranks of one job.

    Attributes
    ----------
    ranks : their summaries, ordered by rank.
    numbers : their numbers.
    exchanges : those that at least two ranks took part in.
    offset_s : clock of each rank minus that of the first one [s].
    steps : of the job, and in which of them each exchange began.
    step_waits_s : [step, waiting rank, rank that is waited for] -> time [s], shape (steps, ranks, ranks); NaN where
        two ranks have no exchange with each other in a step.
    meetings : how long exchanges keep ranks from computing, between those that they have in common.
    late : the ranks that the others wait for, in most steps or in few.
    imbalance : max / mean - 1 of the time that the ranks compute in their median step: what stays from step to step.
    step_imbalance : max / mean - 1 of the time that the ranks compute in one step, the median over the steps: also
        what goes from rank to rank.
    missing : numbers of ranks of the job whose trace was not given.
    left_out : files that could not be read, and why.
    unnamed : why no rank can be called late, as a sentence; empty where one can.
    remarks : sentences about what was assumed to join the ranks, and about exchanges that could not be matched.
    """

    ranks: tuple[RankSummary, ...]
    numbers: tuple[int, ...]
    exchanges: tuple[Matched, ...]
    offset_s: Floats
    steps: JobSteps
    step_waits_s: Floats
    meetings: tuple[Meetings, ...]
    late: Late
    imbalance: float
    step_imbalance: float
    missing: tuple[int, ...]
    left_out: tuple[str, ...] = ()
    unnamed: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def stragglers(self) -> tuple[Straggler, ...]:
        """The ranks that the others wait for in most steps, the worst first."""
        return self.late.stragglers

    @property
    def together(self) -> Straggler | None:
        """What the stragglers cost together; None without any."""
        return self.late.together

    @property
    def stall(self) -> Stall | None:
        """A rank that accounts for most of the waits, but is not late in most steps."""
        return self.late.stall

    @property
    def slowest(self) -> int:
        """Number of the rank that computes longest in its median step."""
        return self.numbers[int(np.argmax([rank.step_compute_s for rank in self.ranks]))]

    @property
    def waits_s(self) -> Floats:
        """[waiting rank, rank that is waited for] -> time over all steps [s], shape (ranks, ranks)."""
        return np.asarray(np.nansum(self.step_waits_s, axis=0))

    def hosts_of(self, ranks: Iterable[int]) -> int | None:
        """Return on how many hosts some ranks are at least; None where the traces do not tell.

        The names of the hosts tell where the traces of these ranks have them. Else ranks whose GPUs have one number are
        on different hosts, if not all of the job have it, as where each rank sees its own GPU alone.

        Parameters
        ----------
        ranks : indices into ``ranks``.
        """
        chosen = list(ranks)
        if all(self.ranks[index].host for index in chosen):
            return len({self.ranks[index].host for index in chosen})
        if len({rank.local_gpu for rank in self.ranks}) < 2 or any(rank.local_gpu is None for rank in self.ranks):
            return None
        return max(Counter(self.ranks[index].local_gpu for index in chosen).values())

    @property
    def clocks_apart_s(self) -> float:
        """How far the clocks of the ranks are apart at most [s]."""
        return float(np.ptp(self.offset_s))

    @property
    def of_host(self) -> bool:
        """Whether its ranks have no GPU."""
        return all(rank.of_host for rank in self.ranks)

    @property
    def pace(self) -> int:
        """Index into ``ranks`` of the rank that sets the pace: a straggler, else the one that waits least.

        Where nothing is known of waits, it is the one that computes longest.
        """
        if self.stragglers:
            return self.numbers.index(self.stragglers[0].rank)
        if self.unnamed:
            return self.numbers.index(self.slowest)
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
    ranks, numbers, assumed = _ordered(summaries)
    matching = match(ranks, numbers)
    _check_common(ranks, matching)
    _check_ends(ranks, [one for one in matching.exchanges if one.left_together])
    world = max((rank.world_size or 0 for rank in ranks), default=0)
    unnamed = why_unnamed(matching)
    steps = job_steps(matching.exchanges, ranks, matching.offset_s)
    waits = step_waits(matching.exchanges, steps, ranks, matching.offset_s)
    met = meetings(matching.exchanges, steps, ranks, matching.offset_s)
    imbalance, step_imbalance = _imbalance(ranks)
    return Job(
        ranks=ranks,
        numbers=numbers,
        exchanges=matching.exchanges,
        offset_s=matching.offset_s,
        steps=steps,
        step_waits_s=waits,
        meetings=tuple(met),
        late=NOBODY if unnamed else late_ranks(ranks, numbers, matching.exchanges, steps, met, waits),
        imbalance=imbalance,
        step_imbalance=step_imbalance,
        missing=tuple(number for number in range(world) if number not in numbers),
        left_out=tuple(left_out),
        unnamed=unnamed,
        remarks=(*assumed, *clock_remarks(matching.offset_s), *step_remarks(ranks, numbers), *unmatched(matching)),
    )


def _check_common(ranks: Sequence[RankSummary], matching: Matching) -> None:
    """Raise an InputFileError for ranks that share no exchange, unless what they have can only not be matched."""
    if matching.exchanges or matching.untold or matching.loose or matching.messages:
        return
    traced = [f"{rank.place} {spans(step_numbers(rank))}" for rank in ranks] if numbered(ranks) else []
    apart = bool(traced) and not common_steps(ranks)
    raise InputFileError(
        f"the ranks have no {'step' if apart else 'exchange'} in common"
        f"{f'; the profiled steps are of {joined(traced)}' if apart else ''}.",
        place=", ".join(rank.place for rank in ranks),
        remedy="Give the traces of one job, of the same steps.",
    )


def _ordered(
    summaries: Sequence[RankSummary],
) -> tuple[tuple[RankSummary, ...], tuple[int, ...], tuple[str, ...]]:
    """Return the ranks by their numbers, the numbers, and sentences about numbers that the traces do not have."""
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
    assumed = numbered_by_name(summaries)
    numbered_ranks = list(zip(assumed.numbers, summaries, strict=True))
    for number, count in Counter(assumed.numbers).items():
        if count > 1:
            places = ", ".join(rank.place for other, rank in numbered_ranks if other == number)
            raise InputFileError(f"rank {number} is given {count} times.", place=places, remedy="Give each rank once.")
    numbered_ranks.sort(key=lambda pair: pair[0])
    return tuple(rank for _, rank in numbered_ranks), tuple(number for number, _ in numbered_ranks), assumed.remarks


def _check_ends(ranks: Sequence[RankSummary], matched: Sequence[Matched]) -> None:
    """Raise an InputFileError for traces of several jobs, or of other steps: their exchanges do not end together.

    The exchanges of the same ranks are judged by themselves where there are some: along the columns of a mesh there may
    be a few, and many along its rows.
    """
    step_s = float(np.median([step.wall_s for rank in ranks for step in rank.steps]))
    apart_s: list[dict[bytes, list[float]]] = [{} for _ in ranks]
    for one in matched:
        late_s, joint = one.end_s - np.median(one.end_s), one.ranks.tobytes()
        for rank, value in zip(one.ranks.tolist(), np.abs(late_s).tolist(), strict=True):
            for key in (_EVERY, joint):
                apart_s[rank].setdefault(key, []).append(value)
    typical_s = [
        max(
            (float(np.median(values)) for key, values in own.items() if key == _EVERY or len(values) >= _SOME),
            default=0,
        )
        for own in apart_s
    ]
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
    computed = np.array([[step.compute_s for step in steps] for steps in _same_steps(ranks)])
    typical_s = np.array([rank.step_compute_s for rank in ranks])
    return _beyond_mean(typical_s), float(np.median([_beyond_mean(step_s) for step_s in computed.T]))


def _same_steps(ranks: Sequence[RankSummary]) -> list[tuple[Step, ...]]:
    """Return the steps that all ranks have, by their numbers; the first ones of each where no number is common."""
    common = common_steps(ranks) if numbered(ranks) else []
    if common:
        own = [dict(zip(step_numbers(rank), rank.steps, strict=True)) for rank in ranks]
        return [tuple(steps[number] for number in common) for steps in own]
    fewest = min(len(rank.steps) for rank in ranks)
    return [rank.steps[:fewest] for rank in ranks]


def _beyond_mean(times_s: Floats) -> float:
    mean_s = float(times_s.mean())
    return float(times_s.max()) / mean_s - 1.0 if mean_s > 0 else 0.0


def incomplete_notes(job: Job) -> tuple[str, ...]:
    """Return sentences about ranks that are missing, files that were left out, and what could not be matched."""
    size = max((rank.world_size or 0 for rank in job.ranks), default=0)
    missing = [_missing(job.missing, size)] if job.missing else []
    lacking = sum(not one.whole for one in job.exchanges)
    if lacking:
        missing.append(
            f"In {lacking} of {len(job.exchanges)} exchanges a rank takes part that is not given: their times may hold "
            "waits for it, so that they may be faster than they seem."
        )
    return (*missing, *(f"Left out: {reason}" for reason in job.left_out), *job.remarks)


def alone_notes(profile: Profile, command: str = "diagnose") -> tuple[str, ...]:
    """Return a sentence that a profile is of one rank of several; none where it is of a job of its own.

    Parameters
    ----------
    profile : of the rank.
    command : that takes all ranks.
    """
    missing = missing_beside(profile)
    if not missing:
        return ()
    return (
        f"This is rank {profile.rank} alone. {_missing(missing, profile.world_size or 0)} Waits for them count as "
        f"communication; `perfmodel {command} rank*.json.gz` compares all ranks of a job.",
    )


def missing_beside(profile: Profile) -> tuple[int, ...]:
    """Return the numbers of the other ranks of the job that a profile is of, where it says so."""
    if profile.rank is None or not profile.world_size:
        return ()
    return tuple(number for number in range(profile.world_size) if number != profile.rank)


def _missing(numbers: Sequence[int], size: int) -> str:
    return f"Missing: rank {spans(numbers)} of {size}."


def ranks_text(numbers: Sequence[int]) -> str:
    """Return ranks as "rank 3" or "ranks 3, 5-9"."""
    return f"rank{'s' if len(numbers) > 1 else ''} {spans(sorted(numbers))}"

"""The sentence that a reader of a job's ranks needs first: which ranks are late, how much, and why."""

from __future__ import annotations

from typing import NamedTuple

from perfmodel.core.units import format_si
from perfmodel.diagnosis.ranks.job import Job, ranks_text
from perfmodel.diagnosis.ranks.remarks import CLOCKS_S
from perfmodel.diagnosis.ranks.stragglers import MOST, Stall, Straggler, most_waited_for, most_waiting

#: a rank whose computation is longer by less than this share of its net wait computes no longer
_NO_LONGER = 0.1


class _Words(NamedTuple):
    """How a sentence speaks of one rank, or of several."""

    are: str
    they: str
    them: str
    their: str
    compute: str
    come_last: str
    others: str


_ONE = _Words("is the straggler", "it", "it", "its", "computes", "it comes last", "than it waits for them")
_SEVERAL = _Words(
    "are the stragglers", "they", "them", "their", "compute", "one of them comes last", "than they wait for the others"
)


def decision(job: Job) -> str:
    """Return which ranks the others wait for, how long, and why, as far as the traces tell."""
    if job.clocks_apart_s > CLOCKS_S:
        apart = format_si(job.clocks_apart_s, "s", 3)
        return f"{_found(job)} First make sure that the traces are of one run: their clocks differ by {apart}."
    return _found(job)


def _found(job: Job) -> str:
    if job.unnamed:
        return job.unnamed
    if job.together is not None:
        return _late(job.together, of_host=job.of_host)
    if len(job.steps.names) == 1:
        which = "in the one step of the traces" if job.steps.marked else "in the traces, which mark no steps"
        return f"No rank is far behind {which}; it takes several to find one that is often late."
    if job.stall is not None:
        return f"No rank is late in most steps, but {_stalled(job.stall)}."
    early, share = most_waiting(job.step_waits_s)
    if share >= MOST and len(job.ranks) > 2:
        return f"No rank is late in most steps: rank {job.numbers[early]} comes early, with {share:.0%} of the waits."
    late, share = most_waited_for(job.step_waits_s)
    if not share:
        return "No rank waits for another one."
    if share < MOST:
        return "No rank is late in most steps: the waits are spread over the ranks."
    waits = f"rank {job.numbers[late]} has {share:.0%} of the waits"
    return f"No rank is late in most steps beyond what even ranks are by chance; {waits}."


def _late(late: Straggler, *, of_host: bool) -> str:
    words = _ONE if len(late.ranks) == 1 else _SEVERAL
    longer = f"longer for {words.them} {words.others}"
    whole = "the step"
    waited = f"in the median step the others wait {format_si(late.waited_per_step_s, 's', 3)} {longer}"
    if late.steps_per_synchronisation > 1:
        waited = (
            f"at the median synchronisation, one in {late.steps_per_synchronisation} steps, the others wait "
            f"{format_si(late.waited_per_synchronisation_s, 's', 3)} {longer}: "
            f"{format_si(late.waited_per_step_s, 's', 3)} a step"
        )
        whole = "the time"
    return (
        f"{ranks_text(late.ranks).capitalize()} {words.are}: {waited} ({late.share:.0%} of {whole}), and "
        f"{words.come_last} at {late.last_share:.0%} of the exchanges; {_cause(late, words, of_host=of_host)}."
    )


def _cause(late: Straggler, words: _Words, *, of_host: bool) -> str:
    """Return why the others wait for ranks, as far as their computation tells."""
    excess_s = late.compute_excess_s
    longer = f"{words.they} {words.compute} {format_si(excess_s, 's', 3)} a step longer than the others"
    if late.computes:
        return f"{longer}: compare {words.their} batch, {words.their} clocks and {words.their} share of the model"
    between = "operators" if of_host else "kernels"
    host = f"look for what {words.their} host does between the {between} (input, logging, another process)"
    if excess_s > _NO_LONGER * late.waited_per_step_s:
        return f"{longer}, which explains the smaller part: {host}"
    return f"{words.their} computation is no longer than that of the others: {host}"


def _stalled(stall: Stall) -> str:
    """Return how long the others wait for a rank that is late in few steps."""
    step = f", {format_si(stall.step_waited_s, 's', 3)} of it in {stall.step}" if stall.step else ""
    return (
        f"{stall.wait_share:.0%} of the waits are for rank {stall.rank}: the others wait "
        f"{format_si(stall.waited_s, 's', 3)} for it ({stall.share:.0%} of its wall time){step}"
    )

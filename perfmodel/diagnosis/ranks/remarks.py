"""What a reader of a job has to know about its matches, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from perfmodel.core.units import format_si
from perfmodel.diagnosis.ranks.counting import numbered, step_numbers
from perfmodel.diagnosis.ranks.groups import spans
from perfmodel.diagnosis.ranks.matching import Matching
from perfmodel.diagnosis.ranks.summary import RankSummary
from perfmodel.profile.timeline import Floats

#: clocks that are further apart than this are not kept by NTP, which keeps them within milliseconds, or are of runs at
#: different times [s]
CLOCKS_S = 1.0
#: files that a sentence names
_LISTED = 4
#: share of the exchanges that a rank may have alone, as where the profiler lost some; with more, who is late cannot be
#: told from the others
_ALONE = 0.05


def clock_remarks(offset_s: Floats) -> Iterator[str]:
    """Yield a warning where clocks are further apart than those of hosts that keep time.

    Runs of one program match as the ranks of one run do, once their clocks are aligned.

    Parameters
    ----------
    offset_s : clock of each rank minus that of the first one [s].
    """
    apart_s = float(np.ptp(offset_s))
    if apart_s > CLOCKS_S:
        yield (
            f"The clocks of the hosts differ by up to {format_si(apart_s, 's', 3)}; hosts that keep time differ by "
            "milliseconds. Make sure that the traces are of one run: those of several match as well."
        )


def why_unnamed(matching: Matching) -> str:
    """Return why no rank can be called late, or ""."""
    if matching.untold:
        return (
            f"No rank is called late: {matching.untold} of {matching.total} exchanges may be of several process groups."
        )
    if matching.exchanges and matching.messages:
        return (
            f"No rank is called late: {matching.messages} of {matching.total} exchanges are messages between two ranks "
            "of which the traces do not say the other one."
        )
    if matching.alone > _ALONE * matching.total:
        return (
            f"No rank is called late: {matching.alone} of {matching.total} exchanges are in the trace of one rank only."
        )
    if not matching.exchanges:
        return "No rank is called late: the traces do not say which exchanges belong together."
    return ""


def unmatched(matching: Matching) -> Iterator[str]:
    """Yield sentences about the exchanges that could not be matched; each rank has its own."""
    if matching.untold:
        yield (
            f"{matching.untold} of {matching.total} exchanges of the ranks are not matched: the traces list several "
            "process groups, do not say of which one an exchange is, and the ends fit none of them or several. NCCL's "
            "traces name the group."
        )
    if matching.loose:
        yield (
            f"{matching.loose} of {matching.total} exchanges of the ranks are not matched, as broadcasts: the traces "
            "do not say of which process group they are, and a rank may leave them before the others come."
        )
    if matching.messages:
        yield (
            f"{matching.messages} of {matching.total} exchanges of the ranks are messages between two ranks (send, "
            "receive), and are not matched: the traces do not say which belong together. Waits for them count as "
            "communication."
        )
    if matching.uneven:
        yield (
            f"{matching.uneven} of {matching.total} exchanges of the ranks are not matched, since the ranks have "
            "different numbers of them in the same step."
        )
    if matching.alone:
        yield (
            f"{matching.alone} of {matching.total} exchanges of the ranks are not matched: one rank has them alone, "
            "though others of its process group are given."
        )


def step_remarks(ranks: Sequence[RankSummary], numbers: Sequence[int]) -> tuple[str, ...]:
    """Return a sentence where the ranks were profiled in different steps, or in different numbers of them."""
    of_steps: dict[str, list[int]] = {}
    for number, rank in zip(numbers, ranks, strict=True):
        of_steps.setdefault(spans(step_numbers(rank)) or f"{len(rank.steps)} steps", []).append(number)
    if len(of_steps) == 1:
        return ()
    listed = joined([f"{steps} on rank {spans(own)}" for steps, own in of_steps.items()], "; ")
    matched = "Exchanges are matched within the step of one number, and w" if numbered(ranks) else "W"
    return (f"The ranks were profiled in different steps: {listed}. {matched}aits are of the steps that ranks share.",)


def joined(texts: Sequence[str], between: str = ", ") -> str:
    """Return the first texts of a list."""
    rest = len(texts) - _LISTED
    return between.join(texts[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")

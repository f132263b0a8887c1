"""The profiler's steps by their numbers, and the place of each exchange in its step.

Traces of one job may begin and end at different steps, so the count of an exchange in its file says nothing, and its
count in the step with the same number does. A GPU may run an exchange after the host has ended the step; so the step is
the one in which the host queued it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from perfmodel.diagnosis.ranks.summary import RankSummary
from perfmodel.profile.timeline import STEP_NAME, Floats, Ints


def step_numbers(rank: RankSummary) -> list[int]:
    """Return the numbers of a rank's steps; none where not all of them have one."""
    texts = [step.name.removeprefix(STEP_NAME) for step in rank.steps if step.name.startswith(STEP_NAME)]
    return list(map(int, texts)) if len(texts) == len(rank.steps) and all(map(str.isdecimal, texts)) else []


def numbered(ranks: Sequence[RankSummary]) -> bool:
    """Return whether the steps of all ranks have numbers."""
    return all(step_numbers(rank) for rank in ranks)


def common_steps(ranks: Sequence[RankSummary]) -> list[int]:
    """Return the numbers of the steps that all ranks have."""
    return sorted(set.intersection(*(set(step_numbers(rank)) for rank in ranks)))


def steps_of(rank: RankSummary) -> Ints:
    """Return the number of the step in which each exchange of a rank was queued; before the first, one less than it."""
    starts_s = np.array([step.start_s for step in rank.steps])
    numbers = step_numbers(rank)
    return np.array([numbers[0] - 1, *numbers])[np.searchsorted(starts_s, queued_s(rank), side="right")]


def queued_s(rank: RankSummary) -> Floats:
    """Return when the host of a rank queued each exchange [s]."""
    return rank.queued_s if rank.queued_s.size else rank.start_s


def places(kinds: Sequence[Hashable], steps: Ints, before: int | None = None) -> list[int]:
    """Return the count of each exchange among those of its kind in its step.

    Parameters
    ----------
    kinds, steps : of each exchange, in the order in which they were queued.
    before : the step before the first one of the trace. Of that the trace has the end only, so its exchanges are
        counted from the end: -1 for the last one.
    """
    pairs = list(zip(kinds, steps.tolist(), strict=True))
    whole, seen = Counter(pairs), Counter[tuple[Hashable, int]]()
    found = []
    for pair in pairs:
        found.append(seen[pair] - (whole[pair] if pair[1] == before else 0))
        seen[pair] += 1
    return found

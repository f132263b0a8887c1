"""How much of the same work two windows of longer runs hold, by how often their kernels ran."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from perfmodel.diagnosis.wall import gap_dimension
from perfmodel.profile.profile import ProfileEntry

#: windows hold the same work if their kernels ran equally often within this; and the least share of the time in kernels
#: that have to agree on another ratio
_SAME_WORK, _AGREEING = 0.02, 0.5

Pair = tuple[ProfileEntry | None, ProfileEntry | None]


def work_done(matches: Iterable[Pair]) -> tuple[float, str]:
    """Return how many times the work of the first window the second one holds, by the calls of their kernels.

    It is the ratio of calls on which kernels with at least half of the time agree. With it comes a warning, for windows
    of unequal work and where no ratio is agreed on.
    """
    ratios: list[tuple[float, float]] = []
    for first, second in matches:
        if first is not None and second is not None and first.calls and second.calls and not gap_dimension(first.name):
            ratios.append((second.calls / first.calls, first.time_s))
    total_s = sum(time_s for _, time_s in ratios)
    if not total_s:
        return 1.0, ""
    by_ratio: defaultdict[float, float] = defaultdict(float)
    for ratio, time_s in ratios:
        by_ratio[round(math.log(ratio) / _SAME_WORK) * _SAME_WORK] += time_s
    level, agreed_s = max(by_ratio.items(), key=lambda item: item[1])
    if level == 0.0:
        return 1.0, ""
    if agreed_s < _AGREEING * total_s:
        return 1.0, (
            "WARNING: the windows mark no steps, and their kernels ran in different numbers without a common ratio: "
            "they may hold different amounts of work. Record whole steps."
        )
    ratio = next(ratio for ratio, _ in ratios if round(math.log(ratio) / _SAME_WORK) * _SAME_WORK == level)
    return ratio, (
        f"WARNING: the windows hold different amounts of work: kernels of {100 * agreed_s / total_s:.0f} % of the time "
        f"ran {ratio:.4g} times as often after. Times after are divided by it."
    )

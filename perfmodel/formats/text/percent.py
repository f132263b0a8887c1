"""Percentages of a table against its times: where they disagree, rows nest, are missing or count twice."""

from __future__ import annotations

import math
from collections.abc import Sequence

#: percentages are printed with one or two decimals, so a sum may be off by half a unit of each row
_ROUNDING = 0.05
_TOLERANCE = 0.5


def percent_notes(percents: Sequence[float | None], times_s: Sequence[float], header: str) -> tuple[str, ...]:
    """Say where the percentages of a table do not add up to 100, or are not the shares of its times.

    Parameters
    ----------
    percents : the column of percentages, 0..100, None where a row has none.
    times_s : the times of the same rows [s].
    header : of the column of percentages.

    Returns
    -------
    No note, or one: they add up to more than 100 (rows contain one another), to less (rows are missing), or
    they add up but belong to other times.
    """
    known = [percent for percent in percents if percent is not None]
    total_s = math.fsum(times_s)
    if len(known) < 2 or not total_s > 0 or not math.fsum(known) > 0:
        return ()
    added = math.fsum(known)
    slack = _TOLERANCE + _ROUNDING * len(known)
    if added > 100 + slack:
        return (f"The percentages in {header!r} add up to {added:.4g}: rows contain one another or count twice.",)
    if added < 100 - slack:
        return (f"The percentages in {header!r} add up to {added:.4g}: rows are missing here, or are parts of others.",)
    for percent, time in zip(percents, times_s, strict=True):
        if percent is not None and abs(percent - 100 * time / total_s) > slack:
            share = 100 * time / total_s
            return (f"A row with {percent:.4g} in {header!r} has {share:.4g} % of the times that are read.",)
    return ()

"""Rows of a table that count the same time twice: totals, kernels beside their operators, ranges inside ranges.

A profile is a list of parts that add up, but tables of profilers often hold a row for the sum, or rows that contain
other rows. The functions here remove such rows, or their overlap, and return notes that say what they did. Where a
table has percentages, `percent_notes` checks the result against them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from perfmodel.core.units import format_si
from perfmodel.profile.profile import ProfileEntry

#: name of the entry for the part of a total that no row accounts for
NOT_ITEMISED = "(not itemised)"
#: four digits of a printed total round by up to 1 part in 2000, and its rows are rounded too
_TOTAL_TOLERANCE = 1e-3
_TOTALS = {"total", "totals", "grand total", "total time"}
#: these may also be names of operators, so they are totals only if they equal the sum
_MAYBE_TOTALS = {"sum", "all", "overall"}
#: "aten::mm", "c10d::allreduce_", "flash_attn::_flash_attn_forward": a namespace, no blank, no argument
_OPERATOR = re.compile(r"[a-z]\w*::\w+(?:\.\w+)?")
_KERNEL = re.compile(
    r"void .*|.*[<(].*|.*(?:_kernel|gemm|nvjet|cutlass|triton_|xmma|cudnn).*|(?:mem(?:cpy|set)|nccl).*", re.I
)
#: operators and their kernels are two sums of one time; they differ by work launched outside operators, a few percent
#: in practice. Sums that differ by more are different work, and dropping the kernels would lose it.
_SAME_WORK = 0.1
#: percentages are printed with at least one decimal, so each is off by up to half of 0.1
_PERCENT_ROUNDING = 0.05
#: further difference that is allowed between percentages and times, in points of percent
_PERCENT_TOLERANCE = 0.5


def may_be_total(name: str) -> bool:
    """Whether a row of this name may be the sum of the others."""
    return name.lower().rstrip(": ") in _TOTALS | _MAYBE_TOTALS


def without_total(entries: list[ProfileEntry]) -> tuple[list[ProfileEntry], tuple[str, ...]]:
    """Remove the row "total"; time in it that the other rows do not hold becomes "(not itemised)"."""
    for position, entry in enumerate(entries):
        name = entry.name.lower().rstrip(": ")
        if not may_be_total(name) or len(entries) < 2:
            continue
        others = [*entries[:position], *entries[position + 1 :]]
        others_s = math.fsum(other.time_s for other in others)
        row = f"The row {entry.name!r} ({format_si(entry.time_s, 's')})"
        if abs(entry.time_s - others_s) <= _TOTAL_TOLERANCE * others_s:
            return others, (f"{row} is the sum of the others and is left out.",)
        if name in _MAYBE_TOTALS:
            continue
        if entry.time_s < others_s:
            return others, (
                f"{row} is left out. The others add up to {format_si(others_s, 's')}, so they overlap or nest; "
                "shares are of that sum.",
            )
        remainder = ProfileEntry(NOT_ITEMISED, entry.time_s - others_s)
        return [*others, remainder], (f"{row} exceeds the sum of the others; the difference is {NOT_ITEMISED!r}.",)
    return entries, ()


def without_kernels(entries: Sequence[ProfileEntry]) -> tuple[list[ProfileEntry], tuple[str, ...]]:
    """Remove the kernels of a table that also lists the operators which launched them.

    Returns
    -------
    The remaining entries and a note. If operators and kernels differ by more than 10 %, all entries remain and the
    note warns that time may count twice.
    """
    operators = [entry for entry in entries if _OPERATOR.fullmatch(entry.name)]
    kernels = [entry for entry in entries if not _OPERATOR.fullmatch(entry.name) and _KERNEL.fullmatch(entry.name)]
    if not operators or not kernels:
        return list(entries), ()
    operators_s, kernels_s = (math.fsum(entry.time_s for entry in group) for group in (operators, kernels))
    sums = (
        f"{format_si(operators_s, 's')} in {len(operators)} operators, "
        f"{format_si(kernels_s, 's')} in {len(kernels)} kernels"
    )
    if abs(operators_s - kernels_s) > _SAME_WORK * max(operators_s, kernels_s):
        return list(entries), (
            f"The table lists operators and kernels ({sums}): time counts twice where one launched the other.",
        )
    kept = [entry for entry in entries if entry not in kernels]
    return kept, (f"The table lists operators and their kernels ({sums}): only the operators are counted.",)


def without_indented(
    entries: Sequence[ProfileEntry], names: Sequence[str]
) -> tuple[list[ProfileEntry], tuple[str, ...]]:
    """Reduce the rows of an indented table, each of which contains the deeper ones below it, to their own time.

    A row that is the sum of those is removed. Where some take longer than the row above them, all rows remain with a
    warning, and so they do, without one, where the names are aligned on the right.

    Parameters
    ----------
    entries : in the order of the table.
    names : as the table has them, with the spaces that indent them.
    """
    depths = [len(name) - len(name.lstrip()) for name in names]
    if len(set(depths)) < 2 or depths[0] > min(depths) or len({len(name.rstrip()) for name in names}) == 1:
        return list(entries), ()
    inner_s = [0.0] * len(entries)
    around: list[int] = []  # the rows that contain the present one, the outermost first
    for index, depth in enumerate(depths):
        while around and depths[around[-1]] >= depth:
            around.pop()
        if around:
            inner_s[around[-1]] += entries[index].time_s
        if not may_be_total(entries[index].name):
            around.append(index)
    own = []
    for entry, inside_s in zip(entries, inner_s, strict=True):
        left_s = entry.time_s - inside_s
        if left_s < -_TOTAL_TOLERANCE * entry.time_s:
            times = f"{format_si(inside_s, 's')} to {format_si(entry.time_s, 's')}"
            return list(entries), (
                f"The rows indented below {entry.name!r} take longer than it ({times}): where rows contain one "
                "another, time counts twice.",
            )
        if not inside_s or left_s > _TOTAL_TOLERANCE * entry.time_s:
            own.append(replace(entry, time_s=left_s))
    outer = sum(map(bool, inner_s))
    whose = f"{outer} rows" if outer > 1 else "1 row"
    return own, (f"Rows are indented below {whose}, of which only the time outside of them counts.",) if outer else ()


def own_times(entries: Sequence[ProfileEntry]) -> tuple[list[ProfileEntry], tuple[str, ...]]:
    """Reduce ranges that contain one another, as NVTX tables list them, to the time outside their inner ranges.

    A table of sums does not say which range contains which. Two signs are used: a name that continues another one
    after a dot (":model.layers.0.mlp" is inside ":model.layers.0"), and a range that ran once and is at least as long
    as all others together. Nesting without either sign remains, with a warning.

    Parameters
    ----------
    entries : one for each name, with the whole time of its ranges.
    """
    if len(entries) < 2:
        return list(entries), ()
    own, inner, short = _without_inner(entries)
    notes = []
    if inner:
        notes.append(f"{inner} ranges are inside others by their names; their time is subtracted from those.")
    if short:
        notes.append(f"{short} ranges are shorter than the ranges named after them; they count as 0 s.")
    longest = max(range(len(own)), key=lambda index: own[index].time_s)
    others_s = math.fsum(entry.time_s for index, entry in enumerate(own) if index != longest)
    outer = own[longest]
    if outer.calls == 1 and outer.time_s >= others_s:
        own[longest] = replace(outer, time_s=outer.time_s - others_s)
        notes.append(
            f"{outer.name!r} ran once, for {format_si(outer.time_s, 's')}, longer than all others together "
            f"({format_si(others_s, 's')}), so it contains them; only the difference counts as its own time."
        )
    else:
        notes.append("The rows are ranges. Where they nest, time counts twice and the total is too large.")
    return own, tuple(notes)


def _without_inner(entries: Sequence[ProfileEntry]) -> tuple[list[ProfileEntry], int, int]:
    """Subtract from each range the ranges inside it by name; count these, and the ranges that would fall below 0."""
    whole_s = {entry.name: entry.time_s for entry in entries}
    inner_s = dict.fromkeys(whole_s, 0.0)
    inner = 0
    for entry in entries:
        outer = _outer(entry.name, whole_s)
        if outer is not None:
            inner_s[outer] += entry.time_s
            inner += 1
    short = sum(inner_s[name] > time for name, time in whole_s.items())
    own = [replace(entry, time_s=max(0.0, entry.time_s - inner_s[entry.name])) for entry in entries]
    return own, inner, short


def _outer(name: str, names: dict[str, float]) -> str | None:
    """Return the longest other name that this one continues after a dot."""
    while "." in name:
        name = name.rpartition(".")[0]
        if name in names:
            return name
    return None


def percent_notes(percents: Sequence[float | None], times_s: Sequence[float], header: str) -> tuple[str, ...]:
    """Check that the percentages of a table add up to 100 and are the shares of its times.

    Parameters
    ----------
    percents : the column of percentages, 0..100; None where a row has none.
    times_s : the times of the same rows [s].
    header : header of the column.

    Returns
    -------
    No note, or one: they add up to more than 100 (rows contain one another), to less (rows are missing), or they add
    up but are shares of other times.
    """
    given = [percent for percent in percents if percent is not None]
    total_s = math.fsum(times_s)
    if len(given) < 2 or not total_s > 0 or not math.fsum(given) > 0:
        return ()
    total = math.fsum(given)
    slack = _PERCENT_TOLERANCE + _PERCENT_ROUNDING * len(given)
    if total > 100 + slack:
        return (f"The percentages in {header!r} add up to {total:.4g}: rows contain one another or count twice.",)
    if total < 100 - slack:
        return (f"The percentages in {header!r} add up to {total:.4g}: rows are missing, or are parts of others.",)
    for percent, time in zip(percents, times_s, strict=True):
        share = 100 * time / total_s
        if percent is not None and abs(percent - share) > slack:
            return (f"A row with {percent:.4g} in {header!r} has {share:.4g} % of the times that are read.",)
    return ()

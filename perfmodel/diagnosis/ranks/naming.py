"""Numbers for ranks whose traces have none, from the names of their files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from perfmodel.diagnosis.ranks.summary import RankSummary

#: "rank10.json.gz", "trace_rank-3.json", "worker.rank_7.pt.trace.json"
_NUMBER = re.compile(r"rank[-_.]?(\d{1,9})(?!\d)", re.IGNORECASE)
#: files that a sentence names
_LISTED = 4


class Assumed(NamedTuple):
    """The number of each rank, and sentences about those that the traces do not have."""

    numbers: tuple[int, ...]
    remarks: tuple[str, ...]


def numbered_by_name(ranks: Sequence[RankSummary]) -> Assumed:
    """Return the numbers that the traces have; else those in the names of the files, else by the order of the names.

    Names count where each of the files without a number has another one in its name, which no trace has.
    """
    without = [place for place, rank in enumerate(ranks) if rank.rank is None]
    if not without:
        return Assumed(tuple(rank.rank or 0 for rank in ranks), ())
    taken = {rank.rank for rank in ranks if rank.rank is not None}
    named = {place: _number_in(ranks[place].source) for place in without}
    in_names = {number for number in named.values() if number is not None}
    by_name = len(in_names) == len(without) and not in_names & taken
    if not by_name:
        free = (number for number in range(len(ranks) + len(taken)) if number not in taken)
        named = dict(zip(sorted(without, key=lambda place: _natural(ranks[place].place)), free, strict=False))
    numbers = tuple(named.get(place, rank.rank) or 0 for place, rank in enumerate(ranks))
    where = "those in the names of the files" if by_name else "by the order of the names of the files"
    named_ones = sorted((numbers[place], os.path.basename(ranks[place].place)) for place in without)
    listed = ", ".join(_first([f"{number} is {name}" for number, name in named_ones]))
    remark = f"The traces do not say which rank they are of. The numbers are assumed, {where}: rank {listed}."
    return Assumed(numbers, (remark, *_copies([ranks[place] for place in without])))


def _copies(ranks: Sequence[RankSummary]) -> list[str]:
    """Return a sentence about the files that have the same exchanges at the same times."""
    same: dict[bytes, list[str]] = {}
    for rank in ranks:
        times = np.concatenate([rank.start_s, rank.end_s, rank.window_s]).tobytes()
        same.setdefault(times, []).append(os.path.basename(rank.place))
    copies = [" = ".join(_first(sorted(names, key=_natural))) for names in same.values() if len(names) > 1]
    if not copies:
        return []
    return [f"Some files have the same exchanges at the same times, as copies of one do: {'; '.join(_first(copies))}."]


def _first(texts: Sequence[str]) -> list[str]:
    """Return the first texts, and how many follow."""
    rest = len(texts) - _LISTED
    return [*texts[:_LISTED], *([f"{rest} more"] if rest > 0 else [])]


def _number_in(source: str) -> int | None:
    """Return the number after the word rank in the name of a file, or None."""
    found = _NUMBER.findall(os.path.basename(source))
    return int(found[-1]) if found else None


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts names with their numbers: rank9 before rank10."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]

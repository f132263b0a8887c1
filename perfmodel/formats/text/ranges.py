"""Sums of ranges that contain one another, as NVTX tables give them, made into times that add up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from perfmodel.core.units import format_si
from perfmodel.profile.profile import ProfileEntry


def own_times(entries: Sequence[ProfileEntry]) -> tuple[list[ProfileEntry], tuple[str, ...]]:
    """Return ranges with the time that is theirs alone, and notes that say how it was found.

    A table of sums does not say which range contains which. Two signs are followed: a name that goes on behind
    a dot (":model.layers.0.mlp" is inside ":model.layers.0"), and a range that ran once and is at least as long
    as all others together. What neither explains stays, with a warning.

    Parameters
    ----------
    entries : one for each name, with the whole time of its ranges.
    """
    if len(entries) < 2:
        return list(entries), ()
    own, dotted, odd = _without_parts(entries)
    notes = []
    if dotted:
        notes.append(f"{dotted} ranges are inside others by their names: their time is taken out of those.")
    if odd:
        notes.append(f"{odd} ranges are shorter than the ranges named after them: they count 0 s.")
    longest = max(range(len(own)), key=lambda index: own[index].time_s)
    others_s = math.fsum(entry.time_s for index, entry in enumerate(own) if index != longest)
    outer = own[longest]
    if outer.calls == 1 and outer.time_s >= others_s:
        own[longest] = replace(outer, time_s=outer.time_s - others_s)
        notes.append(
            f"{outer.name!r} ran once, for {format_si(outer.time_s, 's')}, longer than all others together "
            f"({format_si(others_s, 's')}): it is taken to contain them, and only the rest is counted as its own."
        )
    else:
        notes.append("The rows are ranges: where they nest unseen, time is counted twice and the total is too large.")
    return own, tuple(notes)


def _without_parts(entries: Sequence[ProfileEntry]) -> tuple[list[ProfileEntry], int, int]:
    """Take from each range the ranges that are inside it by name; count these, and those that come out below 0."""
    whole_s = {entry.name: entry.time_s for entry in entries}
    inside_s = dict.fromkeys(whole_s, 0.0)
    dotted = 0
    for entry in entries:
        parent = _parent(entry.name, whole_s)
        if parent is not None:
            inside_s[parent] += entry.time_s
            dotted += 1
    odd = sum(inside_s[name] > time for name, time in whole_s.items())
    own = [replace(entry, time_s=max(0.0, entry.time_s - inside_s[entry.name])) for entry in entries]
    return own, dotted, odd


def _parent(name: str, names: dict[str, float]) -> str | None:
    """Return the longest other name that this one goes on from behind a dot."""
    while "." in name:
        name = name.rpartition(".")[0]
        if name in names:
            return name
    return None

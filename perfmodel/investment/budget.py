"""The best set of candidates within a number of development days."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import UsageError
from perfmodel.investment.effect import Combination, Effect, EntryBounds
from perfmodel.investment.verdict import days_text

Floats = NDArray[np.float64]
#: every set is compared up to this many candidates, and this many sets times entries (about a second)
EXACT_CANDIDATES = 20
EXACT_WORK = 5e7
_CHUNK = 1 << 14


@dataclass(frozen=True)
class Selection:
    """The set that makes the run fastest within a budget of days.

    Attributes
    ----------
    names : names of the chosen candidates.
    dev_days : days that the set takes.
    time_s, speedup : of the run with the whole set, computed jointly [s].
    exact : whether every set was compared; otherwise candidates were added one by one.
    reasons : name of each other candidate -> why it is not in the set.
    """

    names: frozenset[str]
    dev_days: float
    time_s: float
    speedup: float
    exact: bool
    reasons: Mapping[str, str] = field(default_factory=dict)

    def why_not(self, name: str) -> str:
        """Return why a candidate is left out, or an empty string."""
        return "" if name in self.names else f"left out: {self.reasons.get(name, 'not in the best set')}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out and why, and how the set was found, for people."""
        left_out = ", ".join(f"{name!r} ({reason})" for name, reason in sorted(self.reasons.items()))
        method = (
            "Every set that fits was compared."
            if self.exact
            else f"With more than {EXACT_CANDIDATES} candidates, or many entries, the candidate that saves most per "
            "day is added until the days are spent: a better set may exist."
        )
        return (*((f"Left out: {left_out}.",) if left_out else ()), method)


def check_days(days: float | None) -> None:
    """Check a budget of development days, if one is given.

    Raises
    ------
    UsageError
        If the days are not above 0.
    """
    if days is not None and not 0 < days < math.inf:
        raise UsageError(f"days is {days:g}.", remedy="Give the development days to spend, above 0.")


def best_set(
    effects: Mapping[str, Effect], times_s: Mapping[str, float], bounds: EntryBounds, days: float
) -> Selection:
    """Return the set of candidates that makes the run fastest within a number of days.

    The time of a set is computed jointly: speedups of one entry multiply, down to the bound of its operators. A set
    contains what its members come after, and no two candidates that exclude each other. Of two sets that are equally
    fast, the one with fewer days wins. Up to `EXACT_CANDIDATES` candidates, every set is compared; beyond, the
    candidate (with what it comes after) that saves most time per day is added as long as one fits.

    Parameters
    ----------
    effects : the candidates by name; those without dev_days are left out.
    times_s : time of each entry of the profile [s].
    bounds : what the machine allows for each entry.
    days : development days that may be spent, above 0.

    Raises
    ------
    UsageError
        If the days are not above 0.
    """
    check_days(days)
    reasons = {name: reason for name, effect in effects.items() if (reason := _unfit(effect, days))}
    usable = [effect for name, effect in effects.items() if name not in reasons]
    touched = len({name for effect in usable for name in effect.targets})
    exact = len(usable) <= EXACT_CANDIDATES and 2.0 ** len(usable) * max(touched, 1) <= EXACT_WORK
    chosen = (_enumerate if exact else _greedy)(usable, times_s, bounds, days)
    names = frozenset(effect.candidate.name for effect in chosen)
    reasons |= {effect.candidate.name: _why_not(effect, chosen, days) for effect in usable if effect not in chosen}
    time_s = _joint_s(chosen, times_s, bounds)
    total_s = math.fsum(times_s.values())
    return Selection(names, _days(chosen), time_s, total_s / time_s if time_s > 0 else math.inf, exact, reasons)


def _unfit(effect: Effect, days: float) -> str:
    """Return why a candidate cannot be in any set, or an empty string."""
    if effect.candidate.dev_days is None:
        return "it has no dev_days"
    return f"it takes {days_text(effect.candidate.dev_days)}" if effect.candidate.dev_days > days else ""


def _why_not(effect: Effect, chosen: Sequence[Effect], days: float) -> str:
    """Return why a candidate that would fit alone is not in the set."""
    for other in chosen:
        if other.candidate.name in effect.candidate.excludes or effect.candidate.name in other.candidate.excludes:
            return f"excludes {other.candidate.name!r}, which is chosen"
    if effect.local_speedup <= 1:
        return "it saves nothing"
    names = {other.candidate.name for other in chosen}
    missing = next((name for name in effect.candidate.after if name not in names), None)
    return f"not among the best for {days_text(days)}" if missing is None else f"needs {missing!r}, which is left out"


def _days(chosen: Sequence[Effect]) -> float:
    return math.fsum(effect.candidate.dev_days or 0.0 for effect in chosen)


def _joint_s(chosen: Sequence[Effect], times_s: Mapping[str, float], bounds: EntryBounds) -> float:
    """Return the time of the run with some candidates [s]."""
    combination = Combination(times_s, bounds)
    for effect in chosen:
        combination.add(effect)
    return combination.time_s()


def _enumerate(
    usable: Sequence[Effect], times_s: Mapping[str, float], bounds: EntryBounds, days: float
) -> list[Effect]:
    """Compare every set. A set is a number; bit i says whether candidate i is in it."""
    if not usable:
        return []
    entries = sorted({name for effect in usable for name in effect.targets})
    old_s = np.array([times_s[name] for name in entries])
    floor_s = np.array([min(bounds.counted_limit_s(name), times_s[name]) for name in entries])
    # a removed entry gets the logarithm of the smallest normal number, since 0 x -inf is NaN
    logs = np.array([[math.log(max(effect.ratio.get(name, 1.0), 1e-300)) for name in entries] for effect in usable])
    changes = np.array(
        [[name in effect.targets and not effect.candidate.keeps_operators for name in entries] for effect in usable]
    )
    cost = np.array([effect.candidate.dev_days for effect in usable])
    scale = float(old_s.sum()) or 1.0
    # times that agree to rounding are equally fast; then the days decide
    best = (round(float(old_s.sum()) / scale, 12), 0.0, 0)
    for start in range(0, 1 << len(usable), _CHUNK):
        sets = np.arange(start, min(start + _CHUNK, 1 << len(usable)))
        member = ((sets[:, None] >> np.arange(len(usable))) & 1).astype(np.float64)
        spent = member @ cost
        allowed = (spent <= days * (1 + 1e-12)) & _consistent(member, usable)
        if not allowed.any():
            continue
        sets, member, spent = sets[allowed], member[allowed], spent[allowed]
        floors = np.where(member @ changes > 0, 0.0, floor_s)
        relative = np.round(np.maximum(old_s * np.exp(member @ logs), floors).sum(axis=1) / scale, 12)
        index = np.lexsort((sets, spent, relative))[0]
        best = min(best, (float(relative[index]), float(spent[index]), int(sets[index])))
    return [effect for bit, effect in enumerate(usable) if best[2] >> bit & 1]


def _consistent(member: Floats, usable: Sequence[Effect]) -> NDArray[np.bool_]:
    """Return which sets contain what their members come after, and no two that exclude each other."""
    bit = {effect.candidate.name: index for index, effect in enumerate(usable)}
    consistent = np.ones(len(member), dtype=bool)
    for index, effect in enumerate(usable):
        chosen = member[:, index] > 0
        for name in effect.candidate.after:
            consistent &= ~chosen | (member[:, bit[name]] > 0) if name in bit else ~chosen
        for name in effect.candidate.excludes:
            if name in bit:
                consistent &= ~chosen | (member[:, bit[name]] == 0)
    return consistent


def _greedy(usable: Sequence[Effect], times_s: Mapping[str, float], bounds: EntryBounds, days: float) -> list[Effect]:
    """Add the candidate, with what it comes after, that saves most time per day, as long as one fits."""
    by_name = {effect.candidate.name: effect for effect in usable}
    chosen: list[Effect] = []
    while True:
        now_s, best, best_rate = _joint_s(chosen, times_s, bounds), [], 0.0
        for effect in usable:
            added = [] if effect in chosen else _with_needs(effect, by_name, chosen)
            if not added or _days([*chosen, *added]) > days * (1 + 1e-12):
                continue
            rate = (now_s - _joint_s([*chosen, *added], times_s, bounds)) / _days(added)
            if rate > best_rate:
                best, best_rate = added, rate
        if not best:
            return chosen
        chosen.extend(best)


def _with_needs(effect: Effect, by_name: Mapping[str, Effect], chosen: Sequence[Effect]) -> list[Effect]:
    """Return a candidate with everything that it needs and that is not chosen; an empty list if that is impossible."""
    chosen_names = {other.candidate.name for other in chosen}
    added: dict[str, Effect] = {}
    waiting = [effect.candidate.name]
    while waiting:
        name = waiting.pop()
        if name in chosen_names or name in added:
            continue
        if name not in by_name:
            return []
        added[name] = by_name[name]
        waiting.extend(by_name[name].candidate.after)
    everything = [*chosen, *added.values()]
    names = {other.candidate.name for other in everything}
    return [] if any(names & set(other.candidate.excludes) for other in everything) else list(added.values())

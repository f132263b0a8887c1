"""The best set of candidates within a number of development days."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import UsageError
from perfmodel.investment.effect import Bounds, Combination, Effect

Floats = NDArray[np.float64]
#: up to so many candidates, and so many sets times entries, every set is tried (about a second)
EXACT_CANDIDATES = 20
EXACT_WORK = 5e7
_CHUNK = 1 << 14


@dataclass(frozen=True)
class Selection:
    """The set that makes the run fastest within a budget of days.

    Attributes
    ----------
    names : of the chosen candidates.
    budget_days, dev_days : what may be spent, and what the set takes.
    time_s, speedup : of the run with the whole set, computed jointly [s].
    exact : whether every set was tried; else one candidate after the other was added.
    reasons : why each of the others is not in it.
    """

    names: frozenset[str]
    budget_days: float
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
        left = ", ".join(f"{name!r} ({reason})" for name, reason in sorted(self.reasons.items()))
        how = (
            "Every set that fits was compared."
            if self.exact
            else f"With more than {EXACT_CANDIDATES} candidates, or many entries, the one that saves most a day is "
            "added until the days are spent: a better set may exist."
        )
        return (*((f"Left out: {left}.",) if left else ()), how)


def check_days(days: float | None) -> None:
    """Check a budget of development days, where one is given.

    Raises
    ------
    UsageError
        When the days are not above 0.
    """
    if days is not None and not 0 < days < math.inf:
        raise UsageError(f"days is {days:g}.", remedy="Give the development days to spend, above 0.")


def best_set(effects: Mapping[str, Effect], times_s: Mapping[str, float], bounds: Bounds, days: float) -> Selection:
    """Return the set of candidates that makes the run fastest within a number of days.

    The time of a set is computed jointly: speedups of one entry multiply, down to the floor of its operators. A set
    holds what its members come after, and none that exclude each other. Of sets that are as fast, the one with fewer
    days. Up to `EXACT_CANDIDATES` candidates every set is compared; beyond, the candidate (with what it comes after)
    that saves most time a day is added as long as one fits.

    Parameters
    ----------
    effects : the candidates by name; those without dev_days are left out.
    times_s : time of each entry of the profile [s].
    bounds : what the machine allows for each entry.
    days : development days that may be spent, above 0.

    Raises
    ------
    UsageError
        When the days are not above 0.
    """
    check_days(days)
    reasons = {name: reason for name, made in effects.items() if (reason := _unfit(made, days))}
    usable = [made for name, made in effects.items() if name not in reasons]
    touched = len({name for made in usable for name in made.targets})
    exact = len(usable) <= EXACT_CANDIDATES and 2.0 ** len(usable) * max(touched, 1) <= EXACT_WORK
    chosen = (_enumerate if exact else _greedy)(usable, times_s, bounds, days)
    names = frozenset(made.candidate.name for made in chosen)
    reasons |= {made.candidate.name: _why(made, chosen, days) for made in usable if made not in chosen}
    time_s = _joint_s(chosen, times_s, bounds)
    total_s = math.fsum(times_s.values())
    return Selection(names, days, _days(chosen), time_s, total_s / time_s if time_s > 0 else math.inf, exact, reasons)


def _unfit(made: Effect, days: float) -> str:
    if made.candidate.dev_days is None:
        return "it has no dev_days"
    return f"it takes {made.candidate.dev_days:g} days" if made.candidate.dev_days > days else ""


def _why(made: Effect, chosen: Sequence[Effect], days: float) -> str:
    """Return why a candidate that would fit alone is not in the set."""
    for other in chosen:
        if other.candidate.name in made.candidate.excludes or made.candidate.name in other.candidate.excludes:
            return f"excludes {other.candidate.name!r}, which is chosen"
    if made.local_speedup <= 1:
        return "it saves nothing"
    return f"not among the best for {days:g} days" if _days(chosen) else "what it needs does not fit"


def _days(chosen: Sequence[Effect]) -> float:
    return math.fsum(made.candidate.dev_days or 0.0 for made in chosen)


def _joint_s(chosen: Sequence[Effect], times_s: Mapping[str, float], bounds: Bounds) -> float:
    together = Combination(times_s, bounds)
    for made in chosen:
        together.add(made)
    return together.time_s()


def _enumerate(usable: Sequence[Effect], times_s: Mapping[str, float], bounds: Bounds, days: float) -> list[Effect]:
    """Compare every set; sets are numbers whose bits are the candidates."""
    if not usable:
        return []
    entries = sorted({name for made in usable for name in made.targets})
    old_s = np.array([times_s[name] for name in entries])
    floor_s = np.array([min(bounds.counted_floor_s(name), times_s[name]) for name in entries])
    # a removed entry has the logarithm of the smallest normal number, since 0 x -inf is not a number
    logs = np.array([[math.log(max(made.ratio.get(name, 1.0), 1e-300)) for name in entries] for made in usable])
    changes = np.array(
        [[name in made.targets and not made.candidate.keeps_operators for name in entries] for made in usable]
    )
    cost = np.array([made.candidate.dev_days for made in usable])
    best = (math.fsum(old_s), 0.0, 0)
    for start in range(0, 1 << len(usable), _CHUNK):
        sets = np.arange(start, min(start + _CHUNK, 1 << len(usable)))
        member = ((sets[:, None] >> np.arange(len(usable))) & 1).astype(np.float64)
        spent = member @ cost
        allowed = (spent <= days * (1 + 1e-12)) & _consistent(member, usable)
        if not allowed.any():
            continue
        sets, member, spent = sets[allowed], member[allowed], spent[allowed]
        floors = np.where(member @ changes > 0, 0.0, floor_s)
        time_s = np.maximum(old_s * np.exp(member @ logs), floors).sum(axis=1)
        # times that agree to rounding are as fast: then the days decide
        index = np.lexsort((sets, spent, np.round(time_s / _scale(old_s), 12)))[0]
        found = (float(time_s[index]), float(spent[index]), int(sets[index]))
        best = min(best, found, key=lambda one: (round(one[0] / _scale(old_s), 12), one[1], one[2]))
    return [made for bit, made in enumerate(usable) if best[2] >> bit & 1]


def _scale(times_s: Floats) -> float:
    """Return what times are compared in: their sum, or 1 where that is 0."""
    return float(times_s.sum()) or 1.0


def _consistent(member: Floats, usable: Sequence[Effect]) -> NDArray[np.bool_]:
    """Tell which sets hold what their members come after, and none that exclude each other."""
    bit = {made.candidate.name: index for index, made in enumerate(usable)}
    good = np.ones(len(member), dtype=bool)
    for index, made in enumerate(usable):
        mine = member[:, index] > 0
        for name in made.candidate.after:
            good &= ~mine | (member[:, bit[name]] > 0) if name in bit else ~mine
        for name in made.candidate.excludes:
            if name in bit:
                good &= ~mine | (member[:, bit[name]] == 0)
    return good


def _greedy(usable: Sequence[Effect], times_s: Mapping[str, float], bounds: Bounds, days: float) -> list[Effect]:
    """Add the candidate, with what it comes after, that saves most time a day, as long as one fits."""
    by_name = {made.candidate.name: made for made in usable}
    chosen: list[Effect] = []
    while True:
        now_s, best, best_rate = _joint_s(chosen, times_s, bounds), [], 0.0
        for made in usable:
            more = [] if made in chosen else _with_needs(made, by_name, chosen)
            if not more or _days([*chosen, *more]) > days * (1 + 1e-12):
                continue
            rate = (now_s - _joint_s([*chosen, *more], times_s, bounds)) / _days(more)
            if rate > best_rate:
                best, best_rate = more, rate
        if not best:
            return chosen
        chosen.extend(best)


def _with_needs(made: Effect, by_name: Mapping[str, Effect], chosen: Sequence[Effect]) -> list[Effect]:
    """Return a candidate with everything that it needs and that is not chosen; nothing where that cannot be."""
    names = {one.candidate.name for one in chosen}
    added: dict[str, Effect] = {}
    waiting = [made.candidate.name]
    while waiting:
        name = waiting.pop()
        if name in names or name in added:
            continue
        if name not in by_name:
            return []
        added[name] = by_name[name]
        waiting.extend(by_name[name].candidate.after)
    everything = [*chosen, *added.values()]
    held = {one.candidate.name for one in everything}
    return [] if any(held & set(one.candidate.excludes) for one in everything) else list(added.values())

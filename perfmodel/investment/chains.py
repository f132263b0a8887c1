"""Candidates with what they need first: what such a chain takes and gives together, and the order that follows."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from perfmodel.investment.amdahl import roi_per_day
from perfmodel.investment.effect import Combination, Effect
from perfmodel.investment.roi import Baseline, RoiRow, roi_row

ROI, PAYBACK, TIME = "roi", "payback", "time"
#: a chosen one first, then the figure, the time saved, and the name
_Key = tuple[bool, float, float, str]


@dataclass(frozen=True)
class Chain:
    """A candidate and everything that it needs and that is not done yet, done together.

    Attributes
    ----------
    names : the candidates, each after those that it needs; the last one is what the others are done for.
    overall_speedup, time_saved_s : of the run with all of them and no other [s].
    dev_days : of all of them; None if one has none.
    roi_per_day, payback_days : as of a candidate alone (`perfmodel.investment.roi.RoiRow`).
    """

    names: tuple[str, ...]
    overall_speedup: float
    time_saved_s: float
    dev_days: float | None
    roi_per_day: float | None
    payback_days: float | None


def chain_of(names: Sequence[str], effects: Mapping[str, Effect], baseline: Baseline) -> Chain:
    """Return what some candidates take and give together; one alone is as its row says.

    Parameters
    ----------
    names : the candidates, each after those that it needs.
    effects : the candidates of the plan by name.
    baseline : the run before any change.
    """
    if len(names) == 1:
        row = roi_row(effects[names[0]], baseline)
        return Chain(
            (row.name,), row.overall_speedup, row.time_saved_s, row.dev_days, row.roi_per_day, row.payback_days
        )
    combination = Combination(baseline.times_s, baseline.bounds)
    for name in names:
        combination.add(effects[name])
    total_s, time_s = baseline.total_s, combination.time_s()
    speedup = total_s / time_s if time_s > 0 else math.inf
    each = [effects[name].candidate.dev_days for name in names]
    days = None if None in each else math.fsum(one or 0.0 for one in each)
    economics = baseline.economics
    return Chain(
        names=tuple(names),
        overall_speedup=speedup,
        time_saved_s=total_s - time_s,
        dev_days=days,
        roi_per_day=None if days is None else float(roi_per_day(speedup, days)),
        payback_days=economics.payback_days(speedup, days) if economics and days is not None else None,
    )


def figure(one: RoiRow | Chain, by: str) -> float:
    """Return the figure that ranks a candidate or a chain; the smallest comes first."""
    if by == ROI:
        return -(one.roi_per_day or 0.0)
    if by == PAYBACK:
        return math.inf if one.payback_days is None else one.payback_days
    return -one.time_saved_s


def all_chains(effects: Mapping[str, Effect], baseline: Baseline) -> list[Chain]:
    """Return the chain of each candidate while none is done, without those whose members exclude each other.

    The order of the plan does not matter: they are sorted by the candidates' names.
    """
    chains = (_needed_first(name, effects, (), {}) for name in sorted(effects))
    return [chain_of(names, effects, baseline) for names in chains if not _excluded(names, effects)]


def _excluded(names: Collection[str], effects: Mapping[str, Effect]) -> bool:
    return any(other in names for name in names for other in effects[name].candidate.excludes)


def in_order(
    alone: Mapping[str, RoiRow],
    effects: Mapping[str, Effect],
    baseline: Baseline,
    by: str,
    chosen: Collection[str] | None = None,
) -> list[Chain]:
    """Return the chains in the order in which to do them; together they hold each candidate once.

    The chain with the best figure comes first, then the best one of what is left, whose needs may be done by then. So a
    poor candidate comes early only for the sake of one that is worth both.

    Parameters
    ----------
    alone, effects : the candidates of a plan by name.
    baseline : the run before any change.
    by : "roi", "payback" or "time".
    chosen : candidates that stand before all others; None for no such choice.
    """

    def key(one: RoiRow | Chain, name: str) -> _Key:
        return (chosen is not None and name not in chosen, figure(one, by), -one.time_saved_s, name)

    ranks = {name: key(row, name) for name, row in alone.items()}
    done: dict[str, None] = {}
    current: dict[str, Chain] = {}
    waiting: list[tuple[_Key, Chain]] = []

    def weigh(names: Iterable[str]) -> None:
        for name in names:
            current[name] = chain_of(_needed_first(name, effects, done, ranks), effects, baseline)
            rank = key(current[name], name)
            if _excluded(current[name].names, effects):  # what cannot be done together is worth nothing together
                rank = (rank[0], math.inf, *rank[2:])
            heapq.heappush(waiting, (rank, current[name]))

    weigh(alone)
    placed = []
    while waiting:
        (_, _, _, name), chain = heapq.heappop(waiting)
        if name in done or chain is not current[name]:
            continue
        placed.append(chain)
        done |= dict.fromkeys(chain.names)
        new = set(chain.names)
        weigh(name for name, other in list(current.items()) if name not in done and not new.isdisjoint(other.names))
    return placed


def _needed_first(
    wanted: str, effects: Mapping[str, Effect], done: Collection[str], ranks: Mapping[str, _Key]
) -> tuple[str, ...]:
    """Return a candidate after everything that it needs and that is not done, of several the best one first."""
    names: dict[str, None] = {}
    stack = [wanted]
    while stack:
        needed = [name for name in effects[stack[-1]].candidate.after if name not in names and name not in done]
        if needed:
            stack.append(min(needed, key=lambda name: ranks.get(name, (False, 0.0, 0.0, name))))
        else:
            names.setdefault(stack.pop())
    return tuple(names)

"""Which process group an exchange is of, where the traces only list the groups of each rank, as with gloo.

The n-th exchange of an operation and message within a step has the same group in each step; it is a role of its rank.
For each listed group, the roles of its ranks whose ends agree best, by the median over the steps, are a candidate. It
costs, in the median step,

    (last end - last start) + (last end - first end):

what the exchange takes once all of its ranks are there, and how far apart they leave. Ranks of different groups leave
apart, and ranks of a part of the true group wait for one that is not among them, so both cost more than the true group.
No rank leaves a collective before the last has come, so a candidate in which one does is none.

The larger of two groups is chosen unless the smaller ones cost less together. Groups of one size that cost the same
cannot be told apart, and their roles stay without a group.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from perfmodel.profile.timeline import Floats, Ints

#: how much dearer a group may be than others that still fit as well
_TIE = 1.25
#: how many exchanges of a kind a rank may have in a step before one that another rank of the group does not have
_MOST_SHIFTED = 8
#: share of the steps in which no rank may leave before the last has come: one step in four may be cut or disturbed
_KEPT = 0.75
#: a rank and a place among its exchanges of a kind in a step
_Role = tuple[int, int]
#: operations that no rank leaves before all have come. In the others, as a broadcast, a rank may only send, and leave
#: before the others come, so that ends do not tell
COLLECTIVE = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "barrier")


class Grid(NamedTuple):
    """Start and end of the exchanges of one kind on one rank, shape (place in the step, step) [s]; NaN for none."""

    start_s: Floats
    end_s: Floats


@dataclass(frozen=True)
class Tolerance:
    """What ends may differ by, and how long before the last rank comes one may seem to leave [s]."""

    apart_s: float
    early_s: float


@dataclass(frozen=True)
class Fit:
    """A group, and the place in the step that the same exchange has on each of its ranks.

    Attributes
    ----------
    label : of the group.
    places : rank -> place among the exchanges of the kind in the step.
    cost_s : see the module [s].
    """

    label: str
    places: Mapping[int, int]
    cost_s: float

    @property
    def roles(self) -> set[_Role]:
        """Its ranks and places."""
        return set(self.places.items())


def fits(grids: Mapping[int, Grid], groups: Mapping[str, Sequence[int]], tolerance: Tolerance) -> list[Fit]:
    """Return the groups of the exchanges of one kind, one of `COLLECTIVE`, as far as they can be told.

    Parameters
    ----------
    grids : rank -> its exchanges of the kind.
    groups : label -> its ranks.
    tolerance : of a candidate.
    """
    found = [
        fit
        for label, members in groups.items()
        if all(rank in grids for rank in members)
        for fit in _candidates(label, members, [grids[rank] for rank in members], tolerance)
    ]
    found.sort(key=lambda fit: (-len(fit.places), fit.cost_s))
    of_role: dict[_Role, list[Fit]] = {}
    for fit in found:
        for role in fit.roles:
            of_role.setdefault(role, []).append(fit)
    return _chosen(found, of_role)


def _chosen(found: Sequence[Fit], of_role: Mapping[_Role, Sequence[Fit]]) -> list[Fit]:
    """Return the candidates that cost less than others of their roles; ``found`` has the largest and cheapest first."""
    taken: set[_Role] = set()
    unsure: set[_Role] = set()
    chosen = []
    for fit in found:
        own_s = fit.cost_s * len(fit.places)
        if (taken | unsure) & fit.roles or own_s > _TIE * _others_s(fit, of_role, taken, smaller=True):
            continue
        same_s = _others_s(fit, of_role, taken, smaller=False)
        if _TIE * own_s <= same_s:
            chosen.append(fit)
            taken |= fit.roles
        elif own_s <= _TIE * same_s:
            unsure |= fit.roles
    return chosen


def _others_s(fit: Fit, of_role: Mapping[_Role, Sequence[Fit]], taken: set[_Role], *, smaller: bool) -> float:
    """Return what the roles of a candidate cost in those of other groups that are smaller, or as large [s]."""
    size, total_s = len(fit.places), 0.0
    for role in fit.roles:
        rivals = (other for other in of_role[role] if other.label != fit.label and not taken & other.roles)
        chosen = (other for other in rivals if (len(other.places) < size if smaller else len(other.places) == size))
        total_s += min((other.cost_s for other in chosen), default=np.inf)
    return total_s


def _candidates(label: str, members: Sequence[int], grids: Sequence[Grid], tolerance: Tolerance) -> list[Fit]:
    """Return the roles of a group's ranks whose ends agree, one candidate for each place on its first rank."""
    places = np.stack([_partners(grids[0], grid) for grid in grids])
    starts_s, ends_s = (
        np.stack([columns[np.maximum(own, 0)] for columns, own in zip(side, places, strict=True)])
        for side in ([grid.start_s for grid in grids], [grid.end_s for grid in grids])
    )
    last_s, first_end_s, end_s = starts_s.max(axis=0), ends_s.min(axis=0), ends_s.max(axis=0)
    early_s = np.maximum(last_s - first_end_s, 0.0)
    cost_s = _typical((end_s - last_s) + (end_s - first_end_s) + early_s)
    good = (places >= 0).all(axis=0) & (_typical(end_s - first_end_s) <= tolerance.apart_s)
    good &= _typical(early_s, _KEPT) <= tolerance.early_s
    return [
        Fit(label, dict(zip(members, places[:, place].tolist(), strict=True)), max(float(cost_s[place]), 0.0))
        for place in np.flatnonzero(good & np.isfinite(cost_s)).tolist()
    ]


def _partners(first: Grid, other: Grid) -> Ints:
    """Return for each place of one rank the place of another whose ends are nearest, or -1."""
    count, best_s = len(first.end_s), np.full(len(first.end_s), np.inf)
    best = np.full(count, -1, dtype=np.int64)
    own = np.arange(count)
    # the same place comes first, and stays where others are as near
    for shift in sorted(range(-_MOST_SHIFTED, _MOST_SHIFTED + 1), key=abs):
        place = own + shift
        inside = (place >= 0) & (place < len(other.end_s))
        apart_s = np.full(count, np.inf)
        apart_s[inside] = _typical(np.abs(first.end_s[inside] - other.end_s[place[inside]]))
        best, best_s = np.where(apart_s < best_s, place, best), np.minimum(best_s, apart_s)
    return best


def _typical(values: Floats, share: float = 0.5) -> Floats:
    """Return a quantile over the steps, infinite where no step has a value."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of rows without any value
        found = np.nanquantile(values, share, axis=-1)
    return np.where(np.isnan(found), np.inf, found)

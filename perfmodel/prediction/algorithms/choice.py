"""The choice among the algorithms of a problem on a machine, and the sizes at which it changes."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.core.hardware import Hardware
from perfmodel.core.report import Reportable
from perfmodel.errors import UsageError, unknown_name
from perfmodel.operators import load_operator
from perfmodel.operators.base import Operator
from perfmodel.prediction.algorithms import find_problem, problem_of
from perfmodel.prediction.algorithms.base import Cost, Problem
from perfmodel.prediction.algorithms.crossover import Crossover, bisect, crossing, grid


@dataclass(frozen=True, eq=False)
class Choice(Reportable):
    """The algorithms of a problem on a machine, the fastest that applies first.

    Attributes
    ----------
    problem : the problem.
    op : the operator that states it.
    hardware : the machine.
    rows : what each algorithm takes: those that apply by their time, then the others.
    """

    problem: Problem
    op: Operator
    hardware: Hardware
    rows: tuple[Cost, ...]

    @property
    def best(self) -> str:
        """Name of the fastest algorithm that applies.

        Raises
        ------
        UsageError
            When none applies.
        """
        if not self.rows or not self.rows[0].applies:
            reasons = "; ".join(f"{row.algorithm}: {row.why_not}" for row in self.rows)
            raise UsageError(f"no algorithm applies: {reasons}.", place=self.problem.name)
        return self.rows[0].algorithm

    def __getitem__(self, algorithm: str) -> Cost:
        """Return what one algorithm takes.

        Raises
        ------
        UsageError
            When the problem has no such algorithm.
        """
        for row in self.rows:
            if row.algorithm == algorithm:
                return row
        raise unknown_name("algorithm", algorithm, [row.algorithm for row in self.rows], place=self.problem.name)

    def speedup(self, before: str, after: str) -> float:
        """Return the time of one algorithm over that of another."""
        return self[before].time_s / self[after].time_s

    def at(self, size: float) -> tuple[Cost, ...]:
        """Return what each algorithm takes at another size, a whole number, in the order of the problem."""
        return tuple(self._costs(float(round(size))))

    @functools.cached_property
    def _cache(self) -> dict[float, Sequence[Cost]]:
        return {}

    def _costs(self, size: float) -> Sequence[Cost]:
        if size not in self._cache:
            try:
                self._cache[size] = self.problem.costs(self.problem.at(self.op, size), self.hardware)
            except UsageError:  # a size at which the problem does not exist, as a filter larger than its image
                self._cache[size] = ()
        return self._cache[size]

    @property
    def sizes(self) -> list[float]:
        """The sizes of the curves."""
        return grid(*self.problem.sizes)

    @functools.cached_property
    def curves(self) -> Mapping[str, list[float]]:
        """Algorithm -> its time at each of `sizes` [s]; NaN where it does not apply."""
        names = dict.fromkeys(row.algorithm for row in self.rows)
        times: dict[str, list[float]] = {name: [] for name in names}
        for size in self.sizes:
            here = {cost.algorithm: cost for cost in self._costs(size)}
            for name, column in times.items():
                column.append(here[name].time_s if name in here else math.nan)
        return times

    @functools.cached_property
    def crossovers(self) -> tuple[Crossover, ...]:
        """The sizes at which the fastest algorithm changes, by bisection between the sizes of the curves."""
        found: list[Crossover] = []
        before: tuple[float, str] | None = None
        for size in self.sizes:
            best = self._best_at(size)
            if best is None:
                continue
            if before is not None and best != before[1]:
                found.extend(self._between(before, (size, best)))
            before = (size, best)
        return without_flicker(found)

    def _between(self, first: tuple[float, str], last: tuple[float, str]) -> list[Crossover]:
        """Return the changes between two neighbouring sizes: two, where a third algorithm wins in between."""
        found: list[Crossover] = []
        low, current = first
        while current != last[1] and len(found) < len(self.rows):
            left = current
            size = whole(bisect(lambda s, left=left: self._best_at(s) != left, low, last[0]))  # type: ignore[misc]
            after = self._best_at(size) or last[1]
            found.append(Crossover(size, current, after, self._time(after, size)))
            low, current = size, after
        return found

    def _best_at(self, size: float) -> str | None:
        able = [cost for cost in self._costs(whole(size)) if cost.applies]
        return min(able, key=lambda cost: cost.time_s).algorithm if able else None

    def _time(self, algorithm: str, size: float) -> float:
        return next((cost.time_s for cost in self._costs(whole(size)) if cost.algorithm == algorithm), math.nan)

    def crossover(self, first: str, second: str) -> float | None:
        """Return the first size at which the faster of two algorithms changes; None where it never does.

        An algorithm that does not apply but has a time takes part: attention whose result differs, for example.
        """
        _ = self[first], self[second]
        size = crossing(lambda size: self._time(first, size) - self._time(second, size), self.sizes)
        return None if size is None else whole(size)


#: from the first size on, those of a search are multiples of the second: products whose rows are no whole vectors have
#: kernels of their own, several times as slow, which would hide where algorithms overtake one another
WHOLE_FROM, WHOLE = 32.0, 16.0


def whole(size: float) -> float:
    """Return the size that a search takes for another: of whole vectors, where that is little less.

    >>> whole(10.0), whole(1000.0)
    (10.0, 992.0)
    """
    return size if size < WHOLE_FROM else math.floor(size / WHOLE) * WHOLE


#: a change that is undone within this share of a size is a step of tiles or waves, not a crossover
FLICKER = 1.1


def without_flicker(crossovers: Sequence[Crossover]) -> tuple[Crossover, ...]:
    """Return crossovers without those that the next one undoes within a tenth of the size.

    >>> steps = [Crossover(10.0, "a", "b", 1.0), Crossover(20.0, "b", "a", 1.0), Crossover(21.0, "a", "b", 1.0)]
    >>> [item.size for item in without_flicker(steps)]
    [10.0]
    """
    kept: list[Crossover] = []
    for item in crossovers:
        last = kept[-1] if kept else None
        if last is not None and last.before == item.after and item.size < FLICKER * last.size:
            kept.pop()
        else:
            kept.append(item)
    return tuple(kept)


def choose(problem: Operator | str, hardware: Hardware, **dimensions: Any) -> Choice:
    """Return what each algorithm of a problem takes on a machine, the fastest that applies first.

    Parameters
    ----------
    problem : the operator that states the problem, or the problem's name ("sort", "gradient_compression") with the
        operator's ``dimensions``, which the problem's defaults complete where they do not state the operator wholly.
    hardware : the machine.

    Raises
    ------
    UsageError
        When there is no such problem, a dimension is missing or an array, or the machine lacks the dtype.
    """
    if isinstance(problem, str):
        found = find_problem(problem)
        op = load_operator(found.op)(**found.completing(dimensions), **dimensions)
    else:
        op, found = problem, _stated(problem, dimensions)
    return choose_for(found, op, hardware)


def choose_for(problem: Problem, op: Operator, hardware: Hardware) -> Choice:
    """Return what each algorithm of a given problem takes, stated by an operator; see `choose`."""
    _check_states(problem, op)
    arrays = [name for name, value in op.params().items() if hasattr(value, "shape") and value.shape]
    if arrays:
        raise UsageError(
            f"{arrays[0]} has several values, and a choice is made for one.",
            place=problem.name,
            remedy=f"Give {arrays[0]} one value: --plot and the table below the choice run over {problem.size}.",
        )
    costs = problem.costs(op, hardware)
    ranked = sorted(costs, key=lambda cost: (not cost.applies, cost.time_s if math.isfinite(cost.time_s) else math.inf))
    return Choice(problem, op, hardware, tuple(ranked))


def _check_states(problem: Problem, op: Operator) -> None:
    """Raise for an operator that states another problem, as an activation that is no GELU."""
    if problem.stated_by(op):
        return
    params = op.params()
    other = [f"{name}={params[name]}" for name, value in problem.stating.items()
             if name in params and params[name] != value]  # fmt: skip
    raise UsageError(
        f"{' '.join([op.op, *other])} is not the problem {problem.name}.",
        place=problem.name,
        remedy=f"Leave out {' '.join(other)}." if other else f"It is stated by {problem.op}.",
    )


def _stated(op: Operator, dimensions: Mapping[str, Any]) -> Problem:
    if dimensions:
        raise UsageError("dimensions belong to a problem's name, and an operator has its own.", place=op.op)
    return problem_of(op)

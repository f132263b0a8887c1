"""Fitting the constants of a family to measured rows: robust, from few rows, with the certainty of each constant.

The fit is a maximum-a-posteriori estimate. Each constant c is lognormal about its default with the spread over machines
(`Constant.spread`); each row's log(predicted / measured) is distributed about zero with heavy tails:

    minimise  sum_i w_i r_i^2 / s^2  +  sum_j ((ln c_j - ln default_j) / spread_j)^2

with s the robust scale of the residuals and w_i = 1 / sqrt(1 + (r_i / s)^2), which makes the sum behave like the
absolute error for outliers (pseudo-Huber; P. J. Huber, "Robust statistics", 1981, section 7.8), by Levenberg's damped
Gauss-Newton steps with a numerical Jacobian. A constant that the rows do not determine keeps its default, since only
the second sum depends on it; its certainty is the ratio of its posterior deviation to its spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.operators.base import Operator
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import FACTOR, HOST_CONSTANTS, Constant, Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import starting_s

Floats = NDArray[np.float64]

#: a constant whose posterior deviation is more than this share of its prior spread is not identified by the rows
UNIDENTIFIED = 0.7
#: a constant that the rows have moved by more than this share of its spread counts as identified, however uncertain
FAR = 0.5
#: rows that spend less than this share of their time on a kernel's start do not tell it; what is left over would pass
#: for it: an RTX 4090's products, of 38 us and more, made it 2.9 us in place of 1.7
TELLING, STARTS = 0.1, ("start",)
#: the last step of a fit changes no constant by more than this share, far less than rows determine any of them
CONVERGED = 1e-3
#: Gauss-Newton steps that suffice from a fit to nearly the same rows
NEAR_STEPS = 6
#: least scale of the residuals: shapes that a closed form cannot distinguish differ by this much
NOISE = 0.03
#: shares of the fitted dispatch that are tried where it varies from call to call
HOST_SHARES = 0.3 * 4.0 ** (np.arange(53) / 35.0)  # to 2.35
#: rows of one machine are not independent (one clock, one library), so more rows than this add no weight
MOST_EVIDENCE = 400.0


@dataclass(frozen=True)
class Group:
    """Measured calls that differ only in their sizes.

    Attributes
    ----------
    op : one operator whose dimensions are arrays with one value per row.
    machine : the machine that it ran on.
    conditions : what the times mean.
    time_s : measured time of each row [s].
    weight : weight of each row.
    """

    op: Operator
    machine: Machine
    conditions: Conditions
    time_s: Floats
    weight: float = 1.0

    def __len__(self) -> int:
        return int(self.time_s.size)

    def take(self, chosen: NDArray[np.bool_]) -> Group:
        """Return the rows that a mask selects."""
        sizes = {key: value[chosen] for key, value in self.op.params().items() if np.ndim(value)}
        return replace(self, op=replace(self.op, **sizes), time_s=self.time_s[chosen])


@dataclass(frozen=True)
class Fit:
    """Fitted constants, and how well the rows determine them.

    Attributes
    ----------
    values : constant -> fitted value, or the default if the rows do not identify it.
    unidentified : the constants that the rows do not identify.
    certainty : constant -> posterior over prior deviation; 0 is certain, 1 means that the rows tell nothing.
    scale : robust scale of the residuals ln(predicted / measured).
    rows : number of rows.
    """

    values: dict[str, float]
    unidentified: tuple[str, ...]
    certainty: dict[str, float]
    scale: float
    rows: int

    def identified(self) -> dict[str, float]:
        """Return the fitted constants that the rows identify."""
        return {name: self.values[name] for name in self.certainty if name not in self.unidentified}


def log_ratio(family: Family, values: Values, groups: Sequence[Group]) -> Floats:
    """Return ln(predicted / measured) of all rows, group after group."""
    parts = []
    for group in groups:
        time = family.timed_terms(group.op, group.machine, values, group.conditions).time_s
        parts.append(np.log(np.maximum(np.broadcast_to(time, group.time_s.shape), 1e-12) / group.time_s))
    return np.concatenate(parts)


def fit(
    family: Family,
    groups: Sequence[Group],
    start: Values | None = None,
    free: Sequence[str] | None = None,
    steps: int = 30,
    near: Fit | None = None,
    *,
    centred: bool = False,
) -> Fit:
    """Return the constants of a family that fit the rows best.

    Parameters
    ----------
    family : the family of the constants.
    groups : the rows; several machines share one set of constants, which makes it a set of defaults.
    start : the prior, where the fit starts too; None for the defaults of the constants.
    free : names of the constants to fit; None for all those of the family, without `FACTOR`.
    steps : most Gauss-Newton steps.
    near : a fit to nearly the same rows, as all but one machine's. The search starts there, leaves the constants alone
        that those rows did not identify, and needs few steps. It fits those whose prior has moved far, since rows that
        agree with one prior may tell it from another.
    centred : whether the scale of the residuals is that about their median. About zero, an offset that all rows share
        counts as noise, and the priors hold against it: right where the rows are some of many that tell what is usual.
        About the median, the constants follow it, however far: right where these rows are what is to be predicted.
    """
    constants = family.table_constants if free and FACTOR.name in free else family.all_constants
    if not any(group.conditions.timing.includes_host for group in groups):
        constants = tuple(c for c in constants if c not in HOST_CONSTANTS)
    typical = {c.name: c.default for c in (*family.all_constants, *constants)}
    base = typical | dict(start or {})
    chosen = [c for c in constants if free is None or c.name in free]
    hidden = STARTS if _longest_start(family, groups, base) < TELLING else ()
    certainty: dict[str, float] = {}
    unidentified = [c.name for c in chosen if c.name in hidden]
    guess: Mapping[str, float] = base
    starts: list[Mapping[str, float]] = [base] if typical == base else [base, typical]
    starts += [{**base, c.name: value} for c in chosen for value in c.starts]
    if near is not None:
        unidentified += [
            c.name
            for c in chosen
            if c.name in near.unidentified and abs(np.log(base[c.name] / near.values[c.name])) < FAR * c.spread
        ]
        starts = [{**base, **near.values}]
        steps = min(steps, NEAR_STEPS)
    while True:
        free_now = [c for c in chosen if c.name not in unidentified]
        problem = _Problem(family, tuple(groups), base, free_now, centred=centred)
        if not problem.free:
            guess, scale = base, problem.scale(problem.residuals(problem.prior))
            break
        # a constant of a path that is never the fastest has no slope; several starts find more than one
        point, scale = min(
            (_minimise(problem, problem.point(values), steps) for values in starts), key=lambda end: problem.total(*end)
        )
        certainty |= dict(zip((c.name for c in problem.free), problem.certainty(point, scale).tolist(), strict=True))
        guess = problem.values(point)
        starts = [guess]
        if near is not None:
            break
        # rows may determine two constants together but neither alone: fixing one of them may identify the other
        vague = problem.vaguest(point, certainty)
        if vague is None:
            break
        unidentified.append(vague)
    if family.least_dispatch_s and "host" in certainty and "host" not in unidentified:
        guess = {**guess, "host": _least_error_host(family, groups, guess)}
    rows = sum(map(len, groups))
    return Fit(dict(guess), tuple(unidentified), certainty, scale, rows)


def _longest_start(family: Family, groups: Sequence[Group], values: Values) -> float:
    """Return the largest share of a row's time that starting its kernels takes."""
    shares = []
    for group in groups:
        terms = family.timed_terms(group.op, group.machine, values, group.conditions)
        shares.append(float(np.max(np.asarray(starting_s(terms.adds)) / group.time_s, initial=0.0)))
    return max(shares, default=0.0)


def _least_error_host(family: Family, groups: Sequence[Group], values: Values) -> float:
    """Return the dispatch [s] with the least mean of |predicted - measured| / measured, all other constants as given.

    Where a dispatch ranges from far below the kernel to far above it, the one in the middle, which the robust fit
    finds, makes short calls several times too long.
    """
    weights = np.concatenate([np.full(group.time_s.shape, group.weight) for group in groups])
    tried = values["host"] * HOST_SHARES
    errors = [weights @ np.abs(np.expm1(log_ratio(family, {**values, "host": host}, groups))) for host in tried]
    return float(tried[int(np.argmin(errors))])


class _Problem:
    """The residuals of a fit as a function of the logarithms of the free constants."""

    def __init__(
        self,
        family: Family,
        groups: tuple[Group, ...],
        base: dict[str, float],
        free: list[Constant],
        *,
        centred: bool = False,
    ):
        self.family, self.groups, self.base, self.free, self.centred = family, groups, base, free, centred
        # as `spread_dispatch_s`, whose dispatch is that of least relative error
        varies = any(group.conditions.timing.includes_host for group in groups)
        self.relative = varies and family.least_dispatch_s > 0.0
        self.low = np.log([c.low for c in free])
        self.high = np.log([c.high for c in free])
        self.prior = self.point(base)
        self.spread = np.array([c.spread for c in free])
        weights = np.concatenate([np.full(group.time_s.shape, group.weight) for group in groups])
        self.weights = weights * min(1.0, MOST_EVIDENCE / weights.sum())

    def point(self, values: Values) -> Floats:
        """Return the logarithms of the free constants, inside their bounds."""
        point: Floats = np.clip(np.log([values[c.name] for c in self.free]), self.low, self.high)
        return point

    def vaguest(self, point: Floats, certainty: Values) -> str | None:
        """Return the constant that the rows determine least, or None if they determine all well enough.

        A constant that the rows have moved far from its default counts as determined, however large its deviation.
        """
        moved = np.abs(point - self.prior) / self.spread
        vague = {
            c.name: certainty[c.name]
            for c, far in zip(self.free, moved, strict=True)
            if certainty[c.name] > UNIDENTIFIED and far < FAR
        }
        return max(vague, key=lambda name: vague[name]) if vague else None

    def values(self, point: Floats) -> dict[str, float]:
        """Return all constants, with the free ones at a point."""
        fitted = {c.name: float(np.exp(x)) for c, x in zip(self.free, point, strict=True)}
        return {**self.base, **fitted}

    def residuals(self, point: Floats) -> Floats:
        """Return ln(predicted / measured) of all rows, or predicted / measured - 1 where their dispatch varies."""
        found = log_ratio(self.family, self.values(point), self.groups)
        return np.expm1(found) if self.relative else found

    def jacobian(self, point: Floats) -> Floats:
        """Return the central differences; wave counts and split choices are steps, and each has to span some."""
        columns = []
        for index in range(len(point)):
            step = np.zeros_like(point)
            step[index] = 0.02
            above, below = np.minimum(point + step, self.high), np.maximum(point - step, self.low)
            width = max((above - below)[index], 1e-9)
            columns.append((self.residuals(above) - self.residuals(below)) / width)
        return np.stack(columns, axis=1)

    def cost(self, residuals: Floats, point: Floats, scale: float) -> float:
        """Return the sum that the fit minimises."""
        rows = 2.0 * self.weights * (np.sqrt(1.0 + (residuals / scale) ** 2) - 1.0)
        return float(rows.sum() + (((point - self.prior) / self.spread) ** 2).sum())

    def scale(self, residuals: Floats) -> float:
        """Return the robust scale of residuals, at least `NOISE`: 1.48 times their median absolute value.

        About zero, an offset that all rows share counts as their noise; about their median (``centred``) it does not.
        """
        about = float(np.median(residuals)) if self.centred else 0.0
        return max(NOISE, 1.4826 * float(np.median(np.abs(residuals - about))))

    def total(self, point: Floats, scale: float) -> float:
        """Return the negative logarithm of the posterior at a point, including the scale of its residuals."""
        return self.cost(self.residuals(point), point, scale) + 2.0 * float(self.weights.sum()) * float(np.log(scale))

    def curvature(self, jacobian: Floats, residuals: Floats, scale: float) -> tuple[Floats, Floats]:
        """Return the Gauss-Newton matrix of the rows and the robust weights."""
        robust = self.weights / np.sqrt(1.0 + (residuals / scale) ** 2) / scale**2
        return jacobian.T @ (robust[:, None] * jacobian), robust

    def certainty(self, point: Floats, scale: float) -> Floats:
        """Return the posterior over the prior deviation of the free constants."""
        jacobian, residuals = self.jacobian(point), self.residuals(point)
        matrix, _ = self.curvature(jacobian, residuals, scale)
        covariance = np.linalg.inv(matrix + np.diag(1.0 / self.spread**2))
        share: Floats = np.sqrt(np.diag(covariance)) / self.spread
        return share


def _minimise(problem: _Problem, point: Floats, steps: int) -> tuple[Floats, float]:
    """Return the best point and the scale of the residuals there."""
    damping = 1e-2
    residuals = problem.residuals(point)
    scale = problem.scale(residuals)
    for _ in range(steps):
        jacobian = problem.jacobian(point)
        matrix, robust = problem.curvature(jacobian, residuals, scale)
        matrix += np.diag(1.0 / problem.spread**2)
        gradient = jacobian.T @ (robust * residuals) + (point - problem.prior) / problem.spread**2
        before = problem.cost(residuals, point, scale)
        moved = False
        while damping < 1e6:
            step = np.linalg.solve(matrix + damping * np.diag(np.diag(matrix)), gradient)
            tried = np.clip(point - step, problem.low, problem.high)
            new = problem.residuals(tried)
            if problem.cost(new, tried, scale) < before - 1e-9:
                moved = True
                break
            damping *= 4.0
        if not moved:
            break
        change = float(np.max(np.abs(tried - point)))
        point, residuals, damping = tried, new, damping / 4.0
        scale = problem.scale(residuals)
        if change < CONVERGED:
            break
    return point, scale

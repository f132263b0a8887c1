"""Residual surfaces (`perfmodel.core.surface`) of families that declare axes: what their constants leave over.

The knots f have a Gaussian process as prior, whose correlation is exp(-distance / length) along each axis, and 0 at the
ends beyond which there are no rows. A row is f, multilinear between the knots, and noise. Libraries share a surface,
and each has a part of its own. The posterior mean is the penalised least squares of the rows (Rasmussen and Williams
2006, "Gaussian processes for machine learning", section 2.2; Wilson and Nickisch 2015, arXiv 1503.01057, for the grid)

    minimise  sum_i n_i (r_i - W_i f)^2 + penalty f' K^-1 f,   f = K W' (W K W' + penalty / n)^-1 r

with r = ln(measured / predicted), the mean of n rows of one library and the same sizes. Points far from what the others
say count for less, as in `perfmodel.accuracy.fit`. Machines of one chip have one surface, fitted to the rows of all, so
that they differ by what their specifications say. The penalty and the share of a library's own part are those of least
error in a cross-validation over shapes, all of the fitted half; a surface that does not improve that error is not made.
"""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from perfmodel.accuracy.calibration import FOLDS
from perfmodel.accuracy.fit import Floats, Group
from perfmodel.accuracy.libraries import intervals
from perfmodel.accuracy.measured import shape_hash
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import LatencyTable, same_speed
from perfmodel.core.surface import Sheet, Surface, SurfaceAxis
from perfmodel.core.vocabulary import Calibration
from perfmodel.prediction.designs import generation, product_line, vendor
from perfmodel.prediction.latency.constants import WIDEST, combined
from perfmodel.prediction.latency.estimate import REGIMES, regime_code
from perfmodel.prediction.latency.family import Axis, Family
from perfmodel.prediction.latency.nearest_tables import Found
from perfmodel.prediction.latency.surfaces import UNIT
from perfmodel.prediction.latency.terms import HOST

#: points of a machine in a surface, and in the cross-validation that chooses its penalty: a fit takes their third power
MOST_POINTS, CHOOSING_POINTS = 4500, 1500
#: those of one where something is left out, of which there are dozens
NESTED_POINTS = 1500
#: fewer rows than this make no surface
FEWEST_ROWS = 200
#: a library, or one of its dtypes, with fewer points than this has no part of its own
FEWEST_OF_KEY = 10
#: what a row may say at most: kernels that a table has by mistake, or that a library chose once
CLIP = 0.5
PENALTIES = (0.3, 0.6, 1.2, 2.4)
OWN_SHARES = (0.25, 0.5, 0.75)
#: what a time may fall by where a wave is full and the idle part of the last one jumps from 0, as a logarithm
FALL = 0.08
#: a surface must take this share off the error of rows that were not fitted
WORTH = 0.02


@dataclass(frozen=True)
class Rows:
    """Residuals of measured rows.

    Attributes
    ----------
    ratio : ln(measured / predicted).
    octaves : logarithm of each size, [axes, rows].
    key : name of the part that a row belongs to: its library, and the machine where there are several.
    part : part of the cross-validation.
    regime : index into `REGIMES`.
    point : index of the point, the sizes and the library, that a row is at.
    """

    ratio: Floats
    octaves: Floats
    key: np.ndarray
    part: np.ndarray
    regime: np.ndarray
    point: np.ndarray = field(default_factory=lambda: np.empty(0, np.intp))

    def __len__(self) -> int:
        return int(self.ratio.size)

    def take(self, chosen: np.ndarray) -> Rows:
        """Return the rows that a mask or indices select."""
        point = self.point[chosen] if self.point.size else self.point
        return Rows(self.ratio[chosen], self.octaves[:, chosen], self.key[chosen], self.part[chosen],
                    self.regime[chosen], point)  # fmt: skip

    def at_points(self) -> Rows:
        """Return the same rows with the point of each."""
        names = np.unique(self.key, return_inverse=True)[1]
        sizes = np.round(np.vstack([self.octaves, names]).T, 9)
        return replace(self, point=np.unique(sizes, axis=0, return_inverse=True)[1].ravel())

    def thinned(self, most: int) -> Rows:
        """Return the rows at about so many of the points."""
        points = np.unique(self.point)
        kept = points[np.linspace(0, len(points) - 1, min(most, len(points))).astype(int)]
        chosen = self.take(np.isin(self.point, kept))
        return replace(chosen, point=np.searchsorted(kept, chosen.point))

    def points(self) -> tuple[Rows, Floats]:
        """Return one row for each point, the mean of those at it, and how many they are."""
        count = np.bincount(self.point)
        first = np.unique(self.point, return_index=True)[1]
        mean = np.bincount(self.point, np.clip(self.ratio, -CLIP, CLIP)) / count
        return replace(self.take(first), ratio=mean, point=np.arange(count.size)), count.astype(float)


def chain(machine: Hardware, shared: Mapping[str, LatencyTable], own: LatencyTable | None = None) -> list[Found]:
    """Return the tables that hold for a machine, the nearest first."""
    found: list[Found] = [] if own is None else [(Calibration.CALIBRATED, own)]
    levels = (generation(machine), product_line(machine), vendor(machine), "generic")
    return found + [(Calibration.NEVER_SEEN, shared[level]) for level in levels if level in shared]


def rows_of(family: Family, groups: Sequence[Group], tables: Sequence[Found], *, by_dtype: bool) -> Rows:
    """Return the residuals of some rows under the constants of some tables, by library and perhaps dtype."""
    columns = []
    for group in groups:
        library, dtype = group.conditions.library, group.op.kernel_dtype
        values = combined(family, tables, library, dtype).values
        terms = family.timed_terms(group.op, group.machine, values, group.conditions)
        time = np.broadcast_to(terms.time_s, group.time_s.shape)
        kernel = np.broadcast_to(sum(v for term, v in terms.adds.items() if term is not HOST), time.shape)
        octaves = [
            np.broadcast_to(np.log2(np.maximum(axis.size(group.op, group.machine), 1.0)), time.shape)
            for axis in family.axes
        ]
        key = f"{library} {same_speed(dtype)}" if by_dtype else library
        # The surface is of the kernel, about which a call that waits for its dispatch says nothing.
        held = (np.broadcast_to(family.surfaced(group.op), time.shape) == 1.0) & (kernel > 0.5 * time)
        measured = np.maximum(group.time_s - (time - kernel), 0.5 * kernel)
        part = np.floor(shape_hash(group.op, len(group)) * 1e6) % FOLDS
        regime = np.broadcast_to(regime_code(terms.adds, time), time.shape)
        made = Rows(np.log(measured / kernel), np.array(octaves), np.full(time.shape, key), part, regime)
        columns.append(made.take(held))
    return together(columns)


def together(rows: Sequence[Rows]) -> Rows:
    """Return some rows as one."""
    return Rows(np.concatenate([one.ratio for one in rows]), np.concatenate([one.octaves for one in rows], axis=1),
                np.concatenate([one.key for one in rows]), np.concatenate([one.part for one in rows]),
                np.concatenate([one.regime for one in rows]))  # fmt: skip


def axis_of(axis: Axis, octaves: Floats) -> SurfaceAxis:
    """Return the knots over the data, and one beyond each end that is not the end of the size's meaning."""
    low, high = float(octaves.min()), float(octaves.max())
    first = math.floor(low / axis.step) * axis.step
    first = first - axis.step if first > 0.0 else 0.0
    last = math.ceil(high / axis.step) * axis.step + axis.step
    if axis.last is not None:
        first, last, low, high = 0.0, axis.last, 0.0, axis.last
    return SurfaceAxis(axis.name, first, axis.step, round((last - first) / axis.step) + 1, low, high)


def _prior(axis: Axis, knots: SurfaceAxis) -> Floats:
    """Return the covariance of the knots of an axis: 0 at the ends beyond the data."""
    at = knots.knots
    covariance = np.exp(-np.abs(at[:, None] - at) / axis.length)
    if axis.last is None:
        ends = [-1] if at[0] <= 0.0 else [0, -1]
        covariance[ends, :] = covariance[:, ends] = 0.0
    return covariance


class Grid:
    """The knots of a family for some rows, and the covariances that they give."""

    def __init__(self, family: Family, rows: Rows) -> None:
        self.axes = tuple(axis_of(axis, octaves) for axis, octaves in zip(family.axes, rows.octaves, strict=True))
        self.priors = [_prior(axis, knots) for axis, knots in zip(family.axes, self.axes, strict=True)]

    def weights(self, rows: Rows) -> list[Floats]:
        """Return the weights of the knots of each axis in each row."""
        found = []
        for axis, octaves in zip(self.axes, rows.octaves, strict=True):
            at, share = axis.at(octaves)
            below = np.asarray(at, dtype=np.intp)
            weights = np.zeros((len(rows), axis.count))
            weights[np.arange(len(rows)), below] = 1.0 - share
            weights[np.arange(len(rows)), below + 1] += share
            found.append(weights)
        return found

    def covariance(self, rows: Rows) -> Floats:
        """Return the covariance of some rows by the shared surface."""
        found = np.ones((len(rows), len(rows)))
        for weights, prior in zip(self.weights(rows), self.priors, strict=True):
            found *= weights @ prior @ weights.T
        return found

    def knots(self, rows: Rows, load: Floats) -> Floats:
        """Return K W' load: the values of the knots, one dimension for each axis."""
        values = np.zeros([axis.count for axis in self.axes])
        weights = self.weights(rows)
        for place in np.ndindex(*([2] * len(self.axes))):
            index, share = [], load
            for axis, octaves, of_axis, step in zip(self.axes, rows.octaves, weights, place, strict=True):
                here = np.broadcast_to(np.asarray(axis.at(octaves)[0], dtype=np.intp) + step, load.shape)
                index.append(here)
                share = share * of_axis[np.arange(len(rows)), here]
            np.add.at(values, tuple(index), share)
        for dimension, prior in enumerate(self.priors):
            values = np.moveaxis(np.tensordot(prior, values, (1, dimension)), 0, dimension)
        return values


def without_cliffs(values: Floats, axes: Sequence[Axis]) -> Floats:
    """Return knots between which no time falls where a size grows, as far as `Axis.rising` and `FALL` say.

    The mean of the running maximum and of the running minimum of what follows rises, and changes nothing that does.
    """
    values = values.copy()
    for dimension, axis in enumerate(axes):
        along = np.moveaxis(values, dimension, 0)
        if axis.last is not None:
            along[0] -= np.maximum(0.0, along[0] - along[1:].min(axis=0) - FALL) / 2.0
            np.maximum(along[1:], along[0] - FALL, out=along[1:])
        few = int(axis.rising / axis.step) + 1
        if axis.rising:
            least = np.maximum.accumulate(along[:few])
            most = np.minimum.accumulate(along[:few][::-1])[::-1]
            along[:few] = (least + most) / 2.0
    return values


def _sheet(values: Floats, family: Family) -> Sheet:
    return Sheet(np.round(without_cliffs(values, family.axes) / UNIT) * UNIT)


def _with_own(covariance: Floats, key: np.ndarray, own: float) -> Floats:
    return covariance * (1.0 - own + own * (key[:, None] == key))


def _held_out(covariance: Floats, points: Rows, noise: Floats) -> Floats:
    """Return the surface at each point, fitted without its part of the shapes; ``noise`` is the variance of each."""
    found = np.zeros(len(points))
    for part in range(FOLDS):
        out = points.part == part
        if out.any() and not out.all():
            inner = covariance[np.ix_(~out, ~out)] + np.diag(noise[~out])
            found[out] = covariance[np.ix_(out, ~out)] @ np.linalg.solve(inner, points.ratio[~out])
    return found


def _trust(left: Floats) -> Floats:
    """Return the weight of points by how far they are from what the others say: as in `perfmodel.accuracy.fit`."""
    scale = 1.4826 * float(np.median(np.abs(left)))
    return np.asarray(1.0 / np.sqrt(1.0 + (left / scale) ** 2))


def _error(rows: Rows, surface: Floats | float = 0.0) -> float:
    return float(np.abs(np.expm1(surface - rows.ratio)).mean())


def _chosen(grid: Grid, rows: Rows) -> tuple[float, float] | None:
    """Return the penalty and the libraries' own share of least error; None where no surface is worth it."""
    rows = rows.thinned(CHOOSING_POINTS)
    points, count = rows.points()
    covariance = grid.covariance(points)
    shares = OWN_SHARES if len(set(rows.key.tolist())) > 1 else (0.0,)
    found = {
        (penalty, own): _error(
            rows, _held_out(_with_own(covariance, points.key, own), points, penalty / count)[rows.point]
        )
        for own in shares
        for penalty in PENALTIES
    }
    best = min(found, key=lambda pair: found[pair])
    return best if found[best] < (1.0 - WORTH) * _error(rows) else None


def _common(grid: Grid, rows: Rows, penalty: float, share: float) -> float:
    """Return the share of the mean surface that holds for the next library.

    Each of the n libraries is left out in turn: its share is the coefficient b of the regression r = b f of its rows
    on what the others say of them, from 0 to 1. The mean of n is drawn to 0 as the constants of n machines are to those
    of the wider table, by 1 / (n + 1). One library does not tell how alike two are: b is 1 then.
    """
    points, count = rows.thinned(CHOOSING_POINTS).points()
    names = np.array([key.partition(" ")[0] for key in points.key.tolist()])
    libraries = sorted(set(names.tolist()))
    shares = []
    for library in libraries if len(libraries) > 1 else ():
        out = names == library
        rest = points.take(~out)
        inner = _with_own(grid.covariance(rest), rest.key, share) + np.diag(penalty / count[~out])
        across = (1.0 - share) * grid.covariance(points)[np.ix_(out, ~out)]
        found = across @ np.linalg.solve(inner, rest.ratio)
        along, squares = (float((count[out] * found * of).sum()) for of in (points.ratio[out], found))
        shares.append(min(1.0, max(0.0, along / squares)) if squares else 0.0)
    return float(np.mean(shares or [1.0])) * len(libraries) / (len(libraries) + 1.0)


def fit_surface(
    family: Family, name: str, rows: Rows, source: str, stated: Mapping[str, tuple[float, float]], most: int
) -> Surface | None:
    """Return the surface of some residuals; None where it does not help.

    Parameters
    ----------
    family : the family.
    name : of the file.
    rows : residuals of one machine, or of several that share constants.
    source : whose measurements they are.
    stated : regime -> interval where few rows say another.
    most : points that are used at most.
    """
    if not family.axes or len(rows) < FEWEST_ROWS:
        return None
    rows = rows.at_points()
    grid = Grid(family, rows)
    chosen = _chosen(grid, rows)
    if chosen is None:
        return None
    penalty, share = chosen
    rows = rows.thinned(most)
    points, count = rows.points()
    covariance = _with_own(grid.covariance(points), points.key, share)
    left = rows.ratio - _held_out(covariance, points, penalty / count)[rows.point]
    noise = penalty / (count * _trust(np.bincount(rows.point, left) / count))
    load = np.linalg.solve(covariance + np.diag(noise), points.ratio)
    mean = (1.0 - share) * grid.knots(points, load)
    values = {"": mean}
    known = Counter(points.key.tolist())
    for key in sorted(key for key in known if known[key] >= FEWEST_OF_KEY):
        values[key] = mean + share * grid.knots(points, load * (points.key == key))
    common = round(_common(grid, rows, penalty, share), 2)
    print(f"  {family.name} {name}: {100 * _error(rows):.1f} % without a surface, "
          f"{100 * np.abs(np.expm1(-left)).mean():.1f} % with it on rows not fitted; penalty {penalty}, own {share}, "
          f"common {common}; {len(points)} points", flush=True)  # fmt: skip
    return Surface(
        name=name,
        axes=grid.axes,
        sheets={key: _sheet(value, family) for key, value in values.items()},
        intervals=intervals(-left, rows.regime, {**dict.fromkeys(REGIMES, WIDEST), **stated}),
        penalty=penalty,
        own=share,
        common=common,
        source=f"{source}, {len(rows)} rows",
        date=datetime.date.today().isoformat(),
    )


def residual_surface(
    family: Family,
    name: str,
    groups: Mapping[str, Sequence[Group]],
    tables: Sequence[Found],
    origins: str,
    most: int = MOST_POINTS,
) -> Surface | None:
    """Return the surface of a machine, or of several with one chip, about their constants; None where it has none.

    Parameters
    ----------
    family : the family.
    name : of the file.
    groups : machine -> its rows.
    tables : those whose constants hold for them, the nearest first.
    origins : whose measurements those are.
    most : points of a machine that are used at most.
    """
    if not family.axes:
        return None
    every = [group for own in groups.values() for group in own]
    several = len({same_speed(group.op.kernel_dtype) for group in every}) > 1
    rows = rows_of(family, every, tables, by_dtype=several)
    stated = combined(family, tables).intervals
    return fit_surface(family, name, rows, f"fitted on {origins}", stated, most * len(groups))

"""Residual surfaces (`perfmodel.core.surface`) of families that declare axes: what their constants leave over.

The knots f have a Gaussian process as prior, whose correlation is exp(-distance / length) along each axis, and 0 at the
ends beyond which there are no rows. A row is f, multilinear between the knots, and noise. Libraries share a surface,
and each has a part of its own. The posterior mean is the penalised least squares of the rows (Rasmussen and Williams
2006, "Gaussian processes for machine learning", section 2.2; Wilson and Nickisch 2015, arXiv 1503.01057, for the grid)

    minimise  sum_i (r_i - W_i f)^2 + penalty f' K^-1 f,   f = K W' (W K W' + penalty I)^-1 r

with r = ln(measured / predicted). The penalty and the share of a library's own part are those of least error in a
cross-validation over shapes, all of the fitted half; a surface that does not improve that error is not made.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perfmodel.accuracy.calibration import FOLDS
from perfmodel.accuracy.fit import Floats, Group
from perfmodel.accuracy.libraries import intervals, sample
from perfmodel.accuracy.measured import shape_hash
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import LatencyTable, same_speed
from perfmodel.core.surface import Sheet, Surface, SurfaceAxis
from perfmodel.core.vocabulary import Calibration
from perfmodel.prediction.latency.constants import WIDEST, Found, combined
from perfmodel.prediction.latency.estimate import REGIMES, regime_code
from perfmodel.prediction.latency.family import Axis, Family
from perfmodel.prediction.latency.machine import generation, product_line, vendor
from perfmodel.prediction.latency.surfaces import UNIT
from perfmodel.prediction.latency.terms import HOST

#: rows of a surface, and of the cross-validation that chooses its penalty: a fit takes their third power
MOST_ROWS, CHOOSING_ROWS = 4500, 1500
#: rows of one where something is left out, of which there are dozens
NESTED_ROWS = 1500
#: fewer rows than this make no surface
FEWEST_ROWS = 200
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
    """

    ratio: Floats
    octaves: Floats
    key: np.ndarray
    part: np.ndarray
    regime: np.ndarray

    def __len__(self) -> int:
        return int(self.ratio.size)

    def take(self, chosen: np.ndarray) -> Rows:
        """Return the rows that a mask or indices select."""
        return Rows(self.ratio[chosen], self.octaves[:, chosen], self.key[chosen], self.part[chosen],
                    self.regime[chosen])  # fmt: skip


def chain(machine: Hardware, shared: Mapping[str, LatencyTable], own: LatencyTable | None = None) -> list[Found]:
    """Return the tables that hold for a machine, the nearest first."""
    found: list[Found] = [] if own is None else [(Calibration.CALIBRATED, own)]
    levels = (generation(machine), product_line(machine), vendor(machine), "generic")
    return found + [(Calibration.NEVER_SEEN, shared[level]) for level in levels if level in shared]


def rows_of(family: Family, groups: Sequence[Group], tables: Sequence[Found], name: str = "") -> Rows:
    """Return the residuals of a machine's rows under the constants of some tables."""
    several = len({same_speed(group.op.kernel_dtype) for group in groups}) > 1
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
        key = f"{name}{library} {same_speed(dtype)}" if several else f"{name}{library}"
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
            below, share = axis.at(octaves)
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
                here = axis.at(octaves)[0] + step
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


def _held_out(covariance: Floats, rows: Rows, penalty: float) -> Floats:
    """Return the surface at each row, fitted without its part of the shapes."""
    found = np.zeros(len(rows))
    wanted = np.clip(rows.ratio, -CLIP, CLIP)
    for part in range(FOLDS):
        out = rows.part == part
        if out.any() and not out.all():
            inner = covariance[np.ix_(~out, ~out)] + penalty * np.eye((~out).sum())
            found[out] = covariance[np.ix_(out, ~out)] @ np.linalg.solve(inner, wanted[~out])
    return found


def _error(rows: Rows, surface: Floats) -> float:
    return float(np.abs(np.expm1(surface - rows.ratio)).mean())


def _chosen(grid: Grid, rows: Rows) -> tuple[float, float] | None:
    """Return the penalty and the libraries' own share of least error; None where no surface is worth it."""
    rows = _thinned(rows, CHOOSING_ROWS)
    covariance = grid.covariance(rows)
    shares = OWN_SHARES if len(set(rows.key.tolist())) > 1 else (0.0,)
    found = {
        (penalty, own): _error(rows, _held_out(_with_own(covariance, rows.key, own), rows, penalty))
        for own in shares
        for penalty in PENALTIES
    }
    best = min(found, key=lambda pair: found[pair])
    return best if found[best] < (1.0 - WORTH) * _error(rows, np.zeros(len(rows))) else None


def _thinned(rows: Rows, most: int) -> Rows:
    return rows.take(np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int))


def fit_surface(
    family: Family, name: str, rows: Rows, source: str, stated: Mapping[str, tuple[float, float]], *, own: bool = True
) -> Surface | None:
    """Return the surface of some residuals; None where it does not help.

    Parameters
    ----------
    family : the family.
    name : of the file.
    rows : residuals of one machine, or of several that share constants.
    source : whose measurements they are.
    stated : regime -> interval where few rows say another.
    own : whether each part of the rows gets values of its own; else there is the shared surface alone.
    """
    if not family.axes or len(rows) < FEWEST_ROWS:
        return None
    grid = Grid(family, rows)
    chosen = _chosen(grid, rows)
    if chosen is None:
        return None
    penalty, share = chosen
    rows = _thinned(rows, MOST_ROWS)
    covariance = _with_own(grid.covariance(rows), rows.key, share)
    left = rows.ratio - _held_out(covariance, rows, penalty)
    load = np.linalg.solve(covariance + penalty * np.eye(len(rows)), np.clip(rows.ratio, -CLIP, CLIP))
    mean = (1.0 - share) * grid.knots(rows, load)
    values = {"": mean}
    for key in sorted(set(rows.key.tolist())) if own and share else ():
        values[key] = mean + share * grid.knots(rows, load * (rows.key == key))
    print(f"  {family.name} {name}: {100 * _error(rows, np.zeros(len(rows))):.1f} % without a surface, "
          f"{100 * np.abs(np.expm1(-left)).mean():.1f} % with it on rows not fitted; penalty {penalty}, own {share}",
          flush=True)  # fmt: skip
    return Surface(
        name=name,
        axes=grid.axes,
        sheets={key: _sheet(value, family) for key, value in values.items()},
        intervals=intervals(-left, rows.regime, {**dict.fromkeys(REGIMES, WIDEST), **stated}) if own else {},
        penalty=penalty,
        own=share,
        source=f"{source}, {len(rows)} rows",
        date=datetime.date.today().isoformat(),
    )


def machine_surface(
    family: Family, name: str, groups: Sequence[Group], tables: Sequence[Found], origins: str, most: int = MOST_ROWS
) -> Surface | None:
    """Return the surface of a machine about the constants of its tables, from at most so many rows."""
    if not family.axes:
        return None
    rows = rows_of(family, sample(groups, most), tables)
    return fit_surface(family, name, rows, f"fitted on {origins}", combined(family, tables).intervals)


def shared_surface(
    family: Family,
    name: str,
    groups: Mapping[str, Sequence[Group]],
    tables: Sequence[Found],
    origins: str,
    most: int = MOST_ROWS,
) -> Surface | None:
    """Return the surface that the machines of a generation share, about the constants that they share."""
    if not family.axes:
        return None
    each = most // len(groups)
    rows = [rows_of(family, sample(own, each), tables, f"{machine} ") for machine, own in groups.items()]
    return fit_surface(family, name, together(rows), f"fitted on {origins}", {}, own=False)

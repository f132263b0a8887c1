"""What rows of one collective say about the others on the same machine.

A machine differs from the constants of its kind by an offset u in ln(measured / predicted) for each family. Those of
the collectives are nearly one number: their kernels wait for the same flags and cross the same link. With deviations s,
the offsets are jointly normal, u_i / s_i with variance 1 and correlation r between any two. Rows of some of them then
tell another one (the conditional normal distribution; Gelman et al., "Bayesian data analysis", section 3.5):

    mean = s r 1' C^-1 z,   variance = s^2 (1 - r^2 1' C^-1 1),   C = (1 - r) I + r 1 1' + diag(noise / s_i^2),

with z_i = u_i / s_i and the noise of the median of n shapes, pi / 2 v / n, plus what libraries differ by that nobody
measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfmodel.accuracy.fit import Floats, Group
from perfmodel.accuracy.measured import shape_hash
from perfmodel.core.fitted_with import with_tables
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.prediction.latency.constants import Constants, constants
from perfmodel.prediction.latency.effects import is_of_siblings
from perfmodel.prediction.latency.estimate import regime_code
from perfmodel.prediction.latency.families import family
from perfmodel.prediction.latency.family import Constant, Family
from perfmodel.prediction.latency.nearest_tables import found_tables

#: families whose machines differ alike
ALIKE = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
#: of their offsets: about zero, those of five machines that were left out correlate by 0.71 at launch, 0.63 in between
#: and 0.52 where the link counts (aiconfigurator @ 095f58a51c4c). Rows of one family then bring the error of the others
#: from 14.4 to 11.0 %, with 86 % of the rows in the interval; 0.88 would bring it to 10.7 %, with 84 %
CORRELATION = 0.7
#: the constants of NCCL's protocols: starts, steps, and shares of the link's bandwidth
SCALED = ("ll_start", "ll_step", "start", "step", "ll_share", "mid_share", "share", "in_switch")
#: what the machine differs by, and what its library does
_OF_MACHINE = (ErrorSource.MACHINE, ErrorSource.MACHINE_HERE, ErrorSource.VENDOR, ErrorSource.LINK)
_OF_LIBRARY = (ErrorSource.LIBRARY, ErrorSource.LIBRARY_HERE)


@dataclass(frozen=True)
class Offset:
    """What the rows of a family differ by on a machine, in one regime.

    Attributes
    ----------
    family : whose rows.
    value : median of ln(measured / predicted) under the constants before.
    deviation : of the machine, before any row was known.
    noise : variance of the median about the machine's offset.
    """

    family: str
    value: float
    deviation: float
    noise: float


@dataclass(frozen=True)
class SiblingCalibration:
    """A family without rows, and what rows of its siblings say about it.

    Attributes
    ----------
    family : the family without rows.
    siblings : the families with rows.
    before : its constants before.
    table : the table for the specification: scaled constants, and the deviation that is left.
    after : its constants with this table.
    """

    family: Family
    siblings: tuple[str, ...]
    before: Constants
    table: LatencyTable
    after: Constants

    def width(self, regime: str, *, after: bool) -> float:
        """Return the high over the low end of the 80 % interval of a regime, before or after."""
        low, high = (self.after if after else self.before).intervals[regime]
        return high / low

    def deviation(self, regime: str, *, after: bool) -> float:
        """Return the deviation of the machine in a regime, before or after."""
        known = self.after if after else self.before
        return math.sqrt(_variance(known, _OF_MACHINE, REGIMES.index(regime)))


def offsets(name: str, groups: Sequence[Group], hardware: Hardware) -> list[Offset | None]:
    """Return what the rows of a family differ by in each regime; None without rows, or where the machine is known."""
    ratios, regimes, shapes, foreign = [], [], [], []
    model = family(name)
    for group in groups:
        start = constants(model, hardware, group.conditions.library)
        terms = model.timed_terms(group.op, group.machine, start.values, group.conditions)
        time = np.broadcast_to(terms.time_s, group.time_s.shape)
        code = np.broadcast_to(regime_code(terms.adds, time), time.shape)
        ratios.append(np.log(group.time_s / time))
        regimes.append(code)
        shapes.append(shape_hash(group.op, len(group)))
        foreign.append(np.array([_variance(start, _OF_LIBRARY, index) for index in range(len(REGIMES))])[code])
    ratio, regime, shape, library = map(np.concatenate, (ratios, regimes, shapes, foreign))
    return [_offset(name, ratio[here], shape[here], library[here], constants(model, hardware), index)
            for index in range(len(REGIMES)) for here in [regime == index]]  # fmt: skip


def _offset(name: str, ratio: Floats, shape: Floats, library: Floats, start: Constants, regime: int) -> Offset | None:
    prior = _variance(start, _OF_MACHINE, regime)
    if not ratio.size or not prior:
        return None
    spread = _variance(start, (ErrorSource.SHAPE,), regime)
    noise = math.pi / 2.0 * spread / np.unique(shape).size + float(library.mean())
    return Offset(name, float(np.median(ratio)), math.sqrt(prior), noise)


def _variance(known: Constants, sources: Sequence[ErrorSource], regime: int) -> float:
    return sum(known.variances[source][regime] for source in sources if source in known.variances)


def told_by(known: Sequence[Offset], deviation: float, correlation: float = CORRELATION) -> tuple[float, float]:
    """Return the expected offset of a family from those of its siblings, and the deviation that is left.

    Parameters
    ----------
    known : the offsets of its siblings; without any, the offset is 0 and the deviation remains.
    deviation : of the family before.
    correlation : of any two families' offsets over their deviations.
    """
    if not known:
        return 0.0, deviation
    noise = np.array([one.noise / one.deviation**2 for one in known])
    matrix = (1.0 - correlation) * np.eye(len(known)) + correlation + np.diag(noise)
    weights = correlation * np.linalg.solve(matrix, np.ones(len(known)))
    mean = float(weights @ [one.value / one.deviation for one in known])
    return deviation * mean, deviation * math.sqrt(1.0 - correlation * float(weights.sum()))


def calibrate_siblings(
    rows: Mapping[str, Sequence[Group]], hardware: Hardware, source: str, date: str
) -> list[SiblingCalibration]:
    """Return what the rows of some collectives on a machine say about its other collectives.

    Parameters
    ----------
    rows : family -> its rows, of families with enough of them.
    hardware : the machine before the calibration. Families that it has rows of in its file are left alone.
    source, date : written beside the constants.
    """
    known = {name: offsets(name, rows[name], hardware) for name in ALIKE if name in rows}
    measured = {name for name, found in known.items() if any(found)}
    count = sum(len(group) for name in measured for group in rows[name])
    calibrations = []
    for name in ALIKE if measured else ():
        if name in rows or (name in hardware.latency and not is_of_siblings(hardware.latency[name])):
            continue
        by = tuple(name for name in ALIKE if name in measured)
        origin = f"rows of {', '.join(by)} on this machine: {source}, {count} rows"
        calibrations.append(_told(family(name), by, [known[one] for one in by], hardware, (origin, date)))
    return calibrations


def _told(
    model: Family,
    siblings: tuple[str, ...],
    found: Sequence[Sequence[Offset | None]],
    hardware: Hardware,
    origin: tuple[str, str],
) -> SiblingCalibration:
    """Return what the offsets of some siblings say about a family."""
    others = {name: table for name, table in hardware.latency.items() if name != model.name}
    bare = replace(hardware, latency=others)
    before = constants(model, bare)
    nearest = next((table for _, table in found_tables(model, bare)), LatencyTable({}))
    ends = []
    for regime in range(len(REGIMES)):
        known = [offset for one in found if (offset := one[regime]) is not None]
        ends.append(told_by(known, math.sqrt(_variance(before, _OF_MACHINE, regime))))
    table = LatencyTable(
        constants=_scaled(model, before, math.exp(ends[0][0]), math.exp(ends[-1][0])),
        # the rows are of the user's own installation
        deviations={
            ErrorSource.MACHINE_HERE: tuple(left for _, left in ends),
            ErrorSource.INSTALLATION: (0.0,) * len(REGIMES),
        },
        known_libraries=nearest.known_libraries,
        source=origin[0],
        date=origin[1],
    )
    after = constants(model, with_tables(hardware, {model.name: table}))
    return SiblingCalibration(model, siblings, before, table, after)


def _scaled(model: Family, before: Constants, launch: float, large: float) -> dict[str, float]:
    """Return the constants of a machine that takes longer by two factors: where it starts, and on the link.

    A library's own kernels wait for the same flags, to whose time their start is relative.
    """

    def scaled(constant: Constant) -> float:
        factor = launch if constant.unit == "s" else 1.0 / large
        return min(constant.high, max(constant.low, before.values[constant.name] * factor))

    return {one.name: scaled(one) for one in model.constants if one.name in SCALED}

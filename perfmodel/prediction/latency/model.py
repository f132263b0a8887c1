"""The latency model: which family, which constants, and how sure they are.

Constants come from the first of these that has them: the machine's specification ("calibrated"), the defaults of
its generation ("same generation"), those of its vendor and kind of memory, of its vendor, of any GPU ("never seen").
The interval comes from the same table, which holds the residuals of rows that its constants had not seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from perfmodel.core import roofline
from perfmodel.core.hardware import Hardware, Peak, cached_per_machine
from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.core.work import Number, Work, anywhere, maximum, plain, where
from perfmodel.operators.base import Operator
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency import roofline as sustained_roofline
from perfmodel.prediction.latency.families import families_of
from perfmodel.prediction.latency.family import Family, Terms, Values
from perfmodel.prediction.latency.machine import Machine, generation, product_line, vendor
from perfmodel.prediction.latency.tables import default_tables
from perfmodel.prediction.result import Text

CALIBRATIONS = ("calibrated", "same generation", "never seen")
#: a stated interval where no table has one: a factor of two, which is what the sustained roofline misses by
WIDEST = (0.5, 2.0)
#: above this predicted time an operator is large [s]
LARGE_S = 1e-4
#: terms that are not the kernel's own work
_STARTING = ("launch", "host")


@dataclass(frozen=True)
class Estimate:
    """The time to expect, and why.

    Attributes
    ----------
    time_s : expected time of one call [s].
    low_s, high_s : 80 % interval [s].
    terms : what the time is made of, and what each resource alone would take.
    family, calibration, regime : where the formula, the constants and the interval come from.
    limiter : the largest term.
    basis : the constants' source, for people.
    """

    time_s: Number
    low_s: Number
    high_s: Number
    terms: Terms
    family: Text
    calibration: Text
    regime: Text
    limiter: Text
    basis: str


@dataclass(frozen=True)
class Constants:
    """The constants that hold for one family, machine and library, and where they come from."""

    values: Values
    intervals: Mapping[str, tuple[float, float]]
    calibration: str
    source: str


def constants(family: Family, hardware: Hardware, library: str = "", dtype: str = "") -> Constants:
    """Return the constants of a family on a machine, those of a library where it has its own.

    For a ``dtype`` of which no row was fitted the constants are the best guess that there is, with the interval of a
    machine that was never seen.
    """
    return _constants(hardware, family, library, dtype)


@cached_per_machine
def _constants(hardware: Hardware, family: Family, library: str, dtype: str) -> Constants:
    sources = (
        ("calibrated", hardware.latency),
        ("same generation", default_tables(generation(hardware))),
        ("never seen", default_tables(product_line(hardware))),
        ("never seen", default_tables(vendor(hardware))),
        ("never seen", default_tables("generic")),
    )
    measured = {} if family.name in hardware.latency else measured_constants(family, hardware)
    found = [(state, tables[family.name]) for state, tables in sources if family.name in tables]
    values = {constant.name: constant.default for constant in family.all_constants}
    intervals: dict[str, tuple[float, float]] = dict.fromkeys(REGIMES, WIDEST)
    for _, table in reversed(found):
        values.update(table.without_library)
        values.update(table.libraries.get(library, {}))
        intervals.update(table.intervals)
    values.update(measured)
    fixed = MappingProxyType(values)
    if not found:
        return Constants(fixed, intervals, "never seen", "typical values")
    state, table = found[0]
    if dtype and not table.covers(dtype):
        widest = {regime: _wider(*(table.intervals.get(regime, WIDEST) for _, table in found)) for regime in REGIMES}
        return Constants(fixed, widest, "never seen", f"{_source(table)}; no row in {dtype}")
    own = "; bandwidth of this machine's [sustained]" if measured else ""
    said = _source(table) + own + _of_library(library, [table for _, table in found])
    return Constants(fixed, intervals, state, said)


def _of_library(library: str, tables: Sequence[LatencyTable]) -> str:
    """Say whether a library that was asked for has constants of its own."""
    known = sorted({name for table in tables for name in table.libraries})
    if not library:
        return ""
    if library in known:
        return f", those of {library}"
    return f", none of {library}'s own" + (f" (known: {', '.join(known)})" if known else "")


def _wider(*intervals: tuple[float, float]) -> tuple[float, float]:
    """Return the interval that holds all of some."""
    return min(low for low, _ in intervals), max(high for _, high in intervals)


def measured_constants(family: Family, hardware: Hardware) -> dict[str, float]:
    """Return what the ``[sustained]`` bandwidth of a machine, its own, says of a family's constants.

    It is that of whole streams, reads and writes, so that a written byte costs no other than a read one.
    """
    rate = hardware.main_memory.sustained_bytes_per_s
    peak = hardware.main_memory.bandwidth_bytes_per_s
    return {"eta": rate / peak, "write": 1.0} if family.name in _STREAMS and rate and peak else {}


#: families whose eta is the share of the bandwidth that plain streams sustain
_STREAMS = ("elementwise", "reduction")


def _source(table: LatencyTable) -> str:
    return ", ".join(part for part in (table.source, table.date) if part)


def estimate(
    op: Operator, hardware: Hardware, peak: Peak | None, work: Work, conditions: Conditions, floor_s: Number
) -> Estimate:
    """Return the time to expect for one call; scalar or array like the operator's dimensions.

    Parameters
    ----------
    op, work : the operator and its counted work.
    hardware, peak : the machine, and the peak that the operator's arithmetic runs on.
    conditions : the conditions of time, the state of the caches, the library.
    floor_s : what no honest measurement in this conditions is faster than [s]; it overrides the formula.
    """
    machine = Machine.of(hardware, peak)
    if composed := op.composition():
        family, known = _composition(composed, hardware, conditions)
        return _estimate(family, op, machine, known, conditions, floor_s, known.source)
    parts = []
    for mask, family in families_of(op, machine, hardware.kind):
        known = constants(family, hardware, conditions.library, op.dtype)
        basis = f"{family.name}, {_STATES[known.calibration]}: {known.source}"
        if family.name == "roofline":
            family, figures = sustained_roofline.family(op, hardware, peak, work)
            basis = f"roofline: {figures}"
        parts.append((mask, _estimate(family, op, machine, known, conditions, floor_s, basis)))
    if len(parts) == 1:
        return parts[0][1]
    (mask, first), (_, second) = parts
    return _merged(mask, first, second)


def _composition(parts: Sequence[Operator], hardware: Hardware, conditions: Conditions) -> tuple[Family, Constants]:
    """Return kernels that run one after another as one family: its terms are their sums, its interval the widest."""
    kernel = replace(conditions, timing="kernel")
    made = [estimate(part, hardware, resolve_peak(part, hardware), part.work(), kernel, 0.0) for part in parts]
    adds: dict[str, Number] = {}
    for one in made:
        for name, value in one.terms.adds.items():
            adds[name] = adds.get(name, 0.0) + value
    found = [
        constants(family, hardware, conditions.library, part.dtype)
        for part in parts
        for _, family in families_of(part, Machine.of(hardware, resolve_peak(part, hardware)), hardware.kind)
    ]
    intervals = {regime: _wider(*(one.intervals[regime] for one in found)) for regime in REGIMES}
    known = Constants(
        # every kernel has its dispatch, of which the kernel before it hides what it can
        {"host": sum(one.values["host"] for one in found), "hidden": found[-1].values["hidden"]},
        intervals,
        max((one.calibration for one in found), key=CALIBRATIONS.index),
        "; ".join(dict.fromkeys(one.basis for one in made)),
    )
    return Family(" + ".join(str(one.family) for one in made), (), lambda *_: Terms(adds)), known


def _estimate(
    family: Family,
    op: Operator,
    machine: Machine,
    known: Constants,
    conditions: Conditions,
    floor_s: Number,
    basis: str,
) -> Estimate:
    terms = family.timed_terms(op, machine, known.values, conditions)
    time = terms.time_s
    short = maximum(floor_s - time, 0.0)
    adds = {name: plain(value) for name, value in terms.adds.items()}
    if anywhere(short > 0):
        adds["bound"] = plain(short)
        time = time + short
    code = regime_code(adds, time)
    low, high = _interval(known.intervals, code)
    # The terms in the order of reading; of two equal ones the first is named.
    largest = roofline.bound(adds)
    return Estimate(
        time_s=plain(time),
        low_s=plain(maximum(time * low, floor_s)),
        high_s=plain(time * high),
        terms=Terms(adds, terms.alone),
        family=family.name,
        calibration=known.calibration,
        regime=_named(REGIMES, code),
        limiter=largest.limiter,
        basis=basis,
    )


def regime_code(adds: Mapping[str, Number], time_s: Number) -> NDArray[np.intp] | int:
    """Return the regime of each point as an index into `REGIMES`.

    Launch-bound where starting the kernel, or the host, is over half of the time; else large from 0.1 ms.
    """
    starting = sum((adds[name] for name in _STARTING if name in adds), start=0.0)
    code: NDArray[np.intp] | int = where(starting > 0.5 * time_s, 0, where(time_s < LARGE_S, 1, 2))
    return code


def _interval(intervals: Mapping[str, tuple[float, float]], code: NDArray[np.intp] | int) -> tuple[Number, Number]:
    """Return the interval of each point, by its regime."""
    if isinstance(code, int):
        return intervals[REGIMES[code]]
    low, high = np.array([intervals[regime] for regime in REGIMES]).T
    return low[code], high[code]


_STATES = {
    "calibrated": "constants of this machine",
    "same generation": "defaults of its generation",
    "never seen": "defaults from other generations",
}


def _named(names: tuple[str, ...], code: NDArray[np.intp] | int) -> Text:
    return names[int(code)] if np.ndim(code) == 0 else np.asarray(names)[code]


def _merged(mask: np.ndarray, first: Estimate, second: Estimate) -> Estimate:
    """Return the points of ``first`` where the mask holds and those of ``second`` elsewhere."""

    def pick(a: Number | Text, b: Number | Text) -> np.ndarray:
        return np.where(mask, a, b)

    def terms(a: Mapping[str, Number], b: Mapping[str, Number]) -> dict[str, Number]:
        return {name: pick(a.get(name, 0.0), b.get(name, 0.0)) for name in (*a, *(n for n in b if n not in a))}

    return Estimate(
        time_s=pick(first.time_s, second.time_s),
        low_s=pick(first.low_s, second.low_s),
        high_s=pick(first.high_s, second.high_s),
        terms=Terms(terms(first.terms.adds, second.terms.adds), terms(first.terms.alone, second.terms.alone)),
        family=pick(first.family, second.family),
        calibration=pick(first.calibration, second.calibration),
        regime=pick(first.regime, second.regime),
        limiter=pick(first.limiter, second.limiter),
        basis="; ".join((first.basis, second.basis)),
    )

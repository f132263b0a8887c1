"""The latency model: the time to expect for one call, its interval, its terms and what limits it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.hardware import Hardware, Peak, cached_per_machine
from perfmodel.core.latency_table import REGIMES
from perfmodel.core.vocabulary import Calibration, Timing
from perfmodel.core.work import Number, Text, anywhere, everywhere, maximum, plain, where
from perfmodel.operators.base import Operator
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.compositions import conditions_of, other_release, parts_of
from perfmodel.prediction.latency.constants import constants
from perfmodel.prediction.latency.doubts import ANY_CALLER, OTHER_HOST
from perfmodel.prediction.latency.effects import Stating
from perfmodel.prediction.latency.estimate import Codes, Estimate, Spread, between_events, reaching, regime_of
from perfmodel.prediction.latency.families import choices_of, eager_points, families_of, varied_families
from perfmodel.prediction.latency.families import family as family_named
from perfmodel.prediction.latency.family import Family
from perfmodel.prediction.latency.fitted import LOADS, Fitted, caller_values, fitted, fitted_to_any_size, knows_kernels
from perfmodel.prediction.latency.instructions import launched
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.named import as_known
from perfmodel.prediction.latency.nearest_tables import measured_libraries
from perfmodel.prediction.latency.surfaces import gain
from perfmodel.prediction.latency.terms import BOUND, Term, Terms, total_of
from perfmodel.prediction.uncertainty import PointVariances, Uncertainty, half_widths, of_sum, shape_of


def estimate(
    op: Operator,
    hardware: Hardware,
    peak: Peak | None,
    conditions: Conditions,
    floor_s: Number,
    whole: bool = False,
    parts: Sequence[Operator] = (),
) -> Estimate:
    """Return the time to expect for one call; scalar or array like the operator's dimensions.

    Parameters
    ----------
    op : the operator.
    hardware, peak : the machine, and the peak that bounds the operator's arithmetic; kernels may run slower
        instructions (`perfmodel.prediction.latency.instructions`).
    conditions : the interval timed, the state of the caches, the library.
    floor_s : no honest measurement under these conditions is faster [s]; the estimate is not either.
    whole : whether the terms are found with the time, and not only when they are asked for.
    parts : the operators that the call runs one after another, each ``count`` times, in place of the library's kernels.
    """
    known = None if parts else fitted_to_any_size(hardware, op, peak, conditions)
    if known is not None:
        return _estimate(known, op, floor_s, whole)
    conditions = as_known(op.op, hardware, conditions)
    if conditions.timing == Timing.DO_BENCH:
        kernel = estimate(op, hardware, peak, replace(conditions, timing=Timing.KERNEL), floor_s, whole, parts)
        return kernel if hardware.kind == "cpu" else between_events(kernel)
    peak, others = launched(op, hardware, peak, conditions.library)
    found = _at_peak(op, hardware, peak, conditions, floor_s, whole, parts)
    if others is not None and not (parts or parts_of(op, conditions)):
        found = reaching(found, _at_peak(op, hardware, others, conditions, floor_s).time_s)
    return found


def _at_peak(
    op: Operator,
    hardware: Hardware,
    peak: Peak | None,
    conditions: Conditions,
    floor_s: Number,
    whole: bool = False,
    parts: Sequence[Operator] = (),
) -> Estimate:
    """Return the `estimate` of kernels whose instructions have a peak."""
    machine = Machine.of(hardware, peak)
    if run := parts or parts_of(op, conditions):
        found = _composition(op, run, hardware, conditions, floor_s)
        if parts or not (release := other_release(op, conditions)):
            return found
        return reaching(found, _at_peak(op, hardware, peak, replace(conditions, version=release), floor_s).time_s)
    estimates = []
    for chosen, those in choices_of(op, machine, hardware.kind, conditions):
        for mask, family in families_of(op, machine, hardware.kind, those.library):
            known = fitted(hardware, op, family, peak, those)
            estimates.append((chosen & mask, _estimate(known, op, floor_s, whole)))
    found = functools.reduce(_merged, estimates)[1] if len(estimates) > 1 else estimates[0][1]
    return _with_others(found, op, machine, hardware, peak, conditions, floor_s)


def _with_others(
    found: Estimate,
    op: Operator,
    machine: Machine,
    hardware: Hardware,
    peak: Peak | None,
    conditions: Conditions,
    floor_s: Number,
) -> Estimate:
    """Return an estimate for no library, or an unknown one, whose interval reaches the times of other kernels.

    It reaches PyTorch's kernels where they are not those of other libraries, and for a library that is named no chain
    of them: that has a kernel of its own, and may be named for it ("fa2"). For a call of no library it also reaches
    each measured library whose kernels differ from the assumed ones (`_varied_libraries`).
    """
    library = conditions.library
    if knows_kernels(hardware, conditions):
        return found

    def taken(other: str) -> Number:
        return estimate(op, hardware, peak, replace(conditions, library=other, version=""), floor_s).time_s

    chained = not library and bool(op.composition_in("torch"))
    eager = chained or eager_points(op, machine, hardware.kind, library)
    eager = eager if op.eager_by_default else False
    if anywhere(eager) and not (library and _is_measured(library, found, hardware)):
        found = reaching(found, where(eager, taken("torch"), found.time_s))
    if library or not varied_families(op.op):
        return found
    for other in _varied_libraries(hardware, op.op):
        found = reaching(found, taken(other))
    return found


@cached_per_machine
def _varied_libraries(hardware: Hardware, op: str) -> tuple[str, ...]:
    """Return the libraries with rows whose kernels for an operator differ from those that calls of no library assume.

    The operator is given by its name (`families.varied_families`).
    """
    found = (library for name in varied_families(op) for library in measured_libraries(name, hardware))
    return tuple(dict.fromkeys(found))


def _is_measured(library: str, found: Estimate, hardware: Hardware) -> bool:
    """Return whether a library has rows of a family of an estimate."""
    return any(library in measured_libraries(str(name), hardware) for name in np.unique(found.family))


def _composition(
    op: Operator, parts: Sequence[Operator], hardware: Hardware, conditions: Conditions, floor_s: Number
) -> Estimate:
    """Return the estimate of kernels that run one after another: their terms are summed, and so are their errors.

    Each runs as often as its ``count`` says.
    """
    kernel = replace(conditions, timing=Timing.KERNEL)
    estimates = [
        estimate(part, hardware, resolve_peak(part, hardware), conditions_of(part, kernel), 0.0, True) for part in parts
    ]
    adds: dict[Term, Number] = {}
    for part, one in zip(parts, estimates, strict=True):
        for name, value in one.terms.adds.items():
            adds[name] = adds.get(name, 0.0) + part.count * value
    known = [
        (part.count, family, constants(family, hardware, family.library_of(those), part.kernel_dtype))
        for part, those in ((part, conditions_of(part, conditions)) for part in parts)
        for _, family in families_of(
            part, Machine.of(hardware, resolve_peak(part, hardware)), hardware.kind, those.library
        )
    ]
    # Every kernel has its dispatch, part of which overlaps with the kernel before it.
    calls = [(count, caller_values(family, one.values, hardware, conditions)) for count, family, one in known]
    values = {"host": sum(count * call["host"] for count, call in calls), "hidden": calls[-1][1]["hidden"]}
    family = Family(" + ".join(str(one.family) for one in estimates), (), lambda *_: Terms(adds), tuple(adds))
    machine = Machine.of(hardware, resolve_peak(op, hardware) if anywhere(op.flop() > 0) else None)
    terms = family.timed_terms(op, machine, values, conditions, least_s=floor_s)
    time, starting_s = total_of(terms)
    short = _short_of(floor_s, time)
    time = time + short
    code = regime_of(starting_s, time)
    variances = of_sum(
        (part.count * one.time_s, shape_of(part), one.uncertainty.variances(_regime(one, code, conditions)))
        for part, one in zip(parts, estimates, strict=True)
    )
    for doubt in (OTHER_HOST, ANY_CALLER):
        if doubt.about(op, machine, conditions):
            variances[doubt.source] = variances.get(doubt.source, 0.0) + np.asarray(doubt.deviation)[code] ** 2
    factor = np.exp(half_widths(variances.values()))
    return Estimate(
        time_s=plain(time),
        spread=Spread(0, ((plain(1.0 / factor), plain(factor)),), floor_s),
        regime_code=code,
        family=family.name,
        calibration=max((one.calibration for _, _, one in known), key=list(Calibration).index),
        basis="; ".join(dict.fromkeys(one.basis for one in estimates)) + LOADS[conditions.load],
        uncertainty=Uncertainty(((True, {source: (value,) * len(REGIMES) for source, value in variances.items()}),)),
        kept_terms=_with_bound(terms, short),
    )


def _regime(part: Estimate, whole: Codes, conditions: Conditions) -> Text:
    """Return the regime of a part's error: its own on the device, that of the whole where the host dispatches it."""
    if not conditions.timing.includes_host:
        return part.regime
    return REGIMES[whole] if isinstance(whole, int) else np.asarray(REGIMES)[whole]


def _estimate(fit: Fitted, op: Operator, floor_s: Number, whole: bool) -> Estimate:
    """Return what a family expects; ``whole`` asks for the terms where it finds the time without them."""
    family, known, machine, conditions = fit.family, fit.known, fit.machine, fit.conditions
    growth, within = _corrected(fit, op)
    kinds = _kinds(fit, op, within)
    terms: Terms | None = None
    if whole or family.total is None:
        terms = family.timed_terms(op, machine, fit.c, conditions, growth, floor_s)
        time, starting_s = total_of(terms)
    else:
        time, starting_s = family.timed_total(op, machine, fit.c, conditions, growth, floor_s)
    short = _short_of(floor_s, time)
    time = time + short
    code = regime_of(starting_s, time)
    spread, uncertainty = _spread(known, kinds, code, floor_s)
    calibration, basis = _origin(fit, op, terms)
    return Estimate(
        time_s=plain(time),
        spread=spread,
        regime_code=code,
        family=family.name,
        calibration=calibration,
        basis=basis,
        uncertainty=uncertainty,
        kept_terms=functools.partial(_terms_of, family.name, op, fit.hardware, machine.peak, conditions, floor_s)
        if terms is None
        else _with_bound(terms, short),
    )


def _corrected(fit: Fitted, op: Operator) -> tuple[Number, Any]:
    """Return what the surface adds to the time that a formula finds, as a share, and which points lie in its data."""
    correction = fit.known.surface
    if correction is None:
        return 0.0, False
    return gain(fit.family, correction.surface, correction.sheet, op, fit.machine)


def _terms_of(
    name: str, op: Operator, hardware: Hardware, peak: Peak | None, conditions: Conditions, floor_s: Number
) -> Terms:
    """Return the terms of the time that `_estimate` finds without them; a family can be pickled by its name alone."""
    fit = fitted(hardware, op, family_named(name), peak, conditions)
    growth, _ = _corrected(fit, op)
    terms = fit.family.timed_terms(op, fit.machine, fit.c, conditions, growth, floor_s)
    return _with_bound(terms, _short_of(floor_s, terms.time_s))


def _short_of(floor_s: Number, time_s: Number) -> Number:
    """Return what a time falls short of the least that is possible [s]."""
    return maximum(floor_s - time_s, 0.0) if anywhere(floor_s > time_s) else 0.0


def _with_bound(terms: Terms, short_s: Number) -> Terms:
    """Return the terms of a time that was too short for its bound."""
    adds = {name: value if type(value) is float else plain(value) for name, value in terms.adds.items()}
    if anywhere(short_s):
        adds[BOUND] = plain(adds.get(BOUND, 0.0) + short_s)
    return Terms(adds, terms.alone)


def _origin(fit: Fitted, op: Operator, terms: Terms | None) -> tuple[Text, str]:
    """Return how well the constants know each call, and where they come from, for people."""
    family, calibration, told = fit.family, fit.known.calibration, terms is not None and fit.family.basis
    if not told and family.beyond is None:
        return calibration, fit.basis + fit.load
    basis = f"{family.name}: {told(op, fit.machine, terms)}" if told and terms is not None else fit.basis
    unseen, assumed = family.beyond(op, fit.machine) if family.beyond else (False, "")
    basis = f"{basis}; {assumed}" if assumed else basis
    return where(unseen, Calibration.NEVER_SEEN, calibration), basis + fit.load


def _kinds(fit: Fitted, op: Operator, inside: Any) -> list[tuple[Any, Stating]]:
    """Return the calls that the family doubts, or tells apart, as masks with how sure the constants are.

    Calls that no table tells apart may lie ``inside`` the data of a surface.
    """
    known = fit.known
    within, own = (inside, known.surface) if known.apart is None else (fit.family.apart(op), known.apart)
    kinds: list[tuple[Any, Stating]] = known.doubted.kinds(op, fit.machine, fit.conditions, fit.doubts, within)
    if own is not None:
        kinds.append((within, own))
    return kinds


def _spread(
    known: Stating, kinds: Sequence[tuple[Any, Stating]], code: Codes, floor_s: Number
) -> tuple[Spread, Uncertainty]:
    """Return the interval of each point, and what it is made of: that of the first of the ``kinds`` which it is of."""
    some: list[tuple[NDArray[np.bool_], Stating]] = []
    for mask, stated in kinds:
        if everywhere(mask):
            known = stated  # of all points that are of none before it
            break
        if anywhere(mask):
            some.append((mask, stated))
    if not some:
        return Spread(code, known.ends, floor_s), known.uncertainty
    codes: Any = np.asarray(code, np.int8)
    ends = known.ends
    left: Any = True
    for mask, stated in some:
        here = mask & left
        # numbers of a byte, since numpy chooses by a mask ten times slower
        codes = codes + here.view(np.int8) * np.int8(len(ends))
        ends, left = ends + stated.ends, ~mask & left
    parts = (*((mask, stated.variances) for mask, stated in some), *known.uncertainty.parts)
    return Spread(codes, ends, floor_s), Uncertainty(parts)


def _masked(mask: np.ndarray, uncertainty: Uncertainty) -> Iterator[tuple[np.ndarray, PointVariances]]:
    """Yield the parts of an uncertainty for the points of a mask."""
    return ((mask & part, variances) for part, variances in uncertainty.parts)


def _merged(first: tuple[np.ndarray, Estimate], second: tuple[np.ndarray, Estimate]) -> tuple[np.ndarray, Estimate]:
    """Return two families' estimates as one: the points of the first where its mask holds, else those of the second."""
    mask, one = first
    other_mask, other = second

    def pick(a: Number | Text | Codes, b: Number | Text | Codes) -> np.ndarray:
        return np.where(mask, a, b)

    return mask | other_mask, Estimate(
        time_s=pick(one.time_s, other.time_s),
        spread=one.spread.beside(other.spread, mask),
        regime_code=pick(one.regime_code, other.regime_code),
        family=pick(one.family, other.family),
        calibration=pick(one.calibration, other.calibration),
        basis="; ".join((one.basis, other.basis)),
        uncertainty=Uncertainty((*_masked(mask, one.uncertainty), *_masked(other_mask, other.uncertainty))),
        kept_terms=functools.partial(_merged_terms, mask, one, other),
    )


def _merged_terms(mask: np.ndarray, one: Estimate, other: Estimate) -> Terms:
    """Return the terms of the first estimate where a mask holds, else those of the other."""

    def merged(a: Mapping[Term, Number], b: Mapping[Term, Number]) -> dict[Term, Number]:
        names = (*a, *(name for name in b if name not in a))
        return {name: np.where(mask, a.get(name, 0.0), b.get(name, 0.0)) for name in names}

    return Terms(merged(one.terms.adds, other.terms.adds), merged(one.terms.alone, other.terms.alone))

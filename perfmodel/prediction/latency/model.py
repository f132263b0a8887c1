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
from perfmodel.core.vocabulary import Calibration, Load, Timing
from perfmodel.core.work import Number, Text, anywhere, everywhere, maximum, plain, where
from perfmodel.operators.attention import Attention
from perfmodel.operators.base import Operator
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.compositions import conditions_of, other_release, parts_of
from perfmodel.prediction.latency.constants import Constants, constants, tells_dispatch
from perfmodel.prediction.latency.dispatch import SHIPPED, dispatch_of
from perfmodel.prediction.latency.doubts import ANY_CALLER, OTHER_HOST
from perfmodel.prediction.latency.effects import Stating
from perfmodel.prediction.latency.estimate import Codes, Estimate, Spread, between_events, reaching, regime_of
from perfmodel.prediction.latency.families import choices_of, eager_points, families_of, varied_families
from perfmodel.prediction.latency.families import family as family_named
from perfmodel.prediction.latency.family import OF_ANY_CALL, Family, Values
from perfmodel.prediction.latency.instructions import launched
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.named import as_known
from perfmodel.prediction.latency.nearest_tables import measured_libraries
from perfmodel.prediction.latency.streams import FRAMEWORKS, FUSED
from perfmodel.prediction.latency.surfaces import gain
from perfmodel.prediction.latency.terms import BOUND, Term, Terms, total_of
from perfmodel.prediction.uncertainty import PointVariances, Uncertainty, half_widths, of_sum, shape_of

#: libraries whose kernels are known, so that PyTorch's say little of what they take
_KNOWN = frozenset((*FRAMEWORKS, *FUSED, *Attention.WRITING))
#: what the basis says of the load
_LOADS = {Load.BURST: "", Load.SUSTAINED: "; after minutes of load, as fitted to training steps"}


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
            estimates.append((chosen & mask, _estimate(family, op, hardware, machine, those, floor_s, whole)))
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
    if conditions.caller in _KNOWN or hardware.kind == "cpu":
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
        basis="; ".join(dict.fromkeys(one.basis for one in estimates)) + _LOADS[conditions.load],
        uncertainty=Uncertainty(((True, {source: (value,) * len(REGIMES) for source, value in variances.items()}),)),
        kept_terms=_with_bound(terms, short),
    )


def caller_values(family: Family, values: Values, hardware: Hardware | None, conditions: Conditions) -> Values:
    """Return a family's values with the dispatch of the caller, where neither own rows nor tables tell it.

    The tables that are shipped tell that of their releases (`perfmodel.prediction.latency.dispatch.MEASURED`), those
    of `calibrate` that of whoever made the rows.
    """
    includes = conditions.timing.includes_host and family.dispatched
    told = dispatch_of(conditions, family.name) if includes else None
    own = hardware.latency.get(family.name) if hardware else None
    if told is None or (own is not None and tells_dispatch(own) and SHIPPED not in own.source):
        return values
    return {**values, "host": told.host_s, "hidden": told.hidden_s, OF_ANY_CALL: 1.0}


def _regime(part: Estimate, whole: Codes, conditions: Conditions) -> Text:
    """Return the regime of a part's error: its own on the device, that of the whole where the host dispatches it."""
    if not conditions.timing.includes_host:
        return part.regime
    return REGIMES[whole] if isinstance(whole, int) else np.asarray(REGIMES)[whole]


def _estimate(
    family: Family,
    op: Operator,
    hardware: Hardware,
    machine: Machine,
    conditions: Conditions,
    floor_s: Number,
    whole: bool,
) -> Estimate:
    """Return what a family expects; ``whole`` asks for the terms where it finds the time without them."""
    known = constants(family, hardware, family.library_of(conditions), op.kernel_dtype)
    values, growth, within = _asked(family, op, machine, known, conditions)
    kinds = _kinds(family, op, machine, known, conditions, within)
    terms: Terms | None = None
    if whole or family.total is None:
        terms = family.timed_terms(op, machine, values, conditions, growth, floor_s)
        time, starting_s = total_of(terms)
    else:
        time, starting_s = family.timed_total(op, machine, values, conditions, growth, floor_s)
    short = _short_of(floor_s, time)
    time = time + short
    code = regime_of(starting_s, time)
    spread, uncertainty = _spread(known, kinds, code, floor_s)
    basis = _basis(family, op, machine, known, terms)
    unseen, assumed = family.beyond(op, machine) if family.beyond else (False, "")
    return Estimate(
        time_s=plain(time),
        spread=spread,
        regime_code=code,
        family=family.name,
        calibration=where(unseen, Calibration.NEVER_SEEN, known.calibration),
        basis=(f"{basis}; {assumed}" if assumed else basis) + _LOADS[conditions.load],
        uncertainty=uncertainty,
        kept_terms=functools.partial(_terms_of, family.name, op, hardware, machine.peak, conditions, floor_s)
        if terms is None
        else _with_bound(terms, short),
    )


def _asked(
    family: Family, op: Operator, machine: Machine, known: Constants, conditions: Conditions
) -> tuple[Values, Number, Any]:
    """Return the values that a formula is asked with, what the surface adds as a share, and what lies in its data."""
    values = caller_values(family, known.values, machine.hardware, conditions)
    correction = known.surface
    if correction is None:
        return values, 0.0, False
    return values, *gain(family, correction.surface, correction.sheet, op, machine)


def _terms_of(
    name: str, op: Operator, hardware: Hardware, peak: Peak | None, conditions: Conditions, floor_s: Number
) -> Terms:
    """Return the terms of the time that `_estimate` finds without them; a family can be pickled by its name alone."""
    family, machine = family_named(name), Machine.of(hardware, peak)
    known = constants(family, hardware, family.library_of(conditions), op.kernel_dtype)
    values, growth, _ = _asked(family, op, machine, known, conditions)
    terms = family.timed_terms(op, machine, values, conditions, growth, floor_s)
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


def _basis(family: Family, op: Operator, machine: Machine, known: Constants, terms: Terms | None) -> str:
    if family.basis and terms is not None:
        return f"{family.name}: {family.basis(op, machine, terms)}"
    return f"{family.name}, {known.origin}"


def _kinds(
    family: Family, op: Operator, machine: Machine, known: Constants, conditions: Conditions, inside: Any
) -> list[tuple[Any, Stating]]:
    """Return the calls that the family doubts, or tells apart, as masks with how sure the constants are.

    Calls that no table tells apart may lie ``inside`` the data of a surface.
    """
    within, own = (inside, known.surface) if known.apart is None else (family.apart(op), known.apart)
    kinds: list[tuple[Any, Stating]] = [*known.doubted.kinds(op, machine, conditions, within)]
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

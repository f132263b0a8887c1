"""From measured calls to ``[latency]`` tables: fit, stated interval, and what the rows could not tell."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perfmodel.accuracy.fit import Fit, Floats, Group, fit
from perfmodel.accuracy.measured import MeasuredCalls, shape_hash
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.latency.families import families_of
from perfmodel.prediction.latency.family import HOST, Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.model import Constants, constants, measured_constants, regime_code
from perfmodel.prediction.predict import floor_time

#: fewer rows of a family than this do not make a calibration
FEWEST_ROWS = 20
#: a fit takes at most this many rows of one family: more do not change it, and take longer
MOST_ROWS = 1500
#: a row that beats what physics allows by more than clocks can boost is an artefact
BOOST = 1.1
#: parts of the cross-validation that the intervals come from
FOLDS = 4


@dataclass(frozen=True)
class Calibration:
    """What came of calibrating one family.

    Attributes
    ----------
    family : which one.
    table : the table for the specification.
    start : the constants before.
    fit : the fit of the shared constants; ``library_fits`` those of the constants that a library has of its own.
    log_ratio : ln(predicted / measured) of every row, by a fit that had not seen it.
    error_before : mean absolute error of the rows with the constants before, a fraction.
    """

    family: Family
    table: LatencyTable
    start: Values
    fit: Fit
    library_fits: Mapping[str, Fit]
    log_ratio: Floats
    error_before: float

    @property
    def rows(self) -> int:
        """The number of rows that the fit used."""
        return self.fit.rows


@dataclass(frozen=True)
class Fitted:
    """Fitted constants: shared ones, and those of each library."""

    shared: Fit
    libraries: Mapping[str, Fit] = field(default_factory=dict)

    def values(self, library: str) -> Values:
        """Return the constants that hold for a library."""
        return (self.libraries.get(library) or self.shared).values

    def common(self) -> dict[str, float]:
        """Return the shared constants but for those that every library has of its own: their mean stands for others."""
        own = self.own().values()
        return {n: v for n, v in self.shared.values.items() if not own or any(n not in values for values in own)}

    def tells(self, name: str) -> bool:
        """Return whether the table needs a shared constant: the rows identify it, or only some libraries' rows do."""
        return name in self.shared.identified() or any(name in values for values in self.own().values())

    def own(self) -> dict[str, dict[str, float]]:
        """Return the constants that the rows identify for each library that has any."""
        return {library: values for library, found in self.libraries.items() if (values := found.identified())}


def usable(call: MeasuredCalls, hardware: Hardware) -> tuple[NDArray[np.bool_], dict[str, int]]:
    """Return which rows can be fitted, and why others cannot: flagged by their author, or faster than the floor."""
    flagged = call.flags != ""
    floor = np.broadcast_to(floor_time(call.op, hardware, call.conditions.cache), call.time_s.shape)
    faster = ~flagged & (call.time_s * BOOST < floor)
    reasons = {f"flagged {flag}": int((call.flags == flag).sum()) for flag in np.unique(call.flags[flagged])}
    if faster.any():
        reasons["faster than the bound"] = int(faster.sum())
    return ~flagged & ~faster, reasons


def family_groups(
    calls: Sequence[MeasuredCalls], machines: Mapping[str, Hardware]
) -> dict[str, tuple[Family, list[Group]]]:
    """Return the measured calls by family, as groups for a fit; those of no closed form are left out.

    ``machines`` gives the hardware for each name in the table.
    """
    found: dict[str, tuple[Family, list[Group]]] = {}
    for call in calls:
        hardware = machines[call.hardware]
        machine = Machine.of(hardware, resolve_peak(call.op, hardware) if np.any(call.op.flop()) else None)
        group = Group(call.op, machine, call.conditions, call.time_s)
        for mask, family in families_of(call.op, machine, hardware.kind):
            part = group if mask is True else group.take(np.broadcast_to(mask, call.time_s.shape))
            if family.name != "roofline":
                found.setdefault(family.name, (family, []))[1].append(part)
    return found


def calibrate_family(
    family: Family, groups: Sequence[Group], start: Constants, source: str, date: str, own: Collection[str] = ()
) -> Calibration:
    """Return the constants of a family that explain some rows, with the interval of rows that were not fitted.

    Constants that the rows cannot identify keep their value in ``start``, and are left out of the table unless they
    are among the ``own`` ones of the machine: the defaults may know them better one day. A regime with too few rows
    keeps its interval. The stated interval holds the middle 80 % of measured / predicted in a cross-validation over
    shapes.
    """
    groups = sample(groups, MOST_ROWS)
    fitted = fit_libraries(family, groups, start.values)
    ratio, regime = _cross_validated(family, groups, start.values)
    table = LatencyTable(
        constants={name: value for name, value in fitted.common().items() if name in own or fitted.tells(name)},
        libraries=fitted.own(),
        intervals=intervals(ratio, regime, start.intervals),
        dtypes=dtypes(family, groups),
        source=source,
        date=date,
    )
    before, _ = residuals(family, groups, Fitted(Fit(dict(start.values), (), {}, 0.0, 0)))
    error = float(np.mean(np.abs(np.expm1(before))))
    return Calibration(family, table, start.values, fitted.shared, fitted.libraries, ratio, error)


def calibrate_calls(
    calls: Sequence[MeasuredCalls], hardware: Hardware, source: str, date: str
) -> tuple[list[Calibration], dict[str, int]]:
    """Return the calibration of every family that has enough rows, and why other rows were not used.

    The constants start from, and where the rows say nothing keep, what holds for the machine now: its specification,
    or the defaults of its generation.

    Parameters
    ----------
    calls : measured calls on this machine.
    hardware : the machine.
    source, date : what to write beside the constants; the number of rows is added.
    """
    reasons: Counter[str] = Counter()
    kept = []
    for call in calls:
        mask, why = usable(call, hardware)
        reasons.update(why)
        if mask.any():
            kept.append(call.take(mask))
    found = family_groups(kept, {call.hardware: hardware for call in kept})
    modelled = sum(len(group) for _, groups in found.values() for group in groups)
    reasons["of operators without a closed form"] += sum(map(len, kept)) - modelled
    made = []
    for family, groups in found.values():
        rows = sum(map(len, groups))
        if rows < FEWEST_ROWS:
            reasons[f"of {family.name}: fewer than {FEWEST_ROWS} rows"] += rows
            continue
        if len({part for group in groups for part in _parts(group).tolist()}) < 2:
            reasons[f"of {family.name}: too few different shapes"] += rows
            continue
        rows = min(rows, MOST_ROWS)
        before = hardware.latency.get(family.name)
        # What the machine's file says stays where the rows say nothing; the rest is left to the defaults.
        own = before.constants if before else measured_constants(family, hardware)
        said = f"fitted on {source}, {rows} rows"
        made.append(calibrate_family(family, groups, constants(family, hardware), said, date, own))
    return made, {reason: count for reason, count in reasons.items() if count}


def dtypes(family: Family, groups: Sequence[Group]) -> tuple[str, ...]:
    """Return the dtypes of some rows, each once; none for a family that they do not matter to."""
    if not family.by_dtype:
        return ()
    return tuple(sorted({group.op.dtype for group in groups}))


def fit_libraries(family: Family, groups: Sequence[Group], start: Values, *, host: bool = True) -> Fitted:
    """Fit the shared constants to all rows, then each library's own to its rows, starting from the shared ones.

    A library has its own only beside another one: alone, its constants are the shared ones. ``host`` says whether the
    constants of the dispatch are fitted too.
    """
    kernel = [constant.name for constant in family.all_constants if constant not in HOST]
    shared = fit(family, groups, start, None if host else kernel)
    by_library: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        by_library[group.conditions.library].append(group)
    event = host and any(group.conditions.timing == "event" for group in groups)
    free = [c.name for c in family.all_constants if c.library and (event or c.name not in ("host", "hidden"))]
    if len(by_library) < 2 or not free:
        return Fitted(shared)
    return Fitted(
        shared,
        {
            library: fit(family, of_library, shared.values, free)
            for library, of_library in sorted(by_library.items())
            if sum(map(len, of_library)) >= FEWEST_ROWS
        },
    )


def residuals(family: Family, groups: Sequence[Group], fitted: Fitted) -> tuple[Floats, NDArray[np.intp]]:
    """Return ln(predicted / measured) of all rows, and the regime of each."""
    ratios, regimes = [], []
    for group in groups:
        terms = family.timed_terms(group.op, group.machine, fitted.values(group.conditions.library), group.conditions)
        time = np.broadcast_to(terms.time_s, group.time_s.shape)
        ratios.append(np.log(time / group.time_s))
        regimes.append(np.broadcast_to(regime_code(terms.adds, time), time.shape))
    return np.concatenate(ratios), np.concatenate(regimes)


def _cross_validated(family: Family, groups: Sequence[Group], start: Values) -> tuple[Floats, NDArray[np.intp]]:
    """Return the residuals and regimes of rows under constants fitted on the other parts of the shapes."""
    found = []
    for part in range(FOLDS):
        seen = list(_where(groups, part, inside=False))
        unseen = list(_where(groups, part, inside=True))
        if seen and unseen:
            found.append(residuals(family, unseen, fit_libraries(family, seen, start)))
    ratios, regimes = zip(*found, strict=True)
    return np.concatenate(ratios), np.concatenate(regimes)


def _where(groups: Sequence[Group], part: int, *, inside: bool) -> Iterator[Group]:
    """Yield the rows whose shape belongs to one part of the cross-validation, or does not."""
    for group in groups:
        mine = _parts(group) == part
        if (mine == inside).any():
            yield group.take(mine == inside)


def _parts(group: Group) -> Floats:
    """Return the part of the cross-validation that each row's shape belongs to."""
    # The hash also chose the sample, so that its leading digits are not spread evenly any more.
    parts: Floats = np.floor(shape_hash(group.op, len(group)) * 1e6) % FOLDS
    return parts


def sample(groups: Sequence[Group], most: int) -> list[Group]:
    """Return at most about ``most`` rows, the same share of each group, chosen by the hash of their shape."""
    share = most / max(1, sum(map(len, groups)))
    if share >= 1:
        return list(groups)
    taken = (
        group.take(np.argsort(np.argsort(shape_hash(group.op, len(group)))) < max(1.0, share * len(group)))
        for group in groups
    )
    return [group for group in taken if len(group)]


def intervals(
    log_ratio: Floats, regime: NDArray[np.intp], default: Mapping[str, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    """Return the middle 80 % of measured / predicted in each regime; the default where rows are few.

    The ends are the order statistics of rank 0.9 (n + 1) from either side, which hold the next row with a probability
    of 80 % however few the n rows are (split conformal prediction: Lei et al. 2018, arXiv 1604.04173). A stated
    interval holds the prediction itself, so the ends are bounded by 1.
    """
    found = dict(default)
    for index, name in enumerate(REGIMES):
        ratio = np.exp(-log_ratio[regime == index])
        if ratio.size >= FEWEST_ROWS:
            inner = min(1.0, 0.9 * (ratio.size + 1) / ratio.size)
            low, high = np.quantile(ratio, 1.0 - inner, method="lower"), np.quantile(ratio, inner, method="higher")
            found[name] = (min(1.0, float(low)), max(1.0, float(high)))
    return found

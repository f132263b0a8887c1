"""Which constants hold for a family on a machine, and how sure they are.

They come from the first of these that has a table of the family: the machine's specification ("calibrated"), the
defaults of its generation ("same generation"), those of its product line, of its vendor, of any GPU ("never seen").
What they have not seen widens the interval: `perfmodel.prediction.latency.effects`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.fitted_with import POWER
from perfmodel.core.hardware import Hardware, cached_per_machine
from perfmodel.core.latency_table import REGIMES, LatencyTable, same_speed
from perfmodel.core.surface import Sheet, Surface
from perfmodel.core.vocabulary import Calibration, ErrorSource
from perfmodel.prediction.designs import has_another_chip
from perfmodel.prediction.latency.doubts import Doubt, Doubted
from perfmodel.prediction.latency.effects import (
    Stated,
    Stating,
    applied,
    deviation_of,
    effects_of,
    of_one_kind,
    state_of,
    with_effects,
)
from perfmodel.prediction.latency.family import HOST_DEFAULTS, Family, Values
from perfmodel.prediction.latency.libraries import carried, known_libraries, of_library, unmeasured
from perfmodel.prediction.latency.nearest_tables import Found, changed_figures, found_tables, knows_vendor
from perfmodel.prediction.latency.own_figures import measured_constants, queued_starts, unlike_products
from perfmodel.prediction.stretch import Stretch
from perfmodel.prediction.uncertainty import Z80, Variances

#: the interval where no table states one: a factor of two, the usual error of the sustained roofline
WIDEST = (0.5, 2.0)
#: standard deviation of ln(measured / predicted) between shapes in each regime: medians of the tables of all machines
_SHAPE = (0.11, 0.13, 0.09)
#: the interval of a kind of kernel that no table has, divided into what shapes differ by and one error of all of them
USUAL_SHAPE = {regime: (math.exp(-Z80 * s), math.exp(Z80 * s)) for regime, s in zip(REGIMES, _SHAPE, strict=True)}
NEW_KERNEL = {ErrorSource.KERNEL: tuple(math.sqrt((math.log(WIDEST[1]) / Z80) ** 2 - s**2) for s in _SHAPE)}
#: elements that fill the loads of a warp one by one [B]
WIDE_BYTES = 4.0
#: standard deviation of ln(share of the datasheet's FLOP/s that good kernels reach) over the 26 sustained figures of
#: compute in the catalog: a kernel of a kind that nobody measured may be faster than the roofline with these, too
ANOTHER_KIND = 0.16
_ORIGINS = {
    Calibration.CALIBRATED: "constants of this machine",
    Calibration.SAME_GENERATION: "defaults of its generation",
    Calibration.NEVER_SEEN: "defaults from other generations",
}


@dataclass(frozen=True)
class Constants(Stating):
    """The constants that hold for one family, machine and library, where they come from, and how sure they are.

    Attributes
    ----------
    values : name -> value in SI units.
    intervals : regime -> low and high end of the 80 % interval of measured / predicted.
    calibration : how well the constants know the machine, the library and the dtype.
    source : where they come from, for people.
    variances : source of error -> variance of ln(measured / predicted) in each regime: the shape, and what the
        constants have not seen.
    nearest : how near to the machine the nearest of the tables is.
    surface : the correction over the sizes, where the nearest table has one.
    apart : how sure they are of the calls that the family tells apart, where a table does.
    doubted : how sure they are of the calls that the family doubts; without those that a table knows.
    changed : the machine's figures that are not those that the constants were fitted with.
    """

    values: Values
    intervals: Mapping[str, tuple[float, float]]
    calibration: Calibration
    source: str
    variances: Variances = field(default_factory=dict)
    nearest: Calibration = Calibration.NEVER_SEEN
    surface: Correction | None = None
    apart: Stated | None = None
    doubted: Doubted = field(default_factory=Doubted)
    changed: tuple[str, ...] = ()

    @functools.cached_property
    def origin(self) -> str:
        """Whose constants they are, and their source."""
        whose = "defaults from other vendors" if ErrorSource.VENDOR in self.variances else _ORIGINS[self.nearest]
        if self.changed:
            whose = f"constants of a machine with another {', '.join(self.changed)}"
        return f"{whose}: {self.source}"


@dataclass(frozen=True, eq=False)
class Correction(Stated):
    """A residual surface, the values of the library in it, and how sure the constants are inside its data."""

    surface: Surface
    sheet: Sheet


def constants(family: Family, hardware: Hardware, library: str = "", dtype: str = "") -> Constants:
    """Return the constants of a family on a machine, those of a library where it has its own.

    A library, dtype or vendor that the constants have not seen adds its variance to the interval.
    """
    return _constants(hardware, family, family.aliases.get(library, library), dtype)


@cached_per_machine
def _constants(hardware: Hardware, family: Family, library: str, dtype: str) -> Constants:
    found, link = found_tables(family, hardware), family.link(hardware.links)
    if not found and family.like is not None:
        return _like(family, constants(family.like, hardware, library, dtype), hardware)
    elsewhere = family.name not in hardware.latency
    measured = measured_constants(family, hardware) if elsewhere else {}
    least = {**queued_starts(family, hardware), **unlike_products(family, hardware)} if elsewhere else {}
    lender = ""
    if family.borrows and library and not _has_own_rows(found, library, dtype):
        library, candidates = family.borrows(hardware, library, dtype)
        known = known_libraries([table for _, table in found])
        fitted = next((table for _, table in found if table.constants or table.libraries), None)
        near = () if fitted is None or library in known else fitted.known_libraries
        lender = next((name for listed in (near, known) for name in candidates if name in listed), candidates[0])
    chip = bool(found) and found[0][0] is Calibration.SAME_GENERATION and has_another_chip(hardware)
    doubts = tuple(doubt.on(hardware) for doubt in family.all_doubts if doubt.machines(hardware))
    own = combined(
        family, found, library, dtype, measured, least, link=link, lender=lender, other_chip=chip, doubts=doubts,
        own_vendor=knows_vendor(family, hardware), changed=changed_figures(family, hardware),
    )  # fmt: skip
    if family.dispatched_like is None or any(tells_dispatch(table) for _, table in found):
        return own
    near_values = constants(family.dispatched_like, hardware, library, dtype).values
    return replace(own, values=MappingProxyType({**own.values, **{name: near_values[name] for name in HOST_DEFAULTS}}))


def tells_dispatch(table: LatencyTable) -> bool:
    """Return whether a table has constants of the host, of any library."""
    return any("host" in values for values in (table.constants, *table.libraries.values()))


def _has_own_rows(found: Sequence[Found], library: str, dtype: str) -> bool:
    """Return whether the machine's own table has rows of a library under this name, so that nothing is borrowed."""
    if not found or found[0][0] is not Calibration.CALIBRATED:
        return False
    return library in found[0][1].known_libraries and found[0][1].covers(dtype)


def _like(family: Family, near: Constants, hardware: Hardware) -> Constants:
    """Return the defaults of a family with the interval and the doubts of the one that it is like, and its own."""
    wider = Stretch(family.unlike * Z80, family.unlike * Z80)
    ends = {regime: wider.widened(1.0, low, high) for regime, (low, high) in near.intervals.items()}
    unlike = (family.unlike**2,) * len(REGIMES)
    own = ((doubt, doubt.deviation) for doubt in family.doubts if doubt.machines(hardware))
    effects = dict(near.doubted.effects or {})
    of_kernel = effects.get(ErrorSource.KERNEL, (0.0,) * len(REGIMES))
    effects[ErrorSource.KERNEL] = tuple(math.hypot(family.unlike, deviation) for deviation in of_kernel)
    return replace(
        near,
        values={constant.name: constant.default for constant in family.all_constants},
        intervals=ends,
        variances={**near.variances, ErrorSource.KERNEL: unlike},
        surface=None,
        doubted=replace(near.doubted, doubts=(*near.doubted.doubts, *own), effects=effects),
    )


def combined(
    family: Family,
    found: Sequence[Found],
    library: str = "",
    dtype: str = "",
    measured: Mapping[str, float] = MappingProxyType({}),
    least: Mapping[str, float] = MappingProxyType({}),
    *,
    link: str = "",
    own_vendor: bool = True,
    lender: str = "",
    other_chip: bool = False,
    doubts: Sequence[Doubt] = (),
    changed: Sequence[str] = (),
) -> Constants:
    """Return the constants that some tables give.

    Parameters
    ----------
    family : the family.
    found : its tables, the nearest to the machine first.
    library, dtype, link : whose kernels run, on which numbers, and the kind of link that they cross; "" for any.
    measured : constants that the machine's own sustained bandwidth determines.
    least : constants that are no smaller on the machine, whatever they are elsewhere.
    own_vendor : whether one of the tables is of the machine's vendor.
    other_chip : whether the nearest table is of machines with another chip.
    lender : the library whose constants hold, where it is not ``library``. The interval stays that of ``library``.
    doubts : the family's doubts about calls of the machine.
    changed : figures of the machine that the nearest table was not fitted with; where any but power limits are among
        them, it has another chip.
    """
    lender = lender or library
    tables = [table for _, table in found]
    spread = tables[0].spread.get(lender, 1.0) if tables else 1.0
    shape, apart = (_spread(ends, spread) for ends in _of_shapes(tables))
    values = _of_tables(family, tables, lender)
    typical = unmeasured(family, tables, library, lender)
    values.update(typical)
    values.update(measured)
    values.update({name: max(values.get(name, 0.0), value) for name, value in least.items()})
    fixed = MappingProxyType(values)
    if not found:
        new = {ErrorSource.KERNEL: family.unmeasured} if family.unmeasured else NEW_KERNEL
        intervals, variances = with_effects(USUAL_SHAPE, new)
        doubted = _doubted(doubts, tables, USUAL_SHAPE, new)
        return Constants(fixed, intervals, Calibration.NEVER_SEEN, "typical values", variances, doubted=doubted)
    state = found[0][0]
    covered = dtype if family.by_dtype else ""
    effects = effects_of(
        tables, state, library, covered, link, own_vendor,
        other_chip=other_chip or not set(changed) <= set(POWER), lent=bool(changed),
    )  # fmt: skip
    deviation = applied(tables, ErrorSource.LIBRARY)
    if typical and family.by_library and deviation is not None:
        effects.setdefault(ErrorSource.LIBRARY, deviation)
    if family.wide_library and dtype and dtype_bytes(dtype) >= WIDE_BYTES:
        for differing in effects.keys() & {ErrorSource.LIBRARY, ErrorSource.LIBRARY_HERE}:
            effects[differing] = tuple(map(min, effects[differing], family.wide_library))
    effects = _as_of_installations(effects, doubts)
    surface = _surface(tables, dtype) if family.axes else None
    if "/" in lender and any(lender in table.libraries for table in tables):
        surface = None  # the constants of a kernel that is named within a library were fitted without it
    source = _named_source(tables, lender, bool(measured), surface)
    source += of_library(library, tables) + (f"; no row in {dtype}" if ErrorSource.DTYPE in effects else "")
    if family.of_any_kind:
        shape, _ = with_effects(shape, {ErrorSource.KERNEL: (ANOTHER_KIND,) * len(REGIMES)})
    intervals, variances = with_effects(shape, effects)
    if family.of_any_kind:
        variances = of_one_kind(variances)
    correction, within = None, None
    if surface is not None:
        # Siblings that take over the surface of the machine measured have not earned its narrower interval.
        earned = state is Calibration.CALIBRATED and not tables[0].with_surface
        near = _spread(surface.intervals, spread) if earned else {}
        sheet, within = surface.sheet(f"{lender} {same_speed(dtype)}", lender), {**shape, **near}
        correction = Correction(*with_effects(within, effects), surface, sheet)
    other = Stated(*with_effects(apart, effects)) if apart != shape else None
    doubted = _doubted(doubts, tables, shape, effects, within if other is None else apart)
    if family.of_any_kind:
        doubted = replace(doubted, one_kind=True)
    state_now = state_of(state, effects, library)
    return Constants(fixed, intervals, state_now, source, variances, state, correction, other, doubted, tuple(changed))


def _of_tables(family: Family, tables: Sequence[LatencyTable], lender: str) -> dict[str, float]:
    """Return the constants of a library, each from the nearest table that has it, else its default."""
    values = {constant.name: constant.default for constant in family.all_constants}
    for place in reversed(range(len(tables))):
        values.update(tables[place].without_library)
        values.update(carried(family, tables, place, lender))
        values.update(tables[place].libraries.get(lender, {}))
    return values


def _of_shapes(tables: Sequence[LatencyTable]) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[float, float]]]:
    """Return the interval of each regime, from the nearest table that states it, and that of calls told apart."""
    shape: dict[str, tuple[float, float]] = dict.fromkeys(REGIMES, WIDEST)
    apart = dict(shape)
    for table in reversed(tables):
        shape.update(table.intervals)
        apart.update({**table.intervals, **table.apart})
    return shape, apart


def _named_source(tables: Sequence[LatencyTable], lender: str, measured: bool, surface: Surface | None) -> str:
    """Return where constants come from: the table of a named kernel, or the nearest, and what stands beside it."""
    own = next((table for table in tables if lender in table.libraries), tables[0]) if "/" in lender else tables[0]
    parts = [", ".join(filter(None, (own.source, own.date)))]
    if measured:
        parts.append("bandwidth of this machine's [sustained]")
    if surface is not None:
        parts.append(f"residual surface {surface.source}, {surface.date}")
    return "; ".join(parts)


def _as_of_installations(
    effects: Mapping[ErrorSource, tuple[float, ...]], doubts: Sequence[Doubt]
) -> dict[ErrorSource, tuple[float, ...]]:
    """Return deviations where what differs by library differs by no less than installations of one library do."""
    wider = dict(effects)
    for doubt in doubts:
        if doubt.source is ErrorSource.INSTALLATION and doubt.part_of in wider:
            wider[doubt.part_of] = tuple(map(max, wider[doubt.part_of], doubt.deviation))
    return wider


def _doubted(
    doubts: Sequence[Doubt],
    tables: Sequence[LatencyTable],
    shape: Mapping[str, tuple[float, float]],
    effects: Mapping[ErrorSource, tuple[float, ...]],
    within: Mapping[str, tuple[float, float]] | None = None,
) -> Doubted:
    """Return how sure the constants are of the calls of each doubt, but of those that a table says it knows.

    What tables state of a source of error, of all calls that they have not seen, is no less than what a doubt adds; a
    table that has seen them states 0.
    """
    known = (None if doubt.lasting else deviation_of(tables, doubt.source) for doubt in doubts)
    stated = [(doubt, _at_least(of_tables, doubt.deviation)) for doubt, of_tables in zip(doubts, known, strict=True)]
    counted = (one for one in stated if any(one[1]) and one[0].part_of not in effects)
    return Doubted(tuple(counted), dict(shape), dict(effects), within)


def _at_least(of_tables: tuple[float, ...] | None, deviation: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(map(max, of_tables, deviation)) if of_tables and any(of_tables) else of_tables or deviation


def _surface(tables: Sequence[LatencyTable], dtype: str) -> Surface | None:
    """Return the surface of the nearest table, if rows of the dtype are in it: those of a sibling with the same one."""
    surface = tables[0].surface
    sharing = (table for table in tables if surface and table.surface and table.surface.name == surface.name)
    return surface if not dtype or any(table.covers(dtype) for table in sharing) else None


def _spread(intervals: Mapping[str, tuple[float, float]], spread: float) -> dict[str, tuple[float, float]]:
    """Return intervals with so many times their half widths."""
    return {regime: (low**spread, high**spread) for regime, (low, high) in intervals.items()}

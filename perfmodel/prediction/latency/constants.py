"""Which constants hold for a family on a machine, and how well they know it.

They come from the first of these that has a table of the family: the machine's specification ("calibrated"), the
defaults of its generation ("same generation"), those of its product line, of its vendor, of any GPU ("never seen").
The interval comes from the same table: it holds the residuals of rows that the constants were not fitted on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from perfmodel.core.hardware import Hardware, cached_per_machine
from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.core.vocabulary import Calibration
from perfmodel.prediction.latency.family import Family, Values
from perfmodel.prediction.latency.machine import generation, product_line, vendor
from perfmodel.prediction.latency.tables import default_tables

#: the interval where no table states one: a factor of two, the usual error of the sustained roofline
WIDEST = (0.5, 2.0)


@dataclass(frozen=True)
class Constants:
    """The constants that hold for one family, machine and library, and where they come from."""

    values: Values
    intervals: Mapping[str, tuple[float, float]]
    calibration: Calibration
    source: str


def constants(family: Family, hardware: Hardware, library: str = "", dtype: str = "") -> Constants:
    """Return the constants of a family on a machine, those of a library where it has its own.

    If no row of ``dtype`` was fitted, the constants are still the best guess, with the interval of a machine that was
    never seen.
    """
    return _constants(hardware, family, library, dtype)


@cached_per_machine
def _constants(hardware: Hardware, family: Family, library: str, dtype: str) -> Constants:
    sources = (
        (Calibration.CALIBRATED, hardware.latency),
        (Calibration.SAME_GENERATION, default_tables(generation(hardware))),
        (Calibration.NEVER_SEEN, default_tables(product_line(hardware))),
        (Calibration.NEVER_SEEN, default_tables(vendor(hardware))),
        (Calibration.NEVER_SEEN, default_tables("generic")),
    )
    tables = [(state, by_family[family.name]) for state, by_family in sources if family.name in by_family]
    measured = {} if family.name in hardware.latency else measured_constants(family, hardware)
    values = {constant.name: constant.default for constant in family.all_constants}
    intervals: dict[str, tuple[float, float]] = dict.fromkeys(REGIMES, WIDEST)
    for _, table in reversed(tables):
        values.update(table.without_library)
        values.update(table.libraries.get(library, {}))
        intervals.update(table.intervals)
    values.update(measured)
    fixed = MappingProxyType(values)
    if not tables:
        return Constants(fixed, intervals, Calibration.NEVER_SEEN, "typical values")
    state, table = tables[0]
    if dtype and not table.covers(dtype):
        widest = {regime: widest_interval(*(t.intervals.get(regime, WIDEST) for _, t in tables)) for regime in REGIMES}
        return Constants(fixed, widest, Calibration.NEVER_SEEN, f"{_source(table)}; no row in {dtype}")
    own = "; bandwidth of this machine's [sustained]" if measured else ""
    source = _source(table) + own + _of_library(library, [table for _, table in tables])
    return Constants(fixed, intervals, state, source)


def _of_library(library: str, tables: Sequence[LatencyTable]) -> str:
    """Say whether the chosen library has constants of its own."""
    known = sorted({name for table in tables for name in table.libraries})
    if not library:
        return ""
    if library in known:
        return f", those of {library}"
    return f", none of {library}'s own" + (f" (known: {', '.join(known)})" if known else "")


def widest_interval(*intervals: tuple[float, float]) -> tuple[float, float]:
    """Return the interval that contains all of some."""
    return min(low for low, _ in intervals), max(high for _, high in intervals)


def measured_constants(family: Family, hardware: Hardware) -> dict[str, float]:
    """Return the constants that the machine's own ``[sustained]`` bandwidth determines, for families that stream.

    That bandwidth is of whole streams, reads and writes together, so that a written byte costs as much as a read one.
    """
    rate = hardware.main_memory.sustained_bytes_per_s
    peak = hardware.main_memory.bandwidth_bytes_per_s
    return {"eta": rate / peak, "write": 1.0} if family.streams and rate and peak else {}


def _source(table: LatencyTable) -> str:
    return ", ".join(part for part in (table.source, table.date) if part)

"""What tables of constants say about a library: its own, what they carry over to another machine, or neither."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.core.latency_table import LatencyTable, geometric_mean
from perfmodel.operators.attention import Attention
from perfmodel.prediction.latency.effects import deviation_of
from perfmodel.prediction.latency.family import HOST_CONSTANTS, Family, Values
from perfmodel.prediction.latency.tables import default_tables

_OF_HOST = {constant.name for constant in HOST_CONSTANTS}


def unmeasured(family: Family, tables: Sequence[LatencyTable], library: str, lender: str) -> dict[str, float]:
    """Return the constants that hold for the kernels of a library that no table has rows of, an unnamed one too.

    Serving engines have kernels of one kind, so that what was measured of one says more about another.
    """
    known = known_libraries(tables)
    engine = not family.of_framework and library.partition("/")[0] in Attention.WRITING
    if lender in known or library in known or engine:
        return {}
    return {constant.name: constant.unmeasured for constant in family.constants if constant.unmeasured is not None}


def carried(family: Family, tables: Sequence[LatencyTable], place: int, library: str) -> dict[str, float]:
    """Return the constants of a library that a table lacks, from what a wider table says about it (`_elsewhere`).

    The ratio of its constant to those of the libraries that both tables have carries over, to the power
    s^2 / (s^2 + s_here^2), with the deviation s of a library and what is left of it on another machine, s_here; as a
    whole where the kernel alone sets the constant.
    """
    table = tables[place]
    if not library or library in table.known_libraries:
        return {}
    found = _elsewhere(tables, place, library, default_tables("generic").get(family.name))
    whole, left = deviation_of(tables, "library"), deviation_of(tables, "library_here")
    if found is None or whole is None or left is None:
        return {}
    wider, of_library = found
    weight = sum(s**2 for s in whole) / sum(s**2 for s in (*whole, *left))
    limits = {constant.name: constant for constant in family.all_constants}
    values = {}
    for name, value in of_library.items():
        keys = [key for key, own in wider.libraries.items() if key in table.known_libraries and name in own]
        here = [table.libraries.get(key, {}).get(name, table.without_library.get(name)) for key in keys]
        around = [own for own in here if own is not None]
        if around:
            ratio = value / geometric_mean([wider.libraries[key][name] for key in keys])
            limit = limits[name]
            estimate = geometric_mean(around) * ratio ** (1.0 if limit.of_kernel else weight)
            values[name] = min(limit.high, max(limit.low, estimate))
    return values


def _elsewhere(
    tables: Sequence[LatencyTable], place: int, library: str, of_any_vendor: LatencyTable | None
) -> tuple[LatencyTable, Values] | None:
    """Return a wider table that says more about a library, and the library's constants there.

    A library that no table knows is expected to be like the mean of all libraries, not like the few that one machine
    ran: those left out are off by 24.1 % in place of 25.9 in the mean over 37 tables. Dispatch is the host's, too. But
    where a vendor's machines ran one library alone, what libraries differ by on those of others says nothing: streams
    by HIP and TileLang on an MI100, MI210, MI300A, MI300X and MI355X reach 0.70 to 0.82 of the bandwidth, no more than
    PyTorch's 0.83 to 0.85 as by that mean, 0.89 to 0.91 (seven sources of `examples/published`, in view).
    """
    own = set(tables[place].known_libraries)
    nowhere = not any(library in table.known_libraries for table in tables)
    of_vendor = known_libraries([table for table in tables if table is not of_any_vendor])
    for wider in tables[place + 1 :]:
        if library in wider.libraries:
            # What its rows do not tell from the constant of all is that one, and not what others have here.
            shared = {name: wider.constants[name] for name in _of_libraries(wider) if name in wider.constants}
            return wider, {**shared, **wider.libraries[library]}
        if wider is of_any_vendor and len(of_vendor) == 1:
            return None
        if nowhere and wider.libraries.keys() - own and wider.libraries.keys() & own:
            means = LatencyTable({}, wider.libraries).without_library
            return wider, {name: value for name, value in means.items() if name not in _OF_HOST}
    return None


def _of_libraries(table: LatencyTable) -> set[str]:
    """Return the constants that some library of a table has of its own, dispatch apart."""
    return {name for own in table.libraries.values() for name in own} - _OF_HOST


def of_library(library: str, tables: Sequence[LatencyTable]) -> str:
    """Say whether the chosen library was measured."""
    known = known_libraries(tables)
    if not library:
        return ""
    if library in known:
        return f", those of {library}"
    named = ", ".join(filter(None, known))
    return f", none of {library}'s own" + (f" (known: {named})" if named else "")


def known_libraries(tables: Sequence[LatencyTable]) -> list[str]:
    """Return the libraries that some tables were fitted on, in alphabetical order; "" for rows that name none."""
    return sorted({name for table in tables for name in table.known_libraries})

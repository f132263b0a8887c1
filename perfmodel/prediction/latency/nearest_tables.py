"""The tables of constants that may hold for a machine, the nearest to it first.

They stand in the machine's specification and in the defaults of its generation, its product line, its vendor, and of
any GPU.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfmodel.core.fitted_with import LINK, changed
from perfmodel.core.hardware import Hardware, cached_per_machine
from perfmodel.core.latency_table import LatencyTable
from perfmodel.core.vocabulary import Calibration
from perfmodel.prediction.designs import generation, product_line, vendor
from perfmodel.prediction.latency.effects import is_of_siblings
from perfmodel.prediction.latency.family import Family
from perfmodel.prediction.latency.libraries import known_libraries
from perfmodel.prediction.latency.tables import default_tables

#: a table, and how well its constants know the machine
Found = tuple[Calibration, LatencyTable]


def found_tables(family: Family, hardware: Hardware) -> list[Found]:
    """Return the tables of a family that may hold for a machine, the nearest to it first.

    A table that only rows of other operators have scaled knows the machine no better than the one that it scales. One
    that was fitted on a machine with other figures is that of a machine of the same generation.
    """
    found = [(state, by_family[family.name]) for state, by_family in _sources(hardware) if family.name in by_family]
    own = family.own_table(hardware) if family.own_table else None
    if own is not None:
        return [(Calibration.CALIBRATED, own)]
    if changed_figures(family, hardware):
        return [(Calibration.SAME_GENERATION, found[0][1]), *found[1:]]
    if found and is_of_siblings(found[0][1]):
        found[0] = (found[1][0] if len(found) > 1 else Calibration.NEVER_SEEN, found[0][1])
    return found


@cached_per_machine
def _changed(hardware: Hardware, family: str, crosses: bool) -> tuple[str, ...]:
    return tuple(key for key in changed(hardware, family) if crosses or not key.startswith(LINK))


def changed_figures(family: Family, hardware: Hardware) -> tuple[str, ...]:
    """Return the keys of a machine's figures that are not those that its own constants of a family were fitted with.

    Those of links count for families whose calls cross one.
    """
    return _changed(hardware, family.name, bool(family.link(hardware.links)))


def knows_vendor(family: Family, hardware: Hardware) -> bool:
    """Return whether a table of a machine's vendor has a family, and not that of any GPU alone."""
    return any(family.name in by_family for _, by_family in _sources(hardware)[:-1])


def _sources(hardware: Hardware) -> tuple[tuple[Calibration, Mapping[str, LatencyTable]], ...]:
    """Return the files that may hold tables for a machine, the nearest to it first and the generic one last."""
    return (
        (Calibration.CALIBRATED, hardware.latency),
        (Calibration.SAME_GENERATION, default_tables(generation(hardware))),
        (Calibration.NEVER_SEEN, default_tables(product_line(hardware))),
        (Calibration.NEVER_SEEN, default_tables(vendor(hardware))),
        (Calibration.NEVER_SEEN, default_tables("generic")),
    )


def fitted_table(name: str, hardware: Hardware) -> LatencyTable | None:
    """Return the nearest table of a family that has constants: machines of one chip have those of their generation."""
    tables = [by_family[name] for _, by_family in _sources(hardware) if name in by_family]
    return next((table for table in tables if table.constants or table.libraries), None)


def measured_libraries(name: str, hardware: Hardware) -> list[str]:
    """Return the named libraries that a family's tables for a machine were fitted on, given the family's name."""
    tables = [by_family[name] for _, by_family in _sources(hardware) if name in by_family]
    return [library for library in known_libraries(tables) if library]

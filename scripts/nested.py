"""What the latency model would say of a machine, or of a library, that nobody had measured.

Each one is left out of the fit and of the interval: the rest of the rows gives the constants, the deviations between
machines and libraries, and the spread over shapes, as `fit_latency` finds them for the specifications. The fits start
from the shipped tables.
"""

from __future__ import annotations

import dataclasses
import unittest.mock
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import open_tables
from fit_latency import FittedFamily, Groups, Origins, Shared, alike_families, fit_family, typical, typical_deviation

from perfmodel.accuracy.calibration import FittedConstants, calibrate_family
from perfmodel.accuracy.fit import Fit
from perfmodel.accuracy.measured import MeasuredCalls, Measurements
from perfmodel.accuracy.validate import Accuracy, judge
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import LatencyTable
from perfmodel.core.vocabulary import Calibration
from perfmodel.prediction.latency import constants
from perfmodel.prediction.latency.family import Family
from perfmodel.prediction.latency.machine import generation, product_line, vendor
from perfmodel.prediction.latency.tables import default_tables


@dataclass(frozen=True)
class Without:
    """A family, fitted without a machine or without a library.

    Attributes
    ----------
    family : name of the family.
    machine, library : what was left out; empty where it is the other.
    fitted : the family's shared constants.
    own : the table of each machine, where a library was left out.
    """

    family: str
    machine: str
    library: str
    fitted: FittedFamily
    own: Mapping[str, LatencyTable]

    def tables(self, others: Sequence[Without]) -> Mapping[str, LatencyTable]:
        """Return the tables by file; ``others`` are all fits without the same machine or library."""
        alike = [other.family for other in others if other.family in alike_families(self.family)]
        machines = [m for other in others if other.family in alike for m in other.fitted.shared["generic"].machines]
        return {**self.fitted.tables(typical_deviation(machines)), **self.own}

    def judged(
        self, others: Sequence[Without], calls: Sequence[MeasuredCalls], machines: Mapping[str, Hardware]
    ) -> Accuracy:
        """Judge the calls of the family on what was left out; ``calls`` are of any machine and library."""
        tables = self.tables(
            [other for other in others if (other.machine, other.library) == (self.machine, self.library)]
        )
        by_file = {name: MappingProxyType({self.family: table}) for name, table in tables.items()}

        def defaults(name: str) -> Mapping[str, LatencyTable]:
            return by_file.get(name, {})

        own = {name: by_file.get(name, {}) if self.library else {} for name in machines}
        altered = {name: dataclasses.replace(machine, latency=own[name]) for name, machine in machines.items()}
        of_interest = [
            call
            for call in calls
            if (call.hardware == self.machine or (self.library and call.conditions.library == self.library))
            and (not self.library or call.hardware in by_file)
        ]
        with unittest.mock.patch.object(constants, "default_tables", defaults):
            return judge([Measurements("without", tuple(of_interest))], altered.__getitem__)


def without_each(name: str, opened: open_tables.OpenTables) -> Iterator[Without]:
    """Yield a family's tables without each machine, then without each library that is not the only one on a machine."""
    fitted = open_tables.half(opened.calls, fitted=True)
    data, families, origins = open_tables.by_family(fitted, opened.machines)
    family, groups = families[name], data[name]
    near = shipped(family, groups, opened.machines)

    for machine in groups if len(groups) > 1 else ():
        rest = {key: rows for key, rows in groups.items() if key != machine}
        yield Without(name, machine, "", fit_family(family, rest, origins[name], opened.machines, near=near), {})
    of = {machine: {group.conditions.library for group in rows} for machine, rows in groups.items()}
    for library in sorted({library for libraries in of.values() if len(libraries) > 1 for library in libraries}):
        rest = {
            machine: kept
            for machine, rows in groups.items()
            if (kept := [group for group in rows if group.conditions.library != library])
        }
        made = fit_family(family, rest, origins[name], opened.machines, near=near)
        yield Without(name, "", library, made, _own(family, rest, made, opened.machines, origins[name]))


def _own(
    family: Family, groups: Groups, made: FittedFamily, machines: Mapping[str, Hardware], origins: Origins
) -> dict[str, LatencyTable]:
    """Return the table of each machine, fitted on its remaining rows."""
    found = {}
    for name, rows in groups.items():
        levels = [generation(machines[name]), product_line(machines[name]), vendor(machines[name]), "generic"]
        chain = [(Calibration.NEVER_SEEN, made.shared[level].table) for level in levels if level in made.shared]
        start = constants.combined(family, chain)
        source = f"fitted on {', '.join(sorted(origins[name]))}"
        found[name] = calibrate_family(family, rows, start, source, "").table
    return found


def shipped(family: Family, groups: Groups, machines: Mapping[str, Hardware]) -> FittedFamily:
    """Return a family's shipped tables as the fit that gave them, for others to start near it."""
    names = {constant.name for constant in family.all_constants}
    base = typical(family).values
    made: dict[str, Shared] = {}
    levels = {level(machines[machine]) for level in (vendor, product_line, generation) for machine in groups}
    for level in ("generic", *sorted(levels)):
        if family.name not in default_tables(level):
            continue
        table = default_tables(level)[family.name]
        own = {name for values in table.libraries.values() for name in values}
        values = {**base, **table.without_library}
        fit = Fit(values, tuple(names - set(table.constants) - own), {}, 0.0, 0)
        libraries = {
            library: Fit({**values, **own_values}, tuple(names - set(own_values)), {}, 0.0, 0)
            for library, own_values in table.libraries.items()
        }
        made[level] = Shared(table, FittedConstants(fit, libraries), (), 1)
    return FittedFamily(made, {})

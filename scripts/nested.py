"""What the latency model would say of a machine, or of a library, that nobody had measured.

Each one is left out of the fit and of the interval: the rest of the rows gives the constants, the deviations between
machines and libraries, and the spread over shapes, as `fit_family` finds them for the specifications. The fits start
from the shipped tables. Without a machine, the deviations of libraries remain those of all machines.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import os
import unittest.mock
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import open_tables
from fit_deviations import LIBRARY_KEYS
from fit_family import are_siblings, fit_family, kernel_table, machine_table, shipped, with_surfaces
from fit_kernels import is_of_kernels, kernel_fits, own_constants
from fit_shared import Groups, Origins, joined, kernels_of
from fit_surface import NESTED_POINTS, chain
from fit_usual import FittedFamily, usual_in

from perfmodel.accuracy.fit import Group
from perfmodel.accuracy.measured import MeasuredCalls, Measurements
from perfmodel.accuracy.validate import Accuracy, judge
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import LatencyTable
from perfmodel.prediction.designs import generation
from perfmodel.prediction.latency import constants, nearest_tables
from perfmodel.prediction.latency.family import Family
from perfmodel.prediction.latency.tables import default_tables


@dataclass(frozen=True)
class Without:
    """A family, fitted without a machine, without a library, or to all of its rows.

    Attributes
    ----------
    family : name of the family.
    machine, library : what was left out; both are empty where nothing was.
    fitted : the family's shared constants.
    own : the table of each machine, where a library was left out.
    measured : the machines and libraries that have rows, where nothing was left out.
    """

    family: str
    machine: str
    library: str
    fitted: FittedFamily
    own: Mapping[str, LatencyTable]
    measured: frozenset[str] = frozenset()

    def tables(self, others: Sequence[Without]) -> Mapping[str, LatencyTable]:
        """Return the tables by file; ``others`` are all families without the same machine or library."""
        usual = usual_in(self.family, {other.family: other.fitted for other in others})
        made = self.fitted.tables(usual)
        if self.machine:  # what libraries differ by remains that of all machines
            known = default_tables("generic")[self.family].deviations
            of_libraries = {key: known[key] for key in LIBRARY_KEYS}
            widest = made["generic"]
            made["generic"] = dataclasses.replace(widest, deviations={**widest.deviations, **of_libraries})
        return {**made, **self.own}


@contextlib.contextmanager
def without(left: str, fits: Sequence[Without], machines: Mapping[str, Hardware]) -> Iterator[dict[str, Hardware]]:
    """Predict as if a machine, or a library, had not been measured; yield the machines as they are then.

    Parameters
    ----------
    left : its name.
    fits : of any families, without any machine or library, or to all rows.
    machines : name -> machine as it ships.
    """
    same = [fit for fit in fits if left in (fit.machine, fit.library)]
    # What is usual is that of all families: those in which it was not measured are left as they are.
    others = [fit for fit in fits if fit.measured and left not in fit.measured]
    tables: dict[str, dict[str, LatencyTable]] = defaultdict(dict)
    for fit in same:
        for name, table in fit.tables([*same, *others]).items():
            tables[name][fit.family] = table
    families = {fit.family for fit in same}

    def altered(name: str, before: Mapping[str, LatencyTable]) -> Mapping[str, LatencyTable]:
        kept = {family: before[family] for family in before if family not in families}
        return MappingProxyType({**kept, **tables.get(name, {})})

    shared = unittest.mock.patch.object(
        nearest_tables, "default_tables", lambda name: altered(name, default_tables(name))
    )
    with shared:
        yield {
            name: dataclasses.replace(
                unmeasured(machine) if name == left else machine, latency=altered(name, machine.latency)
            )
            for name, machine in machines.items()
        }


def unmeasured(machine: Hardware) -> Hardware:
    """Return a machine without its measured bandwidths: most of them are of rows of the same tables."""
    levels = tuple(dataclasses.replace(level, sustained_bytes_per_s=None) for level in machine.memory)
    return dataclasses.replace(machine, memory=levels)


@dataclass(frozen=True)
class Nested:
    """All fits without a machine or a library, and how well they predict the rows of what they left out."""

    fits: tuple[Without, ...]
    judged: Mapping[tuple[str, str], Accuracy]

    @classmethod
    def of(cls, opened: open_tables.OpenTables, unseen: Sequence[MeasuredCalls]) -> Nested:
        """Fit every family without each machine and each library, and judge the ``unseen`` rows of these."""
        fitted = open_tables.half(opened.calls, fitted=True)
        both = (open_tables.by_family(calls, opened.machines)[1] for calls in (unseen, fitted))
        names = sorted(set.intersection(*map(set, both)))  # a family with few rows in a half is not fitted
        with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
            fits = tuple(fit for found in pool.map(_fits_without, names) for fit in found)
        return cls(fits, dict(_judged(fits, unseen, opened.machines)))

    def left_out(self, kind: str) -> Accuracy:
        """Return the rows of all machines, or of all libraries: ``kind`` is "machine" or "library"."""
        parts = [accuracy for (which, _), accuracy in self.judged.items() if which == kind]
        return Accuracy(tuple(part for accuracy in parts for part in accuracy.judged), ())


def _fits_without(name: str) -> list[Without]:
    """Return the fits of a family, in a process of its own."""
    return list(without_each(name, open_tables.load()))


def _judged(
    fits: Sequence[Without], calls: Sequence[MeasuredCalls], machines: Mapping[str, Hardware]
) -> Iterator[tuple[tuple[str, str], Accuracy]]:
    """Yield ("machine" or "library", name) -> its rows, of the families that were fitted without it."""
    for kind in ("machine", "library"):
        for name in sorted({getattr(fit, kind) for fit in fits} - {""}):
            same = [fit for fit in fits if getattr(fit, kind) == name]
            measured = {fit.family: set(fit.own) for fit in same}
            own = [call for call in calls if (call.hardware if kind == "machine" else call.library) == name]
            with without(name, fits, machines) as altered:
                accuracy = judge([Measurements("left out", tuple(own))], altered.__getitem__)
            # What a library differs by can be told on machines that have rows of another one.
            yield (kind, name), accuracy.where(lambda part, measured=measured, kind=kind: [
                family in measured and (kind == "machine" or part.hardware.name in measured[family])
                for family in np.broadcast_to(part.family, (len(part.calls),)).tolist()
            ])  # fmt: skip


def without_each(name: str, opened: open_tables.OpenTables) -> Iterator[Without]:
    """Yield a family's tables, those without each machine, and without each library that is not alone on a machine."""
    fitted = open_tables.half(opened.calls, fitted=True)
    data, families, origins = open_tables.by_family(fitted, opened.machines)
    family, groups = families[name], data[name]
    near = shipped(family, groups, opened.machines)

    of = {machine: {group.conditions.library for group in rows} for machine, rows in groups.items()}
    whole = fit_family(family, groups, origins[name], opened.machines, near=near, surfaces=False)
    measured = {_whole(family, library) for libraries in of.values() for library in libraries}
    yield Without(name, "", "", whole, {}, frozenset(groups) | measured)
    for machine in groups if len(groups) > 1 else ():
        rest = {key: rows for key, rows in groups.items() if key != machine}
        made = fit_family(family, rest, origins[name], opened.machines, near=near, anew=False)
        yield Without(name, machine, "", made, {})
    for library in sorted({library for libraries in of.values() if len(libraries) > 1 for library in libraries}):
        rest = {
            machine: kept
            for machine, rows in groups.items()
            if (kept := [group for group in rows if group.conditions.library != library])
        }
        made = fit_family(family, rest, origins[name], opened.machines, near=near)
        own = _own(family, rest, made, opened.machines, origins[name])
        yield Without(name, "", _whole(family, library), made, own)


def _whole(family: Family, library: str) -> str:
    """Return a library's name without the release of which the family's tables have the rows apart."""
    names = {f"{name}-{major}.{minor}": name for name, (major, minor) in family.of_release.items()}
    return names.get(library, library)


def _own(
    family: Family, groups: Groups, made: FittedFamily, machines: Mapping[str, Hardware], origins: Origins
) -> dict[str, LatencyTable]:
    """Return the table of each machine, fitted on its remaining rows as those that ship are."""
    parts: dict[str, dict[str, list[Group]]] = defaultdict(dict)
    for name, rows in groups.items():
        parts[generation(machines[name])][name] = rows
    own: dict[str, LatencyTable] = {}
    if is_of_kernels(family):
        for members in parts.values():
            siblings = are_siblings(members, machines)
            for name, rows in members.items():
                fits = {} if siblings else own_constants(family, kernel_fits(family, name, rows))
                own[name] = kernel_table(family, name, rows, fits, origins)
        return own
    kernels = kernels_of(family, made.shared["generic"].table)
    for level, members in parts.items():
        chip = made.shared[level] if are_siblings(members, machines) else None
        for name, rows in members.items():
            shared = {level: fitted.table for level, fitted in made.shared.items()}
            around = constants.combined(family, chain(machines[name], shared))
            own[name] = machine_table(family, name, rows, around, chip, joined(origins, [name]), kernels)
    fitted = with_surfaces(FittedFamily(made.shared, own), family, groups, origins, machines, NESTED_POINTS)
    return fitted.machines

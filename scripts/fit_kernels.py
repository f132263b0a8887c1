"""Fits of families whose constants are all those of a library's kernels: mixtures of experts.

Machines share nothing of such kernels but their likeness, so that each (machine, library) is fitted alone. The
constants for a machine that was not measured are the geometric means of those that were, for each library, and the
interval comes from machines whose means leave them out.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Mapping, Sequence

import numpy as np
from fit_deviations import LeftOut, LibraryOffsets
from fit_shared import (
    ASSUMED_DTYPE,
    ASSUMED_VENDOR,
    ROWS_OF_MACHINE,
    Groups,
    Origins,
    Shared,
    in_sample,
    joined,
    offsets_of,
    shape_intervals,
)

from perfmodel.accuracy.calibration import FOLDS
from perfmodel.accuracy.fit import Fit, Group, fit
from perfmodel.accuracy.libraries import FittedConstants, dtypes, intervals, libraries_of, residuals, sample
from perfmodel.accuracy.measured import shape_hash
from perfmodel.core.hardware import Hardware
from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.prediction.latency.constants import WIDEST, constants
from perfmodel.prediction.latency.family import HOST_CONSTANTS, Family

#: rows of one library on one machine that a fit takes
ROWS_OF_KERNEL = 500
#: library -> its fit
Fits = Mapping[str, Fit]
_kept: dict[tuple[str, str, str, int, int], Fit] = {}


def is_of_kernels(family: Family) -> bool:
    """Return whether every constant of a family is a library's."""
    return all(constant.library for constant in family.constants)


def by_library(rows: Sequence[Group]) -> dict[str, list[Group]]:
    """Return the rows of each library."""
    found: dict[str, list[Group]] = {}
    for group in rows:
        found.setdefault(group.conditions.library, []).append(group)
    return found


def kernel_fits(
    family: Family,
    machine: str,
    rows: Sequence[Group],
    part: int = -1,
    near: Fits | None = None,
    most: int = ROWS_OF_KERNEL,
) -> Fits:
    """Return the fit of each library's rows on a machine, without a ``part`` of the shapes; equal fits are kept."""
    found = {}
    for library, own in by_library(rows).items():
        key = (family.name, machine, library, sum(map(len, own)), part)
        if key not in _kept:
            used = sample(own, most)
            kept = _of_part(used, part, inside=False) if part >= 0 else used
            _kept[key] = fit(family, kept, free=_free(family), near=near[library] if near else None)
        found[library] = _kept[key]
    return found


def held_out(family: Family, machine: str, rows: Sequence[Group]) -> dict[str, tuple[float, float]]:
    """Return the interval of rows whose part of the shapes was not fitted; that of all in a regime with few rows."""
    whole = kernel_fits(family, machine, rows)
    ratios, regimes = [], []
    for part in range(FOLDS):
        fits = kernel_fits(family, machine, rows, part, whole)
        for library, own in by_library(rows).items():
            used = _of_part(sample(own, ROWS_OF_KERNEL), part, inside=True)
            if used:
                ratio, regime = residuals(family, used, FittedConstants(fits[library]))
                ratios.append(ratio)
                regimes.append(regime)
    ratio, regime = np.concatenate(ratios), np.concatenate(regimes)
    of_all = intervals(ratio, np.zeros_like(regime), dict.fromkeys(REGIMES, WIDEST))[REGIMES[0]]
    return intervals(ratio, regime, dict.fromkeys(REGIMES, of_all))


def mean_fits(family: Family, machines: Sequence[Fits]) -> FittedConstants:
    """Return the geometric means of machines for each library, and of the libraries' means."""
    names = _free(family)
    libraries = {library: [fits[library] for fits in machines if library in fits]
                 for library in sorted({library for fits in machines for library in fits})}  # fmt: skip
    means = {library: _mean([one.values for one in fits], names) for library, fits in libraries.items()}
    return FittedConstants(_fit(family, _mean(list(means.values()), names)),
                           {library: _fit(family, values) for library, values in means.items()})  # fmt: skip


def own_constants(family: Family, fits: Fits) -> dict[str, dict[str, float]]:
    """Return the constants of each library as a table holds them."""
    return {library: {name: one.values[name] for name in _free(family)} for library, one in sorted(fits.items())}


def shipped_fits(family: Family, machine: Hardware, rows: Sequence[Group]) -> Fits:
    """Return the constants of each library that some rows are of, as they ship."""
    known = machine.latency[family.name].known_libraries
    names = sorted({group.conditions.library for group in rows} & set(known))
    values = {name: dict(constants(family, machine, name).values) for name in names}
    base = [constant.name for constant in family.all_constants]
    return {name: Fit(own, (), dict.fromkeys(base, 0.0), 0.0, 0) for name, own in values.items()}


def mean_table(
    family: Family, groups: Groups, fits: Mapping[str, Fits], parts: Sequence[Sequence[str]], origins: Origins,
    *, widest: bool,
) -> Shared:  # fmt: skip
    """Return the means of some machines, and how far each part of them is from the means of the others."""
    found = mean_fits(family, [fits[name] for name in groups])
    apart = []
    for part in parts if len(parts) > 1 else ():
        others = mean_fits(family, [fits[name] for name in groups if name not in part])
        for name in part:
            rows = [group for group in groups[name] if group.conditions.library in others.libraries]
            if rows:
                ratio, regime = residuals(family, sample(rows, ROWS_OF_MACHINE), others)
                apart.append(LeftOut(name, -ratio, regime, " ".join(part)))
    rows = [group for own in groups.values() for group in own]
    offsets = _kernel_offsets(family, groups, fits) if widest else LibraryOffsets()
    known = in_sample(family, groups, found)
    table = LatencyTable(
        constants={},
        libraries=own_constants(family, found.libraries),
        intervals=shape_intervals(apart or known, dict.fromkeys(REGIMES, WIDEST))[0],
        deviations={**ASSUMED_DTYPE, **ASSUMED_VENDOR} if widest else {},
        known_libraries=libraries_of(rows),
        dtypes=dtypes(family, rows),
        source=f"means of fits on {joined(origins, groups)}, {', '.join(sorted(groups))}",
        date=today(),
    )
    fits = tuple(known) if apart else ()
    return Shared(table, found, tuple(apart), max(1, len(parts)), libraries=offsets if widest else None, known=fits)


def of_chip(mean: Shared, family: Family, name: str, groups: Groups) -> Shared:
    """Return the table of machines with one chip: their libraries fitted to the rows of all, in place of the means."""
    rows = [group for own in groups.values() for group in own]
    fits = kernel_fits(family, name, rows, most=ROWS_OF_KERNEL * len(groups))
    table = dataclasses.replace(mean.table, libraries=own_constants(family, fits))
    return dataclasses.replace(mean, table=table, fitted=FittedConstants(mean.fitted.shared, fits))


def _kernel_offsets(family: Family, groups: Groups, fits: Mapping[str, Fits]) -> LibraryOffsets:
    """Return what each library differs by from the mean of the others, and on a machine from the means elsewhere."""
    pairs = [(library, name) for name in groups if len(fits[name]) > 1 for library in fits[name]]
    sampled = {name: sample(rows, ROWS_OF_MACHINE) for name, rows in groups.items()}
    known, whole, here = [], [], []
    for library, name in pairs:
        known += offsets_of(family, sampled, FittedConstants(fits[name][library], fits[name]), [(library, name)])
        others = [{key: one for key, one in fits[machine].items() if key != library} for machine in groups]
        mean = mean_fits(family, [own for own in others if own])
        whole += offsets_of(family, sampled, mean, [(library, name)], unknown=True)
        elsewhere = [fits[machine] for machine in groups if machine != name and library in fits[machine]]
        if elsewhere:
            found = mean_fits(family, elsewhere).libraries[library]
            own = FittedConstants(found, {**fits[name], library: found})
            here += offsets_of(family, sampled, own, [(library, name)])
    return LibraryOffsets(tuple(known), tuple(whole), tuple(here))


def _mean(values: Sequence[Mapping[str, float]], names: Sequence[str]) -> dict[str, float]:
    return {name: math.exp(sum(math.log(one[name]) for one in values) / len(values)) for name in names}


def _fit(family: Family, values: Mapping[str, float]) -> Fit:
    base = {constant.name: constant.default for constant in family.all_constants}
    return Fit({**base, **values}, (), dict.fromkeys(values, 0.0), 0.0, 0)


def _free(family: Family) -> list[str]:
    return [constant.name for constant in family.all_constants if constant not in HOST_CONSTANTS]


def _of_part(groups: Sequence[Group], part: int, *, inside: bool) -> list[Group]:
    """Return the rows whose shape belongs to a part, or those of all others."""
    masks = [(group, (_parts(group) == part) == inside) for group in groups]
    return [group.take(mask) for group, mask in masks if mask.any()]


def _parts(group: Group) -> np.ndarray:
    return np.floor(shape_hash(group.op, len(group)) * 1e6) % FOLDS


def today() -> str:
    """Return the date of a fit."""
    return datetime.date.today().isoformat()

"""Constants of a family that several machines share, and what machines and libraries that were left out differ by."""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from fit_deviations import FEWEST, GENERATIONS, MAD, SIBLINGS, LeftOut, LibraryOffset, LibraryOffsets

from perfmodel.accuracy.calibration import MOST_ROWS
from perfmodel.accuracy.fit import Group
from perfmodel.accuracy.libraries import (
    FittedConstants,
    dtypes,
    fit_libraries,
    intervals,
    libraries_of,
    residuals,
    sample,
    stated_apart,
    told_apart,
)
from perfmodel.core.latency_table import REGIMES, LatencyTable
from perfmodel.prediction.latency.constants import Constants
from perfmodel.prediction.latency.family import Family, Values

#: rows of one machine in a fit that several machines share
ROWS_OF_MACHINE = 300
#: machine -> its rows
Groups = Mapping[str, list[Group]]
#: machine -> whose measurements
Origins = Mapping[str, Collection[str]]
#: of a dtype that no machine of the vendor was measured in, and of one that only others were: assumed
ASSUMED_DTYPE = {"dtype": (0.25, 0.25, 0.25), "dtype_here": (0.08, 0.08, 0.08)}
#: the same of families whose rows are all in one dtype, and whose kernels in others are different ones: MIOpen's bf16
#: convolutions in the open trace of an MI300X take 2.4 times as long as predicted. Those of other dtypes of a machine
#: are half as unsure where other machines have them: assumed
OTHER_KERNELS = {"conv2d": {"dtype": (0.6, 0.6, 0.6), "dtype_here": (0.3, 0.3, 0.3)}}
#: of a vendor of which nothing was measured: the root mean squares of ln(measured / predicted) that open traces of an
#: MI300X leave are 0.3 (batch norms), 0.56 (products), 0.7 (convolutions) and 0.9 (sums), 0.6 in the middle, of which
#: machines differ by 0.2 to 0.3 (AMD-AGI/TraceLens @ 171dd74721ca; one machine of one vendor)
ASSUMED_VENDOR = {"vendor": (0.5, 0.5, 0.5)}
#: of the host, for exchanges through it: two hosts with L40S differ by a factor of 1.2, 2 and 6.5 in the median of each
#: regime, and the deviation of two values is their difference over the root of 2
HOST_DEVIATION = {"collective_host": {"host": (0.13, 0.50, 1.30)}}


def kernels_of(family: Family, widest: LatencyTable) -> dict[str, Values]:
    """Return what all machines told of the constants of each library that differ most between kernels."""
    names = {constant.name for constant in family.all_constants if constant.between_kernels}
    if not names:
        return {}
    return {
        library: {
            name: widest.libraries.get(library, widest.constants).get(name, widest.without_library[name])
            for name in names
        }
        for library in widest.known_libraries
    }


def left_out(
    family: Family,
    groups: Groups,
    start: Constants,
    judged: Sequence[Groups],
    near: FittedConstants,
    *,
    host: bool,
    kernels: Mapping[str, Values],
) -> list[LeftOut]:
    """Return the residuals of each machine whose part was left out of the fit."""
    found = []
    for part in judged:
        kinds = links_of(family, {name: rows for name, rows in groups.items() if name not in part})
        others = {name: rows for name, rows in groups.items() if name not in part}
        fitted = fit_libraries(family, sampled_rows(others), start.values, host=host, near=near, kernels=kernels)
        libraries = {g.conditions.library for rows in others.values() for g in rows}
        together = " ".join(part)
        for name, rows in part.items():
            # What a library that nobody else measured differs by is not the machine's.
            rows = [group for group in rows if group.conditions.library in libraries]
            if not rows:
                continue
            rows = sample(rows, ROWS_OF_MACHINE)
            ratio, regime = residuals(family, rows, fitted)
            own = links_of(family, {name: rows})
            link = "" if set(own) <= set(kinds) else own[0]
            found.append(LeftOut(name, -ratio, regime, together, link, told_apart(family, rows)))
    return found


def links_of(family: Family, groups: Groups) -> tuple[str, ...]:
    """Return the kinds of link that the rows of some machines cross; none for a family whose calls cross none."""
    machines = [group.machine for rows in groups.values() for group in rows]
    return tuple(sorted({family.link(machine.links.values()) for machine in machines} - {""}))


def in_sample(family: Family, groups: Groups, fitted: FittedConstants) -> list[LeftOut]:
    """Return the residuals of each machine's libraries under the constants that they were fitted to.

    A handful of constants hardly learns hundreds of rows, so that the spread over shapes is nearly that of new ones.
    """
    found = []
    for name, rows in groups.items():
        for library in sorted({group.conditions.library for group in rows}):
            own = sample([group for group in rows if group.conditions.library == library], ROWS_OF_MACHINE)
            ratio, regime = residuals(family, own, fitted)
            found.append(LeftOut(name, -ratio, regime, apart=told_apart(family, own)))
    return found


def shape_intervals(
    machines: Sequence[LeftOut], default: Mapping[str, tuple[float, float]]
) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[float, float]]]:
    """Return the middle 80 % of measured / predicted without the machines' offsets, also of the rows told apart."""
    places = [(machine, regime) for machine in machines for regime in range(len(REGIMES))]
    ratio = -np.concatenate([machine.within(regime) for machine, regime in places])
    code = np.concatenate([np.full(machine.within(regime).size, regime) for machine, regime in places])
    apart = np.concatenate([machine.apart_in(regime) for machine, regime in places])
    return stated_apart(ratio, code, apart, intervals(ratio, code, default))


def library_offsets(family: Family, groups: Groups, start: Constants, near: FittedConstants) -> LibraryOffsets:
    """Leave each library out of the fit, and each library of each machine, and return what they differ by."""
    machines = {name: sample(rows, ROWS_OF_MACHINE) for name, rows in groups.items()}
    of = {name: {g.conditions.library for g in rows} for name, rows in machines.items()}
    pairs = [(library, name) for name, libraries in of.items() if len(libraries) > 1 for library in sorted(libraries)]
    if not pairs:
        return LibraryOffsets()
    known = offsets_of(family, machines, near, pairs, unknown=False)
    whole, here = [], []
    for library in sorted({library for library, _ in pairs}):
        rest = [g for rows in machines.values() for g in rows if g.conditions.library != library]
        fitted = fit_libraries(family, rest, start.values, near=near)
        whole += offsets_of(family, machines, fitted, [p for p in pairs if p[0] == library], unknown=True)
    for pair in pairs:
        rest = [g for name, rows in machines.items() for g in rows if (g.conditions.library, name) != pair]
        if any(g.conditions.library == pair[0] for g in rest):
            here += offsets_of(family, machines, fit_libraries(family, rest, start.values, near=near), [pair])
    return LibraryOffsets(tuple(known), tuple(whole), tuple(here))


def offsets_of(
    family: Family,
    machines: Groups,
    fitted: FittedConstants,
    pairs: Sequence[tuple[str, str]],
    *,
    unknown: bool = False,
) -> list[LibraryOffset]:
    """Return the offset of each library over the others of a machine in each regime."""
    found = []
    for library, name in pairs:
        own = [g for g in machines[name] if g.conditions.library == library]
        others = [g for g in machines[name] if g.conditions.library != library]
        ratio, code = residuals(family, own, fitted, unknown=unknown)
        other, other_code = residuals(family, others, fitted)
        for regime in range(len(REGIMES)):
            mine, theirs = ratio[code == regime], other[other_code == regime]
            if mine.size >= FEWEST and theirs.size >= FEWEST:
                spread = float(np.median(np.abs(mine - np.median(mine))) * MAD) ** 2
                offset = float(np.median(mine) - np.median(theirs))
                found.append(LibraryOffset(library, name, regime, offset, spread))
    return found


@dataclass(frozen=True)
class Shared:
    """Constants that several machines share, before their deviations between machines are known.

    Attributes
    ----------
    table, fitted : the constants, with the interval of shapes.
    machines : the residuals of each machine whose part was left out; empty where there is one part only.
    known : those of each machine under the constants, where parts were left out.
    parts, between, weight : how many parts there are, what they are, and the table's weight against the wider one.
    libraries : what libraries differ by, in the widest table.
    own_host : whether the dispatch of the rows is the table's, too. Where it is that of all machines of the vendor, the
        left-out ones too, their offsets in the launch regime say nothing.
    by_host : whether most rows are calls that a host dispatched.
    """

    table: LatencyTable
    fitted: FittedConstants
    machines: tuple[LeftOut, ...]
    parts: int
    weight: float = 1.0
    libraries: LibraryOffsets | None = None
    between: str = GENERATIONS
    known: tuple[LeftOut, ...] = ()
    own_host: bool = True
    by_host: bool = False

    def next_machine(self, wider_parts: int) -> float:
        """Return the deviation of the next machine from this table, over that between machines.

        The next machine differs from the mean of all; the table's mean of n parts does too, and so does that of the N
        wider parts, to which the table is drawn: 1 + w^2 / n + (1 - w)^2 / N, in squares.
        """
        return math.sqrt(1.0 + self.weight**2 / self.parts + (1.0 - self.weight) ** 2 / wider_parts)


def shared(
    family: Family, groups: Groups, start: Constants, origins: Origins, judged: Sequence[Groups], *,
    host: bool = False, shrunk: bool = True, between: str = GENERATIONS, wider: LatencyTable | None = None,
    near: Shared | None = None, anew: bool = True, final: bool = False,
    kernels: Mapping[str, Values] = MappingProxyType({}),
) -> Shared:  # fmt: skip
    """Return constants that several machines share, with the residuals of machines that were left out.

    Parameters
    ----------
    family, groups : the rows of each machine.
    start : the constants to start from.
    origins : whose measurements those of each machine are.
    judged : the parts that are left out one after another; where there is only one, the interval of ``start`` stays.
    host : whether the dispatch is fitted too: it is the software's and the host's, not the chip's, so that machines
        of one generation do not share it, and those of a vendor do.
    shrunk : whether the constants of n machines are drawn to those of ``start`` by 1 / (n + 1): few machines do not
        tell what they share from what they have each.
    between : what the parts are (`fit_deviations.BETWEEN`). Siblings have one die, so that they share all but what
        their specifications say.
    wider : the table around this one, to whose constants of each library its own are drawn; None for the widest, which
        has the deviations of libraries, dtypes and vendors.
    near : constants that were fitted to nearly the same rows.
    anew : whether the deviations of libraries are estimated, in the widest table.
    final : whether the machines have no constants of their own: then these are fitted to more rows, and the dispatch
        is among them.
    kernels : what all machines told of each library's kernels (`kernels_of`); none for the widest table.
    """
    sampled = sampled_rows(groups, MOST_ROWS if final else ROWS_OF_MACHINE)
    fitted = fit_libraries(
        family, sampled, start.values, host=host or final, near=near.fitted if near else None, kernels=kernels
    )
    machines = left_out(family, groups, start, judged, fitted, host=host, kernels=kernels) if len(judged) > 1 else []
    weight = len(groups) / (len(groups) + 1.0) if shrunk and between != SIBLINGS else 1.0
    known_rows = in_sample(family, groups, fitted)
    known = libraries_of(sampled)

    def drawn(values: Values, libraries: Sequence[str]) -> dict[str, float]:
        # to what the wider table says about the same libraries: a kernel of another one may be ten times slower
        of = [{**start.values, **(wider.libraries.get(library, {}) if wider else {})} for library in libraries or ("",)]
        around = {name: math.exp(sum(math.log(own[name]) for own in of) / len(of)) for name in values}
        return {name: float(v**weight * around[name] ** (1.0 - weight)) for name, v in values.items()}

    deviations: dict[str, tuple[float, ...]] = {}
    offsets = None
    if wider is None:
        offsets = library_offsets(family, groups, start, fitted) if anew else None
        deviations = {**ASSUMED_DTYPE, **ASSUMED_VENDOR}
        deviations |= OTHER_KERNELS.get(family.name, {})
        deviations |= HOST_DEVIATION.get(family.name, {})
    stated, others = shape_intervals(machines or known_rows, start.intervals)
    table = LatencyTable(
        constants=drawn({n: v for n, v in fitted.common().items() if n in fitted.shared.certainty}, known),
        libraries={library: drawn(values, [library]) for library, values in fitted.own().items()},
        intervals=stated,
        apart=others,
        deviations=deviations,
        known_libraries=known,
        dtypes=dtypes(family, sampled),
        links=links_of(family, groups),
        source=f"fitted on {joined(origins, groups)}, {sum(map(len, sampled))} rows of {', '.join(sorted(groups))}",
        date=datetime.date.today().isoformat(),
    )
    by_host = family.dispatched and _by_host(groups)
    own_host = host or not by_host
    apart = tuple(machines if own_host else (one.without(REGIMES.index("launch")) for one in machines))
    fits = tuple(known_rows) if machines else ()
    return Shared(table, fitted, apart, max(1, len(judged)), weight, offsets, between, fits, own_host,
                  by_host)  # fmt: skip


def _by_host(groups: Groups) -> bool:
    """Return whether most rows of the machines are calls that a host dispatched; groups differ in their sizes."""
    listed = [group for rows in groups.values() for group in rows]
    return 2 * sum(len(group) for group in listed if group.conditions.timing.includes_host) > sum(map(len, listed))


def joined(origins: Origins, machines: Iterable[str]) -> str:
    """Return whose measurements those of some machines are."""
    return ", ".join(sorted({origin for machine in machines for origin in origins[machine]}))


def sampled_rows(groups: Groups, most: int = ROWS_OF_MACHINE) -> list[Group]:
    """Return the rows of all machines, of each at most so many as one may have."""
    return [group for rows in groups.values() for group in sample(rows, most)]

"""``[latency.FAMILY]`` tables: their shape, their check against the family, and the shipped defaults.

A specification file holds the constants of its own machine. ``hardware_specs/defaults/`` holds those for machines
that nobody calibrated: one file for each generation, product line and vendor, and ``generic.toml`` for any other.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from perfmodel.core.dtypes import canonical_dtype
from perfmodel.core.latency_table import DEVIATIONS, REGIMES, LatencyTable
from perfmodel.core.units import parse_quantity
from perfmodel.errors import InputFileError, PerfModelError, unknown_name
from perfmodel.files import read_document, read_text, shipped_folder
from perfmodel.prediction.latency.families import family, family_names, has_family
from perfmodel.prediction.latency.family import Constant
from perfmodel.prediction.latency.surfaces import surface

Quantity = str | float
#: the line above the keys of a family's table, or of a table in it
_HEADER = re.compile(r'\[latency\.(\w+)(?:\.(?:\w+|"[^"\\\n]*"))*\][ \t]*$', re.MULTILINE)
#: a standard deviation of the logarithm above this, a factor of 20, is a mistake
LARGEST_DEVIATION = 3.0
#: a library's shapes differ by so many times what those of all do, or by less
LARGEST_SPREAD = 4.0


class LatencySpec(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """``[latency.FAMILY]`` as it stands in a file: times with their unit ("2.4 us"), shares as plain numbers.

    ``surface`` names a file of `perfmodel.prediction.latency.surfaces`.
    """

    constants: dict[str, Quantity] = {}
    library: dict[str, dict[str, Quantity]] = {}
    interval: dict[str, tuple[float, float]] = {}
    apart: dict[str, tuple[float, float]] = {}
    spread: dict[str, float] = {}
    deviation: dict[str, tuple[float, float, float]] = {}
    known_libraries: list[str] = []
    dtypes: list[str] = []
    links: list[str] = []
    source: str = ""
    date: str = ""
    note: str = ""
    surface: str = ""
    with_surface: bool = False


class LazyTables(Mapping[str, LatencyTable]):
    """The tables of one file in SI units, each checked and converted when it is first used.

    A prediction needs one family of a dozen, and checking a table loads its family's module.

    Raises
    ------
    InputFileError
        On construction, for an unknown family; on the first use of a table, as `to_tables`.
    """

    def __init__(self, specs: Mapping[str, LatencySpec], place: str) -> None:
        self._specs, self._place = specs, place
        self._converted: dict[str, LatencyTable] = {}
        for name in specs:
            if not has_family(name):
                raise unknown_name(
                    "latency family", name, family_names(), place=f"{place}: latency.{name}", kind=InputFileError
                )

    def __getitem__(self, name: str) -> LatencyTable:
        """Return the table of a family."""
        if name not in self._converted:
            self._converted[name] = _table(name, self._specs[name], f"{self._place}: latency.{name}")
        return self._converted[name]

    def __contains__(self, name: object) -> bool:
        """Whether a family has a table; none is converted for it."""
        return name in self._specs

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the families, in the order of the file."""
        return iter(self._specs)

    def __len__(self) -> int:
        """Return the number of families."""
        return len(self._specs)


def to_tables(specs: Mapping[str, LatencySpec], place: str) -> Mapping[str, LatencyTable]:
    """Return the tables of a file in SI units, all of them checked.

    Raises
    ------
    InputFileError
        For an unknown family or constant, a value that physics does not allow, or an interval that does not contain
        1.
    """
    return MappingProxyType(dict(LazyTables(specs, place)))


def _table(name: str, spec: LatencySpec, place: str) -> LatencyTable:
    known = {constant.name: constant for constant in family(name).table_constants}
    libraries = {
        library: _constants(values, {k: c for k, c in known.items() if c.library}, f"{place}.library.{library}")
        for library, values in spec.library.items()
    }
    return LatencyTable(
        constants=_constants(spec.constants, known, f"{place}.constants"),
        libraries=MappingProxyType(libraries),
        intervals=_intervals(spec.interval, f"{place}.interval"),
        apart=_intervals(spec.apart, f"{place}.apart"),
        spread=_spreads(spec.spread, f"{place}.spread"),
        deviations=_deviations(spec.deviation, f"{place}.deviation"),
        known_libraries=tuple(spec.known_libraries),
        dtypes=tuple(canonical_dtype(dtype, place=f"{place}.dtypes") for dtype in spec.dtypes),
        links=tuple(spec.links),
        source=spec.source,
        date=spec.date,
        note=spec.note,
        surface=surface(spec.surface, family(name), place) if spec.surface else None,
        with_surface=spec.with_surface,
    )


def _constants(values: Mapping[str, Quantity], known: Mapping[str, Constant], place: str) -> Mapping[str, float]:
    converted = {}
    for name, value in values.items():
        if name not in known:
            raise unknown_name("constant", name, known, place=place, kind=InputFileError)
        converted[name] = _value(known[name], value, f"{place}.{name}")
    return MappingProxyType(converted)


def _value(constant: Constant, written: Quantity, place: str) -> float:
    try:
        value = parse_quantity(written, constant.unit) if constant.unit == "s" else float(written)
    except PerfModelError as error:
        raise InputFileError(error.message, place=place, remedy=error.remedy) from None
    except ValueError:
        raise InputFileError(f"{written!r} is not a number.", place=place) from None
    if isinstance(written, float | int) and constant.unit == "s":
        raise InputFileError(f"{written!r} has no unit.", place=place, remedy=f'Write "{1e6 * written:g} us".')
    if not constant.low <= value <= constant.high:
        raise InputFileError(
            f"{written!r} is outside {constant.low:g} to {constant.high:g} {constant.unit}".rstrip() + ".",
            place=place,
            remedy=f"It is the {constant.meaning}.",
        )
    return value


def _intervals(written: Mapping[str, tuple[float, float]], place: str) -> Mapping[str, tuple[float, float]]:
    for regime, (low, high) in written.items():
        if regime not in REGIMES:
            raise unknown_name("regime", regime, REGIMES, place=place, kind=InputFileError)
        if not 0 < low <= 1 <= high:
            raise InputFileError(
                f"[{low:g}, {high:g}] does not contain 1.",
                place=f"{place}.{regime}",
                remedy="It is the 10 % and the 90 % quantile of measured / predicted.",
            )
    return MappingProxyType(dict(written))


def _spreads(written: Mapping[str, float], place: str) -> Mapping[str, float]:
    for library, factor in written.items():
        if not 1.0 / LARGEST_SPREAD <= factor <= LARGEST_SPREAD:
            raise InputFileError(
                f"{factor:g} is outside {1 / LARGEST_SPREAD:g} to {LARGEST_SPREAD:g}.",
                place=f"{place}.{library}",
                remedy="It is the library's half widths over those of all libraries.",
            )
    return MappingProxyType(dict(written))


def _deviations(
    written: Mapping[str, tuple[float, float, float]], place: str
) -> Mapping[str, tuple[float, float, float]]:
    for name, values in written.items():
        if name not in DEVIATIONS:
            raise unknown_name("deviation", name, DEVIATIONS, place=place, kind=InputFileError)
        if not all(0 <= value <= LARGEST_DEVIATION for value in values):
            raise InputFileError(
                f"{list(values)} is outside 0 to {LARGEST_DEVIATION:g}.",
                place=f"{place}.{name}",
                remedy="It is a standard deviation of ln(measured / predicted) in each regime.",
            )
    return MappingProxyType(dict(written))


def latency_specs(tables: Mapping[str, LatencyTable]) -> dict[str, LatencySpec]:
    """Return tables as they stand in a file; `to_tables` reads them back, rounded to four digits."""
    return {name: _spec(name, table) for name, table in tables.items()}


def _spec(name: str, table: LatencyTable) -> LatencySpec:
    units = {constant.name: constant.unit for constant in family(name).table_constants}

    def written(values: Mapping[str, float]) -> dict[str, Quantity]:
        return {key: _written(value, units[key]) for key, value in values.items()}

    return LatencySpec(
        constants=written(table.constants),
        library={library: written(values) for library, values in table.libraries.items()},
        interval=_ends(table.intervals),
        apart=_ends(table.apart),
        spread={library: round(factor, 2) for library, factor in table.spread.items()},
        deviation={name: _rounded(values) for name, values in table.deviations.items()},
        known_libraries=list(table.known_libraries),
        dtypes=list(table.dtypes),
        links=list(table.links),
        source=table.source,
        date=table.date,
        note=table.note,
        surface=table.surface.name if table.surface else "",
        with_surface=table.with_surface,
    )


def _ends(intervals: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    return {regime: (round(low, 3), round(high, 3)) for regime, (low, high) in intervals.items()}


def _rounded(values: tuple[float, ...]) -> tuple[float, float, float]:
    launch, mid, large = (round(value, 3) for value in values)
    return launch, mid, large


def _written(value: float, unit: str) -> Quantity:
    """Return a constant with four digits, more than a fit determines."""
    return f"{1e6 * value:.4g} us" if unit == "s" else float(f"{value:.4g}")


def read_latency_tables(path: str | os.PathLike[str]) -> Mapping[str, LatencyTable]:
    """Return the tables of a file of defaults; each is parsed and checked when it is first used.

    Raises
    ------
    InputFileError
        When the file cannot be read, and here or when a table is first used, when its content is wrong.
    """
    place = os.fspath(path)
    parts = _parts(read_text(path))
    return LazyTables(_specs(read_document(path), place) if parts is None else _LazySpecs(parts, place), place)


def _specs(document: Any, place: str) -> dict[str, LatencySpec]:
    try:
        return msgspec.convert(document.get("latency", {}), dict[str, LatencySpec])
    except msgspec.ValidationError as error:
        raise InputFileError(f"{error}.", place=place) from None


def _parts(text: str) -> dict[str, str] | None:
    """Return the text of each family's tables in a file of defaults; None where lines alone do not tell them apart.

    Parsing all of the four files that may hold constants of a machine takes a tenth of the time of a prediction.
    """
    if '"""' in text or "'''" in text:
        return None
    first, *blocks = re.split(r"^(?=[ \t]*\[)", text, flags=re.MULTILINE)
    if any(line and not line.startswith("#") for line in map(str.strip, first.splitlines())):
        return None
    parts: dict[str, str] = {}
    for block in blocks:
        header = _HEADER.match(block)
        if header is None:
            return None
        parts[header[1]] = parts.get(header[1], "") + block
    return parts


class _LazySpecs(Mapping[str, LatencySpec]):
    """The tables of a file, as they stand there, each parsed when it is first used."""

    def __init__(self, parts: Mapping[str, str], place: str) -> None:
        self._parts, self._place = parts, place

    def __getitem__(self, name: str) -> LatencySpec:
        """Return the table of a family."""
        import tomllib

        try:
            document = tomllib.loads(self._parts[name])
        except ValueError:
            document = read_document(self._place)  # which names the line
        return _specs(document, self._place)[name]

    def __contains__(self, name: object) -> bool:
        """Whether a family has a table; none is parsed for it."""
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the families, in the order of the file."""
        return iter(self._parts)

    def __len__(self) -> int:
        """Return the number of families."""
        return len(self._parts)


@functools.cache
def default_tables(name: str) -> Mapping[str, LatencyTable]:
    """Return the shipped defaults with this name, as of a generation or "generic"; none if there is no such file."""
    path = _default_files().get(name)
    return MappingProxyType({}) if path is None else read_latency_tables(path)


@functools.cache
def _default_files() -> dict[str, Path]:
    """Return the shipped files of defaults by their names."""
    return {path.stem: path for path in (shipped_folder() / "defaults").glob("*.toml")}

"""Residual surfaces (`perfmodel.core.surface`): their files, and which one holds for a family, a machine and a library.

``hardware_specs/surfaces/NAME.toml`` holds those of one machine, or of the machines of a generation. A ``[latency]``
table names the file, since a surface belongs to the constants about which it was fitted: constants of a user's own
calibration have none.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from perfmodel.core.latency_table import REGIMES
from perfmodel.core.surface import Sheet, Surface, SurfaceAxis
from perfmodel.core.work import Number
from perfmodel.errors import InputFileError, unknown_name
from perfmodel.files import read_document, shipped_folder
from perfmodel.operators.base import Operator
from perfmodel.prediction.latency.family import Family
from perfmodel.prediction.latency.machine import Machine

FOLDER = "surfaces"
#: knots are written in thousandths, of ln(measured / predicted)
UNIT = 1e-3
#: key of the mean of all libraries
ANY = "any"
#: knots beyond this say that the closed form is wrong
MOST = 1.0
#: a surface of more knots is a mistake
_MOST_KNOTS = 100_000


class AxisSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Knots along log2 of a size, and the range of the rows [octaves]."""

    first: float
    step: float
    count: int
    data: tuple[float, float]


class SurfaceSpec(msgspec.Struct, forbid_unknown_fields=True):
    """``[FAMILY]`` of a file of surfaces; the knots of each library in thousandths, the last axis changing first."""

    axis: dict[str, AxisSpec]
    thousandths: dict[str, str]
    interval: dict[str, tuple[float, float]] = {}
    penalty: float = 1.0
    own: float = 0.0
    common: float = 1.0
    source: str = ""
    date: str = ""


def surface_path(name: str) -> Path:
    """Return the file of the surfaces of a machine or a generation."""
    return shipped_folder() / FOLDER / f"{name}.toml"


def surface(name: str, family: Family, place: str) -> Surface:
    """Return the surface of a family in a shipped file.

    Parameters
    ----------
    name : of the file.
    family : the family.
    place : which table names the file, for messages.

    Raises
    ------
    InputFileError
        When there is no such file, it has no surface of the family, or it is damaged.
    """
    path = surface_path(name)
    known = sorted(one.stem for one in (shipped_folder() / FOLDER).glob("*.toml"))
    if name not in known:
        raise unknown_name("file of surfaces", name, known, place=f"{place}.surface", kind=InputFileError)
    if family.name not in read_surfaces(path):
        raise InputFileError(f"has no surface of {family.name}.", place=str(path), remedy=f"{place} names it.")
    return _surface(path, family)


@functools.cache
def _surface(path: Path, family: Family) -> Surface:
    return to_surface(path.stem, read_surfaces(path)[family.name], family, f"{path}: {family.name}")


@functools.cache
def read_surfaces(path: Path) -> Mapping[str, SurfaceSpec]:
    """Return the surfaces of a file as they stand there.

    Raises
    ------
    InputFileError
        When the file cannot be read or its content is wrong.
    """
    document: Any = read_document(path)
    try:
        return msgspec.convert(document, dict[str, SurfaceSpec])
    except msgspec.ValidationError as error:
        raise InputFileError(f"{error}.", place=str(path)) from None


def to_surface(name: str, spec: SurfaceSpec, family: Family, place: str) -> Surface:
    """Return a checked surface."""
    names = [axis.name for axis in family.axes]
    if list(spec.axis) != names:
        raise InputFileError(f"has the axes {', '.join(spec.axis)}; {family.name} has {', '.join(names)}.", place=place)
    axes = tuple(_axis(name, axis, f"{place}.axis.{name}") for name, axis in spec.axis.items())
    if ANY not in spec.thousandths:
        raise InputFileError(f"the key {ANY!r} is missing.", place=f"{place}.thousandths")
    for regime, (low, high) in spec.interval.items():
        if regime not in REGIMES or not 0 < low <= 1 <= high:
            raise InputFileError(f"{regime} = [{low:g}, {high:g}] is no interval.", place=f"{place}.interval")
    if not 0 <= spec.common <= 1:
        raise InputFileError(f"{spec.common:g} is no share.", place=f"{place}.common")
    shape = tuple(axis.count for axis in axes)
    sheets = {
        "" if library == ANY else library: Sheet(_values(text, shape, f"{place}.thousandths.{library}"))
        for library, text in spec.thousandths.items()
    }
    return Surface(name, axes, sheets, dict(spec.interval), spec.penalty, spec.own, spec.common, spec.source, spec.date)


def _axis(name: str, spec: AxisSpec, place: str) -> SurfaceAxis:
    if not (0 < spec.step <= 64 and 2 <= spec.count <= _MOST_KNOTS and spec.data[0] <= spec.data[1]):
        raise InputFileError(
            f"step {spec.step:g}, count {spec.count} and data {list(spec.data)} are no axis.",
            place=place,
            remedy="A step is above 0, there are two knots or more, and data rise.",
        )
    return SurfaceAxis(name, spec.first, spec.step, spec.count, *spec.data)


def _values(text: str, shape: tuple[int, ...], place: str) -> NDArray[np.float64]:
    try:
        values = np.array([int(number) for number in text.split()], dtype=np.float64) * UNIT
    except ValueError as error:
        raise InputFileError(f"{error}.", place=place) from None
    expected = int(np.prod(shape))
    if values.size != expected:
        raise InputFileError(f"has {values.size} knots; the axes have {expected}.", place=place)
    if np.abs(values).max() > MOST:
        raise InputFileError(
            f"{np.abs(values).max() / UNIT:.0f} is above {MOST / UNIT:.0f} thousandths: no correction is so large.",
            place=place,
        )
    return values.reshape(shape)


def gain(family: Family, on: Surface, sheet: Sheet, op: Operator, machine: Machine) -> tuple[Number, Any]:
    """Return what a surface adds to a kernel's time, as a share of it, and which points lie inside its data."""
    sizes = [axis.size(op, machine) for axis in family.axes]
    share: Any = family.surfaced(op)
    logarithm, inside = on.look_up(sizes, sheet)
    if isinstance(share, np.ndarray) or share != 1.0:
        logarithm, inside = share * logarithm, inside & (share == 1.0)
    if isinstance(logarithm, np.ndarray):
        return np.expm1(logarithm, out=logarithm), inside
    return math.expm1(logarithm), inside


def surface_text(name: str, surfaces: Mapping[str, Surface]) -> str:
    """Return the text of a file of surfaces."""
    head = (
        f"# Residual surfaces of the latency model for {name}: ln(measured / predicted) that is left of its closed\n"
        "# forms, at knots over log2 of the sizes, in thousandths; docs/concepts.md says what they are.\n"
        "# Written by scripts/fit_latency.py.\n"
    )
    return head + "".join(_block(family, one) for family, one in surfaces.items())


def _key(name: str) -> str:
    """Return a key of TOML: quoted where it names a dtype after the library."""
    return name if name.replace("_", "").replace("-", "").isalnum() else f'"{name}"'


def _block(family: str, one: Surface) -> str:
    lines = [f'\n[{family}]\nsource = "{one.source}"\ndate = "{one.date}"']
    lines.append(f"penalty = {one.penalty:g}  # variance of a row about the surface, over that of the surface")
    lines.append(f"own = {one.own:g}  # share of a library's own part in the latter")
    lines.append(f"common = {one.common:g}  # share of the mean that holds for a library that is not here")
    ends = ", ".join(f"{regime} = [{low:.3f}, {high:.3f}]" for regime, (low, high) in one.intervals.items())
    lines.append(f"interval = {{ {ends} }}\n\n[{family}.axis]  # octaves")
    for axis in one.axes:
        data = f"[{axis.lowest:.6g}, {axis.highest:.6g}]"
        lines.append(
            f"{axis.name} = {{ first = {axis.first:g}, step = {axis.step:g}, count = {axis.count}, data = {data} }}"
        )
    widths = [axis.count for axis in one.axes]
    row = int(np.prod(widths[-2:]))
    lines.append(f"\n[{family}.thousandths]  # a line for each {one.axes[-2].name} x {one.axes[-1].name}")
    for library, sheet in one.sheets.items():
        numbers = np.round(sheet.values / UNIT).astype(int).reshape(-1, row)
        rows = "\n".join(" ".join(map(str, line)) for line in numbers.tolist())
        # the parser finds the end of a literal string at once, and looks at each character of a basic one
        lines.append(f"{_key(library or ANY)} = '''\n{rows}\n'''")
    return "\n".join(lines) + "\n"

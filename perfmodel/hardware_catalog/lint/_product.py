"""Comparing a figure with that of the shipped product that a specification claims to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from perfmodel.core.units import format_si
from perfmodel.hardware_catalog.lint._compare import DOUBTFUL, ROUNDING, TOLERANCE, deviation, near
from perfmodel.hardware_catalog.lint._draft import Draft, Finding

#: (specification, key, value, expected value, code where nothing explains it) -> code of the mistake, and a remedy
Explain = Callable[[Draft, str, float, float, str], tuple[str, str]]


class FigureNames(NamedTuple):
    """The unit of a figure, and the codes of one that is rounded up, and of one that differs without a known cause."""

    unit: str
    rounded_up: str
    differs: str


def compare_with_product(draft: Draft, key: str, value: float, names: FigureNames, explain: Explain) -> Finding | None:
    """Return what is wrong about a figure beside that of the known product; None without one, or where they agree."""
    expected = draft.known(key)
    if draft.twin is None or expected is None or -TOLERANCE <= value / expected - 1 <= ROUNDING:
        return None
    product = draft.twin.spec.name
    found, known = format_si(value, names.unit), format_si(expected, names.unit)
    if near(value, expected):
        message = f"{found} is above the {known} of {product}: rounded up. Write the exact figure."
        return draft.finding(key, "warning", names.rounded_up, message)
    code, hint = explain(draft, key, value, expected, names.differs)
    doubtful = code == names.differs and -DOUBTFUL <= value / expected - 1 < 0
    message = f"found {found}, {product} has {known} ({deviation(value, expected)}). {hint}"
    return draft.finding(key, "warning" if doubtful else "error", code, message)

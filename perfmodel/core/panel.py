"""Lines over one axis: what a report shows beside its rows where a renderer can draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One line of a panel; None is a gap.

    Attributes
    ----------
    name : of the line.
    values : one for each place of the axis, in the unit of the panel.
    low, high : of a band around it; empty for none.
    """

    name: str
    values: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()


@dataclass(frozen=True)
class Panel:
    """Lines over one axis.

    Attributes
    ----------
    title : heading.
    x : places on the axis, rising.
    x_label : what they are; "time" for seconds since 1970.
    unit : SI unit of all lines; "fraction" for shares, "iB" for memory.
    lines : at least one.
    steps : whether a value holds until the next place.
    """

    title: str
    x: Sequence[float]
    x_label: str
    unit: str
    lines: tuple[Line, ...]
    steps: bool = False

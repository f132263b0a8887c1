"""Plots of the rows of records for `perfmodel plot`: one module for each kind, with a function ``record_plot``.

    def record_plot(pairs: Pairs, *, dtype: str | None, title: str | None) -> Figure: ...

Its arguments are each machine with its rows, the dtype to draw (None for all), and a heading or None.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfmodel.errors import unknown_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from perfmodel.core.hardware import Hardware

Rows = Sequence[Mapping[str, Any]]
#: machines, each with the rows measured or predicted on it
Pairs = Sequence[tuple["Hardware", Rows]]
_HELPERS = ("rows",)


def kind_names() -> tuple[str, ...]:
    """Return the kinds of plots, without importing any."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _HELPERS))


def check_kind(kind: str) -> str:
    """Return the kind.

    Raises
    ------
    UsageError
        When there is no such kind of plot.
    """
    if kind not in kind_names():
        raise unknown_name("kind of plot", kind, kind_names(), place="--kind")
    return kind


def usual_kind(pairs: Pairs) -> str:
    """Return the kind of plot that rows are drawn as where none is named.

    It is the roofline, or "traffic" where no row has a place under it: exchanges, and operators without arithmetic.
    """
    from perfmodel.render.plots.records.traffic import lacks_arithmetic

    rows = [row for _, of_machine in pairs for row in of_machine]
    return "traffic" if rows and lacks_arithmetic(rows) else "roofline"


def record_plot(kind: str, pairs: Pairs, *, dtype: str | None = None, title: str | None = None) -> Figure:
    """Return a plot of the rows of records.

    Raises
    ------
    UsageError
        When there is no such kind, or the rows contain nothing to draw.
    """
    module = importlib.import_module(f"{__name__}.{check_kind(kind)}")
    figure: Figure = module.record_plot(pairs, dtype=dtype, title=title)
    return figure

"""Rows of records under the rooflines of their machines."""

from __future__ import annotations

from matplotlib.figure import Figure

from perfmodel.render.plots.records import Pairs
from perfmodel.render.plots.roofline import roofline_figure


def record_plot(pairs: Pairs, *, dtype: str | None, title: str | None) -> Figure:
    """Return one roofline plot for each machine, side by side."""
    return roofline_figure(pairs, dtype=dtype, title=title)

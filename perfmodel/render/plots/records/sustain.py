"""Plot of a sustained run: the rate of each kernel over time, with clock, temperature and power."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from perfmodel.core.units import format_si
from perfmodel.errors import UsageError
from perfmodel.render.plots.figure import log_ticks, new_figure, printable
from perfmodel.render.plots.legend import add_legend, legend_height
from perfmodel.render.plots.palette import PALETTE
from perfmodel.render.plots.records import Pairs
from perfmodel.render.plots.records.rows import row_label, rows_of_dtype

Floats = NDArray[np.float64]

#: width of the axes, heights of the panels, gap between panels, margins [inches]
_AXES, _PANEL, _LOWER_PANEL, _SPACE, _LEFT, _RIGHT, _TOP, _XLABEL = 7.4, 2.3, 1.15, 0.18, 1.25, 0.25, 0.45, 0.6
#: distance from the axes to the middle of their label [inches]
_LABEL = 1.05
#: the axis starts at zero if values differ by more than the first factor, and is logarithmic beyond the second
_UNEQUAL, _VERY_UNEQUAL = 3.0, 10.0
_RATE = "rate"
#: series below the rate: key, name, unit
_READINGS = (("sm_clock_hz", "SM clock", "Hz"), ("temperature_c", "temperature", "°C"), ("power_w", "power", "W"))


@dataclass(frozen=True)
class _Series:
    """One kernel over time: end of each interval [s], the rate in it, and the readings of the device."""

    label: str
    color: str
    unit: str
    time_s: Floats
    rate: Floats
    readings: Mapping[str, Floats]


def record_plot(pairs: Pairs, *, dtype: str | None, title: str | None) -> Figure:
    """Return the time series of the rows of all machines."""
    return sustain_plot(rows_of_dtype([row for _, rows in pairs for row in rows], dtype), title)


def sustain_plot(rows: Iterable[Mapping[str, Any]], title: str | None = None) -> Figure:
    """Return the time series of a sustained run: rates above, readings of the device below, one colour for each kernel.

    Parameters
    ----------
    rows : rows of a bench record; those with a ``sustain`` are drawn: time_s [s], rate, rate_unit, and sm_clock_hz
        [Hz], temperature_c, power_w [W], each as long as time_s, or empty if the device does not report it.
    title : heading instead of the default one.

    Raises
    ------
    UsageError
        When no row has a series, or the numbers of times and rates of one differ.
    """
    kernels = _collect(rows)
    if not kernels:
        remedy = "Measure with: perfmodel bench OPS... --sustain 60 -o record.json."
        raise UsageError("no row has a time series to draw.", remedy=remedy)
    units = list(dict.fromkeys(series.unit for series in kernels))
    readings = [reading for reading in _READINGS if any(reading[0] in series.readings for series in kernels)]
    width = _LEFT + _AXES + _RIGHT
    below = _XLABEL + legend_height([series.label for series in kernels], width)
    figure, panels = _panels([_PANEL] * len(units) + [_LOWER_PANEL] * len(readings), width, below)
    for axes, unit in zip(panels, units, strict=False):
        _draw_rates(axes, [series for series in kernels if series.unit == unit], unit)
    for axes, (key, name, unit) in zip(panels[len(units) :], readings, strict=True):
        _draw_reading(axes, kernels, key, name, unit)
    panels[0].set_xlim(0.0, 1.01 * max(float(series.time_s[-1]) for series in kernels))
    panels[-1].set_xlabel("time since the kernel began [s]", fontsize=9)
    heading = printable(title or "Rate over time, back to back", 90)
    middle = 1 - 0.22 / figure.get_figheight()
    figure.text(0.5, middle, heading, ha="center", va="center", fontsize=10.5, parse_math=False)
    handles = [Line2D([], [], color=series.color, lw=1.6, label=series.label) for series in kernels]
    add_legend(figure, handles, width)
    return figure


def _panels(heights: Sequence[float], width: float, below: float) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels below one another that share the axis of time; all lengths in inches."""
    height = _TOP + sum(heights) + _SPACE * (len(heights) - 1) + below
    figure = new_figure(width, height)
    top = height - _TOP
    panels: list[Axes] = []
    for tall in heights:
        place = (_LEFT / width, (top - tall) / height, _AXES / width, tall / height)
        panels.append(figure.add_axes(place, sharex=panels[0] if panels else None))
        top -= tall + _SPACE
    for axes in panels[:-1]:
        axes.tick_params(labelbottom=False)
    return figure, panels


def _collect(rows: Iterable[Mapping[str, Any]]) -> list[_Series]:
    kernels: list[_Series] = []
    for row in rows:
        series = row.get("sustain")
        time_s = _numbers(series.get("time_s")) if isinstance(series, Mapping) else np.empty(0)
        if not isinstance(series, Mapping) or not time_s.size:
            continue
        readings = {key: _numbers(series.get(key)) for key, _, _ in _READINGS}
        rate = _numbers(series.get("rate"))
        if rate.size != time_s.size:
            raise UsageError(f"{row_label(row)}: its sustain has {time_s.size} times and {rate.size} rates.")
        # A list of another length has failed readings, and the times of the others are unknown.
        known = {
            key: values for key, values in readings.items() if values.size == time_s.size and not np.isnan(values).all()
        }
        color = PALETTE[len(kernels) % len(PALETTE)]
        kernels.append(_Series(row_label(row), color, str(series.get("rate_unit") or ""), time_s, rate, known))
    return kernels


def _numbers(values: Any) -> Floats:
    """Return a list as an array; null, a failed reading, becomes NaN and leaves a gap in the line."""
    if not isinstance(values, Sequence) or isinstance(values, str):
        return np.empty(0)
    return np.array([math.nan if value is None else float(value) for value in values], dtype=np.float64)


def _draw_rates(axes: Axes, kernels: Sequence[_Series], unit: str) -> None:
    for series in kernels:
        axes.plot(series.time_s, series.rate, color=series.color, lw=1.4, gid=f"rate {series.label}", **_marks(series))
    _finish(axes, [series.rate for series in kernels], _RATE, unit)


def _draw_reading(axes: Axes, kernels: Sequence[_Series], key: str, name: str, unit: str) -> None:
    known = [(series, series.readings[key]) for series in kernels if key in series.readings]
    for series, values in known:
        axes.plot(series.time_s, values, color=series.color, lw=1.1, gid=f"{key} {series.label}", **_marks(series))
    _finish(axes, [values for _, values in known], name, unit)


def _marks(series: _Series) -> dict[str, Any]:
    """Return the style of the points; short series get markers, since a single point has no line."""
    return {"marker": "o", "markersize": 3.0} if series.time_s.size <= 40 else {}


def _finish(axes: Axes, values: Sequence[Floats], name: str, unit: str) -> None:
    everything = np.concatenate(values)
    everything = everything[np.isfinite(everything)]
    low, high = (float(everything.min()), float(everything.max())) if everything.size else (0.0, 1.0)
    if low > 0 and high > _VERY_UNEQUAL * low:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.5, high * 1.5)
        axes.yaxis.set_major_locator(FixedLocator(log_ticks(*axes.get_ylim())))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        room = max(0.1 * (high - low), 0.01 * abs(high)) or 1.0
        axes.set_ylim(0.0 if low >= 0 and high > _UNEQUAL * low else low - room, high + room)
        axes.yaxis.set_major_locator(MaxNLocator(5 if name == _RATE else 3))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_si(value, unit) if unit else f"{value:g}"))
    axes.set_ylabel(name, fontsize=9)
    axes.yaxis.set_label_coords(-_LABEL / _AXES, 0.5)
    axes.tick_params(labelsize=8)
    axes.grid(color="0.92", zorder=0)
    axes.spines[["top", "right"]].set_visible(False)

"""Plot of accuracy: predicted over measured times, and the distribution of errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from perfmodel.accuracy.validate import Accuracy
from perfmodel.core.units import format_si
from perfmodel.errors import UsageError
from perfmodel.render.plots import plot
from perfmodel.render.plots.figure import new_figure, printable
from perfmodel.render.plots.palette import PALETTE

Floats = NDArray[np.float64]
#: most rows drawn as points: a random sample of more rows, with at least `_LEAST_POINTS` of each family
MOST_POINTS = 40_000
_LEAST_POINTS = 500
#: labels of a logarithmic axis at the least
_LEAST_TICKS = 3
#: errors marked by lines beside the identity, with their dashes
_BANDS = ((0.1, (0, (5, 3))), (0.2, (0, (1, 2))))
#: share of the rows that may lie outside the histogram
_OUTSIDE = 0.02
_BINS = 60
#: share of the height of the histogram that its legend takes
_LEGEND_SHARE = 0.13
_LEGEND_COLUMNS = 3
_ROW_INCHES = 0.24
_WIDTH, _HEIGHT = 11.0, 4.9


@plot.register
def accuracy_plot(accuracy: Accuracy) -> Figure:
    """Return predicted over measured times beside the distribution of errors, with one colour for each family.

    Raises
    ------
    UsageError
        When there are no rows.
    """
    if not len(accuracy):
        raise UsageError("a plot of accuracy needs at least one row.")
    families, codes = accuracy.labels("family")
    error = accuracy.predicted_s / accuracy.measured_s - 1.0
    below = 0.5 + _ROW_INCHES * -(-len(families) // _LEGEND_COLUMNS)
    height = _HEIGHT + below
    figure = new_figure(_WIDTH, height)
    bottom, tall = (below + 0.1) / height, (_HEIGHT - 0.6) / height
    left = figure.add_axes((0.075, bottom, tall * height / _WIDTH, tall))
    right = figure.add_axes((0.58, bottom, 0.39, tall))
    drawn = _sample(codes)
    _draw_times(left, accuracy.measured_s, accuracy.predicted_s, codes, drawn)
    _draw_errors(right, error, codes)
    part = "" if drawn.size == len(accuracy) else f", {drawn.size:,} drawn"
    left.set_title(f"predicted over measured time ({_rows(len(accuracy))}{part})", fontsize=10)
    figure.legend(
        handles=_legend(families, codes, error),
        loc="lower center",
        ncols=_LEGEND_COLUMNS,
        fontsize=8,
        frameon=False,
        handletextpad=0.3,
    )
    return figure


def _sample(codes: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the indices of the rows to draw, shuffled so that no family hides the others."""
    order = np.random.default_rng(0).permutation(codes.size)
    drawn = np.zeros(codes.size, dtype=bool)
    for count, code in zip(*np.unique(codes, return_counts=True)[::-1], strict=True):
        most = max(_LEAST_POINTS, MOST_POINTS * count // codes.size)
        drawn[np.flatnonzero(codes[order] == code)[:most]] = True
    return order[drawn]


def _draw_times(
    axes: Axes, measured_s: Floats, predicted_s: Floats, codes: NDArray[np.intp], drawn: NDArray[np.intp]
) -> None:
    everything = np.concatenate([measured_s, predicted_s])
    low, high = float(everything.min()) / 1.6, float(everything.max()) * 1.6
    ends = np.array([low, high])
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    colors = np.array([PALETTE[code % len(PALETTE)] for code in range(int(codes.max()) + 1)])
    axes.scatter(
        measured_s[drawn],
        predicted_s[drawn],
        s=max(2.0, min(14.0, 2e4 / drawn.size)),
        c=colors[codes[drawn]],
        alpha=0.5 if drawn.size > 500 else 0.8,
        linewidths=0,
        rasterized=True,
        zorder=3,
        gid="rows",
    )
    axes.plot(ends, ends, color="0.1", lw=1.0, zorder=4)
    for share, dashes in _BANDS:
        for factor in (1 + share, 1 / (1 + share)):
            axes.plot(ends, ends * factor, color="0.1", lw=0.7, ls=dashes, zorder=4)
    seconds = FuncFormatter(lambda value, _: format_si(value, "s", 3))
    few, narrow = high / low > 1e6, high / low < 1e2
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(FixedLocator(_few_ticks(low, high)) if narrow else LogLocator(numticks=7 if few else 12))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(seconds)
    axes.tick_params(labelsize=8)
    axes.set_xlabel("measured time")
    axes.set_ylabel("predicted time")
    axes.grid(color="0.92", zorder=0)
    handles = [Line2D([], [], color="0.1", lw=1.0, label="equal")]
    handles += [
        Line2D([], [], color="0.1", lw=0.7, ls=dashes, label=f"{share:.0%} off".replace("%", " %"))
        for share, dashes in _BANDS
    ]
    axes.legend(handles=handles, loc="upper left", fontsize=8, framealpha=0.9)


def _few_ticks(low_s: float, high_s: float) -> list[float]:
    """Return round times to label on a short logarithmic axis: of a decade not all nine, whose texts would touch.

    >>> [round(1e6 * tick) for tick in _few_ticks(20.6e-6, 97e-6)]
    [30, 50, 70]
    """
    decades = range(math.floor(math.log10(low_s)), math.ceil(math.log10(high_s)) + 1)
    inside: list[float] = []
    for steps in ((1, 2, 5), (1, 2, 3, 5, 7), (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8)):
        inside = [tick for decade in decades for step in steps if low_s <= (tick := step * 10.0**decade) <= high_s]
        if len(inside) >= _LEAST_TICKS:
            break
    return inside


def _draw_errors(axes: Axes, error: Floats, codes: NDArray[np.intp]) -> None:
    """Draw a histogram of each family's errors, and the range of the middle 80 % of all rows."""
    reach = _reach(error)
    edges = np.linspace(-reach, reach, _BINS + 1)
    highest = 0.0
    for code in range(int(codes.max()) + 1):
        mine = error[codes == code]
        shares = np.histogram(mine, edges)[0] / mine.size
        highest = max(highest, float(shares.max()))
        axes.stairs(shares, edges, color=PALETTE[code % len(PALETTE)], lw=1.3, zorder=3)
    low, median, high = np.quantile(error, (0.1, 0.5, 0.9))
    axes.axvspan(max(low, -reach), min(high, reach), color="0.93", zorder=0, lw=0, label="80 % of all rows")
    axes.axvline(0.0, color="0.5", lw=0.7, zorder=2)
    axes.axvline(min(max(median, -reach), reach), color="0.1", lw=1.1, ls=(0, (5, 3)), zorder=4, label="median")
    axes.legend(loc="upper right", fontsize=8, framealpha=0.9)
    outside = float((np.abs(error) > reach).mean())
    beyond = f"\n{100 * outside:.1f} % of the rows lie outside the plot" if outside else ""
    # 0.0 is added, since a small negative number would round to -0.0
    first, middle, last = (round(100 * value, 1) + 0.0 for value in (low, median, high))
    axes.set_title(
        f"error: median {middle:+.1f} %, 80 % of the rows from {first:+.1f} to {last:+.1f} %{beyond}", fontsize=10
    )
    axes.set_xlim(-reach, reach)
    axes.set_ylim(0, highest / (1.0 - _LEGEND_SHARE) or None)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g} %"))
    axes.tick_params(labelsize=8)
    axes.set_xlabel("predicted / measured - 1")
    axes.set_ylabel(f"share of the family's rows in each {200 * reach / _BINS:.2g} %")


def _reach(error: Floats) -> float:
    """Return the largest error on the axis: a multiple of 5 % from 5 % to 100 %."""
    return float(np.clip(np.ceil(20 * np.quantile(np.abs(error), 1 - _OUTSIDE)) / 20, 0.05, 1.0))


def _rows(count: int) -> str:
    """Return a number of rows as text.

    >>> _rows(1), _rows(1200)
    ('1 row', '1,200 rows')
    """
    return f"{count:,} row{'s' * (count != 1)}"


def _legend(families: Sequence[str], codes: NDArray[np.intp], error: Floats) -> list[Line2D]:
    handles = []
    for code, family in enumerate(families):
        mine = np.abs(error[codes == code])
        text = f"{printable(family, 30)}: {_rows(mine.size)}, MAPE {100 * mine.mean():.1f} %"
        color = PALETTE[code % len(PALETTE)]
        handles.append(Line2D([], [], color=color, marker="o", markersize=5, lw=1.3, label=text))
    return handles


def coverage_plot(levels: Sequence[float], observed: Mapping[str, Sequence[float]]) -> Figure:
    """Return the share of rows inside their interval over the interval's stated level, one line a series.

    Parameters
    ----------
    levels : stated levels, ascending, between 0 and 1.
    observed : name -> share of the rows inside at each level.
    """
    figure = new_figure(5.2, 4.6)
    axes = figure.add_axes((0.17, 0.13, 0.79, 0.83))
    axes.plot((0, 1), (0, 1), color="0.6", linewidth=1.0, linestyle=(0, (5, 3)), label="as stated")
    for (name, shares), color, marker in zip(observed.items(), PALETTE, "osD^v", strict=False):
        axes.plot(levels, shares, color=color, marker=marker, markersize=6, linewidth=1.4, label=name)
    for set_ticks, set_limits in ((axes.set_xticks, axes.set_xlim), (axes.set_yticks, axes.set_ylim)):
        set_ticks(levels)
        set_limits(0.4, 1.0)
    axes.xaxis.set_major_formatter(_percent_formatter())
    axes.yaxis.set_major_formatter(_percent_formatter())
    axes.set_xlabel("stated level of the interval")
    axes.set_ylabel("rows inside")
    axes.grid(color="0.9", linewidth=0.6)
    axes.legend(loc="upper left", frameon=False, fontsize=9)
    return figure


def _percent_formatter() -> FuncFormatter:
    return FuncFormatter(lambda share, _: f"{100 * share:.0f} %")

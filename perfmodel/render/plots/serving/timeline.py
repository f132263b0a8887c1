"""A simulated load over time: share of the KV cache in use, sequences that run, and requests that wait."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from perfmodel.errors import UsageError
from perfmodel.render.plots.figure import new_figure
from perfmodel.render.plots.palette import COLORS
from perfmodel.serving.replay import Replay, Times

#: columns of the plot: of more samples, each column shows their range
_COLUMNS = 900
#: largest share of the cache that is drawn over the axis of its own, as it would lie on the lower edge of the whole
_LITTLE = 0.1


def timeline_plot(replay: Replay, *, title: str = "") -> Figure:
    """Return a plot of the state of the engines over the time of a simulated load.

    Raises
    ------
    UsageError
        When nothing was simulated.
    """
    states = replay.states
    if not len(states.time_s):
        raise UsageError("a plot over time needs a simulated load.")
    figure = new_figure(7.6, 4.8)
    cache = figure.add_axes((0.1, 0.6, 0.87, 0.31))
    _range(cache, states.time_s, states.kv_share, COLORS[0], "KV cache in use")
    peak = float(np.max(states.kv_share))
    cache.set_ylim(0, 1.05 if peak > _LITTLE or peak <= 0 else 1.2 * peak)
    cache.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    cache.set_ylabel("KV cache")
    cache.tick_params(labelbottom=False)
    cache.set_title(title or f"{len(replay.requests)} requests", fontsize=10)
    counts = figure.add_axes((0.1, 0.12, 0.87, 0.42))
    _range(counts, states.time_s, states.running, COLORS[2], "running")
    _range(counts, states.time_s, states.queued, COLORS[1], "waiting in the queue")
    counts.set_ylim(0, max(1.0, 1.15 * float(np.max(np.maximum(states.running, states.queued), initial=1.0))))
    counts.yaxis.set_major_locator(MaxNLocator(integer=True))
    counts.set_ylabel("requests")
    counts.set_xlabel("time [s]")
    counts.legend(fontsize=8, loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=2, frameon=False)
    last = float(states.time_s[-1])
    for axes in (cache, counts):
        axes.set_xlim(0, last)
        axes.grid(color="0.92", zorder=0)
        axes.tick_params(labelsize=8)
    return figure


def _range(axes: Axes, times: Times, values: Times, color: str, label: str) -> None:
    """Draw a quantity over time; of many samples the range and the mean within each column."""
    if len(times) <= 2 * _COLUMNS:
        axes.plot(times, values, color=color, lw=1.1, label=label, gid=label)
        return
    edges = np.linspace(times[0], times[-1], _COLUMNS + 1)
    place = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, _COLUMNS - 1)
    used, first = np.unique(place, return_index=True)
    low, high = np.minimum.reduceat(values, first), np.maximum.reduceat(values, first)
    mean = np.add.reduceat(values, first) / np.diff(np.append(first, len(values)))
    axes.fill_between(edges[used], low, high, color=color, alpha=0.25, lw=0)
    axes.plot(edges[used], mean, color=color, lw=1.1, label=label, gid=label)

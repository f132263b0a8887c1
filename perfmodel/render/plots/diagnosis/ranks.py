"""The ranks of a job as a figure: their time by dimension, and the arrival of each at the exchanges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfmodel.diagnosis.ranks.summary import DIMENSIONS, EXPOSED
from perfmodel.render.plots.diagnosis import styles
from perfmodel.render.plots.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from perfmodel.diagnosis.ranks.job import Job

#: colours of the dimensions: those that the plot of one rank has for them
_COLOURS = {dimension: styles.COLORS[styles.COMMUNICATION if dimension == EXPOSED else dimension]
            for dimension in DIMENSIONS}  # fmt: skip
_MOST_LABELS = 32
#: ranks whose bars stand apart; gaps of more would be as narrow as a pixel, here drawn and there not
_MOST_APART = 64


def ranks_plot(job: Job) -> Figure:
    """Return a figure of a job: stacked time of each rank, and how late each rank arrives at every exchange."""
    figure = new_figure(11.0, max(3.6, min(9.0, 0.28 * len(job.ranks) + 2.6)))
    figure.set_layout_engine("constrained")
    bars, skew = figure.subplots(1, 2)
    _bars(bars, job)
    _skew(skew, job)
    return figure


def _bars(axes: Axes, job: Job) -> None:
    left = np.zeros(len(job.ranks))
    place = np.arange(len(job.ranks))
    apart = len(job.ranks) <= _MOST_APART
    for dimension in DIMENSIONS:
        times = np.array([1e3 * rank.times_s[dimension] for rank in job.ranks])
        if times.any():
            high, colour = 0.8 if apart else 1.0, _COLOURS[dimension]
            axes.barh(place, times, high, left=left, color=colour, label=dimension, antialiased=apart)
            left += times
    axes.set_xlabel("time of the window [ms]")
    _rank_axis(axes, job)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.02), ncols=2, frameon=False, fontsize="small")


def _skew(axes: Axes, job: Job) -> None:
    """Draw one column for each exchange: the colour of a rank says how long after the first one it came."""
    late = np.full((len(job.ranks), len(job.exchanges)), np.nan)
    for column, one in enumerate(job.exchanges):
        late[one.ranks, column] = 1e3 * (one.start_s - one.start_s.min())
    image = axes.imshow(late, aspect="auto", origin="lower", cmap="cividis", interpolation="nearest")
    axes.set_xlabel("exchange, in the order of time")
    axes.set_title("arrival after the first rank", fontsize="medium")
    _rank_axis(axes, job)
    axes.figure.colorbar(image, ax=axes, label="[ms]")


def _rank_axis(axes: Axes, job: Job) -> None:
    """Label the ranks, the first at the top, as tables list them."""
    every = -(-len(job.ranks) // _MOST_LABELS)
    places = np.arange(0, len(job.ranks), every)
    axes.set_yticks(places, [f"rank {job.numbers[index]}" for index in places])
    axes.set_ylim(len(job.ranks) - 0.5, -0.5)

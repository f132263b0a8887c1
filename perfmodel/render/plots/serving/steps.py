"""The time of a step against the sequences that run, stacked by term: from weights over keys and values to compute."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from perfmodel.core.units import format_si
from perfmodel.core.vocabulary import Limiter
from perfmodel.errors import UsageError
from perfmodel.render.plots.figure import new_figure, printable
from perfmodel.render.plots.palette import PALETTE
from perfmodel.serving.load_report import deployment_name
from perfmodel.serving.points import Point

#: terms from the bottom of the stack, with their names in the legend
_TERMS = {
    "weights": "products",
    "experts": "experts",
    "kv": "keys and values",
    "prefill": "prompt attention",
    "exchange": "exchange between GPUs",
    "sends": "sends between stages",
    "kernels": "norms, activations",
    "head": "logits and sampling",
    "gaps": "gaps between kernels",
    "host": "host",
    "encoder": "encoder of sound",
}
_LONGEST = 44
_REGIONS = {Limiter.HBM: "memory-bound", Limiter.COMPUTE: "compute-bound", Limiter.LINK: "exchange-bound",
            Limiter.HOST: "host-bound", Limiter.LAUNCH: "launch-bound"}  # fmt: skip


def steps_plot(points: Sequence[Point]) -> Figure:
    """Return a plot of the mean step of the points of the first deployment, stacked by term, over its sequences.

    Raises
    ------
    UsageError
        When there are not two loads of one deployment.
    """
    own = [point for point in points if point.facts == points[0].facts]
    own = list({round(point.state["batch"], 6): point for point in own}.values())
    own.sort(key=lambda point: point.state["batch"])
    if len(own) < 2:
        raise UsageError("a plot of steps over batches needs two loads.", remedy="Give a range: --concurrency 1..256.")
    batches = np.array([point.state["batch"] for point in own])
    terms = [term for term in _TERMS if any(point.terms_s.get(term) for point in own)]
    figure = new_figure(7.6, 4.8)
    axes = figure.add_axes((0.11, 0.13, 0.56, 0.76))
    heights = [[point.terms_s.get(term, 0.0) for point in own] for term in terms]
    colors = [PALETTE[list(_TERMS).index(term) % len(PALETTE)] for term in terms]
    areas = axes.stackplot(batches, heights, labels=[_TERMS[term] for term in terms], colors=colors, alpha=0.85, lw=0)
    for area in areas:
        area.set_gid("term")
    low, high = ([point.step_s[end] for point in own] for end in (1, 2))
    axes.plot(batches, low, color="0.2", lw=0.9, ls=(0, (4, 2)), label="80 % interval", gid="interval")
    axes.plot(batches, high, color="0.2", lw=0.9, ls=(0, (4, 2)), gid="interval")
    axes.set_xscale("log", base=2)
    axes.set_xlim(batches[0], batches[-1])
    axes.set_ylim(0, 1.12 * max(high))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_si(value, "s", 3)))
    axes.set_xlabel("sequences that run")
    axes.set_ylabel("mean step")
    axes.set_title(_title(points), fontsize=10, parse_math=False)
    _regions(figure, own, batches)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(0.68, 0.5), fontsize=8, frameon=False)
    return figure


def _title(points: Sequence[Point]) -> str:
    """Return the heading; of several deployments it says that the first is drawn, and which it is."""
    facts = [point.facts for point in points]
    first = deployment_name(facts[0], facts)
    several = len({deployment_name(fact, facts) for fact in facts})
    if several == 1:
        return f"Terms of a step on {printable(first, _LONGEST)}"
    return f"Terms of a step, {printable(first, _LONGEST)}: the first of {several} deployments"


def _regions(figure: Figure, points: Sequence[Point], batches: np.ndarray) -> None:
    """Write at the top which resource limits a step, where that changes."""
    axes = figure.axes[0]
    start = 0
    for index in range(1, len(points) + 1):
        if index < len(points) and _region(points[index]) == _region(points[start]):
            continue
        left = batches[start] if start == 0 else np.sqrt(batches[start - 1] * batches[start])
        right = batches[-1] if index == len(points) else np.sqrt(batches[index - 1] * batches[index])
        if start:
            axes.axvline(left, color="0.3", lw=0.8, ls=(0, (1, 2)))
        if np.log(right / left) > 0.12 * np.log(batches[-1] / batches[0]):
            last = index == len(points)
            axes.text(right * 0.97 if last else np.sqrt(left * right), 0.985, _region(points[start]),
                      transform=axes.get_xaxis_transform(), ha="right" if last else "center", va="top", fontsize=8,
                      color="0.2")  # fmt: skip
        start = index


def _region(point: Point) -> str:
    largest = max(point.terms_s, key=lambda term: point.terms_s[term])
    if point.limiter == Limiter.HBM and largest == "kv":
        return "KV-bound"
    if point.limiter == Limiter.HBM and largest in ("weights", "experts"):
        return "weights-bound"
    return _REGIONS.get(point.limiter, str(point.limiter))

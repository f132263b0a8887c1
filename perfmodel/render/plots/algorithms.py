"""Plot of the times of algorithms over the size of their problem, with the sizes at which the fastest changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from perfmodel.core.units import format_si
from perfmodel.prediction.algorithms.choice import Choice
from perfmodel.render.plots import plot
from perfmodel.render.plots.figure import new_figure, printable
from perfmodel.render.plots.labels import LabelPlacer

#: colours that people who see colours differently tell apart (Okabe and Ito 2008), then a brown; grey is the key's
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F3C8D", "#000000", "#8B5A2B")
_KEY, _DASHES = "0.5", (0, (4, 3))
_WIDTH, _HEIGHT = 7.2, 4.4
#: most panels of a figure
_MOST_PANELS = 12


#: problem -> algorithm -> sizes and times that were measured [s]
Measured = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]


def algorithms_plot(choices: Sequence[Choice], *, measured: Measured = MappingProxyType({})) -> Figure:
    """Return one panel for each choice: time over size, both logarithmic, a curve for each algorithm.

    Curves of algorithms that do not apply at the chosen size are dashed. A dot marks a size at which the fastest
    changes, with the size and what is fastest from there on. With ``measured`` times, which are crosses, only their
    algorithms are drawn, over their sizes. An algorithm has one colour in all panels.
    """
    shown = list(choices)[:_MOST_PANELS]
    figure = new_figure(_WIDTH, _HEIGHT * len(shown))
    panels = figure.subplots(len(shown), 1, squeeze=False)[:, 0]
    figure.subplots_adjust(
        left=0.11, right=0.75, top=1 - 0.4 / (_HEIGHT * len(shown)), bottom=0.5 / (_HEIGHT * len(shown)), hspace=0.3
    )
    shades = _shades([list(choice.curves) for choice in shown])
    for axes, choice in zip(panels, shown, strict=True):
        _draw(axes, choice, measured.get(choice.problem.name, {}), shades)
    return figure


def _shades(panels: Sequence[Sequence[str]]) -> dict[str, str]:
    """Return algorithm -> colour: the first that no other algorithm of its panel has.

    >>> _shades([["a", "b"], ["b", "c"]])
    {'a': '#0072B2', 'b': '#D55E00', 'c': '#0072B2'}
    """
    shades: dict[str, str] = {}
    for names in panels:
        for name in names:
            taken = [shades[other] for other in names if other in shades]
            shades.setdefault(name, min(_COLORS, key=taken.count))
    return shades


@plot.register(Choice)
def _(result: Choice | Sequence[Choice]) -> Figure:
    return algorithms_plot([result] if isinstance(result, Choice) else result)


def _draw(
    axes: Axes, choice: Choice, measured: Mapping[str, Sequence[tuple[float, float]]], shades: Mapping[str, str]
) -> None:
    sizes, handles = np.asarray(choice.sizes), []
    applies = {row.algorithm: row.applies for row in choice.rows}
    for name, times in choice.curves.items():
        column, shade = np.asarray(times), shades[name]
        if not np.isfinite(column).any() or (measured and name not in measured):
            continue
        if points := measured.get(name):
            axes.plot(*zip(*points, strict=True), "x", color=shade, ms=6, mew=1.6, gid=f"measured {name}")
        style = "-" if applies[name] else _DASHES
        handles += axes.plot(sizes, column, color=shade, ls=style, lw=1.7, label=name, gid=name)
    if not all(applies[str(handle.get_label())] for handle in handles):
        handles.append(Line2D([], [], color=_KEY, ls=_DASHES, lw=1.7, label="does not apply"))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=9))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _binary(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_si(value, "s", 3)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=8.5)
    axes.grid(which="major", color="0.9", lw=0.6)
    axes.set_xlabel(choice.problem.size, fontsize=9)
    axes.set_ylabel("time of one call", fontsize=9)
    axes.set_title(_title(choice), fontsize=10, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8.5, frameon=False)
    if measured:
        ends = [size for points in measured.values() for size, _ in points]
        axes.set_xlim(min(ends) / 1.5, max(ends) * 1.5)
        inside = (sizes >= min(ends)) & (sizes <= max(ends))
        shown = [np.asarray(choice.curves[name])[inside] for name in measured if name in choice.curves]
        values = np.concatenate([*shown, [time for points in measured.values() for _, time in points]])
        values = values[np.isfinite(values)]
        axes.set_ylim(values.min() / 2.0, values.max() * 2.0)
    else:
        _mark(axes, choice, sizes)


def _mark(axes: Axes, choice: Choice, sizes: np.ndarray) -> None:
    """Mark the sizes at which the fastest changes."""
    placer = LabelPlacer(axes)
    for times in choice.curves.values():
        column = np.asarray(times)
        seen = np.isfinite(column)
        placer.block(placer.points_of(np.column_stack([sizes[seen], column[seen]])), 4.0, 0.5)
    for item in choice.crossovers:
        axes.plot([item.size], [item.time_s], "o", ms=5, mfc="white", mec="0.1", zorder=5, gid="crossover")
    named = [((item.size, item.time_s), f"{_binary(item.size)}: {item.after}") for item in choice.crossovers]
    placer.label(named, fontsize=8)


def _title(choice: Choice) -> str:
    values = choice.op.params()
    varied = {"channels": ("c", "k"), "m = n = k": ("m", "n", "k")}.get(choice.problem.size, (choice.problem.size,))
    given = [key for key in choice.op.given() if key not in (*varied, "algorithm")]
    fixed = " ".join(f"{key}={_value(values[key])}" for key in given)
    return printable(f"{choice.problem.name} {fixed} {choice.op.dtype} on {choice.hardware.name}", 92)


def _value(value: object) -> str:
    """Return the value of a dimension as the command line has it.

    >>> _value(True), _value(0.5), _value(64)
    ('true', '0.5', '64')
    """
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _binary(value: float) -> str:
    """Return a size with binary prefixes where it is a power of two of at least 1024, else as it is.

    >>> _binary(65536.0), _binary(1500.0), _binary(97.0)
    ('64Ki', '1.46Ki', '97')
    """
    for prefix, scale in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if value >= scale:
            return f"{value / scale:.3g}{prefix}"
    return f"{value:.3g}"

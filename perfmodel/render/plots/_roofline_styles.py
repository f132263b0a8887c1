"""Which shape and colour stand for what on a roofline plot, and the legend that says so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from matplotlib.colors import to_hex, to_rgb
from matplotlib.lines import Line2D

from perfmodel.render.plots._roofline_points import Mark
from perfmodel.render.plots.figure import printable

#: Okabe and Ito 2008, "Color universal design": told apart with any colour vision; its yellow is too pale for white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
#: The same, and half-way to white for what is beyond the first seven.
PALETTE = COLORS + tuple(to_hex((0.5 + 0.5 * r, 0.5 + 0.5 * g, 0.5 + 0.5 * b)) for r, g, b in map(to_rgb, COLORS))
SHAPES = ("o", "s", "^", "D", "v", "P", "X", "p", "<", ">", "h", "*", "d", "8")
CEILING_COLOR = "0.15"
DASHES = (0.0, (5.0, 3.0))
#: Hollow markers of points that kernels were measured for.
_NEUTRAL = "0.35"
_SIZE = 7.0


@dataclass(frozen=True)
class Styles:
    """A shape for each operator; a colour for each kernel, or for each operator where nothing was measured."""

    ops: tuple[str, ...]
    kernels: tuple[str, ...]

    @classmethod
    def of(cls, panels: Iterable[Iterable[Mark]]) -> Styles:
        """Give the operators and kernels of all panels their shapes and colours, in order of appearance."""
        marks = [mark for panel in panels for mark in panel]
        kernels = (measured.kernel for mark in marks for measured in mark.measured)
        return cls(tuple(dict.fromkeys(mark.op for mark in marks)), tuple(dict.fromkeys(kernels)))

    def color(self, op: str, kernel: str | None = None) -> str:
        """Return the colour of a kernel's filled marker, or of an operator's hollow one."""
        if kernel is not None:
            index = self.kernels.index(kernel)
            return PALETTE[index % len(PALETTE)]
        return _NEUTRAL if self.kernels else COLORS[self.ops.index(op) % len(COLORS)]

    def marker(self, op: str, kernel: str | None, size: float) -> Line2D:
        """Return a marker without places: filled for a kernel, hollow without one."""
        color = self.color(op, kernel)
        return Line2D(
            [],
            [],
            linestyle="",
            marker=SHAPES[self.ops.index(op) % len(SHAPES)],
            markersize=size,
            markeredgecolor="white" if kernel is not None else color,
            markerfacecolor=color if kernel is not None else "none",
        )


def legend_handles(styles: Styles, sustained: bool) -> list[Line2D]:
    """Return the legend: shapes of operators, colours of kernels, and what hollow and dashed mean."""
    made = []
    for op in styles.ops:
        handle = styles.marker(op, None, _SIZE)
        handle.set_label(op)
        made.append(handle)
    # A kernel's colour is shown as a bar: a marker would look like an operator's.
    made += [
        Line2D([], [], color=styles.color("", kernel), linewidth=6, label=printable(kernel, 40), solid_capstyle="butt")
        for kernel in styles.kernels
    ]
    if styles.ops:
        made.append(_circle(False, "hollow: attainable"))
    if styles.kernels:
        made.append(_circle(True, "filled: achieved"))
    if sustained:
        made.append(Line2D([], [], color=CEILING_COLOR, linewidth=1.5, label="datasheet"))
        made.append(Line2D([], [], color=CEILING_COLOR, linewidth=0.9, linestyle=DASHES, label="sustained"))
    return made


def _circle(filled: bool, label: str) -> Line2D:
    return Line2D(
        [],
        [],
        linestyle="",
        marker="o",
        markersize=_SIZE,
        color=_NEUTRAL,
        markerfacecolor=_NEUTRAL if filled else "none",
        label=label,
    )

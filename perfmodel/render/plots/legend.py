"""The legend below the axes of a figure: as many columns as its labels leave room for."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.figure import Figure

#: height of a row (1.4 times its 8 pt text), width of a character of that text [inches]
_LEGEND_ROW, _LETTER = 0.16, 0.07


def legend_columns(labels: Sequence[str], width_inches: float) -> int:
    """Return the number of legend columns that fit side by side."""
    longest = max((len(label) for label in labels), default=1)
    return max(1, min(len(labels), int(width_inches / (longest * _LETTER + 0.55))))


def legend_height(labels: Sequence[str], width_inches: float) -> float:
    """Return the height of the legend [inches]."""
    if not labels:
        return 0.0
    return _LEGEND_ROW * -(-len(labels) // legend_columns(labels, width_inches)) + 0.1


def add_legend(figure: Figure, handles: Sequence[Artist], width_inches: float) -> None:
    """Write the legend at the bottom of a figure."""
    labels = [str(handle.get_label()) for handle in handles]
    legend = figure.legend(
        handles=list(handles),
        loc="lower center",
        ncols=legend_columns(labels, width_inches),
        fontsize=8,
        frameon=False,
        borderpad=0.2,
        labelspacing=0.35,
        columnspacing=1.4,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)

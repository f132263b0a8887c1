"""Rows of a bench record for plots: selection by dtype, labels, and a legend below the axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from perfmodel.core.dtypes import canonical_dtype
from perfmodel.render.plots.figure import printable
from perfmodel.render.plots.records import Rows

LONGEST_LABEL = 72
#: height of a legend row (1.4 times its 8 pt text), width of a character of that text [inches]
_LEGEND_ROW, _LETTER = 0.16, 0.07


def rows_of_dtype(rows: Rows, dtype: str | None) -> Rows:
    """Return the rows with a dtype; None returns all rows."""
    canonical = canonical_dtype(dtype, place="--dtype") if dtype else None
    return [row for row in rows if canonical in (None, row["dtype"])]


def row_label(row: Mapping[str, Any], dimensions: str | None = None) -> str:
    """Return "gemm m=64 n=64 k=64 fp16 torch.matmul" for a row; ``dimensions`` replaces the row's own."""
    sizes = str(row.get("dimensions") or "") if dimensions is None else dimensions
    words = (row.get("name") or row.get("op"), sizes, row.get("dtype"), row.get("kernel"))
    return printable(" ".join(str(word) for word in words if word), LONGEST_LABEL)


def legend_columns(labels: Sequence[str], width_inches: float) -> int:
    """Return the number of legend columns that fit side by side."""
    longest = max((len(label) for label in labels), default=1)
    return max(1, min(len(labels), int(width_inches / (longest * _LETTER + 0.55))))


def legend_height(labels: Sequence[str], width_inches: float) -> float:
    """Return the height of the legend [inches]."""
    if not labels:
        return 0.0
    return _LEGEND_ROW * -(-len(labels) // legend_columns(labels, width_inches)) + 0.1


def add_legend(figure: Figure, handles: Sequence[Line2D], width_inches: float) -> None:
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

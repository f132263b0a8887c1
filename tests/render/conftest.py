"""What every plot is tested for: no text is cut off, and none lies on another."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text


def _seen(figure: Figure) -> list[Text]:
    """The texts of a figure that are drawn: not the labels of ticks outside of the limits."""
    unseen = {
        label
        for axes in figure.axes
        for axis, (low, high) in ((axes.xaxis, sorted(axes.get_xlim())), (axes.yaxis, sorted(axes.get_ylim())))
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
        if not low <= tick.get_loc() <= high
        for label in (tick.label1, tick.label2)
    }
    found = figure.findobj(Text)
    return [text for text in found if text.get_text().strip() and text.get_visible() and text not in unseen]


@pytest.fixture(scope="session")
def check_texts() -> Callable[[Figure], None]:
    """Return the check that every text of a figure lies inside of it, and on no other text."""

    def check(figure: Figure) -> None:
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw(renderer)
        boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in _seen(figure)]
        for text, box in boxes:
            inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
            assert inside, text
        for (first, one), (second, other) in itertools.combinations(boxes, 2):
            width = min(one.x1, other.x1) - max(one.x0, other.x0)
            height = min(one.y1, other.y1) - max(one.y0, other.y0)
            assert min(width, height) <= 1.0, (first, second)

    return check

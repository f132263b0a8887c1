"""The plot of panels: every line, band and name has its place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.figure import Figure

from perfmodel.core.panel import Line, Panel
from perfmodel.errors import UsageError
from perfmodel.render.plots.panels import panels_plot

TIMES = [1.79e9 + 60.0 * minute for minute in range(60)]


def panel(title: str, unit: str, *names: str, most: float = 1.0) -> Panel:
    lines = tuple(Line(name, [most * (place % 7) / 6 for place in range(60)]) for name in names)
    return Panel(title, TIMES, "time", unit, lines)


def test_texts_are_inside_and_apart(check_texts: Callable[[Figure], None]) -> None:
    gpus = [f"gpu {number}, {way}" for number in range(8) for way in ("sent", "received")]
    figure = panels_plot(
        [
            panel("Use of the GPUs", "fraction", *(f"gpu {number}" for number in range(8))),
            panel("Traffic over NVLink", "B/s", *gpus, most=4.5e11),
            panel("Memory of the process", "iB", "process 7", most=3e10),
            panel("Training: time of a step", "s", "measured", "expected", "slow end of 80 %", most=1.4),
            panel("Temperature", "°C", "gpu $0$ \n a name that never ends " * 4, most=70),
        ],
        "Readings of run.jsonl",
        ["gpu 0: memory leak: its memory grows by 1 GiB a minute and " + "so on " * 60],
    )
    check_texts(figure)
    shares, links, memory, *_ = figure.axes
    assert shares.get_ylim()[0] == 0
    assert len(links.get_lines()) == 8
    assert "the first 8 of 16 lines" in links.get_title(loc="left")
    assert any("GiB" in tick.get_text() for tick in memory.get_yticklabels())


def test_a_band_lies_around_its_line() -> None:
    line = Line("", [1.0, None, 2.0], [0.5, None, 1.5], [1.5, None, 2.5])
    (axes,) = panels_plot([Panel("Power", [0.0, 1.0, 2.0], "time", "W", (line,))]).axes
    assert len(axes.collections) == 1
    assert axes.get_ylim()[1] > 2.5
    assert axes.get_legend() is None, "one line without a name"


def test_nothing_to_draw_is_one_message() -> None:
    with pytest.raises(UsageError, match="no two readings"):
        panels_plot([])


@pytest.mark.parametrize("span_s", [0.4, 3.0, 6.0, 8.0, 45.0, 130.0, 700.0, 7e3, 2e5, 5e6])
@pytest.mark.parametrize("shift_s", [0.0, 0.37, 41.0])
def test_the_time_of_a_span_of_any_length_has_labels(span_s: float, shift_s: float) -> None:
    times = list(1.79e9 + shift_s + np.linspace(0.0, span_s, 20))
    (axes,) = panels_plot([Panel("Power", times, "time", "W", (Line("", [1.0] * 20),))]).axes
    low, high = axes.get_xlim()
    assert 2 <= sum(low <= tick <= high for tick in axes.get_xticks()) <= 8

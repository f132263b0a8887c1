"""The plot of a served load over time: shares and counts can be read off their axes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from perfmodel.render.plots.serving.timeline import timeline_plot


def _figure(peak: float, most: int = 3) -> Figure:
    """Return the plot of a load whose cache fills up to a share, with a few requests."""
    shape = np.array([0.0, 0.5, 1.0, 0.2])
    states = SimpleNamespace(
        time_s=np.arange(4.0), kv_share=peak * shape, running=np.round(most * shape), queued=np.zeros(4)
    )
    replay: Any = SimpleNamespace(states=states, requests=range(9))
    figure = timeline_plot(replay)
    figure.canvas.draw()
    return figure


@pytest.mark.parametrize(("peak", "top"), [(0.0, 1.05), (0.002, 0.0024), (0.5, 1.05), (1.0, 1.05)])
def test_a_cache_that_is_hardly_used_is_seen(peak: float, top: float) -> None:
    cache, _ = _figure(peak).axes
    assert cache.get_ylim() == pytest.approx((0.0, top))
    assert all(label.get_text().endswith(" %") for label in cache.get_yticklabels())


@pytest.mark.parametrize("most", [1, 3, 40])
def test_requests_are_counted_in_whole_numbers(most: int) -> None:
    _, counts = _figure(0.5, most).axes
    assert all(tick == round(tick) for tick in counts.get_yticks())

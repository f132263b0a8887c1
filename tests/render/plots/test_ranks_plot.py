"""The figure of a job: its ranks stand in the order of the table."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.colors import to_rgba

from perfmodel.diagnosis.ranks.job import join
from perfmodel.diagnosis.ranks.summary import summarise
from perfmodel.formats import read_profile
from perfmodel.render.plots.diagnosis import styles
from perfmodel.render.plots.diagnosis.ranks import ranks_plot

FOLDER = Path(__file__).parents[2] / "diagnosis" / "ranks" / "traces" / "ddp_4_slow_rank"


def test_the_first_rank_is_at_the_top_of_both_parts() -> None:
    job = join([summarise(read_profile(path)) for path in sorted(FOLDER.glob("*.gz"))])
    figure = ranks_plot(job)
    figure.canvas.draw()
    bars, skew = figure.axes[:2]
    for axes in (bars, skew):
        height = {
            label.get_text(): axes.transData.transform((0.0, place))[1]
            for label, place in zip(axes.get_yticklabels(), axes.get_yticks(), strict=True)
        }
        assert sorted(height, key=height.__getitem__, reverse=True) == [f"rank {number}" for number in job.numbers]
    # the bar of a rank is as long as its window, at the place of its label
    ends = {}
    for bar in bars.patches:
        place = round(bar.get_y() + bar.get_height() / 2)
        ends[place] = max(ends.get(place, 0.0), bar.get_x() + bar.get_width())
    for place, rank in enumerate(job.ranks):
        assert ends[place] == pytest.approx(1e3 * sum(rank.times_s.values()))


def test_a_dimension_has_the_colour_that_it_has_in_the_plot_of_one_rank() -> None:
    job = join([summarise(read_profile(path)) for path in sorted(FOLDER.glob("*.gz"))])
    legend = ranks_plot(job).axes[0].get_legend()
    assert legend is not None
    shown = {text.get_text(): patch.get_facecolor() for text, patch in
             zip(legend.get_texts(), legend.get_patches(), strict=True)}  # fmt: skip
    assert shown["compute"] == to_rgba(styles.COLORS["compute"])
    assert shown["exposed communication"] == to_rgba(styles.COLORS[styles.COMMUNICATION])
    assert len(set(shown.values())) == len(shown)


@pytest.mark.parametrize(("most", "height"), [(4, 0.8), (3, 1.0)])
def test_bars_of_many_ranks_leave_no_gaps_of_a_pixel(monkeypatch: pytest.MonkeyPatch, most: int, height: float) -> None:
    monkeypatch.setattr("perfmodel.render.plots.diagnosis.ranks._MOST_APART", most)
    job = join([summarise(read_profile(path)) for path in sorted(FOLDER.glob("*.gz"))])
    bars = ranks_plot(job).axes[0].patches
    assert {round(bar.get_height(), 9) for bar in bars} == {height}

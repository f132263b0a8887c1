"""The plot of changes: dots and intervals stand where the figures say, and every label can be read."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from matplotlib.text import Text

from perfmodel.comparison.compare import Rules, compare
from perfmodel.comparison.noise import Centre
from perfmodel.comparison.pairing import BenchRow, BenchRun
from perfmodel.errors import UsageError
from perfmodel.render.plots.comparison import COLORS, MOST_ROWS, comparison_plot


def run(times, names=None, error=0.002, devices=None):
    rows = [
        BenchRow(
            {"op": name, "name": name, "device": devices[i] if devices else ""},
            Centre(time, error if time < 50 else 1.0, 50.0, 51, "samples"),
        )
        for i, (time, name) in enumerate(zip(times, names or [f"op{i}" for i in range(len(times))], strict=True))
    ]
    return BenchRun("record.json", tuple(rows), "cuda")


def comparison(ratios, names=None, limit=None, devices=None):
    return compare(
        [run([1.0] * len(ratios), names, devices=devices)],
        [run(ratios, names, devices=devices)],
        Rules(limit=limit, drift=0.005),
    )


def drawn(figure, gid):
    return [line for line in figure.axes[0].get_lines() if line.get_gid() == gid]


def texts(figure):
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def test_dots_and_intervals_are_those_of_the_changes_and_the_largest_slowdown_is_on_top():
    found = comparison([1.0, 1.3, 0.8])
    figure = comparison_plot(found)
    by_place = sorted(found.changes, key=lambda change: -change.change)
    assert [line.get_xdata()[0] for line in drawn(figure, "change")] == [change.change for change in by_place]
    for line, change in zip(drawn(figure, "interval"), by_place, strict=True):
        assert list(line.get_xdata()) == [change.low, change.high]
        assert line.get_color() == COLORS[change.verdict]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["op1", "op0", "op2"]
    assert {"+30.0 %", "+0.0 %", "-20.0 %"} <= set(texts(figure))


def test_the_gate_is_a_line_and_the_threshold_a_band():
    axes = comparison_plot(comparison([1.0], limit=0.05)).axes[0]
    assert [line.get_xdata()[0] for line in axes.get_lines() if line.get_gid() == "limit"] == [0.05]
    (band,) = [patch for patch in axes.patches if patch.get_gid() == "threshold"]
    assert (band.get_x(), band.get_width()) == (pytest.approx(-0.02), pytest.approx(0.04))


def test_a_change_or_interval_that_is_far_larger_than_the_others_ends_in_an_arrow():
    figure = comparison_plot(comparison([1.01] * 20 + [60.0]))
    high = figure.axes[0].get_xlim()[1]
    assert high < 3.5
    assert len(drawn(figure, "change")) == 20
    assert [line.get_xdata()[0] for line in drawn(figure, "cut")] == [high]
    assert "x 60" in texts(figure)


def test_of_many_rows_those_that_change_most_are_drawn():
    ratios = [1.0] * 30 + list(np.linspace(1.1, 2.0, MOST_ROWS))
    figure = comparison_plot(comparison(ratios))
    assert len(drawn(figure, "change")) == MOST_ROWS
    assert min(line.get_xdata()[0] for line in drawn(figure, "change")) == pytest.approx(0.1)
    assert any(f"{MOST_ROWS} of 90 rows" in text for text in texts(figure))


@pytest.mark.parametrize(
    ("ratios", "names"),
    [
        ([1.0], ["a"]),
        ([1.05, 0.9, 1.0], ["void k<" + "x" * 300, "$a_{$ " + "y" * 200, "z"]),
        (list(np.linspace(0.5, 3.0, 60)), None),
        (list(np.linspace(0.5, 3.0, 90)), list(map(str, range(90)))),
    ],
)
def test_no_text_is_cut_off_or_lies_on_another(check_texts, ratios, names):
    check_texts(comparison_plot(comparison(ratios, names, limit=0.05)))


def test_rows_of_several_devices_say_which():
    figure = comparison_plot(comparison([1.0, 1.1], ["a", "a"], devices=["GPU 0", "GPU 1"]))
    assert {"a, GPU 0", "a, GPU 1"} <= set(texts(figure))


def test_nothing_to_compare_is_said():
    lost = BenchRun("b", (BenchRow({"op": "op0", "name": "op0"}, None, "failed"),))
    with pytest.raises(UsageError, match="needs a row"):
        comparison_plot(compare([run([1.0])], [lost]))


@pytest.mark.parametrize(("length", "is_cut"), [(64, False), (65, True)])
def test_labels_have_at_most_sixty_four_characters(length, is_cut):
    (label,) = comparison_plot(comparison([1.0], ["a" * length])).axes[0].get_yticklabels()
    assert ("…" in label.get_text(), len(label.get_text())) == (is_cut, 64)


@pytest.mark.parametrize(("ratio", "is_cut"), [(3.9, False), (4.5, True)])
def test_a_row_four_times_as_slow_as_before_is_cut_where_the_others_are_not(ratio, is_cut):
    figure = comparison_plot(comparison([1.0] * 5 + [ratio]))
    assert bool(drawn(figure, "cut")) is is_cut


@pytest.mark.parametrize(("median", "is_cut"), [(2.4, True), (2.6, False)])
def test_nothing_is_cut_where_most_rows_are_much_slower(median, is_cut):
    assert bool(drawn(comparison_plot(comparison([median] * 5 + [9.0])), "cut")) is is_cut


@pytest.mark.parametrize(("ratio", "text"), [(9.9, "+890.0 %"), (10.1, "x 10.1")])
def test_a_change_from_ten_times_on_is_written_as_a_factor(ratio, text):
    assert text in texts(comparison_plot(comparison([ratio])))


@pytest.mark.parametrize(("width", "is_cut"), [(2.8, False), (3.2, True)])
def test_an_interval_three_times_as_wide_as_the_median_one_is_cut(width, is_cut):
    found = comparison([1.0] * 9)
    narrow, wide = 0.2, 0.2 * width
    changes = [dataclasses.replace(change, low=-narrow / 2, high=narrow / 2) for change in found.changes]
    changes[0] = dataclasses.replace(changes[0], low=-wide / 2, high=wide / 2)
    figure = comparison_plot(dataclasses.replace(found, changes=tuple(changes)))
    assert len(drawn(figure, "cut")) == (2 if is_cut else 0)


def test_the_margin_is_as_wide_as_the_labels():
    figure = comparison_plot(comparison([1.0], ["a" * 64]))
    figure.canvas.draw()
    left = min(label.get_window_extent().x0 for label in figure.axes[0].get_yticklabels())
    assert 0.0 < left / figure.dpi < 1.0, "inches"


def test_changes_of_many_times_are_written_without_an_exponent(check_texts):
    figure = comparison_plot(comparison([1000.0, 1500.0, 1.0]))
    check_texts(figure)
    assert {"x 1,500", "x 1,000"} <= set(texts(figure))
    assert not any("e+" in text for text in texts(figure))

"""The plot of accuracy: every row has its place, the axes say what they are, nothing lies on anything else."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import StepPatch
from matplotlib.text import Text

from perfmodel.accuracy.judge import JudgedCalls
from perfmodel.accuracy.measured import MeasuredCalls
from perfmodel.accuracy.validate import Accuracy
from perfmodel.errors import UsageError
from perfmodel.operators.elementwise import Elementwise
from perfmodel.render.plots.accuracy import MOST_POINTS, _few_ticks, _reach, accuracy_plot, coverage_plot
from perfmodel.render.plots.figure import save_figure


@pytest.fixture
def made(simple_gpu):
    """An Accuracy of families with so many rows each, log-normally spread errors of a size."""

    def call(**families):
        random = np.random.default_rng(1)
        judged = []
        for family, (rows, spread) in families.items():
            measured = 10 ** random.uniform(-5, -2, rows)
            predicted = measured * np.exp(random.normal(0, spread, rows))
            blank = np.array([""] * rows)
            line = np.arange(rows)
            op = Elementwise(numel=np.ones(rows))
            calls = MeasuredCalls("simple", op, measured, "kernel", "flushed", "", blank, "t.csv", line)
            ends = (predicted / 1.2, predicted * 1.2, measured / 2)
            judged.append(JudgedCalls(calls, simple_gpu, predicted, *ends, family, "calibrated", "mid"))
        return Accuracy(tuple(judged), ())

    return call


def texts(figure):
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def drawn_boxes(figure):
    """Each text that is drawn, with its place; matplotlib keeps labels of ticks beyond the axes' ends undrawn."""
    FigureCanvasAgg(figure).draw()
    beyond = set()
    for axes in figure.axes:
        for axis, index in ((axes.xaxis, 0), (axes.yaxis, 1)):
            low, high = axis.get_view_interval()
            beyond |= {id(t) for t in axis.get_ticklabels() if not low <= t.get_position()[index] <= high}
    found = [t for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible() and id(t) not in beyond]
    return [(t.get_text(), t.get_window_extent()) for t in found]


def test_every_row_is_a_point_in_its_familys_colour(made):
    figure = accuracy_plot(made(gemm=(30, 0.1), softmax=(20, 0.2)))
    (points,) = [c for c in figure.axes[0].collections if c.get_gid() == "rows"]
    assert len(points.get_offsets()) == 50
    assert len(np.unique(points.get_facecolors(), axis=0)) == 2
    legend = " ".join(texts(figure))
    assert "gemm: 30 rows, MAPE" in legend
    assert "softmax: 20 rows, MAPE" in legend


def test_the_axes_are_equal_and_hold_every_point(made):
    left = accuracy_plot(made(gemm=(200, 0.5))).axes[0]
    assert left.get_xlim() == left.get_ylim()
    points = next(c for c in left.collections if c.get_gid() == "rows").get_offsets()
    assert points.min() > left.get_xlim()[0]
    assert points.max() < left.get_xlim()[1]


@pytest.mark.parametrize("low", [1.3e-9, 33e-6, 0.7])
@pytest.mark.parametrize("factor", [1.0, 2.0, 9.0, 30.0])
def test_a_short_axis_has_a_few_labels(low, factor):
    ticks = _few_ticks(low / 1.6, low * factor * 1.6)
    assert 3 <= len(ticks) <= 9
    assert all(low / 1.6 <= tick <= low * factor * 1.6 for tick in ticks)
    # texts of the widths of such labels do not touch on an axis of 4.3 inches
    assert np.diff(np.log(ticks)).min() / np.log(factor * 1.6**2) * 4.3 * 72 > 30


def test_the_histogram_counts_each_family_whole(made):
    # errors of 5 %: nearly all rows lie within the range that 98 % of all rows set
    right = accuracy_plot(made(gemm=(2000, 0.05), softmax=(500, 0.05))).axes[1]
    families = [patch for patch in right.patches if isinstance(patch, StepPatch)]
    assert len(families) == 2
    for stairs in families:
        assert 0.95 < stairs.get_data().values.sum() <= 1.0
    assert "median" in right.get_title()
    assert "lie outside the plot" in right.get_title()


def test_of_many_rows_a_share_is_drawn_and_every_family_has_some(made):
    figure = accuracy_plot(made(gemm=(60_000, 0.1), softmax=(300, 0.1)))
    (points,) = [c for c in figure.axes[0].collections if c.get_gid() == "rows"]
    _, counts = np.unique(points.get_facecolors(), axis=0, return_counts=True)
    assert sorted(counts) == [300, MOST_POINTS * 60_000 // 60_300]
    assert "60,300 rows, " in figure.axes[0].get_title()


@pytest.mark.parametrize("families", [1, 4, 15])
def test_no_text_leaves_the_figure_or_hides_other_text(made, families):
    figure = accuracy_plot(made(**{f"family_{i:02d}": (40, 0.05 * (i + 1)) for i in range(families)}))
    boxes = drawn_boxes(figure)
    width, height = figure.get_size_inches() * figure.dpi
    for index, (text, box) in enumerate(boxes):
        assert -1 <= box.x0 <= box.x1 <= width + 1, text
        assert -1 <= box.y0 <= box.y1 <= height + 1, text
        for other, other_box in boxes[index + 1 :]:
            assert not box.shrunk(0.9, 0.9).overlaps(other_box.shrunk(0.9, 0.9)), (text, other)


@pytest.mark.parametrize("spread", [0.0, 1e-6, 3.0])
def test_perfect_and_hopeless_predictions_can_be_drawn(made, spread):
    figure = accuracy_plot(made(gemm=(50, spread)))
    assert figure.axes[1].get_xlim()[1] <= 1.0


def test_one_row_is_enough_and_none_is_not(made):
    assert len(accuracy_plot(made(gemm=(1, 0.1))).axes) == 2
    with pytest.raises(UsageError, match="at least one row"):
        accuracy_plot(Accuracy((), ()))


def test_equal_data_give_equal_files(made, tmp_path):
    for name in ("a.svg", "b.svg"):
        save_figure(accuracy_plot(made(gemm=(50, 0.1))), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_coverage_is_drawn_at_its_level_and_no_label_lies_on_another() -> None:
    series = {"machine left out": (0.5, 0.78, 0.9), "library left out": (0.6, 0.86, 0.96)}
    figure = coverage_plot((0.5, 0.8, 0.95), series)
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    for name, shares in series.items():
        assert list(lines[name].get_xdata()) == [0.5, 0.8, 0.95]
        assert list(lines[name].get_ydata()) == list(shares)
    assert list(lines["as stated"].get_xdata()) == list(lines["as stated"].get_ydata())
    boxes = drawn_boxes(figure)
    width, height = figure.canvas.get_width_height()
    for index, (text, box) in enumerate(boxes):
        assert min(box.x0, box.y0, width - box.x1, height - box.y1) >= 0, text
        assert not any(box.overlaps(other) for _, other in boxes[index + 1 :]), text


def drawn_rows(figure):
    (points,) = [c for c in figure.axes[0].collections if c.get_gid() == "rows"]
    return sorted(np.unique(points.get_facecolors(), axis=0, return_counts=True)[1].tolist())


@pytest.mark.parametrize(("rows", "drawn"), [(40_000, 40_000), (40_100, 40_000)])
def test_at_most_forty_thousand_rows_of_a_family_are_drawn(made, rows, drawn):
    assert drawn_rows(accuracy_plot(made(gemm=(rows, 0.1)))) == [drawn]


def test_a_small_family_keeps_five_hundred_rows_beside_a_large_one(made):
    # its share of the sample would be 40,000 x 600 / 60,600 = 396
    assert drawn_rows(accuracy_plot(made(gemm=(60_000, 0.1), softmax=(600, 0.1)))) == [500, 40_000 * 600 // 606]


def test_lines_beside_the_identity_mark_errors_of_ten_and_twenty_per_cent(made):
    left = accuracy_plot(made(gemm=(30, 0.1))).axes[0]
    factors = sorted(line.get_ydata()[0] / line.get_xdata()[0] for line in left.get_lines())
    assert factors == pytest.approx([1 / 1.2, 1 / 1.1, 1.0, 1.1, 1.2])
    assert {"10 % off", "20 % off"} <= set(texts(left.get_figure()))


@pytest.mark.parametrize(
    ("largest", "reach"),
    # evenly spread errors: 98 % of them are below 0.98 of the largest, rounded up to a multiple of 5 %
    [(0.7625, 0.75), (0.7175, 0.75), (0.01, 0.05), (9.0, 1.0)],
)
def test_the_histogram_reaches_the_error_that_ninety_eight_per_cent_stay_below(largest, reach):
    assert _reach(np.linspace(0.0, largest, 1001)) == pytest.approx(reach)


def test_families_have_a_colour_of_their_own_and_no_error_is_minus_zero(made):
    figure = accuracy_plot(made(**{f"family_{index:02d}": (20, 1e-6) for index in range(18)}))
    (legend,) = figure.legends
    colors = [line.get_color() for line in legend.get_lines()]
    assert len(set(colors)) == len(colors) == 18
    assert "-0.0" not in figure.axes[1].get_title()


def test_a_narrow_range_has_several_ticks_and_the_legend_covers_no_bar(made):
    accuracy = made(roofline=(11, 0.5))
    # times within a decade, as of one collective
    accuracy = accuracy.where(lambda part: part.calls.time_s > 2e-3)
    figure = accuracy_plot(accuracy)
    labels = [text for text, _ in drawn_boxes(figure) if text.endswith(" ms")]
    assert len(labels) >= 4, labels
    errors = figure.axes[1]
    bars = [patch for patch in errors.patches if isinstance(patch, StepPatch)]
    legend = errors.get_legend().get_window_extent()
    tops = [errors.transData.transform((0.0, np.max(bar.get_data().values)))[1] for bar in bars]
    assert max(tops) <= legend.y0

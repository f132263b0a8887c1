"""The plot of terms: bars are as long as the times they stand for, and every label can be read."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle
from matplotlib.text import Text

import perfmodel as pm
from perfmodel.core.vocabulary import Limiter
from perfmodel.errors import UsageError
from perfmodel.prediction.latency.estimate import Spread
from perfmodel.prediction.latency.families import known_terms
from perfmodel.prediction.latency.terms import Term, Terms
from perfmodel.render.plots.prediction import MOST_BARS, color, terms_plot


def made(terms, name="", low=0.8, high=1.3):
    """A prediction that is the sum of some terms, with a bound at half of it."""
    total = sum(terms.values())
    terms = {known_terms().get(term) or Term(term, Limiter.UNKNOWN, ""): time for term, time in terms.items()}
    real = pm.predict(pm.Gemm(m=64, n=64, k=64, dtype="fp16", name=name), pm.hardware("a100-sxm4-80gb"))
    estimate = dataclasses.replace(
        real.estimate, kept_terms=Terms(terms), time_s=total, spread=Spread(0, ((low, high),), 0.0)
    )
    return dataclasses.replace(real, bound=dataclasses.replace(real.bound, time_s=total / 2), estimate=estimate)


def bars(figure):
    """term -> the lengths of its bars"""
    found = {}
    for patch in figure.axes[0].patches:
        if isinstance(patch, Rectangle) and patch.get_gid():
            found.setdefault(patch.get_gid(), []).append(patch.get_width())
    return found


def texts(figure):
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def test_bars_are_as_long_as_their_times():
    figure = terms_plot([made({"math": 8e-6, "launch": 2e-6}), made({"math": 3e-6, "hbm": 9e-6})])
    assert bars(figure) == {
        "math": pytest.approx([8.0, 3.0]),
        "hbm": pytest.approx([0.0, 9.0]),
        "launch": pytest.approx([2.0, 0.0]),
    }
    assert figure.axes[0].get_xlabel() == "time of one call [us]"
    said = texts(figure)
    assert "10 us (8 us to 13 us)" in said
    assert "80 %" in said  # the share of math in the first bar: 8 of 10 us


def test_a_term_below_zero_shortens_the_others_alike():
    figure = terms_plot([made({"math": 8e-6, "launch": 4e-6, "residual surface": -3e-6})])
    assert bars(figure) == {"math": pytest.approx([6]), "launch": pytest.approx([3])}
    said = texts(figure)
    assert "89 %" in said  # 8 of 9 us, as in the table of --explain, though its segment takes 67 % of the bar
    assert "9 us (7.2 us to 11.7 us)\nresidual surface -33 %" in said


def test_a_small_term_below_zero_is_not_said_to_be_none():
    said = texts(terms_plot([made({"math": 1000e-6, "residual surface": -3e-6})]))
    assert any(text.endswith("residual surface -0.3 %") for text in said)


def test_times_that_differ_much_are_drawn_as_shares():
    figure = terms_plot([made({"math": 8e-6, "launch": 2e-6}), made({"math": 1.0, "launch": 1.0})])
    assert bars(figure) == {"math": pytest.approx([80, 50]), "launch": pytest.approx([20, 50])}
    assert figure.axes[0].get_xlabel() == "share of the predicted time [%]"


def test_bound_and_interval_stand_where_they_belong():
    axes = terms_plot([made({"math": 8e-3, "launch": 2e-3})]).axes[0]
    (bound,) = [line for line in axes.lines if line.get_gid() == "bound"]
    assert bound.get_xdata() == pytest.approx([5.0])
    assert any(np.allclose(line.get_xdata(), [8.0, 13.0]) for line in axes.lines if len(line.get_xdata()) == 2)


def test_a_prediction_without_an_interval_has_none():
    figure = terms_plot([made({"math": 8e-6}, low=np.nan, high=np.nan)])
    assert "8 us" in texts(figure)
    assert len(figure.axes[0].lines) == 1


def test_colours_are_the_same_everywhere_and_all_different():
    assert {"math", "hbm", "l2", "launch", "host"} <= set(known_terms())
    names = ["math", "mystery", "hbm", "riddle"]
    shades = [color(name, names) for name in names]
    assert len(set(shades)) == 4
    assert color("hbm", ["hbm"]) == shades[2]


def cielab(name):
    """A colour in CIE 1976 L*a*b* under D65, in which distances follow perception; a distance of 2 is just visible."""
    rgb = np.array(to_rgb(name))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)  # IEC 61966-2-1
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    ratio = to_xyz @ linear / np.array([0.95047, 1.0, 1.08883])
    x, y, z = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio * (29 / 6) ** 2 / 3 + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_no_two_known_terms_look_alike():
    assert cielab("white") == pytest.approx([100, 0, 0], abs=0.05)
    names = [*map(str, known_terms()), "rest"]
    shades = {name: cielab(color(name, names)) for name in names}
    for one, other in itertools.combinations(names, 2):
        assert np.linalg.norm(shades[one] - shades[other]) > 20, (one, other)


def test_terms_that_are_not_listed_are_the_rest_of_the_bar():
    small = {f"small {i}": 4e-9 for i in range(10)}  # 0.4 of 1000 each: below the share that is listed
    figure = terms_plot([made({"math": 9.96e-6, **small})])
    assert bars(figure) == {"math": pytest.approx([9.96]), "rest": pytest.approx([0.04])}
    assert "rest" in texts(figure)
    assert "rest" not in texts(terms_plot([made({"math": 1e-6, "tiny": 4e-10})]))


def test_of_a_long_sweep_an_even_part_is_drawn():
    sizes = np.arange(1, 101) * 1e6
    figure = terms_plot([pm.predict(pm.Elementwise(numel=sizes), pm.hardware("a100-sxm4-80gb"))])
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(labels) == MOST_BARS
    assert labels[0] == "elementwise fp32\nnumel=1000000 kind=add"
    assert labels[-1] == "elementwise fp32\nnumel=100000000 kind=add"
    assert f"{MOST_BARS} of 100 points" in " ".join(texts(figure))


def test_machines_are_named_where_there_are_several():
    op = pm.Elementwise(numel=1e6)
    machines = [pm.hardware(name) for name in ("a100-sxm4-80gb", "v100-pcie-32gb")]
    both = terms_plot([pm.predict(op, machine) for machine in machines])
    first_lines = [label.get_text().splitlines()[0] for label in both.axes[0].get_yticklabels()]
    assert first_lines == [f"elementwise fp32 on {machine.name}" for machine in machines]
    one = terms_plot([pm.predict(op, machines[0])])
    assert "on a100-sxm4-80gb as a sum (kernel time, cold caches)" in " ".join(texts(one))


@pytest.mark.parametrize("count", [1, 2, 12, 40])
@pytest.mark.waiting
def test_no_text_leaves_the_figure_or_hides_other_text(count):
    terms = {name: (index + 1) * 1e-6 for index, name in enumerate(known_terms())}
    points = [made(terms, name=f"a_rather_long_name_of_an_operator_{i}", high=1 + i / 10) for i in range(count)]
    figure = terms_plot(points)
    FigureCanvasAgg(figure).draw()
    found = [t for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible()]
    boxes = [(t.get_text(), t.get_window_extent()) for t in found]
    width, height = figure.get_size_inches() * figure.dpi
    for text, box in boxes:
        assert -1 <= box.x0 <= box.x1 <= width + 1, text
        assert -1 <= box.y0 <= box.y1 <= height + 1, text
    x0, y0, x1, y1 = np.array([box.shrunk(0.9, 0.9).extents for _, box in boxes]).T
    overlapping = (x0[:, None] <= x1) & (x0 <= x1[:, None]) & (y0[:, None] <= y1) & (y0 <= y1[:, None])
    pairs = np.argwhere(np.triu(overlapping, k=1))
    assert [(boxes[one][0], boxes[other][0]) for one, other in pairs] == []


def test_nothing_to_draw_is_said():
    with pytest.raises(UsageError, match="needs a prediction"):
        terms_plot([])


@pytest.mark.parametrize(("factor", "label"), [(24, "time of one call [us]"), (26, "share of the predicted time [%]")])
def test_bars_show_shares_from_a_ratio_of_twenty_five_on(factor, label):
    figure = terms_plot([made({"math": 1e-6}), made({"math": factor * 1e-6})])
    assert figure.axes[0].get_xlabel() == label


@pytest.mark.parametrize(("points", "drawn"), [(40, 40), (41, 40)])
def test_at_most_forty_bars_are_drawn(points, drawn):
    figure = terms_plot([made({"math": 1e-6}, name=f"op {index}") for index in range(points)])
    assert len(figure.axes[0].get_yticklabels()) == drawn
    assert (f"40 of {points} points" in " ".join(texts(figure))) is (points > 40)


@pytest.mark.parametrize(("percent", "is_written"), [(3, False), (20, True)])
def test_a_share_is_written_into_a_segment_that_is_long_enough(percent, is_written):
    figure = terms_plot([made({"math": (100 - percent) * 1e-6, "launch": percent * 1e-6})])
    assert {f"{100 - percent} %"} <= set(texts(figure))
    assert (f"{percent} %" in texts(figure)) is is_written


def test_the_margin_is_as_wide_as_the_labels():
    figure = terms_plot([made({"math": 1e-6}, name="a" * 40)])
    FigureCanvasAgg(figure).draw()
    left = min(label.get_window_extent().x0 for label in figure.axes[0].get_yticklabels())
    assert 0.0 < left / figure.dpi < 1.0, "inches"

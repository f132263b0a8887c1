"""The plot of bytes a second over size: bus bandwidths of exchanges, intervals, bounds, and what is measured."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.text import Text

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.render.plots.records import record_plot, usual_kind
from perfmodel.render.plots.records.traffic import traffic_plot

SIZES = 2.0 ** np.arange(10, 29)


def rows(op, machine):
    return pm.predict(op, machine).rows()


def reduced(machine="h100-sxm5-80gb", **changes):
    return rows(pm.AllReduce(**{"bytes": SIZES, "num_gpus": 8} | changes), pm.hardware(machine))


def drawn(figure, word):
    return {line.get_gid(): line for line in figure.axes[0].get_lines() if (line.get_gid() or "").startswith(word)}


def texts(figure):
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def test_the_rate_of_an_exchange_is_the_bus_bandwidth_of_nccl_tests():
    machine = pm.hardware("h100-sxm5-80gb")
    found = reduced()
    figure = traffic_plot([(machine, found)])
    line = drawn(figure, "expected")["expected all_reduce num_gpus=8 fp32"]
    assert list(line.get_xdata()) == list(SIZES)
    times = np.array([row["predicted_time_s"] for row in found])
    assert line.get_ydata() == pytest.approx(2 * 7 / 8 * SIZES / times)
    (bound,) = drawn(figure, "bound").values()
    assert np.all(bound.get_ydata() >= line.get_ydata())
    assert {"size of the message", "bus bandwidth", "expected, 80 % interval", "bound"} <= set(texts(figure))


def test_the_band_is_the_interval():
    machine, found = pm.hardware("h100-sxm5-80gb"), reduced()
    (band,) = traffic_plot([(machine, found)]).axes[0].collections
    edges = band.get_paths()[0].vertices[:, 1]
    sent = 2 * 7 / 8 * SIZES
    assert edges.min() == pytest.approx(min(sent / [row["predicted_time_high_s"] for row in found]))
    assert edges.max() == pytest.approx(max(sent / [row["predicted_time_low_s"] for row in found]))


def test_measurements_are_markers_and_failures_are_counted():
    found = [row | {"kernel": "nccl", "measured_time_s": 2.0 * row["predicted_time_s"]} for row in reduced()]
    found[0] |= {"status": "failed", "measured_time_s": None}
    figure = traffic_plot([(pm.hardware("h100-sxm5-80gb"), found)])
    (marks,) = drawn(figure, "measured").values()
    (line,) = drawn(figure, "expected").values()
    assert marks.get_ydata() == pytest.approx(line.get_ydata()[1:] / 2.0)
    assert marks.get_linestyle() == "None"
    assert {"Not drawn: 1 failed.", "measured: nccl"} <= set(texts(figure))


def test_each_machine_and_number_of_gpus_is_a_line():
    pairs = [
        (pm.hardware(name), [*reduced(name), *reduced(name, num_gpus=2)])
        for name in ("h100-sxm5-80gb", "b200-sxm-180gb")
    ]
    figure = traffic_plot(pairs)
    assert len(drawn(figure, "expected")) == 4
    assert "all_reduce num_gpus=2 fp32 b200-sxm-180gb" in texts(figure)


def test_the_names_of_many_machines_are_not_cut(check_texts):
    names = ("h100-sxm5-80gb", "b200-sxm-180gb", "mi300x", "a100-sxm4-80gb")
    figure = traffic_plot([(pm.hardware(name), reduced(name)) for name in names])
    check_texts(figure)
    assert any(text.startswith("Bus bandwidth over size: NVIDIA H100 80GB HBM3 (SXM5)") for text in texts(figure))


def test_other_operators_count_what_they_read_and_write():
    machine = pm.hardware("a100-sxm4-80gb")
    found = rows(pm.Transpose(rows=2.0 ** np.arange(4, 14), cols=1024, dtype="fp32"), machine)
    figure = traffic_plot([(machine, found)])
    (line,) = drawn(figure, "expected").values()
    assert list(line.get_xdata()) == [2 * 4 * 1024 * 2.0**e for e in range(4, 14)]
    assert {"bytes of a call", "bandwidth"} <= set(texts(figure))


def test_the_usual_direction_of_a_copy_is_named_too():
    machine = pm.hardware("h100-sxm5-80gb")
    copies = [rows(pm.Memcpy(bytes=2.0 ** np.arange(10, 14), direction=way), machine) for way in ("h2d", "d2d")]
    figure = traffic_plot([(machine, [*copies[0], *copies[1]])])
    assert set(drawn(figure, "expected")) == {"expected memcpy h2d fp32", "expected memcpy d2d fp32"}


def test_words_that_are_usual_and_the_same_in_all_rows_are_not_named():
    machine = pm.hardware("h100-sxm5-80gb")
    usual = rows(pm.Gemm(m=2.0 ** np.arange(6, 9), n=64, k=64, dtype="bf16"), machine)
    figure = traffic_plot([(machine, usual)])
    assert set(drawn(figure, "expected")) == {"expected gemm bf16"}
    quantised = rows(pm.Gemm(m=2.0 ** np.arange(6, 9), n=64, k=64, dtype="bf16", weight_dtype="int8"), machine)
    both = drawn(traffic_plot([(machine, [*usual, *quantised])]), "expected")
    assert {"weight_dtype=bf16", "weight_dtype=int8"} <= {word for label in both for word in label.split()}
    assert not any("activation" in label for label in both)


def test_the_bound_of_one_size_is_dashed_as_in_the_legend():
    machine = pm.hardware("h100-sxm5-80gb")
    (found,) = reduced(bytes=2**20)
    (bound,) = drawn(traffic_plot([(machine, [found])]), "bound").values()
    left, right = bound.get_xdata()
    assert left < 2**20 < right < 2 * left
    assert np.ptp(bound.get_ydata()) == 0
    assert bound.get_marker() in ("", "None")
    assert bound.get_linestyle() == "--"


def test_one_size_is_a_bar_with_its_ends():
    machine = pm.hardware("h100-sxm5-80gb")
    figure = traffic_plot([(machine, reduced(bytes=2**20))])
    (container,) = figure.axes[0].containers
    assert container.has_yerr


def test_what_has_arithmetic_goes_under_a_roofline():
    machine = pm.hardware("h100-sxm5-80gb")
    product = rows(pm.Gemm(m=64, n=64, k=64, dtype="bf16"), machine)
    assert usual_kind([(machine, reduced())]) == "traffic"
    assert usual_kind([(machine, [*reduced(), *product])]) == usual_kind([(machine, [])]) == "roofline"
    with pytest.raises(UsageError, match="no row has bytes"):
        record_plot("traffic", [(machine, [])])


def test_a_single_gpu_exchanges_nothing():
    machine = pm.hardware("h100-sxm5-80gb")
    with pytest.raises(UsageError, match="1 without bytes to move"):
        traffic_plot([(machine, reduced(bytes=2**20, num_gpus=1))])


def test_operators_that_are_not_known_here_are_drawn_too():
    """A record may be of somebody who has a plugin."""
    machine = pm.hardware("h100-sxm5-80gb")
    product = [row | {"op": "theirs"} for row in rows(pm.Gemm(m=64, n=64, k=64, dtype="bf16"), machine)]
    assert usual_kind([(machine, product)]) == "roofline"
    copies = rows(pm.Memcpy(bytes=2.0 ** np.arange(10, 14), direction="d2d"), machine)
    theirs = [(machine, [row | {"op": "theirs"} for row in copies])]
    assert usual_kind(theirs) == "traffic"
    assert len(drawn(traffic_plot(theirs), "expected")) == 1


@pytest.mark.parametrize("count", [20, 21, 300])
def test_many_lines_have_the_colour_of_their_operator_and_neither_intervals_nor_bounds(check_texts, count):
    machine = pm.hardware("h100")
    found = [
        {**line, "kernel": f"library.kernel_{index % 30}", "measured_time_s": 1.1 * line["predicted_time_s"],
         "name": f"copy {index}"}
        for index in range(count)
        for line in rows(pm.Elementwise(numel=np.array([1e6, 1e7]), kind="copy"), machine)
    ]  # fmt: skip
    figure = traffic_plot([(machine, found)])
    many = count > 20
    assert len(drawn(figure, "expected")) == count
    assert len(drawn(figure, "bound")) == len(figure.axes[0].collections) == (0 if many else count)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert ("elementwise" in names, "bound" in names) == (many, not many)
    assert len(names) <= 23
    assert names.count("measured") == 1  # more kernels than shapes
    assert figure.get_figheight() < 10
    check_texts(figure)

"""The plot of bandwidth over size: points, lines of one kernel, the machine's levels, and what is left out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from matplotlib.lines import Line2D
from matplotlib.text import Text

from perfmodel.core.hardware import MemoryLevel
from perfmodel.errors import UsageError
from perfmodel.render.plots.figure import new_figure
from perfmodel.render.plots.legend import add_legend, legend_height
from perfmodel.render.plots.records.bandwidth import bandwidth_plot
from perfmodel.render.plots.records.rows import row_label


def row(numel, rate, kernel="torch.elementwise", dimensions=None, **changes):
    told = f"numel={numel} kind=add" if dimensions is None else dimensions
    return {
        "op": "elementwise",
        "name": "elementwise",
        "dimensions": told,
        "dtype": "fp32",
        "kernel": kernel,
        "status": "ok",
        "limiter": "hbm",
        "working_set_bytes": 12.0 * numel,
        "achieved_bytes_per_s": rate,
    } | changes


def sweep(kernel="torch.elementwise", best=0.9e12):
    return [row(2**e, best * 2**e / (2**e + 2e5), kernel) for e in range(12, 28)]


def lines(figure, prefix="achieved"):
    return {line.get_gid(): line for line in figure.axes[0].get_lines() if (line.get_gid() or "").startswith(prefix)}


def texts(figure):
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def test_each_kernel_is_a_line_in_the_order_of_size(simple_gpu):
    figure = bandwidth_plot([*reversed(sweep()), *sweep("naive", 0.3e12)], simple_gpu)
    line = lines(figure)["achieved elementwise add fp32 torch.elementwise"]
    assert list(line.get_xdata()) == [12.0 * 2**e for e in range(12, 28)]
    assert np.all(np.diff(line.get_ydata()) > 0)
    assert len(lines(figure)) == 2
    assert figure.axes[0].get_xscale() == "log"


def test_the_machines_levels_and_capacities_are_named(simple_gpu):
    figure = bandwidth_plot(sweep(), simple_gpu)
    # 1 TB/s and 0.8 TB/s sustained; the L2 of 4 TB/s is more than three times that. Its 10^7 B are 9.537 MiB.
    assert [line.get_ydata()[0] for line in lines(figure, "level").values()] == [0.8e12]
    heights = sorted(line.get_ydata()[0] for line in figure.axes[0].get_lines() if line.get_gid() == "level")
    assert heights == [0.8e12, 1e12]
    assert {"HBM 1000 GB/s", "HBM 800 GB/s sustained", "L2 9.537 MiB"} <= set(texts(figure))
    (capacity,) = lines(figure, "capacity").values()
    assert capacity.get_xdata()[0] == 1e7
    nearer = dataclasses.replace(simple_gpu, memory=(simple_gpu.memory[0], MemoryLevel("l2", 1e7, 2e12)))
    assert "L2 2000 GB/s" in texts(bandwidth_plot(sweep(), nearer))


def test_of_several_dimensions_one_runs_along_and_the_others_tell_lines_apart(simple_gpu):
    rows = [
        row(rows * cols, 1e11, "F.layer_norm", f"rows={rows} cols={cols}")
        for cols in (1024, 4096)
        for rows in (64, 256, 1024)
    ]
    assert list(lines(bandwidth_plot(rows, simple_gpu))) == [
        "achieved elementwise cols=1024 fp32 F.layer_norm",
        "achieved elementwise cols=4096 fp32 F.layer_norm",
    ]


def test_what_is_left_out_is_counted(simple_gpu):
    rows = [*sweep(), row(64, 1e9, limiter="compute"), row(64, None), row(64, None, status="out of memory")]
    said = texts(bandwidth_plot(rows, simple_gpu))
    assert "Not drawn: 1 compute-bound, 1 without a measured bandwidth, 1 out of memory." in said
    with pytest.raises(UsageError, match=r"no row has a bandwidth to draw \(1 compute-bound\)\."):
        bandwidth_plot([row(64, 1e9, limiter="compute")], simple_gpu)


def test_rates_that_differ_much_stand_on_a_logarithmic_axis(simple_gpu):
    assert bandwidth_plot(sweep(), simple_gpu).axes[0].get_yscale() == "log"
    figure = bandwidth_plot(sweep()[-6:], simple_gpu)
    assert figure.axes[0].get_yscale() == "linear"
    assert figure.axes[0].get_ylim()[0] == 0.0


@pytest.mark.parametrize(
    "rows",
    [
        [row(2**20, 5e11)],
        [point for index in range(9) for point in sweep(f"triton.kernel_{index}_" + "x" * 90, 1e11 * (index + 1))],
        [row(2**2, 1e3), row(2**34, 9e11)],
    ],
)
def test_no_text_is_cut_off_or_lies_on_another(check_texts, simple_gpu, rows):
    check_texts(bandwidth_plot(rows, simple_gpu))


@pytest.mark.parametrize("count", [1, 8, 60])
def test_the_legend_takes_the_room_that_is_left_for_it(count):
    labels = [f"kernel number {index} of a long name" for index in range(count)]
    height = legend_height(labels, 9.0)
    figure = new_figure(9.0, height + 2.0)
    add_legend(figure, [Line2D([], [], label=label) for label in labels], 9.0)
    figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    top = box.y1 / figure.dpi
    assert 0.85 * height - 0.15 < top <= height + 0.05, "neither over the axis nor far below it"
    assert box.width / figure.dpi <= 9.0
    if count == 60:
        assert box.width / figure.dpi > 0.6 * 9.0, "as many columns as fit"


@pytest.mark.parametrize(("ratio", "scale"), [(29, "linear"), (31, "log")])
def test_the_axis_of_rates_is_logarithmic_from_a_ratio_of_thirty_on(simple_gpu, ratio, scale):
    # the highest value on the axis is the 1 TB/s of the memory
    figure = bandwidth_plot([row(2**12, 1e12 / ratio), row(2**24, 0.9e12)], simple_gpu)
    assert figure.axes[0].get_yscale() == scale


@pytest.mark.parametrize(("length", "is_cut"), [(72, False), (73, True)])
def test_labels_of_kernels_have_at_most_seventy_two_characters(length, is_cut):
    label = row_label({"op": "copy", "kernel": "k" * (length - len("copy "))})
    assert ("…" in label, len(label)) == (is_cut, 72)


def legend(figure):
    return {text.get_text(): handle for text, handle in zip(
        figure.legends[0].get_texts(), figure.legends[0].legend_handles, strict=True)}  # fmt: skip


@pytest.mark.parametrize("kernels", [20, 21, 400])
def test_more_lines_than_colours_have_those_of_their_operator(check_texts, simple_gpu, kernels):
    """The legend, and so the height, stays that of as many entries as there are colours."""
    ops = [f"op_{index % 40:02}" for index in range(kernels)]
    found = [
        row(2**exponent, 1e11 * (1 + index / 400), f"kernel_{index}", op=op, name=op)
        for index, op in enumerate(ops)
        for exponent in (20, 22)
    ]
    figure = bandwidth_plot(found, simple_gpu)
    named = {name: handle for name, handle in legend(figure).items() if name not in ("datasheet", "sustained")}
    assert len(named) == 20
    assert len({handle.get_color() for handle in named.values()}) == 20
    assert len(lines(figure)) == kernels
    assert list(named)[-1] == ("other operators" if kernels > 20 else "op_19 add fp32 kernel_19")
    said = [text for text in texts(figure) if "too many to name" in text]
    assert said == ([f"{kernels} lines, too many to name here: a colour is an operator. The record lists them."]
                    if kernels > 20 else [])  # fmt: skip
    assert figure.get_figheight() < 10
    check_texts(figure)

"""The roofline plot: what it says is true, and nothing on it hides anything else."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import itertools
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.text import Text

import perfmodel as pm
from perfmodel.core.hardware import Hardware, MemoryLevel, Peak
from perfmodel.render.plots.figure import DOTS_PER_INCH, SlopeText, new_figure, printable, spread
from perfmodel.render.plots.labels import LabelPlacer
from perfmodel.render.plots.palette import COLORS, SHAPES
from perfmodel.render.plots.roofline import layout, roofline_figure, roofline_plot, save_figure
from perfmodel.render.plots.roofline import points as _roofline_points

# Ridge points by hand: 312e12 / 1555e9 = 200.6 and 19.5e12 / 1555e9 = 12.54 FLOP/B.
MACHINE = Hardware(
    name="machine",
    title="A machine",
    vendor="v",
    architecture="a",
    memory=(
        MemoryLevel("hbm", 40e9, 1555e9, sustained_bytes_per_s=1400e9),
        MemoryLevel("l2", 40e6, 5000e9),
        MemoryLevel("shared", 17e6),
    ),
    peaks=(
        Peak("fp16", "tensor", 312e12, sustained_flop_per_s=270e12),
        Peak("bf16", "tensor", 312e12),
        Peak("int8", "tensor", 624e12),
        Peak("fp32", "vector", 19.5e12),
    ),
)


def gemm(m=4096, n=4096, k=4096, dtype="fp16", **more):
    return pm.predict(pm.Gemm(m=m, n=n, k=k, dtype=dtype, **more), MACHINE)


def norm(rows=8192, cols=4096, **more):
    return pm.predict(pm.LayerNorm(rows=rows, cols=cols, dtype="fp32", **more), MACHINE)


def mixture(count):
    """Points spread over four operators, two dtypes and four decades of intensity, none like another."""
    made = []
    for index in range(count):
        size = 16 * 2 ** (index % 9)
        operator = (
            pm.Gemm(m=size, n=1024 + index, k=2048, dtype="fp16"),
            pm.LayerNorm(rows=size * 64, cols=1024 + index, dtype="fp32"),
            pm.Softmax(rows=size * 64, cols=1024 + index, dtype="fp32"),
            pm.Attention(heads=16, seq_q=size + index, head_dim=64, dtype="fp16"),
        )[index % 4]
        made.append(pm.predict(operator, MACHINE))
    return made


def bench_rows(predictions, kernels):
    """Rows as `bench` records have them, each kernel reaching its share of the attainable rate."""
    return [
        {
            **row,
            "kernel": kernel,
            "status": "ok",
            "achieved_flop_per_s": share * row["attainable_flop_per_s"],
            "efficiency": share,
            "faster_than_bound": share > 1,
        }
        for prediction in predictions
        for row in prediction.rows()
        for kernel, share in kernels.items()
    ]


def artists(parent):
    """The artists of a figure without the ticks of its axes: asked for those, matplotlib makes hundreds anew."""
    for child in parent.get_children():
        yield child
        if isinstance(child, Axis):
            yield from (child.label, child.offsetText)
        else:
            yield from artists(child)


def texts(figure):
    found = (artist for artist in artists(figure) if isinstance(artist, Text))
    return [text.get_text() for text in found if text.get_text() and text.get_visible()]


def lines(axes, prefix):
    return {line.get_gid(): line for line in axes.get_lines() if (line.get_gid() or "").startswith(prefix)}


def extents(figure, renderer):
    """Boxes of the texts of a drawn figure, with slanted ones left out: their box is mostly empty."""
    found = []
    unseen = {
        label
        for axes in figure.axes
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim()))
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
        if not low <= tick.get_loc() <= high
        for label in (tick.label1, tick.label2)
    }
    for text in figure.findobj(Text):
        if text.get_text().strip() and text.get_visible() and not isinstance(text, SlopeText) and text not in unseen:
            found.append((text.get_text(), text.get_window_extent(renderer)))
    return found


def overlap(first, second):
    width = min(first.x1, second.x1) - max(first.x0, second.x0)
    height = min(first.y1, second.y1) - max(first.y0, second.y0)
    return max(0.0, width) * max(0.0, height)


def sweep_on(name):
    """The plot's points of one machine of the catalog: products that crowd under its ceiling."""
    machine = pm.hardware(name)
    sizes = 2.0 ** np.arange(6, 14)
    return machine, [pm.predict(pm.Gemm(m=size, n=4096, k=4096, dtype="bf16"), machine) for size in sizes]


# What it says


def test_a_point_stands_at_its_intensity_and_attainable_rate():
    (axes,) = roofline_plot(MACHINE, [gemm()]).axes
    (marker,) = lines(axes, "attainable").values()
    # 2 x 4096^3 / (3 x 4096^2 x 2 B) = 4096 / 3 = 1365.3 FLOP/B, at the fp16 tensor peak.
    assert marker.get_xdata() == pytest.approx([4096 / 3])
    assert marker.get_ydata() == pytest.approx([312e12])
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.get_xlabel() == "Arithmetic intensity [FLOP/B]"
    assert axes.get_ylabel() == "Performance [FLOP/s]"


def test_an_array_prediction_is_a_point_for_each_element():
    sizes = np.array([1.0, 64.0, 4096.0])
    sweep = pm.predict(pm.Gemm(m=sizes, n=4096, k=4096, dtype="fp16"), MACHINE)
    figure = roofline_plot(MACHINE, [sweep])
    (marker,) = lines(figure.axes[0], "attainable").values()
    assert marker.get_xdata() == pytest.approx(sweep.arithmetic_intensity_flop_per_byte)
    assert {"gemm m=1", "gemm m=64", "gemm m=4096"} <= set(texts(figure))


def test_json_rows_and_predictions_give_the_same_points():
    from_prediction = roofline_plot(MACHINE, [gemm(), norm()])
    from_rows = roofline_plot(MACHINE, pm.Report("analyze", (), [*gemm().rows(), *norm().rows()]).as_json()["rows"])
    assert texts(from_prediction) == texts(from_rows)


def test_ceilings_are_those_that_the_points_use_with_their_values():
    assert "fp16 tensor: 312 TFLOP/s" in texts(roofline_plot(MACHINE, [gemm()]))
    assert not any("fp32 vector" in text for text in texts(roofline_plot(MACHINE, [gemm()])))
    both = texts(roofline_plot(MACHINE, [gemm(), norm()]))
    assert {"fp16 tensor: 312 TFLOP/s", "fp32 vector: 19.5 TFLOP/s", "fp16 tensor: 270 TFLOP/s sustained"} <= set(both)


def test_equal_ceilings_share_a_line_and_integer_rates_are_in_op():
    written = texts(roofline_plot(MACHINE, [gemm(), gemm(dtype="bf16"), gemm(dtype="int8")]))
    assert {"bf16, fp16 tensor: 312 TFLOP/s", "int8 tensor: 624 TOP/s"} <= set(written)


def test_without_points_the_main_ceilings_are_drawn():
    written = set(texts(roofline_plot(MACHINE, [])))
    assert {"bf16, fp16 tensor: 312 TFLOP/s", "int8 tensor: 624 TOP/s", "fp32 vector: 19.5 TFLOP/s"} <= written


def test_ridge_points_are_marked_where_ceiling_and_bandwidth_meet():
    figure = roofline_plot(MACHINE, [gemm(), norm()])
    (ridges,) = lines(figure.axes[0], "ridge").values()
    assert ridges.get_xdata() == pytest.approx([19.5e12 / 1555e9, 312e12 / 1555e9])
    assert ridges.get_ydata() == pytest.approx([19.5e12, 312e12])
    assert {"12.54", "200.6"} <= set(texts(figure))


def test_each_bandwidth_is_named_and_a_level_without_one_is_not_drawn():
    slopes = [text.get_text() for text in roofline_plot(MACHINE, []).findobj(SlopeText)]
    assert slopes == ["HBM 1555 GB/s", "HBM 1400 GB/s", "L2 5000 GB/s"]


def test_memory_that_is_not_hbm_goes_by_its_technology():
    level = dataclasses.replace(MACHINE.memory[0], technology="GDDR6", sustained_bytes_per_s=None)
    machine = dataclasses.replace(MACHINE, memory=(level,))
    assert [text.get_text() for text in roofline_plot(machine, []).findobj(SlopeText)] == ["GDDR6 1555 GB/s"]


def test_kernels_are_joined_from_the_slowest_to_the_fastest_and_that_to_the_attainable_rate():
    figure = roofline_plot(MACHINE, bench_rows([gemm()], {"library": 0.8, "naive": 0.1}))
    axes = figure.axes[0]
    achieved = lines(axes, "achieved")
    assert achieved["achieved gemm library"].get_ydata() == pytest.approx([0.8 * 312e12])
    assert achieved["achieved gemm naive"].get_ydata() == pytest.approx([0.1 * 312e12])
    (hollow,) = lines(axes, "attainable").values()
    assert len(hollow.get_xdata()) == 1
    assert hollow.get_markerfacecolor() == "none"
    assert all(line.get_markerfacecolor() != "none" for line in achieved.values())
    assert hollow.get_marker() == achieved["achieved gemm naive"].get_marker()
    path, left = (np.asarray(lines(axes, gid)[gid].get_ydata()) for gid in ("variants", "joined"))
    assert path[np.isfinite(path)] == pytest.approx([0.1 * 312e12, 0.8 * 312e12])
    assert left[np.isfinite(left)] == pytest.approx([0.8 * 312e12, 312e12])
    # One step, with its arrow head half-way on the logarithmic axis: sqrt(0.1 x 0.8) of the peak.
    assert lines(axes, "faster")["faster"].get_ydata() == pytest.approx([0.08**0.5 * 312e12])


def test_paths_of_different_operators_are_not_joined():
    axes = roofline_plot(MACHINE, bench_rows([gemm(), norm()], {"a": 0.5, "b": 0.25, "c": 0.24})).axes[0]
    path = np.asarray(lines(axes, "variants")["variants"].get_data())
    # Three kernels and a gap for each of the two operators, each path at one intensity and upwards.
    assert path.shape == (2, 8)
    assert np.isnan(path[:, [3, 7]]).all()
    for start in (0, 4):
        assert len(set(path[0, start : start + 3])) == 1
        assert np.all(np.diff(path[1, start : start + 3]) > 0)
    # From 0.24 to 0.25 there is no room for an arrow head.
    assert len(lines(axes, "faster")["faster"].get_xdata()) == 2


def test_without_kernels_nothing_is_joined():
    axes = roofline_plot(MACHINE, [gemm()]).axes[0]
    assert not lines(axes, "variants")
    assert not lines(axes, "joined")


def test_what_has_no_place_on_the_plot_is_said_below_it():
    copy = pm.predict(pm.Elementwise(numel=10**8, kind="copy", name="copy kv"), MACHINE)
    failed = {**gemm().rows()[0], "status": "out of memory", "achieved_flop_per_s": None}
    fast = bench_rows([norm(name="quick")], {"library": 1.3})
    written = texts(roofline_plot(MACHINE, [copy, failed, *fast]))
    assert "Not drawn (no arithmetic): copy kv." in written
    assert "Not drawn (no result): 1 out of memory." in written
    assert "Faster than the bound (likely causes are in the record): quick (library)." in written


@pytest.mark.parametrize("value", [1e308, 5e-324])
@pytest.mark.parametrize("key", ["arithmetic_intensity_flop_per_byte", "attainable_flop_per_s", "achieved_flop_per_s"])
def test_a_figure_that_is_impossible_is_not_drawn(key, value):
    row = {**bench_rows([gemm()], {"library": 0.5})[0], key: value}
    axes = (figure := roofline_plot(MACHINE, [gemm(), row])).axes[0]
    assert all(1e-30 < limit < 1e30 for limit in (*axes.get_xlim(), *axes.get_ylim()))
    said = "Not drawn (no result): 1 with an impossible figure." in texts(figure)
    assert said == (key != "achieved_flop_per_s"), "without its rate the operator still has its place"


def test_a_dtype_leaves_the_others_out_and_says_so():
    figure = roofline_plot(MACHINE, [gemm(), norm()], dtype="float16")
    assert list(lines(figure.axes[0], "attainable")) == ["attainable gemm"]
    assert "Not drawn (another dtype): 1 fp32." in texts(figure)


def test_the_title_has_the_machine_and_the_dtypes():
    assert roofline_plot(MACHINE, [gemm(), norm()]).axes[0].get_title() == "A machine: fp16, fp32"
    assert "A heading" in texts(roofline_plot(MACHINE, [gemm()], title="A heading"))


def test_a_row_without_an_engine_stands_under_its_dtype():
    row = {key: value for key, value in gemm().rows()[0].items() if key != "engine"}
    assert "fp16 tensor: 312 TFLOP/s" in texts(roofline_plot(MACHINE, [row]))


@pytest.mark.parametrize("point", [3.0, {"op": "gemm"}])
def test_what_is_no_point_is_refused(point):
    with pytest.raises(pm.UsageError):
        roofline_plot(MACHINE, [point])


def test_a_plot_needs_a_machine():
    with pytest.raises(pm.UsageError):
        roofline_figure([])


def test_two_machines_share_their_scales():
    faster = dataclasses.replace(MACHINE, title="Another", memory=(MemoryLevel("hbm", 80e9, 3350e9),))
    point = pm.predict(pm.Gemm(m=64, n=64, k=64, dtype="fp16"), faster)
    left, right = roofline_figure([(MACHINE, [gemm()]), (faster, [point])]).axes
    assert left.get_xlim() == right.get_xlim()
    assert left.get_ylim() == right.get_ylim()
    assert left.get_window_extent().x1 < right.get_window_extent().x0


# How it labels


def test_labels_say_in_what_points_of_one_name_differ():
    attention = {"heads": 16, "head_dim": 64, "dtype": "fp16"}
    points = [
        pm.predict(pm.Attention(seq_q=256, causal=True, **attention), MACHINE),
        pm.predict(pm.Attention(seq_q=512, causal=False, **attention), MACHINE),
        pm.predict(pm.Attention(seq_q=512, causal=False, algorithm="unfused", **attention), MACHINE),
    ]
    labels = [mark.label for mark in _roofline_points.collect(points).marks]
    # seq_kv follows seq_q, kv_heads heads, kv_dtype dtype: no need to repeat them.
    assert labels == ["attention seq_q=256 causal", "attention seq_q=512", "attention seq_q=512 unfused"]


def test_labels_name_the_dtype_where_only_it_differs():
    labels = [mark.label for mark in _roofline_points.collect([gemm(), gemm(dtype="bf16")]).marks]
    assert labels == ["gemm fp16", "gemm bf16"]


def test_few_points_are_named_many_are_numbered_and_more_are_counted():
    assert "gemm" in texts(roofline_plot(MACHINE, [gemm()]))
    sixty = texts(roofline_plot(MACHINE, mixture(60)))
    assert sum(text.partition("  ")[0].isdigit() and "  " in text for text in sixty) == 60
    assert any(
        text.startswith("300 points, too many to name here") for text in texts(roofline_plot(MACHINE, mixture(300)))
    )


def test_numbered_names_carry_the_share_that_each_kernel_reached():
    points = bench_rows([gemm(name="x" * 50), norm(name="y" * 50)], {"library": 0.834, "naive": 0.21})
    points[3]["status"] = "wrong"
    written = texts(roofline_plot(MACHINE, points))
    assert f"1  {'x' * 50}: 83 / 21 %" in written
    assert f"2  {'y' * 50}: 83 / - %" in written
    assert "Percentages: achieved of attainable, library / naive." in written


def test_with_many_kernels_each_share_has_its_kernels_name():
    kernels = {"torch.matmul": 0.5, "naive": 0.001, "triton": 1.2, "cutlass": 0.9}
    written = texts(roofline_plot(MACHINE, bench_rows([gemm(name="x" * 40)], kernels)))
    assert f"1  {'x' * 40}: torch.matmul 50 %, naive <1 %, triton >100 %, cutlass 90 %" in written


def test_operators_differ_in_shape_and_colors_are_okabe_itos():
    axes = roofline_plot(MACHINE, mixture(40)).axes[0]
    markers = lines(axes, "attainable").values()
    assert len({line.get_marker() for line in markers}) == len(markers) == 4
    assert {to_hex(line.get_markeredgecolor()).upper() for line in markers} <= set(COLORS)
    assert len(set(SHAPES)) == len(SHAPES)


def test_kernels_differ_in_color_across_operators():
    axes = roofline_plot(MACHINE, bench_rows([gemm(), norm()], {"library": 0.8, "naive": 0.2})).axes[0]
    by_kernel = {gid.split()[-1]: set() for gid in lines(axes, "achieved")}
    for gid, line in lines(axes, "achieved").items():
        by_kernel[gid.split()[-1]].add(line.get_markerfacecolor())
    assert [len(colors) for colors in by_kernel.values()] == [1, 1]
    assert by_kernel["library"] != by_kernel["naive"]


def test_a_dozen_kernels_have_a_dozen_colors():
    kernels = {f"kernel {index}": 0.5 for index in range(12)}
    axes = roofline_plot(MACHINE, bench_rows([gemm()], kernels)).axes[0]
    assert len({line.get_markerfacecolor() for line in lines(axes, "achieved").values()}) == 12


# That nothing hides anything

SCENES = {
    "no point": lambda: roofline_plot(MACHINE, []),
    "1 point": lambda: roofline_plot(MACHINE, [gemm()]),
    "12 points": lambda: roofline_plot(MACHINE, mixture(12)),
    "a sweep": lambda: roofline_plot(
        MACHINE, [pm.predict(pm.Gemm(m=2.0 ** np.arange(12), n=4096, k=4096, dtype="fp16"), MACHINE)]
    ),
    "60 points": lambda: roofline_plot(MACHINE, mixture(60), title="Sixty"),
    "300 points": lambda: roofline_plot(MACHINE, mixture(300)),
    "bench": lambda: roofline_plot(MACHINE, bench_rows(mixture(12), {"library": 0.8, "naive": 0.2})),
    "many kernels": lambda: roofline_plot(
        MACHINE, bench_rows(mixture(40), {f"library.kernel_{index}": index / 9 for index in range(1, 9)})
    ),
    "long names": lambda: roofline_plot(MACHINE, [gemm(name="void k<" + "x" * 900), norm(name="$a_{$ " + "y" * 900)]),
    "extremes": lambda: roofline_plot(
        MACHINE,
        [gemm(2**20, 2**20, 2**20), gemm(1, 1, 1), pm.predict(pm.Elementwise(numel=9, num_inputs=9**6), MACHINE)],
    ),
    "three machines": lambda: roofline_figure([sweep_on(name) for name in ("h100", "a100", "mi300x")]),
    "two machines": lambda: roofline_figure([(MACHINE, mixture(30)), (MACHINE, [gemm()])], title="Two"),
}


#: scenes that take a second and more to draw are for `make check`
LARGE = {"12 points", "60 points", "300 points", "bench", "many kernels", "three machines", "two machines"}
DRAWN = [pytest.param(scene, marks=pytest.mark.waiting) if scene in LARGE else scene for scene in SCENES]


@functools.cache
def drawn(scene):
    """Each scene is drawn once for all the tests that look at it: the figure and what drew it."""
    figure = SCENES[scene]()
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    return figure, renderer


@pytest.mark.waiting
@pytest.mark.parametrize("scene", SCENES)
def test_no_text_is_cut_off_or_lies_on_another(scene):
    figure, renderer = drawn(scene)
    found = extents(figure, renderer)
    for text, box in found:
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= figure.bbox.x1, text
        assert box.y1 <= figure.bbox.y1, text
    for (first, one), (second, other) in itertools.combinations(found, 2):
        assert overlap(one, other) < 0.1 * min(one.width * one.height, other.width * other.height), (first, second)


def labels_and_leaders(axes, renderer):
    """Boxes of the labels beside the points, and their leader lines: both ends [pixels]."""
    boxes, leaders = {}, []
    per_point = axes.get_figure(root=True).dpi / 72
    for text in axes.texts:
        if text.get_color() == "0.1":  # as `layout.name_marks` writes them
            boxes[text.get_text()] = text.get_window_extent(renderer)
        elif getattr(text, "arrow_patch", None) is not None and text.get_text() == "" and text.xycoords == "data":
            start = axes.transData.transform(text.xy)
            leaders.append((start, start + per_point * np.asarray(text.get_position())))
    return boxes, leaders


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.waiting
def test_labels_of_points_keep_clear_of_each_other_and_of_leader_lines(scene):
    figure, renderer = drawn(scene)
    for axes in figure.axes:
        boxes, leaders = labels_and_leaders(axes, renderer)
        for (first, one), (second, other) in itertools.combinations(boxes.items(), 2):
            assert overlap(one, other) == 0, (first, second)
        for start, end in leaders:
            for text, box in boxes.items():
                # the line ends at the padding of its own label, outside the text
                inside = [box.contains(*(start + share * (end - start))) for share in np.linspace(0, 1, 50)]
                assert not any(inside), text


@pytest.mark.waiting
@pytest.mark.parametrize("name", ["h100", "a100", "mi300x"])
def test_crowded_labels_have_a_gap_that_is_seen(name):
    figure = roofline_plot(*sweep_on(name))
    figure.set_dpi(DOTS_PER_INCH)  # as files have it: the width of text varies with the resolution
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    boxes, _ = labels_and_leaders(figure.axes[0], renderer)
    assert len(boxes) == 8
    gap = 3.0 * figure.dpi / 72
    for (first, one), (second, other) in itertools.combinations(boxes.items(), 2):
        wide = type(one).from_extents(one.x0 - gap, one.y0, one.x1 + gap, one.y1)
        assert overlap(wide, other) == 0, (first, second)


def slanted(text, renderer):
    """Where a text lies in a system of coordinates along its own slope: left, right, bottom, top [pixels]."""
    angle = np.radians(text.get_rotation())
    x, y = text.get_transform().transform(text.get_position())
    left, level = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    width, height, _ = renderer.get_text_width_height_descent(text.get_text(), text.get_fontproperties(), False)
    bottom = level - height if text.get_va() == "top" else level
    return left, left + width, bottom, bottom + height


def test_no_name_of_a_bandwidth_lies_on_another():
    """The points of a large record leave no place free below the roofs of an H200, whose L2 is close to its memory."""
    record = Path(__file__).parents[3] / "examples" / "records" / "h200-sxm-141gb_2026-11-27_drawn.json.gz"
    figure = roofline_plot(pm.hardware("h200"), json.loads(gzip.decompress(record.read_bytes()))["rows"])
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    names = figure.findobj(SlopeText)
    assert len(names) == 4
    for first, second in itertools.combinations(names, 2):
        one, other = slanted(first, renderer), slanted(second, renderer)
        beside = max(one[0], other[0]) >= min(one[1], other[1])
        above = max(one[2], other[2]) >= min(one[3], other[3])
        assert beside or above, (first.get_text(), second.get_text())


@pytest.mark.parametrize("name", ["h100", "a100", "l40s"])
@pytest.mark.parametrize("size", [4096.0, 1e12])
def test_names_of_bandwidths_lie_within_the_frame(name, size):
    """Products of 10^12 leave the slopes a corner of the axes, in which the names of caches were cut by the frame."""
    machine = pm.hardware(name)
    points = [pm.predict(pm.Gemm(m=size, n=size, k=size), machine), pm.predict(pm.Softmax(rows=1, cols=1), machine)]
    figure = roofline_plot(machine, points)
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    frame = figure.axes[0].get_window_extent(renderer)
    names = figure.findobj(SlopeText)
    assert names
    for text in names:
        box = text.get_window_extent(renderer)  # around the slanted text
        assert frame.x0 - 1 <= box.x0, text.get_text()
        assert box.x1 <= frame.x1, text.get_text()
        assert frame.y0 <= box.y0, text.get_text()
        assert box.y1 <= frame.y1 + 1, text.get_text()
    if size > 1e6:
        assert len(names) <= 2, "only the main memory, as stated and sustained"


@pytest.mark.parametrize("name", ["h100", "a100"])
def test_a_sustained_bandwidth_stands_clear_below_its_line(name):
    machine, points = sweep_on(name)
    figure = roofline_plot(machine, points)
    axes = figure.axes[0]
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    (text,) = (
        text
        for text in figure.findobj(SlopeText)
        if f"{machine.main_memory.sustained_bytes_per_s / 1e9:.4g}" in text.get_text()
    )
    intensity, rate = text.get_position()
    # on its line the rate is the intensity times the bandwidth: the anchor is the top of the text
    above = axes.transData.transform((intensity, intensity * machine.main_memory.sustained_bytes_per_s))[1]
    across = (above - axes.transData.transform((intensity, rate))[1]) * np.cos(np.radians(text.get_rotation()))
    assert across > 3.0 * figure.dpi / 72


@pytest.mark.parametrize("scene", DRAWN)
def test_every_point_ceiling_and_ridge_lies_inside_the_axes(scene):
    for axes in drawn(scene)[0].axes:
        left, right = axes.get_xlim()
        bottom, top = axes.get_ylim()
        for line in axes.get_lines():
            x, y = np.asarray(line.get_xdata(), dtype=float), np.asarray(line.get_ydata(), dtype=float)
            x, y = x[np.isfinite(x)], y[np.isfinite(y)]
            assert np.all((x >= left * 0.999) & (x <= right * 1.001))
            assert np.all((y >= bottom * 0.999) & (y <= top * 1.001))


@pytest.mark.parametrize("scene", DRAWN)
def test_legend_and_keys_stand_below_the_axes(scene):
    figure, renderer = drawn(scene)
    for axes in figure.axes:
        label = axes.xaxis.label.get_window_extent(renderer)
        if axes.get_legend():
            assert axes.get_legend().get_window_extent(renderer).y1 <= label.y0


@pytest.mark.parametrize("size", [(5, 8), (12, 4), (8, 6)])
def test_bandwidth_names_keep_the_slope_of_their_line_at_any_size(size):
    figure = roofline_plot(MACHINE, [gemm()])
    figure.set_size_inches(*size)
    figure.draw(FigureCanvasAgg(figure).get_renderer())
    axes: Axes = figure.axes[0]
    # A decade of intensity is a decade of performance, so the slope on paper is that of the two axes' decades.
    box, (left, right), (bottom, top) = axes.get_window_extent(), axes.get_xlim(), axes.get_ylim()
    rise = (box.height / np.log10(top / bottom)) / (box.width / np.log10(right / left))
    names = figure.findobj(SlopeText)
    assert len(names) == len(MACHINE.memory)
    for text in names:
        assert np.tan(np.radians(text.get_rotation())) == pytest.approx(rise, rel=1e-6)


@settings(max_examples=8)
@given(st.lists(st.text(st.characters(max_codepoint=0x17F), max_size=80), min_size=1, max_size=20))
@pytest.mark.waiting
def test_any_name_can_be_drawn(names):
    figure = roofline_plot(MACHINE, [gemm(m=64 + index, name=name) for index, name in enumerate(names)])
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    # whatever the names hold, the ceiling is still labelled, and every text has a place on paper
    found = extents(figure, renderer)
    assert any(text == "fp16 tensor: 312 TFLOP/s" for text, _ in found)
    assert all(np.isfinite(box.extents).all() for _, box in found)


# Saving


@pytest.mark.parametrize(
    ("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")]
)
@pytest.mark.waiting
def test_the_suffix_chooses_the_format_and_equal_plots_are_equal_files(tmp_path, suffix, start):
    for name in ("a", "b"):
        save_figure(roofline_plot(MACHINE, mixture(5)), tmp_path / f"{name}.{suffix}")
    written = (tmp_path / f"a.{suffix}").read_bytes()
    assert written.startswith(start)
    assert written == (tmp_path / f"b.{suffix}").read_bytes()


def test_a_notebook_shows_the_figure_as_a_picture():
    assert roofline_plot(MACHINE, [])._repr_png_().startswith(b"\x89PNG")


def test_an_svg_is_well_formed_whatever_the_names(tmp_path):
    save_figure(roofline_plot(MACHINE, [gemm(name="a -- <b> & \x00\x1b]] $")]), tmp_path / "a.svg")
    assert ET.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize("name", ["a.gif", "a", "png"])
def test_another_suffix_is_refused_with_those_allowed(tmp_path, name):
    with pytest.raises(pm.UsageError, match=r"\.png, \.svg, \.pdf"):
        save_figure(roofline_plot(MACHINE, []), tmp_path / name)
    assert not list(tmp_path.iterdir())


# The pieces


@given(st.lists(st.floats(-1e4, 1e4), max_size=30), st.floats(0.1, 50))
def test_spread_keeps_the_order_and_the_gap(positions, gap):
    moved = spread(positions, gap)
    order = sorted(range(len(positions)), key=lambda index: positions[index])
    for before, after in itertools.pairwise(order):
        assert moved[after] - moved[before] >= gap * (1 - 1e-6)


@given(st.text(max_size=200), st.integers(3, 60))
def test_printable_is_one_short_line(text, longest):
    line = printable(text, longest)
    assert len(line) <= longest
    assert line.isprintable()


# Thresholds, from both sides


def is_numbered(figure):
    return any(text.startswith("1  ") for text in texts(figure))


@pytest.mark.parametrize(("count", "numbered"), [(12, False), (13, True)])
def test_up_to_twelve_points_are_named_at_their_marker(count, numbered):
    assert is_numbered(roofline_plot(MACHINE, [gemm(m=2**4 + index, name=f"op{index}") for index in range(count)])) is (
        numbered
    )


@pytest.mark.parametrize(("length", "numbered"), [(30, False), (31, True)])
def test_names_of_more_than_thirty_characters_are_numbered(length, numbered):
    assert is_numbered(roofline_plot(MACHINE, [gemm(name="x" * length)])) is numbered


@pytest.mark.parametrize(("count", "named"), [(60, True), (61, False)])
def test_up_to_sixty_points_are_named_below_the_plot(count, named):
    key = layout.key_of(_roofline_points.collect(mixture(count)))
    assert (len(key.entries) == count) is named
    assert any("too many to name" in note for note in key.notes) is not named


@pytest.mark.parametrize(("length", "is_cut"), [(60, False), (61, True)])
def test_numbered_names_have_at_most_sixty_characters(length, is_cut):
    (entry,) = layout.key_of(_roofline_points.collect([gemm(name="x" * length)])).entries
    assert ("…" in entry, len(entry)) == (is_cut, len("1  ") + 60)


@pytest.mark.parametrize(("length", "is_cut"), [(400, False), (401, True)])
def test_notes_have_at_most_four_hundred_characters(length, is_cut):
    notes = layout.key_of(_roofline_points.Collected([], ["x" * length])).notes
    assert ("…" in "".join(notes), len("".join(notes))) == (is_cut, 400)


@pytest.mark.parametrize(("length", "is_cut"), [(200, False), (201, True)])
def test_labels_have_at_most_two_hundred_characters(length, is_cut):
    (mark,) = _roofline_points.collect([gemm(name="x" * length)]).marks
    assert ("…" in mark.label, len(mark.label)) == (is_cut, 200)


def test_the_shares_of_three_kernels_stand_in_columns():
    written = texts(roofline_plot(MACHINE, bench_rows([gemm(name="x" * 40)], {"a": 0.5, "b": 0.4, "c": 0.3})))
    assert f"1  {'x' * 40}: 50 / 40 / 30 %" in written


@pytest.mark.parametrize(("count", "is_bitmap"), [(2000, False), (2001, True)])
def test_more_than_two_thousand_markers_are_a_bitmap(count, is_bitmap):
    sweep = pm.predict(pm.Gemm(m=np.arange(1.0, count + 1), n=64, k=64, dtype="fp16"), MACHINE)
    (marker,) = lines(roofline_plot(MACHINE, [sweep]).axes[0], "attainable").values()
    assert bool(marker.get_rasterized()) is is_bitmap


def points_per_decade(axes, axis):
    places = axes.transData.transform([(1.0, 1e12), (10.0, 1e13)])
    return (places[1] - places[0])[axis] * 72 / axes.get_figure(root=True).dpi


@pytest.mark.parametrize(("apart", "has_head"), [(14, False), (18, True)])
def test_an_arrow_head_needs_sixteen_points_between_two_kernels(apart, has_head):
    decade = points_per_decade(roofline_plot(MACHINE, bench_rows([gemm()], {"a": 0.8, "b": 0.6})).axes[0], 1)
    kernels = {"a": 0.8, "b": 0.8 * 10 ** (-apart / decade)}
    axes = roofline_plot(MACHINE, bench_rows([gemm()], kernels)).axes[0]
    assert points_per_decade(axes, 1) == pytest.approx(decade)
    assert bool(lines(axes, "faster")) is has_head


@pytest.mark.parametrize(("apart", "shares_label"), [(4, True), (6, False)])
def test_markers_within_five_points_share_a_label(apart, shares_label):
    first = gemm(name="one").rows()[0]
    decade = points_per_decade(roofline_plot(MACHINE, [first]).axes[0], 0)
    intensity = first["arithmetic_intensity_flop_per_byte"] * 10 ** (-apart / decade)
    second = first | {"name": "two", "arithmetic_intensity_flop_per_byte": intensity}
    assert ("one\ntwo" in texts(roofline_plot(MACHINE, [first, second]))) is shares_label


@pytest.mark.parametrize(("half_size", "has_leader"), [(2.0, False), (10.0, True)])
def test_a_label_that_is_not_beside_its_point_has_a_leader_line(half_size, has_leader):
    axes = new_figure(4.0, 3.0).add_axes((0, 0, 1, 1))
    placer = LabelPlacer(axes)
    placer.block(placer.points_of([(0.5, 0.5)]), half_size, 10.0)  # free places are 6 or 12 pt away
    placer.label([((0.5, 0.5), "name")])
    assert [text.arrow_patch is not None for text in axes.texts] == [False] + [True] * has_leader


def test_no_two_entries_of_the_legend_look_alike():
    """With more kernels than colours their owner is shown, with more operators than shapes the rare ones share one."""
    row = gemm().rows()[0]
    rows = [
        {**row, "op": op, "kernel": kernel, "backend": backend, "achieved_flop_per_s": 1e14, "m": index}
        for index, (op, kernel, backend) in enumerate(
            [
                *((f"op {number}", f"torch.kernel {number}", "torch") for number in range(18)),
                *((f"op {number}", f"triton.kernel {number}", "triton") for number in range(5)),
                ("op 0", "naive", "torch"),
            ]
        )
    ]
    axes = roofline_plot(MACHINE, rows).axes[0]
    legend = axes.get_legend()
    assert legend is not None
    handles = [handle for handle in legend.legend_handles if handle is not None]
    looks = [
        (handle.get_marker(), handle.get_color(), handle.get_markerfacecolor(), handle.get_linestyle())
        for handle in handles
        if not str(handle.get_label()).startswith(("hollow", "filled"))
    ]
    assert len(looks) == len(set(looks))
    labels = {str(handle.get_label()) for handle in handles}
    assert {"torch", "triton", "several kernels", "other operators", "op 0"} <= labels
    assert not any("kernel 3" in label for label in labels)

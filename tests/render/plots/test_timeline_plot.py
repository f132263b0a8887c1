"""The time line plot: lanes cover what ran, bins keep the time, the zoom finds work, many events stay small."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.text import Text

from perfmodel.core.vocabulary import EventKind
from perfmodel.diagnosis.diagnose import diagnose
from perfmodel.diagnosis.intervals import union
from perfmodel.errors import UsageError
from perfmodel.formats import read_profile
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.profile.timeline import ApiCalls, GpuEvents, HostRanges, Timeline
from perfmodel.render.plots.diagnosis import styles
from perfmodel.render.plots.diagnosis.lanes import (
    MOST_STREAMS,
    Lane,
    annotation_rows,
    busiest_stretch,
    fractions,
    lanes,
)
from perfmodel.render.plots.diagnosis.timeline import (
    TimelineBlock,
    _are_distinct,
    _draw_layers,
    draw_block,
    timeline_plot,
)
from perfmodel.render.plots.figure import new_figure, save_figure


def run(kernels, window, *, names=("gemm",), category=None, stream=None, api=(), ops=(), annotations=()):
    """A time line of kernels (start, end) [s]; api: (start, end, category); ops, annotations: (start, end, name)."""
    start, end = (np.array([kernel[side] for kernel in kernels], dtype=float) for side in (0, 1))
    count = len(kernels)
    none = np.full(count, -1)
    texts = (*names, *(row[2] for row in (*ops, *annotations)))

    def ranges(rows):
        first, last = (np.array([row[side] for row in rows], dtype=float) for side in (0, 1))
        at = np.array([texts.index(row[2]) for row in rows], dtype=np.int64)
        return HostRanges(first, last - first, at, np.ones(len(rows), dtype=np.int64), np.full(len(rows), -1))

    name = np.arange(count) % len(names)
    calls = [np.array([row[side] for row in api], dtype=float) for side in (0, 1)]
    return Timeline(
        texts,
        GpuEvents(
            start,
            end - start,
            name,
            np.full(count, EventKind.KERNEL.code) if category is None else np.array(category),
            np.full(count, 7) if stream is None else np.array(stream),
            np.zeros(count, dtype=np.int64),
            none,
            none,
            np.full(count, np.nan),
            none,
            none,
            name,
        ),
        ApiCalls(
            calls[0],
            calls[1] - calls[0],
            np.zeros(len(api), dtype=np.int64),
            np.ones(len(api), dtype=np.int64),
            np.array([row[2] for row in api], dtype=np.int64),
            np.full(len(api), -1),
        ),
        ranges(ops),
        ranges(annotations),
        window_s=window,
    )


def diagnosed(timeline, names=("gemm",)):
    entries = tuple(ProfileEntry(name, 1.0, category="kernel") for name in names)
    return diagnose(Profile(entries, source="a.json", timeline=timeline))


def lengths(lane):
    return {style: float((part[:, 1] - part[:, 0]).sum()) for style, part in lane.layers.items()}


def shown(figure):
    return [text.get_text() for text in figure.findobj(Text) if text.get_text() and text.get_visible()]


def test_lanes_hold_kernels_by_what_limits_them_and_gaps_by_their_reason():
    names = ("gemm", "softmax")
    found = lanes(diagnosed(run([(0, 1), (1, 3), (6, 7), (7, 8)], (0.0, 10.0), names=names), names))
    assert [lane.label for lane in found] == ["GPU, stream 7", "GPU waits"]
    assert lengths(found[0]) == pytest.approx({"compute": 2.0, "memory": 3.0})
    assert sum(lengths(found[1]).values()) == pytest.approx(3.0)  # 3 to 6; what follows the last kernel stands apart
    assert lengths(found[1]) == pytest.approx({"untraced host code": 3.0})  # no call of the runtime is known


def test_communication_has_its_own_colour():
    timeline = run(
        [(0, 1), (2, 5)], (0.0, 5.0), category=[EventKind.KERNEL.code, EventKind.COMMUNICATION.code], stream=[7, 20]
    )
    found = lanes(diagnosed(timeline))
    assert [lane.label for lane in found][:2] == ["GPU, stream 7", "GPU, stream 20"]
    assert lengths(found[1]) == pytest.approx({"communication": 3.0})


def test_many_streams_share_one_lane():
    kernels = [(index, index + 1 + index / 100) for index in range(12)]
    found = lanes(diagnosed(run(kernels, (0.0, 13.0), stream=list(range(12)))))
    labels = [lane.label for lane in found if "stream" in lane.label]
    # the 5 streams with most time, here the last ones, and the other 7 together
    assert labels == [*(f"GPU, stream {stream}" for stream in range(7, 12)), "GPU, 7 streams"]
    assert len(labels) == MOST_STREAMS


def test_threads_show_calls_and_the_input_pipeline():
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    timeline = run([(5, 6)], (0.0, 10.0), api=[(4, 5, 0), (6, 9, 1)], ops=[(0, 2, loader), (3, 4.5, "aten::mm")])
    thread = lanes(diagnosed(timeline))[-1]
    assert thread.label == "CPU thread 1"
    assert lengths(thread) == pytest.approx({"launch": 1.0, "sync": 3.0})
    behind = {style: float((part[:, 1] - part[:, 0]).sum()) for style, part in thread.behind.items()}
    assert behind == pytest.approx({"input pipeline": 2.0, "operator": 1.5})


intervals = st.lists(st.tuples(st.floats(0, 100), st.floats(0, 5)), min_size=1, max_size=40)


@given(intervals)
def test_bins_keep_the_time(spans):
    start = np.array([span[0] for span in spans])
    covered = union(start, start + [span[1] for span in spans])
    edges = np.linspace(0.0, 105.0, 38)
    shares = fractions([covered], edges)
    assert (shares >= 0).all()
    assert (shares <= 1 + 1e-9).all()
    assert float((shares * np.diff(edges)).sum()) == pytest.approx(
        float((covered[:, 1] - covered[:, 0]).sum()), abs=1e-9
    )


def test_layers_that_overlap_fill_a_bin_once():
    whole = np.array([[0.0, 10.0]])
    assert fractions([whole, whole], np.array([0.0, 5.0, 10.0])).sum(axis=0) == pytest.approx([1.0, 1.0])


def test_the_zoom_finds_the_work_beside_a_long_gap():
    # two copies of 10 kernels, far apart; the second at full speed
    slow = [(index, index + 0.1) for index in range(10)]
    fast = [(1000 + 0.1 * index, 1000 + 0.1 * index + 0.09) for index in range(10)]
    low, high = busiest_stretch(run(slow + fast, (0.0, 1100.0)))
    assert (low, high) == (pytest.approx(1000.0), pytest.approx(1000.99))


def test_a_window_that_is_busy_throughout_needs_no_zoom():
    assert busiest_stretch(run([(index, index + 0.9) for index in range(60)], (0.0, 60.0))) is None


def test_annotations_nest_in_rows_and_repeat_once():
    marks = [
        (0, 10, "ProfilerStep#1"),
        (1, 4, "forward"),
        (1, 4, "forward"),
        (5, 9, "backward"),
        (10, 20, "ProfilerStep#2"),
    ]
    rows = annotation_rows(run([(0, 1)], (0.0, 20.0), annotations=marks))
    assert [[mark.name for mark in row] for row in rows] == [
        ["ProfilerStep#1", "ProfilerStep#2"],
        ["forward", "backward"],
    ]


def test_a_profile_of_sums_has_no_time_line():
    with pytest.raises(UsageError, match="needs a trace"):
        timeline_plot(diagnose(Profile((ProfileEntry("gemm", 1.0),))))


def test_a_hundred_thousand_events_are_some_polygons():
    count = 100_000
    start = np.arange(count) * 10e-6
    timeline = run([(0, 1)], (0.0, 1.0))
    one = timeline.gpu
    many = {field.name: np.repeat(getattr(one, field.name), count) for field in dataclasses.fields(one)}
    many |= {"start_s": start, "duration_s": np.full(count, 7e-6)}
    figure = timeline_plot(diagnosed(dataclasses.replace(timeline, gpu=GpuEvents(**many))))
    drawn = list(figure.findobj(PolyCollection))
    assert sum(len(made.get_paths()) for made in drawn) < 3000
    assert sum(path.vertices.shape[0] for made in drawn for path in made.get_paths()) < 60_000


TRACES = [
    "hta_alexnet_a100_big_gaps.json.gz",
    "tracelens_h100_bert-small.json.gz",
    "tracelens_sglang_qwen3-8b_decode_cudagraph_mi300.json.gz",
]


@pytest.mark.parametrize("name", TRACES)
def test_no_label_of_a_real_trace_lies_on_another(data_dir, name):
    figure = timeline_plot(diagnose(read_profile(data_dir / "traces" / name)))
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    for axes in figure.axes:
        assert axes.get_xlabel().startswith("time since")
        boxes = [text.get_window_extent(renderer) for text in axes.texts if text.get_text()]
        for index, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[index + 1 :])
        ticks = [tick for tick in axes.get_xticklabels() if tick.get_text()]
        assert len(ticks) >= 2
    left = min(label.get_window_extent(renderer).x0 for axes in figure.axes for label in axes.get_yticklabels())
    assert left >= 0  # no label of a lane is cut off


def test_a_ten_second_gap_leaves_the_kernels_readable(data_dir):
    figure = timeline_plot(diagnose(read_profile(data_dir / "traces" / TRACES[0])))
    whole, zoomed = figure.axes
    assert whole.get_xlim()[1] - whole.get_xlim()[0] > 10
    assert zoomed.get_xlim()[1] - zoomed.get_xlim()[0] < 0.2


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_every_format_can_be_written(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    save_figure(timeline_plot(diagnosed(run([(0, 1), (2, 3)], (0.0, 4.0)))), path)
    assert path.stat().st_size > 1000


def test_kernels_are_called_by_their_function():
    assert styles.shortened("void at::native::(anonymous namespace)::max_pool<float>(int, float*)", 60) == "max_pool"


def test_text_is_readable_on_every_colour():
    assert styles.text_color("compute") == "white"
    assert styles.text_color("communication") == "black"


# Thresholds, from both sides


@pytest.mark.parametrize(("threads", "last"), [(4, "CPU thread 3"), (5, "2 CPU threads")])
def test_four_lanes_show_threads(threads, last):
    timeline = run([(0, 1)], (0.0, 10.0), ops=[(index, index + 1, "aten::mm") for index in range(threads)])
    ops = dataclasses.replace(timeline.ops, thread=np.arange(threads))
    labels = [lane.label for lane in lanes(diagnosed(dataclasses.replace(timeline, ops=ops)))]
    assert [label for label in labels if "CPU" in label][-1] == last
    assert sum("CPU" in label for label in labels) == 4


def test_the_zoom_shows_seventy_events():
    slow = [(index, index + 0.1) for index in range(300)]
    fast = [(1000 + 0.1 * index, 1000 + 0.1 * index + 0.09) for index in range(100)]
    low, high = busiest_stretch(run(slow + fast, (0.0, 1100.0)))
    assert (low, high) == (pytest.approx(1000.0), pytest.approx(1000 + 69 * 0.1 + 0.09))


@pytest.mark.parametrize(("busy_s", "has_zoom"), [(3.4, True), (3.6, False)])
def test_the_zoom_is_shorter_than_a_third_of_the_window_or_so(busy_s, has_zoom):
    slow = [(0.6 * index, 0.6 * index + 0.05) for index in range(10)]
    step = busy_s / 10
    fast = [(6.2 + step * index, 6.2 + step * (index + 1)) for index in range(10)]
    assert (busiest_stretch(run(slow + fast, (0.0, 10.0))) is not None) is has_zoom


def test_annotations_have_three_rows_and_the_longest_twelve_hundred_ranges():
    nested = [(depth, 20 - depth, f"level {depth}") for depth in range(4)]
    assert len(annotation_rows(run([(0, 1)], (0.0, 20.0), annotations=nested))) == 3
    many = [(index, index + 0.5 + index / 10_000, f"range {index}") for index in range(1300)]
    (row,) = annotation_rows(run([(0, 1)], (0.0, 1301.0), annotations=many))
    assert [mark.name for mark in row] == [f"range {index}" for index in range(100, 1300)]


@pytest.mark.parametrize(("count", "columns"), [(9, 9), (10, 5)])
def test_a_legend_of_more_than_nine_names_has_two_rows(count, columns):
    layers = {style: np.array([[0.0, 1.0]]) for style in list(styles.COLORS)[:count]}
    block = TimelineBlock(run([(0, 1)], (0.0, 1.0)), (Lane("lane", layers),), (), None)
    figure = new_figure(11.0, block.height_inches)
    draw_block(figure, block, 0.0)
    (legend,) = figure.legends
    assert legend._ncols == columns


def narrow(places):
    return np.stack((places, places + 1e-5), axis=1)


@pytest.mark.parametrize(("count", "distinct"), [(700, True), (701, False)])
def test_up_to_seven_hundred_intervals_are_rectangles(count, distinct):
    assert _are_distinct(narrow((np.arange(count) + 0.5) / 900), (0.0, 1.0)) is distinct


@pytest.mark.parametrize(("count", "distinct"), [(30, True), (31, False)])
def test_up_to_thirty_narrow_intervals_may_share_a_bin_with_others(count, distinct):
    places = (np.arange(count) + 0.4) / 900
    assert _are_distinct(narrow(np.concatenate((places, places + 0.2 / 900))), (0.0, 1.0)) is distinct


@pytest.mark.parametrize(("apart", "distinct"), [(1 / 850, True), (1 / 1400, False)])
def test_intervals_a_nine_hundredth_of_the_window_apart_are_distinct(apart, distinct):
    places = (np.arange(300) + 0.1) / 301
    assert _are_distinct(narrow(np.concatenate((places, places + apart))), (0.0, 1.0)) is distinct


def test_a_bin_with_any_event_is_a_tenth_of_the_lane_high():
    axes = new_figure(4.0, 3.0).add_axes((0, 0, 1, 1))
    start = np.arange(900) / 900
    layers = {"compute": np.stack((start, start + 0.01 / 900), axis=1)}  # one per cent of each bin
    assert not _draw_layers(axes, layers, (0.0, 1.0), 0.0, 2.0, zorder=1)
    (filled,) = axes.collections
    heights = filled.get_paths()[0].vertices[:, 1]
    assert heights.max() - heights.min() == pytest.approx(0.1 * 2.0)


@pytest.mark.parametrize(("letters", "is_named"), [(4.5, False), (5.5, True)])
def test_an_event_with_room_for_five_letters_is_named(letters, is_named):
    # 9.4 inches of axes for a second; a letter of 6 pt takes 0.053 inches, and one is left free
    length = (letters + 1) * 0.053 / 9.4
    step = [(0.0, 1.0, "ProfilerStep#1")]
    line = run([(0.5, 0.5 + length)], (0.0, 1.0), names=("abcdefgh",), annotations=step)
    figure = timeline_plot(diagnosed(line, ("abcdefgh",)))
    assert any(text.startswith("ab") for text in shown(figure)) is is_named

"""The breakdown plot: bars are as long as their times, every part is named once, before and after share an axis."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from perfmodel.core.vocabulary import Dimension, EventKind
from perfmodel.diagnosis.against import compare_diagnoses
from perfmodel.diagnosis.diagnose import diagnose
from perfmodel.diagnosis.result import Evidence, Part
from perfmodel.errors import UsageError
from perfmodel.formats import read_profile
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.render.plots.diagnosis.breakdown import _inside, against_plot, breakdown_plot
from perfmodel.render.plots.diagnosis.styles import COLORS

ROWS = {"a gemm": 6e-3, "a softmax": 3e-3, "unknown thing": 1e-3}


def table(rows=ROWS):
    return diagnose(Profile(tuple(ProfileEntry(*row, category="kernel") for row in rows.items()), source="dir/a.csv"))


def bars(figure, gid):
    return [p.get_width() for p in figure.axes[0].patches if isinstance(p, Rectangle) and p.get_gid() == gid]


def texts(figure):
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def overlapping(figure, axes):
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in axes.texts if text.get_text()]
    # text boxes have air above and below the letters
    boxes = [(text, box.padded(-1)) for text, box in boxes]
    return [(one, two) for i, (one, a) in enumerate(boxes) for two, b in boxes[i + 1 :] if a.overlaps(b)]


def test_parts_of_the_bar_are_as_long_as_their_times():
    figure = breakdown_plot(table())
    assert bars(figure, "dimension") == pytest.approx([6e-3, 3e-3, 1e-3])
    assert bars(figure, "row") == pytest.approx([6e-3, 6e-3, 3e-3, 3e-3, 1e-3, 1e-3])  # each with its one kernel
    assert figure.axes[0].get_xlim() == pytest.approx((0.0, 10e-3))
    assert figure.axes[0].get_xlabel() == "time [ms]"


def test_the_figure_says_what_the_time_is_of():
    said = texts(breakdown_plot(table()))
    assert "time of the rows listed 10 ms, a.csv" in said
    assert "6 ms, 60.0 %" in said  # the heading of compute
    assert "compute 6 ms, 60.0 %" in said  # its part of the bar


def test_evidence_of_one_name_is_told_apart_by_its_detail():
    made = table()
    idle = tuple(Evidence("host work", 1e-3, 1, detail) for detail in ("cudaFree", "cudaMalloc"))
    parts = tuple(
        dataclasses.replace(part, evidence=idle) if part.dimension == "memory" else part for part in made.parts
    )
    said = texts(breakdown_plot(dataclasses.replace(made, parts=parts)))
    assert {"host work: cudaFree", "host work: cudaMalloc"} <= set(said)


def rows_below(figure):
    """label -> lengths of its bars, for the rows below the stacked bar"""
    patches = [p for p in figure.axes[0].patches if isinstance(p, Rectangle) and p.get_gid() == "row"]
    labels = [t for t in figure.axes[0].texts if t.get_horizontalalignment() == "right"]
    found = {}
    for patch in patches:
        middle = patch.get_y() + patch.get_height() / 2
        nearest = min(labels, key=lambda text: abs(text.xy[1] - middle))
        found.setdefault(nearest.get_text(), []).append(patch.get_width())
    return found


def with_memory_evidence(times_s):
    diagnosis = table()
    evidence = tuple(Evidence(f"part {number}", time, 1, "") for number, time in enumerate(times_s))
    parts = [
        dataclasses.replace(part, evidence=evidence) if part.dimension == "memory" else part for part in diagnosis.parts
    ]
    return dataclasses.replace(diagnosis, parts=tuple(parts))


def test_what_the_rows_of_a_dimension_leave_out_is_its_rest():
    # memory takes 3 of 10 ms: four pieces have a row, the rest is 3 - (1 + 0.8 + 0.4 + 0.3)
    rows = rows_below(breakdown_plot(with_memory_evidence([1e-3, 0.8e-3, 0.4e-3, 0.3e-3, 0.25e-3, 0.2e-3])))
    assert "part 3" in rows
    assert "part 4" not in rows
    assert rows["rest"] == pytest.approx([0.5e-3])
    assert "500 us, 5.0 %" in texts(breakdown_plot(with_memory_evidence([1e-3, 0.8e-3, 0.4e-3, 0.3e-3, 0.25e-3])))


@pytest.mark.parametrize(("piece_s", "has_row"), [(19e-6, False), (21e-6, True)])
def test_a_piece_of_evidence_below_a_five_hundredth_of_the_time_is_in_the_rest(piece_s, has_row):
    rows = rows_below(breakdown_plot(with_memory_evidence([2e-3, piece_s])))
    assert ("part 1" in rows) is has_row


@pytest.mark.parametrize(("rest_s", "has_row"), [(19e-6, False), (21e-6, True)])
def test_a_rest_below_a_five_hundredth_of_the_time_is_not_drawn(rest_s, has_row):
    assert ("rest" in rows_below(breakdown_plot(with_memory_evidence([3e-3 - rest_s])))) is has_row


def test_entries_beyond_the_largest_changes_share_a_row():
    before = {f"kernel {number:02}": (number + 1) * 1e-4 for number in range(17)}
    after = {name: 2 * time for name, time in before.items()}
    rows = rows_below(against_plot(compare_diagnoses(table(before), table(after))))
    assert "kernel 03" in rows
    assert "kernel 02" not in rows
    assert rows["rest: 3 entries"] == pytest.approx([6e-4, 12e-4])
    few = dict(list(before.items())[:14])
    rows = rows_below(against_plot(compare_diagnoses(table(few), table({name: 2 * few[name] for name in few}))))
    assert not [label for label in rows if label.startswith("rest")]


def test_before_and_after_share_one_axis():
    figure = against_plot(compare_diagnoses(table(), table({"a gemm": 2e-3, "a softmax": 3e-3, "new thing": 1e-3})))
    assert bars(figure, "dimension") == pytest.approx([6e-3, 3e-3, 1e-3, 2e-3, 3e-3, 1e-3])
    assert figure.axes[0].get_xlim() == pytest.approx((0.0, 10e-3))
    said = texts(figure)
    assert "before and after: 10 ms -> 6 ms, 1.67x as fast" in said
    assert "before 10 ms" in said
    assert "after 6 ms" in said
    assert "-4 ms, -66.7 %" in said
    assert "+1 ms, appeared" in said
    assert "-1 ms, vanished" in said


def test_nothing_to_draw_is_said():
    empty = table({"a gemm": 0.0})
    with pytest.raises(UsageError, match="no time"):
        breakdown_plot(empty)
    with pytest.raises(UsageError, match="no time"):
        against_plot(compare_diagnoses(empty, empty))


@given(st.lists(st.floats(-1.0, 20.0), min_size=1, max_size=8), st.floats(0.1, 1.0))
def test_labels_end_before_the_limit(places, gap):
    moved = _inside(places, gap, 12.0)
    assert max(moved) + gap / 2 <= 12.0 + 1e-9
    assert [b - a for a, b in pairwise(moved)] == pytest.approx([b - a for a, b in pairwise(places)], abs=1e-9)


def colors_of(figure, gid):
    patches = [p for p in figure.axes[0].patches if isinstance(p, Rectangle) and p.get_gid() == gid]
    return [to_hex(patch.get_facecolor()) for patch in patches]


def test_communication_has_the_colour_of_the_time_line(data_dir):
    """Exposed all-reduces take nearly all of transfer in this trace: neither has the colour of copies."""
    made = diagnose(read_profile(data_dir / "traces" / "tracelens_mi300_resnet_act_checkpoint_ddp.json.gz"))
    figure = breakdown_plot(made)
    (part,) = (part for part in made.parts if part.dimension == "transfer")
    assert all(one.what.startswith("allreduce") for one in part.evidence if one.time_s > 0.1 * part.time_s)
    for gid, fewest in (("dimension", 1), ("row", 3)):
        assert colors_of(figure, gid).count(to_hex(COLORS["communication"])) >= fewest
        assert to_hex(COLORS["transfer"]) not in colors_of(figure, gid)


def test_copies_keep_the_colour_of_transfer_beside_communication():
    """Two thirds of transfer are a copy."""
    made = table()
    rows = [("all_reduce", 1e-3, EventKind.COMMUNICATION), ("copies host to device", 2e-3, EventKind.MEMCPY)]
    entries = tuple(ProfileEntry(name, time_s, category=kind) for name, time_s, kind in rows)
    part = Part(Dimension.TRANSFER, 3e-3, 0.5, tuple(Evidence(name, time_s, 1) for name, time_s, _ in rows))
    profile = dataclasses.replace(made.profile, entries=(*made.profile.entries, *entries))
    figure = breakdown_plot(dataclasses.replace(made, parts=(part,), profile=profile))
    assert colors_of(figure, "dimension") == [to_hex(COLORS["transfer"])]
    heading, copies, messages = colors_of(figure, "row")
    assert heading == copies == to_hex(COLORS["transfer"])
    assert messages == to_hex(COLORS["communication"])


@pytest.mark.parametrize(
    "name",
    [
        "hta_alexnet_a100_big_gaps.json.gz",
        "tracelens_h100_bert-small.json.gz",
        "tracelens_torch_compile_triton_mi300.json.gz",
    ],
)
def test_no_label_of_a_real_trace_lies_on_another(data_dir, name):
    made = diagnose(read_profile(data_dir / "traces" / name))
    figure = breakdown_plot(made, with_timeline=False)
    assert sum(bars(figure, "dimension")) == pytest.approx(made.total_s)
    assert overlapping(figure, figure.axes[0]) == []
    assert len(figure.axes) == 1
    # the bars, the whole window, and where it helps the busiest stretch
    assert len(breakdown_plot(made).axes) in (2, 3)


@pytest.mark.parametrize(("share", "has_row"), [(0.7e-6, False), (1.5e-6, True)])
def test_a_millionth_of_the_time_is_a_rounding_error(share, has_row):
    assert ("memory" in rows_below(breakdown_plot(table({"a gemm": 1.0, "a softmax": share})))) is has_row


@pytest.mark.parametrize(("share", "label"), [(0.004, False), (0.006, True)])
def test_a_segment_of_half_a_per_cent_is_labelled_at_the_bar(share, label):
    said = texts(breakdown_plot(table({"a gemm": 1.0 - share, "a softmax": share})))
    assert (f"memory {100 * share:.1f} %" in said) is label


@pytest.mark.parametrize(("length", "is_cut"), [(58, False), (59, True)])
def test_labels_have_at_most_fifty_eight_characters(length, is_cut):
    name = "gemm_" + "x" * (length - 5)
    (label,) = [text for text in texts(breakdown_plot(table({name: 1.0}))) if text.startswith("gemm_")]
    assert ("…" in label, len(label)) == (is_cut, 58)


@pytest.mark.parametrize("share", [0.1, 0.13, 0.16, 0.19, 0.22, 0.25, 0.28, 0.31, 0.34, 0.37])
def test_a_label_in_a_segment_is_narrower_than_the_segment(share):
    figure = breakdown_plot(table({"a gemm": 1.0 - share, "a softmax": share}))
    (axes,) = figure.axes
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    (segment,) = [p for p in axes.patches if p.get_gid() == "dimension" and p.get_width() == pytest.approx(share)]
    box = segment.get_window_extent(renderer)
    inside = [t for t in axes.texts if t.get_text().startswith("memory") and t.get_horizontalalignment() == "center"]
    assert len(inside) == 1
    for text in inside:
        extent = text.get_window_extent(renderer)
        assert extent.width < box.width or extent.y0 > box.y1, "inside of it, or above"

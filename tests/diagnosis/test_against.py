"""Before and after: contributions add up, entries are matched, and a pair of real traces tells its known story."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.core.vocabulary import Dimension
from perfmodel.diagnosis.against import APPEARED, BOTH, RENAMED, VANISHED, compare_diagnoses, match_entries
from perfmodel.diagnosis.diagnose import diagnose
from perfmodel.errors import UsageError
from perfmodel.formats import read_profile
from perfmodel.operators.gemm import Gemm
from perfmodel.profile.profile import Profile, ProfileEntry

GEMM = Gemm(m=64, n=64, k=64, dtype="fp16")


def trace(traced, window, kernels, steps=(), **more):
    """A diagnosis of kernels (start, end, name) in us, asked for long before, on one GPU."""
    timeline = traced(
        window,
        gpu=[(start, end, name, "kernel", -1) for start, end, name in kernels],
        annotations=[(start, end, f"ProfilerStep#{n}") for n, (start, end) in enumerate(steps)],
    )
    names = list(dict.fromkeys(name for _, _, name in kernels))
    gpu = dataclasses.replace(timeline.gpu, entry=timeline.gpu.name)
    entries = [
        ProfileEntry(name, 1e-6 * sum(e - s for s, e, n in kernels if n == name), category="kernel") for name in names
    ]
    timeline = dataclasses.replace(timeline, gpu=gpu)
    return diagnose(Profile(tuple(entries), source="a.json", timeline=timeline, **more))


def table(*rows, **more):
    return diagnose(Profile(tuple(ProfileEntry(name, time_s, category="kernel") for name, time_s in rows), **more))


def of(found, name):
    return next(change for change in (*found.dimensions, *found.entries) if change.name == name)


def test_a_run_against_itself_has_not_changed(traced):
    run = trace(traced, (0, 100), [(0, 40, "gemm"), (50, 80, "softmax")])
    found = compare_diagnoses(run, run)
    assert (found.speedup, found.per) == (1.0, "run")
    assert {change.share for change in (*found.dimensions, *found.entries)} == {0.0}
    assert {change.status for change in found.entries} == {BOTH}


def test_contributions_are_parts_of_the_whole_before(traced):
    before = trace(traced, (0, 100), [(0, 60, "gemm"), (60, 100, "softmax")])
    after = trace(traced, (0, 80), [(0, 45, "gemm"), (45, 80, "softmax")])
    found = compare_diagnoses(before, after)
    assert found.speedup == pytest.approx(1.25)  # 100 us / 80 us
    assert of(found, "compute").share == pytest.approx(-0.15)  # 60 -> 45 of 100
    assert of(found, "memory").share == pytest.approx(-0.05)  # 40 -> 35 of 100
    assert of(found, "gemm").change == pytest.approx(-0.25)


def test_unequal_numbers_of_steps_compare_one_step(traced):
    # 100 us in 1 step, 150 us in 2: 75 us a step
    before = trace(traced, (0, 100), [(0, 100, "gemm")], steps=[(0, 100)])
    after = trace(traced, (0, 150), [(0, 150, "gemm")], steps=[(0, 75), (75, 150)])
    found = compare_diagnoses(before, after)
    assert (found.per, found.steps) == ("step", (1, 2))
    assert (found.before_s, found.after_s) == (pytest.approx(100e-6), pytest.approx(75e-6))
    assert of(found, "gemm").change == pytest.approx(-0.25)
    assert sum(change.share for change in found.dimensions) == pytest.approx(-0.25)


def test_equal_numbers_of_steps_compare_the_runs(traced):
    before = trace(traced, (0, 100), [(0, 100, "gemm")], steps=[(0, 50), (50, 100)])
    after = trace(traced, (0, 80), [(0, 80, "gemm")], steps=[(0, 40), (40, 80)])
    found = compare_diagnoses(before, after)
    assert (found.per, found.before_s) == ("run", pytest.approx(100e-6))
    assert "2 steps on both sides: 50 us per step before, 40 us after." in found.report().notes


def test_a_step_counts_where_most_of_it_is_in_the_window(traced):
    run = trace(traced, (0, 100), [(0, 100, "gemm")], steps=[(-90, 5), (5, 95), (95, 200)])
    assert run.profile.timeline.count_steps() == 1


def test_what_one_side_lacks_appeared_or_vanished(traced):
    before = trace(traced, (0, 100), [(0, 60, "gemm"), (60, 100, "softmax")])
    after = trace(traced, (0, 100), [(0, 60, "gemm"), (60, 100, "flash_attention")])
    found = compare_diagnoses(before, after)
    assert of(found, "softmax").status == VANISHED
    assert of(found, "softmax").after_s is None
    assert of(found, "flash_attention").status == APPEARED
    assert of(found, "flash_attention").share == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (ProfileEntry("volta_gemm", 1.0, op=GEMM), ProfileEntry("ampere_gemm", 1.0, op=GEMM)),
        (
            ProfileEntry("aten::mm(64x64) fp32", 1.0, launched_by="aten::mm"),
            ProfileEntry("aten::mm(64x64) bf16", 1.0, launched_by="aten::mm"),
        ),
    ],
)
def test_renamed_entries_are_matched_by_their_work(left, right):
    other = ProfileEntry("other", 1.0)
    assert match_entries([left, other], [other, right]) == [(other, other), (left, right)]
    sides = [diagnose(Profile((one, other))) for one in (left, right)]
    assert RENAMED in [change.status for change in compare_diagnoses(*sides).entries]


def test_two_entries_of_one_work_are_not_guessed_at():
    left = [ProfileEntry("one", 1.0, op=GEMM), ProfileEntry("two", 1.0, op=GEMM)]
    right = [ProfileEntry("three", 1.0, op=GEMM)]
    assert match_entries(left, right) == [(left[0], None), (left[1], None), (None, right[0])]


def test_entries_without_work_are_matched_by_name_alone():
    left, right = ProfileEntry("one", 1.0), ProfileEntry("two", 1.0)
    assert match_entries([left], [right]) == [(left, None), (None, right)]


rows = st.dictionaries(st.sampled_from(["gemm", "softmax", "relu", "foo", "copy"]), st.floats(1e-6, 1.0), min_size=1)


@given(rows, rows)
def test_contributions_add_up_to_the_change(before, after):
    found = compare_diagnoses(table(*before.items()), table(*after.items()))
    change = found.after_s / found.before_s - 1
    for changes in (found.dimensions, found.entries):
        assert sum(one.share for one in changes) == pytest.approx(change, abs=1e-9)
        assert sum(one.change_s for one in changes) == pytest.approx(found.after_s - found.before_s, abs=1e-9)


def test_tables_compare_what_they_list_and_say_what_they_cannot_know():
    found = compare_diagnoses(table(("gemm", 3.0), ("softmax", 1.0)), table(("gemm", 1.0), ("softmax", 1.0)))
    assert found.speedup == 2.0
    assert "idle" not in [change.name for change in found.dimensions]
    assert any("launch, sync, idle" in note for note in found.notes)


def test_a_trace_and_a_table_do_not_compare(traced):
    run = trace(traced, (0, 100), [(0, 100, "gemm")])
    with pytest.raises(UsageError, match="has only sums"):
        compare_diagnoses(run, table(("gemm", 1.0)))


def test_different_devices_are_noted(traced):
    a, b = (trace(traced, (0, 100), [(0, 100, "gemm")], device=device) for device in ("A100", "H100"))
    assert "Different devices: A100 before, H100 after." in compare_diagnoses(a, b).notes
    assert not compare_diagnoses(a, a).notes


def test_the_report_says_which_is_which_and_lists_what_changed_most(traced):
    before = trace(traced, (0, 100), [(0, 60, "gemm"), (60, 100, "softmax")])
    after = trace(traced, (0, 80), [(0, 45, "gemm"), (45, 80, "softmax")])
    report = compare_diagnoses(before, after).report()
    assert "(before)" in report.title
    assert "1.25x as fast" in report.title
    assert [row["dimension"] for row in report.rows] == list(Dimension)
    assert [row["name"] for row in report.more["entries"].rows] == ["gemm", "softmax"]
    assert report.more["summary"].rows[0]["speedup"] == pytest.approx(1.25)


def test_people_see_the_twelve_entries_that_changed_most_and_json_all(traced):
    before, after = (
        trace(traced, (0, 1000), [(50 * at, 50 * at + 20 + factor * at, f"kernel_{at:02}") for at in range(14)])
        for factor in (0, 1)
    )
    entries = compare_diagnoses(before, after).report().more["entries"]
    shown, rows = entries.shown_rows, entries.rows
    assert (len(shown), shown) == (12, rows[:12])
    assert min(abs(row["change_s"]) for row in shown) >= max(abs(row["change_s"]) for row in rows[12:])
    assert {"kernel_00", "kernel_01"} <= {row["name"] for row in rows[12:]}
    assert entries.unlisted == f"Entries that changed less: {len(rows) - 12}; JSON has them."


def test_more_workers_take_the_input_pipeline_away(data_dir):
    """ResNet-50, 0 and 4 workers of its loader: 929 ms against 770 ms in 6 steps, the GPU idle 31 % and 13 %."""
    names = ("kineto_resnet50_train_nw0_2021.pt.trace.json.gz", "kineto_resnet50_train_nw4_2021.pt.trace.json.gz")
    found = compare_diagnoses(*(diagnose(read_profile(data_dir / "traces" / name)) for name in names))
    assert (found.steps, found.per) == ((6, 6), "run")
    assert (found.before_s, found.after_s) == (pytest.approx(0.9288, rel=1e-3), pytest.approx(0.7698, rel=1e-3))
    assert found.speedup == pytest.approx(1.207, rel=1e-3)
    not_busy = [
        sum(change.before_s if side == 0 else change.after_s for change in found.dimensions if change.name in GAPS)
        for side in (0, 1)
    ]
    assert not_busy[0] / found.before_s == pytest.approx(0.31, abs=0.02)
    assert not_busy[1] / found.after_s == pytest.approx(0.13, abs=0.01)
    # nearly all of the change is idle time, of it the input pipeline's; the kernels are the same within 2 %
    change = found.after_s / found.before_s - 1
    assert sum(one.share for one in found.dimensions) == pytest.approx(change)
    assert sum(one.share for one in found.entries) == pytest.approx(change)
    assert of(found, "idle").share == pytest.approx(change, abs=0.01)
    assert found.entries[0].name == "[idle: input pipeline]"
    assert found.entries[0].before_s == pytest.approx(0.1838, rel=0.01)
    assert abs(of(found, "compute").change) < 0.03


GAPS = ("launch", "sync", "idle")


@pytest.mark.parametrize(("share", "steps"), [(0.4, 0), (0.6, 1)])
def test_a_step_counts_with_more_than_half_of_its_time(traced, share, steps):
    run = trace(traced, (0, 100), [(0, 100, "gemm")], steps=[(100 - 100 * share, 200 - 100 * share)])
    assert run.profile.timeline.count_steps() == steps

"""Rows that count time twice: totals, kernels beside operators, nested ranges, and percentages that show it."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perfmodel.formats.text.double_counting import (
    own_times,
    percent_notes,
    without_indented,
    without_kernels,
    without_total,
)
from perfmodel.profile.profile import ProfileEntry


def entries(**times_s):
    return [ProfileEntry(name, time_s, 1) for name, time_s in times_s.items()]


def times(rows):
    return {entry.name: pytest.approx(entry.time_s) for entry in rows}


@pytest.mark.parametrize("time_s", [7.120, 7.121, 7.119])
def test_a_total_with_four_digits_is_the_sum_of_its_rows(time_s):
    # 3.5604 + 3.5604 = 7.1208 s; four digits of the total are off by up to 0.0005, those of the rows as well
    rows, notes = without_total([*entries(a=3.5604, b=3.5604), ProfileEntry("total", time_s)])
    assert times(rows) == {"a": 3.5604, "b": 3.5604}
    assert "is the sum of the others and is left out" in notes[0]


def test_a_total_that_rounding_does_not_explain_holds_more():
    # 1.5 parts in 1000 more than the rows
    rows, notes = without_total([*entries(a=1.0, b=1.0), ProfileEntry("Total:", 2.003)])
    assert times(rows) == {"a": 1.0, "b": 1.0, "(not itemised)": 0.003}
    assert "the difference is '(not itemised)'" in notes[0]


def test_a_total_below_the_sum_shows_that_rows_nest():
    rows, notes = without_total([*entries(outer=1.0, inner=0.5), ProfileEntry("total", 1.0)])
    assert times(rows) == {"outer": 1.0, "inner": 0.5}
    assert "overlap or nest" in notes[0]


def test_an_operator_named_sum_is_a_total_only_if_it_equals_the_sum():
    rows = [*entries(a=1.0, b=1.0), ProfileEntry("sum", 1.5)]
    assert without_total(rows) == (rows, ())
    assert times(without_total([*rows[:2], ProfileEntry("sum", 2.0)])[0]) == {"a": 1.0, "b": 1.0}
    # a row alone is not a sum of others
    assert without_total(rows[2:]) == (rows[2:], ())


@pytest.mark.parametrize(
    ("operators_s", "kernels_s", "same"),
    [
        # work launched outside operators takes a few percent, on either side
        (1.00, 0.91, True),
        (0.91, 1.00, True),
        # kernels that take an eighth, a quarter or two fifths less than the operators are other work as well: to drop
        # them would lose their time
        (1.00, 0.88, False),
        (1.00, 0.75, False),
        (0.60, 1.00, False),
    ],
)
def test_kernels_are_dropped_if_they_take_the_time_of_the_operators(operators_s, kernels_s, same):
    rows = [ProfileEntry("aten::mm", operators_s), ProfileEntry("void f<int>(T)", kernels_s), *entries(region=2.0)]
    kept, notes = without_kernels(rows)
    assert kept == ([rows[0], rows[2]] if same else rows)
    assert ("only the operators are counted" in notes[0]) == same
    assert ("time counts twice" in notes[0]) != same


@pytest.mark.parametrize("names", [("aten::mm", "aten::add"), ("void f<int>(T)", "sm80_gemm"), ("a", "b"), ()])
def test_operators_or_kernels_alone_are_kept(names):
    rows = [ProfileEntry(name, 1.0) for name in names]
    assert without_kernels(rows) == (rows, ())


def test_a_range_loses_the_time_of_ranges_named_after_it():
    # layer 600 - 100 - 200 = 300; "layer.mlp.fc" belongs to layer.mlp, its nearest outer range
    rows = [ProfileEntry(n, t, 2) for n, t in (("layer", 600.0), ("layer.mlp", 200.0), ("layer.mlp.fc", 50.0))]
    own, notes = own_times([*rows, ProfileEntry("layer.attention", 100.0, 2), ProfileEntry("layers", 10.0, 2)])
    assert times(own) == {
        "layer": 300.0,
        "layer.mlp": 150.0,
        "layer.mlp.fc": 50.0,
        "layer.attention": 100.0,
        "layers": 10.0,
    }
    assert "3 ranges are inside others by their names" in notes[0]
    assert "the total is too large" in notes[-1]


def test_a_range_that_is_shorter_than_its_inner_ones_counts_as_zero():
    own, notes = own_times([ProfileEntry("a", 1.0, 2), ProfileEntry("a.b", 3.0, 2)])
    assert times(own) == {"a": 0.0, "a.b": 3.0}
    assert "1 ranges are shorter than the ranges named after them" in notes[1]


@pytest.mark.parametrize(("calls", "outer_s", "own_s"), [(1, 5.0, 2.0), (1, 3.0, 0.0), (2, 5.0, 5.0), (1, 2.9, 2.9)])
def test_a_range_that_ran_once_and_is_longer_than_all_others_contains_them(calls, outer_s, own_s):
    own, _ = own_times([ProfileEntry("step", outer_s, calls), ProfileEntry("x", 1.0, 4), ProfileEntry("y", 2.0, 4)])
    assert own[0].time_s == pytest.approx(own_s)


@pytest.mark.parametrize("count", [0, 1])
def test_one_range_contains_nothing(count):
    rows = entries(a=1.0)[:count]
    assert own_times(rows) == (rows, ())


@pytest.mark.parametrize(
    ("total", "part"),
    [
        # two rows: 0.5 points of tolerance, and 0.05 of rounding for each row
        (100.55, None),
        (100.65, "add up to 100.7: rows contain one another"),
        (99.45, None),
        (99.35, "add up to 99.35: rows are missing"),
    ],
)
def test_percentages_may_miss_100_by_their_rounding(total, part):
    notes = percent_notes([total / 2, total / 2], [1.0, 1.0], "Time (%)")
    assert bool(notes) == bool(part)
    assert part is None or part in notes[0]


def test_rounding_adds_up_over_many_rows():
    # 40 rows of 2.55 %, printed as 2.6: 40 x 0.05 = 2 points of rounding and 0.5 of tolerance
    assert percent_notes([2.5 + 2.4 / 40] * 40, [1.0] * 40, "%") == ()
    assert percent_notes([2.5 + 2.6 / 40] * 40, [1.0] * 40, "%") != ()


def test_percentages_of_other_times_are_noted():
    assert percent_notes([25, 75], [3.0, 1.0], "Time %") == (
        "A row with 25 in 'Time %' has 75 % of the times that are read.",
    )
    # 50.5 beside 50 is within 0.5 + 2 x 0.05, 50.7 is not
    assert percent_notes([50.5, 49.5], [1.0, 1.0], "%") == ()
    assert percent_notes([50.7, 49.3], [1.0, 1.0], "%") != ()


@pytest.mark.parametrize(
    ("percents", "times_s"), [([], []), ([None, None], [1.0, 1.0]), ([50.0], [1.0]), ([0, 0], [1, 1]), ([9, 9], [0, 0])]
)
def test_without_percentages_or_times_there_is_nothing_to_check(percents, times_s):
    assert percent_notes(percents, times_s, "%") == ()


TIMES = st.floats(0, 1e9) | st.sampled_from([0.0, 5e-324, 1e9])


@given(times_s=st.lists(TIMES, max_size=5))
@example(times_s=[])
@example(times_s=[0.0, 0.0])
@example(times_s=[5e-324, 1e9])
def test_true_percentages_are_never_noted(times_s):
    total_s = math.fsum(times_s)
    shares = [100 * time_s / total_s if total_s > 0 else 0.0 for time_s in times_s]
    assert percent_notes(shares, times_s, "%") == ()


def indented(*rows):
    return without_indented([ProfileEntry(name.strip(), time_s) for name, time_s in rows], [name for name, _ in rows])


def test_of_a_row_above_indented_ones_only_the_time_outside_of_them_counts():
    """Three levels: 100 = 60 + 30 + 10 of its own, 60 = 60, and a sum of all that contains nothing itself."""
    rows, notes = indented(
        ("total", 130.0), ("  forward", 100.0), ("    attention", 60.0), ("      softmax", 60.0), ("    mlp", 30.0),
        ("  backward", 30.0),
    )  # fmt: skip
    assert times(rows) == {"total": 130.0, "forward": 10.0, "softmax": 60.0, "mlp": 30.0, "backward": 30.0}
    assert notes == ("Rows are indented below 2 rows, of which only the time outside of them counts.",)
    assert times(without_total(rows)[0]) == {"forward": 10.0, "softmax": 60.0, "mlp": 30.0, "backward": 30.0}


def test_indented_rows_that_take_longer_than_the_row_above_are_no_parts_of_it():
    rows, (note,) = indented(("a", 1.0), ("  b", 2.0))
    assert times(rows) == {"a": 1.0, "b": 2.0}
    assert "take longer than it (2 s to 1 s)" in note


@pytest.mark.parametrize("names", [(), ("a", "b"), ("  a", "  b"), ("long", "   a"), ("  a", "b")])
def test_names_that_are_aligned_contain_nothing(names):
    assert indented(*((name, 1.0) for name in names)) == ([ProfileEntry(name.strip(), 1.0) for name in names], ())

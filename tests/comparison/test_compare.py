"""What counts as a change: never noise, not drift, but every change that is larger."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.comparison.compare import FASTER, SAME, SLOWER, UNCLEAR, Rules, compare
from perfmodel.comparison.noise import Centre, centre_of_samples, student_quantile
from perfmodel.comparison.pairing import BenchRow, BenchRun
from perfmodel.core.report import report

ROWS = 4
#: comparisons of each kind of noise, and how many of them may be wrong: 19 in 20 are to be right
REPEATS, WRONG = 20, 1


def white(generator, count):
    return 1 + 0.03 * generator.standard_normal(count)


def skewed(generator, count):
    """A log-normal with a tail: one sample in twenty takes up to several times as long."""
    slow = (generator.random(count) < 0.05) * generator.exponential(2.0, count)
    return np.exp(0.05 * generator.standard_normal(count)) + slow


def drifting(generator, count):
    """A clock that falls by up to 2 % while the samples are taken, from a start that differs by 0.5 %."""
    fall = generator.uniform(0.0, 0.02) * np.linspace(0, 1, count)
    return (1 + 0.01 * generator.standard_normal(count)) * (1 + 0.005 * generator.standard_normal() + fall)


def autocorrelated(generator, count, rho=0.8):
    steps = generator.standard_normal(count + 50)
    for index in range(1, len(steps)):
        steps[index] = rho * steps[index - 1] + math.sqrt(1 - rho**2) * steps[index]
    return 1 + 0.015 * steps[50:]


def run_of(noise, generator, count=100, factor=1.0, rows=ROWS, kind="cuda"):
    made = [
        BenchRow({"op": f"op{index}"}, centre_of_samples(1e-4 * factor * noise(generator, count)))
        for index in range(rows)
    ]
    return BenchRun("record.json", tuple(made), kind)


def exact(times, error=1e-3, freedom=1e6, **more):
    """A run whose medians are given, each with the same error."""
    names = [f"op{index}" for index in range(len(times))]
    centres = [Centre(time, error, freedom, 100, "samples") for time in times]
    rows = [BenchRow({"op": name, "name": name}, centre) for name, centre in zip(names, centres, strict=True)]
    return BenchRun("record.json", tuple(rows), **more)


def verdicts(before, after, **rules):
    return [change.verdict for change in compare([before], [after], Rules(**rules)).changes]


@pytest.mark.parametrize("noise", [white, skewed, drifting, autocorrelated])
def test_a_against_a_has_not_changed_in_19_of_20_repeats(noise):
    generator = np.random.default_rng(7)
    wrong = 0
    for _ in range(REPEATS):
        before, after = run_of(noise, generator), run_of(noise, generator)
        wrong += bool({SLOWER, FASTER} & set(verdicts(before, after)))
    assert wrong <= WRONG


@pytest.mark.parametrize("noise", [white, skewed, drifting, autocorrelated])
def test_a_tenth_more_is_slower_and_a_tenth_less_faster(noise):
    generator = np.random.default_rng(8)
    base = run_of(noise, generator, 400)
    assert verdicts(base, run_of(noise, generator, 400, 1.1)) == [SLOWER] * ROWS
    assert verdicts(base, run_of(noise, generator, 400, 0.9)) == [FASTER] * ROWS


def test_the_interval_is_that_of_the_formula():
    (change,) = compare([exact([1.0], 0.003)], [exact([1.1], 0.004)], Rules(drift=0.01)).changes
    # sqrt(0.003^2 + 0.004^2) = 0.005; with two runs' drift sqrt(0.005^2 + 2 x 0.01^2) = 0.015.
    assert (change.noise, change.drift) == (pytest.approx(0.005), pytest.approx(0.01 * math.sqrt(2)))
    half = 1.959964 * 0.015
    assert change.change == pytest.approx(0.1)
    assert change.low == pytest.approx(1.1 * math.exp(-half) - 1, rel=1e-4)
    assert change.high == pytest.approx(1.1 * math.exp(half) - 1, rel=1e-4)


def test_the_interval_holds_for_all_rows_together():
    changes = compare([exact([1.0] * 20)], [exact([1.0] * 20)], Rules(drift=0.0)).changes
    # Bonferroni: 0.05 / 20 / 2 = 0.00125 on each side, of a normal distribution 3.0233 standard errors.
    assert math.log1p(changes[0].high) == pytest.approx(3.0233 * math.sqrt(2) * 1e-3, rel=1e-3)


def test_a_change_that_does_not_matter_is_the_same_however_certain():
    assert verdicts(exact([1.0]), exact([1.015]), drift=0.0) == [SAME]
    assert verdicts(exact([1.0]), exact([1.015]), drift=0.0, threshold=0.01) == [SLOWER]


def test_what_cannot_be_told_is_unclear_whether_it_drifts_or_scatters():
    # 1.96 x sqrt(2) x 3 % = 8.3 %, of ln 1.05 = 4.9 %: neither beyond it nor known to be within 10 %
    assert verdicts(exact([1.0]), exact([1.05]), drift=0.03) == [UNCLEAR]
    assert verdicts(exact([1.0]), exact([1.01]), drift=0.03) == [SAME]
    assert verdicts(exact([1.0], 0.05), exact([1.05], 0.05), drift=0.03) == [UNCLEAR]
    assert verdicts(exact([1.0], 0.05), exact([1.05], 0.05), drift=0.03, limit=0.3) == [SAME]
    # a gate of 5 % asks for more
    assert verdicts(exact([1.0]), exact([1.01]), drift=0.03, limit=0.05) == [UNCLEAR]


def test_the_run_as_a_whole_is_judged_too():
    # on a CPU 1.6 times is within the drift of one of 8 rows, 2.7 x sqrt(2) x 15 % = 58 %, not of all together
    ratios = [1.6, 1.5, 1.7, 1.55, 1.65, 1.6, 1.58, 1.62]
    found = compare([exact([1.0] * 8, kind="cpu")], [exact(ratios, kind="cpu")], Rules(limit=0.05))
    assert SAME not in {change.verdict for change in found.changes}
    assert found.overall().verdict == SLOWER
    assert any("the run as a whole: slower by" in text for text in found.gate_failures(0.05))
    assert "B is slower" in found.report().more["summary"].notes[-1]


def test_a_busy_machine_widens_what_counts_as_a_change_and_says_so():
    idle, busy = (exact([1.0] * 6, kind="cpu", busy=text) for text in ("", "load average 3 on 2 CPUs"))
    slower = exact([2.0] * 6, kind="cpu")
    assert set(verdicts(idle, slower)) == {SLOWER}
    found = compare([busy], [slower])
    assert {change.verdict for change in found.changes} == {UNCLEAR}
    assert found.overall().verdict == UNCLEAR
    last = found.report().more["summary"].notes[-1]
    assert last.startswith("What to do: measure each side in 5 runs on an idle machine")
    assert last == found.report().context["what_to_do"]


@pytest.mark.parametrize("persistence", [1, 4, 1000])
def test_clocks_that_settle_five_per_cent_apart_alarm_in_at_most_one_of_twenty_runs(persistence):
    # each row, or a few in a row, or the whole run, at one of two clocks
    generator = np.random.default_rng(11)
    alarms = 0
    for _ in range(100):
        sides = []
        for _ in range(2):
            states = np.repeat(generator.integers(0, 2, ROWS), persistence)[:ROWS]
            sides.append(exact((1e-4 * (1 + 0.05 * states)).tolist(), kind="cuda"))
        found = compare([sides[0]], [sides[1]])
        wrong = {change.verdict for change in found.changes} & {SLOWER, FASTER}
        alarms += bool(wrong) or found.overall().verdict in (SLOWER, FASTER)
    assert alarms <= 5


def test_a_clock_that_changes_slowly_within_a_run_alarms_in_at_most_one_of_twenty_runs():
    generator = np.random.default_rng(12)

    def bimodal(count):
        state = np.cumsum(generator.random(count) < 0.05) % 2
        return 1e-4 * (1 + 0.05 * state) * (1 + 0.002 * generator.standard_normal(count))

    alarms = 0
    for _ in range(60):
        runs = [
            BenchRun("r", tuple(BenchRow({"op": f"op{n}"}, centre_of_samples(bimodal(100))) for n in range(4)), "cuda")
            for _ in range(2)
        ]
        found = compare([runs[0]], [runs[1]])
        alarms += bool({change.verdict for change in found.changes} & {SLOWER, FASTER})
    assert alarms <= 3


@given(st.floats(0.5, 2.0), st.floats(1e-5, 0.05), st.floats(1e-4, 0.05))
def test_the_stated_smallest_change_and_the_verdict_agree(ratio, error, drift):
    (change,) = compare([exact([1.0], error)], [exact([ratio], error)], Rules(drift=drift)).changes
    grows = max(ratio, 1 / ratio) - 1
    if grows > 1.001 * change.smallest:
        assert change.verdict == (SLOWER if ratio > 1 else FASTER)
    if grows < 0.999 * change.smallest:
        assert change.verdict in (SAME, UNCLEAR)


def test_the_repeats_that_are_asked_for_suffice():
    before, after = exact([1.0, 1.0], kind="cpu"), exact([1.02, 1.01], kind="cpu")
    found = compare([before], [after], Rules(drift=0.05))
    needed = found.repeats_needed()
    assert f"measure each side in {needed} runs" in found.report().context["what_to_do"]
    assert {change.verdict for change in found.changes} == {UNCLEAR}
    assert {c.verdict for c in compare([before] * needed, [after] * needed, Rules(drift=0.05)).changes} == {SAME}
    assert compare([before], [after], Rules(drift=0.001)).repeats_needed() is None


def test_one_sample_is_unclear_and_equal_times_are_the_same():
    alone = Centre(1.0, None, 0.0, 1, "one sample")
    one = BenchRun("a", (BenchRow({"op": "op0", "name": "op0"}, alone),))
    (change,) = compare([one], [exact([2.0])]).changes
    assert (change.verdict, change.low, change.high) == (UNCLEAR, None, None)
    assert verdicts(one, one) == [SAME]


def test_one_run_on_a_cpu_says_less_than_one_on_a_gpu_and_repeats_or_an_asked_drift_say_more():
    # 1.96 x sqrt(2) x 15 % = 42 % of drift for two runs on a CPU, 5 % on a GPU; ln 1.2 = 18 %, ln 1.6 = 47 %
    on = {kind: (exact([1.0], kind=kind), exact([1.2], kind=kind)) for kind in ("cpu", "cuda")}
    assert verdicts(*on["cpu"]) == [UNCLEAR]
    assert verdicts(*on["cuda"]) == [SLOWER]
    assert verdicts(*on["cpu"], drift=0.02) == [SLOWER]
    assert verdicts(exact([1.0], kind="cpu"), exact([1.6], kind="cpu")) == [SLOWER]


def test_repeats_measure_the_drift():
    before = [exact([1.0]), exact([1.1]), exact([0.9])]
    after = [exact([1.12]), exact([1.0]), exact([1.24])]
    found = compare(before, after)
    assert [change.verdict for change in found.changes] == [UNCLEAR]
    # Squares of ln about their mean: 0.0202 + 0.0232 over 3 + 3 - 2 = 4 are 0.0108, 10.4 % a run. With the 2 % that
    # are assumed for 4 more: sqrt((4 x 0.0108 + 4 x 0.0004) / 8) = 7.5 %.
    assert found.drift.basis == "7.5 % per run, from repeats (10.4 % without the prior)"
    assert verdicts(before[0], after[0], drift=0.02) == [SLOWER]
    quiet = [exact([1.0]), exact([1.001]), exact([0.999])]
    assert [c.verdict for c in compare(quiet, [exact([1.12 * t]) for t in (1.0, 1.001, 0.999)]).changes] == [SLOWER]


def test_the_time_of_repeats_is_their_geometric_mean():
    (change,) = compare([exact([1.0]), exact([4.0])], [exact([2.0]), exact([2.0])]).changes
    assert (change.before_s, change.change) == (pytest.approx(2.0), pytest.approx(0.0))


@given(
    st.floats(1e-6, 1e3),
    st.floats(0.2, 5.0),
    st.floats(1e-5, 0.05),
    st.floats(0, 0.05),
    st.sampled_from(["cuda", "cpu"]),
)
def test_the_two_directions_mirror_each_other(time_s, ratio, error, drift, kind):
    a, b = exact([time_s], error, kind=kind), exact([time_s * ratio], error, kind=kind)
    (there,), (back,) = (compare([x], [y], Rules(drift=drift)).changes for x, y in ((a, b), (b, a)))
    assert (1 + there.low) * (1 + back.high) == pytest.approx(1)
    assert there.low <= there.change <= there.high


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=8))
def test_the_geometric_mean_lies_between_the_rows_and_its_interval_is_no_wider_than_one_rows(ratios):
    found = compare([exact([1.0] * len(ratios))], [exact(ratios)])
    overall = found.overall()
    assert min(ratios) - 1e-9 <= overall.ratio <= max(ratios) + 1e-9
    assert overall.ratio == pytest.approx(math.exp(np.mean(np.log(ratios))))
    widest = max((1 + c.high) / (1 + c.low) for c in found.changes)
    assert overall.high / overall.low <= widest * (1 + 1e-9)


def test_the_gate_fails_for_what_is_slower_beyond_the_limit_and_for_what_is_lost():
    before = exact([1.0, 1.0, 1.0, 1.0])
    after = exact([1.04, 1.2, 1.0])
    lost = BenchRow({"op": "op3", "name": "op3"}, None, "wrong", "off by 3")
    found = compare([before], [BenchRun("b", (*after.rows, lost))], Rules(drift=0.001, limit=0.05))
    failures = found.gate_failures(0.05)
    assert [change.verdict for change in found.changes] == [SLOWER, SLOWER, SAME]
    assert len(failures) == 3
    assert failures[1].startswith("the run as a whole: slower by +7.7 %")
    assert failures[0].startswith("op1: slower by +20.0 % (")
    assert failures[2] == "op3: had a time before, now wrong: off by 3."


def test_the_report_lists_changes_to_people_and_everything_to_programs():
    found = compare([exact([1.0, 1.0, 1.0])], [exact([1.2, 0.7, 1.0])], Rules(drift=0.001))
    report = found.report()
    assert [row["verdict"] for row in report.shown_rows] == [SLOWER, FASTER]
    assert report.unlisted == "Rows that did not change: 1; compare --all lists them."
    everything = found.report(everything=True)
    assert [row["verdict"] for row in everything.shown_rows] == [SLOWER, FASTER, SAME]
    assert everything.unlisted == ""
    document = report.as_json()
    keys = ["op", "name", "before_s", "after_s", "change", "low", "high", "verdict"]
    assert [list(row)[:8] for row in document["rows"]] == [keys] * 3
    (summary,) = document["summary"]
    assert summary["ratio"] == pytest.approx((1.2 * 0.7) ** (1 / 3))


def test_few_degrees_of_freedom_widen_the_interval():
    few, many = (compare([exact([1.0], 0.01, f)], [exact([1.0], 0.01, f)], Rules(drift=0.0)) for f in (4.0, 1e6))
    ratio = math.log1p(few.changes[0].high) / math.log1p(many.changes[0].high)
    # Two equal variances of 4 degrees of freedom have 8 together.
    assert ratio == pytest.approx(student_quantile(0.025, 8) / student_quantile(0.025, math.inf))


def test_rows_without_a_time_on_some_side_are_named_with_the_reason():
    """All notes on four rows: one has a time on both sides, one gained it, two have none."""
    failed = [BenchRow({"op": f"op{n}", "name": f"op{n}"}, None, "failed", "no memory") for n in (1, 2, 3)]
    empty = BenchRow({"op": "op3", "name": "op3"}, None)
    before = BenchRun("a", (*exact([1.0]).rows, *failed))
    after = BenchRun("b", (*exact([1.0, 1.0]).rows, failed[1], empty))
    notes = report(compare([before], [after])).notes
    assert "op1: has a time now, before failed: no memory." in notes
    told = "op2 (failed: no memory); op3 (failed: no memory, now without a time)"
    assert f"Without a time on either side (2): {told}." in notes

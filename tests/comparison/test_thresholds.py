"""Every threshold of a comparison, from both sides or by its arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfmodel.comparison.compare import SAME, SLOWER, UNCLEAR, Rules, compare
from perfmodel.comparison.noise import (
    Centre,
    centre_of_samples,
    inflation,
    neighbour_correlation,
    student_quantile,
)
from perfmodel.comparison.pairing import BenchRow, BenchRun
from perfmodel.core.report import report
from perfmodel.render.plots.comparison import comparison_plot


def run(*times, error=1e-4, kind="cuda", names=None):
    names = names or [f"op{index}" for index in range(len(times))]
    rows = [
        BenchRow({"op": name, "name": name}, Centre(time, error, 1e9, 100, "samples"))
        for name, time in zip(names, times, strict=True)
    ]
    return BenchRun("record.json", tuple(rows), kind)


@pytest.mark.parametrize(("ratio", "verdict"), [(1.019, SAME), (1.021, SLOWER)])
def test_two_per_cent_matter_unless_told_otherwise(ratio, verdict):
    (change,) = compare([run(1.0)], [run(ratio)], Rules(drift=0.0)).changes
    assert change.verdict == verdict


@pytest.mark.parametrize(("error", "verdict"), [(0.0338, SAME), (0.0342, UNCLEAR)])
def test_what_may_be_ten_per_cent_is_unclear(error, verdict):
    # 1.95996 sqrt(2) error and ln 1.001: 9.47 and 9.58 %; ln 1.1 = 9.53 %
    (change,) = compare([run(1.0, error=error)], [run(1.001, error=error)], Rules(drift=0.0)).changes
    assert change.verdict == verdict


@pytest.mark.parametrize(
    ("rules", "told"),
    [({}, 10), ({"limit": 0.05}, 5), ({"threshold": 0.2}, 20), ({"threshold": 0.2, "limit": 0.05}, 20)],
)
def test_the_change_that_is_ruled_out_for_the_same_is_told(rules, told):
    comparison = compare([run(1.0, 1.0)], [run(1.0 + told / 100 - 0.005, 1.3)], Rules(drift=0.0, **rules))
    last = compare([run(1.0, error=1.0)], [run(1.001, error=1.0)], Rules(drift=0.0, **rules))
    (told_rule,) = (note for note in report(comparison).notes if note.startswith("slower, faster"))
    assert f"same: a change of {told} % is ruled out" in told_rule
    assert f"to tell a change of {told} % in 1 unclear row" in report(last).context["what_to_do"]


def test_no_number_of_runs_rules_out_a_change_of_nothing():
    none = Rules(threshold=0.0, limit=0.0)
    unclear = compare([run(1.0, error=0.1)], [run(1.001, error=0.1)], none)
    slower = compare([run(1.0)], [run(1.1)], none)
    assert report(unclear).context["what_to_do"].endswith("they tell changes from 13 %.")
    assert slower.gate_failures(0.0) == ["op0: slower by +10.0 % (+4.6 to +15.6 %), beyond 0 %."]


def test_a_row_without_an_interval_leaves_the_whole_without_one():
    one_sample = BenchRow({"op": "b", "name": "b"}, Centre(1.0, None, 0.0, 1, "one sample"))
    before = BenchRun("record.json", (*run(1.0).rows, one_sample), "cuda")
    after = BenchRun("record.json", (*run(2.0).rows, one_sample), "cuda")
    whole = compare([before], [after], Rules(drift=0.0)).overall()
    assert (whole.ratio, whole.low, whole.high, whole.verdict) == (pytest.approx(math.sqrt(2)), None, None, UNCLEAR)
    comparison = compare([before], [after])
    assert "; the whole +41.4 % (interval unknown): unclear" in report(comparison).title
    assert comparison_plot(comparison).texts[0].get_text().endswith("+41.4 % (interval unknown)")


@pytest.mark.parametrize(("kind", "drift"), [("cuda", 0.018), ("cpu", 0.15), ("", 0.15)])
def test_the_drift_that_is_assumed_for_two_runs(kind, drift):
    (change,) = compare([run(1.0, kind=kind)], [run(1.0, kind=kind)]).changes
    assert change.drift == pytest.approx(drift * math.sqrt(2))


@pytest.mark.parametrize(("kind", "least"), [("cuda", 0.005), ("cpu", 0.02), ("", 0.02)])
def test_the_least_drift_counts_like_four_runs_beside_repeats_that_agree(kind, least):
    # 2 + 2 repeats have 2 degrees of freedom: (4 x least^2 + 2 x 0) / 6 for one run
    same = [run(1.0, error=0.0, kind=kind)] * 2
    comparison = compare(same, same)
    assert comparison.drift.variance == (pytest.approx(4 / 6 * least**2),) * 2
    assert comparison.drift.freedom == 6.0


def test_fewer_than_three_degrees_of_freedom_count_as_three():
    assert student_quantile(0.025, 1.0) == student_quantile(0.025, 3.0) > student_quantile(0.025, 3.5)


def test_a_ramp_correlates_by_99_per_cent_at_most():
    assert neighbour_correlation(np.arange(10_000.0)) == 0.99


def test_one_white_series_in_twenty_seems_to_correlate():
    generator = np.random.default_rng(5)
    seeming = sum(neighbour_correlation(generator.standard_normal(60)) > 0 for _ in range(1000))
    assert 20 < seeming < 75  # 50 expected, standard deviation 7


def test_blocks_that_show_almost_nothing_count_as_a_twentieth():
    # v(4) = 1 + 2 (0.75 x 0.99 + 0.5 x 0.9801 + 0.25 x 0.970299) = 3.95025; one sample shows 1 - v(4) / 4 = 0.012
    assert inflation(0.99, 1, 4) == pytest.approx(math.sqrt(3.95025 / 0.05), rel=1e-5)
    # where neighbours correlate less, each block shows more than a twentieth
    v = 1 + 2 * sum((1 - k / 4) * 0.5**k for k in (1, 2, 3))
    assert inflation(0.5, 1, 4) == pytest.approx(math.sqrt(v / (1 - v / 4)))


def test_the_bootstrap_hardly_depends_on_its_random_numbers():
    """With 400 resamples the error of a standard error is 1 / sqrt(2 x 399) = 3.5 %, besides ties of the median."""
    samples = 1 + 0.01 * np.random.default_rng(11).standard_normal(100)
    errors = [centre_of_samples(samples, seed).error for seed in range(20)]
    assert np.std(errors) / np.mean(errors) < 0.06


def test_a_note_names_eight_rows_of_one_side_and_counts_the_others():
    names = [f"only{n}" for n in range(10)]
    comparison = compare([run(1.0, *[1.0] * 10, names=["both", *names])], [run(1.0, names=["both"])])
    (note,) = (note for note in comparison.report().notes if note.startswith("Only before"))
    assert note == f"Only before (10): {'; '.join(names[:8])}; and 2 more."

"""Ranking: the worked examples, joint computation of overlapping candidates, order, verdicts."""

import dataclasses
import itertools
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel
from perfmodel.errors import InputFileError, UsageError
from perfmodel.formats import read_profile
from perfmodel.investment.economics import Economics
from perfmodel.investment.headroom import headroom
from perfmodel.investment.plan import read_plan
from perfmodel.investment.ranking import rank_candidates
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.render import markdown as markdown_format

EXAMPLES = Path(__file__).parents[2] / "examples"


def profile(**times_s):
    return Profile(tuple(ProfileEntry(name, time) for name, time in times_s.items()))


ABC = profile(a=0.050, b=0.030, c=0.010, others=0.010)


def by_name(ranking):
    return {row.name: row for row in ranking.rows}


def test_the_worked_example_of_three_kernels():
    ranking = rank_candidates(read_profile(EXAMPLES / "profile_abc.csv"), read_plan(EXAMPLES / "plan_abc.toml"))
    assert [row.name for row in ranking.rows] == ["fuse A and B", "A 2x", "B 3x", "C 10x"]
    assert [row.rank for row in ranking.rows] == [1, 2, 3, 4]
    assert [round(row.overall_speedup, 3) for row in ranking.rows] == [1.364, 1.333, 1.250, 1.099]
    assert [round(row.roi_per_day, 4) for row in ranking.rows] == [0.3636, 0.1667, 0.0833, 0.0198]
    assert [row.verdict for row in ranking.rows] == ["do first", *["worth doing"] * 3]


def test_overlapping_candidates_are_computed_jointly():
    ranking = rank_candidates(read_profile(EXAMPLES / "profile_abc.csv"), read_plan(EXAMPLES / "plan_abc.toml"))
    # a: 50 / 1.5 / 2, b: 30 / 1.5 / 3, c: 10 / 10, others: 10 [ms]
    by_hand_s = (50 / 3 + 30 / 4.5 + 1 + 10) * 1e-3
    assert ranking.rows[-1].cumulative_time_s == pytest.approx(by_hand_s)
    assert ranking.rows[-1].cumulative_speedup == pytest.approx(0.1 / by_hand_s)
    assert ranking.rows[-1].cumulative_dev_days == 11
    # the gains of the single candidates would add to more than there is to gain
    assert sum(row.time_saved_s for row in ranking.rows) > 0.1 - by_hand_s


def test_a_claim_of_380_ms_contradicts_a_profile_that_gives_420():
    ranking = rank_candidates(read_profile(EXAMPLES / "profile_gpt2.csv"), read_plan(EXAMPLES / "plan_gpt2.toml"))
    claim = by_name(ranking)["fused attention, forward"]
    assert claim.fraction == pytest.approx(0.24)
    assert claim.total_time_s == pytest.approx(0.420)
    assert claim.overall_speedup == pytest.approx(500 / 420)
    assert claim.verdict.startswith("claim contradicts the profile: 420 ms, not 380 ms")
    assert any("claims a total of 380 ms" in note for note in ranking.notes)
    # with the other candidate, which stands for the backward pass, the claim comes true
    assert ranking.rows[-1].cumulative_time_s == pytest.approx(0.380)


@pytest.mark.parametrize(("claimed_s", "contradicts"), [(0.420, False), (0.4241, False), (0.4243, True), (0.41, True)])
def test_a_claim_may_be_one_percent_off(claimed_s, contradicts):
    candidate = Candidate("fused", ("attention",), 3.0, claimed_total_time_s=claimed_s)
    row = rank_candidates(profile(attention=0.12, rest=0.38), [candidate]).rows[0]
    assert ("claim contradicts" in row.verdict) == contradicts


def test_time_saved_and_throughput_are_told_apart():
    ranking = rank_candidates(profile(part=0.4, rest=0.6), [Candidate("twice", ("part",), 2.0)])
    assert ranking.rows[0].overall_speedup == pytest.approx(1.25)
    assert ranking.rows[0].time_saved_s == pytest.approx(0.2)
    assert any("20 % less time" in note and "25 % more work" in note for note in ranking.notes)


def test_a_month_on_eight_gpus_made_three_times_faster():
    economics = Economics(gpus=8, price_per_gpu_hour=10, dev_day_cost=1000, hours_per_year=720)
    ranking = rank_candidates(profile(training=2.0), [Candidate("all", ("*",), 3.0, dev_days=5)], economics)
    row = ranking.rows[0]
    assert row.yearly_saving == pytest.approx(38_400)
    assert row.net_value == pytest.approx(33_400)
    assert row.payback_days == pytest.approx(5000 / (38_400 / 365))
    assert any("57600 a year" in note and "one GPU, not the fleet" in note for note in ranking.notes)


def test_a_new_time_is_a_speedup_of_the_targets_together():
    row = rank_candidates(ABC, [Candidate("fused", ("a", "b"), new_time_s=0.020)]).rows[0]
    assert row.local_speedup == pytest.approx(4.0)
    assert row.total_time_s == pytest.approx(0.040)


def test_a_target_that_is_removed_gives_the_ceiling():
    row = rank_candidates(ABC, [Candidate("gone", ("a",), new_time_s=0.0)]).rows[0]
    assert row.local_speedup == math.inf
    assert row.overall_speedup == row.max_overall_speedup == pytest.approx(2.0)
    assert row.cumulative_time_s == pytest.approx(0.050)


def test_removing_everything_is_said_without_a_fault():
    ranking = rank_candidates(profile(a=1.0), [Candidate("gone", ("a",), new_time_s=0.0, dev_days=1)])
    assert ranking.rows[0].overall_speedup == math.inf
    document = ranking.report().as_json()
    assert document["rows"][0]["overall_speedup"] is None
    json.dumps(document, allow_nan=False)


def test_without_days_time_saved_ranks():
    ranking = rank_candidates(ABC, [Candidate("c", ("c",), 10.0, dev_days=0.01), Candidate("a", ("a",), 2.0)])
    assert [row.name for row in ranking.rows] == ["a", "c"]
    assert by_name(ranking)["a"].roi_per_day is None
    assert ranking.rows[-1].cumulative_dev_days is None
    assert any(
        "Ranked by time saved, since these have no dev_days and so no ROI: 'a'." in note for note in ranking.notes
    )


def test_what_comes_after_waits_for_what_comes_before():
    candidates = [
        Candidate("gain", ("a",), 2.0, dev_days=1, after=("groundwork",)),
        Candidate("groundwork", ("c",), 1.01, dev_days=1),
        Candidate("other", ("b",), 1.5, dev_days=1),
    ]
    ranking = rank_candidates(ABC, candidates)
    assert [row.name for row in ranking.rows] == ["groundwork", "gain", "other"]
    assert ranking.rows[0].verdict == "small, but others need it"
    assert ranking.rows[1].verdict == "do first"


def test_a_poor_prerequisite_comes_first_only_for_a_gain_that_is_worth_both():
    # alone 1.1538x in half a day, 0.308 a day; with what it needs 100 / (6.667 + 6.667 + 20 + 50) = 1.2x in 3.5 days
    times = profile(a=0.010, b=0.020, c=0.020, d=0.050)
    needed = Candidate("prep", ("a",), 1.5, dev_days=3)
    gain = Candidate("gain", ("b",), 3.0, dev_days=0.5, after=("prep",))
    alone = Candidate("alone", ("c",), 2.0, dev_days=1)
    ranking = rank_candidates(times, [needed, gain, alone])
    assert [row.name for row in ranking.rows] == ["alone", "prep", "gain"]
    assert ranking.decision.startswith("Do 'alone' first")
    assert any("'prep' is ranked with 'gain', which needs it: 1.2x" in note for note in ranking.notes)
    rows = by_name(ranking)
    # the day of "alone" would give 1 / 3.5 of the 0.2 that "prep" and "gain" give; both leave "alone" as the best other
    assert (rows["alone"].next_best, rows["prep"].next_best, rows["gain"].next_best) == ("gain", "alone", "alone")
    assert rows["alone"].opportunity_gain == pytest.approx(0.2 / 3.5)
    # with 1.5 days together they give 0.133 a day, more than the 0.111 of "alone"
    cheap = dataclasses.replace(needed, dev_days=1)
    assert [row.name for row in rank_candidates(times, [cheap, gain, alone]).rows] == ["prep", "gain", "alone"]


def test_of_what_a_gain_needs_the_better_one_comes_first():
    needs = [Candidate("small", ("a",), 1.1, dev_days=1), Candidate("large", ("b",), 2.0, dev_days=1)]
    for order in (needs, needs[::-1]):
        gain = Candidate("gain", ("c",), 10.0, dev_days=1, after=tuple(need.name for need in order))
        ranking = rank_candidates(profile(a=0.1, b=0.1, c=0.8), [gain, *order])
        assert [row.name for row in ranking.rows] == ["large", "small", "gain"]


def test_what_several_need_counts_once():
    # together with the groundwork each gain has (1 / 0.9 - 1) / 3 a day; once it is done the second has all of 0.111
    times = profile(a=0.2, b=0.2, c=0.2, d=0.4)
    candidates = [
        Candidate("groundwork", ("d",), 1.0, dev_days=2),
        Candidate("first", ("a",), 2.0, dev_days=0.9, after=("groundwork",)),
        Candidate("second", ("b",), 2.0, dev_days=1, after=("groundwork",)),
        Candidate("between", ("c",), 2.0, dev_days=2),
    ]
    assert [row.name for row in rank_candidates(times, candidates).rows] == ["between", "groundwork", "first", "second"]


def test_of_two_that_exclude_each_other_the_better_one_stays():
    candidates = [
        Candidate("rewrite", ("a",), 1.8, dev_days=9, excludes=("tune",)),
        Candidate("tune", ("a",), 1.5, dev_days=1),
        Candidate("on top", ("b",), 2.0, dev_days=50, after=("rewrite",)),
    ]
    ranking = by_name(rank_candidates(ABC, candidates))
    assert ranking["rewrite"].verdict == "left out: excludes 'tune', which ranks higher"
    assert ranking["rewrite"].cumulative_speedup is None
    assert ranking["on top"].verdict == "left out: needs 'rewrite', which is left out"
    assert ranking["tune"].cumulative_speedup == pytest.approx(ranking["tune"].overall_speedup)


def test_a_change_that_makes_it_slower_is_done_only_as_a_step():
    slower = Candidate("layout", ("c",), 0.5, dev_days=1)
    alone = by_name(rank_candidates(ABC, [slower, Candidate("b", ("b",), 2.0, dev_days=1)]))
    assert alone["layout"].verdict == "slower: do not do it"
    assert alone["layout"].cumulative_time_s is None
    step = by_name(rank_candidates(ABC, [slower, Candidate("b", ("b",), 2.0, dev_days=1, after=("layout",))]))
    assert step["layout"].verdict.startswith("slower: only as a step")
    assert step["b"].cumulative_time_s == pytest.approx(0.050 + 0.015 + 0.020 + 0.010)


def test_small_gains_and_costs_are_judged():
    small = profile(tiny=0.004, rest=0.996)
    assert (
        rank_candidates(small, [Candidate("t", ("tiny",), 2.0)]).rows[0].verdict
        == "marginal: under 1 % overall; at most 1.004x"
    )
    dear = Economics(gpus=1, price_per_gpu_hour=1, dev_day_cost=1000)
    # 8760 a year, halved: 4380 saved, for 5000 of work
    row = rank_candidates(profile(a=1.0), [Candidate("a", ("a",), 2.0, dev_days=5)], dear).rows[0]
    assert row.net_value == pytest.approx(-620)
    assert row.verdict == "does not pay back in a year"


def test_a_new_time_for_targets_without_time_is_an_error():
    with pytest.raises(UsageError, match="take no time"):
        rank_candidates(profile(a=1.0, b=0.0), [Candidate("b", ("b",), new_time_s=0.1)])
    row = rank_candidates(profile(a=1.0, b=0.0), [Candidate("b", ("b",), 5.0)]).rows[0]
    assert (row.overall_speedup, row.time_saved_s) == (1.0, 0.0)


def test_a_profile_without_time_is_an_error():
    for call in (lambda empty: rank_candidates(empty, [Candidate("a", ("a",), 2.0)]), headroom):
        with pytest.raises(UsageError, match="no time"):
            call(profile(a=0.0))


def test_an_unknown_target_in_a_plan_is_an_error_of_its_file(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text('[[candidates]]\nname = "x"\ntargets = ["aa"]\nspeedup = 2\n')
    with pytest.raises(InputFileError, match=r"plan\.toml: candidate 1 'x': target 'aa'.*Did you mean 'a'"):
        rank_candidates(ABC, read_plan(path))


def test_without_a_plan_the_ceilings_are_ranked():
    ranking = headroom(profile(small=0.01, large=0.79, middle=0.20))
    assert [row.name for row in ranking.rows] == ["large", "middle", "small"]
    assert ranking.rows[0].max_overall_speedup == pytest.approx(1 / 0.21)
    assert ranking.rows[0].overall_speedup == pytest.approx(1 / (0.21 + 0.395))
    assert [row.verdict for row in ranking.rows] == ["look here first", "worth a look", "at most 1.010x"]


def test_the_top_rows_say_how_many_are_left():
    report = headroom(ABC).report(top=1)
    assert [row["name"] for row in report.rows] == ["a"]
    assert "3 more rows (50 ms) are not shown." in report.notes


def test_long_kernel_names_are_shortened_for_people_only():
    name = "void kernel<" + "int, " * 30 + "float>"
    report = headroom(profile(**{name: 1.0})).report()
    assert report.rows[0]["name"] == name
    (column,) = (column for column in report.columns if column.key == "name")
    assert column.cell(report.rows[0]).startswith("void kernel<int, int")
    assert len(column.cell(report.rows[0])) == 48


def test_the_decision_is_one_sentence():
    ranking = rank_candidates(read_profile(EXAMPLES / "profile_abc.csv"), read_plan(EXAMPLES / "plan_abc.toml"))
    assert ranking.decision == "Do 'fuse A and B' first: 1.364x overall, saves 26.67 ms of 100 ms, in 1 day."
    assert ranking.report().decision == ranking.decision
    assert ranking.report().as_json()["context"]["decision"] == ranking.decision
    none = rank_candidates(ABC, [Candidate("slower", ("a",), 0.5)])
    assert none.decision.startswith("Do none of the candidates")


def test_as_a_document_decision_and_assumptions_stand_above_the_table():
    economics = Economics(8, 10, 1000, 720, horizon_years=3, discount_rate=0.1)
    ranking = rank_candidates(
        read_profile(EXAMPLES / "profile_abc.csv"), read_plan(EXAMPLES / "plan_abc.toml"), economics
    )
    text = markdown_format.render(ranking.report())
    parts = ["### ROI of 4", "**Decision:** Do", "- Profile: profile_abc.csv", "- Machine", "- Prices: 8 GPUs", "| # |"]
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)
    assert "over 3 years at 10 % a year" in text
    assert text.count("Do 'fuse A and B' first") == 1


def test_the_matrix_of_cost_and_return():
    ranking = rank_candidates(
        ABC, [Candidate(n, (n,), 2.0, dev_days=d) for n, d in (("a", 1), ("b", 9), ("c", 5), ("others", 6))]
    )
    # 1.33x, 1.18x, 1.05x, 1.05x, in 1, 9, 5 and 6 days: over 5 days is a high cost, from 1.10x on a high return
    places = {row.name: row.quadrant for row in ranking.rows}
    assert places == {"a": "quick win", "b": "big bet", "c": "fill-in", "others": "avoid"}


def test_days_spent_here_are_not_spent_on_the_next_best():
    economics = Economics(gpus=1, price_per_gpu_hour=10, dev_day_cost=100, hours_per_year=1000)
    rows = by_name(
        rank_candidates(
            ABC, [Candidate("a", ("a",), 2.0, dev_days=2), Candidate("b", ("b",), 3.0, dev_days=4)], economics
        )
    )
    # b, 1.25x, would have half of its gain after the 2 days of a: 0.125; it saves 20 % of 10,000: half of 2000
    assert rows["a"].next_best == "b"
    assert rows["a"].opportunity_gain == pytest.approx(0.125)
    assert rows["a"].opportunity_cost == pytest.approx(1000)
    # the 4 days of b hold all of a: 1.333x, a quarter of 10,000
    assert rows["b"].opportunity_gain == pytest.approx(1 / 3)
    assert rows["b"].opportunity_cost == pytest.approx(2500)


def test_ranked_by_payback_or_time_another_comes_first():
    economics = Economics(gpus=1, price_per_gpu_hour=1, dev_day_cost=100)
    candidates = [Candidate("a", ("a",), 2.0, dev_days=4), Candidate("c", ("c",), 10.0, dev_days=1)]
    # gain a day: a 0.083, c 0.099; saving a day of work: a 25 % / 4, c 9 % / 1; time saved: a 25 ms, c 9 ms
    assert rank_candidates(ABC, candidates).rows[0].name == "c"
    assert rank_candidates(ABC, candidates, economics, by="payback").rows[0].name == "c"
    assert rank_candidates(ABC, candidates, by="time").rows[0].name == "a"
    with pytest.raises(UsageError, match="needs prices"):
        rank_candidates(ABC, candidates, by="payback")
    with pytest.raises(UsageError, match="Did you mean 'payback'"):
        rank_candidates(ABC, candidates, by="payback_days")


def test_the_public_function_ranks_alike_and_takes_a_machine_by_name():
    candidates = [perfmodel.Candidate("a", ("a",), 2.0, dev_days=1)]
    assert perfmodel.rank_candidates(ABC, candidates).rows == rank_candidates(ABC, candidates).rows
    assert perfmodel.rank_candidates(ABC, candidates, hardware="h100").hardware == perfmodel.hardware("h100")


times = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=6)
local = st.floats(1.0, 100.0)


@st.composite
def plans(draw):
    """Return a profile and candidates that overlap at will."""
    values = draw(times)
    names = [f"k{n}" for n in range(len(values))]
    targets = st.lists(st.sampled_from(names), min_size=1, unique=True)
    drawn = draw(st.lists(st.tuples(targets, local, st.floats(0.1, 100)), min_size=1, max_size=5))
    candidates = [Candidate(f"c{n}", tuple(t), s, dev_days=d) for n, (t, s, d) in enumerate(drawn)]
    return profile(**dict(zip(names, values, strict=True))), candidates


@given(plans())
def test_all_together_equals_the_profile_recomputed(case):
    measured, candidates = case
    by_hand_s = sum(
        entry.time_s / math.prod(c.speedup for c in candidates if entry.name in c.targets) for entry in measured.entries
    )
    last = rank_candidates(measured, candidates).rows[-1]
    assert last.cumulative_time_s == pytest.approx(by_hand_s)
    assert last.cumulative_time_saved_s == pytest.approx(measured.total_time_s - by_hand_s, abs=1e-9)


@given(plans())
def test_time_saved_agrees_with_the_speedup(case):
    measured, candidates = case
    for row in rank_candidates(measured, candidates).rows:
        assert row.total_time_s + row.time_saved_s == pytest.approx(measured.total_time_s)
        assert measured.total_time_s / row.total_time_s == pytest.approx(row.overall_speedup)
        assert row.overall_speedup <= row.max_overall_speedup * (1 + 1e-12)


@settings(max_examples=30)
@given(plans())
def test_the_order_in_the_plan_does_not_matter(case):
    measured, candidates = case
    expected = rank_candidates(measured, candidates).rows
    for order in itertools.islice(itertools.permutations(candidates), 12):
        assert rank_candidates(measured, order).rows == expected

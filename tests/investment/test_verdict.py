"""Verdicts, decisions and notes: each threshold from both sides."""

import math

import pytest

import perfmodel as pm
from perfmodel.investment.budget import EXACT_CANDIDATES
from perfmodel.investment.economics import Economics
from perfmodel.investment.headroom import headroom
from perfmodel.investment.ranking import rank_candidates
from perfmodel.investment.roi import quadrant
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.profile import Profile, ProfileEntry


def profile(**times_s):
    return Profile(tuple(ProfileEntry(name, time_s) for name, time_s in times_s.items()))


def only_row(measured, candidate, *arguments, **options):
    (row,) = rank_candidates(measured, [candidate], *arguments, **options).rows
    return row


@pytest.mark.parametrize(("speedup", "verdict"), [(1.0099, "marginal: under 1 % overall"), (1.0101, "do first")])
def test_under_one_per_cent_overall_is_marginal(speedup, verdict):
    assert only_row(profile(all=1.0), Candidate("c", ("all",), speedup)).verdict == verdict


@pytest.mark.parametrize(
    ("claimed_s", "contradicts"), [(0.5048, False), (0.5052, True), (0.4952, False), (0.4948, True)]
)
def test_a_claim_may_differ_from_the_profile_by_one_per_cent(claimed_s, contradicts):
    candidate = Candidate("c", ("all",), 2.0, claimed_total_time_s=claimed_s)
    assert only_row(profile(all=1.0), candidate).verdict.startswith("claim contradicts") is contradicts


@pytest.mark.parametrize(("ceiling", "stated"), [(1.049, True), (1.051, False)])
def test_a_ceiling_below_five_per_cent_is_stated(ceiling, stated):
    # removing the share p gives 1 / (1 - p): p = 1 - 1 / ceiling
    part = 1 - 1 / ceiling
    measured = profile(part=part, rest=1 - part)
    assert ("at most" in only_row(measured, Candidate("c", ("part",), 10.0)).verdict) is stated
    rows = {row.name: row for row in headroom(measured).rows}
    assert rows["part"].verdict == (f"at most {ceiling:.3f}x" if stated else "worth a look")


@pytest.mark.parametrize(("overall", "worth"), [(1.049, False), (1.051, True)])
def test_headroom_of_five_per_cent_overall_is_worth_a_look(simple_gpu, overall, worth):
    # a copy of 0.8 GB takes 0.8 ms at 1 TB/s; measured 2 ms, so 1.2 ms to gain, which are 1 - 1 / overall of the run
    copy = pm.Elementwise(numel=10**8, kind="copy", dtype="fp32")
    rest_s = 1.2e-3 / (1 - 1 / overall) - 2e-3
    entries = (ProfileEntry("copy", 2e-3, 1, op=copy), ProfileEntry("rest", rest_s))
    (row,) = (row for row in headroom(Profile(entries), hardware=simple_gpu).rows if row.name == "copy")
    assert row.bounded_overall_speedup == pytest.approx(overall, abs=1e-4)
    assert ("look" in row.verdict) is worth


@pytest.mark.parametrize(
    ("overall", "days", "place"),
    [
        (1.10, 5.0, "quick win"),
        (1.10, 5.01, "big bet"),
        (1.0999, 5.0, "fill-in"),
        (1.0999, 5.01, "avoid"),
    ],
)
def test_the_decision_matrix_from_both_sides_of_its_lines(overall, days, place):
    assert quadrant(overall, days) == place


def test_a_note_lists_six_names_and_counts_the_others():
    candidates = [Candidate(f"c{n}", ("all",), 2.0) for n in range(8)]
    notes = rank_candidates(profile(all=1.0), candidates).notes
    (listed,) = (note for note in notes if note.startswith("Ranked by time saved"))
    assert listed.endswith("'c0', 'c1', 'c2', 'c3', 'c4', 'c5', and 2 more.")


def test_a_claim_of_no_time_is_beyond_every_floor(simple_gpu):
    copy = ProfileEntry("copy", 2e-3, 1, op=pm.Elementwise(numel=10**8, kind="copy", dtype="fp32"))
    row = only_row(Profile((copy,)), Candidate("gone", ("copy",), new_time_s=0.0), hardware=simple_gpu)
    assert row.verdict.startswith("claims to take no time, physics allows")


@pytest.mark.parametrize(("hours", "accepted"), [(8784.0, True), (8784.1, False)])
def test_no_year_has_more_hours_than_a_leap_year(hours, accepted):
    if accepted:
        assert Economics(1, 1, hours_per_year=hours).yearly_cost == hours
        return
    with pytest.raises(pm.UsageError, match="hours_per_year"):
        Economics(1, 1, hours_per_year=hours)


@pytest.mark.parametrize(
    ("day_cost", "said"), [(0.4, "less than a day"), (1.4, "1 day"), (1.6, "2 days"), (1000.2, "1,000 days")]
)
def test_the_decision_states_the_payback_in_words(day_cost, said):
    # twice as fast saves 1 a day, and takes one day of development
    fleet = Economics(gpus=1, price_per_gpu_hour=2, dev_day_cost=day_cost, hours_per_year=365, horizon_years=10)
    candidate = Candidate("c", ("all",), 2.0, dev_days=1.0)
    ranking = rank_candidates(profile(all=1.0), [candidate], fleet)
    assert f", pays back in {said}, net value" in ranking.decision


def test_two_half_days_are_one_day():
    candidates = [Candidate(name, (name,), 2.0, dev_days=0.5) for name in ("a", "b")]
    notes = rank_candidates(profile(a=0.5, b=0.5), candidates).notes
    assert "All together, in this order: 500 ms, 2x, 1 day." in notes


def test_payback_is_in_calendar_days_of_a_year_of_365():
    # 365 GPU-hours a year at 2 cost 730; halved, 365 a year are saved: 1 a day
    fleet = Economics(gpus=1, price_per_gpu_hour=2, dev_day_cost=10, hours_per_year=365)
    assert fleet.payback_days(2.0, 3.0) == pytest.approx(30.0)
    assert Economics(1, 1).yearly_cost == 24 * 365


def test_the_largest_budget_problem_that_is_solved_exactly():
    """2^16 sets x 762 entries are 4.99e7, 763 entries 5.0004e7; and 20 candidates, but not 21."""

    def exact(candidates, entries):
        measured = profile(**{f"e{n}": 1.0 for n in range(entries)})
        plans = [Candidate(f"c{n}", ("*",), 1.1, dev_days=1) for n in range(candidates)]
        return rank_candidates(measured, plans, days=1).selection.exact

    assert exact(16, 762)
    assert not exact(16, 763)
    assert exact(EXACT_CANDIDATES, 1)
    assert EXACT_CANDIDATES == 20
    assert not exact(21, 1)


def test_chunks_of_sets_change_nothing(monkeypatch):
    measured = profile(a=3.0, b=2.0, c=1.0)
    plans = [Candidate(f"{n}{name}", (name,), 1.2 + 0.3 * n, dev_days=1 + n) for n in range(3) for name in "abc"]
    whole = rank_candidates(measured, plans, days=6).selection
    monkeypatch.setattr("perfmodel.investment.budget._CHUNK", 16)
    assert rank_candidates(measured, plans, days=6).selection == whole


def test_people_see_ten_parts_below_a_decision_and_without_one(simple_gpu):
    from perfmodel.investment.decision import Decision

    measured = profile(**{f"e{n}": 1.0 for n in range(12)})
    ranking = rank_candidates(measured, [Candidate("c", ("e0",), 2.0)])
    report = Decision(ranking, headroom(measured)).report()
    for parts in (report.more["parts"], headroom(measured).report()):
        assert (len(parts.shown_rows), len(parts.rows)) == (10, 12)
        assert parts.unlisted == "2 more rows (2 s): --top 12 lists them."
    assert len(Decision(ranking, headroom(measured)).report(top=3).more["parts"].rows) == 3
    assert list(Decision(ranking).report(flips=True).more) == ["sensitivity"]


def test_an_entry_without_time_has_no_speedup_that_counts():
    row = only_row(profile(a=1.0, b=0.0), Candidate("b", ("b",), 5.0))
    assert (row.overall_speedup, row.max_overall_speedup) == (1.0, 1.0)
    assert math.isclose(row.total_time_s, 1.0)


def test_a_set_that_changes_one_entry_keeps_the_floor_of_another(simple_gpu):
    """Another dtype takes the floor of "a" away, but that of "b" stays: tuning "b" twice gains nothing."""
    copy = pm.Elementwise(numel=10**8, kind="copy", dtype="fp32")  # 0.8 ms from memory
    entries = [ProfileEntry(name, 1e-3, 1, op=copy) for name in "ab"]
    measured = Profile((*entries, ProfileEntry("c", 1e-3)))
    candidates = [
        Candidate("dtype", ("a",), 4.0, dev_days=1, kind="dtype"),
        Candidate("tune 1", ("b",), 50.0, dev_days=1),
        Candidate("tune 2", ("b",), 50.0, dev_days=1),
        Candidate("other", ("c",), 1.1, dev_days=1),
    ]
    selection = rank_candidates(measured, candidates, hardware=simple_gpu, days=3).selection
    assert selection.names in ({"dtype", "tune 1", "other"}, {"dtype", "tune 2", "other"})
    assert rank_candidates(measured, candidates, hardware=simple_gpu, days=1).selection.names == {"dtype"}


def test_money_notes_state_prices_and_discount():
    fleet = Economics(8, 10, 1000, 720, horizon_years=3, discount_rate=0.1)
    notes = rank_candidates(profile(a=1.0), [Candidate("a", ("a",), 2.0, dev_days=1)], fleet).notes
    # (1 - 1.1^-3) / ln 1.1 = 0.248685 / 0.0953102 = 2.609
    assert any("over 3 years at 10 % a year, 2.609 yearly savings" in note for note in notes)
    assert any(
        note.startswith("8 GPUs x 10 per GPU-hour (one GPU, not the fleet) x 720 h a year = 57600") for note in notes
    )


def test_only_claims_beyond_the_floor_are_noted(simple_gpu):
    copy = ProfileEntry("copy", 2e-3, 1, op=pm.Elementwise(numel=10**8, kind="copy", dtype="fp32"))
    fair, wish = Candidate("fair", ("copy",), 1.5, dev_days=1), Candidate("wish", ("copy",), 1e4, dev_days=1)
    alone = rank_candidates(Profile((copy,)), [fair], hardware=simple_gpu).notes
    assert not any("A claim beyond" in note for note in alone)
    both = rank_candidates(Profile((copy,)), [fair, wish], hardware=simple_gpu).notes
    (noted,) = (note for note in both if "A claim beyond" in note)
    assert "counts as that limit: 'wish'." in noted


def test_only_a_gain_is_put_into_words_of_time_and_work():
    """A first candidate that makes the run slower has no gain that a note could explain."""
    faster = rank_candidates(profile(all=1.0), [Candidate("c", ("all",), 1.25)])
    assert any("1.25x overall is 20 % less time for the same work, or 25 % more work" in note for note in faster.notes)
    for candidate in (Candidate("slower", ("all",), 0.5), Candidate("removed", ("all",), new_time_s=0.0)):
        assert not any("less time" in note for note in rank_candidates(profile(all=1.0), [candidate]).notes)

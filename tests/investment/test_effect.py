"""Physics: what a machine allows for a candidate, alone and together, and what is left for each entry."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.diagnosis.limits import limit
from perfmodel.investment.effect import share_out
from perfmodel.investment.headroom import headroom
from perfmodel.investment.ranking import rank_candidates
from perfmodel.profile.candidate import KINDS, Candidate
from perfmodel.profile.profile import Profile, ProfileEntry

# 10^8 fp32 elements in and out are 0.8 GB: 0.8 ms at the 1 TB/s of the simple machine
COPY = pm.Elementwise(numel=10**8, kind="copy", dtype="fp32")
# gamma and beta add 8 kB to the 0.8 GB that are read and written
NORM = pm.LayerNorm(rows=10**5, cols=1000, dtype="fp32")


def entry(name, time_s, op=None, **more):
    return ProfileEntry(name, time_s, 1, op=op, **more)


def run(*entries):
    return Profile(tuple(entries))


def test_a_norm_at_77_percent_of_its_bound(simple_gpu):
    # 0.8 / 1.04 = 77 %: 1.3x at most. Of 24.24 ms in all, 0.24 ms less are 24.24 / 24 = 1.01x.
    measured = run(entry("layer_norm", 1.04e-3, NORM), entry("rest", 23.2e-3))
    ranking = headroom(measured, hardware=simple_gpu)
    (row,) = (row for row in ranking.rows if row.name == "layer_norm")
    assert any(
        "1 of 2 entries, 4.29 % of the time, have a bound; with all of them at it: 24 ms, 1.01x overall" in note
        for note in ranking.notes
    )
    assert row.efficiency == pytest.approx(0.8 / 1.04, rel=1e-4)
    assert row.max_local_speedup == row.local_speedup == pytest.approx(1.3, rel=1e-4)
    assert row.bounded_overall_speedup == row.overall_speedup == pytest.approx(1.01, rel=1e-4)
    assert row.attainable_time_s == pytest.approx(0.8e-3, rel=1e-4)
    assert row.max_overall_speedup == pytest.approx(24.24 / 23.2)  # removed
    assert row.verdict == "at 77 % of its bound: at most 1.3x locally, 1.010x overall"


def test_entries_are_ranked_by_what_physics_allows_not_by_time(simple_gpu):
    measured = run(entry("long", 10e-3, COPY.changed(numel=12 * 10**8)), entry("short", 5e-3, COPY))
    ranking = headroom(measured, hardware=simple_gpu)
    # long: 9.6 of 10 ms are its bound, 0.4 ms to gain; short: 0.8 of 5 ms, 4.2 ms to gain
    assert [row.name for row in ranking.rows] == ["short", "long"]
    assert ranking.rows[0].time_saved_s == pytest.approx(4.2e-3)
    assert ranking.rows[0].verdict.startswith("look here first: at 16 % of its bound: at most 6.25x locally")
    assert "at 16 % of its bound" in ranking.decision


def test_an_entry_without_a_bound_says_why_and_claims_nothing(simple_gpu):
    measured = run(entry("mystery", 2e-3, not_modelled="no shapes"), entry("copy", 1e-3, COPY))
    ranking = headroom(measured, hardware=simple_gpu)
    first = ranking.rows[0]
    assert first.name == "mystery"  # physics excludes none of its 2 ms
    assert math.isnan(first.local_speedup)
    assert math.isnan(first.overall_speedup)
    assert first.verdict == "no bound: no shapes; 3x if it took no time"
    document = ranking.report().as_json()["rows"][0]
    assert document["overall_speedup"] is None
    assert document["max_overall_speedup"] == pytest.approx(3.0)
    assert any("1 of 2 entries, 33.3 % of the time, have a bound" in note for note in ranking.notes)


def test_an_entry_at_its_bound_says_what_would_help(simple_gpu):
    (row,) = headroom(run(entry("copy", 0.8e-3, COPY)), hardware=simple_gpu).rows
    assert row.verdict == "at its bound: only another algorithm or dtype makes it faster"


def test_a_claim_beyond_the_bound_is_flagged_and_counts_as_the_bound(simple_gpu):
    measured = run(entry("copy", 1.04e-3, COPY), entry("rest", 1e-3))
    bound_s = 0.8e-3  # 0.8 GB at 1 TB/s
    candidate = Candidate("wish", ("copy",), 4.0, dev_days=1)
    row = rank_candidates(measured, [candidate], hardware=simple_gpu).rows[0]
    assert row.claimed_local_speedup == 4.0
    assert row.local_speedup == row.max_local_speedup == pytest.approx(1.04e-3 / bound_s)
    assert row.total_time_s == pytest.approx(1e-3 + bound_s)
    assert row.verdict.startswith("claims 4x, physics allows 1.3x")
    assert row.verdict.endswith("do first")
    claimed = rank_candidates(measured, [candidate], hardware=simple_gpu, cap=False).rows[0]
    assert (claimed.local_speedup, claimed.total_time_s) == (4.0, pytest.approx(1.26e-3))
    assert "physics allows" in claimed.verdict
    free = rank_candidates(measured, [candidate]).rows[0]
    assert (free.local_speedup, free.verdict) == (4.0, "do first")


def test_what_fits_in_a_cache_is_told_apart_from_what_nothing_beats(simple_gpu):
    # 4 MB in and 4 MB out: 8 us from memory at 1 TB/s; from the L2 of 4 TB/s it can take less, so 2x is no miracle
    small = pm.Elementwise(numel=10**6, kind="copy", dtype="fp32")
    measured = run(entry("copy", 10e-6, small))
    ranking = rank_candidates(measured, [Candidate("resident", ("copy",), 2.0)], hardware=simple_gpu)
    (row,) = ranking.rows
    assert "claims 2x, beyond the bound of 1.25x unless its data stays in a cache" in row.verdict
    # the L2 moves them in 2 us, and nothing in less
    (row,) = rank_candidates(measured, [Candidate("wish", ("copy",), 20.0)], hardware=simple_gpu).rows
    assert row.verdict.startswith("claims 20x, physics allows 1.25x (5x if its data stays in a cache)")
    assert row.local_speedup == row.max_local_speedup == pytest.approx(1.25)
    assert row.time_saved_s == pytest.approx(2e-6)
    assert any("counts as that limit: 'resident'" in note for note in ranking.notes)
    claimed = rank_candidates(measured, [Candidate("resident", ("copy",), 2.0)], hardware=simple_gpu, cap=False)
    assert claimed.rows[0].local_speedup == 2.0


def test_an_entry_that_a_cache_makes_faster_than_its_bound_is_limited_by_its_floor(simple_gpu):
    small = pm.Elementwise(numel=10**6, kind="copy", dtype="fp32")  # 8 us from memory
    measured = run(entry("copy", 5e-6, small))
    floor_s = limit(measured.entries[0], simple_gpu).floor_time_s
    assert floor_s < 5e-6
    row = rank_candidates(measured, [Candidate("more", ("copy",), 100.0)], hardware=simple_gpu).rows[0]
    assert row.local_speedup == pytest.approx(5e-6 / floor_s)


@pytest.mark.parametrize("kind", [kind for kind, keeps in KINDS.items() if not keeps])
def test_another_operator_is_not_held_against_the_bound_of_the_old_one(simple_gpu, kind):
    measured = run(entry("copy", 1e-3, COPY), entry("rest", 1e-3))
    row = rank_candidates(measured, [Candidate("other", ("copy",), 4.0, kind=kind)], hardware=simple_gpu).rows[0]
    assert (row.local_speedup, row.max_local_speedup) == (4.0, None)
    assert "claims" not in row.verdict


def test_what_counters_saw_is_no_floor(simple_gpu):
    # 0.8 GB in 1 ms: this kernel's traffic allows 1.25x; another kernel may move less
    measured = run(ProfileEntry("kernel", 1e-3, 1, flop=0.0, bytes=0.8e9))
    row = rank_candidates(measured, [Candidate("tiled", ("kernel",), 4.0)], hardware=simple_gpu).rows[0]
    assert row.local_speedup == 4.0
    assert row.max_local_speedup == pytest.approx(1.25)
    assert "beyond the bound of 1.25x" in row.verdict


def test_one_target_at_its_bound_leaves_the_rest_to_the_others(simple_gpu):
    # 2 ms become 1 ms, but the copy stays at its 0.8 ms: the other has to go to 0.2 ms
    measured = run(entry("copy", 1e-3, COPY), entry("other", 1e-3))
    row = rank_candidates(measured, [Candidate("both", ("copy", "other"), 2.0)], hardware=simple_gpu).rows[0]
    assert row.local_speedup == 2.0
    row = rank_candidates(measured, [Candidate("both", ("copy", "other"), 20.0)], hardware=simple_gpu).rows[0]
    assert row.total_time_s == pytest.approx(0.8e-3)  # all of the rest gone, and not more


def test_together_an_entry_stops_at_its_bound(simple_gpu):
    measured = run(entry("copy", 2e-3, COPY), entry("rest", 1e-3))
    twice = [Candidate("a", ("copy",), 2.0), Candidate("b", ("copy",), 2.0)]
    last = rank_candidates(measured, twice, hardware=simple_gpu).rows[-1]
    assert last.cumulative_time_s == pytest.approx(1e-3 + 0.8e-3)  # not 1 ms + 2 / 4 ms
    halved = [twice[0], Candidate("fp16", ("copy",), 2.0, kind="dtype")]
    assert rank_candidates(measured, halved, hardware=simple_gpu).rows[-1].cumulative_time_s == pytest.approx(1.5e-3)


def test_times_above_their_floors_keep_their_proportions():
    assert share_out([4.0, 2.0], [0.0, 0.0], 3.0) == [2.0, 1.0]
    assert share_out([4.0, 2.0], [3.0, 1.5], 1.0) == [3.0, 1.5]


positive = st.floats(1e-6, 1e3)


@given(st.lists(st.tuples(positive, st.floats(0, 1)), min_size=1, max_size=6), st.floats(0, 2))
def test_shares_add_up_and_stay_above_their_floors(parts, factor):
    times = [time for time, _ in parts]
    floors = [time * share for time, share in parts]
    wanted = factor * sum(times)
    new = share_out(times, floors, wanted)
    assert all(a >= b * (1 - 1e-12) for a, b in zip(new, floors, strict=True))
    assert sum(new) == pytest.approx(max(wanted, sum(floors)), rel=1e-9)


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.floats(0.5e-3, 1e-2), st.integers(10**5, 10**9)), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.floats(1, 1e3)), min_size=1, max_size=4),
)
def test_nothing_gets_faster_than_the_floor(shared_gpu, parts, wishes):
    measured = run(
        *(entry(f"e{n}", time_s, COPY.changed(numel=numel)) for n, (time_s, numel) in enumerate(parts)),
    )
    floor_s = sum(min(limit(one, shared_gpu).floor_time_s, one.time_s) for one in measured.entries)
    candidates = [Candidate(f"c{n}", (f"e{at % len(parts)}",), s) for n, (at, s) in enumerate(wishes)]
    candidates.append(Candidate("all", ("*",), 100.0))
    ranking = rank_candidates(measured, candidates, hardware=shared_gpu)
    assert ranking.rows[-1].cumulative_time_s >= floor_s * (1 - 1e-9)
    for row in ranking.rows:
        assert row.local_speedup <= row.claimed_local_speedup * (1 + 1e-9)
        assert row.total_time_s >= floor_s * (1 - 1e-9)


@pytest.fixture(scope="module")
def shared_gpu():
    return pm.hardware("a100-sxm4-40gb")


def test_where_the_floors_exceed_the_total_the_rest_takes_no_time():
    assert share_out([50.0, 30.0], [40.0, 0.0], 30.0) == [40.0, 0.0]
    assert share_out([50.0, 30.0], [40.0, 20.0], 10.0) == [40.0, 20.0]

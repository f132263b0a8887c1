"""Ranks that come late: several at once, where steps have no exchange, in few steps, and in few steps of a trace."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.diagnosis.ranks.job import Job, join
from perfmodel.diagnosis.ranks.lateness import median_of_others
from perfmodel.diagnosis.ranks.pace import LATE, lateness
from perfmodel.diagnosis.ranks.summary import RankSummary, Step
from perfmodel.profile.profile import Profile, ProfileEntry

from .test_job import STEP_S, arriving, late, rank


def with_steps(one: RankSummary, count: int) -> RankSummary:
    """Return a rank that has so many steps, whatever exchanges it has."""
    steps = tuple(
        Step(f"ProfilerStep#{n}", n * STEP_S, (n + 1) * STEP_S, compute_s=0.05, communication_s=0.0, exposed_s=0.0)
        for n in range(count)
    )
    return replace(one, steps=steps, window_s=(0.0, count * STEP_S))


def synchronising(every: int, late_s: float, count: int) -> Job:
    """Return two ranks that meet at the end of every few steps, the second one so much later each step [s]."""
    meets = [n * STEP_S + 0.01 for n in range(every - 1, count, every)]
    ends = [meet + every * late_s + 0.01 for meet in meets]
    starts = (meets, [meet + every * late_s for meet in meets])
    return join([with_steps(rank(number, own, ends), count) for number, own in enumerate(starts)])


def first_steps(one: RankSummary, count: int) -> RankSummary:
    """Return a rank whose trace has the first steps only, with one exchange each."""
    cut = with_steps(one, count)
    columns = {name: getattr(one, name)[:count] for name in ("operation", "group", "sequence", "bytes", "ranks")}
    return replace(cut, start_s=one.start_s[:count], end_s=one.end_s[:count], **columns)


@given(st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=9))
def test_the_median_of_the_others_leaves_one_out(times: list[float]) -> None:
    expected = [np.median(np.delete(times, index)) for index in range(len(times))]
    assert median_of_others(np.array(times)) == pytest.approx(expected)


@pytest.mark.parametrize("every", [1, 2, 4])
def test_lateness_adds_up_until_the_next_exchange(every: int) -> None:
    job = synchronising(every, 0.01, count=12)
    (straggler,) = job.stragglers
    assert (straggler.rank, straggler.steps_per_synchronisation, straggler.last_share) == (1, every, 1.0)
    assert straggler.waited_per_synchronisation_s == pytest.approx(every * 0.01)
    assert straggler.waited_per_step_s == pytest.approx(0.01)
    assert straggler.share == pytest.approx(0.01 / STEP_S)
    _, candidate = lateness(job, Profile((ProfileEntry("matmul", 0.1),)))
    assert candidate is not None
    assert candidate.name == "even out rank 1"


def test_a_synchronisation_of_several_steps_is_told_with_both_figures() -> None:
    report = synchronising(4, 0.01, count=12).report()
    assert "at the median synchronisation, one in 4 steps, the others wait 40 ms longer" in report.decision
    assert "10 ms a step (10% of the time)" in report.decision
    (wait,) = report.more["waits"].rows
    assert wait["per_step_s"] == pytest.approx(0.04), "steps without an exchange do not count as steps without a wait"


def test_a_wait_is_no_longer_than_from_one_arrival_to_the_other_also_where_the_last_rank_computes_on() -> None:
    first, second = late([0.02] * 5)  # the exchanges take 10 ms after that
    busy = np.column_stack([second.end_s - 0.001, second.end_s])
    job = join([first, replace(second, stalled=busy)])
    assert job.step_waits_s[:, 0, 1] == pytest.approx([0.02] * 5), "not 0.029"
    assert [one.waited_per_step_s for one in job.stragglers] == pytest.approx([0.02])
    wall, _ = lateness(job, Profile((ProfileEntry("matmul", 0.5),)))
    assert {entry.name: entry.time_s for entry in wall.entries}[LATE] == pytest.approx(0.1), "nor does roi save more"


def test_a_rank_that_computes_on_in_an_exchange_to_which_it_came_in_time_stalls_nobody() -> None:
    first, second = (replace(one, end_s=one.start_s + 0.04) for one in late([1e-9] * 5))
    job = join([first, replace(second, stalled=np.column_stack([second.end_s - 0.001, second.end_s]))])
    assert (job.stragglers, job.stall) == ((), None)


def test_steps_without_an_exchange_make_no_straggler_of_an_even_rank() -> None:
    assert synchronising(4, 0.0, count=12).stragglers == ()
    assert synchronising(4, 0.0005, count=12).stragglers == (), "below 3 % of the step"


@pytest.mark.parametrize("short", [0, 1, 2, 3])
def test_a_rank_with_fewer_steps_changes_no_finding(short: int) -> None:
    ranks = arriving({0: 0.0, 1: 0.02, 2: 0.0, 3: 0.0}, steps=6)
    ranks[short] = first_steps(ranks[short], 3)
    job = join(ranks)
    (straggler,) = job.stragglers
    assert (straggler.rank, straggler.waited_per_step_s) == (1, pytest.approx(0.02))
    assert straggler.last_share == 1.0
    others = {0: "1-3", 1: "0, 2-3", 2: "0-1, 3", 3: "0-2"}[short]
    (note,) = [note for note in job.report().notes if "profiled in different steps" in note]
    assert f"0-5 on rank {others}" in note
    assert f"0-2 on rank {short}" in note
    assert job.report().context["step_counts"][str(short)] == 3
    _, candidate = lateness(job, Profile((ProfileEntry("matmul", 1.0),)))
    assert candidate is not None


def test_traces_that_share_the_middle_steps_are_compared_there() -> None:
    first, second = late([0.02] * 6)
    later = replace(
        second, steps=second.steps[2:], start_s=second.start_s[2:], end_s=second.end_s[2:],
        **{name: getattr(second, name)[2:] for name in ("operation", "group", "bytes", "ranks")},
        sequence=np.arange(2, 6), window_s=(2 * STEP_S, 6 * STEP_S),
    )  # fmt: skip
    early = first_steps(replace(first, sequence=np.arange(6)), 4)
    job = join([early, later])
    assert job.steps.names == tuple(f"ProfilerStep#{n}" for n in range(6))
    assert [one.waited_per_step_s for one in job.stragglers] == pytest.approx([0.02])


@pytest.mark.parametrize(("count", "slow"), [(4, {1, 2}), (8, {0, 1, 2, 3}), (64, set(range(0, 64, 4)))])
def test_ranks_that_are_equally_slow_are_named_together(count: int, slow: set[int]) -> None:
    job = join(arriving({number: 0.02 if number in slow else 0.0 for number in range(count)}, steps=5))
    assert {one.rank for one in job.stragglers} == slow
    assert [one.waited_per_step_s for one in job.stragglers] == pytest.approx([0.02] * len(slow))
    assert job.together is not None
    assert set(job.together.ranks) == slow
    assert job.together.waited_per_step_s == pytest.approx(0.02)
    assert job.together.last_share == 1.0
    wall, candidate = lateness(job, Profile((ProfileEntry("matmul", 0.25),)))
    assert candidate is not None
    assert candidate.targets == (LATE,)
    assert wall.total_time_s == pytest.approx(0.25 + 5 * 0.02), "one of them alone saves nothing"


def test_several_ranks_are_told_as_a_group() -> None:
    report = join(arriving({0: 0.0, 1: 0.02, 2: 0.03, 3: 0.0, 4: 0.0}, steps=5)).report()
    assert report.decision.startswith("Ranks 1-2 are the stragglers: in the median step the others wait 30 ms longer")
    assert "one of them comes last at 100% of the exchanges; their computation is no longer" in report.decision
    assert [one["rank"] for one in report.context["stragglers"]] == [2, 1], "the worst first"
    assert report.context["stragglers_together"]["ranks"] == [2, 1]


def test_most_ranks_are_no_stragglers() -> None:
    # three of four come together: the fourth one is early
    job = join(arriving({0: 0.02, 1: 0.0, 2: 0.02, 3: 0.02}, steps=5))
    assert job.stragglers == ()
    assert job.report().decision == "No rank is late in most steps: rank 1 comes early, with 100% of the waits."


def test_a_rank_is_compared_with_those_of_its_own_exchanges() -> None:
    # of two groups of two, one has a rank that is late; the other one waits for nobody
    ranks = arriving({0: 0.0, 1: 0.0, 2: 0.0, 3: 0.02}, steps=5)
    job = join([replace(one, group=(f"group{number // 2}",) * 5) for number, one in enumerate(ranks)])
    assert [(one.rank, one.waited_per_step_s) for one in job.stragglers] == [(3, pytest.approx(0.02))]


def test_a_rank_that_stalls_once_is_named_with_its_step() -> None:
    job = join(late([0.0005, 0.0, 0.0, 0.03, 0.0, 0.0]))
    assert (job.stragglers, job.stall) == ((), None), "5 % of the wall time"
    assert re.fullmatch(r"No rank .* even ranks are by chance; rank \d has \d+% of the waits\.", job.report().decision)
    # the exchange is numbered: it begins after the end of the step, as far as the other rank's steps tell
    job = join([replace(one, sequence=np.arange(6)) for one in late([0.0005, 0.0, 0.0, 0.3, 0.0, 0.0])])
    assert job.stragglers == ()
    assert job.stall is not None
    assert (job.stall.rank, job.stall.step) == (1, "ProfilerStep#3")
    assert job.stall.waited_s == pytest.approx(0.3005)
    assert job.stall.step_waited_s == pytest.approx(0.3)
    decision = job.report().decision
    assert decision.startswith(
        "No rank is late in most steps, but 100% of the waits are for rank 1: the others wait 30"
    )
    assert "300 ms of it in ProfilerStep#3" in decision
    assert lateness(job, Profile((ProfileEntry("matmul", 1.0),)))[1] is None


def test_waits_that_go_round_are_spread_over_the_ranks() -> None:
    job = join(late([0.03, -0.03, 0.03, -0.03, 0.03, -0.03]))
    assert (job.stragglers, job.stall) == ((), None)
    assert job.report().decision == "No rank is late in most steps: the waits are spread over the ranks."


def test_ranks_that_arrive_together_wait_for_nobody() -> None:
    job = join(late([0.0] * 6))
    assert (job.stragglers, job.stall) == ((), None)
    assert job.report().decision == "No rank waits for another one."


def test_one_step_names_a_straggler_only_where_it_is_far_behind() -> None:
    for delay_s, named in ((0.00305, []), (0.02, []), (0.03, [1])):
        assert [one.rank for one in join(late([delay_s])).stragglers] == named
    assert [one.rank for one in join(late([0.004] * 6)).stragglers] == [1], "six steps show that it is steady"
    assert "in the one step of the traces" in join(late([0.02])).report().decision


@pytest.mark.parametrize(("delay_s", "named"), [(0.02, []), (0.03, [1])])
def test_a_trace_without_steps_shows_as_little_as_one_step(delay_s: float, named: list[int]) -> None:
    job = join([replace(one, steps=(one.steps[0]._replace(name=""),)) for one in late([delay_s])])
    assert [one.rank for one in job.stragglers] == named
    assert ("which mark no steps; it takes several" in job.report().decision) == (not named)

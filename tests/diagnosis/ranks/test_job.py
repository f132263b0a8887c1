"""The ranks of a job: exchanges matched by number, clocks aligned on their ends, and waits that add up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.diagnosis.ranks.bandwidth import exchange_kinds
from perfmodel.diagnosis.ranks.job import incomplete_notes, join
from perfmodel.diagnosis.ranks.pace import HOST_EXPOSED, HOST_IDLE, LATE, lateness
from perfmodel.diagnosis.ranks.summary import COMPUTE, DIMENSIONS, EXPOSED, RankSummary, Step
from perfmodel.errors import InputFileError
from perfmodel.profile.profile import ProcessGroup, Profile, ProfileEntry

STEP_S = 0.1


def rank(
    number: int | None,
    starts: list[float],
    ends: list[float],
    *,
    clock_s: float = 0.0,
    world: int | None = 2,
    compute_s: float = 0.05,
    **columns: object,
) -> RankSummary:
    """Return a rank whose exchanges start and end at given times of a shared clock, seen on its own clock."""
    count = len(starts)
    steps = tuple(
        Step(f"ProfilerStep#{n}", n * STEP_S + clock_s, (n + 1) * STEP_S + clock_s, compute_s, 0.01, 0.01)
        for n in range(max(1, count))
    )
    summary = RankSummary(
        rank=number, world_size=world, source=f"rank{number}.json", device="", communication_s=0.01 * count,
        times_s={**dict.fromkeys(DIMENSIONS, 0.0), COMPUTE: compute_s * count, EXPOSED: 0.01 * count},
        compute_s=compute_s * count, steps=steps, operation=("all_reduce",) * count, group=("",) * count,
        sequence=np.full(count, -1), bytes=np.full(count, 1e6), ranks=np.full(count, 2),
        start_s=np.array(starts) + clock_s, end_s=np.array(ends) + clock_s,
        window_s=(clock_s, max(1, count) * STEP_S + clock_s),
    )  # fmt: skip
    return replace(summary, **columns)  # type: ignore[arg-type]


def late(delays: list[float], clock_s: float = 0.0) -> list[RankSummary]:
    """Return two ranks of which the second comes to the exchange of each step so much later [s]."""
    meets = [n * STEP_S + 0.05 for n in range(len(delays))]
    ends = [meet + max(0.0, delay) + 0.01 for meet, delay in zip(meets, delays, strict=True)]
    other = [meet + delay for meet, delay in zip(meets, delays, strict=True)]
    return [rank(0, meets, ends), rank(1, other, ends, clock_s=clock_s)]


def arriving(lags_s: dict[int, float], steps: int) -> list[RankSummary]:
    """Return ranks that come to the exchange of each step so much later than the first one [s]."""
    meets = [n * STEP_S + 0.04 for n in range(steps)]
    ends = [meet + max(lags_s.values()) + 0.01 for meet in meets]
    return [rank(number, [meet + lag_s for meet in meets], ends, world=len(lags_s)) for number, lag_s in lags_s.items()]


def test_a_rank_that_is_20_ms_late_in_each_step_is_named_with_its_milliseconds() -> None:
    job = join(late([0.02] * 5))
    (straggler,) = job.stragglers
    assert straggler.rank == 1
    assert straggler.waited_per_step_s == pytest.approx(0.02)
    assert straggler.last_share == 1.0
    assert straggler.compute_excess_s == 0.0
    assert job.waits_s[0, 1] == pytest.approx(0.1)
    assert job.waits_s[1, 0] == 0.0
    assert [one.skew_s for one in job.exchanges] == pytest.approx([0.02] * 5)
    assert [one.time_s for one in job.exchanges] == pytest.approx([0.01] * 5), "waiting is no part of the exchange"


def test_ranks_that_are_late_in_turn_have_no_straggler() -> None:
    assert join(late([0.02, -0.02, 0.02, -0.02])).stragglers == ()


def test_a_rank_that_waits_as_long_as_the_others_wait_for_it_is_no_straggler() -> None:
    # two exchanges a step: at the first the second rank comes 20 ms late, at the second the first rank does
    meets = [n * STEP_S + at for n in range(4) for at in (0.02, 0.06)]
    delays = ([0.0, 0.02] * 4, [0.02, 0.0] * 4)
    ends = [meet + 0.03 for meet in meets]
    starts = [[meet + delay for meet, delay in zip(meets, own, strict=True)] for own in delays]
    steps = rank(0, meets[::2], ends[::2]).steps
    job = join([rank(number, starts[number], ends, steps=steps) for number in range(2)])
    assert job.waits_s[0, 1] == pytest.approx(4 * 0.02)
    assert job.waits_s[1, 0] == pytest.approx(4 * 0.02)
    assert job.stragglers == ()


def test_a_rank_that_is_late_in_half_of_the_steps_is_no_straggler() -> None:
    assert join(late([0.02, 0.0, 0.02, 0.0, 0.03, 0.0])).stragglers == ()


def test_a_small_wait_is_named_where_it_is_steady_and_not_where_it_varies_as_much() -> None:
    (steady,) = join(late([0.004, 0.0042, 0.0044] * 2)).stragglers
    assert (steady.rank, steady.waited_per_step_s) == (1, pytest.approx(0.0042))
    assert join(late([0.0, 0.002, 0.0042, 0.0044, 0.009, 0.02])).stragglers == ()
    assert join(late([0.0025] * 6)).stragglers == (), "below 3 % of the step"


def test_an_exchange_belongs_to_the_step_in_which_it_began() -> None:
    # the second rank leaves each exchange 2 ms after the first, which is in its next step by then
    meets = [(n + 1) * STEP_S - 0.021 for n in range(5)]
    ends = [meet + 0.0205 for meet in meets]
    later = [end + (0.002 if n % 2 else 0.0) for n, end in enumerate(ends)]
    job = join([rank(0, meets, ends), rank(1, [meet + 0.02 for meet in meets], later)])
    assert job.step_waits_s[:, 0, 1] == pytest.approx([0.02, 0.018] * 2 + [0.02]), "it keeps the second one 2 ms longer"


def test_the_net_wait_is_the_mean_over_the_others() -> None:
    # rank 2 comes 30 ms after rank 0 and 20 ms after rank 1
    meets = [n * STEP_S + 0.02 for n in range(5)]
    ends = [meet + 0.04 for meet in meets]
    job = join([rank(n, [meet + 0.01 * lag for meet in meets], ends, world=3) for n, lag in ((0, 0), (1, 1), (2, 3))])
    assert [one.rank for one in job.stragglers] == [2]
    assert job.stragglers[0].waited_per_step_s == pytest.approx(0.025)


@given(st.floats(-1e4, 1e4), st.lists(st.floats(0.0, 0.03), min_size=1, max_size=8))
def test_clocks_that_differ_are_aligned_on_the_ends(clock_s: float, delays: list[float]) -> None:
    same, apart = join(late(delays)), join(late(delays, clock_s))
    assert apart.offset_s == pytest.approx([0.0, clock_s], abs=1e-8)
    assert apart.waits_s == pytest.approx(same.waits_s, abs=1e-7)


def test_waits_at_the_same_time_count_once() -> None:
    # two exchanges of different messages are in flight at once, as the buckets of a gradient are
    starts, ends = [0.01, 0.012], [0.045, 0.05]
    sizes = np.array([1e6, 2e6])
    job = join([rank(0, starts, ends, bytes=sizes), rank(1, [0.04, 0.041], ends, bytes=sizes)])
    # from 0.040 s on an exchange keeps the other rank, too
    assert job.waits_s[0, 1] == pytest.approx(0.030), "0.010 to 0.040, not 0.030 + 0.029"


def test_exchanges_are_matched_by_number_and_not_by_time() -> None:
    # the second rank was recorded one exchange later: its first one is the other's second
    first = rank(0, [0.01, 0.11, 0.21], [0.02, 0.12, 0.22], sequence=np.array([7, 8, 9]))
    second = rank(1, [0.10, 0.20], [0.12, 0.22], sequence=np.array([8, 9]), steps=first.steps[1:])
    job = join([first, second])
    assert [one.key.number for one in job.exchanges] == [8, 9]
    assert job.waits_s[1, 0] == pytest.approx(0.02)


def test_ranks_are_ordered_and_missing_ones_are_named() -> None:
    pair = late([0.0, 0.0])
    job = join([replace(pair[1], rank=3, world_size=4), replace(pair[0], world_size=4)])
    assert job.numbers == (0, 3)
    assert job.missing == (1, 2)


def test_what_is_no_job_is_refused() -> None:
    pair = late([0.01])
    with pytest.raises(InputFileError, match="rank 0 is given 2 times"):
        join([pair[0], replace(pair[1], rank=0)])
    with pytest.raises(InputFileError, match="jobs with 2 and 8 ranks"):
        join([pair[0], replace(pair[1], world_size=8)])
    with pytest.raises(InputFileError, match="no exchange in common"):
        join([pair[0], replace(pair[1], operation=("broadcast",))])


def test_imbalance_is_the_longest_computation_over_the_mean() -> None:
    job = join([rank(0, [0.05], [0.06], compute_s=0.02), rank(1, [0.05], [0.06], compute_s=0.06)])
    assert job.imbalance == pytest.approx(0.06 / 0.04 - 1)
    assert job.step_imbalance == pytest.approx(0.06 / 0.04 - 1)
    assert job.slowest == 1


def test_work_that_goes_from_rank_to_rank_is_imbalance_within_a_step_only() -> None:
    short, long = (Step("", 0.0, STEP_S, compute_s, 0.0, 0.0) for compute_s in (0.02, 0.06))
    steps = ((short, long, short, long), (long, short, long, short))
    meets = [n * STEP_S + 0.05 for n in range(4)]
    job = join([rank(number, meets, meets, steps=steps[number]) for number in range(2)])
    assert job.imbalance == pytest.approx(0.0)
    assert job.step_imbalance == pytest.approx(0.5)


def test_bandwidths_are_those_of_nccl_tests_and_a_machine_says_what_to_expect() -> None:
    import perfmodel as pm

    (kind,) = exchange_kinds(join(late([0.0] * 3)), pm.hardware("h100"))
    assert (kind.operation, kind.calls, kind.ranks) == ("all_reduce", 3, 2)
    assert kind.algorithm_bytes_per_s == pytest.approx(1e6 / 0.01)
    assert kind.bus_bytes_per_s == pytest.approx(1e6 / 0.01), "two ranks: 2 (n - 1) / n = 1"
    assert kind.low_s < kind.predicted_s < kind.high_s < 0.01
    (unknown,) = exchange_kinds(join(late([0.0])))
    assert np.isnan(unknown.predicted_s)


def test_a_bandwidth_is_of_all_ranks_that_take_part_also_of_those_that_are_not_given() -> None:
    everybody = ProcessGroup("0", tuple(range(8)))
    said = [replace(one, world_size=8, ranks=np.full(3, 8)) for one in late([0.0] * 3)]
    listed = [replace(one, ranks=np.zeros(3, dtype=np.int64), groups=(everybody,)) for one in said]
    unknown = [replace(one, groups=()) for one in listed]
    for ranks in (said, listed, unknown):
        job = join(ranks)
        (kind,) = exchange_kinds(job)
        assert (kind.ranks, len(job.exchanges[0].ranks)) == (8, 2)
        assert kind.bus_bytes_per_s == pytest.approx(2 * 7 / 8 * kind.algorithm_bytes_per_s)
        assert any("In 3 of 3 exchanges a rank takes part that is not given" in note for note in incomplete_notes(job))
    (pair,) = exchange_kinds(join(late([0.0] * 3)))
    assert pair.ranks == 2
    assert not any("takes part" in note for note in incomplete_notes(join(late([0.0] * 3))))


def test_ranks_whose_gpus_have_one_number_are_on_different_hosts() -> None:
    import perfmodel as pm

    def job_of(*numbers: int | None):
        meets = [n * STEP_S + 0.05 for n in range(3)]
        ends = [meet + 0.01 for meet in meets]
        return join([rank(place, meets, ends, world=4, local_gpu=number) for place, number in enumerate(numbers)])

    two_hosts, one_host = job_of(0, 1, 0, 1), job_of(0, 1, 2, 3)
    assert (two_hosts.hosts_of(range(4)), two_hosts.hosts_of([0, 1]), two_hosts.hosts_of([0, 2])) == (2, 1, 2)
    assert one_host.hosts_of(range(4)) == 1
    for unknown in (job_of(0, 0, 0, 0), job_of(0, None, 1, 1)):  # each rank sees its own GPU alone, or the trace none
        assert unknown.hosts_of(range(4)) is None
    apart, together = (exchange_kinds(job, pm.hardware("h100"))[0] for job in (two_hosts, one_host))
    assert (apart.hosts, together.hosts) == (2, 1)
    expected = pm.predict(pm.AllReduce(bytes=10**6, num_gpus=4, nodes=2, dtype="bf16"), "h100", library="nccl")
    assert apart.predicted_s == pytest.approx(expected.predicted_time_s)
    assert apart.predicted_s > together.predicted_s
    rack = [exchange_kinds(job, pm.hardware("gb200"))[0] for job in (two_hosts, one_host)]
    assert rack[0].predicted_s == rack[1].predicted_s, "NVLink joins the hosts of a rack"


def test_ranks_on_hosts_of_different_names_are_on_different_hosts() -> None:
    meets = [n * STEP_S + 0.05 for n in range(3)]
    ends = [meet + 0.01 for meet in meets]

    def job_of(*hosts: str):
        # each rank sees its own GPU alone
        return join([rank(n, meets, ends, world=4, local_gpu=0, host=host) for n, host in enumerate(hosts)])

    assert job_of("a", "b", "c", "d").hosts_of(range(4)) == 4
    two = job_of("a", "a", "b", "b")
    assert (two.hosts_of(range(4)), two.hosts_of([0, 1]), two.hosts_of([1, 2])) == (2, 1, 2)
    assert job_of("a", "a", "b", "").hosts_of(range(4)) is None


@pytest.mark.parametrize("size", [4, 64])
def test_ranks_that_are_not_given_may_be_on_more_hosts_than_those_that_are(size: int) -> None:
    import perfmodel as pm

    def expected_s(*hosts: str) -> float:
        given = late([0.0] * 3)
        ranks = [
            replace(one, world_size=size, ranks=np.full(3, size), host=host)
            for one, host in zip(given, hosts, strict=True)
        ]
        return exchange_kinds(join(ranks), pm.hardware("h100"))[0].predicted_s

    def all_reduce_s(nodes: int | None) -> float:
        op = pm.AllReduce(bytes=10**6, num_gpus=size, nodes=nodes, dtype="bf16")
        return float(pm.predict(op, "h100", library="nccl").predicted_time_s)

    assert expected_s("a", "a") == pytest.approx(all_reduce_s(None))
    assert expected_s("a", "b") == pytest.approx(all_reduce_s(max(2, size // 8)))


def test_lateness_of_the_host_saves_what_the_others_wait() -> None:
    job = join(late([0.02] * 5))
    wall, candidate = lateness(job, Profile((ProfileEntry("matmul", 0.25),)))
    assert (job.numbers[job.pace], candidate.name, candidate.targets) == (1, "even out rank 1", (LATE,))
    assert wall.total_time_s == pytest.approx(0.25 + 5 * 0.02)
    assert candidate.new_time_s == 0.0


def test_a_rank_that_computes_longer_gives_work_to_the_others() -> None:
    waits = [rank(0, [0.02], [0.09], compute_s=0.02), rank(1, [0.08], [0.09], compute_s=0.08)]
    wall, candidate = lateness(join(waits), Profile((ProfileEntry("matmul", 0.08),)))
    assert wall.total_time_s == 0.08
    assert candidate.new_time_s == pytest.approx(0.05), "the mean of 20 and 80 ms"
    assert lateness(join(late([0.0] * 3)), wall) == (wall, None)


def test_the_wait_of_the_second_rank_is_the_most_that_can_be_saved() -> None:
    # rank 2 waits 20 ms a step, rank 1 only 8 ms: after that it sets the pace
    job = join(arriving({0: 0.02, 1: 0.012, 2: 0.0}, steps=4))
    assert [one.rank for one in job.stragglers] == [0]
    wall, candidate = lateness(job, Profile((ProfileEntry("matmul", 0.1),)))
    assert candidate is not None
    assert wall.total_time_s == pytest.approx(0.1 + 4 * 0.008)


def test_a_rank_without_a_gpu_has_its_whole_wall_time_as_total() -> None:
    # 0.5 s, of which 0.25 s are operators, 0.05 s communication, and 0.1 s the others wait for
    pair = [replace(one, of_host=True) for one in late([0.02] * 5)]
    wall, candidate = lateness(join(pair), Profile((ProfileEntry("matmul", 0.25),)))
    times = {entry.name: entry.time_s for entry in wall.entries}
    assert times == pytest.approx({"matmul": 0.25, HOST_EXPOSED: 0.05, HOST_IDLE: 0.1, LATE: 0.1})
    assert candidate is not None
    assert (candidate.targets, candidate.new_time_s) == ((LATE,), 0.0)
    even = [replace(one, of_host=True) for one in late([0.0] * 5)]
    wall, none = lateness(join(even), Profile((ProfileEntry("matmul", 0.25),)))
    assert none is None
    assert wall.total_time_s == pytest.approx(0.5)
    # operators of two threads at once take no more than what is left
    wall, _ = lateness(join(even), Profile((ProfileEntry("matmul", 0.9),)))
    assert {entry.name: entry.time_s for entry in wall.entries} == pytest.approx({"matmul": 0.45, HOST_EXPOSED: 0.05})


def test_a_rank_that_itself_waits_saves_only_the_difference() -> None:
    # at the first exchange of a step it comes 30 ms late, at the second the other one 10 ms
    meets = [n * STEP_S + at for n in range(4) for at in (0.02, 0.07)]
    ends = [meet + 0.035 for meet in meets]
    starts = ([meet + lag for meet, lag in zip(meets, own * 4, strict=True)] for own in ([0.0, 0.01], [0.03, 0.0]))
    steps = rank(0, meets[::2], ends[::2]).steps
    job = join([rank(number, own, ends, steps=steps) for number, own in enumerate(starts)])
    wall, candidate = lateness(job, Profile((ProfileEntry("matmul", 0.1),)))
    assert candidate is not None
    assert wall.total_time_s == pytest.approx(0.1 + 4 * (0.03 - 0.01))


def test_clocks_are_spoken_of_where_they_matter() -> None:
    assert not any("clocks" in note for note in join(late([0.02] * 5, clock_s=0.001)).report().notes)
    assert any("clocks of the hosts differ by up to 5 s" in note for note in join(late([0.02] * 5, 5.0)).report().notes)


def test_exchanges_without_a_length_are_covered_by_nothing() -> None:
    meets = [n * STEP_S + 0.05 for n in range(3)]
    none = {**dict.fromkeys(DIMENSIONS, 0.0), COMPUTE: 0.15}
    job = join([rank(number, meets, meets, communication_s=0.0, times_s=none) for number in range(2)])
    assert "No exchange takes any time; exposed: 0.0% of the wall time." in job.report().notes


@pytest.mark.parametrize(("clock_s", "warned"), [(0.2, False), (-0.2, False), (3600.0, True), (-3600.0, True)])
def test_runs_at_different_times_may_be_no_one_job(clock_s: float, warned: bool) -> None:
    # they match as well as the ranks of one run
    job = join(late([0.02] * 5, clock_s))
    assert (
        "First make sure that the traces are of one run: their clocks differ by 3600 s." in job.report().decision
    ) == warned
    assert any("Make sure that the traces are of one run" in note for note in incomplete_notes(job)) == warned


@pytest.mark.parametrize(
    ("excess_s", "said"),
    [(0.0, "no longer than"), (0.006, "6 ms a step longer than the others, which explains the smaller part"),
     (0.015, "15 ms a step longer than the others: compare its batch")],
)  # fmt: skip
def test_the_cause_is_what_the_computation_explains(excess_s: float, said: str) -> None:
    pair = late([0.02] * 5)
    steps = tuple(step._replace(compute_s=0.05 + excess_s) for step in pair[1].steps)
    assert said in join([pair[0], replace(pair[1], steps=steps)]).report().decision


@pytest.mark.waiting
def test_hundreds_of_ranks_are_joined_and_missing_ones_are_named_in_spans() -> None:
    meets = [n * STEP_S + 0.05 for n in range(20)]
    ends = [meet + 0.03 for meet in meets]
    starts = [[meet + (0.02 if number == 77 else 0.0) for meet in meets] for number in range(256)]
    ranks = [rank(number, starts[number], ends, world=300, clock_s=number) for number in range(256) if number != 9]
    job = join(ranks)
    assert [one.rank for one in job.stragglers] == [77]
    assert job.stragglers[0].waited_per_step_s == pytest.approx(0.02)
    assert incomplete_notes(job)[0] == "Missing: rank 9, 256-299 of 300."
    shown = {row["rank"] for row in job.report().people_rows}
    assert len(shown) == 8
    assert 77 in shown


def test_ranks_that_do_not_leave_their_exchanges_together_are_of_several_jobs() -> None:
    meets = [n * STEP_S + 0.05 for n in range(6)]
    other = [n * 1.7 * STEP_S + 0.05 for n in range(6)]
    ranks = [rank(0, meets, meets), rank(1, meets, meets), rank(2, other, other)]
    with pytest.raises(InputFileError, match=r"rank2\.json: leaves the exchanges .* another job, or of other steps"):
        join(ranks)


def test_messages_without_numbers_are_matched_only_where_all_ranks_have_as_many() -> None:
    times = [0.01, 0.02]
    sends = ("send_recv", "send_recv")
    ring = [rank(number, times, times, operation=sends) for number in range(2)]
    assert len(join(ring).exchanges) == 2
    first = rank(0, [0.01, 0.05], [0.02, 0.06], operation=("send_recv", "all_reduce"))
    middle = rank(1, [0.01, 0.03, 0.05], [0.02, 0.04, 0.06], operation=(*sends, "all_reduce"))
    (left,) = join([first, middle]).exchanges
    assert left.key.operation == "all_reduce"

"""Which exchanges belong together: by step and count, within the process group that their ends tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.diagnosis.ranks.bandwidth import exchange_kinds
from perfmodel.diagnosis.ranks.job import Job, incomplete_notes, join
from perfmodel.diagnosis.ranks.summary import COMPUTE, DIMENSIONS, EXPOSED, RankSummary, Step
from perfmodel.errors import InputFileError
from perfmodel.profile.profile import ProcessGroup

STEP_S = 0.1
#: all processes, and the two ways to pair four of them
WORLD = ProcessGroup("0", (0, 1, 2, 3))
ROWS = (ProcessGroup("3", (0, 1)), ProcessGroup("4", (2, 3)))
COLUMNS = (ProcessGroup("1", (0, 2)), ProcessGroup("2", (1, 3)))


def rank(
    number: int, spans: Sequence[tuple[float, float]], *, first: int = 0, steps: int = 6, **more: object
) -> RankSummary:
    """Return a rank with exchanges from start to end, in steps of 0.1 s from a number on."""
    count, begin_s, end_s = len(spans), first * STEP_S, (first + steps) * STEP_S
    summary = RankSummary(
        rank=number, world_size=4, source=f"rank{number}.json", device="", communication_s=0.01,
        times_s={**dict.fromkeys(DIMENSIONS, 0.0), COMPUTE: 0.05, EXPOSED: 0.01}, compute_s=0.05,
        steps=tuple(
            Step(f"ProfilerStep#{n}", n * STEP_S, (n + 1) * STEP_S, 0.05, 0.01, 0.01)
            for n in range(first, first + steps)
        ),
        operation=("all_reduce",) * count, group=("",) * count, sequence=np.full(count, -1),
        bytes=np.full(count, 1e6), ranks=np.zeros(count, dtype=np.int64), start_s=np.array([one[0] for one in spans]),
        end_s=np.array([one[1] for one in spans]), window_s=(begin_s, end_s), host="host",
    )  # fmt: skip
    return replace(summary, **more)  # type: ignore[arg-type]


def meeting(arrivals_s: dict[int, float], *, skew_s: float = 0.0001) -> dict[int, tuple[float, float]]:
    """Return start and end on each rank of an exchange that takes 1 ms once all are there."""
    last_s = max(arrivals_s.values())
    return {
        number: (start_s, last_s + 0.001 + skew_s * place) for place, (number, start_s) in enumerate(arrivals_s.items())
    }


def mesh(late_s: Sequence[float], *, steps: int = 6, wobble_s: float = 0.001) -> list[list[tuple[float, float]]]:
    """Return the exchanges of four ranks: in each step one along the rows, and later one along the columns.

    Ranks come so much later to the first [s]. The rows are not in lock-step: the second one is a little later.
    """
    spans: list[list[tuple[float, float]]] = [[] for _ in range(4)]
    for step in range(steps):
        begin_s = step * STEP_S + 0.02
        for at_s, groups, delay_s in ((0.0, ROWS, late_s), (0.05, COLUMNS, (0.0,) * 4)):
            for place, group in enumerate(groups):
                own_s = {n: begin_s + at_s + delay_s[n] + place * wobble_s * (1 + step % 3) for n in group.ranks}
                for number, span in meeting(own_s).items():
                    spans[number].append(span)
    return spans


def of_mesh(number: int) -> tuple[ProcessGroup, ...]:
    return (WORLD, *(group for group in (*ROWS, *COLUMNS) if number in group.ranks))


def joined(spans: Sequence[Sequence[tuple[float, float]]], **more: object) -> Job:
    return join([rank(n, own, groups=of_mesh(n), **more) for n, own in enumerate(spans)])


def members(job: Job) -> list[tuple[str, tuple[int, ...]]]:
    return sorted({(one.key.group, tuple(one.ranks.tolist())) for one in job.exchanges})


PAIRS = [("1", (0, 2)), ("2", (1, 3)), ("3", (0, 1)), ("4", (2, 3))]


@pytest.mark.parametrize("late_s", [0.0, 0.02])
def test_exchanges_are_matched_in_the_group_whose_ends_agree(late_s: float) -> None:
    job = joined(mesh((0.0, 0.0, 0.0, late_s)))
    assert members(job) == PAIRS
    assert len(job.exchanges) == 4 * 6
    assert job.unnamed == ""
    assert job.waits_s[2, 3] == pytest.approx(6 * late_s, abs=1e-3)
    assert job.waits_s[0, 1] == pytest.approx(0.0, abs=1e-3), "they are of another row than the late rank"
    assert job.offset_s == pytest.approx([0.0] * 4, abs=1e-12), "one host has one clock"


def test_an_exchange_of_all_ranks_is_one_of_the_largest_group() -> None:
    spans: list[list[tuple[float, float]]] = [[] for _ in range(4)]
    for step in range(6):
        for number, span in meeting({n: step * STEP_S + 0.02 + 0.02 * (n == 3) for n in range(4)}).items():
            spans[number].append(span)
    job = joined(spans)
    assert members(job) == [("0", (0, 1, 2, 3))]
    assert [one.rank for one in job.stragglers] == [3]


@pytest.mark.waiting
@given(st.lists(st.floats(-0.03, 0.03), min_size=2, max_size=2))
def test_groups_over_several_hosts_are_found_on_clocks_that_differ(apart_s: list[float]) -> None:
    spans = mesh((0.0, 0.0, 0.0, 0.02))
    clock_s = [0.0, 0.0, apart_s[0], apart_s[0]]
    ranks = [
        rank(n, [(a + clock_s[n], b + clock_s[n]) for a, b in own], groups=of_mesh(n), host=f"host{n // 2}")
        for n, own in enumerate(spans)
    ]
    job = join(ranks)
    if job.unnamed == "" and members(job) == PAIRS:
        assert job.offset_s == pytest.approx(clock_s, abs=1e-3)
    assert not any(one.rank != 3 for one in job.stragglers), "a wrong match names nobody else"


def test_groups_of_one_size_that_fit_as_well_are_not_told_apart_and_nobody_is_named() -> None:
    # all four ranks come and leave together, though the traces list pairs only: each pair fits
    spans: list[list[tuple[float, float]]] = [[] for _ in range(4)]
    for step in range(6):
        for number, span in meeting(dict.fromkeys(range(4), step * STEP_S + 0.02), skew_s=0.0).items():
            spans[number].append(span)
    ranks = [rank(n, own, groups=of_mesh(n)[1:]) for n, own in enumerate(spans)]
    job = join(ranks)
    assert job.exchanges == ()
    assert job.stragglers == ()
    assert (
        job.report().decision
        == job.unnamed
        == ("No rank is called late: 24 of 24 exchanges may be of several process groups.")
    )
    assert any("24 of 24 exchanges of the ranks are not matched" in note for note in incomplete_notes(job))
    assert job.report().rows, "the ranks by themselves are reported all the same"


def test_a_broadcast_of_an_unknown_group_is_not_matched_and_does_not_keep_a_late_rank_from_its_name() -> None:
    spans = mesh((0.0, 0.0, 0.0, 0.02))
    ranks = [
        replace(rank(n, own, groups=of_mesh(n)), operation=("broadcast", *("all_reduce",) * (len(own) - 1)))
        for n, own in enumerate(spans)
    ]
    job = join(ranks)
    assert {one.key.operation for one in job.exchanges} == {"all_reduce"}
    assert job.unnamed == ""
    assert any(
        "4 of 48 exchanges of the ranks are not matched, as broadcasts" in note for note in incomplete_notes(job)
    )


def broadcasting(clock_s: float, **more: object) -> list[RankSummary]:
    """Return two ranks of which the second comes 20 ms late to three broadcasts and a sum in each step.

    The first one sends the broadcasts, and leaves them before the other comes.
    """
    spans: list[list[tuple[float, float]]] = [[], []]
    for number, late_s in enumerate((0.0, 0.02)):
        for at_s in (n * STEP_S + late_s + clock_s * number for n in range(6)):
            spans[number] += [(at_s + 0.01 * part, at_s + 0.01 * part + 0.001) for part in range(1, 4)]
            spans[number].append((at_s + 0.04, at_s - late_s + 0.07))
    operation = ("broadcast", "broadcast", "broadcast", "all_reduce") * 6
    return [
        rank(n, own, operation=operation, window_s=(n * clock_s, 0.6 + n * clock_s), **more)
        for n, own in enumerate(spans)
    ]


def test_clocks_are_aligned_on_exchanges_that_all_ranks_leave_together() -> None:
    first, second = broadcasting(0.5, host="", groups=(ProcessGroup("0", (0, 1)),))
    later = tuple(step._replace(start_s=step.start_s + 0.5, end_s=step.end_s + 0.5) for step in second.steps)
    job = join([first, replace(second, steps=later)])
    assert job.offset_s == pytest.approx([0.0, 0.5])
    assert [one.rank for one in job.stragglers] == [1]
    assert [one.waited_per_step_s for one in job.stragglers] == pytest.approx([0.02])
    # where nothing else ties the clocks, broadcasts do
    alone = [replace(one, operation=("broadcast",) * 24) for one in job.ranks]
    assert join(alone).offset_s == pytest.approx([0.0, 0.52])


def test_broadcasts_that_the_sender_leaves_early_do_not_make_two_jobs_of_one() -> None:
    job = join(broadcasting(0.0, groups=(ProcessGroup("0", (0, 1)),)))
    assert len(job.exchanges) == 24
    assert [one.rank for one in job.stragglers] == [1]


def test_a_rank_may_have_more_exchanges_in_a_step_than_the_others() -> None:
    # rank 0 and 1 exchange once more, before all four do
    spans: list[list[tuple[float, float]]] = [[] for _ in range(4)]
    for step in range(6):
        begin_s = step * STEP_S + 0.02
        for arrivals in ({0: begin_s, 1: begin_s + 0.005}, {n: begin_s + 0.04 + 0.001 * n for n in range(4)}):
            for number, span in meeting(arrivals).items():
                spans[number].append(span)
    assert members(joined(spans)) == [("0", (0, 1, 2, 3)), ("3", (0, 1))]


@pytest.mark.parametrize("begins", [(0, 1), (1, 0), (0, 3)])
def test_traces_that_begin_at_different_steps_are_matched_in_the_same_steps(begins: tuple[int, int]) -> None:
    meets = [n * STEP_S + 0.02 for n in range(6)]
    late = ([(at, at + 0.023) for at in meets], [(at + 0.02, at + 0.023) for at in meets])
    pair = [
        rank(n, own[first:], first=first, steps=6 - first, world_size=2)
        for n, (own, first) in enumerate(zip(late, begins, strict=True))
    ]
    job = join(pair)
    assert [one.key.step for one in job.exchanges] == list(range(max(begins), 6))
    assert job.offset_s == pytest.approx([0.0, 0.0], abs=1e-12)
    assert [(one.rank, round(one.waited_per_step_s, 6)) for one in job.stragglers] == [(1, 0.02)]
    (note,) = [note for note in incomplete_notes(job) if "different steps" in note]
    assert f"{begins[0]}-5 on rank 0; {begins[1]}-5 on rank 1. Exchanges are matched within the step" in note
    unknown = join([replace(one, host="") for one in pair])
    assert unknown.offset_s == pytest.approx([0.0, 0.0], abs=1e-12), "a step is no difference of clocks"


def test_traces_of_other_steps_are_refused_with_their_steps() -> None:
    spans = [(n * STEP_S + 0.02, n * STEP_S + 0.03) for n in range(6)]
    with pytest.raises(InputFileError, match=r"no step in common; .* rank0.json 0-2, rank1.json 3-5") as error:
        join([rank(0, spans[:3], steps=3), rank(1, spans[3:], first=3, steps=3)])
    assert "Give the traces of one job, of the same steps." in str(error.value)


def test_the_step_is_the_one_in_which_the_host_queued_the_exchange() -> None:
    # the GPU of the second rank is behind: it runs the exchange of a step when the host is in the next one
    starts = [n * STEP_S + 0.09 for n in range(5)]
    behind = [at + 0.02 for at in starts]
    ends = [at + 0.03 for at in starts]
    queued = np.array(starts) - 0.05
    job = join([
        rank(0, list(zip(starts, ends, strict=True)), queued_s=queued),
        rank(1, list(zip(behind, ends, strict=True)), queued_s=queued),
    ])  # fmt: skip
    assert [one.key.step for one in job.exchanges] == [0, 1, 2, 3, 4]
    assert [one.skew_s for one in job.exchanges] == pytest.approx([0.02] * 5)


def test_without_steps_exchanges_count_in_the_whole_trace() -> None:
    spans = [(n * STEP_S + 0.02, n * STEP_S + 0.03) for n in range(3)]
    whole = (Step("", 0.0, 0.3, 0.05, 0.01, 0.01),)
    job = join([rank(n, spans, steps=3) for n in range(2)])
    without = join([replace(one, steps=whole) for one in job.ranks])
    assert [(one.key.step, one.key.number) for one in job.exchanges] == [(0, 0), (1, 0), (2, 0)]
    assert [(one.key.step, one.key.number) for one in without.exchanges] == [(-1, 0), (-1, 1), (-1, 2)]


def test_a_step_with_an_exchange_less_on_one_rank_is_left_out() -> None:
    spans = [(n * STEP_S + at, n * STEP_S + at + 0.01) for n in range(4) for at in (0.02, 0.05)]
    job = join([rank(0, spans, steps=4), rank(1, [*spans[:2], *spans[3:]], steps=4)])
    assert [one.key.step for one in job.exchanges] == [0, 0, 2, 2, 3, 3]
    assert any("3 of 15 exchanges of the ranks are not matched" in note for note in incomplete_notes(job))


def test_the_message_of_an_all_gather_on_gloo_is_what_all_ranks_send() -> None:
    spans = [(n * STEP_S + 0.02, n * STEP_S + 0.03) for n in range(3)]
    gathers = [rank(n, spans, operation=("all_gather",) * 3, groups=(WORLD,)) for n in range(2)]
    (kind,) = exchange_kinds(join(gathers))
    assert (kind.group, kind.bytes) == ("0", 4e6), "two of four ranks are given, and four send"
    assert kind.algorithm_bytes_per_s == pytest.approx(4e6 / 0.01)
    # NCCL says how many ranks there are, and what they have together
    (kind,) = exchange_kinds(join([replace(one, ranks=np.full(3, 4)) for one in gathers]))
    assert kind.bytes == 1e6


def test_messages_of_a_pipeline_are_not_matched_and_the_ranks_are_reported() -> None:
    spans = [(0.02, 0.03), (0.05, 0.06), (0.07, 0.08)]
    first, middle = (rank(n, spans[: n + 1], operation=("send_recv",) * (n + 1), steps=1) for n in range(2))
    job = join([first, middle])
    assert (job.exchanges, job.stragglers) == ((), ())
    assert job.waits_s.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert job.report().decision == "No rank is called late: the traces do not say which exchanges belong together."
    assert any("3 of 3 exchanges of the ranks are messages between two ranks" in note for note in job.report().notes)


def stages(
    count: int, *, told: bool = True, steps: int = 4, ring: bool = False, late_s: float = 0.0
) -> list[RankSummary]:
    """Return ranks of which each sends to the next one, and, unless they are a ring, gets as much back.

    PyTorch counts the messages of a rank: the numbers of different ranks do not correspond. The last rank is late.
    """
    links = [(n, (n + 1) % count) for n in range(count if ring else count - 1)]
    links += [] if ring else [(b, a) for a, b in reversed(links)]
    found: list[list[tuple[float, int, int]]] = [[] for _ in range(count)]
    for step in range(steps):
        for place, (sender, receiver) in enumerate(links):
            at_s = step * STEP_S + 0.01 * (place + 1)
            found[sender].append((at_s, -1, receiver))
            found[receiver].append((at_s, sender, -1))
    ranks = []
    for n, own in enumerate(found):
        own_late_s = late_s if n == count - 1 else 0.0
        pairs = {"sender": np.array([one[1] for one in own]), "receiver": np.array([one[2] for one in own])}
        ranks.append(rank(
            n, [(at_s + own_late_s, at_s + late_s + 0.004) for at_s, _, _ in own], steps=steps, groups=(WORLD,),
            group=("0",) * len(own), operation=("send_recv",) * len(own), sequence=np.arange(len(own)),
            ranks=np.full(len(own), 4), **(pairs if told else {}),
        ))  # fmt: skip
    return ranks


def test_messages_are_matched_by_the_ranks_that_they_go_between() -> None:
    job = join(stages(4))
    assert len(job.exchanges) == 6 * 4
    assert {one.key.pair for one in job.exchanges} == {(0, 1), (1, 2), (2, 3), (3, 2), (2, 1), (1, 0)}
    assert all(set(one.ranks.tolist()) == set(one.key.pair or ()) for one in job.exchanges)
    assert [one.skew_s for one in job.exchanges] == pytest.approx([0.0] * 24), "no message is taken for another one"
    assert (job.unnamed, job.stragglers) == ("", ())


def test_a_late_rank_of_a_ring_is_named() -> None:
    job = join(stages(4, ring=True, late_s=0.01))
    assert job.unnamed == ""
    assert [one.rank for one in job.stragglers] == [3]


def test_numbers_of_messages_do_not_match_them_where_the_other_rank_is_not_known() -> None:
    ranks = stages(4, told=False)
    meets = [n * STEP_S + 0.09 for n in range(4)]
    alone = join(ranks)
    assert (alone.exchanges, alone.stragglers) == ((), ())
    # one exchange a step that is matched, to which rank 3 comes late, does not tell who is late among the messages
    together = [
        replace(
            one,
            operation=(*one.operation, *("all_reduce",) * 4), group=(*one.group, *("0",) * 4),
            sequence=np.append(one.sequence, np.arange(4)), bytes=np.append(one.bytes, np.full(4, 8.0)),
            ranks=np.append(one.ranks, np.full(4, 4)),
            start_s=np.append(one.start_s, [at + (0.005 if number == 3 else 0.0) for at in meets]),
            end_s=np.append(one.end_s, [at + 0.006 for at in meets]),
        )
        for number, one in enumerate(ranks)
    ]  # fmt: skip
    job = join(together)
    assert {one.key.operation for one in job.exchanges} == {"all_reduce"}
    assert job.stragglers == ()
    assert (
        "48 of 64 exchanges are messages between two ranks of which the traces do not say the other one" in job.unnamed
    )


def test_messages_that_one_trace_has_without_the_other_rank_are_not_missed_in_it() -> None:
    (told, _), (_, untold) = stages(2), stages(2, told=False)
    job = join([told, untold])
    assert job.exchanges == ()
    (note,) = [note for note in incomplete_notes(job) if "exchanges of the ranks" in note]
    assert "8 of 16 exchanges of the ranks are messages between two ranks" in note


def test_a_rank_that_sends_a_small_message_may_leave_before_the_other_comes() -> None:
    first, second = stages(2)
    early = replace(first, end_s=np.where(first.receiver >= 0, first.start_s + 1e-4, first.end_s))
    assert len(join([early, replace(second, start_s=second.start_s + 0.02, end_s=second.end_s + 0.02)]).exchanges) == 8


def test_groups_of_one_name_are_different_where_their_ranks_are() -> None:
    # NCCL names the group and counts in it; groups that were split off have the same name
    spans = [(0.02, 0.03)]
    named = {"group": ("tp",), "sequence": np.array([7]), "ranks": np.array([2])}
    ranks = [rank(n, spans, groups=(ProcessGroup("tp", ROWS[n // 2].ranks),), **named) for n in range(4)]
    assert members(join(ranks)) == [("tp of ranks 0-1", (0, 1)), ("tp of ranks 2-3", (2, 3))]


def test_exchanges_with_one_sequence_number_are_matched_one_by_one() -> None:
    # PyTorch numbers collectives that it puts together as one; NCCL may run them in several kernels
    spans = [(n * STEP_S + at, n * STEP_S + at + 0.01) for n in range(4) for at in (0.02, 0.03, 0.04)]
    numbers = np.repeat(np.arange(4), 3)
    named = {"group": ("0",) * 12, "sequence": numbers, "ranks": np.full(12, 2), "world_size": 2}
    first, second = (rank(n, spans, steps=4, **named) for n in range(2))
    late = replace(second, start_s=second.start_s + np.tile([0.005, 0.0, 0.0], 4))
    job = join([first, late])
    assert [one.ranks.tolist() for one in job.exchanges] == [[0, 1]] * 12
    assert [one.skew_s for one in job.exchanges] == pytest.approx([0.005, 0.0, 0.0] * 4)
    assert [one.rank for one in job.stragglers] == [1]
    # a kernel that one rank has alone is no exchange with itself
    alone = join([first, replace(second, sequence=np.where(numbers == 2, 9, numbers))])
    assert [one.key.number for one in alone.exchanges] == [0] * 3 + [1] * 3 + [3] * 3


def experts(numbers: Sequence[int], *, number_them: bool) -> list[RankSummary]:
    """Return ranks that hand tokens to experts, each another number of bytes, three times in each of four steps."""
    spans = [(n * STEP_S + at, n * STEP_S + at + 0.005) for n in range(4) for at in (0.02, 0.04, 0.06)]
    sequence = np.arange(12) if number_them else np.full(12, -1)
    return [
        rank(n, spans, steps=4, operation=("alltoall",) * 12, groups=(WORLD,), sequence=sequence, group=("0",) * 12,
             bytes=1e6 + 1e4 * np.arange(12) + 1e5 * n)
        for n in numbers
    ]  # fmt: skip


@pytest.mark.parametrize("number_them", [True, False])
def test_exchanges_in_which_each_rank_has_another_message_are_matched(number_them: bool) -> None:
    job = join(experts(range(4), number_them=number_them))
    assert [one.ranks.tolist() for one in job.exchanges] == [[0, 1, 2, 3]] * 12
    (kind,) = exchange_kinds(job)
    assert kind.calls == 12
    assert kind.bytes == pytest.approx(1e6 + 5.5e4 + 3e5), "the median of what the rank with most has"
    assert incomplete_notes(job) == ()


def test_where_one_rank_has_exchanges_alone_they_are_counted_and_nobody_is_named() -> None:
    first, second = experts(range(2), number_them=True)
    late = replace(second, start_s=second.start_s + 0.004, world_size=2)
    assert [one.rank for one in join([replace(first, world_size=2), late]).stragglers] == [1]
    # every second exchange of one rank is called something else, so that the others wait for nobody there
    other = tuple("barrier" if n % 2 else "alltoall" for n in range(12))
    job = join([replace(first, world_size=2), replace(late, operation=other)])
    assert job.stragglers == ()
    assert job.unnamed == "No rank is called late: 10 of 24 exchanges are in the trace of one rank only."
    assert any("10 of 24 exchanges of the ranks are not matched" in note for note in incomplete_notes(job))


def test_exchanges_before_and_after_the_trace_of_another_rank_are_not_missed() -> None:
    first, second = experts(range(2), number_them=True)
    columns = ("group", "sequence", "bytes", "ranks", "start_s", "end_s", "operation")
    shorter = replace(second, **{name: getattr(second, name)[3:] for name in columns})
    job = join([first, shorter])
    assert len(job.exchanges) == 9
    assert not any("not matched" in note for note in incomplete_notes(job))


def test_exchanges_after_a_shorter_trace_without_steps_keep_no_late_rank_from_its_name() -> None:
    # 40 all-reduces and 2 all-gathers, and then 5 all-gathers more in the trace of the second rank
    operations = (*((*("all_reduce",) * 20, "all_gather") * 2), *("all_gather",) * 5)
    late_s, every = 0.06, range(len(operations))

    def of(number: int, count: int) -> RankSummary:
        spans = [(n * STEP_S + late_s * number, n * STEP_S + late_s + 0.001) for n in every]
        own = rank(number, spans[:count], steps=count, world_size=2, operation=operations[:count])
        return replace(own, steps=(Step("", 0.0, count * STEP_S, 0.05, 0.01, 0.01),))

    job = join([of(0, 42), of(1, 47)])
    assert job.unnamed == ""
    assert [one.rank for one in job.stragglers] == [1]
    assert not any("not matched" in note for note in incomplete_notes(job))
    # those in the middle of the other trace are missed there
    operations = (*("all_reduce",) * 20, *("all_gather",) * 6, *("all_reduce",) * 20, "all_gather")
    without = replace(of(0, 42), operation=(*operations[:21], *operations[26:]))
    assert any("4 of 89 exchanges of the ranks" in note for note in incomplete_notes(join([without, of(1, 47)])))


def named(*names: str) -> list[RankSummary]:
    """Return ranks without numbers, in files of some names, each with times of its own."""
    spans = [(n * STEP_S + 0.02, n * STEP_S + 0.03) for n in range(3)]
    return [
        rank(0, [(start + 1e-5 * place, end) for start, end in spans], steps=3, source=f"/job/{name}")
        for place, name in enumerate(names)
    ]


def unnumbered(*names: str) -> Job:
    return join([replace(one, rank=None, world_size=None) for one in named(*names)])


def test_ranks_without_a_number_have_the_one_in_the_name_of_their_file() -> None:
    job = unnumbered("rank1.json.gz", "rank10.json.gz", "rank2.json.gz")
    assert job.numbers == (1, 2, 10)
    assert [one.source for one in job.ranks] == ["/job/rank1.json.gz", "/job/rank2.json.gz", "/job/rank10.json.gz"]
    (note,) = incomplete_notes(job)
    assert "numbers are assumed, those in the names of the files: rank 1 is rank1.json.gz, 2 is rank2.json.gz" in note


def test_ranks_of_files_without_a_number_are_numbered_in_the_natural_order_of_the_names() -> None:
    job = unnumbered("host10.json", "host9.json")
    assert [one.source for one in job.ranks] == ["/job/host9.json", "/job/host10.json"]
    assert job.numbers == (0, 1)
    assert "by the order of the names of the files: rank 0 is host9.json, 1 is host10.json" in incomplete_notes(job)[0]


def test_numbers_of_names_do_not_replace_those_of_traces() -> None:
    first, second = named("rank0.json", "rank1.json")
    job = join([replace(first, rank=1), replace(second, rank=None)])
    assert job.numbers == (0, 1), "the name says 1, which the other trace is"


def test_a_copy_of_a_rank_under_another_name_is_noted() -> None:
    first, _ = named("rank0.json", "rank1.json")
    copy = replace(first, source="/job/rank5.json")
    job = join([replace(one, rank=None) for one in (first, copy)])
    assert any("rank0.json = rank5.json" in note for note in incomplete_notes(job))

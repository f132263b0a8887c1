"""Simulated jobs (`simulated`), of which it is known what a rank costs: clocks, who is late, and by how much."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import pytest

from perfmodel.diagnosis.diagnose import wall_time
from perfmodel.diagnosis.ranks.job import Job, join
from perfmodel.diagnosis.ranks.pace import lateness, without_waits
from perfmodel.diagnosis.ranks.summary import summarise
from perfmodel.errors import InputFileError
from perfmodel.profile.profile import Profile

from .simulated import Compute, Exchange, Program, Sleep, simulate, step_s

MESH = {"tp0": (0, 1), "tp1": (2, 3), "dp0": (0, 2), "dp1": (1, 3)}


def joined(profiles: list[Profile]) -> Job:
    return join([summarise(profile) for profile in profiles])


def mesh(sleep_s: float = 0.0, layers: int = 6, data: int = 1) -> Program:
    """Return a mesh of 2x2 with an exchange a layer along its rows, and few along its columns; rank 3 sleeps."""

    def program(rank: int, step: int) -> Iterator[Sleep | Compute | Exchange]:
        yield Sleep(sleep_s if rank == 3 else 0.0)
        for _ in range(layers):
            yield Compute(0.4e-3)
            yield Exchange(f"tp{rank // 2}", 0.09e-3)
        for _ in range(data):
            yield Exchange(f"dp{rank % 2}", 0.6e-3)

    return program


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("clocks_s", [(0.0, 5.0, -3.0, 0.001), (0.0, 2e-3, -1.5e-3, 0.8e-3)])
def test_few_exchanges_tie_clocks_that_many_others_leave_apart(marked: bool, clocks_s: tuple[float, ...]) -> None:
    job = joined(simulate(mesh(1e-3), MESH, clocks_s=clocks_s, marked=marked))
    assert job.offset_s == pytest.approx(clocks_s, abs=1e-6)
    assert {one.rank for one in job.stragglers} <= {3}


def test_rows_that_leave_together_do_not_hide_columns_that_leave_apart() -> None:
    # one host has one clock: the second row is of a run four seconds later
    profiles = simulate(mesh(), MESH, clocks_s=(0.0, 0.0, 4.0, 4.0), host="host")
    with pytest.raises(InputFileError, match="of another job, or of other steps"):
        joined(profiles)


WORLD = {"world": (0, 1, 2, 3)}
CHAIN = {"p01": (0, 1), "p12": (1, 2), "p23": (2, 3)}
Pieces = Iterator[Sleep | Compute | Exchange]


def buckets(rank: int, step: int, *, factor: float = 1.0, sleep_s: float = 0.0, pause_s: float = 0.0) -> Pieces:
    """Yield a step whose gradients are reduced in five buckets beside the backward pass, but for the last one."""
    yield Sleep(sleep_s)
    for _ in range(10):
        yield Compute(0.3e-3 * factor)
    for piece in range(10):
        yield Sleep(pause_s)
        yield Compute(0.6e-3 * factor)
        if piece % 2:
            yield Exchange("world", 0.25e-3, hidden=piece < 9)


def overlapped(slow: Collection[int], **how: float) -> Program:
    """Return four ranks of `buckets`, of which some are slow."""
    return lambda rank, step: buckets(rank, step, **(how if rank in slow else {}))


def cost_s(slow: Program, even: Program, groups: dict[str, tuple[int, ...]], steps: int = 6) -> float:
    """Return what a step takes longer than in the same job without what is slow in it [s]."""
    return step_s(simulate(slow, groups, steps)) - step_s(simulate(even, groups, steps))


@pytest.mark.parametrize("ranks", [(2,), (1, 2)])
@pytest.mark.parametrize("how", [{"factor": 1.2}, {"factor": 2.0}, {"sleep_s": 3e-3}])
def test_waits_that_computation_covers_cost_nothing(ranks: tuple[int, ...], how: dict[str, float]) -> None:
    slow = overlapped(ranks, **how)
    true_s = cost_s(slow, overlapped(()), WORLD)
    job = joined(simulate(slow, WORLD))
    assert job.together is not None
    assert set(job.together.ranks) == set(ranks)
    assert job.together.waited_per_step_s == pytest.approx(true_s, rel=0.01)
    assert job.stragglers[0].computes == ("factor" in how)
    # the figure of the sentence is that of the table
    typical_s = [float(np.median(job.step_waits_s[:, 0, rank])) for rank in ranks]
    assert max(typical_s) == pytest.approx(true_s, rel=0.01)


def test_a_host_that_launches_slowly_beside_its_exchanges_is_late() -> None:
    slow = overlapped([2], pause_s=0.9e-3)
    true_s = cost_s(slow, overlapped(()), WORLD)
    (straggler,) = joined(simulate(slow, WORLD)).stragglers
    assert straggler.rank == 2
    assert not straggler.computes
    # an exchange that ends in a pause of the host seems to be what the rank waits for
    assert true_s - 0.25e-3 <= straggler.waited_per_step_s <= true_s * 1.01


@pytest.mark.parametrize(
    ("ranks", "how", "share"),
    # what ranks compute longer is handed to all; a pause of the host goes, until the next rank sets the pace
    [((2,), {"factor": 1.2}, 0.75), ((1, 2), {"factor": 1.2}, 0.5), ((2,), {"sleep_s": 3e-3}, 1.0),
     ((1, 2), {"sleep_s": 3e-3}, 1.0)],
)  # fmt: skip
def test_to_even_out_a_rank_saves_what_it_costs(ranks: tuple[int, ...], how: dict[str, float], share: float) -> None:
    slow = overlapped(ranks, **how)
    saved_s = 6 * share * cost_s(slow, overlapped(()), WORLD)
    profiles = simulate(slow, WORLD)
    job = joined(profiles)
    wall, candidate = lateness(job, wall_time(profiles[job.pace]))
    assert candidate is not None
    times = {entry.name: entry.time_s for entry in wall.entries}
    assert sum(times[name] for name in candidate.targets) - candidate.new_time_s == pytest.approx(saved_s, rel=0.02)


@pytest.mark.parametrize("how", [{"factor": 1.2}, {"factor": 2.0}, {"sleep_s": 3e-3}])
def test_a_rank_without_its_waits_takes_as_long_as_in_an_even_job(how: dict[str, float]) -> None:
    profiles = simulate(overlapped([2], **how), WORLD)
    job = joined(profiles)
    (low_s, high_s), (even_low_s, even_high_s) = (
        one.timeline.window_s
        for one in (without_waits(profiles[0], *job.waits_of(0)), simulate(overlapped(()), WORLD)[0])
    )
    # its last bucket is sent when the last gradient is computed, whenever it has the stream for itself
    assert high_s - low_s == pytest.approx(even_high_s - even_low_s, rel=1e-3)


def test_ranks_that_hide_their_exchanges_evenly_have_no_straggler() -> None:
    assert joined(simulate(overlapped(()), WORLD)).stragglers == ()


@pytest.mark.parametrize("host", ["", "host"])
def test_a_rank_that_is_late_for_another_one_is_not_named(host: str) -> None:
    """A pipeline: the third stage computes longer, and the second waits for it before it meets the first."""

    def program(slow: float) -> Program:
        def stage(rank: int, step: int) -> Pieces:
            pairs = [name for name, members in CHAIN.items() if rank in members]
            for _ in range(4):
                for name in reversed(pairs):
                    yield Compute(0.5e-3 * (slow if rank == 2 else 1.0))
                    yield Exchange(name, 0.06e-3)
                if len(pairs) == 1:
                    yield Compute(0.5e-3)

        return stage

    assert joined(simulate(program(1.0), CHAIN, host=host)).stragglers == (), "even stages wait for each other, too"
    job = joined(simulate(program(1.3), CHAIN, host=host))
    assert [one.rank for one in job.stragglers] == [2]
    assert job.stragglers[0].waited_per_step_s == pytest.approx(cost_s(program(1.3), program(1.0), CHAIN), rel=0.1)


@pytest.mark.parametrize("every", [1, 4])
def test_a_rank_of_a_mesh_costs_what_it_sleeps_however_seldom_the_columns_meet(every: int) -> None:
    def program(rank: int, step: int) -> Pieces:
        yield from mesh(1e-3, data=(step + 1) % every == 0)(rank, step)

    job = joined(simulate(program, MESH, steps=16))
    assert [(one.rank, one.waited_per_step_s) for one in job.stragglers] == [(3, pytest.approx(1e-3, rel=0.01))]


def test_a_host_that_sleeps_while_its_own_exchange_runs_is_late() -> None:
    def program(sleep_s: float) -> Program:
        def ddp(rank: int, step: int) -> Pieces:
            yield Compute(1e-3)
            yield Exchange("world", 4e-3, hidden=True)
            yield Compute(1e-3)
            yield Sleep(sleep_s if rank == 1 else 0.0)
            yield Compute(2e-3)
            yield Compute(4e-3)
            yield Exchange("world", 0.2e-3)

        return ddp

    job = joined(simulate(program(3e-3), WORLD))
    (straggler,) = job.stragglers
    true_s = cost_s(program(3e-3), program(0.0), WORLD)
    assert (straggler.rank, straggler.waited_per_step_s) == (1, pytest.approx(true_s, rel=0.02))


def test_a_rank_that_works_while_others_exchange_without_it_is_not_late() -> None:
    groups = {"world": (0, 1, 2, 3), "rest": (1, 2, 3)}

    def program(rank: int, step: int) -> Pieces:
        yield Compute(2e-3)
        yield Compute(1e-3) if rank == 0 else Exchange("rest", 1e-3)
        yield Exchange("world", 0.2e-3)

    assert joined(simulate(program, groups)).stragglers == ()

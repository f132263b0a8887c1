"""Simulated jobs (`simulated`), of which it is known what a rank costs: clocks, who is late, and by how much."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perfmodel.diagnosis.ranks.job import Job, join
from perfmodel.diagnosis.ranks.summary import summarise
from perfmodel.errors import InputFileError
from perfmodel.profile.profile import Profile

from .simulated import Compute, Exchange, Program, Sleep, simulate

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

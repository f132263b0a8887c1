"""What a trace says about its process: rank, size of the job, process groups, host."""

from __future__ import annotations

import pytest

from perfmodel.formats.torch_trace.events import Header
from perfmodel.formats.torch_trace.job import place_in_job
from perfmodel.profile.profile import ProcessGroup


def groups(*listed: object, world: int = 4) -> tuple[ProcessGroup, ...]:
    return place_in_job(Header(distributedInfo={"world_size": world, "pg_config": list(listed)})).groups


def test_the_groups_of_a_process_are_read() -> None:
    own = {"pg_name": "3", "pg_desc": "mesh_tp", "backend_config": "cpu:gloo", "pg_size": 2, "ranks": [1, 0]}
    everyone = {"pg_name": "0", "pg_size": 4, "ranks": []}
    assert groups(everyone, own) == (ProcessGroup("0", (0, 1, 2, 3)), ProcessGroup("3", (0, 1)))


@pytest.mark.parametrize(
    "listed",
    [None, 7, {}, {"pg_name": 3, "ranks": [0, 1]}, {"pg_name": "1", "ranks": "0, 1"},
     {"pg_name": "1", "ranks": [0, -1]}, {"pg_name": "1", "ranks": [0, True]}, {"pg_name": "1", "ranks": [0, "1"]},
     {"pg_name": "1", "pg_size": 2, "ranks": []}],
)  # fmt: skip
def test_what_is_no_group_is_left_out(listed: object) -> None:
    assert groups(listed) == ()


def test_a_job_of_impossible_size_takes_no_memory() -> None:
    assert groups({"pg_name": "0", "pg_size": 10**12, "ranks": []}, world=10**12) == ()


@pytest.mark.parametrize(("rank", "known"), [(0, 0), (1, 1), (2, None), (5, None), (-1, None), (True, None)])
def test_a_rank_that_a_job_of_two_does_not_have_is_unknown(rank: object, known: int | None) -> None:
    assert place_in_job(Header(distributedInfo={"world_size": 2, "rank": rank})).rank == known


def test_a_name_that_no_host_has_for_itself_is_no_name() -> None:
    assert [place_in_job(Header(host_name=name)).host for name in ("node7", "localhost", None, 7)] == [
        "node7",
        "",
        "",
        "",
    ]


@pytest.mark.parametrize(
    "info",
    [None, [], "gloo", {"pg_config": "none"}, {"rank": -1, "world_size": 0}, {"rank": 2**40, "world_size": 2**31}],
)
def test_a_damaged_header_says_nothing(info: object) -> None:
    assert place_in_job(Header(distributedInfo=info)) == (None, None, (), "")

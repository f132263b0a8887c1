"""What a trace says about the process that wrote it: its rank, the size of its job, its process groups and its host.

PyTorch writes the groups that a process belongs to as a list:

    "distributedInfo": {"rank": 0, "world_size": 4, "pg_config": [
        {"pg_name": "0", "pg_size": 4, "ranks": [0, 1, 2, 3]}, {"pg_name": "3", "pg_size": 2, "ranks": [0, 1]}]}

Some releases write an empty list for the ranks of a group of all processes. Anything of another form is left out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from perfmodel.formats.torch_trace.events import Header
from perfmodel.profile.profile import ProcessGroup

#: names that hosts give themselves where nobody named them: they do not tell two hosts apart
_NAMELESS = ("localhost", "localhost.localdomain")
#: jobs with more processes than this are damage
_LARGEST_JOB = 2**20


class Place(NamedTuple):
    """A process in its job; None, or nothing, where the trace does not say."""

    rank: int | None
    world_size: int | None
    groups: tuple[ProcessGroup, ...]
    host: str


def place_in_job(header: Header) -> Place:
    """Return what the header of a trace says about its process.

    >>> place_in_job(Header(distributedInfo={"rank": 1, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": []}]}))
    Place(rank=1, world_size=2, groups=(ProcessGroup(name='0', ranks=(0, 1)),), host='')
    """
    info = header.distributedInfo if isinstance(header.distributedInfo, dict) else {}
    world, listed = _number(info.get("world_size"), 1), info.get("pg_config")
    rank = _number(info.get("rank"), 0)
    groups = [_group(one, world or 0) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    host = header.host_name if isinstance(header.host_name, str) else ""
    return Place(
        None if world and rank is not None and rank >= world else rank,  # damage: nothing has such a number
        world,
        tuple(group for group in groups if group.name and group.ranks),
        "" if host in _NAMELESS else host,
    )


def _group(listed: dict[str, Any], world: int) -> ProcessGroup:
    """Return a group of the list, without name or ranks where these are of another form."""
    name, ranks = listed.get("pg_name"), listed.get("ranks")
    numbers: list[int | None] = [_number(rank, 0) for rank in ranks] if isinstance(ranks, list) else [None]
    if not numbers and listed.get("pg_size", world) == world:
        numbers = list(range(world))
    known = tuple(sorted({number for number in numbers if number is not None}))
    return ProcessGroup(name if isinstance(name, str) else "", known if None not in numbers else ())


def _number(value: object, least: int) -> int | None:
    """Return a number of processes, or of one of them; None where it is damage."""
    number = value if isinstance(value, int) and not isinstance(value, bool) else -1
    return number if least <= number <= _LARGEST_JOB else None

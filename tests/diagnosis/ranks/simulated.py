"""A small simulator of a job's ranks: programs of sleeps, computations and exchanges in, profiles with time lines out.

Each rank has a host that launches, a compute stream, and a stream for each process group. An exchange begins when its
host has launched it, its stream is free and what was computed before it has ended; it ends everywhere when it has taken
its time after the last rank came. At the end of a step the host waits for its GPU. So the time that a rank costs is
known: that of the same job without what makes it slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from perfmodel.core.vocabulary import EventKind
from perfmodel.profile.profile import ProcessGroup, Profile, ProfileEntry
from perfmodel.profile.timeline import STEP_NAME, ApiCalls, CallKind, Exchanges, GpuEvents, HostRanges, Timeline

#: what the host takes to launch a piece of work, and between two steps [s]
LAUNCH_S, BETWEEN_S = 6e-6, 0.2e-3
#: the clock of the first rank when the job begins [s]
_BEGIN_S = 1000.0


class Sleep(NamedTuple):
    """The host does nothing."""

    time_s: float


class Compute(NamedTuple):
    """A kernel."""

    time_s: float


class Exchange(NamedTuple):
    """An all-reduce; the kernels after it wait for it unless it is ``hidden``, and those of the next step always do."""

    group: str
    time_s: float
    hidden: bool = False
    bytes: float = 1e6


#: what a rank does in a step
Program = Callable[[int, int], Iterable[Sleep | Compute | Exchange]]


class _Rank:
    """The state of one rank: when its host and its streams are free [s], and what it ran."""

    def __init__(self) -> None:
        self.host_s = self.compute_s = 0.0
        self.streams: dict[str, float] = {}
        self.todo: list[Sleep | Compute | Exchange] = []
        self.steps: list[tuple[float, float]] = []
        self.syncs: list[tuple[float, float]] = []
        #: launch, start and end [s], the exchange or None, and its number in its group
        self.ran: list[tuple[float, float, float, Exchange | None, int]] = []

    def to_exchange(self) -> Exchange | None:
        """Run up to the next exchange, and launch that."""
        while self.todo:
            piece = self.todo.pop(0)
            if isinstance(piece, Sleep):
                self.host_s += piece.time_s
                continue
            self.host_s += LAUNCH_S
            if isinstance(piece, Exchange):
                return piece
            start_s = max(self.compute_s, self.host_s)
            self.compute_s = start_s + piece.time_s
            self.ran.append((self.host_s - LAUNCH_S, start_s, self.compute_s, None, -1))
        return None


def simulate(
    program: Program, groups: Mapping[str, Sequence[int]], steps: int = 6, *, clocks_s: Sequence[float] = (),
    marked: bool = True, host: str = "",
) -> list[Profile]:  # fmt: skip
    """Return the profiles of the ranks of a job.

    Parameters
    ----------
    program : what a rank does in a step.
    groups : name -> ranks.
    steps : how many there are.
    clocks_s : of each rank, ahead of that of the first one [s].
    marked : whether the traces have the profiler's steps.
    host : name of the host of all ranks; empty where the traces do not have it.
    """
    ranks = [_Rank() for _ in range(1 + max(number for members in groups.values() for number in members))]
    counts = dict.fromkeys(groups, 0)
    for step in range(steps):
        began_s = [rank.host_s for rank in ranks]
        for number, rank in enumerate(ranks):
            rank.todo = list(program(number, step))
        _run(ranks, groups, counts)
        for rank, begin_s in zip(ranks, began_s, strict=True):
            done_s = max([rank.compute_s, rank.host_s, *rank.streams.values()]) + 1e-6
            rank.syncs.append((rank.host_s, done_s))
            rank.steps.append((begin_s, done_s))
            rank.host_s = done_s + BETWEEN_S
            rank.compute_s = max(rank.compute_s, *rank.streams.values())
    clocks = [*clocks_s] or [0.0] * len(ranks)
    return [
        _profile(rank, number, len(ranks), groups, clocks[number], marked=marked, host=host)
        for number, rank in enumerate(ranks)
    ]


def step_s(profiles: Sequence[Profile]) -> float:
    """Return how long a step of the job takes, from one to the next [s]."""
    starts_s = profiles[0].timeline.annotations.start_s
    return float(np.median(np.diff(starts_s)))


def _run(ranks: Sequence[_Rank], groups: Mapping[str, Sequence[int]], counts: dict[str, int]) -> None:
    """Run a step: each exchange as soon as all ranks of its group are there."""
    pending: dict[int, Exchange | None] = {number: rank.to_exchange() for number, rank in enumerate(ranks)}
    while any(pending.values()):
        name = next(
            name for name, members in groups.items() if all((pending[n] or _NONE).group == name for n in members)
        )
        members, counts[name] = groups[name], counts[name] + 1
        starts_s = [max(ranks[n].compute_s, ranks[n].host_s, ranks[n].streams.get(name, 0.0)) for n in members]
        for number, start_s in zip(members, starts_s, strict=True):
            rank, exchange = ranks[number], pending[number]
            end_s = max(starts_s) + exchange.time_s
            rank.ran.append((rank.host_s - LAUNCH_S, start_s, end_s, exchange, counts[name]))
            rank.streams[name] = end_s
            if not exchange.hidden:
                rank.compute_s = end_s
            pending[number] = rank.to_exchange()


_NONE = Exchange("", 0.0)


def _profile(
    rank: _Rank,
    number: int,
    world: int,
    groups: Mapping[str, Sequence[int]],
    clock_s: float,
    *,
    marked: bool,
    host: str,
) -> Profile:
    names = ("gemm", "nccl", "all_reduce", "cudaLaunchKernel", "cudaDeviceSynchronize", *groups)
    names = (*names, *(f"{STEP_NAME}{step}" for step in range(len(rank.steps))))
    ran = sorted(rank.ran, key=lambda one: one[1])
    launch_s, start_s, end_s = (np.array([one[column] for one in ran]) for column in range(3))
    moves = np.array([one[3] is not None for one in ran])
    stream = np.array([7 if one[3] is None else 20 + [*groups].index(one[3].group) for one in ran])
    called = np.sort(np.concatenate((launch_s, [one[0] for one in rank.syncs])))
    syncs = np.isin(called, [one[0] for one in rank.syncs])
    calls_s = np.full(called.size, 3e-6)
    calls_s[syncs] = [end - begin for begin, end in rank.syncs]
    same, none = np.zeros(len(ran), dtype=np.int64), np.full(len(ran), -1)
    gpu = GpuEvents(
        start_s, end_s - start_s, moves.astype(np.int64),
        category=np.where(moves, EventKind.COMMUNICATION.code, EventKind.KERNEL.code), stream=stream, device=same,
        launch=np.searchsorted(called, launch_s), op=none, bytes=np.full(len(ran), np.nan), direction=none,
        pinned=none, entry=moves.astype(np.int64),
    )  # fmt: skip
    kind = np.where(syncs, CallKind.SYNC, CallKind.LAUNCH).astype(np.int64)
    thread, no_op = np.zeros(called.size, dtype=np.int64), np.full(called.size, -1)
    api = ApiCalls(called, calls_s, np.where(syncs, 4, 3), thread, kind, no_op)
    exchanged = [one for one in ran if one[3] is not None]
    exchanges = Exchanges(
        start_s[moves], (end_s - start_s)[moves], np.full(len(exchanged), 2),
        group=np.array([names.index(one[3].group) for one in exchanged]),
        sequence=np.array([one[4] for one in exchanged]), bytes=np.array([one[3].bytes for one in exchanged]),
        ranks=np.array([len(groups[one[3].group]) for one in exchanged]),
    )  # fmt: skip
    begin_s, done_s = (np.array([step[side] for step in rank.steps]) for side in range(2))
    count = len(rank.steps) if marked else 0
    steps = HostRanges(begin_s[:count], (done_s - begin_s)[:count], names.index(f"{STEP_NAME}0") + np.arange(count),
                       np.zeros(count, dtype=np.int64), np.full(count, -1))  # fmt: skip
    timeline = Timeline(names, gpu, api, annotations=steps, exchanges=exchanges, origin_s=_BEGIN_S + clock_s,
                        window_s=(float(begin_s[0]), float(done_s[-1])))  # fmt: skip
    entries = (
        ProfileEntry("gemm", float((end_s - start_s)[~moves].sum()), int((~moves).sum()), EventKind.KERNEL),
        ProfileEntry("nccl", float((end_s - start_s)[moves].sum()), int(moves.sum()), EventKind.COMMUNICATION),
    )
    mine = tuple(ProcessGroup(name, tuple(members)) for name, members in groups.items() if number in members)
    return Profile(
        entries, f"rank{number}.json", timeline=timeline, rank=number, world_size=world, groups=mine, host=host
    )

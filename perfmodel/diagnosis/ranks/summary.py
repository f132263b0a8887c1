"""What the trace of one rank says, small enough to send from one process to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.vocabulary import Dimension, EventKind, Limiter
from perfmodel.diagnosis.decompose import decompose, moves_data
from perfmodel.diagnosis.intervals import minus, union
from perfmodel.diagnosis.ranks.host import computing, is_of_host
from perfmodel.diagnosis.ranks.stalls import stalled
from perfmodel.errors import InputFileError
from perfmodel.profile.profile import ProcessGroup, Profile
from perfmodel.profile.timeline import STEP_NAME, Exchanges, Floats, Timeline

#: dimensions of a rank's wall time, in the order in which they are listed
COMPUTE, EXPOSED = "compute", "exposed communication"
DIMENSIONS = (
    COMPUTE,
    EXPOSED,
    str(Dimension.TRANSFER),
    str(Dimension.LAUNCH),
    str(Dimension.SYNC),
    str(Dimension.IDLE),
)


class Step(NamedTuple):
    """One step of a rank: its name, start and end on the job's clock, and what it spent [s].

    ``exposed_s`` is the time of exchanges that no computation covers: communication minus the union of compute.
    """

    name: str
    start_s: float
    end_s: float
    compute_s: float
    communication_s: float
    exposed_s: float

    @property
    def wall_s(self) -> float:
        """Length of the step [s]."""
        return self.end_s - self.start_s


@dataclass(frozen=True)
class RankSummary:
    """One rank of a job.

    Attributes
    ----------
    rank : its number; None where the trace does not say.
    world_size : how many ranks the job has; None where the trace does not say.
    source, device : the file, and the GPU's name.
    gpu : number of the GPU in the file, where the file has several.
    local_gpu : number of the GPU among those of its host, as the trace has it; None where it has several or none.
    queued_s : when the host queued each exchange, on its clock; that of its start where the trace does not say [s].
        Empty where all are as they start.
    groups : the process groups of the rank, where the trace lists them.
    host : name of the rank's host; empty where the trace does not say.
    of_host : whether the rank has no GPU: operators on the CPU compute, and an exchange runs on threads beside them.
    times_s : dimension -> time of the window [s]; they add up to the wall time.
    communication_s, compute_s : union of the exchanges, and of the computation, in the window [s].
    steps : the profiler's steps, on the clock of the rank's host.
    operation, group : names of each exchange's operation and process group.
    sequence, bytes, ranks, sender, receiver : as of `perfmodel.profile.timeline.Exchanges`.
    start_s, end_s : of each exchange, on the clock of the rank's host [s].
    window_s : of the trace, on that clock [s].
    notes : of the reader.
    stalled : when its exchanges keep the rank from computing, on that clock: a union, shape (n, 2) [s]; None where they
        do so from start to end.
    """

    rank: int | None
    world_size: int | None
    source: str
    device: str
    times_s: Mapping[str, float]
    communication_s: float
    compute_s: float
    steps: tuple[Step, ...]
    operation: tuple[str, ...]
    group: tuple[str, ...]
    sequence: NDArray[np.int64]
    bytes: Floats
    ranks: NDArray[np.int64]
    start_s: Floats
    end_s: Floats
    window_s: tuple[float, float]
    notes: tuple[str, ...] = ()
    gpu: int | None = None
    local_gpu: int | None = None
    of_host: bool = False
    queued_s: Floats = field(default_factory=lambda: np.empty(0))
    groups: tuple[ProcessGroup, ...] = ()
    host: str = ""
    stalled: Floats | None = None
    sender: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    receiver: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @property
    def place(self) -> str:
        """The file, with the number of the GPU where the file has several."""
        return self.source if self.gpu is None else f"{self.source} (GPU {self.gpu})"

    @property
    def wall_s(self) -> float:
        """Length of the window [s]."""
        return self.window_s[1] - self.window_s[0]

    @property
    def stalls(self) -> Floats:
        """When its exchanges keep the rank from computing: a union, shape (n, 2) [s]."""
        return union(self.start_s, self.end_s) if self.stalled is None else self.stalled

    @property
    def step_compute_s(self) -> float:
        """How long the rank computes in the median step [s]."""
        return float(np.median([step.compute_s for step in self.steps]))

    @property
    def hidden_share(self) -> float:
        """Share of the communication that computation covers (HTA's overlap: hta/analyzers/communication_analysis.py).

        1 for a rank that never communicates alone, NaN for one that does not communicate.
        """
        if not self.communication_s:
            return float("nan")
        return max(0.0, 1.0 - self.times_s[EXPOSED] / self.communication_s)  # below 0 by rounding only


def summarise(profile: Profile, gpu: int | None = None) -> RankSummary:
    """Return what the trace of a rank says about its exchanges and its time.

    Parameters
    ----------
    profile : of the rank.
    gpu : its number in the file, where the file has several (`perfmodel.diagnosis.ranks.devices`).

    Raises
    ------
    InputFileError
        When the profile has no time line, or no exchange between ranks.
    """
    timeline = profile.timeline
    if timeline is None:
        raise InputFileError(
            "has no time line, so that its ranks cannot be compared.",
            place=profile.source,
            remedy="Give traces of torch.profiler, or exports of nsys (--type sqlite).",
        )
    traced = _exchanges(timeline)
    low, high = timeline.window_s
    exchanges = traced.take((traced.start_s >= low) & (traced.start_s <= high))
    if not len(exchanges):
        raise InputFileError(
            "has no exchange between ranks.", place=profile.source, remedy="Diagnose it alone, or trace more steps."
        )
    # an exchange that begins before the window and lasts into it is communication there, too
    compute, communication = _compute(timeline), union(traced.start_s, traced.end_s)
    origin = timeline.origin_s if np.isfinite(timeline.origin_s) else 0.0
    exposed = _length(minus(_clipped(communication, low, high), compute))
    return RankSummary(
        rank=profile.rank,
        world_size=profile.world_size,
        source=profile.source,
        device=profile.device,
        times_s=_times(timeline, compute, exposed),
        communication_s=_length(_clipped(communication, low, high)),
        compute_s=_length(_clipped(compute, low, high)),
        steps=tuple(_steps(timeline, compute, communication, origin)),
        operation=tuple(timeline.names[name] for name in exchanges.name),
        group=tuple(timeline.names[group] if group >= 0 else "" for group in exchanges.group),
        sequence=exchanges.sequence,
        bytes=exchanges.bytes,
        ranks=exchanges.ranks,
        sender=exchanges.sender,
        receiver=exchanges.receiver,
        start_s=exchanges.start_s + origin,
        end_s=exchanges.end_s + origin,
        window_s=(low + origin, high + origin),
        notes=profile.notes,
        gpu=gpu,
        local_gpu=_local_gpu(timeline),
        of_host=is_of_host(profile),
        queued_s=_queued_s(timeline, exchanges) + origin,
        groups=profile.groups,
        host=profile.host,
        stalled=stalled(traced.start_s, traced.end_s, compute) + origin,
    )


def _exchanges(timeline: Timeline) -> Exchanges:
    """Return the exchanges that the reader found, or the GPU's communication where it does not tell them apart."""
    if len(timeline.exchanges):
        return timeline.exchanges
    gpu = timeline.gpu
    chosen = gpu.are(EventKind.COMMUNICATION)
    count = int(chosen.sum())
    unknown = np.full(count, -1, dtype=np.int64)
    return Exchanges(
        gpu.start_s[chosen],
        gpu.duration_s[chosen],
        gpu.name[chosen],
        group=unknown,
        sequence=unknown,
        bytes=np.full(count, np.nan),
        ranks=np.zeros(count, dtype=np.int64),
    )


def _local_gpu(timeline: Timeline) -> int | None:
    numbers = np.unique(timeline.gpu.device[timeline.gpu.are(EventKind.COMMUNICATION)])
    return int(numbers[0]) if numbers.size == 1 and numbers[0] >= 0 else None


def _queued_s(timeline: Timeline, exchanges: Exchanges) -> Floats:
    """Return when the host launched each exchange on its GPU; the start of one without a launch in the trace [s]."""
    gpu = timeline.gpu
    kernels = np.flatnonzero(gpu.are(EventKind.COMMUNICATION))
    if not kernels.size or not gpu.launch.size:
        return exchanges.start_s
    begin_s = gpu.start_s[kernels]
    nearest = np.clip(np.searchsorted(begin_s, exchanges.start_s), 0, kernels.size - 1)
    launch = np.where(begin_s[nearest] == exchanges.start_s, gpu.launch[kernels[nearest]], -1)
    return np.where(launch >= 0, np.append(timeline.api.start_s, 0.0)[launch], exchanges.start_s)


def _compute(timeline: Timeline) -> Floats:
    """Return the times in which a rank computes: kernels on its GPU, or operators of a rank without one."""
    gpu = timeline.gpu
    if not timeline.overlaps_window().any():
        return computing(timeline)
    works = ~gpu.are(EventKind.COMMUNICATION) & ~moves_data(timeline)
    return union(gpu.start_s[works], gpu.end_s[works])


def _times(timeline: Timeline, compute: Floats, exposed_s: float) -> dict[str, float]:
    """Return the time of each dimension; without a GPU the rest of the wall time is idle."""
    low, high = timeline.window_s
    if not timeline.overlaps_window().any():
        computed = _length(_clipped(compute, low, high))
        return {**dict.fromkeys(DIMENSIONS, 0.0), COMPUTE: computed, EXPOSED: exposed_s,
                str(Dimension.IDLE): max(0.0, high - low - computed - exposed_s)}  # fmt: skip
    parts = decompose(timeline, np.full(len(timeline.gpu), str(Limiter.UNKNOWN)))
    gpu = timeline.gpu
    devices = len(parts.devices)
    exchanged = float(parts.share_s[gpu.are(EventKind.COMMUNICATION)].sum()) / devices
    copied = float(parts.share_s[moves_data(timeline)].sum()) / devices
    gaps = {str(name): parts.time_s[name] for name in (Dimension.LAUNCH, Dimension.SYNC, Dimension.IDLE)}
    works = ~gpu.are(EventKind.COMMUNICATION) & ~moves_data(timeline)
    return {
        COMPUTE: float(parts.share_s[works].sum()) / devices,
        EXPOSED: exchanged,
        str(Dimension.TRANSFER): copied,
        **gaps,
    }


def _steps(timeline: Timeline, compute: Floats, communication: Floats, origin_s: float) -> list[Step]:
    """Return the profiler's steps in the window; the window itself where the trace has none."""
    ranges, inside = timeline.annotations, timeline.steps_inside()
    low, high = timeline.window_s
    spans = [
        (timeline.names[name], start, start + length)
        for name, start, length in zip(
            ranges.name.tolist(), ranges.start_s.tolist(), ranges.duration_s.tolist(), strict=True
        )
        if timeline.names[name].startswith(STEP_NAME)
        and ((start < high and start + length > low) or timeline.names[name] in inside)
    ] or [("", low, high)]
    return [_step(name, start, end, compute, communication, origin_s) for name, start, end in spans]


def _step(name: str, start_s: float, end_s: float, compute: Floats, communication: Floats, origin_s: float) -> Step:
    computed, exchanged = _clipped(compute, start_s, end_s), _clipped(communication, start_s, end_s)
    return Step(
        name,
        start_s + origin_s,
        end_s + origin_s,
        compute_s=_length(computed),
        communication_s=_length(exchanged),
        exposed_s=_length(minus(exchanged, computed)),
    )


def _clipped(covered: Floats, low: float, high: float) -> Floats:
    """Return the part of a union inside a window."""
    inner = covered[(covered[:, 1] > low) & (covered[:, 0] < high)]
    return np.clip(inner, low, high)


def _length(covered: Floats) -> float:
    return float((covered[:, 1] - covered[:, 0]).sum())

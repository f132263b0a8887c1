"""The lanes of a time line plot as sets of intervals, and the fraction of each bin of a lane that they cover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.vocabulary import Dimension, EventKind
from perfmodel.diagnosis.gaps import Gaps, IdleReason, is_input_pipeline
from perfmodel.diagnosis.intervals import covered_s, minus, union
from perfmodel.diagnosis.result import Diagnosis
from perfmodel.errors import UsageError
from perfmodel.profile.timeline import CallKind, Floats, Ints, Timeline
from perfmodel.render.plots.diagnosis import styles

Window = tuple[float, float]

#: most lanes of streams, and of threads; the least busy ones share the last lane
MOST_STREAMS, MOST_THREADS = 6, 4
#: GPU events in the zoomed panel, and largest fraction of the window that they may take for the panel to be drawn
_ZOOM_EVENTS, _ZOOM_SHARE = 70, 0.35
#: most rows of annotations, and most ranges of a row, which are the longest
_MOST_ROWS, _MOST_RANGES = 3, 400
_API_STYLES = {
    CallKind.LAUNCH: Dimension.LAUNCH,
    CallKind.SYNC: Dimension.SYNC,
    CallKind.COPY: Dimension.TRANSFER,
}


@dataclass(frozen=True)
class Lane:
    """One row of a time line plot.

    Attributes
    ----------
    label : label at the left.
    layers : style -> intervals, shape (n, 2) [s], ordered and disjoint.
    behind : the same for a pale background.
    names : name of each event, as an index into the time line's names; wide events are labelled.
    start_s, end_s, kinds : start and end of each event [s], and its style.
    height : height relative to the lane of a stream.
    """

    label: str
    layers: Mapping[str, Floats]
    behind: Mapping[str, Floats] = field(default_factory=dict)
    names: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    start_s: Floats = field(default_factory=lambda: np.empty(0))
    end_s: Floats = field(default_factory=lambda: np.empty(0))
    kinds: NDArray[np.str_] = field(default_factory=lambda: np.empty(0, dtype=np.str_))
    height: float = 1.0


def lanes(diagnosis: Diagnosis) -> list[Lane]:
    """Return the lanes of a diagnosis from top to bottom: streams and idle reasons of each GPU, then CPU threads.

    Raises
    ------
    UsageError
        When the profile has no time line.
    """
    timeline, decomposition = diagnosis.profile.timeline, diagnosis.decomposition
    if timeline is None or decomposition is None:
        raise UsageError("a plot over time needs a trace; this one has totals only.", place=diagnosis.profile.source)
    kind = event_styles(diagnosis)
    several = len(decomposition.devices) > 1
    result = []
    for device in decomposition.devices:
        result.extend(_streams(timeline, device, kind, several=several))
        label = f"GPU {device} waits" if several else "GPU waits"
        result.append(Lane(label, _gap_layers(decomposition.gaps[device]), height=0.7))
    return result + _threads(timeline)


def event_styles(diagnosis: Diagnosis) -> NDArray[np.str_]:
    """Return the style of each GPU event: the dimension that limits a kernel, or communication or transfer."""
    timeline, decomposition = diagnosis.profile.timeline, diagnosis.decomposition
    assert timeline is not None
    assert decomposition is not None
    communicates = timeline.gpu.are(EventKind.COMMUNICATION)
    return np.where(communicates, styles.COMMUNICATION, decomposition.event_dimension)


def _streams(timeline: Timeline, device: int, kind: NDArray[np.str_], *, several: bool) -> list[Lane]:
    gpu = timeline.gpu
    low, high = timeline.window_s
    mine = (gpu.device == device) & (gpu.end_s > low) & (gpu.start_s < high)
    prefix = f"GPU {device}, " if several else "GPU, "
    chosen, rest = _busiest(gpu.stream[mine], gpu.duration_s[mine], MOST_STREAMS)
    result = []
    for streams, label in [((stream,), f"{prefix}stream {stream}") for stream in chosen] + (
        [(rest, f"{prefix}{len(rest)} streams")] if rest else []
    ):
        at = np.flatnonzero(mine & np.isin(gpu.stream, streams))
        start_s, end_s = gpu.start_s[at], gpu.end_s[at]
        result.append(Lane(label, _exclusive(start_s, end_s, kind[at]), {}, gpu.name[at], start_s, end_s, kind[at]))
    return result


def _busiest(key: Ints, weight: Floats, most: int) -> tuple[list[int], list[int]]:
    """Return the keys with the largest total weight, sorted, and the other keys, sorted."""
    keys, inverse = np.unique(key, return_inverse=True)
    order = np.argsort(-np.bincount(inverse, weights=weight, minlength=keys.size), kind="stable")
    most = most if keys.size <= most else most - 1
    return sorted(keys[order[:most]].tolist()), sorted(keys[order[most:]].tolist())


def _exclusive(start_s: Floats, end_s: Floats, kind: NDArray[np.str_]) -> dict[str, Floats]:
    """Return the union of the intervals of each kind, without the time of earlier kinds in `styles.COLORS`."""
    covered, layers = np.empty((0, 2)), {}
    present = set(np.unique(kind).tolist())
    for style in (style for style in styles.COLORS if style in present):
        mine = kind == style
        own = union(start_s[mine], end_s[mine])
        layers[style] = minus(own, covered)
        covered = union(*np.concatenate((covered, own)).T)
    return layers


def _gap_layers(gaps: Gaps) -> dict[str, Floats]:
    """Return the parts of each gap one after another; their lengths are known, their real order is not."""
    parts = {
        Dimension.SYNC: gaps.sync_s,
        IdleReason.INPUT: gaps.input_s,
        IdleReason.HOST_WORK: gaps.host_work_s,
        IdleReason.UNTRACED: gaps.untraced_s,
        Dimension.LAUNCH: gaps.launch_s,
        IdleReason.DELAYED: gaps.delayed_s,
    }
    layers, from_s = {}, gaps.start_s
    for style, part_s in parts.items():
        till_s = from_s + part_s
        layers[style] = union(from_s, till_s)
        from_s = till_s
    return {style: layer for style, layer in layers.items() if layer.size}


def _threads(timeline: Timeline) -> list[Lane]:
    """Return a lane for each CPU thread: its runtime calls, on a background of operators and the input pipeline."""
    api, ops = timeline.api, timeline.ops
    if not (len(api) or len(ops)):
        return []
    # Threads with runtime calls come before threads that only compute.
    weights = np.concatenate((np.ones(len(api)), np.full(len(ops), 1e-6)))
    chosen, rest = _busiest(np.concatenate((api.thread, ops.thread)), weights, MOST_THREADS)
    is_input = is_input_pipeline(timeline)
    groups = [((thread,), f"CPU thread {_short(thread)}") for thread in chosen]
    result = []
    for threads, label in groups + ([(tuple(rest), f"{len(rest)} CPU threads")] if rest else []):
        calls = np.isin(api.thread, threads)
        kind = np.array([_API_STYLES.get(code, styles.OTHER_CALL) for code in CallKind])[api.category[calls]]
        layers = _exclusive(api.start_s[calls], api.end_s[calls], kind)
        mine = np.isin(ops.thread, threads)
        waits = mine & is_input[ops.name] if len(ops) else mine
        ranges = timeline.annotations
        named = np.isin(ranges.thread, threads) & is_input[ranges.name] if len(ranges) else np.zeros(0, dtype=bool)
        inputs = union(
            np.concatenate((ops.start_s[waits], ranges.start_s[named])),
            np.concatenate((ops.end_s[waits], ranges.end_s[named])),
        )
        behind = {styles.OPERATOR: minus(union(ops.start_s[mine], ops.end_s[mine]), inputs), IdleReason.INPUT: inputs}
        result.append(Lane(label, layers, {style: part for style, part in behind.items() if part.size}))
    return result


def _short(thread: int) -> str:
    """Return a thread's number, or its last digits if it is long (Nsight prefixes the process)."""
    return str(thread) if thread < 10**7 else f"…{thread % 10**5:05d}"


def fractions(layers: Sequence[Floats], edges_s: Floats) -> NDArray[np.float64]:
    """Return the fraction of each bin that each set of intervals covers, shape (layers, bins); the sum is at most 1."""
    widths = np.diff(edges_s)
    shares = np.array([covered_s(part, edges_s[:-1], edges_s[1:]) / widths for part in layers]).reshape(-1, widths.size)
    return np.asarray(shares / np.maximum(shares.sum(axis=0), 1.0))


def busiest_stretch(timeline: Timeline) -> Window | None:
    """Return the first stretch of `_ZOOM_EVENTS` consecutive events with the largest fraction of time in kernels.

    Communication does not count, since it includes waiting for the slowest partner. The result is None if the stretch
    is a large part of the window, which is then readable as a whole.
    """
    low, high = timeline.window_s
    gpu = timeline.gpu
    inside = (gpu.end_s > low) & (gpu.start_s < high) & ~gpu.are(EventKind.COMMUNICATION)
    start_s, end_s = np.maximum(gpu.start_s[inside], low), np.minimum(gpu.end_s[inside], high)
    events = min(_ZOOM_EVENTS, start_s.size // 2)
    if events < 2:
        return None
    from_s, till_s = start_s[: 1 - events], np.maximum.accumulate(end_s)[events - 1 :]
    busy = covered_s(union(start_s, end_s), from_s, till_s) / (till_s - from_s)
    best = int(np.argmax(np.round(busy, 3)))
    start, end = float(from_s[best]), float(till_s[best])
    return (start, end) if end - start < _ZOOM_SHARE * (high - low) else None


@dataclass(frozen=True)
class Mark:
    """An annotated range [s]."""

    name: str
    start_s: float
    end_s: float


def annotation_rows(timeline: Timeline) -> tuple[tuple[Mark, ...], ...]:
    """Return the annotated ranges in the window, in at most `_MOST_ROWS` rows from the outermost inwards.

    A range goes into the first row in which it overlaps no other. Ranges of all threads share the rows; a range within
    another one of the same name, which another thread repeats, is left out.
    """
    noted = timeline.annotations
    low, high = timeline.window_s
    inside = np.flatnonzero((noted.end_s > low) & (noted.start_s < high)) if len(noted) else np.empty(0, dtype=np.int64)
    longest = inside[np.argsort(-noted.duration_s[inside], kind="stable")][: _MOST_ROWS * _MOST_RANGES]
    rows: list[list[Mark]] = []
    for at in longest:
        mark = Mark(timeline.names[noted.name[at]], float(noted.start_s[at]), float(noted.end_s[at]))
        if any(_repeats(mark, other) for row in rows for other in row):
            continue
        row = next((row for row in rows if all(_apart(mark, other) for other in row)), None)
        if row is not None:
            row.append(mark)
        elif len(rows) < _MOST_ROWS:
            rows.append([mark])
    return tuple(tuple(sorted(row, key=lambda mark: mark.start_s)) for row in rows)


def _apart(one: Mark, other: Mark) -> bool:
    return one.end_s <= other.start_s or other.end_s <= one.start_s


def _repeats(one: Mark, other: Mark) -> bool:
    """Whether a range lies within another one of the same name."""
    return one.name == other.name and other.start_s <= one.start_s and one.end_s <= other.end_s

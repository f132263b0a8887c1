"""The work of the GPUs over time, and the passes of a pipeline, packed for a page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfmodel.core.vocabulary import EventKind
from perfmodel.profile.timeline import Timeline
from perfmodel.render.html.packing import View, packed
from perfmodel.training.timeline import Pass

#: events of a time line beyond these are left out, the shortest first
MOST_EVENTS = 400_000


def timeline_view(timeline: Timeline, entries: Sequence[str]) -> View | None:
    """Return the work of the GPUs over time, packed: start and duration [us], row, name and entry of each event.

    Parameters
    ----------
    timeline : of a profile.
    entries : names of the profile's entries.
    """
    gpu = timeline.gpu
    low, high = timeline.window_s
    chosen = np.flatnonzero(timeline.overlaps_window())
    if not chosen.size:
        return None
    left_out = max(0, chosen.size - MOST_EVENTS)
    if left_out:
        chosen = np.sort(chosen[np.argsort(-gpu.duration_s[chosen], kind="stable")[:MOST_EVENTS]])
    lanes, lane = np.unique(np.column_stack((gpu.device[chosen], gpu.stream[chosen])), axis=0, return_inverse=True)
    names, name = np.unique(gpu.name[chosen], return_inverse=True)
    entry = gpu.entry[chosen] if gpu.entry.size else np.full(chosen.size, -1)
    columns = {
        "start": (1e6 * (gpu.start_s[chosen] - low)).astype("<f4"),
        "length": (1e6 * gpu.duration_s[chosen]).astype("<f4"),
        "lane": lane.ravel().astype("<u2"),
        "name": name.ravel().astype("<u4"),
        "kind": gpu.category[chosen].astype("<u1"),
        "entry": entry.astype("<i4"),
    }
    several = np.unique(gpu.device[chosen]).size > 1
    return {
        "kind": "timeline",
        "title": "Time line",
        "window_us": 1e6 * (high - low),
        "count": int(chosen.size),
        "left_out": left_out,
        "lanes": [
            f"GPU {device}, stream {stream}" if several else f"stream {stream}" for device, stream in lanes.tolist()
        ],
        "names": [timeline.names[number] for number in names.tolist()],
        "kinds": [str(kind) for kind in EventKind],
        "entries": list(entries),
        "columns": {key: packed(values) for key, values in columns.items()},
        "types": {key: values.dtype.str for key, values in columns.items()},
    }


def pipeline_view(passes: Sequence[Pass], end_s: float) -> View:
    """Return the micro batches of a training step by stage, packed: stage, part, micro batch, start and end [s].

    Parameters
    ----------
    passes : of all GPUs of the pipeline.
    end_s : end of the step, with exchanges and update [s].
    """
    columns = {
        "gpu": np.array([one.gpu for one in passes], dtype="<u2"),
        "part": np.array([one.part for one in passes], dtype="<u2"),
        "micro": np.array([one.micro_batch for one in passes], dtype="<u4"),
        "backward": np.array([one.backward for one in passes], dtype="<u1"),
        "start": np.array([one.start_s for one in passes], dtype="<f4"),
        "end": np.array([one.end_s for one in passes], dtype="<f4"),
    }
    stages = max(one.gpu for one in passes) + 1
    busy = [sum(one.end_s - one.start_s for one in passes if one.gpu == stage) for stage in range(stages)]
    return {
        "kind": "pipeline",
        "title": "Micro batches by stage of the pipeline",
        "stages": stages,
        "parts": max(one.part for one in passes) + 1,
        "end_s": end_s,
        "passes_end_s": max(one.end_s for one in passes),
        "busy": [time / end_s for time in busy],
        "count": len(passes),
        "columns": {key: packed(values) for key, values in columns.items()},
        "types": {key: values.dtype.str for key, values in columns.items()},
    }

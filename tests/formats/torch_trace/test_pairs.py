"""Events that are written as a begin and an end count as the same complete events do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfmodel.formats import read_profile, torch_trace
from perfmodel.formats.detect import ReadOptions

Event = dict[str, Any]


def complete(name: str, category: str, start: float, duration: float, tid: int, **arguments: Any) -> Event:
    event = {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration, "pid": 1, "tid": tid}
    return {**event, "args": arguments}


#: two operators in one another, with shapes, and the work that they launch
EVENTS = [
    complete("aten::linear", "cpu_op", 0, 50, 1, **{"External id": 1, "Input Dims": [[8, 16], [4, 16]]}),
    complete("aten::mm", "cpu_op", 5, 40, 1, **{"External id": 2, "Input Dims": [[8, 16], [16, 4]]}),
    complete("cudaLaunchKernel", "cuda_runtime", 10, 5, 1, correlation=3, **{"External id": 2}),
    complete("sgemm", "kernel", 60, 30, 7, correlation=3, device=0, stream=7, **{"External id": 2}),
    complete("add", "kernel", 100, 10, 7, device=0, stream=7),
]


def in_parts(events: list[Event]) -> list[Event]:
    """Return complete events as pairs in the order of time; the ends have no more than they need."""
    parts = []
    for event in events:
        begin = {key: value for key, value in event.items() if key != "dur"}
        parts.append({**begin, "ph": "B"})
        parts.append({"ph": "E", "pid": 1, "tid": event["tid"], "ts": event["ts"] + event["dur"]})
    return sorted(parts, key=lambda part: part["ts"])


def written(path: Path, events: list[Event]) -> Path:
    path.write_text(json.dumps({"traceEvents": events}))
    return path


@pytest.mark.parametrize("by", ["shape", "op", "kernel"])
def test_pairs_are_the_complete_events(tmp_path: Path, by: str) -> None:
    whole = read_profile(written(tmp_path / "whole.json", EVENTS), by=by)
    pairs = read_profile(written(tmp_path / "pairs.json", in_parts(EVENTS)), by=by)
    assert pairs.entries == whole.entries
    assert not pairs.skipped
    assert pairs.timeline is not None
    assert whole.timeline is not None
    for name in ("start_s", "end_s"):
        assert np.array_equal(getattr(pairs.timeline.gpu, name), getattr(whole.timeline.gpu, name))


def test_pairs_may_lie_in_different_pieces_of_the_file(tmp_path: Path) -> None:
    # names of 2 MB apart, so that the begin and the end of the outer operator are in pieces of their own
    filler = [complete("x" * 2_000_000, "trace", 20 + number, 0.1, 1) for number in range(5)]
    path = written(tmp_path / "pairs.json", sorted([*in_parts(EVENTS), *filler], key=lambda event: event["ts"]))
    read = torch_trace.read(path, ReadOptions(stream_above_bytes=0))
    assert read.entries == read_profile(written(tmp_path / "whole.json", EVENTS)).entries


def test_parts_without_their_others_are_counted(tmp_path: Path) -> None:
    begin, end = {**EVENTS[4], "ph": "B", "ts": 200}, {"ph": "E", "ts": 1, "pid": 1, "tid": 7}
    profile = read_profile(written(tmp_path / "trace.json", [end, *EVENTS, begin]))
    assert profile.skipped == {
        "end of an event (ph is E) without its begin": 1,
        "begin of an event (ph is B) without its end": 1,
    }


def test_a_trace_of_pairs_is_annotated(perfmodel, tmp_path: Path) -> None:
    trace, out = written(tmp_path / "pairs.json", in_parts(EVENTS)), tmp_path / "out.json"
    ran = perfmodel("diagnose", trace, "--on", "a100-sxm4-80gb", "--assume", "--annotate", out)
    assert ran.code == 0, ran.err
    noted = [event for event in json.loads(out.read_text())["traceEvents"] if "perfmodel" in event.get("args", {})]
    assert [(event["ph"], event["name"]) for event in noted] == [("B", "sgemm"), ("B", "add")]

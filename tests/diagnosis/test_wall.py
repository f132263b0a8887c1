"""The wall profile: entries that add up to the wall time, whatever the run looks like."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.diagnosis.decompose import decompose
from perfmodel.diagnosis.diagnose import diagnose
from perfmodel.diagnosis.wall import wall_profile
from perfmodel.investment.headroom import headroom
from perfmodel.profile.profile import Profile, ProfileEntry
from tests.diagnosis.conftest import timeline

US = 1e-6


def _wall(line, entry, entries=2):
    line = replace(line, gpu=replace(line.gpu, entry=np.array(entry)))
    made = tuple(ProfileEntry(f"e{i}", 1.0, 4, "kernel", flop=8.0) for i in range(entries))
    divided = decompose(line, np.full(len(line.gpu), "hbm"))
    return wall_profile(Profile(made, timeline=line), divided), divided


def test_overlapped_time_is_counted_once_and_gaps_are_named(traced):
    # e0 0-10, e1 5-15 on another stream; a wait in the gap 15-35, then e0 35-40
    line = traced(
        (0, 40),
        gpu=[(0, 10, "a", "kernel", 0), (5, 15, "b", "kernel", 0, 8), (35, 40, "a", "kernel", 2)],
        api=[
            (-5, -4, "cudaLaunchKernel", "launch"),
            (12, 20, "cudaStreamSynchronize", "sync"),
            (30, 32, "cudaLaunchKernel", "launch"),
        ],
    )
    wall, _ = _wall(line, [0, 1, 0])
    times = {entry.name: round(entry.time_s / US, 6) for entry in wall.entries}
    assert times == {"e0": 15, "e1": 5, "[sync: cudaStreamSynchronize]": 15, "[launch gaps]": 5}


def test_an_exchange_that_kernels_hide_in_part_has_no_bound_and_one_in_full_sight_has(traced):
    # the first exchange, 0-10, is hidden up to 8; the second one, 20-30, is alone
    line = traced(
        (0, 30),
        gpu=[
            (0, 8, "gemm", "kernel", -1),
            (0, 10, "hidden", "communication", -1, 8),
            (20, 30, "alone", "communication", -1, 8),
        ],
    )
    line = replace(line, gpu=replace(line.gpu, entry=np.array([0, 1, 2])))
    message = pm.AllReduce(bytes=10**6, num_gpus=4, dtype="bf16")
    kinds = ((8, "kernel", None), (10, "communication", message), (10, "communication", message))
    entries = tuple(ProfileEntry(f"e{i}", us * US, 1, kind, op=op) for i, (us, kind, op) in enumerate(kinds))
    divided = decompose(line, np.full(3, "hbm"))
    wall = wall_profile(Profile(entries, timeline=line), divided)
    by_name = {entry.name: entry for entry in wall.entries}
    assert by_name["e1"].time_s == pytest.approx(2 * US)
    assert (by_name["e1"].op, by_name["e2"].op) == (None, message)
    # 1 MB at NVLink's bandwidth takes longer than the 2 us in sight, which is no sign of a wrong machine
    rows = {row.name: row for row in headroom(wall, hardware=pm.hardware("h100")).rows}
    assert rows["e1"].efficiency is None
    assert "kernels hide a part of it" in rows["e1"].verdict
    assert rows["e2"].efficiency is not None
    # of one rank alone, the second one may wait for others as well
    one_rank = headroom(Profile(entries, timeline=line), hardware=pm.hardware("h100"))
    (alone,) = [row for row in one_rank.rows if row.name == "e2"]
    assert alone.efficiency is None
    assert "may hold waits for other ranks" in alone.verdict


def test_several_gpus_give_the_mean(traced):
    line = traced((0, 20), gpu=[(0, 10, "a", "kernel", -1, 7, 0), (0, 20, "b", "kernel", -1, 7, 1)])
    wall, _ = _wall(line, [0, 1])
    by_name = {entry.name: entry for entry in wall.entries}
    assert by_name["e0"].time_s == pytest.approx(5 * US)
    assert by_name["e1"].time_s == pytest.approx(10 * US)
    assert by_name["[idle: untraced host code]"].time_s == pytest.approx(5 * US)
    assert (by_name["e0"].calls, by_name["e0"].flop) == (2, 4.0)


def test_work_that_no_entry_counts_has_one_of_its_own(traced):
    line = traced((5, 15), gpu=[(0, 10, "a", "kernel", -1), (10, 15, "b", "kernel", -1)])
    wall, _ = _wall(line, [-1, 0])
    assert {entry.name: round(entry.time_s / US, 6) for entry in wall.entries} == {
        "e0": 5,
        "[GPU work that began before the window]": 5,
    }


_KINDS = st.sampled_from(["launch", "sync", "copy", "other"])
_CALLS = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 1500), _KINDS, st.integers(1, 2)), max_size=8)
_EVENTS = st.lists(
    st.tuples(
        st.integers(0, 3000),
        st.integers(1, 900),
        st.sampled_from(["kernel", "copy", "communication"]),
        st.integers(-1, 7),
        st.integers(7, 8),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=12,
)
_OPS = st.lists(
    st.tuples(st.integers(0, 3000), st.integers(1, 2000), st.sampled_from(["aten::mm", "DataLoader"])), max_size=5
)


@given(_EVENTS, _CALLS, _OPS)
def test_any_run_adds_up_to_its_wall(events, calls, ops):
    calls = sorted(calls)
    events = sorted(events)
    line = timeline(
        (0, 4000),
        gpu=[
            (start, start + length, "k", kind, call if call < len(calls) else -1, stream, device)
            for start, length, kind, call, stream, device in events
        ],
        api=[(start, start + length, f"cuda{kind}", kind, thread) for start, length, kind, thread in calls],
        ops=[(start, start + length, name) for start, length, name in sorted(ops)],
    )
    entry = [index % 3 - 1 for index in range(len(events))]
    wall, divided = _wall(line, entry)
    assert wall.total_time_s == pytest.approx(4000 * US)
    assert all(value >= -1e-12 for value in divided.time_s.values())
    for gaps in divided.gaps.values():
        parts = np.stack((gaps.launch_s, gaps.sync_s, gaps.input_s, gaps.untraced_s, gaps.host_work_s, gaps.delayed_s))
        assert (parts >= -1e-12).all()
        assert parts.sum(axis=0) == pytest.approx(gaps.end_s - gaps.start_s)
    line = replace(line, gpu=replace(line.gpu, entry=np.array(entry)))
    made = diagnose(
        Profile((ProfileEntry("e0", 1.0, 4, "kernel"), ProfileEntry("e1", 1.0, 4, "memcpy")), timeline=line)
    )
    for part in made.parts:
        told_s = sum(one.time_s for one in part.evidence)
        assert told_s == pytest.approx(part.time_s, abs=1e-6 * made.total_s * 100)
    assert sum(one.time_saved_s for one in made.advice if one.dimension in ("launch", "sync", "idle")) <= made.total_s
    assert made.report().rows

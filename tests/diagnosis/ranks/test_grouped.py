"""Recorded jobs on gloo, which lists process groups but does not say of which one an exchange is.

Four processes on one host, torch 2.13, 2026-11-28, six steps: mesh_4 is a mesh of 2x2 with two all-reduces along its
rows and one along its columns in a step, all of one size, where rank 3 sleeps 20 ms before the first; pairs_4 are two
groups of two that never meet, where rank 3 sleeps 20 ms; pipeline_4 sends a message from rank to rank.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perfmodel.diagnosis.ranks.job import Job, join
from perfmodel.diagnosis.ranks.summary import summarise
from perfmodel.formats import read_profile

JOBS = Path(__file__).parent / "grouped"


def job(name: str) -> Job:
    return join([summarise(read_profile(path)) for path in sorted((JOBS / name).glob("rank*.json.gz"))])


def test_a_mesh_is_matched_along_its_rows_and_columns() -> None:
    mesh = job("mesh_4")
    calls = {}
    for one in mesh.exchanges:
        calls[tuple(one.ranks.tolist())] = calls.get(tuple(one.ranks.tolist()), 0) + 1
    assert calls == {(0, 1): 12, (2, 3): 12, (0, 2): 6, (1, 3): 6}
    assert (mesh.offset_s == 0).all(), "one host has one clock"
    (straggler,) = mesh.stragglers
    # one rank of its row and one of its column wait for it, and the job loses the time once
    assert (straggler.rank, straggler.waited_per_step_s) == (3, pytest.approx(0.02, rel=0.2))
    assert mesh.together == straggler
    typical_s = np.median(mesh.step_waits_s, axis=0)
    # its row waits at the first exchange, and the other row at the columns
    assert typical_s[2, 3] == pytest.approx(0.02, rel=0.15)
    assert typical_s[1, 3] == pytest.approx(0.02, rel=0.15)
    assert np.isnan(typical_s[2, 1]), "they have no exchange with each other"


def test_groups_that_never_meet_are_one_job() -> None:
    pairs = job("pairs_4")
    assert {tuple(one.ranks.tolist()) for one in pairs.exchanges} == {(0, 1), (2, 3)}
    assert len(pairs.exchanges) == 12
    waits_s = pairs.waits_s
    assert waits_s[2, 3] == pytest.approx(6 * 0.0215, rel=0.1)
    assert waits_s[:2, 2:].sum() == waits_s[2:, :2].sum() == 0.0


def test_a_pipeline_has_the_times_of_its_ranks(perfmodel) -> None:
    ran = perfmodel("diagnose", *sorted((JOBS / "pipeline_4").glob("*.gz")), "--format", "json")
    assert ran.code == 0, ran.err
    assert ran.json["context"]["ranks"] == [0, 1, 2, 3]
    assert ran.json["context"]["stragglers"] == []
    assert {row["rank"] for row in ran.json["rows"]} == {0, 1, 2, 3}
    assert len(ran.json["steps"]) == 24
    assert "waits" not in ran.json
    assert any("36 of 36 exchanges of the ranks are messages between two ranks" in note for note in ran.json["notes"])
    text = perfmodel("diagnose", *sorted((JOBS / "pipeline_4").glob("*.gz"))).out
    assert "No rank is called late: the traces do not say which exchanges belong together." in text

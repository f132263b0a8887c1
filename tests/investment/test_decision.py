"""From real traces to a decision: wall time, candidates of the diagnosis, bounds; and plans beside them."""

import dataclasses

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.formats import read_profile
from perfmodel.investment.decision import decide, plan_with_advice, with_default_effort
from perfmodel.investment.plan import Plan
from perfmodel.investment.scenario import parse_scenario
from perfmodel.profile.candidate import Candidate
from perfmodel.profile.effort import EFFORT, Effort
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.profile.timeline import GpuEvents, Timeline

ABC = Profile((ProfileEntry("a", 0.6), ProfileEntry("b", 0.4)))


@pytest.fixture(scope="module")
def h100():
    return pm.hardware("h100-sxm5-80gb")


@pytest.fixture(scope="module")
def bert(data_dir):
    return read_profile(data_dir / "traces" / "tracelens_h100_bert-small.json.gz")


def test_a_launch_bound_run_gets_a_cuda_graph_first(bert, h100):
    made = decide(bert, hardware=h100)
    low, high = bert.timeline.window_s
    assert made.ranking.profile.total_time_s == pytest.approx(high - low, rel=1e-6)  # the wall, not the 8 % of kernels
    assert made.ranking.rows[0].kind == "cuda-graph"
    assert made.ranking.rows[0].targets == ("[launch gaps]",)
    assert made.parts.rows[0].name == "[launch gaps]"


def test_one_rank_of_several_says_so_and_its_waits_are_no_headroom(data_dir):
    rank = read_profile(data_dir / "traces" / "tracelens_mi300_resnet_act_checkpoint_ddp.json.gz")
    made = decide(rank, hardware=pm.hardware("mi300x"))
    assert any("This is rank 0 alone. Missing: rank 1-7 of 8." in note for note in made.ranking.notes)
    first = made.parts.rows[0]
    assert "allreduce" in first.name
    assert (first.efficiency, first.max_local_speedup) == (None, None)
    assert made.parts.decision.endswith("of the time; its time may hold waits for other ranks.")


def test_a_plan_of_a_trace_is_held_against_the_wall_time_and_the_bounds(bert, h100):
    plan = Plan((Candidate("faster products", ("aten::addmm*",), 1e6, dev_days=1),))
    made = decide(bert, plan=plan, hardware=h100)
    row = made.ranking.rows[0]
    assert made.parts is None
    assert row.local_speedup < 100 < row.claimed_local_speedup
    assert "physics allows" in row.verdict
    assert row.overall_speedup < 1.1  # all products together take less than a tenth of the wall
    both = decide(bert, plan=plan, hardware=h100, diagnosed=True)
    assert {"cuda-graph", ""} <= {one.kind for one in both.ranking.rows}


def test_a_trace_in_python_is_ranked_on_its_wall_time_as_the_command_does(bert, h100):
    plan = Plan((Candidate("faster products", ("aten::addmm*",), 2.0),))
    made, ranked = decide(bert, plan=plan, hardware=h100).ranking, pm.rank_candidates(bert, plan, hardware="h100")
    (row,) = ranked.rows
    assert row == made.rows[0]
    assert set(ranked.notes) == set(made.notes)
    low, high = bert.timeline.window_s
    assert row.overall_speedup == pytest.approx((high - low) / (high - low - row.time_s / 2), rel=1e-6)
    step = {"name": "half", "kind": "scale", "targets": ["aten::addmm*"], "speedup": 2}
    changed = pm.what_if(bert, parse_scenario({"steps": [step]}), "h100")
    assert changed.steps[0].speedup == pytest.approx(row.overall_speedup)
    parts = pm.headroom(bert, hardware="h100")
    assert parts.rows == pm.headroom(pm.diagnose(bert, "h100").wall, hardware="h100").rows
    assert parts.rows[0].name == "[launch gaps]"


def test_the_candidates_of_a_diagnosis_can_be_ranked_in_python(bert, h100):
    ranked = pm.rank_candidates(bert, pm.diagnose(bert, "h100").candidates, hardware="h100")
    assert ranked.rows == decide(bert, hardware=h100).ranking.rows
    assert ranked.rows[0].targets == ("[launch gaps]",)


def test_what_a_loader_in_the_background_is_worth(data_dir):
    # the same run with 4 workers takes 769.8 instead of 928.8 ms: 1.21x
    profile = read_profile(data_dir / "traces" / "kineto_resnet50_train_nw0_2021.pt.trace.json.gz")
    first = decide(profile).ranking.rows[0]
    assert first.kind == "input-pipeline"
    assert first.overall_speedup == pytest.approx(1.21, rel=0.05)


def test_effort_of_a_kind_is_said_and_can_be_another(bert, h100):
    dear = {**EFFORT, "cuda-graph": Effort(20.0, "high")}
    row = decide(bert, hardware=h100, effort=dear).ranking.rows
    (graph,) = (one for one in row if one.kind == "cuda-graph")
    assert (graph.dev_days, graph.risk, graph.quadrant) == (20.0, "high", "big bet")


def test_candidates_without_days_have_those_of_their_kind():
    plan = Plan((Candidate("f", ("a",), 2.0, kind="fuse"), Candidate("g", ("b",), 2.0, kind="fuse", dev_days=9)))
    filled, notes = with_default_effort(plan)
    assert [one.dev_days for one in filled.candidates] == [EFFORT["fuse"].dev_days, 9]
    assert filled.candidates[0].risk == EFFORT["fuse"].risk
    assert "'f' 2 d" in notes[0]
    assert with_default_effort(Plan((Candidate("h", ("a",), 2.0),)))[1] == ()


def test_a_name_that_stands_in_plan_and_diagnosis_is_told_apart():
    plan = Plan((Candidate("CUDA graph", ("a",), 2.0),))
    both = plan_with_advice(plan, [Candidate("CUDA graph", ("b",), 3.0)])
    assert [one.name for one in both.candidates] == ["CUDA graph", "CUDA graph (diagnose)"]
    assert plan_with_advice(None, []) is None


def test_without_any_candidate_the_parts_are_shown_and_a_budget_makes_no_sense():
    made = decide(ABC)
    assert [row.name for row in made.ranking.rows] == ["a", "b"]
    assert any("--plan" in note for note in made.ranking.notes)
    with pytest.raises(UsageError, match="no candidate"):
        decide(ABC, days=3)


def test_an_entry_that_others_hide_may_be_named_in_a_plan():
    # two kernels from 0 to 1 s on one GPU: the later one in the table is hidden behind the first
    gpu = GpuEvents(
        start_s=np.array([0.0, 0.0]),
        duration_s=np.array([1.0, 1.0]),
        name=np.array([0, 1]),
        category=np.zeros(2, dtype=np.int64),
        stream=np.array([1, 2]),
        device=np.zeros(2, dtype=np.int64),
        launch=np.full(2, -1),
        op=np.full(2, -1),
        bytes=np.full(2, np.nan),
        direction=np.full(2, -1),
        pinned=np.full(2, -1),
        entry=np.array([0, 1]),
    )
    timeline = Timeline(names=("a", "b"), gpu=gpu, window_s=(0.0, 1.0))
    traced = dataclasses.replace(ABC, entries=(ProfileEntry("a", 1.0, 1), ProfileEntry("b", 1.0, 1)), timeline=timeline)
    plan = Plan((Candidate("first", ("a",), 2.0), Candidate("hidden", ("b",), 2.0)))
    rows = {row.name: row for row in decide(traced, plan=plan).ranking.rows}
    assert rows["first"].overall_speedup == pytest.approx(2.0)
    assert rows["hidden"].overall_speedup == 1.0

"""Investments in a deployment: each candidate is worth what the changed deployment is predicted to be worth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfmodel.errors import InputFileError
from perfmodel.hardware_catalog import hardware
from perfmodel.investment.ranking import rank_candidates
from perfmodel.serving.case import TOKENS, Case, is_deployment_file, read_case
from perfmodel.serving.changes import read_changes, usual_changes
from perfmodel.serving.deployment import Deployment
from perfmodel.serving.investments import path_of, plan_of, profile_of
from perfmodel.serving.steady import steady
from perfmodel.workloads.catalog import find_model

#: batches in turn, whose prompts fill several steps
_STATIC = {"engine": "hf-eager", "max_batched_tokens": 8192}

NAIVE = """
model = "layers=8 hidden=1024 heads=16 kv_heads=4 ffn=2816 vocab=32000 positions=4096"
hardware = "h100"
engine = "nano-vllm"
graph = false
sampling = "multinomial"
[engine_facts]
kernels = 34
passes = 3.5
[load]
isl = 200
osl = 100
users = 8
"""


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return read(tmp_path, NAIVE)


def read(folder: Path, text: str) -> Case:
    path = folder / "deployment.toml"
    path.write_text(text)
    return read_case(path, hardware)[0]


def test_the_terms_add_up_to_the_time_of_a_million_tokens(case: Case) -> None:
    outcome = case.outcome()
    assert profile_of(case).total_time_s == pytest.approx(outcome.time_s)
    assert outcome.tokens_per_s == pytest.approx(TOKENS / outcome.time_s)
    assert outcome.low_s < outcome.time_s < outcome.high_s


@pytest.mark.parametrize(
    ("isl", "osl", "users", "options"),
    [(500, 500, 16, {}), (30_000, 2, 4, {}), (4000, 16, 1, {"max_batched_tokens": 512}), (3000, 8, 32, _STATIC)],
)
def test_tokens_a_second_are_those_of_the_steady_state(
    isl: int, osl: int, users: int, options: dict[str, object]
) -> None:
    """Also where a prompt fills several steps, and where a user's next request is in the server in front."""
    case = Case(Deployment(find_model("llama-3.1-8b"), hardware("h100"), **options), isl, osl, users)  # type: ignore[arg-type]
    state, outcome = steady(case.deployment, isl, osl, concurrency=users), case.outcome()
    assert outcome.tokens_per_s == pytest.approx(float(state.output_tokens_per_s))
    assert sum(outcome.terms_s.values()) == pytest.approx(outcome.time_s)
    assert TOKENS / outcome.low_s == pytest.approx(float(state.output_tokens_per_s_high))


@pytest.mark.waiting
def test_a_candidate_alone_is_worth_what_the_changed_deployment_is(case: Case) -> None:
    changes = usual_changes(case)
    assert {change.kind for change in changes} >= {"cuda-graph", "fuse", "sampling", "weights", "kv", "batch"}
    rows = {row.name: row for row in rank_candidates(profile_of(case), plan_of(case, changes)).rows}
    before = case.outcome()
    for change in changes:
        after = change.applied(case).outcome()
        expected = before.time_s * before.gpus / (after.time_s * after.gpus)
        assert rows[change.name].overall_speedup == pytest.approx(expected, rel=1e-3), change.name
    assert rows["CUDA graphs"].overall_speedup > 1.2  # 8 layers of small kernels wait for their launches
    assert rows["tensor parallel on 2 GPUs"].overall_speedup < 1  # two GPUs have to be paid for


def test_a_path_ends_where_the_last_deployment_is(case: Case) -> None:
    steps = read_changes(
        [
            {"name": "graphs", "kind": "cuda-graph"},
            {"name": "fused", "kind": "fuse"},
            {"name": "more", "kind": "batch", "value": 64},
            {"name": "two", "kind": "tensor-parallel", "value": 2},
        ],
        "path",
    )
    result = path_of(case, steps)
    final = case
    for step in steps:
        final = step.applied(final)
    assert result.steps[-1].total_time_s == pytest.approx(final.outcome().time_s)
    assert result.steps[-1].speedup == pytest.approx(case.outcome().time_s / final.outcome().time_s)
    product = 1.0
    for step in result.steps:
        product *= step.step_speedup
    assert product == pytest.approx(result.steps[-1].speedup)
    assert final.deployment.gpus == 2


def test_a_claim_that_the_prediction_contradicts_is_flagged(case: Case) -> None:
    (step,) = path_of(
        case, read_changes([{"name": "graphs", "kind": "cuda-graph", "claimed_speedup": 100}], "path")
    ).steps  # fmt: skip
    assert any("not 100x" in flag for flag in step.flags)


def test_a_prefix_cache_and_fewer_bits_save_time(case: Case) -> None:
    (graph,) = read_changes([{"kind": "cuda-graph"}], "plan")
    waits, runs = case, graph.applied(case)
    # a device that waits for launches does not gain from less work; one that replays a graph does
    assert replace(waits, prefix=128).outcome().time_s == pytest.approx(waits.outcome().time_s)
    assert replace(runs, prefix=128).outcome().time_s < runs.outcome().time_s
    narrow = replace(case, deployment=replace(case.deployment, kv="fp8"))
    assert narrow.outcome().terms_s["kv"] < case.outcome().terms_s["kv"]


def test_only_documents_with_a_model_and_a_hardware_are_deployments(tmp_path: Path) -> None:
    for name, text, wanted in (
        ("a.toml", NAIVE, True),
        ("b.toml", "[[candidates]]\nname = 'x'", False),
        ("c.csv", "model,hardware", False),
        ("d.toml", "not a toml [", False),
    ):
        (tmp_path / name).write_text(text)
        assert is_deployment_file(tmp_path / name) == wanted
    assert not is_deployment_file(tmp_path / "missing.toml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("engine =", "engin =", "Did you mean 'engine'"),
        ('"h100"', '"h1000"', "h1000"),
        ("isl = 200", "isl = 0", "isl is below 1"),
        ("users = 8", "user = 8", "Did you mean 'users'"),
        ("kernels = 34", "kernels = 'many'", "not a number"),
        ("passes = 3.5", "passes = -1", "from 0 on"),
        ('"multinomial"', '"multi"', "unknown sampling"),
        ("[load]", "[[changes]]\nname = 'x'\n[load]", ""),
    ],
)
def test_a_wrong_file_has_one_message(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = NAIVE.replace(old, new)
    if not message:
        assert read(tmp_path, text)  # changes are checked by `read_changes`
        return
    with pytest.raises(InputFileError, match=message):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "x"}, "unknown kind of change"),
        ({"kind": "weights"}, "needs the format"),
        ({"kind": "batch", "value": 0.5}, "whole number"),
        ({"kind": "fuse", "days": 3}, "unknown key 'days'"),
        ({"kind": "fuse", "dev_days": -1}, "above 0"),
        ("fuse", "is not a table"),
    ],
)
def test_a_wrong_change_has_one_message(change: object, message: str) -> None:
    with pytest.raises(InputFileError, match=message):
        read_changes([change], "plan")


def test_an_impossible_change_names_itself(case: Case) -> None:
    (change,) = read_changes([{"kind": "tensor-parallel", "value": 3}], "plan")
    with pytest.raises(InputFileError, match="plan: change 1: tp=3 does not divide"):
        change.applied(case)


def test_a_faster_network_is_worth_something_only_where_layers_cross_it(tmp_path: Path) -> None:
    spread = NAIVE.replace('hardware = "h100"', 'hardware = "h100"\ntp = 2\ngpus_per_node = 1\nnic = "25 Gb/s"')
    case = read(tmp_path, spread)
    (change,) = read_changes([{"name": "fabric", "kind": "network", "value": "400 Gb/s"}], "here")
    faster = change.applied(case)
    assert faster.outcome().terms_s["exchange"] < case.outcome().terms_s["exchange"]
    # fewer decode together where a cycle is shorter, and a decode step of a few reads the weights as long as of one
    assert faster.outcome().terms_s["weights"] == pytest.approx(case.outcome().terms_s["weights"], rel=1e-5)
    # a network that is changed is the one that is given from the start
    given = read(tmp_path, spread.replace("25 Gb/s", "400 Gb/s"))
    assert faster.outcome().time_s == pytest.approx(given.outcome().time_s)
    assert any(one.kind == "network" and one.value == "50Gb/s" for one in usual_changes(case))
    near = read(tmp_path, NAIVE)
    assert not any(one.kind == "network" for one in usual_changes(near))
    assert change.applied(near).outcome().time_s == pytest.approx(near.outcome().time_s)


def test_another_engine_is_that_of_today(case: Case) -> None:
    """TensorRT-LLM in place of vLLM 0.6.3 is not TensorRT-LLM 0.6.3."""
    old = replace(case, deployment=replace(case.deployment, engine="vllm", engine_version="0.6.3"))
    (change,) = read_changes([{"kind": "engine", "value": "trtllm"}], "steps")
    new = replace(case.deployment, engine="trtllm")
    assert change.applied(old).deployment.profile == new.profile
    assert change.applied(old).outcome() == replace(case, deployment=new).outcome()


def test_a_network_that_is_no_rate_names_the_change(case: Case) -> None:
    (change,) = read_changes([{"name": "fabric", "kind": "network", "value": "fast"}], "here: change 1")
    with pytest.raises(InputFileError, match="change 1") as caught:
        change.applied(case)
    assert "400 Gb/s" in caught.value.remedy

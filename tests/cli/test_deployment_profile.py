"""`roi` and `whatif` with a deployment in the place of a profile."""

from __future__ import annotations

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NAIVE, PATH = EXAMPLES / "deployment_naive.toml", EXAMPLES / "nano_vllm_steps.toml"


def test_roi_ranks_the_changes_of_a_deployment(perfmodel):
    ran = perfmodel("roi", NAIVE, "--format", "json")
    assert ran.code == 0
    names = {row["name"] for row in ran.json["rows"]}
    assert {"CUDA graphs", "fused kernels", "Gumbel-max sampling", "fp8 weights"} <= names
    assert all(row["dev_days"] for row in ran.json["rows"])
    assert ran.json["context"]["hardware"] == ["rtx-4070"]


@pytest.mark.waiting
def test_effort_changes_the_days_of_a_change(perfmodel):
    ran = perfmodel("roi", NAIVE, "--effort", "cuda-graph=7:high", "--format", "json")
    days = {row["name"]: row["dev_days"] for row in ran.json["rows"]}
    assert days["CUDA graphs"] == 7


def test_whatif_follows_the_path_of_nano_vllm(perfmodel):
    ran = perfmodel("whatif", NAIVE, PATH, "--format", "json")
    assert ran.code == 0
    rows = ran.json["rows"]
    assert [row["kind"] for row in rows] == [
        "batch",
        "cuda-graph",
        "fuse",
        "sampling",
        "prefix-cache",
        "tensor-parallel",
    ]
    rates = [row["throughput_per_s"] for row in rows]
    assert rates == sorted(rates)


def test_a_scenario_without_steps_is_refused(perfmodel):
    ran = perfmodel("whatif", NAIVE, EXAMPLES / "plan_abc.toml")
    assert ran.code == 3
    assert "has no list of steps" in ran.err


def test_a_deployment_names_its_own_machine(perfmodel):
    for arguments in (
        ("roi", NAIVE, "--on", "h100"),
        ("roi", NAIVE, "--to", "h100"),
        ("whatif", NAIVE, PATH, "--on", "h100"),
    ):
        ran = perfmodel(*arguments)
        assert ran.code == 2
        assert "names its machine" in ran.err


@pytest.mark.parametrize(
    ("line", "said"),
    [("engine = 3", "engine=3 is no text"), ("weights = 4", "weights=4 is no text"), ('graph = "yes"', "graph='yes'"),
     ("[load]\nusers = nan", "users = nan is not finite")],
)  # fmt: skip
def test_values_of_other_types_are_faults_of_the_file(perfmodel, tmp_path, line, said):
    (tmp_path / "d.toml").write_text(f'model = "qwen3-0.6b"\nhardware = "h100"\n{line}\n')
    ran = perfmodel("roi", tmp_path / "d.toml")
    assert ran.code == 3
    assert said in ran.err

"""Candidates and steps that name an algorithm: their speedup is the ratio of two predicted times."""

from __future__ import annotations

from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.errors import InputFileError, UsageError
from perfmodel.investment.algorithm import time_ratio
from perfmodel.investment.plan import parse_plan
from perfmodel.investment.scenario import parse_scenario
from perfmodel.profile.profile import Profile, ProfileEntry

SORT = pm.Sort(cols=2**24, algorithm="merge")
CONV = pm.Conv2d(n=16, c=64, h=56, w=56, k=64, r=3, s=3, padding=1)


@pytest.fixture(scope="module")
def v100():
    return pm.hardware("v100")


def test_the_speedup_is_the_ratio_of_the_predicted_times(v100) -> None:
    profile = Profile((ProfileEntry("sort", 60e-3, calls=1, op=SORT), ProfileEntry("rest", 40e-3)))
    candidate = pm.Candidate("radix", ("sort",), algorithm="radix", dev_days=2)
    assert candidate.kind == "algorithm"
    (row,) = pm.rank_candidates(profile, [candidate], hardware=v100).rows
    speedup = pm.choose(SORT, v100).speedup("merge", "radix")
    assert row.local_speedup == pytest.approx(speedup)
    assert row.overall_speedup == pytest.approx(pm.amdahl_speedup(0.6, speedup))


def test_two_algorithms_may_be_named_and_several_targets_weigh_by_their_time(v100) -> None:
    other = CONV.changed(c=256, k=256)
    profile = Profile((ProfileEntry("a", 3e-3, calls=1, op=CONV), ProfileEntry("b", 1e-3, calls=1, op=other)))
    candidate = pm.Candidate("winograd", ("a", "b"), algorithm="winograd_f43", instead_of="implicit_gemm")
    (row,) = pm.rank_candidates(profile, [candidate], hardware=v100).rows
    ratios = [time_ratio(op, v100, "winograd_f43", "implicit_gemm") for op in (CONV, other)]
    assert row.local_speedup == pytest.approx(4e-3 / (3e-3 * ratios[0] + 1e-3 * ratios[1]))


def test_compression_of_gradients_is_an_algorithm_of_an_all_reduce() -> None:
    op = pm.AllReduce(bytes=2**34, num_gpus=8, dtype="fp32")
    assert time_ratio(op, pm.hardware("a100"), "fp8", "none") < 1.0


def test_a_plan_file_says_what_an_entry_computes(v100) -> None:
    plan = parse_plan({"candidates": [
        {"name": "flash", "targets": ["attention"], "algorithm": "flash", "instead_of": "unfused",
         "operator": {"op": "attention", "heads": 16, "seq_q": 1024, "head_dim": 64, "dtype": "fp16"}},
    ]})  # fmt: skip
    profile = Profile((ProfileEntry("attention", 10e-3), ProfileEntry("rest", 10e-3)))
    (row,) = pm.rank_candidates(profile, plan, hardware=v100).rows
    assert row.local_speedup > 1.5


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"speedup": 2.0}, "both speedup and algorithm"),
        ({"algorithm": "quick"}, "no algorithm 'quick'.*radix"),
        ({"algorithm": "radix", "kind": "fuse"}, "names an algorithm and is of the kind 'fuse'"),
        ({"operator": {"op": "softmax", "rows": 2, "cols": 2}}, "softmax has only one algorithm"),
        ({"operator": {"op": "sort"}}, "cols=... .* missing|cols is missing"),
        ({"operator": "sort"}, "names no operator"),
        (
            {"algorithm": "host_avx512", "operator": {"op": "sort", "cols": 8, "value_dtype": "int64"}},
            "sorts keys alone",
        ),
    ],
)
def test_what_is_wrong_is_one_message(changes: dict[str, object], part: str, v100) -> None:
    profile = Profile((ProfileEntry("sort", 60e-3), ProfileEntry("rest", 40e-3)))
    item = {"name": "x", "targets": ["sort"], "algorithm": "radix", "operator": {"op": "sort", "cols": 8}, **changes}
    with pytest.raises((InputFileError, UsageError), match=part):
        pm.rank_candidates(profile, parse_plan({"candidates": [item]}), hardware=v100)


def test_a_machine_and_an_operator_are_needed(v100) -> None:
    profile = Profile((ProfileEntry("sort", 60e-3),))
    candidate = pm.Candidate("radix", ("sort",), algorithm="radix")
    with pytest.raises(UsageError, match="needs a machine"):
        pm.rank_candidates(profile, [candidate])
    with pytest.raises(UsageError, match="the operator of 'sort' is not known"):
        pm.rank_candidates(profile, [candidate], hardware=v100)


def test_a_step_takes_any_algorithm_of_its_problem(v100) -> None:
    profile = Profile((ProfileEntry("conv", 10e-3, calls=1, op=CONV), ProfileEntry("rest", 10e-3)))
    steps = [{"name": "winograd", "kind": "algorithm", "targets": ["conv"], "algorithm": "winograd_f43",
              "instead_of": "implicit_gemm"}]  # fmt: skip
    result = pm.what_if(profile, parse_scenario({"steps": steps}), v100)
    ratio = time_ratio(CONV, v100, "winograd_f43", "implicit_gemm")
    assert result.steps[0].total_time_s == pytest.approx(10e-3 + 10e-3 * ratio)
    assert "two algorithms" in result.steps[0].basis
    steps[0]["algorithm"] = "winograd_f63"
    with pytest.raises(InputFileError, match="no algorithm 'winograd_f63'"):
        pm.what_if(profile, parse_scenario({"steps": steps}), v100)


def test_a_plan_file_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from perfmodel.cli.app import run

    (tmp_path / "p.csv").write_text("name,time_ms\nsort,60\nrest,40\n")
    (tmp_path / "plan.toml").write_text(
        '[[candidates]]\nname = "radix"\ntargets = ["sort"]\nkind = "algorithm"\nalgorithm = "radix"\n'
        'instead_of = "merge"\noperator = {op = "sort", cols = 16777216}\n'
    )
    assert run(["roi", str(tmp_path / "p.csv"), "--plan", str(tmp_path / "plan.toml"), "--on", "v100"]) == 0
    assert "radix" in capsys.readouterr().out

"""The command `project`, and `roi --to`: a profile on another machine."""

from __future__ import annotations

import json

import pytest

KEYS = {"name", "time_s", "projected_time_s", "low", "high", "limiter", "basis"}


@pytest.fixture
def bert(data_dir):
    return data_dir / "traces" / "tracelens_h100_bert-small.json.gz"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "profile.csv"
    path.write_text("name,time_ms,calls\nsome_gemm,10,4\nvectorized_elementwise,5,100\n", encoding="utf-8")
    return path


def test_rows_and_the_whole_have_the_keys_of_the_contract(perfmodel, bert):
    ran = perfmodel("project", bert, "--to", "a100-sxm4-80gb", "--format", "json")
    assert ran.code == 0
    assert all(row.keys() >= KEYS for row in ran.json["rows"])
    (whole,) = ran.json["whole"]
    assert sum(row["projected_time_s"] for row in ran.json["rows"]) == pytest.approx(whole["projected_time_s"])
    assert whole["low"] <= whole["projected_time_s"] <= whole["high"]
    assert ran.json["context"]["hardware"] == ["h100-sxm5-80gb", "a100-sxm4-80gb"]


@pytest.mark.parametrize("format_", ["table", "csv", "markdown"])
def test_every_format(perfmodel, table, format_):
    ran = perfmodel("project", table, "--from", "a100-sxm4-80gb", "--to", "h100", "--format", format_)
    assert ran.code == 0
    assert "some_gemm" in ran.out
    assert format_ != "table" or all(len(line) <= 80 for line in ran.out.splitlines())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--from", "a100"), "--to is missing"),
        (("--to", "h100"), "the profile names no device"),
        (("--from", "a100", "--to", "h100-smx5-80gb"), "Did you mean 'h100-sxm5-80gb'"),
        (("--from", "a100", "--to", "h100", "--host", "0"), "above 0"),
        (("--from", "a100", "--to", "h100", "--to", "h200"), "--to: the command takes one machine"),
        (("--from", "a100", "--to", "h100,h200"), "--to: the command takes one machine"),
        (("--from", "a100", "--from", "v100", "--to", "h100"), "--from: the command takes one machine"),
    ],
)
def test_what_is_missing_or_wrong_is_one_message(perfmodel, table, options, said):
    ran = perfmodel("project", table, *options)
    assert ran.code == 2
    assert said in ran.err


def test_another_machine_than_the_profiles_is_refused_unless_assumed(perfmodel, bert):
    options = ("project", bert, "--from", "l4", "--to", "h100")
    assert perfmodel(*options).code == 2
    assert perfmodel(*options, "--assume").code == 0


def test_candidates_are_ranked_on_the_projected_run(perfmodel, table):
    options = ("roi", table, "--on", "a100-sxm4-80gb", "--format", "json")
    here, there = perfmodel(*options), perfmodel(*options, "--to", "h100")
    assert "projected from a100-sxm4-80gb (15 ms) to h100-sxm5-80gb" in there.err
    assert there.json["context"]["hardware"] == ["h100-sxm5-80gb"]
    assert there.json["context"]["total_time_s"] < here.json["context"]["total_time_s"]


def test_a_profile_without_a_machine_gets_one_message(perfmodel, tmp_path):
    (tmp_path / "p.csv").write_text("name,time_ms\na,1\n")
    ran = perfmodel("project", tmp_path / "p.csv", "--to", "h100")
    assert ran.code == 2
    assert ran.err == ("perfmodel: --from: the profile names no device. Name the machine: --from HW.\n")


@pytest.mark.parametrize(("device", "named"), [("NVIDIA A100-PG509-200", "a100-sxm4-40gb"), ("A100 of someone", "HW")])
def test_the_remedy_names_the_machine_that_the_device_may_be(perfmodel, tmp_path, device, named):
    """A board of one machine, and a product that several machines have."""
    trace = tmp_path / "trace.json"
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 0, "dur": 5, "pid": 0, "tid": 7, "args": {"device": 0}}
    trace.write_text(json.dumps({"deviceProperties": [{"id": 0, "name": device}], "traceEvents": [event]}))
    ran = perfmodel("project", trace, "--to", "h100")
    assert ran.code == 2
    assert ran.err.endswith(f"Name the machine: --from {named}.\n")
    assert "It may be" in ran.err


@pytest.mark.parametrize("report", ["cuda_api_sum", "nvtx_sum_top"])
def test_calls_and_ranges_of_the_cpu_are_not_projected_from_a_gpu(perfmodel, data_dir, report):
    path = data_dir / "nsys" / f"yashlabs_qwen_decode_{report}.csv"
    for command, option in (("project", "--from"), ("roi", "--on")):
        ran = perfmodel(command, path, option, "a100-sxm4-80gb", "--to", "h200-sxm-141gb")
        assert (ran.code, ran.out) == (2, "")
        assert "has no GPU work: its times are those of calls, ranges or operators on the CPU" in ran.err
        assert "cuda_gpu_kern_sum" in ran.err
        assert ran.err.count("perfmodel:") == 1
    kernels = data_dir / "nsys" / "yashlabs_qwen_decode_cuda_gpu_kern_sum.csv"
    assert perfmodel("project", kernels, "--from", "a100-sxm4-80gb", "--to", "h200-sxm-141gb").code == 0


def test_operators_of_the_cpu_by_name_are_not_projected_from_a_gpu(perfmodel, tmp_path):
    """key_averages() without a row on a device, cut, so that a part of its total is in no row."""
    table = tmp_path / "table.txt"
    head = "Name  Self CPU %  Self CPU  CPU total %  CPU total  CPU time avg  # of Calls"
    rule = "  ".join("-" * len(name) for name in head.split("  "))
    row = "aten::mm  80.00%  8.000ms  80.00%  8.000ms  80.000us  100"
    table.write_text("\n".join((rule, head, rule, row, rule, "Self CPU time total: 10.000ms", "")))
    ran = perfmodel("project", table, "--from", "a100-sxm4-80gb", "--to", "h100")
    assert (ran.code, ran.out) == (2, "")
    assert "has no GPU work" in ran.err

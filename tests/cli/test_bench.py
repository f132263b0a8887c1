"""`perfmodel bench` on the CPU of this machine, with tiny operators; no test looks at an absolute time."""

from __future__ import annotations

import csv
import io
import json

import pytest

pytest.importorskip("torch")

from perfmodel.cli._record import read_record
from perfmodel.hardware_catalog.read import parse_spec, to_hardware
from perfmodel.kernels.torch import _cuda
from perfmodel.measure import runner

SPEC = """
name = "test-cpu"
vendor = "none"
architecture = "none"
kind = "cpu"
[memory.dram]
bandwidth = "10 GB/s"
[memory.l3]
capacity = "32 MiB"
[peak.vector]
fp32 = "300 GFLOP/s"
[launch]
overhead = "10 us"
"""
TINY = ("layer_norm", "rows=8", "cols=16", "--time-limit", "0.05", "--device", "cpu")


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "test-cpu.toml"
    path.write_text(SPEC)
    return path


def test_json_is_a_record_with_context_and_rows(perfmodel, spec):
    ran = perfmodel("bench", *TINY, "--on", spec, "--format", "json", "--seed", 7)
    assert ran.code == 0
    document = ran.json
    assert (document["schema_version"], document["command"]) == (1, "bench")
    assert [row["kernel"] for row in document["rows"]] == ["F.layer_norm", "naive"]
    assert all(row["status"] == "ok" and row["correct"] and row["time_s"]["samples"] > 0 for row in document["rows"])
    context = document["context"]
    assert {"perfmodel", "hardware", "machine", "device", "date", "seed", "cache", "spec"} <= context.keys()
    assert (context["seed"], context["cache"], context["hardware"]) == (7, "flushed", ["test-cpu"])
    assert context["device"]["kind"] == "cpu"
    assert context["device"]["threads"] >= 1
    machine = to_hardware(parse_spec(context["spec"], "record"), "record")
    assert machine.main_memory.bandwidth_bytes_per_s == 10e9, "a plot can be made from the record alone"


def test_table_and_csv_have_every_row(perfmodel, spec):
    table = perfmodel("bench", *TINY, "--on", spec)
    assert "of the bound" in table.out
    assert table.out.count("layer_norm") >= 2
    rows = list(csv.DictReader(io.StringIO(perfmodel("bench", *TINY, "--on", spec, "--format", "csv").out)))
    assert len(rows) == 2
    assert float(rows[0]["time_s.median"]) > 0


def test_output_is_written_after_every_row(perfmodel, spec, tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    counts = []
    real = runner.build_row

    def build_row(*args):
        counts.append(len(read_record(path).rows) if path.exists() else 0)
        return real(*args)

    monkeypatch.setattr(runner, "build_row", build_row)
    assert perfmodel("bench", *TINY, "--on", spec, "-o", path).code == 0
    assert counts == [0, 1]
    assert len(read_record(path).rows) == 2


def test_ctrl_c_keeps_what_was_measured_and_exits_130(perfmodel, spec, tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    real, calls = runner.build_row, []

    def build_row(*args):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(runner, "build_row", build_row)
    ran = perfmodel("bench", *TINY, "--on", spec, "-o", path)
    assert ran.code == 130
    assert "1 of 2 rows" in ran.err
    assert [row.kernel for row in read_record(path).rows] == ["F.layer_norm"]


def test_kernel_filter_skipped_rows_and_out_of_memory(perfmodel, spec):
    ran = perfmodel(
        "bench", *TINY, "softmax", "rows=4", "cols=4", "elementwise", "numel=1e15", "--kernel", "*layer_norm",
        "--kernel", "torch.*", "--on", spec, "--format", "json",
    )  # fmt: skip
    assert ran.code == 0
    assert [(row["op"], row["status"]) for row in ran.json["rows"]] == [
        ("layer_norm", "ok"), ("softmax", "skipped"), ("elementwise", "out of memory"),
    ]  # fmt: skip


def test_a_bound_that_is_far_too_slow_is_reported_and_not_as_a_percentage(perfmodel, spec):
    spec.write_text(SPEC.replace("10 GB/s", "10 kB/s"))
    ran = perfmodel("bench", *TINY, "--on", spec)
    assert "faster than the bound" in ran.out
    assert "Likely:" in ran.out
    rows = perfmodel("bench", *TINY, "--on", spec, "--format", "json").json["rows"]
    assert all(row["faster_than_bound"] and row["efficiency"] > 1 and "%" not in row["note"] for row in rows)


def test_plot_is_drawn(perfmodel, spec, tmp_path):
    path = tmp_path / "roofline.svg"
    assert perfmodel("bench", *TINY, "--on", spec, "--plot", path).code == 0
    assert path.read_text().lstrip().startswith("<?xml")


def test_no_progress_bar_where_stderr_is_no_terminal(perfmodel, spec):
    ran = perfmodel("bench", *TINY, "--on", spec)
    assert "\r" not in ran.err
    assert "\x1b" not in ran.err + ran.out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("gem", "m=8"), 2, "Did you mean 'gemm'"),
        (("--preset", "quik"), 2, "Did you mean 'quick'"),
        (("gemm", "m=8", "n=8", "k=8", "--preset", "quick"), 2, "both given"),
        (("gemm", "m=8", "n=8", "k=8", "--kernel", "torch.matmull"), 2, "Did you mean 'torch.matmul'"),
        (("gemm", "m=8", "n=8", "k=8", "--cache", "cold"), 2, "flushed"),
        (("gemm", "m=8", "n=8", "k=8", "--time-limit", "0"), 2, "not positive"),
        (("gemm", "m=8", "n=8", "k=8", "--threads", "0"), 2, "cannot run"),
        (("gemm", "m=8", "n=8", "k=8", "--device", "tpu"), 2, "Allowed: cpu, cuda"),
        (("gemm", "m=8", "n=8", "k=8", "dtype=fp16"), 2, "no peak for dtype 'fp16'"),
        (("gemm", "m=8", "n=8", "k=8", "-o", "nowhere/at/all.json"), 2, "folder does not exist"),
        (("gemm", "m=8", "n=8", "k=8", "-o", "record.xyz"), 2, "names no format"),
        (("gemm", "m=8", "n=8", "k=8", "--plot", "plot.gif"), 2, ".svg"),
        (("gemm", "m=8", "n=8", "k=8", "--on", "second"), 2, "Give --on once"),
    ],
)
def test_bad_requests_get_one_message(perfmodel, spec, arguments, code, words):
    ran = perfmodel("bench", "--on", spec, *arguments)
    assert ran.code == code
    assert words in ran.err
    assert ran.out == ""


def test_missing_gpu_exits_4(perfmodel, monkeypatch):
    monkeypatch.setattr(_cuda, "is_there", lambda: False)
    ran = perfmodel("bench", "--device", "cuda")
    assert ran.code == 4
    assert "--device cpu" in ran.err


def test_record_of_a_file_of_operators(perfmodel, spec, tmp_path):
    path = tmp_path / "ops.json"
    path.write_text(json.dumps([{"op": "reduction", "rows": 4, "cols": 8, "name": "sum of rows", "count": 5}]))
    (row,) = perfmodel("bench", path, "--on", spec, "--format", "json", "--time-limit", 0.05).json["rows"]
    assert (row["name"], row["count"], row["status"]) == ("sum of rows", 5, "ok")

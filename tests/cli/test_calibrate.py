"""`perfmodel calibrate` and `perfmodel bench --check` on the CPU of this machine, with small buffers and products."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")

from perfmodel.cli import _check
from perfmodel.hardware_catalog import read_hardware
from perfmodel.hardware_catalog.lint import lint_file
from perfmodel.kernels.device import cuda
from perfmodel.measure.calibration import calibrate
from perfmodel.measure.calibration import cpu_caches as caches
from perfmodel.measure.calibration.plan import Effort
from perfmodel.measure.health import readings

TINY = Effort(1, 2, 0.01, caches=0.1, least_buffer_bytes={"cpu": 2.0**20}, largest_product={"cpu": 256})


@pytest.fixture
def small(monkeypatch):
    """Make a calibration take a fraction of a second: what it finds is then no ceiling, but real all the same."""
    monkeypatch.setattr(calibrate, "THOROUGH", Effort(**{**vars(TINY), "everything": True}))
    monkeypatch.setattr(calibrate, "QUICK", TINY)
    monkeypatch.setattr(caches, "_BYTES_PER_CALL", 2e5)
    monkeypatch.setattr(caches, "_BEYOND", 0.1)


def test_calibrated_spec_reads_back_and_serves_analyze_and_bench(small, perfmodel, tmp_path):
    path = tmp_path / "cpu.toml"
    ran = perfmodel("calibrate", "--device", "cpu", "-o", path, "--format", "json")
    assert ran.code == 0
    rows = {row["figure"]: row for row in ran.json["rows"]}
    patterns = {"dram copy", "dram triad", "dram read", "dram write"}
    assert patterns | {"fp32 vector product", "fp64 vector product"} <= rows.keys()
    machine = read_hardware(path)
    assert machine.kind == "cpu"
    assert machine.main_memory.sustained_bytes_per_s == rows["dram copy"]["sustained"]
    assert machine.main_memory.bandwidth_bytes_per_s == max(
        row["sustained"] for figure, row in rows.items() if figure.startswith("dram")
    )
    assert machine.find_peak("fp32", "vector").sustained_flop_per_s == rows["fp32 vector product"]["sustained"]
    assert machine.launch.overhead_s == rows["call overhead"]["sustained"]
    assert "perfmodel calibrate" in machine.sustained_source
    for level in machine.caches:
        if f"{level.name} read" in rows:
            assert level.sustained_bytes_per_s == rows[f"{level.name} read"]["sustained"]
    assert "PCIe" in " ".join(ran.json["notes"]), "what was left out is said"
    assert not [finding for finding in lint_file(path) if finding.severity == "error"]
    assert perfmodel("analyze", "gemm", "m=64", "n=64", "k=64", "--on", path).code == 0
    benched = perfmodel("bench", "gemm", "m=64", "n=64", "k=64", "--on", path, "--device", "cpu", "--time-limit", 0.05)
    assert benched.code == 0


def test_bench_without_a_machine_calibrates_and_says_so(small, perfmodel):
    ran = perfmodel("bench", "gemm", "m=32", "n=32", "k=32", "dtype=bf16", "--device", "cpu", "--time-limit", 0.05,
                    "--kernel", "torch.*", "--format", "json")  # fmt: skip
    assert ran.code == 0
    assert "calibrating this CPU" in ran.err
    (row,) = ran.json["rows"]
    assert row["hardware"].startswith("cpu-")
    assert ran.json["context"]["spec"]["sustained"]["vector"].keys() >= {"fp32", "bf16"}


def test_table_shows_arithmetic_beside_sustained_and_the_working_sets(small, perfmodel):
    ran = perfmodel("calibrate", "--device", "cpu")
    assert ran.code == 0
    assert "sustained" in ran.out
    assert "FLOP/s" in ran.out
    assert "working set of a thread" in ran.out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("-o", "spec.json"), 2, ".toml"),
        (("-o", "no/such/folder.toml"), 2, "folder does not exist"),
        (("--device", "gpu"), 2, "Allowed: cpu, cuda"),
        (("--on", "a", "--on", "b"), 2, "Give --on once"),
        (("--on", "missing.toml"), 3, "no such file"),
    ],
)
def test_bad_requests_get_one_message_before_anything_is_measured(perfmodel, arguments, code, words):
    ran = perfmodel("calibrate", *arguments)
    assert ran.code == code
    assert words in ran.err
    assert "calibrating" not in ran.err


def test_missing_gpu_exits_4(perfmodel, monkeypatch):
    monkeypatch.setattr(cuda, "is_available", lambda: False)
    assert perfmodel("calibrate", "--device", "cuda").code == 4


# --- bench --check


@pytest.fixture
def checked(small, perfmodel, monkeypatch, tmp_path):
    """Run ``bench --check`` on a calibration of this CPU whose copy bandwidth is what the test says of the reading."""
    path = tmp_path / "cpu.toml"
    assert perfmodel("calibrate", "--device", "cpu", "-o", path).code == 0
    monkeypatch.setattr(readings.take_readings, "__defaults__", (TINY,))

    def run(bandwidth: str, *arguments):
        lines = path.read_text().splitlines()
        start = lines.index("[memory.dram]")
        lines = [f'bandwidth = "{bandwidth}"' if line.startswith("bandwidth") and i > start else line
                 for i, line in enumerate(lines) if not line.startswith("dram =")]  # fmt: skip
        path.write_text("\n".join(lines))
        return perfmodel("bench", "--check", "--device", "cpu", "--on", path, *arguments)

    return run


def test_check_exits_1_when_something_is_wrong(checked, tmp_path):
    # nothing here copies a petabyte a second
    ran = checked("1000 TB/s", "--format", "json")
    assert ran.code == 1
    rows = {row["figure"]: row for row in ran.json["rows"]}
    assert rows["dram copy"]["verdict"] == "wrong"
    assert rows["dram copy"]["cause"]
    assert rows["dram copy"]["measured"] < rows["dram copy"]["expected_low"] == pytest.approx(0.75e15)
    assert rows["copies"]["verdict"] == "not judged"
    # and everything copies a kilobyte a second: above any peak, which is as wrong
    above = checked("1 kB/s", "-o", tmp_path / "check.json")
    assert above.code == 1
    found = json.loads((tmp_path / "check.json").read_text())["rows"]
    assert "above the peak" in next(row for row in found if row["figure"] == "dram copy")["cause"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("gemm", "m=8", "n=8", "k=8"), "takes no operators"),
        (("--preset", "quick"), "takes no operators, kernels or a preset"),
        (("--resume", "-o", "record.json"), "takes no --resume"),
        (("--on", "a100-sxm4-40gb"), "cannot be what is checked here, a cpu device"),
    ],
)
def test_check_refuses_what_it_would_not_heed(perfmodel, arguments, words):
    ran = perfmodel("bench", "--check", "--device", "cpu", *arguments)
    assert (ran.code, words in ran.err) == (2, True), ran.err


def test_check_prints_a_table(small, perfmodel, monkeypatch):
    monkeypatch.setattr(readings.take_readings, "__defaults__", (TINY,))
    ran = perfmodel("bench", "--check", "--device", "cpu")
    assert ran.code in (0, 1), "what it finds depends on the machine"
    assert "likely cause" in ran.out
    assert "not judged" in ran.out


RECORD = {
    "command": "bench",
    "context": {"device": {"name": "NVIDIA H200"}},
    "rows": [
        {"op": "elementwise", "status": "ok", "bytes_read": 5e8, "bytes_written": 5e8, "achieved_bytes_per_s": 4.2e12},
        {"op": "elementwise", "status": "ok", "bytes_read": 5e6, "bytes_written": 5e6, "achieved_bytes_per_s": 9e12},
        {"op": "elementwise", "status": "wrong", "bytes_read": 5e8, "bytes_written": 5e8, "achieved_bytes_per_s": 8e12},
        {"op": "gemm", "status": "ok", "dtype": "bf16", "achieved_flop_per_s": 780e12},
        {"op": "gemm", "status": "ok", "dtype": "bf16", "achieved_flop_per_s": 90e12},
        {"op": "gemm", "status": "skipped", "dtype": "fp8", "achieved_flop_per_s": None},
    ],
}


def test_a_record_of_the_same_product_is_a_reference():
    found = _check.reference_of(RECORD, "h200.json", ["nvidia h200", "h200-sxm-141gb"])
    assert found.bandwidth_bytes_per_s == 4.2e12, "neither from a cache nor of a wrong result"
    assert found.flop_per_s == {"bf16": 780e12}
    assert _check.reference_of(RECORD, "h200.json", ["NVIDIA H100 80GB HBM3"]) is None
    assert _check.reference_of({"command": "analyze"}, "a.json", ["NVIDIA H200"]) is None
    assert _check.reference_of([], "list.json", ["NVIDIA H200"]) is None


def test_records_are_those_beside_the_specs_and_a_broken_one_is_passed_over(tmp_path, monkeypatch, capsys):
    from types import SimpleNamespace

    from perfmodel import files

    records = tmp_path / "examples" / "records"
    records.mkdir(parents=True)
    (records / "h200.json").write_text(json.dumps(RECORD))
    (records / "broken.json").write_text("{")
    monkeypatch.setattr(files, "shipped_folder", lambda: tmp_path / "hardware_specs")
    device = SimpleNamespace(kind="cuda", name="NVIDIA H200")
    assert [found.source for found in _check._references(device, None)] == ["h200.json"]
    assert "broken.json" in capsys.readouterr().err
    assert list(_check._references(SimpleNamespace(kind="cpu", name="NVIDIA H200"), None)) == []

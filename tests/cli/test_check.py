"""`perfmodel bench --check` on the CPU of this machine, with small buffers and products."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from perfmodel import files
from perfmodel.cli import _check
from perfmodel.measure.calibration.plan import CalibrationPlan
from perfmodel.measure.health import readings

pytestmark = pytest.mark.usefixtures("small_cache")

TINY = CalibrationPlan(
    1, 2, 0.01, cache_multiple=0.1, least_buffer_bytes={"cpu": 2.0**20}, largest_product={"cpu": 256}
)
SPEC = """
name = "test-cpu"
vendor = "none"
architecture = "none"
kind = "cpu"
[memory.dram]
bandwidth = "{bandwidth}"
[peak.vector]
fp32 = "100 TFLOP/s"
fp64 = "100 TFLOP/s"
"""


@pytest.fixture
def checked(perfmodel, monkeypatch, tmp_path):
    """Run ``bench --check`` against a CPU whose bandwidth the test states."""
    monkeypatch.setattr(readings.take_readings, "__defaults__", (TINY,))

    def run(bandwidth, *arguments):
        path = tmp_path / "cpu.toml"
        path.write_text(SPEC.format(bandwidth=bandwidth))
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
        (("gemm", "m=8", "n=8", "k=8"), "OPS has no effect: --check has measurements of its own"),
        (("--preset", "quick"), "--preset has no effect"),
        (("--resume", "-o", "record.json"), "--resume has no effect"),
        (("--on", "a100-sxm4-40gb"), "is of kind cpu, but NVIDIA A100-SXM4-40GB is of kind gpu"),
    ],
)
def test_check_refuses_what_it_would_not_heed(perfmodel, arguments, words):
    ran = perfmodel("bench", "--check", "--device", "cpu", *arguments)
    assert (ran.code, words in ran.err) == (2, True), ran.err


def test_check_prints_a_table(perfmodel, monkeypatch):
    monkeypatch.setattr(readings.take_readings, "__defaults__", (TINY,))
    ran = perfmodel("bench", "--check", "--device", "cpu")
    assert ran.code in (0, 1), "what it finds depends on the machine"
    assert "likely cause" in ran.out
    assert "not judged" in ran.out


RECORD = {
    "schema_version": 2,
    "command": "bench",
    "context": {"device": {"name": "NVIDIA H200"}},
    "rows": [{"op": "gemm", "hardware": "h200", "status": "ok", "dtype": "bf16", "achieved_flop_per_s": 780e12}],
}


def test_records_beside_the_specs_are_references_if_their_device_has_the_name(tmp_path, monkeypatch, capsys):
    records = tmp_path / "examples" / "records"
    records.mkdir(parents=True)
    (records / "h200.json").write_text(json.dumps(RECORD))
    (records / "broken.json").write_text("{")
    monkeypatch.setattr(files, "shipped_folder", lambda: tmp_path / "hardware_specs")
    (reference,) = _check._references(SimpleNamespace(kind="cuda", name="nvidia h200"), None)
    assert (reference.source, reference.flop_per_s) == ("h200.json", {"bf16": 780e12})
    assert "broken.json" in capsys.readouterr().err
    machine = SimpleNamespace(name="NVIDIA-H200")
    assert len(list(_check._references(SimpleNamespace(kind="cuda", name="another"), machine))) == 1
    assert list(_check._references(SimpleNamespace(kind="cuda", name="NVIDIA H100 80GB HBM3"), None)) == []
    assert list(_check._references(SimpleNamespace(kind="cpu", name="NVIDIA H200"), None)) == []

"""Measured algorithms beside predicted ones: rows, pairs and crossovers; no test looks at an absolute time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from perfmodel.cli.app import run
from perfmodel.core.report import report
from perfmodel.hardware_catalog.read import parse_spec, to_hardware
from perfmodel.kernels.algorithms import contests
from perfmodel.kernels.device import open_device
from perfmodel.measure.algorithms import Contests, interpolated, run_contests
from perfmodel.measure.benchmark.settings import BenchSettings, stopping_rule

pytestmark = pytest.mark.usefixtures("small_cache")

SPEC = {"name": "cpu", "vendor": "x", "architecture": "x", "kind": "cpu", "title": "CPU",
        "memory": {"dram": {"capacity": "8 GiB", "bandwidth": "20 GB/s", "source": "x"}},
        "peak": {"vector": {"fp32": {"rate": "200 GFLOP/s"}, "source": "x"}}}  # fmt: skip


@pytest.fixture(scope="module")
def measured() -> Contests:
    import dataclasses

    small = {"sort": (64.0, 512.0), "topk": (64.0, 512.0), "convolution": (4.0, 8.0)}
    chosen = [dataclasses.replace(contests()[name], sizes=sizes) for name, sizes in small.items()]
    settings = BenchSettings(rule=stopping_rule(0.01, 0.0, None), cache="warm")
    return run_contests(chosen, open_device("cpu"), to_hardware(parse_spec(SPEC, "spec"), "spec"), settings)


def test_every_algorithm_runs_at_every_size_and_is_predicted(measured: Contests) -> None:
    assert len(measured.runs) == 2 * (2 + 3 + 4)
    for one in measured.runs:
        assert one.message == ""
        assert one.least_s > 0
        assert one.predicted is not None, one.algorithm
        assert one.predicted.time_s > 0


def test_pairs_have_both_crossovers(measured: Contests) -> None:
    assert len(measured.pairs) == 1 + 3 + 6
    for pair in measured.pairs:
        assert pair.measured_ratio > 0
        assert pair.predicted_ratio > 0
        assert pair.largest in (512.0, 8.0)


def test_the_report_has_runs_and_crossovers(measured: Contests) -> None:
    made = report(measured)
    assert len(made.rows) == len(measured.runs)
    assert len(made.more["crossovers"].rows) == len(measured.pairs)
    row = made.rows[0]
    assert row["status"] == "ok"
    assert row["time_s"]["min"] == row["least_time_s"]
    assert row["prediction_error"] == pytest.approx(row["predicted_time_s"] / row["least_time_s"] - 1)
    assert "chi-square" in made.notes[0]


def test_crossovers_are_interpolated_in_the_logarithms() -> None:
    assert interpolated([1.0, 4.0, 16.0], [0.5, 0.5, 2.0]) == pytest.approx(8.0)
    assert interpolated([1.0, 4.0], [2.0, 0.5]) == pytest.approx(2.0)
    assert interpolated([1.0, 4.0], [2.0, 2.0]) is None


def test_the_command_writes_a_record_and_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "cpu.toml"
    spec.write_text(
        'name = "test-cpu"\nvendor = "none"\narchitecture = "none"\nkind = "cpu"\n'
        '[memory.dram]\nbandwidth = "10 GB/s"\n[peak.vector]\nfp32 = "300 GFLOP/s"\n[launch]\noverhead = "10 us"\n'
    )
    out, plot = tmp_path / "a.json", tmp_path / "a.svg"
    line = ["bench", "--algorithms", "gelu", "--device", "cpu", "--on", str(spec), "--time-limit", "0.01"]
    assert run([*line, "--cache", "warm", "-o", str(out), "--plot", str(plot)]) == 0
    document = json.loads(out.read_text())
    assert {row["algorithm"] for row in document["rows"]} == {"erf", "tanh"}
    assert document["crossovers"][0]["first"] == "erf"
    assert 'id="measured erf"' in plot.read_text()
    capsys.readouterr()


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (["scan"], "unknown problem with kernels"),
        (["sort", "cols=1000"], "'cols=1000' is a size"),
        (["--kernel", "naive"], "--kernel has no effect: --algorithms runs"),
    ],
)
def test_wrong_use_is_one_message(more: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--algorithms", *more, "--device", "cpu"]) == 2
    assert part in capsys.readouterr().err

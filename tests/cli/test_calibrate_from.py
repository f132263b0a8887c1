"""`perfmodel calibrate --from`: constants from a user's measurements, what the rows cannot tell, and bad input."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import UsageError

HEAD = ["hardware", "op", "dtype", "kind", "numel", "time_s", "timing", "cache", "implementation"]
MACHINE = "a100-sxm4-80gb"
#: what the made-up rows follow: 70 % of 2039 GB/s, 4 us to start
RATE, START = 0.7 * 2039e9, 4e-6


def made_up(path: Path, rows: int = 60, hardware: str = MACHINE, seed: int = 0) -> Path:
    """Write a table of cold additions whose times follow a straight line, with 2 % of noise."""
    random = np.random.default_rng(seed)
    sizes = np.floor(10.0 ** random.uniform(4.5, 8.5, rows))
    times = (12 * sizes / RATE + START) * np.exp(0.02 * random.standard_normal(rows))
    with path.open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(HEAD)
        for size, time in zip(sizes, times, strict=True):
            table.writerow([hardware, "elementwise", "fp32", "add", int(size), time, "graph", "flushed", "mine-1.0"])
    return path


def test_it_fits_and_the_file_serves_predict_validate_and_analyze(
    perfmodel: Callable[..., Any], tmp_path: Path
) -> None:
    table, spec = made_up(tmp_path / "mine.csv"), tmp_path / "my_gpu.toml"
    ran = perfmodel("calibrate", "--from", table, "--on", MACHINE, "-o", spec, "--format", "json")
    assert ran.code == 0
    rows = {row["constant"]: row for row in ran.json["rows"]}
    assert rows["launch"]["fitted"] == pytest.approx(START, rel=0.1)
    assert not rows["pow"]["identified"]
    assert rows["pow"]["fitted"] == rows["pow"]["before"]
    assert any("do not identify" in note and "pow" in note for note in ran.json["notes"])

    machine = pm.hardware(spec)
    assert machine.latency["elementwise"].source.startswith("fitted on mine.csv, 60 rows")
    big = pm.predict(pm.Elementwise(numel=2 * 10**8), machine)
    assert big.calibration == "calibrated"
    assert big.predicted_time_s == pytest.approx(12 * 2e8 / RATE, rel=0.02)

    unseen = made_up(tmp_path / "unseen.csv", rows=200, seed=1)
    judged = perfmodel("validate", unseen, "--on", spec, "--format", "json").json["rows"][-1]
    assert judged["mape"] < 0.03
    assert 0.6 < judged["coverage_80"] <= 1.0
    assert perfmodel("hardware", "lint", spec).code == 0


def test_ten_rows_are_enough_and_nine_are_not(perfmodel: Callable[..., Any], tmp_path: Path) -> None:
    assert perfmodel("calibrate", "--from", made_up(tmp_path / "a.csv", 10), "--on", MACHINE).code == 0
    few = perfmodel("calibrate", "--from", made_up(tmp_path / "b.csv", 9), "--on", MACHINE)
    assert few.code == 3
    assert few.err.rstrip().endswith(
        "b.csv: holds no family with 10 rows to fit (9 of elementwise: fewer than 10 rows). "
        "A family needs rows of several shapes."
    )


def test_times_that_are_too_short_are_asked_for_their_unit(perfmodel: Callable[..., Any], tmp_path: Path) -> None:
    """Rows of which each beats the bound are in another unit than seconds."""
    table = made_up(tmp_path / "a.csv", 20)
    with table.open(newline="") as stream:
        header, *rows = csv.reader(stream)
    time = header.index("time_s")
    with table.open("w", newline="") as stream:
        csv.writer(stream).writerows([header, *([*row[:time], "1e-12", *row[time + 1 :]] for row in rows)])
    ran = perfmodel("calibrate", "--from", table, "--from", table, "--on", MACHINE)
    assert ran.code == 3
    assert "hold no family with 10 rows to fit (40 faster than the bound). Times are in seconds." in ran.err


def test_many_rows_of_one_shape_are_no_calibration(perfmodel: Callable[..., Any], tmp_path: Path) -> None:
    lines = made_up(tmp_path / "a.csv", 20).read_text().splitlines()
    (tmp_path / "b.csv").write_text("\n".join([lines[0]] + [lines[1]] * 30) + "\n")
    ran = perfmodel("calibrate", "--from", tmp_path / "b.csv", "--on", MACHINE)
    assert ran.code == 3
    assert "30 of elementwise: too few different shapes" in ran.err


def test_what_the_machine_has_of_its_own_stays_where_the_rows_say_nothing(
    perfmodel: Callable[..., Any], tmp_path: Path
) -> None:
    # The H200's file has no elementwise table, but a sustained bandwidth, which says that written bytes cost as much as
    # read ones; additions alone cannot tell the two costs apart.
    table, spec = made_up(tmp_path / "mine.csv", hardware="h200-sxm-141gb"), tmp_path / "my_gpu.toml"
    ran = perfmodel("calibrate", "--from", table, "--on", "h200-sxm-141gb", "-o", spec, "--format", "json")
    rows = {row["constant"]: row for row in ran.json["rows"]}
    written = pm.hardware(spec).latency["elementwise"].constants
    assert rows["write"]["before"] == 1.0
    assert written["write"] == pytest.approx(rows["write"]["fitted"], rel=1e-3)


def test_rows_of_other_machines_are_counted(perfmodel: Callable[..., Any], tmp_path: Path) -> None:
    other = made_up(tmp_path / "other.csv", hardware="t4")
    ran = perfmodel("calibrate", "--from", made_up(tmp_path / "mine.csv"), "--from", other, "--on", MACHINE)
    assert ran.code == 0
    assert "60 on t4" in ran.out
    none = perfmodel("calibrate", "--from", other, "--on", MACHINE)
    assert none.code == 3
    assert "no row was measured on a100-sxm4-80gb" in none.err
    assert "60 on t4" in none.err


def test_rows_that_beat_physics_are_not_fitted(perfmodel: Callable[..., Any], tmp_path: Path) -> None:
    table = made_up(tmp_path / "mine.csv")
    with table.open("a", newline="") as stream:
        csv.writer(stream).writerow([MACHINE, "elementwise", "fp32", "add", 10**9, 1e-3, "graph", "flushed", "x"])
    ran = perfmodel("calibrate", "--from", table, "--on", MACHINE)
    assert "Not used: 1 row faster than the bound." in ran.out


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ((), 2, "--from needs the machine that was measured"),
        (("--on", MACHINE, "--on", "t4"), 2, "Name one machine"),
        (("--on", MACHINE, "--device", "cpu"), 2, "--device has no effect: --from does not measure"),
        (("--on", MACHINE, "-o", "spec.csv"), 2, "the suffix"),
    ],
)
def test_wrong_usage(
    perfmodel: Callable[..., Any], tmp_path: Path, options: tuple[str, ...], code: int, said: str
) -> None:
    ran = perfmodel("calibrate", "--from", made_up(tmp_path / "mine.csv"), *options)
    assert (ran.code, said in ran.err) == (code, True), ran.err


def test_without_a_machine_those_of_the_rows_are_suggested(perfmodel: Callable[..., Any], tmp_path: Path) -> None:
    mine, other = made_up(tmp_path / "mine.csv", hardware="l4"), made_up(tmp_path / "other.csv", hardware="my gpu")
    record = tmp_path / "record.json"
    row = {
        "op": "elementwise", "hardware": "h200-sxm-141gb", "dtype": "fp32", "status": "ok", "cache": "flushed",
        "params": {"numel": 1000, "kind": "add", "num_inputs": 2, "out_dtype": "fp32"},
        "kernel": "torch.elementwise", "measured_time_s": 1e-5,
    }  # fmt: skip
    record.write_text(json.dumps({"schema_version": 1, "command": "bench", "rows": [row]}))
    for paths, said in (
        ((mine,), "Add --on l4."),
        ((mine, other), "Add --on l4 or --on 'my gpu'."),
        ((record,), "Add --on h200-sxm-141gb."),
    ):
        ran = perfmodel("calibrate", *(word for path in paths for word in ("--from", path)))
        assert (ran.code, said in ran.err) == (2, True), ran.err


def test_a_record_of_a_benchmark_is_read_too(perfmodel: Callable[..., Any], tmp_path: Path) -> None:
    rows = [
        {
            "op": "elementwise", "hardware": MACHINE, "dtype": "fp32", "status": "ok", "cache": "flushed",
            "params": {"numel": 1000 * i, "kind": "add", "num_inputs": 2, "out_dtype": "fp32"},
            "kernel": "torch.elementwise", "measured_time_s": 12000 * i / RATE + START,
        }
        for i in range(1, 40)
    ]  # fmt: skip
    rows += [{**rows[0], "kernel": "naive"}, {**rows[0], "status": "wrong", "measured_time_s": None}]
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"schema_version": 1, "command": "bench", "rows": rows}))
    ran = perfmodel("calibrate", "--from", record, "--on", MACHINE)
    assert ran.code == 0
    assert "a composition of several kernels" in ran.out
    assert "status 'wrong'" in ran.out

    record.write_text(json.dumps({"schema_version": 1, "command": "analyze", "rows": rows}))
    wrong = perfmodel("calibrate", "--from", record, "--on", MACHINE)
    assert wrong.code == 3
    assert "one of bench is needed" in wrong.err


def test_a_cpu_has_no_closed_form_to_fit(perfmodel: Callable[..., Any], tmp_path: Path) -> None:
    spec = tmp_path / "cpu.toml"
    spec.write_text(
        'name = "my-cpu"\nvendor = "x"\narchitecture = "y"\nkind = "cpu"\n'
        '[memory.dram]\nbandwidth = "2039 GB/s"\n[peak.vector]\nfp32 = "1 TFLOP/s"\n'
    )
    ran = perfmodel("calibrate", "--from", made_up(tmp_path / "mine.csv", hardware="my-cpu"), "--on", spec)
    assert ran.code == 3
    assert "without a closed form" in ran.err


def test_a_specification_is_replaced_with_overwrite_only(perfmodel: Callable[..., Any], tmp_path: Path) -> None:
    table, spec = made_up(tmp_path / "mine.csv"), tmp_path / "my_gpu.toml"
    arguments = ("calibrate", "--from", table, "--on", MACHINE, "-o", spec)
    assert perfmodel(*arguments).code == 0
    spec.write_text(before := f"# mine\n{spec.read_text()}")
    ran = perfmodel(*arguments)
    assert (ran.code, "my_gpu.toml: exists already. Use --overwrite" in ran.err, ran.out) == (2, True, "")
    assert spec.read_text() == before
    assert perfmodel(*arguments, "--overwrite").code == 0
    assert not spec.read_text().startswith("# mine")
    assert "needs a file" in perfmodel(*arguments[:-2], "--overwrite").err


@pytest.mark.parametrize(
    "words",
    [("--device", "cpu"), ("--links", "--num-gpus", "2", "--device", "cpu"), ("--from", "a.csv", "--engine", "vllm")],
)
def test_no_way_to_calibrate_replaces_a_file(perfmodel: Callable[..., Any], tmp_path: Path, words: Any) -> None:
    spec = tmp_path / "mine.toml"
    spec.write_text('name = "mine"\n')
    ran = perfmodel("calibrate", *words, "-o", spec)
    assert (ran.code, "exists already. Use --overwrite" in ran.err) == (2, True)


def test_a_table_that_cannot_be_printed_does_not_lose_the_constants(
    perfmodel: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, spec = made_up(tmp_path / "mine.csv"), tmp_path / "my_gpu.toml"
    arguments = ("calibrate", "--from", table, "--on", MACHINE, "-o", spec)
    shown = []
    monkeypatch.setattr("perfmodel.cli.calibrate.Destination.write", lambda *_: shown.append(spec.exists()))
    assert (perfmodel(*arguments).code, shown) == (0, [False]), "the table comes first"
    spec.unlink()

    def closed(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("perfmodel.cli.calibrate.Destination.write", closed)
    ran = perfmodel(*arguments)
    assert (ran.code, "No space left" in ran.err, f"wrote {spec}" in ran.err) == (2, True, True)
    assert pm.hardware(spec).latency["elementwise"].source.startswith("fitted on mine.csv")


def test_a_file_that_cannot_be_written_does_not_lose_the_table(
    perfmodel: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise UsageError("cannot be written: No space left on device.", place="my_gpu.toml")

    monkeypatch.setattr("perfmodel.hardware_catalog.write.write_spec", full)
    table = made_up(tmp_path / "mine.csv")
    ran = perfmodel("calibrate", "--from", table, "--on", MACHINE, "-o", tmp_path / "my_gpu.toml")
    assert (ran.code, "launch" in ran.out, "wrote" in ran.err) == (2, True, False)


def test_the_machine_may_be_the_one_in_the_record(perfmodel: Callable[..., Any], tmp_path: Path) -> None:
    spec = {
        "name": "my-board", "vendor": "none", "architecture": "none",
        "memory": {"hbm": {"bandwidth": "2039 GB/s"}}, "peak": {"vector": {"fp32": "19.5 TFLOP/s"}},
    }  # fmt: skip
    rows = [
        {
            "op": "elementwise", "hardware": "my-board", "dtype": "fp32", "status": "ok", "cache": "cold",
            "params": {"numel": 1000 * i, "kind": "add"}, "kernel": "torch.elementwise",
            "measured_time_s": 12000 * i / RATE + START,
        }
        for i in range(1, 3000, 60)
    ]  # fmt: skip
    path, out = tmp_path / "r.json", tmp_path / "my-board.toml"
    path.write_text(json.dumps({"schema_version": 2, "command": "bench", "context": {"spec": spec}, "rows": rows}))
    ran = perfmodel("calibrate", "--from", path, "--on", "my-board", "-o", out)
    assert ran.code == 0, ran.err
    assert pm.hardware(out).latency["elementwise"].source.startswith("fitted on r.json, 50 rows")

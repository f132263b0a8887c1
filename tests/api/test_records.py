"""`pm.read_record`, `pm.compare` and `pm.validate`: what the commands of these names do, for notebooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import perfmodel as pm
from perfmodel.accuracy.published import PublishedRuns
from perfmodel.accuracy.validate import Accuracy
from perfmodel.records.schema import Record

HEADER = "hardware,op,dtype,kind,numel,time_s,timing,cache,implementation\n"
ADD = "v100-pcie-32gb,elementwise,fp32,add,{0}000000,{0}.6e-5,event,warm,torch-2.1\n"
RUN = "hardware,num_gpus,gbs,seq,step_time_s,model,dtype\nh100-sxm5-80gb,8,64,4096,6.5,llama-3.1-8b,bf16\n"


def _document(time_s: float) -> dict[str, Any]:
    statistics = {"median": time_s, "median_low": 0.999 * time_s, "median_high": 1.001 * time_s, "samples": 100}
    row = {"op": "gemm", "name": "gemm", "dimensions": "m=64", "dtype": "fp16", "kernel": "torch.matmul"}
    row |= {"hardware": "h100-sxm5-80gb", "status": "ok", "time_s": statistics, "measured_time_s": time_s}
    context = {"device": {"kind": "cuda", "name": "A GPU"}}
    return {"schema_version": 2, "command": "bench", "context": context, "rows": [row]}


@pytest.fixture
def records(tmp_path: Path) -> dict[str, Path]:
    """Two records of one kernel, the second of twice the time."""
    paths = {}
    for name, time_s in (("before", 1e-3), ("after", 2e-3)):
        paths[name] = tmp_path / f"{name}.json"
        paths[name].write_text(json.dumps(_document(time_s)))
    return paths


def test_a_record_shows_the_table_that_show_prints(perfmodel: Any, records: dict[str, Path]) -> None:
    record = pm.read_record(records["before"])
    assert isinstance(record, Record)
    assert record.rows[0].measured_time_s == 1e-3
    assert str(pm.report(record)) in perfmodel("show", records["before"]).out
    assert "torch.matmul" in record._repr_html_()


def test_compare_says_what_the_command_says(perfmodel: Any, records: dict[str, Path]) -> None:
    before, after = records["before"], records["after"]
    found = pm.compare(before, after, fail_on=0.05)
    ran = perfmodel("compare", before, after, "--fail-on", "5%", "--format", "json")
    assert (found.changes[0].change, found.changes[0].verdict) == (pytest.approx(1.0), "slower")
    assert pm.report(found).as_json()["rows"] == ran.json["rows"]
    assert found.gate_failures() == ran.err.splitlines()
    assert pm.compare(before, after).gate_failures() == []
    assert pm.compare(before, after, fail_on=1.5).gate_failures() == []


def test_records_that_were_read_are_compared_as_their_files_are(records: dict[str, Path]) -> None:
    read = [pm.read_record(path) for path in records.values()]
    assert pm.compare(*read).changes == pm.compare(*records.values()).changes


def test_a_smaller_gate_lowers_the_threshold_as_the_command_does(records: dict[str, Path]) -> None:
    sides = (records["before"], records["after"])
    assert pm.compare(*sides, fail_on=0.01).rules.threshold == 0.01
    assert pm.compare(*sides, fail_on=0.05).rules.threshold == 0.02
    assert pm.compare(*sides, fail_on=0.01, threshold=0.03).rules.threshold == 0.03


def test_repeats_measure_the_drift_and_a_copy_is_none(records: dict[str, Path], tmp_path: Path) -> None:
    second = tmp_path / "second.json"
    second.write_text(json.dumps(_document(1.01e-3)))
    measured = pm.compare([records["before"], second], records["after"])
    assert "assumed" not in measured.drift.basis
    with pytest.raises(pm.InputFileError, match="is named twice, which is no repeat"):
        pm.compare([records["before"], records["before"]], records["after"])


def test_what_is_no_benchmark_record_is_refused_with_one_message(records: dict[str, Path], tmp_path: Path) -> None:
    analysis = tmp_path / "analysis.json"
    analysis.write_text(pm.report(pm.predict(pm.Gemm(m=64, n=64, k=64), "h100")).json_text())
    with pytest.raises(pm.InputFileError, match="is a record of 'analyze'; one of bench is needed"):
        pm.compare(pm.read_record(analysis), records["after"])
    with pytest.raises(pm.UsageError, match="3 is no benchmark record"):
        pm.compare(3, records["after"])  # type: ignore[arg-type]
    with pytest.raises(pm.UsageError, match="a side has no record"):
        pm.compare([], records["after"])
    with pytest.raises(pm.UsageError, match=r"unknown setting \'devce\'\. Did you mean \'device\'"):
        pm.compare(records["before"], records["after"], across=["devce"])
    with pytest.raises(pm.UsageError, match="fail_on: '5%' is no number"):
        pm.compare(records["before"], records["after"], fail_on="5%")  # type: ignore[arg-type]
    with pytest.raises(pm.UsageError, match="drift: -1 is no fraction"):
        pm.compare(records["before"], records["after"], drift=-1)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    path.write_text(HEADER + "".join(map(ADD.format, range(1, 10))))
    return path


def test_validate_finds_the_errors_that_the_command_prints(perfmodel: Any, table: Path) -> None:
    found = pm.validate(table)
    assert isinstance(found, Accuracy)
    assert len(found) == 9
    ran = perfmodel("validate", table, "--by", "family", "--worst", 2, "--format", "json")
    shown = pm.report(found, by=["family"], worst=2).as_json()
    assert (shown["rows"], shown["worst"], shown["notes"]) == (ran.json["rows"], ran.json["worst"], ran.json["notes"])
    assert pm.validate([table, table]).by() == found.by()  # a file that is named twice counts once


def test_validate_takes_machines_and_states_that_of_a_table_without_any(table: Path, tmp_path: Path) -> None:
    lacking = tmp_path / "lacking.csv"
    lacking.write_text("".join(line.partition(",")[2] for line in table.read_text().splitlines(keepends=True)))
    v100 = pm.hardware("v100-pcie-32gb")
    assert pm.validate(lacking, v100).by() == pm.validate(table, ["v100-pcie-32gb"]).by() == pm.validate(table).by()
    with pytest.raises(pm.InputFileError, match="has no column hardware"):
        pm.validate(lacking)
    with pytest.raises(pm.UsageError, match="no row was measured on h100-sxm5-80gb"):
        pm.validate(table, "h100")


def test_validate_judges_published_runs(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(RUN)
    found = pm.validate(path)
    assert isinstance(found, PublishedRuns)
    assert [row.quantity for row in found.rows] == ["step_time_s"]
    assert 0.3 < found.rows[0].ratio < 3.0


def test_validate_refuses_what_is_no_table(table: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs.csv"
    runs.write_text(RUN)
    with pytest.raises(pm.UsageError, match="the tables are of several kinds"):
        pm.validate([table, runs])
    with pytest.raises(pm.UsageError, match="tables: 3 is no path of a table"):
        pm.validate(3)  # type: ignore[arg-type]
    with pytest.raises(pm.UsageError, match="there is no table"):
        pm.validate([])
    with pytest.raises(pm.UsageError, match="workers: '2' is no whole number"):
        pm.validate(table, workers="2")  # type: ignore[arg-type]
    with pytest.raises(pm.InputFileError, match="no such file"):
        pm.validate(tmp_path / "none.csv")

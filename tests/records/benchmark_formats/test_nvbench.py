"""Records of nvbench."""

from __future__ import annotations

import pytest

from perfmodel.records.benchmark_formats import nvbench
from perfmodel.records.runs import read_bench_run


def test_the_gpu_time_of_each_state_of_a_real_record(data_dir):
    run = read_bench_run(data_dir / "benchmark_json" / "nvbench_gv100_gp100_ref.json")
    assert run.kind == "cuda"
    assert len(run.rows) == 126
    # The file says: mean 0.0010034715849794225 s, relative deviation 0.0005782350585973689, 499 samples.
    first = run.rows[0]
    assert (first.identity["op"], first.identity["device"]) == ("simple", "Quadro GV100")
    assert first.centre.time_s == 0.0010034715849794225
    assert first.centre.error == pytest.approx(0.0005782350585973689 / 499**0.5)
    assert sum(row.status == "skipped" for row in run.rows) == 38
    steps = {row.identity["dimensions"] for row in run.rows if row.identity["op"] == "single_float64_axis"}
    assert "Duration=0.0006" in steps


def _row(**state):
    document = {"benchmarks": [{"name": "copy", "states": [state]}]}
    assert nvbench.recognises(document)
    (row,) = nvbench.read(document, "n.json").rows
    return row


def test_quartiles_are_used_where_they_are():
    tags = {"median": "2e-3", "q1": "1.9e-3", "q3": "2.1e-3"}
    summaries = [{"tag": f"nv/cold/time/gpu/{k}", "data": [{"name": "value", "value": v}]} for k, v in tags.items()]
    summaries.append({"tag": "nv/cold/sample_size", "data": [{"name": "value", "value": "100"}]})
    row = _row(summaries=summaries)
    assert (row.centre.time_s, row.centre.samples, row.centre.basis) == (2e-3, 100, "quartiles")


def test_a_state_without_a_time_has_failed_and_a_strange_value_is_none():
    strange = {"tag": "nv/cold/time/gpu/mean", "data": [{"name": "value", "value": "fast"}]}
    assert _row(summaries=[strange]).status == "failed"
    skipped = _row(is_skipped=True, skip_reason="too large")
    assert (skipped.status, skipped.reason) == ("skipped", "too large")

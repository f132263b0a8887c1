"""Records of pytest-benchmark."""

from __future__ import annotations

from perfmodel.records.benchmark_formats import pytest_benchmark
from perfmodel.records.runs import read_bench_run


def test_the_median_and_its_quartiles_of_a_real_record(data_dir):
    run = read_bench_run(data_dir / "benchmark_json" / "pytest_benchmark_0001.json")
    (row,) = run.rows
    assert row.identity["op"] == "tests/test_normal.py::test_xfast_parametrized[0]"
    assert (row.centre.time_s, row.centre.samples, row.centre.basis) == (2.2016643907464864e-07, 9987, "quartiles")
    assert run.facts["Python"] == "2.7.3"


def test_rounds_that_were_kept_are_samples_and_the_cpu_is_named():
    document = {
        "machine_info": {"cpu": {"brand_raw": "A CPU"}, "python_version": "3.12"},
        "commit_info": {"id": "abc"},
        "benchmarks": [{"name": "test_x", "stats": {"median": 9.0, "data": [1.0, 3.0, 2.0]}}],
    }
    assert pytest_benchmark.recognises(document)
    run = pytest_benchmark.read(document, "p.json")
    (row,) = run.rows
    assert (row.centre.time_s, row.centre.basis, row.identity["device"]) == (2.0, "samples", "A CPU")
    assert run.facts == {"commit": "abc", "Python": "3.12"}
    document["machine_info"] = {"processor": "x86_64"}
    assert pytest_benchmark.read(document, "p.json").rows[0].identity["device"] == "x86_64"

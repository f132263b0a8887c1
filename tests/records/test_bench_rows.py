"""Benchmark records of every kind that compare reads: what a row is known by, and its time."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import InputFileError, PerfModelError
from perfmodel.records.bench_runs import read_bench_run

ROW = {
    "op": "gemm",
    "name": "gemm",
    "dimensions": "m=64 n=64 k=64",
    "dtype": "fp32",
    "kernel": "torch.matmul",
    "cache": "flushed",
    "timing": "kernel",
    "status": "ok",
    "time_s": {"median": 1e-4, "median_low": 0.99e-4, "median_high": 1.01e-4, "samples": 40},
}
CONTEXT = {
    "perfmodel": "0.1.0",
    "machine": {"cpu_count": 4, "load_average": 0.5},
    "device": {"kind": "cpu", "name": "A CPU", "threads": 2, "torch": "2.13.0"},
}


def own(**changes):
    return {"schema_version": 1, "command": "bench", "context": CONTEXT, "rows": [ROW]} | changes


@pytest.fixture
def read(tmp_path):
    def reads(document):
        path = tmp_path / "record.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return read_bench_run(path)

    return reads


def test_a_row_of_bench_is_known_by_what_was_measured_and_on_what(read):
    run = read(own())
    (row,) = run.rows
    assert row.identity == {key: ROW[key] for key in list(ROW)[:7]} | {"device": "A CPU, 2 threads"}
    assert (row.centre.time_s, row.centre.samples, row.centre.basis) == (1e-4, 40, "interval of the median")
    assert (run.kind, run.busy, run.facts) == ("cpu", "", {"perfmodel": "0.1.0", "torch": "2.13.0"})
    assert row.label == "gemm m=64 n=64 k=64 fp32 torch.matmul"


def test_samples_are_taken_before_their_statistics(read):
    (row,) = read(own(rows=[ROW | {"samples_s": [1e-4, 2e-4, 3e-4]}])).rows
    assert (row.centre.time_s, row.centre.basis) == (2e-4, "samples")


def test_a_row_without_a_time_keeps_its_status(read):
    (row,) = read(own(rows=[{"op": "gemm", "status": "failed", "reason": "why", "time_s": None}])).rows
    assert (row.centre, row.status, row.reason) == (None, "failed", "why")


def test_a_cpu_of_which_others_take_a_quarter_was_busy(read):
    machine = {"cpu_count": 4, "load_average": 1.0}
    assert read(own(context=CONTEXT | {"machine": machine})).busy == "load average 1.0 on 4 CPUs"
    gpu = {"kind": "cuda", "name": "A GPU"}
    assert read(own(context={"machine": machine, "device": gpu})).busy == ""


def test_a_timing_that_was_left_to_the_tool_may_differ(read):
    assert read(own(context=CONTEXT | {"settings": {"timing": "auto"}})).free == {"timing"}
    assert read(own(context=CONTEXT | {"settings": {"timing": "graph"}})).free == set()


def test_google_benchmarks_repetitions_are_samples(read):
    rows = [
        {
            "name": f"BM_sort/{repetition}",
            "run_name": "BM_sort",
            "run_type": "iteration",
            "real_time": time,
            "time_unit": "us",
        }
        for repetition, time in enumerate((10.0, 12.0, 11.0))
    ]
    rows.append({"name": "BM_sort_mean", "run_name": "BM_sort", "run_type": "aggregate", "real_time": 11.0})
    rows.append({"name": "BM_bad", "error_occurred": True, "error_message": "no memory"})
    good, bad = read({"context": {"num_cpus": 4}, "benchmarks": rows}).rows
    assert (good.identity["op"], good.centre.time_s, good.centre.samples) == ("BM_sort", pytest.approx(11e-6), 3)
    assert (bad.status, bad.reason) == ("failed", "no memory")


def test_hyperfines_runs_are_samples(read):
    result = {"command": "sleep 1", "mean": 1.0, "times": [1.0, 1.1, 1.2], "parameters": {"n": "3"}}
    (row,) = read({"results": [result]}).rows
    assert (row.centre.time_s, row.identity["dimensions"]) == (1.1, "n=3")
    (row,) = read({"results": [result | {"times": None}]}).rows
    assert (row.centre.time_s, row.centre.error) == (1.0, None)


def test_nvbench_gives_the_gpu_time_of_each_state(data_dir):
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


def test_pytest_benchmark_gives_the_median_and_its_quartiles(data_dir):
    run = read_bench_run(data_dir / "benchmark_json" / "pytest_benchmark_0001.json")
    (row,) = run.rows
    assert row.identity["op"] == "tests/test_normal.py::test_xfast_parametrized[0]"
    assert (row.centre.time_s, row.centre.samples, row.centre.basis) == (2.2016643907464864e-07, 9987, "quartiles")
    assert run.facts["Python"] == "2.7.3"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("", "the file is empty"),
        ("[1]", "no JSON object"),
        ({"a": 1}, "its keys: a"),
        (own(command="analyze"), "a record of 'analyze' holds no measured times"),
        (own(schema_version=2), "schema version 2 is not known; 1 is"),
        (own(rows=[]), "the record has no rows"),
        (own(rows=[{"name": "x"}]), "missing required field `op` at rows[0]"),
        (own(rows=[ROW | {"samples_s": [1.0, 0.0]}]), "row 1, samples_s: a sample of 0.0 s"),
        (own(rows=[ROW | {"samples_s": ["x"]}]), "at rows[0].samples_s[0]"),
        ({"benchmarks": []}, "the record has no rows"),
        ({"benchmarks": [{"name": "x", "real_time": 1.0, "time_unit": "h"}]}, "unknown time_unit 'h' of x"),
        ({"benchmarks": [{"name": "x", "states": [{"device": "one"}]}]}, "at benchmarks[0].states[0].device"),
    ],
)
def test_what_is_no_record_is_said(read, document, said):
    with pytest.raises(InputFileError) as error:
        read(document)
    assert said in str(error.value)
    assert "record.json" in str(error.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "stats", "median", "data", "states", "rounds", "times"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


@given(_JSON, st.sampled_from(["benchmarks", "results", "rows"]))
def test_no_document_gives_another_error(tmp_path_factory, inner, key):
    path = tmp_path_factory.mktemp("any") / "record.json"
    path.write_text(json.dumps({"command": "bench", key: inner}))
    run, complaint = None, ""
    try:
        run = read_bench_run(path)
    except PerfModelError as error:
        complaint = str(error)
    assert run.rows if run else str(path) in complaint

"""Records of ``perfmodel bench`` as rows to compare, and how the reader of a tool is found."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.core.report import SCHEMA_VERSION
from perfmodel.errors import InputFileError, PerfModelError
from perfmodel.plugins import Plugin, module_names, warn_once
from perfmodel.records.runs import benchmark_formats, read_bench_run

ROW = {
    "op": "gemm",
    "name": "gemm",
    "dimensions": "m=64 n=64 k=64",
    "dtype": "fp32",
    "kernel": "torch.matmul",
    "cache": "cold",
    "timing": "kernel",
    "hardware": "a-cpu",
    "status": "ok",
    "time_s": {"median": 1e-4, "median_low": 0.99e-4, "median_high": 1.01e-4, "samples": 40},
}
CONTEXT = {
    "perfmodel": "0.1.0",
    "machine": {"cpu_count": 4, "load_average": 0.5},
    "device": {"kind": "cpu", "name": "A CPU", "threads": 2, "torch": "2.13.0"},
}


def own(**changes):
    return {"schema_version": SCHEMA_VERSION, "command": "bench", "context": CONTEXT, "rows": [ROW]} | changes


@pytest.fixture
def read(tmp_path):
    def reads(document):
        path = tmp_path / "record.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return read_bench_run(path)

    return reads


def test_a_row_is_identified_by_what_was_measured_and_on_what(read):
    run = read(own())
    (row,) = run.rows
    assert row.identity == {key: ROW[key] for key in list(ROW)[:7]} | {"device": "A CPU, 2 threads"}
    assert (row.centre.time_s, row.centre.samples, row.centre.basis) == (1e-4, 40, "interval of the median")
    assert (run.kind, run.busy, run.facts) == ("cpu", "", {"perfmodel": "0.1.0", "torch": "2.13.0"})
    assert row.label == "gemm m=64 n=64 k=64 fp32 torch.matmul"


def test_a_record_of_version_1_has_the_same_identity_as_one_of_version_2(read):
    old = read(own(schema_version=1, rows=[ROW | {"cache": "flushed"}]))
    assert old.rows[0].identity == read(own()).rows[0].identity


def test_samples_take_precedence_over_their_statistics(read):
    (row,) = read(own(rows=[ROW | {"samples_s": [1e-4, 2e-4, 3e-4]}])).rows
    assert (row.centre.time_s, row.centre.basis) == (2e-4, "samples")


def test_a_row_without_a_time_keeps_its_status(read):
    (row,) = read(own(rows=[ROW | {"status": "failed", "reason": "why", "time_s": None}])).rows
    assert (row.centre, row.status, row.reason) == (None, "failed", "why")


def test_a_cpu_is_busy_when_others_use_a_quarter_of_it(read):
    def busy(load, **context):
        return read(own(context=CONTEXT | {"machine": {"cpu_count": 4, "load_average": load}} | context)).busy

    assert busy(1.0) == "load average 1.0 on 4 CPUs"
    assert busy(0.99) == ""
    # loads and CPUs that no machine has are not believed
    assert busy(10**400) == busy(1.0, machine={"cpu_count": 10**400, "load_average": 8.0}) == ""
    # a GPU's kernels start later beside other work
    assert busy(1.0, device={"kind": "cuda", "name": "A GPU"}) == "load average 1.0 on 4 CPUs"


def test_a_timing_that_was_left_to_the_tool_may_differ(read):
    assert read(own(context=CONTEXT | {"settings": {"timing": "auto"}})).free == {"timing"}
    assert read(own(context=CONTEXT | {"settings": {"timing": "graph"}})).free == set()


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("", "the file is empty"),
        ("[1]", "not a JSON object"),
        ({"a": 1}, "its keys: a"),
        (own(command="analyze"), "is a record of 'analyze'; one of bench is needed"),
        (own(schema_version=3), "schema version 3 is not known; 1 and 2 are"),
        (own(rows=[]), "the record has no rows"),
        (own(rows=[{"name": "x"}]), "missing required field `op` at rows[0]"),
        (own(rows=[ROW | {"samples_s": [1.0, 0.0]}]), "row 1, samples_s: a sample of 0.0 s"),
        (own(rows=[ROW | {"samples_s": ["x"]}]), "at rows[0].samples_s[0]"),
        ({"benchmarks": []}, "its keys: benchmarks"),
        ({"benchmarks": [{"name": "x", "states": [{"device": "one"}]}]}, "at benchmarks[0].states[0].device"),
    ],
)
def test_what_is_not_a_record_is_refused(read, document, said):
    with pytest.raises(InputFileError) as error:
        read(document)
    assert said in str(error.value)
    assert "record.json" in str(error.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "stats", "median", "data", "states", "rounds", "times", "real_time", "command"]),
            inner,
            max_size=4,
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


# --- formats

NVBENCH = {"benchmarks": [{"name": "x", "states": []}], "devices": []}
PYTEST = {"benchmarks": [{"name": "x", "stats": {}}], "machine_info": {}}
GOOGLE = {"benchmarks": [{"name": "x", "real_time": 1.0}], "context": {}}
HYPERFINE = {"results": [{"command": "x", "mean": 1.0}]}


@pytest.mark.parametrize(
    ("document", "name"),
    [
        (own(), "bench"),
        (NVBENCH, "nvbench"),
        (PYTEST, "pytest_benchmark"),
        (GOOGLE, "google_benchmark"),
        (HYPERFINE, "hyperfine"),
    ],
)
def test_exactly_one_format_recognises_a_document(document, name):
    recognised = [module.__name__ for module in benchmark_formats() if module.recognises(document)]
    assert recognised == [f"perfmodel.records.benchmark_formats.{name}"]


PLUGIN = """
from perfmodel.comparison.noise import centre_of_statistics
from perfmodel.comparison.pairing import BenchRow, BenchRun

def recognises(document):
    return isinstance(document, dict) and "criterion" in document

def read(document, place):
    rows = [BenchRow({"op": n}, centre_of_statistics({"median": t})) for n, t in document["criterion"].items()]
    return BenchRun(place, tuple(rows))
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Install a benchmark format as an entry point would: ``plugin(name, source)``."""

    installed = []

    def install(name, source):
        installed.append(f"{name}_module")
        (tmp_path / f"{name}_module.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        point = Plugin("benchmark_formats", name, f"{name}_module")
        monkeypatch.setattr("perfmodel.plugins.plugins", lambda group: [point] if group == point.group else [])
        module_names.cache_clear()
        warn_once.cache_clear()

    yield install
    module_names.cache_clear()
    for name in installed:  # and no other: a second torch.fx.graph_module has a second GraphModule
        sys.modules.pop(name, None)


def test_a_plugin_reads_the_records_of_another_tool(read, plugin):
    plugin("criterion", PLUGIN)
    (row,) = read({"criterion": {"sort": 2e-3}}).rows
    assert (row.identity["op"], row.centre.time_s) == ("sort", 2e-3)
    with pytest.raises(InputFileError, match="bench, criterion, google-benchmark"):
        read({"unknown": 1})


def test_a_plugin_without_a_reader_is_skipped_with_a_warning(read, plugin, capsys):
    plugin("broken", "def recognises(document):\n    return True\n")
    assert [module.__name__ for module in benchmark_formats() if "broken" in module.__name__] == []
    assert "broken" in capsys.readouterr().err
    assert read(own()).rows

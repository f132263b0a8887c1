"""What becomes of rows: tables of measurements, and records that are gone on with."""

from __future__ import annotations

import gzip
import json

import pytest

from perfmodel.errors import InputFileError, UsageError
from perfmodel.kernels.registry import Kernel
from perfmodel.measure import machine_facts as machine_module
from perfmodel.measure.benchmark.one_kernel import Job
from perfmodel.measure.benchmark.resume import read_earlier
from perfmodel.measure.benchmark.rows import OK, Outcome, build_row
from perfmodel.measure.machine_facts import checkout, hashed, installed, machine_facts
from perfmodel.measure.timing.timer import Timing
from perfmodel.operators.attention import Attention
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.layer_norm import LayerNorm
from perfmodel.prediction.predict import predict
from perfmodel.records.as_measurements import read_bench_record
from perfmodel.records.measurement_table import measurement_bytes, measurement_csv, measurement_rows
from perfmodel.records.measurements import read_measurements

OPERATORS = (
    Gemm(m=64, n=32, k=16, bias=True, activation="gelu", dtype="fp16", out_dtype="fp32"),
    Gemm(m=8, n=8, k=8, batch=4, dtype="fp16"),
    Elementwise(numel=1000, kind="add", num_inputs=1),
    LayerNorm(rows=8, cols=32, name="label", count=3),
    Attention(heads=4, kv_heads=2, seq_q=1, seq_kv=128, head_dim=16, causal=True, dtype="fp16"),
)
CONTEXT = {
    "perfmodel": "1",
    "hardware": ["simple"],
    "date": "today",
    "device": {"kind": "cpu", "name": "a CPU", "threads": 2},
    "settings": {"cache": "flushed", "seed": 0},
    "spec": {"name": "simple"},
}


def _kernel(op, **more):
    return Kernel("fast", op.op, "test", lambda op, inputs: None, **more)


def _jobs(machine):
    return [Job(op, _kernel(op), predict(op, machine)) for op in OPERATORS]


def _row(job, machine, time_s=2e-3, cache="warm", **more):
    timing = Timing((time_s, time_s), "converged", **more)
    return build_row(job.op, job.prediction, job.kernel, Outcome(OK, timing=timing), machine, cache)


@pytest.fixture
def rows(simple_gpu):
    return [_row(job, simple_gpu, timing="graph") for job in _jobs(simple_gpu)]


def _told(measurements):
    return [
        (
            call.hardware, call.op.op, call.op.dtype, {k: str(v) for k, v in call.one(0).op.params().items()},
            call.time_s.tolist(), call.timing, call.cache, call.implementation, call.flags.tolist(),
        )
        for call in measurements.calls
    ]  # fmt: skip


def test_a_table_says_the_same_calls_as_the_record(rows, tmp_path):
    table, record = tmp_path / "table.csv.gz", tmp_path / "record.json"
    table.write_bytes(measurement_bytes(rows, packed=True))
    record.write_text(json.dumps({"command": "bench", "rows": rows}))
    from_table, from_record = read_measurements(table), read_bench_record(record)
    assert sorted(map(str, _told(from_table))) == sorted(map(str, _told(from_record)))
    assert from_table.skipped == ()
    first = from_table.calls[0]
    assert (first.timing, first.cache, first.implementation, first.library) == ("graph", "warm", "test-fast", "test")
    assert {call.op.op for call in from_table.calls} == {"gemm", "elementwise", "layer_norm", "attention"}


def test_a_packed_table_is_the_plain_one(rows):
    assert gzip.decompress(measurement_bytes(rows, packed=True)) == measurement_csv(rows).encode()
    assert measurement_bytes(rows, packed=True) == measurement_bytes(rows, packed=True)


def test_rows_without_a_time_and_compositions_are_left_out(simple_gpu, rows, tmp_path):
    op = OPERATORS[3]
    composed = Job(op, _kernel(op, composition=lambda op: (op, op)), predict(op, simple_gpu))
    failed = build_row(op, composed.prediction, _kernel(op), Outcome("failed", "broken"), simple_gpu, "warm")
    more = [*rows, _row(composed, simple_gpu), failed, {**rows[0], "kernel": "naive"}]
    assert measurement_rows(more) == measurement_rows(rows)
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"command": "bench", "rows": more}))
    read = read_bench_record(record)
    assert len(read.calls) == len(rows)
    assert {skipped.reason: skipped.rows for skipped in read.skipped} == {
        "a composition of several kernels": 2,
        "status 'failed'": 1,
    }


def test_flags_go_along(simple_gpu):
    # 8 MB in 4 us are 2 TB/s, above the memory's 1 TB/s; and the GPU throttled
    op = Elementwise(numel=10**6, kind="copy")
    job = Job(op, _kernel(op), predict(op, simple_gpu))
    (row,) = measurement_rows([_row(job, simple_gpu, 4e-6, flag="throttled")])
    assert row["flags"] == "faster_than_dram throttled"


def test_an_empty_table_has_its_header():
    assert measurement_csv([]) == "hardware,op,dtype,time_s,timing,cache,implementation,kernel,flags\n"


def test_a_record_with_an_unknown_cache_is_refused(rows, tmp_path):
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"command": "bench", "rows": [{**rows[0], "cache": "tepid"}]}))
    with pytest.raises(InputFileError, match="tepid"):
        read_bench_record(record)


def test_rows_that_differ_in_sizes_only_are_one_group_and_a_wrong_one_is_named(simple_gpu, tmp_path):
    rows = []
    for numel in (1000, 2000, 3000):
        op = Elementwise(numel=numel, kind="add")
        rows.append(_row(Job(op, _kernel(op), predict(op, simple_gpu)), simple_gpu, numel * 1e-6))
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"command": "bench", "rows": rows}))
    (calls,) = read_bench_record(record).calls
    assert calls.op.numel.tolist() == [1000, 2000, 3000]
    assert calls.time_s.tolist() == pytest.approx([1e-3, 2e-3, 3e-3])
    assert calls.line.tolist() == [1, 2, 3]
    rows[1]["params"] = {**rows[1]["params"], "numel": -5}
    record.write_text(json.dumps({"command": "bench", "rows": rows}))
    with pytest.raises(InputFileError, match="row 2"):
        read_bench_record(record)


def _earlier(tmp_path, rows, **context):
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"command": "bench", "context": {**CONTEXT, **context}, "rows": rows}))
    return read_earlier(path)


def test_finished_rows_are_not_measured_again(simple_gpu, rows, tmp_path):
    jobs = _jobs(simple_gpu)
    assert _earlier(tmp_path, rows[:2]).left(jobs) == jobs[2:]
    assert _earlier(tmp_path, rows).left(jobs) == []
    assert _earlier(tmp_path, [rows[3]]).left(jobs) == [*jobs[:3], jobs[4]]


def test_rows_of_another_run_are_refused(simple_gpu, rows, tmp_path):
    with pytest.raises(UsageError, match="would not measure"):
        _earlier(tmp_path, rows).left(_jobs(simple_gpu)[:3])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"settings": {"cache": "warm", "seed": 0}}, "cache warm then, flushed now"),
        ({"settings": {"cache": "flushed", "seed": 1}}, "seed 1 then, 0 now"),
        ({"device": {"kind": "cpu", "name": "a CPU", "threads": 1}}, "threads 1 then, 2 now"),
        ({"device": {"kind": "cuda", "name": "a GPU"}}, "kind cuda then, cpu now"),
        ({"hardware": ["other"]}, "hardware other then, simple now"),
    ],
)
def test_another_device_or_setting_is_refused(rows, tmp_path, changed, said):
    earlier = _earlier(tmp_path, rows, **changed)
    with pytest.raises(UsageError) as refused:
        earlier.check_same(CONTEXT)
    assert said in str(refused.value)
    assert "another file to -o" in str(refused.value)


def test_the_same_run_goes_on_and_the_record_says_when(rows, tmp_path):
    earlier = _earlier(tmp_path, rows, date="yesterday")
    earlier.check_same({**CONTEXT, "date": "today", "commit": "later"})
    assert earlier.continued({"date": "today"}) == {**CONTEXT, "date": "yesterday", "resumed": ["today"]}
    assert earlier.spec == {"name": "simple"}


def test_no_file_yet_is_a_run_from_the_start(tmp_path):
    assert read_earlier(tmp_path / "none.json") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"command": "bench", "rows": 3}', "no record to go on with"),
        ('{"command": "analyze", "rows": [], "context": {}}', "cannot be resumed"),
        ('{"command": "bench", "rows": [', "record.json"),
        ("", "empty"),
    ],
)
def test_a_file_that_is_no_record_is_refused(tmp_path, text, words):
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(InputFileError) as refused:
        read_earlier(path)
    assert words in str(refused.value)


def test_a_record_without_its_machine_is_refused(rows, tmp_path):
    with pytest.raises(InputFileError, match=r"context\.spec"):
        _ = _earlier(tmp_path, rows, spec=None).spec


class FakeTelemetry:
    def facts(self):
        return {"driver": "570.1", "mig": False}

    def read(self):
        return {"power_w": 90.0}


def test_context_hides_the_identifier_of_a_gpu(scripted):
    device = scripted()
    device.uuid = "GPU-0"
    found = machine_facts(device, FakeTelemetry())["device"]
    assert found["uuid_sha256"] == hashed("GPU-0") != hashed("GPU-1")
    assert "GPU-0" not in str(found)
    assert (found["driver"], found["mig"], found["before"]) == ("570.1", False, {"power_w": 90.0})


def test_versions_of_packages_that_are_not_there_are_left_out():
    assert installed("numpy")
    assert installed("no-such-package") == ""


def test_commit_only_from_a_checkout(monkeypatch, tmp_path):
    found = checkout()
    assert not found or (len(found["commit"]) == 40 and isinstance(found["dirty"], bool))
    monkeypatch.setattr(machine_module, "shipped_folder", lambda: tmp_path / "hardware_specs")
    assert checkout() == {}

"""Rows of a benchmark as tables of measurements: the same calls as from the record."""

from __future__ import annotations

import gzip
import json

import pytest

from perfmodel.core.report import report
from perfmodel.core.vocabulary import CacheState, Timing
from perfmodel.errors import InputFileError
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.layer_norm import LayerNorm
from perfmodel.records.calls import measured_calls, read_calls
from perfmodel.records.measurements import measurement_csv, measurement_rows, read_measurements
from perfmodel.records.schema import Record


@pytest.fixture
def rows(jobs, make_row):
    return [make_row(job, timing=Timing.GRAPH) for job in jobs]


def _content(measurements):
    return [
        (
            call.hardware, call.op.op, call.op.dtype, {k: str(v) for k, v in call.one(0).op.params().items()},
            call.time_s.tolist(), call.timing, call.cache, call.implementation, call.flags.tolist(),
        )
        for call in measurements.calls
    ]  # fmt: skip


@pytest.mark.parametrize("cache", CacheState)
def test_a_table_has_the_same_calls_as_the_record(jobs, make_row, tmp_path, cache):
    rows = [make_row(job, timing=Timing.GRAPH, cache=cache) for job in jobs]
    table, record = tmp_path / "table.csv.gz", tmp_path / "record.json"
    table.write_bytes(gzip.compress(measurement_csv(rows).encode()))
    record.write_text(report(Record("bench", rows)).json_text())
    from_table, from_record = read_measurements(table), read_calls(record)
    assert sorted(map(str, _content(from_table))) == sorted(map(str, _content(from_record)))
    assert from_table.skipped == ()
    first = from_table.calls[0]
    assert (first.timing, first.cache, first.implementation, first.library) == ("graph", cache, "test-fast", "test")
    assert {call.op.op for call in from_table.calls} == {job.op.op for job in jobs}


def test_what_is_written_is_the_vocabularys_word(jobs, make_row):
    (row,) = measurement_rows([make_row(jobs[0], timing=Timing.GRAPH, cache=CacheState.COLD)])
    assert (row["cache"], row["timing"]) == ("cold", "graph")


def test_the_first_character_tells_a_record_from_a_table(rows, tmp_path):
    table, record = tmp_path / "a", tmp_path / "b.json"
    table.write_text("\ufeff" + measurement_csv(rows))
    record.write_text("\n  " + json.dumps({"schema_version": 2, "command": "bench", "rows": rows}))
    assert len(read_calls(table).calls) == len(read_calls(record).calls) == len(rows)
    with pytest.raises(InputFileError, match="no such file"):
        read_calls(tmp_path / "none")


def test_rows_without_a_time_and_compositions_are_left_out(rows, make_job, make_row):
    op = LayerNorm(rows=8, cols=32)
    composed = make_row(make_job(op, composition=lambda op: (op, op)))
    more = [*rows, composed, make_row(make_job(op), None), {**rows[0], "kernel": "naive"}]
    assert measurement_rows(more) == measurement_rows(rows)
    measurements = measured_calls(Record("bench", more))
    assert len(measurements.calls) == len(rows)
    assert {skipped.reason: skipped.rows for skipped in measurements.skipped} == {
        "a composition of several kernels": 2,
        "status 'failed'": 1,
    }


def test_flags_go_along(make_job, make_row):
    # 8 MB in 4 us are 2 TB/s, above the memory's 1 TB/s; and the GPU throttled
    job = make_job(Elementwise(numel=10**6, kind="copy"))
    (row,) = measurement_rows([make_row(job, 4e-6, flag="throttled")])
    assert row["flags"] == "faster_than_dram throttled"


def test_an_empty_table_has_its_header():
    assert measurement_csv([]) == "hardware,op,dtype,time_s,timing,cache,implementation,kernel,flags\n"


def test_rows_that_differ_in_sizes_only_are_one_group_and_a_wrong_one_is_named(make_job, make_row):
    rows = [make_row(make_job(Elementwise(numel=n, kind="add")), n * 1e-6) for n in (1000, 2000, 3000)]
    (calls,) = measured_calls(Record("bench", rows)).calls
    assert calls.op.numel.tolist() == [1000, 2000, 3000]
    assert calls.time_s.tolist() == pytest.approx([1e-3, 2e-3, 3e-3])
    assert calls.line.tolist() == [1, 2, 3]
    rows[1]["params"] = {**rows[1]["params"], "numel": -5}
    with pytest.raises(InputFileError, match="row 2"):
        measured_calls(Record("bench", rows))

"""The report of a record: its columns, and how a share of the bound is printed."""

from __future__ import annotations

import json

import pytest

from perfmodel.core.report import report
from perfmodel.records.record import read_record
from perfmodel.records.schema import MEASURED_KEYS, Record
from perfmodel.render.table import render

ROW = {"op": "gemm", "name": "gemm", "hardware": "h", "dtype": "fp16", "status": "ok", "measured_time_s": 1e-5}


def _cell(row, key):
    found = report(Record("bench", [{**ROW, **row}]))
    column = next(column for column in found.columns if column.key == key)
    return column.cell(found.rows[0])


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"efficiency": 0.264, "faster_than_bound": False}, "26.4 %"),
        ({"efficiency": 1.34, "faster_than_bound": True}, "faster than the bound"),
        ({"efficiency": None}, "-"),
    ],
)
def test_the_share_of_the_bound_is_never_above_100_percent(row, text):
    assert _cell(row, "efficiency") == text


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({}, "10 us"),
        ({"measured_time_s": None, "status": "wrong"}, "wrong"),
        ({"measured_time_s": None, "status": "out of memory"}, "out of memory"),
        ({"measured_time_s": None, "status": None}, "-"),
    ],
)
def test_a_kernel_without_a_time_says_why_in_its_place(row, text):
    assert _cell(row, "measured_time_s") == text


@pytest.mark.parametrize("op", ["all_reduce bytes=1048576 num_gpus=2", "gemm m=4096 n=4096 k=4096"])
def test_a_narrow_table_compares_what_was_measured_with_what_was_predicted(op):
    row = ROW | {
        "name": op, "kernel": "torch.matmul.with.a.long.name", "limiter": "link", "bound_time_s": 3e-9,
        "predicted_time_s": 2e-5, "prediction_error": 1.0, "efficiency": 0.0003, "achieved_bytes_per_s": 1e9,
        "bus_bytes_per_s": 1e9 if op.startswith("all_reduce") else None,
    }  # fmt: skip
    narrow, wide = (render(report(Record("bench", [row])), width=width) for width in (80, 160))
    assert max(map(len, narrow.splitlines())) <= 80
    for heading in ("predicted", "measured", "error"):
        assert heading in narrow
    assert ("bandwidth" in narrow) is op.startswith("all_reduce")
    assert "share of bound" in wide


def test_a_benchmark_has_a_column_for_every_measured_key_but_the_lists():
    keys = {column.key for column in report(Record("bench", [ROW])).columns}
    assert set(MEASURED_KEYS) - keys == {"samples_s", "sustain"}


def test_an_analysis_has_the_columns_of_a_prediction(version_1):
    record = read_record(version_1)
    analysis = report(Record("analyze", record.values, record.facts))
    assert "measured_time_s" not in {column.key for column in analysis.columns}
    assert analysis.command == "analyze"


def test_json_has_every_key_of_the_record(version_1):
    record = read_record(version_1)
    found = json.loads(report(record).json_text())
    assert found["rows"] == list(record.values)
    assert found["context"] == record.facts
    assert found["notes"] == ["memcpy, 1 shape: skipped"]

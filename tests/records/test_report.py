"""The report of a record: its columns, and how a share of the bound is printed."""

from __future__ import annotations

import json

import pytest

from perfmodel.core.report import report
from perfmodel.records.record import read_record
from perfmodel.records.schema import MEASURED_KEYS, Record

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
        ({"efficiency": None, "status": "wrong"}, "wrong"),
        ({"efficiency": None}, "-"),
        ({"efficiency": None, "status": None}, "-"),
    ],
)
def test_the_share_of_the_bound_is_never_above_100_percent(row, text):
    assert _cell(row, "efficiency") == text


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

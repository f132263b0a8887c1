"""Records: what is written is read back; a file that is none says why."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.core.report import Report
from perfmodel.errors import InputFileError, PerfModelError
from perfmodel.measure.records import read_record, write_record

ROW = {"op": "gemm", "kernel": "naive", "status": "ok", "time_s": {"median": 1.5e-3}, "extra": "kept"}


def _report(rows):
    return Report("bench", (), rows, {"hardware": ["x"], "spec": {"name": "x"}})


def test_round_trip(tmp_path):
    path = tmp_path / "record.json"
    write_record(path, _report([ROW, {**ROW, "efficiency": float("nan")}]))
    record = read_record(path)
    assert record.rows[0] == ROW
    assert record.rows[1]["efficiency"] is None, "JSON has no NaN"
    assert record.spec == {"name": "x"}
    assert json.loads(path.read_text())["schema_version"] == 1


def test_each_write_is_a_whole_record_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "record.json"
    for count in (1, 2, 3):
        write_record(path, _report([ROW] * count))
        assert len(read_record(path).rows) == count
    assert [item.name for item in tmp_path.iterdir()] == ["record.json"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"schema_version": 1, "command": "bench", "rows": [{"op"', "cut off"),
        ("not json", "not valid JSON"),
        ("[1, 2]", "no list of rows"),
        ('{"rows": {}}', "no list of rows"),
        ('{"rows": []}', "no schema_version"),
        ('{"schema_version": 2, "command": "bench", "rows": []}', "reads up to 1"),
        ('{"schema_version": 1, "command": "analyze", "rows": []}', "its command is 'analyze'"),
        ('{"schema_version": 1, "command": "bench", "rows": [{"op": "gemm"}]}', "row 1 lacks"),
        ("", "empty"),
    ],
)
def test_what_is_no_record_says_why(tmp_path, text, words):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputFileError, match=words) as caught:
        read_record(path)
    assert "bad.json" in str(caught.value)


def test_missing_file_and_directory(tmp_path):
    with pytest.raises(InputFileError, match="no such file"):
        read_record(tmp_path / "none.json")
    with pytest.raises(InputFileError, match="directory"):
        read_record(tmp_path)


@given(cut=st.integers(0, 400))
def test_no_truncation_escapes_as_another_error(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("cut") / "record.json"
    write_record(path, _report([ROW]))
    path.write_text(path.read_text()[:cut])
    with contextlib.suppress(PerfModelError):
        assert read_record(path).rows

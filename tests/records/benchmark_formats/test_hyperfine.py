"""Records of hyperfine."""

from __future__ import annotations

from perfmodel.records.benchmark_formats import hyperfine

RESULT = {"command": "sleep 1", "mean": 1.0, "times": [1.0, 1.1, 1.2], "parameters": {"n": "3"}}


def _row(**changes):
    document = {"results": [RESULT | changes]}
    assert hyperfine.recognises(document)
    (row,) = hyperfine.read(document, "h.json").rows
    return row


def test_runs_are_samples():
    row = _row()
    assert (row.identity["op"], row.identity["dimensions"]) == ("sleep 1", "n=3")
    assert (row.centre.time_s, row.centre.samples) == (1.1, 3)


def test_without_runs_the_statistics_count():
    row = _row(times=None)
    assert (row.centre.time_s, row.centre.error) == (1.0, None)
    assert _row(times=[1.0, -1.0, 2.0]).centre.time_s == 1.0, "a time below zero is not a sample"
    assert _row(times=[7.0]).centre.time_s == 1.0, "one sample has no spread"


def test_a_command_without_a_time_has_failed():
    row = _row(times=None, mean=None)
    assert (row.status, row.reason, row.centre) == ("failed", "the record holds no time", None)


def test_other_documents_are_not_recognised():
    for document in ([], {}, {"results": []}, {"results": [1]}, {"results": {"command": 1}}):
        assert not hyperfine.recognises(document)

"""Measured calls from records: what cannot be a call is one message with its row."""

from __future__ import annotations

import json

import pytest

from perfmodel.errors import InputFileError
from perfmodel.records.calls import read_calls


@pytest.mark.parametrize(
    ("params", "part"),
    [
        ({"m": 10**400, "n": 64, "k": 64}, "too large"),
        ({"m": [1, 2], "n": 64, "k": 64}, "m: one call has one size"),
        ({"m": -1, "n": 64, "k": 64}, "m"),
        ({"m": 64, "n": 64, "k": 64, "colour": "red"}, "colour"),
    ],
    ids=["huge", "several", "negative", "unknown"],
)
def test_parameters_that_no_operator_has_are_one_message_with_the_row(tmp_path, params, part):
    row = {
        "op": "gemm",
        "hardware": "l4",
        "dtype": "fp16",
        "kernel": "torch.mm",
        "status": "ok",
        "measured_time_s": 1e-5,
    }
    good = {**row, "params": {"m": 64, "n": 64, "k": 64}}
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"schema_version": 2, "command": "bench", "rows": [good, {**row, "params": params}]}))
    with pytest.raises(InputFileError, match=r"record\.json: row 2: .*" + part):
        read_calls(path)

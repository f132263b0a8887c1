"""The table by operator: what a call is, and how long single calls take."""

import json

import pytest

from perfmodel.diagnosis.diagnose import diagnose
from perfmodel.diagnosis.operator_table import operator_rows
from perfmodel.formats import read_profile


def event(cat, name, ts, dur, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}


@pytest.fixture
def rows(tmp_path):
    """Return the rows by name of a run in which each of two operators launches the same kernel twice."""

    def call(by):
        events = []
        for call, (first_us, second_us) in enumerate(((10, 20), (30, 60))):
            start = 1000 * call
            events.append(event("cpu_op", "aten::two", start, 90))
            for number, dur in enumerate((first_us, second_us)):
                both = {"correlation": 2 * call + number + 1}
                events.append(event("cuda_runtime", "cudaLaunchKernel", start + 10 * number, 5, **both))
                events.append(event("kernel", "part", start + 100 + 100 * number, dur, device=0, stream=7, **both))
        path = tmp_path / "trace.json"
        path.write_text(json.dumps({"traceEvents": events}))
        return {row.name: row for row in operator_rows(diagnose(read_profile(path, by=by)))}

    return call


def test_a_call_of_an_operator_is_all_that_it_launched(rows):
    row = rows("op")["aten::two"]
    assert row.calls == 2
    assert (row.min_s, row.median_s, row.max_s) == pytest.approx((30e-6, 60e-6, 90e-6))


def test_a_call_of_a_kernel_is_one_launch(rows):
    row = rows("kernel")["part"]
    assert row.calls == 4
    assert (row.min_s, row.median_s, row.max_s) == pytest.approx((10e-6, 25e-6, 60e-6))

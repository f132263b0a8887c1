"""Records of google-benchmark."""

from __future__ import annotations

import msgspec
import pytest

from perfmodel.records.benchmark_formats import google_benchmark


def _rows(*rows):
    document = {"context": {"num_cpus": 4}, "benchmarks": list(rows)}
    assert google_benchmark.recognises(document)
    return google_benchmark.read(document, "g.json").rows


def test_repetitions_are_samples_and_aggregates_are_left_out():
    rows = [
        {"name": f"BM_sort/{n}", "run_name": "BM_sort", "run_type": "iteration", "real_time": time, "time_unit": "us"}
        for n, time in enumerate((10.0, 12.0, 11.0))
    ]
    rows.append({"name": "BM_sort_mean", "run_name": "BM_sort", "run_type": "aggregate", "real_time": 99.0})
    rows.append({"name": "BM_bad", "error_occurred": True, "error_message": "no memory"})
    good, bad = _rows(*rows)
    assert (good.identity["op"], good.centre.time_s, good.centre.samples) == ("BM_sort", pytest.approx(11e-6), 3)
    assert (bad.status, bad.reason) == ("failed", "no memory")


@pytest.mark.parametrize(("unit", "seconds"), [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)])
def test_every_unit_of_time(unit, seconds):
    (row,) = _rows({"name": "x", "real_time": 3.0, "time_unit": unit})
    assert row.centre.time_s == pytest.approx(3 * seconds)


def test_an_unknown_unit_is_refused():
    with pytest.raises(msgspec.ValidationError, match="Unknown time_unit 'h' of x"):
        _rows({"name": "x", "real_time": 1.0, "time_unit": "h"})

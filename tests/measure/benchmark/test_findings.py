"""What a benchmark found, in sentences."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from perfmodel.measure.benchmark.findings import findings  # noqa: E402


def test_findings_set_compositions_beside_what_the_model_expects():
    row = dict.fromkeys(("note", "discarded", "time_s", "composition_time_s"), None)
    row |= {"op": "layer_norm", "name": "layer_norm", "dimensions": "rows=4", "dtype": "fp32", "status": "ok"}
    row |= {"prediction_error": 0.1, "predicted_time_s": 1e-3}
    row |= {"predicted_time_low_s": 0.8e-3, "predicted_time_high_s": 1.25e-3}
    library = {**row, "kernel": "library", "measured_time_s": 2e-3}
    expected = {"composition_time_s": 4e-3, "composition_time_low_s": 2.5e-3, "composition_time_high_s": 6e-3}
    naive = {**row, "kernel": "naive", "measured_time_s": 6e-3, **expected}
    said = findings([library, naive])
    # measured 6 ms / 2 ms; expected 4 ms / 1 ms, with ln 1.6 and ln 1.25 below, 0.52, and ln 1.5 and ln 1.25 above
    assert (
        "layer_norm: naive, a composition, takes 3.00 x the time of library (median of 1 shape); "
        "the model expects 4.00 x (2.38 to 6.35), which holds for 1 of 1"
    ) in said
    assert any(
        sentence.startswith("prediction error of single kernels") and "10 % (+10 %)" in sentence for sentence in said
    )
    outside = {**naive, "measured_time_s": 14e-3}
    assert any("holds for 0 of 1" in sentence for sentence in findings([library, outside]))


def test_rows_without_a_time_are_listed_once_for_each_reason():
    row = {"op": "gemm", "name": "gemm", "dimensions": "m=1", "dtype": "fp32", "kernel": "fast", "note": None}
    row |= {"status": "skipped", "reason": "needs a GPU", "time_s": None}
    assert findings([row, row, {**row, "kernel": "other"}]) == (
        "gemm fast, 2 shapes: skipped: needs a GPU",
        "gemm m=1 fp32 other: skipped: needs a GPU",
    )

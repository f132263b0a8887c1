"""Predictions as a profiler would show them: a kernel without the gap to the next one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.diagnosis.limits import limit
from perfmodel.diagnosis.profiled import gap_time, profiled_time
from perfmodel.hardware_catalog import hardware
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm
from perfmodel.prediction.predict import predict
from perfmodel.profile.profile import ProfileEntry

H100, B300, MI300X = map(hardware, ("h100-sxm5-80gb", "b300-sxm-288gb", "mi300x"))


def test_a_short_kernel_of_a_fitted_machine_is_half_a_launch_floor_shorter():
    op = Elementwise(numel=72192, kind="add", num_inputs=2, dtype="bf16")
    prediction = predict(op, H100, library="torch")
    assert profiled_time(prediction, H100) == pytest.approx(float(prediction.predicted_time_s) - 0.5 * 0.93e-6)
    entry = ProfileEntry("add", 17e-6, 10, "kernel", op=op, launched_by="aten::add")
    assert limit(entry, H100).predicted_time_s == pytest.approx(10 * profiled_time(prediction, H100))


def test_constants_of_other_machines_know_no_gap():
    op = Elementwise(numel=72192, kind="add", num_inputs=2, dtype="bf16")
    for machine in (B300, MI300X):
        prediction = predict(op, machine, library="torch")
        assert profiled_time(prediction, machine) == float(prediction.predicted_time_s)
    assert gap_time(B300) > 0.0 == gap_time(MI300X)


@given(st.integers(1, 4096), st.integers(1, 4096), st.sampled_from(("fp32", "bf16", "fp16")))
def test_it_is_between_the_bound_and_the_time_with_its_gap(m, n, dtype):
    for op in (Gemm(m=m, n=n, k=64, dtype=dtype), Elementwise(numel=m * n, kind="add", dtype=dtype)):
        prediction = predict(op, H100)
        assert float(prediction.bound_time_s) <= profiled_time(prediction, H100) <= float(prediction.predicted_time_s)

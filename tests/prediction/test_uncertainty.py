"""What an interval is made of: what the constants have not seen, and how errors add up over operators."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.core.report import report
from perfmodel.core.vocabulary import Calibration, ErrorSource
from perfmodel.prediction.explain import explain_intervals
from perfmodel.prediction.uncertainty import MEANINGS, Z80, Uncertainty, half_width, of_sum, shape_of
from perfmodel.prediction.whole_model import RUN_DEVIATION, predict_model, run_deviation

SHAPE, MACHINE = ErrorSource.SHAPE, ErrorSource.MACHINE
PRODUCT = pm.Gemm(m=4096, n=4096, k=4096, dtype="bf16")


def width(prediction):
    return float(prediction.predicted_time_high_s / prediction.predicted_time_low_s)


def test_errors_of_shapes_average_out_and_those_of_a_machine_add_up() -> None:
    parts = [(1.0, shape, {SHAPE: 0.04, MACHINE: 0.01}) for shape in range(4)]
    # four equal shares of 0.2: sqrt(4 (0.2 / 4)^2) = 0.1; the machine's 0.1 is the same in all of them
    assert of_sum(parts) == pytest.approx({SHAPE: 0.1**2, MACHINE: 0.1**2})


def test_a_kind_of_kernel_that_nobody_measured_has_one_error_for_all_its_shapes() -> None:
    swiglus = [pm.Swiglu(rows=rows, cols=4096, dtype="bf16") for rows in (2048, 4096, 8192, 16384)]
    one = pm.predict(swiglus[-1], "h100", library="triton")
    assert one.uncertainty.variances("large")[ErrorSource.KERNEL] > 10 * one.uncertainty.variances("large")[SHAPE]
    assert width(one) <= 4.0
    whole = predict_model(swiglus, pm.hardware("h100"), library="triton")
    alone = one.uncertainty.variances("large")[ErrorSource.KERNEL]
    assert whole.variances[ErrorSource.KERNEL] == pytest.approx(alone, rel=0.05)
    assert whole.variances[SHAPE] < 0.7 * one.uncertainty.variances("large")[SHAPE]


def test_the_roofline_names_the_kind_of_kernel_as_what_nobody_measured() -> None:
    found = pm.predict(pm.Transpose(rows=4096, cols=4096), "h100")
    assert found.family == "roofline"
    assert tuple(found.uncertainty) == (ErrorSource.KERNEL,)


def test_calls_of_one_shape_have_the_same_error() -> None:
    parts = [(1.0, "same", {SHAPE: 0.04})] * 4
    assert of_sum(parts) == pytest.approx({SHAPE: 0.04})


def test_two_parts_of_a_sweep_share_their_error_where_their_shapes_are_the_same() -> None:
    """Of two equal shares: (0.1 + 0.1)^2 for the same shape, 2 x 0.1^2 for two."""
    swept = shape_of(pm.Gemm(m=np.array([64, 128]), n=64, k=64))
    for other, expected in (
        (shape_of(pm.Gemm(m=64, n=64, k=64)), [0.04, 0.02]),
        (shape_of(pm.Gemm(m=np.array([32, 128]), n=64, k=64)), [0.02, 0.04]),
        (shape_of(pm.Gemm(m=64, n=64, k=32)), [0.02, 0.02]),
    ):
        parts = [(np.ones(2), shape, {SHAPE: np.full(2, 0.04)}) for shape in (swept, other)]
        for ordered in (parts, parts[::-1]):
            assert of_sum(ordered)[SHAPE] == pytest.approx(expected)


def test_a_part_that_takes_no_time_adds_no_error() -> None:
    parts = [(1.0, "a", {SHAPE: 0.04}), (0.0, "b", {SHAPE: 9.0, MACHINE: 9.0})]
    assert of_sum(parts) == pytest.approx({SHAPE: 0.04, MACHINE: 0.0})


def test_half_width_is_that_of_a_normal_distribution() -> None:
    # 10 % of a normal distribution lie above 1.2816 standard deviations
    assert half_width([0.03, 0.01]) == pytest.approx(1.2816 * 0.2)


def test_a_library_that_nobody_measured_is_never_seen_and_widens_the_interval() -> None:
    machine = pm.hardware("h100-sxm5-80gb")
    known, unknown = (pm.predict(PRODUCT, machine, library=name) for name in ("trtllm", "nonsense"))
    assert (known.calibration, unknown.calibration) == (Calibration.CALIBRATED, Calibration.NEVER_SEEN)
    assert width(unknown) > width(known)
    assert known.rows()[0]["not_seen"] == []
    assert unknown.rows()[0]["not_seen"] == ["library"]


def test_what_was_measured_elsewhere_only_is_not_calibrated() -> None:
    # an H200 has rows of other libraries, and an H100 those of this one
    prediction = pm.predict(PRODUCT, pm.hardware("h200-sxm-141gb"), library="vidur")
    assert prediction.rows()[0]["not_seen"] == ["library_here"]
    assert prediction.calibration == Calibration.SAME_GENERATION
    assert "constants of this machine" in prediction.prediction_basis


@pytest.mark.parametrize("machine", ["h100-sxm5-80gb", "mi250x"])
@pytest.mark.parametrize("dtype", ["fp64", "fp32", "bf16"])
def test_a_library_that_nobody_measured_is_no_surer_than_one_that_was_measured_elsewhere(
    machine: str, dtype: str
) -> None:
    for numel in (1e3, 1e7, 1e9):  # vLLM's elementwise kernels have rows on an RTX 4090 alone
        op = pm.Elementwise(numel=numel, dtype=dtype)
        elsewhere, nowhere = (pm.predict(op, machine, library=name).estimate.spread for name in ("vllm", "nonsense"))
        assert nowhere.half_width() >= elsewhere.half_width(), numel


def test_shares_add_up_to_one_for_each_point_of_a_sweep() -> None:
    machine = pm.hardware("l4")
    swept = pm.predict(pm.Gemm(m=np.array([8, 4096]), n=4096, k=4096, dtype="bf16"), machine, library="nonsense")
    for row, m in zip(swept.rows(), (8, 4096), strict=True):
        (alone,) = pm.predict(pm.Gemm(m=m, n=4096, k=4096, dtype="bf16"), machine, library="nonsense").rows()
        assert sum(row["interval_shares"].values()) == pytest.approx(1.0)
        assert row["interval_shares"] == pytest.approx(alone["interval_shares"])
        assert row["not_seen"] == ["machine", "library", *(["power"] if m == 4096 else [])]


def test_points_of_two_families_have_their_own_sources() -> None:
    """One query of a longer sequence is decode, more are prefill; their variances differ."""
    machine = pm.hardware("h100-sxm5-80gb")
    swept = pm.predict(
        pm.Attention(heads=32, seq_q=np.array([1, 4096]), seq_kv=4096, head_dim=128, dtype="bf16"), machine
    )
    for row, queries in zip(swept.rows(), (1, 4096), strict=True):
        (alone,) = pm.predict(
            pm.Attention(heads=32, seq_q=queries, seq_kv=4096, head_dim=128, dtype="bf16"), machine
        ).rows()
        assert row["interval_shares"] == pytest.approx(alone["interval_shares"])


def test_the_interval_follows_from_the_variances_of_its_point() -> None:
    (point,) = explain_intervals([pm.predict(PRODUCT, pm.hardware("l4"), library="nonsense")])
    rows = report([point]).rows
    assert [row["source"] for row in rows] == ["shape", "machine", "library", "power"]
    assert sum(row["share"] for row in rows) == pytest.approx(1.0)
    # the bound cuts the low end
    stated = math.log(point.row["predicted_time_high_s"] / point.row["predicted_time_s"])
    assert stated == pytest.approx(half_width(point.variances.values()), rel=0.02)
    for row in rows:
        assert 0.0 < row["low"] < 1.0 < row["high"]


def test_an_interval_of_one_source_is_that_of_the_prediction(simple_gpu) -> None:
    """A roofline is near the fast end of what is to be expected: kernels reach shares of a peak that lie 0.16 apart."""
    (point,) = explain_intervals([pm.predict(pm.Elementwise(numel=10**8), dataclasses.replace(simple_gpu, kind="cpu"))])
    (row,) = report([point]).rows
    time_s = point.row["predicted_time_s"]
    assert row["low"] == pytest.approx(point.row["predicted_time_low_s"] / time_s)
    assert row["low"] == pytest.approx(math.exp(-Z80 * 0.16))
    assert row["high"] == pytest.approx(point.row["predicted_time_high_s"] / time_s)


def test_every_source_has_a_meaning() -> None:
    assert set(MEANINGS) == set(ErrorSource)


def test_no_part_knows_nothing() -> None:
    assert Uncertainty().variances("mid") == {}
    assert list(Uncertainty()) == []


def test_a_whole_model_is_surer_of_its_shapes_than_each_operator_and_not_of_its_machine() -> None:
    machine = pm.hardware("l4")
    operators = [pm.Gemm(m=512 * k, n=4096, k=4096, dtype="bf16", count=k) for k in range(1, 9)]
    whole = predict_model(operators, machine, library="trtllm").variances
    alone = [part.variances for part in predict_model(operators, machine, library="trtllm").parts]
    assert whole[SHAPE] < 0.5 * min(one[SHAPE] for one in alone)
    lowest, highest = (end(one[MACHINE] for one in alone) for end in (min, max))
    assert lowest * (1 - 1e-9) <= whole[MACHINE] <= highest * (1 + 1e-9)
    assert whole[ErrorSource.RUN] == run_deviation(machine) ** 2


def test_a_machine_whose_clock_varies_states_a_wider_interval_of_whole_runs() -> None:
    varying = pm.hardware("p4")
    assert varying.run_deviation is not None
    assert varying.run_deviation > RUN_DEVIATION
    usual = dataclasses.replace(varying, run_deviation=None)
    operators = [pm.Gemm(m=512, n=4096, k=4096, dtype="fp32", count=8)]
    wide, narrow = (predict_model(operators, machine, library="torch") for machine in (varying, usual))
    assert wide.time_s == narrow.time_s
    assert wide.low_s < narrow.low_s
    assert wide.high_s > narrow.high_s


@pytest.mark.parametrize(
    ("machine", "seen"), [("h100", True), ("rtx-4090", True), ("v100-pcie-32gb", False), ("mi300x", False)]
)
def test_collectives_over_a_kind_of_link_that_nobody_measured_say_so(machine: str, seen: bool) -> None:
    prediction = pm.predict(pm.AllReduce(bytes=2.0**20, num_gpus=2), pm.hardware(machine), library="nccl")
    assert ("link" in prediction.rows()[0]["not_seen"]) is not seen

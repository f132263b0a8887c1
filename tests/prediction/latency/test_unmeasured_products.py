"""Products of kinds that the tables hardly have: what they are priced as, and how sure that is."""

from __future__ import annotations

import numpy as np
import pytest

import perfmodel as pm

FP4 = {"dtype": "fp4", "scale": "group:16", "out_dtype": "bf16", "quantized": True}


def _narrow_s(machine: str, library: str, m: int = 4096) -> float:
    op = pm.Gemm(m=m, n=8192, k=8192, dtype="bf16", weight_dtype="int4", scale="group:128")
    return float(pm.predict(op, machine, library=library).predicted_time_s)


def _width(prediction: pm.Prediction) -> float:
    return float(np.asarray(prediction.predicted_time_high_s) / np.asarray(prediction.predicted_time_low_s))


@pytest.mark.parametrize("machine", ["h100", "h200", "b200", "b300"])
def test_marlin_is_as_slow_as_mma_sync_where_the_engine_has_another_instruction(machine: str) -> None:
    # m n k alike in both, so that only the instruction differs; 62.9 % of 4096 FLOP a clock and SM is the most
    hardware = pm.hardware(machine)
    most = 0.629 * 4096.0 * hardware.sm_count * (hardware.native_peak("bf16").clock_hz or 0.0)
    assert 2.0 * 4096 * 8192**2 / _narrow_s(machine, "marlin") < most
    assert _narrow_s(machine, "marlin") > 1.2 * _narrow_s(machine, "cutedsl")


def test_marlin_is_the_kernel_that_a100_has_anyway() -> None:
    assert _narrow_s("a100-sxm4-80gb", "marlin") == pytest.approx(_narrow_s("a100-sxm4-80gb", "machete"))


def test_few_rows_wait_for_their_weights_by_any_instruction() -> None:
    assert _narrow_s("h100", "marlin", m=1) == pytest.approx(_narrow_s("h100", "machete", m=1), rel=0.1)


def test_the_same_call_again_may_find_its_weights_in_a_large_l2() -> None:
    thin, large = (pm.Gemm(m=m, n=6144, k=4096, dtype="bf16") for m in (16, 4096))
    for op, wider in ((thin, True), (large, False)):
        warm, cold = (pm.predict(op, "rtx-5090", cache=state) for state in ("warm", "cold"))
        assert (_width(warm) > 1.2 * _width(cold)) is wider
    beyond = pm.Gemm(m=16, n=32768, k=8192, dtype="bf16")  # 512 MiB of weights
    warm, cold = (pm.predict(beyond, "rtx-5090", cache=state) for state in ("warm", "cold"))
    assert _width(warm) == pytest.approx(_width(cold), rel=0.02)


def test_four_bit_kernels_of_another_library_are_less_sure() -> None:
    op = pm.Gemm(m=16, n=6144, k=4096, **FP4)  # type: ignore[arg-type]
    known, other = (pm.predict(op, "b200", library=name) for name in ("trtllm", "vllm_cutlass"))
    assert _width(other) > 1.5 * _width(known)

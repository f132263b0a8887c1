"""Products of two dtypes and with scales of blocks: limiting cases, bounds, agreement with measurements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.accuracy.validate import judge
from perfmodel.core.vocabulary import Calibration, Timing
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Family
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.mixed_gemm import (
    FAMILIES,
    GEMM_FP8_BLOCK,
    PACKING_START,
    VECTOR_ROWS,
    block_scaled,
)
from perfmodel.prediction.latency.terms import LAUNCH
from perfmodel.records.measurements import read_measurements

A100, H100, B200, L40S = (hardware(name) for name in ("a100-sxm4-80gb", "h100-sxm5-80gb", "b200-sxm-180gb", "l40s"))
CASES = [(A100, "int4_wo", "gemm_w4a16"), (A100, "int8_wo", "gemm_w8a16"), (A100, "sq", "gemm_w8a8"),
         *((machine, "fp8_block", "gemm_fp8_block") for machine in (H100, B200, L40S))]  # fmt: skip
sizes = st.integers(1, 64).map(lambda blocks: 128 * blocks)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_at_most_twelve_constants_inside_their_limits(family: Family) -> None:
    assert len(family.all_constants) <= 12
    for constant in family.constants:
        assert constant.low < constant.default < constant.high


@pytest.mark.parametrize(("machine", "dtype", "family"), CASES)
@given(m=st.integers(1, 5000), n=sizes, k=sizes)
def test_never_faster_than_the_bound_and_the_sum_of_its_terms(
    machine: pm.Hardware, dtype: str, family: str, m: int, n: int, k: int
) -> None:
    found = pm.predict(pm.Gemm(m=m, n=n, k=k, dtype=dtype), machine)
    assert found.family == family
    assert found.calibration == Calibration.CALIBRATED
    assert found.predicted_time_s >= found.bound_time_s
    assert sum(found.predicted_terms_s.values()) == pytest.approx(found.predicted_time_s)
    assert all(value >= 0 for name, value in found.predicted_terms_s.items() if name != "tile waste")


@pytest.mark.parametrize(("machine", "dtype", "family"), CASES)
def test_scalar_equals_array(machine: pm.Hardware, dtype: str, family: str) -> None:
    m = np.array([1, 3, 5, 64, 4097])
    together = pm.predict(pm.Gemm(m=m, n=4096, k=7168, dtype=dtype), machine)
    for index, rows in enumerate(m.tolist()):
        alone = pm.predict(pm.Gemm(m=rows, n=4096, k=7168, dtype=dtype), machine)
        assert together.predicted_time_s[index] == pytest.approx(alone.predicted_time_s)


def test_narrow_weights_pay_for_few_rows_and_not_for_many() -> None:
    """Streaming 4 of 16 bits is 2 to 4 times as fast; at 2048 rows both are limited by the same arithmetic."""

    def gain(m: int) -> float:
        sizes: dict[str, Any] = {"m": m, "n": 8192, "k": 8192}
        wide, narrow = (pm.predict(pm.Gemm(**sizes, dtype=d), A100, library="trtllm") for d in ("fp16", "int4_wo"))
        return float(wide.predicted_time_s / narrow.predicted_time_s)

    assert 2.0 < gain(16) < 4.0
    assert 0.7 < gain(2048) < 1.1
    assert pm.predict(pm.Gemm(m=64, n=8192, k=8192, dtype="int4_wo"), A100).predicted_terms_s["dequantisation"] >= 0


def test_few_rows_of_smooth_quant_are_products_with_a_vector() -> None:
    """Beyond them a tile of the tensor engine has idle rows; the vector has none, so that it takes longer with each."""
    times = [
        pm.predict(pm.Gemm(m=m, n=65536, k=8192, dtype="sq"), A100).predicted_terms_s for m in (1, VECTOR_ROWS, 16)
    ]
    assert times[0]["tile waste"] == times[1]["tile waste"] == 0.0
    assert sum(times[0].values()) <= sum(times[1].values())


def test_tensorrt_llm_on_b200_copies_rows_whose_scales_are_not_aligned() -> None:
    odd, even = (pm.predict(pm.Gemm(m=m, n=4096, k=4096, dtype="fp8_block"), B200, library="trtllm") for m in (65, 64))
    assert odd.predicted_terms_s["realignment"] > 5e-6
    assert even.predicted_terms_s["realignment"] == 0.0


def test_a_quantised_input_is_quantised_by_nobody() -> None:
    sizes: dict[str, Any] = {"m": 4096, "n": 4096, "k": 4096, "dtype": "fp8_block"}
    whole, alone = (pm.predict(pm.Gemm(**sizes, quantized=given), H100, library="sglang") for given in (False, True))
    saved = whole.predicted_time_s - alone.predicted_time_s
    start = whole.predicted_terms_s["launch"] - alone.predicted_terms_s["launch"]
    assert start > 0
    assert saved == pytest.approx(whole.predicted_terms_s["quantisation"] + start)


def test_scales_are_packed_by_a_kernel_of_their_own_for_tcgen05_alone() -> None:
    machine = Machine.of(B200, B200.find_peak("fp8", "tensor"))
    values = {constant.name: constant.default for constant in GEMM_FP8_BLOCK.all_constants}
    op = pm.Gemm(m=64, n=4096, k=4096, dtype="fp8_block")

    def start_s(instruction: str, *, quantized: bool = False) -> Any:
        own = replace(machine, matrix_instruction=instruction)
        return block_scaled(op.changed(quantized=quantized), own, values, Conditions(library="trtllm")).adds[LAUNCH]

    packed = PACKING_START / machine.clock_hz
    assert start_s("tcgen05") - start_s("wgmma") == pytest.approx(packed)
    assert start_s("tcgen05", quantized=True) == start_s("wgmma", quantized=True)


def test_integers_that_are_not_quantised_pay_a_pass_over_them() -> None:
    """A of 4096 x 8192 in 16 bits is read and written in 8: 3 B each, and 4 B a row."""
    op = pm.Gemm(m=4096, n=4096, k=8192, dtype="sq")
    whole, alone = (pm.predict(op.changed(quantized=given), A100, library="trtllm") for given in (False, True))
    passed = (3 * 4096 * 8192 + 4 * 4096) / A100.main_memory.bandwidth_bytes_per_s
    assert passed < whole.predicted_time_s - alone.predicted_time_s < 1.5 * passed + 5e-6


def test_a_machine_or_a_pair_that_nobody_measured_is_never_seen() -> None:
    mi300 = hardware("mi300x")
    sizes: dict[str, Any] = {"m": 64, "n": 4096, "k": 4096}
    for op, machine in (
        (pm.Gemm(**sizes, dtype="int4_wo"), mi300),
        (pm.Gemm(**sizes, dtype="bf16", weight_dtype="mxfp4"), H100),
        (pm.Gemm(**sizes, dtype="fp8", weight_dtype="int4", scale="group:128"), H100),
        (pm.Gemm(**sizes, dtype="fp32", weight_dtype="int8", scale="column"), H100),
    ):
        found = pm.predict(op, machine)
        assert found.calibration == Calibration.NEVER_SEEN
        assert found.predicted_time_s >= found.bound_time_s
        assert found.predicted_time_high_s > 1.5 * found.predicted_time_low_s


def test_an_engine_without_the_dtype_is_one_message() -> None:
    with pytest.raises(UsageError, match="fp8"):
        pm.predict(pm.Gemm(m=64, n=4096, k=4096, dtype="fp8_block"), A100)


def test_vllms_kernels_for_blocks_are_calls_from_the_host(data_dir: Any) -> None:
    calls = read_measurements(data_dir / "measurements" / "aic_gemm_vllm.csv.gz").calls
    blocks = [call for call in calls if call.op.params()["scale"] != "none"]
    assert {call.timing for call in blocks} == {Timing.EVENT}
    assert {call.library for call in blocks} == {"vllm_deepgemm", "vllm_flashinfer", "vllm_cutlass", "vllm_triton"}


@pytest.mark.waiting
@pytest.mark.parametrize(("family", "most"), [("gemm_w4a16", 0.10), ("gemm_w8a16", 0.10), ("gemm_w8a8", 0.09)])
def test_measured_weight_only_products(data_dir: Any, family: str, most: float) -> None:
    measured = read_measurements(data_dir / "measurements" / "aic_gemm.csv.gz")
    kept = tuple(call for call in measured.calls if call.hardware == A100.name and call.op.params()["scale"] != "none")
    found = judge([type(measured)(measured.place, kept)], hardware).by(["family"])
    assert next(row for row in found if row["family"] == family)["mape"] < most


def test_one_row_by_narrow_weights_streams_them_where_the_library_has_a_kernel_for_a_vector() -> None:
    """onnxruntime takes 6.3 and 202 us for 1024 and 200064 columns on an H100 PCIe (its issue 32382)."""
    few, many = (pm.Gemm(m=1, n=n, k=3072, dtype="fp16", weight_dtype="int4", scale="group:32") for n in (1024, 200064))
    for op, measured in ((few, 6.3e-6), (many, 202e-6)):
        found = pm.predict(op, "h100-pcie", library="onnxruntime")
        assert found.predicted_time_s == pytest.approx(measured, rel=0.15)
        assert found.predicted_time_s <= pm.predict(op, "h100-pcie", library="cutlass").predicted_time_s
        assert sum(found.predicted_terms_s.values()) == pytest.approx(found.predicted_time_s)
    sizes = np.array([1, 2, 1])
    together = pm.predict(
        pm.Gemm(m=sizes, n=1024, k=3072, dtype="fp16", weight_dtype="int4", scale="group:32"),
        "h100-pcie",
        library="onnxruntime",
    )
    alone = [
        pm.predict(pm.Gemm(m=int(m), n=1024, k=3072, dtype="fp16", weight_dtype="int4", scale="group:32"),
                   "h100-pcie", library="onnxruntime").predicted_time_s
        for m in sizes
    ]  # fmt: skip
    assert together.predicted_time_s == pytest.approx(alone)


def test_the_dispatch_of_a_triton_product_takes_four_of_a_compiled_one_and_its_kernel_no_longer() -> None:
    op = pm.Gemm(m=16, n=128, k=128, dtype="fp8", weight_dtype="fp8", scale="block:128x128")
    machine = Machine.of(L40S, resolve_peak(op, L40S))
    values = {constant.name: constant.default for constant in GEMM_FP8_BLOCK.all_constants}
    values |= {"host": 100e-6, "hidden": 90e-6}

    def seconds(library: str, timing: Timing) -> float:
        return float(GEMM_FP8_BLOCK.timed_terms(op, machine, values, Conditions(timing=timing, library=library)).time_s)

    # the kernel hides in the last 90 % of the dispatch
    assert seconds("trtllm", Timing.EVENT) == pytest.approx(100e-6, rel=0.02)
    assert seconds("vllm_triton", Timing.EVENT) == pytest.approx(4 * 100e-6, rel=0.02)
    assert seconds("vllm", Timing.EVENT) == seconds("vllm_triton", Timing.EVENT)  # Ada has no other kernel
    assert seconds("vllm_triton", Timing.KERNEL) == seconds("trtllm", Timing.KERNEL)

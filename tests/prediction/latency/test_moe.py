"""Layers of mixtures of experts: bounds, limiting cases, agreement of scalar and array."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.core.vocabulary import Calibration
from perfmodel.hardware_catalog import hardware
from perfmodel.operators.routing import TILE_ROWS
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.moe import FAMILIES, _Layer

H100, L40S, A100 = (hardware(name) for name in ("h100-sxm5-80gb", "l40s", "a100-sxm4-80gb"))
QWEN: dict[str, Any] = {"hidden": 4096, "inter": 1536, "experts": 128, "top_k": 8}
VALUES = {constant.name: constant.default for constant in FAMILIES[0].all_constants}
FORMATS = [("bf16", "moe_bf16"), ("fp8", "moe_fp8"), ("fp8_block", "moe_fp8_block"), ("int4_wo", "moe_int4")]


@pytest.mark.parametrize(("dtype", "family"), FORMATS)
@given(
    tokens=st.integers(1, 20_000), ep=st.sampled_from([1, 2, 8, 64]), tp=st.sampled_from([1, 2]),
    skew=st.sampled_from([0.0, 1.2]),
)  # fmt: skip
def test_never_faster_than_the_bound_and_the_sum_of_its_terms(
    dtype: str, family: str, tokens: int, ep: int, tp: int, skew: float
) -> None:
    found = pm.predict(pm.Moe(tokens=tokens, **QWEN, ep=ep, tp=tp, skew=skew, dtype=dtype, router=False), H100)
    assert found.family == family
    assert found.predicted_time_s >= found.bound_time_s
    assert sum(found.predicted_terms_s.values()) == pytest.approx(found.predicted_time_s)
    assert all(value >= 0 for value in found.predicted_terms_s.values())


@pytest.mark.parametrize(("dtype", "family"), FORMATS)
def test_a_router_takes_the_time_of_its_product(dtype: str, family: str) -> None:
    with_router, without = (pm.Moe(tokens=512, **QWEN, dtype=dtype, router=router) for router in (True, False))
    product = pm.predict(pm.Gemm(m=512, n=128, k=4096, dtype="bf16"), H100)
    both, layer = (pm.predict(op, H100) for op in (with_router, without))
    assert layer.family == family
    assert both.predicted_time_s == pytest.approx(layer.predicted_time_s + product.predicted_time_s)


@pytest.mark.parametrize(("dtype", "family"), FORMATS)
def test_scalar_equals_array(dtype: str, family: str) -> None:
    tokens = np.array([1, 17, 1000])
    together = pm.predict(pm.Moe(tokens=tokens, **QWEN, ep=4, dtype=dtype), H100)
    for index, count in enumerate(tokens.tolist()):
        alone = pm.predict(pm.Moe(tokens=count, **QWEN, ep=4, dtype=dtype), H100)
        assert together.predicted_time_s[index] == pytest.approx(alone.predicted_time_s)


def test_tokens_and_another_size_may_both_be_arrays() -> None:
    tokens, hidden = np.array([1.0, 64.0, 900.0]), np.array([[2048.0], [4096.0]])
    many = pm.predict(pm.Moe(tokens=tokens, dtype="bf16", **{**QWEN, "hidden": hidden}), H100).predicted_time_s
    only = pm.predict(pm.Moe(tokens=64, dtype="bf16", **{**QWEN, "hidden": hidden[:, 0]}), H100).predicted_time_s
    assert np.shape(many) == (2, 3)
    assert np.asarray(many)[:, 1] == pytest.approx(only, rel=1e-12)
    one = pm.predict(pm.Moe(tokens=900, dtype="bf16", **{**QWEN, "hidden": 4096}), H100).predicted_time_s
    assert np.asarray(many)[1, 2] == pytest.approx(one, rel=1e-12)


def test_few_tokens_read_the_weights_of_the_experts_that_they_touch() -> None:
    """64 tokens touch 126 of 128 experts: the time is that of reading their weights, and of one token a sixteenth."""
    one, many = (pm.predict(pm.Moe(tokens=tokens, **QWEN, dtype="bf16"), H100) for tokens in (1, 64))
    assert many.predicted_limiter == "hbm"
    assert 8 < many.predicted_terms_s["hbm"] / one.predicted_terms_s["hbm"] < 17


def test_many_tokens_are_limited_by_arithmetic_and_skew_costs_the_busiest_rank() -> None:
    even, skewed = (
        pm.predict(pm.Moe(tokens=16_384, **QWEN, ep=8, dtype="bf16", skew=skew), H100) for skew in (0.0, 1.2)
    )
    assert even.predicted_limiter == "compute"
    assert skewed.predicted_time_s > 1.5 * even.predicted_time_s


def test_slots_of_other_ranks_that_are_skipped_pass_through_the_kernels_as_zeros() -> None:
    op = pm.Moe(tokens=4096, **QWEN, ep=16, dtype="bf16")
    skipped, computed = (pm.predict(one, "b200-sxm-180gb", library="sglang") for one in (op, op.with_remote_slots()))
    assert skipped.predicted_time_s < 0.5 * computed.predicted_time_s
    glue = skipped.predicted_terms_s["permutation"]
    assert glue == pytest.approx(computed.predicted_terms_s["permutation"])


@pytest.mark.parametrize(
    ("library", "dtype", "machine", "tokens", "tiles"),
    [
        ("sglang", "bf16", "h100-sxm5-80gb", 32, {(16, 64)}),  # as many tokens as the rank has experts
        ("sglang", "bf16", "h100-sxm5-80gb", 33, {(64, 64)}),
        ("sglang", "fp8_block", "h100-sxm5-80gb", 1, {(64, 64), (64, 128), (64, 256)}),
        ("sglang", "bf16", "b200-sxm-180gb", 1, {(16, 64)}),
        ("sglang", "nvfp4", "b200-sxm-180gb", 1, set(itertools.product(TILE_ROWS, (64, 128, 256)))),
        ("trtllm", "bf16", "h100-sxm5-80gb", 1, set(itertools.product(TILE_ROWS, (64, 128, 256)))),
        ("sglang", "int4_wo", "h100-sxm5-80gb", 1, set(itertools.product((8, 16, 32, 64), (64, 128, 256)))),
        ("trtllm", "fp8", "l40s", 1, set(itertools.product((8, 16, 32, 64, 128), (64, 128)))),
    ],
)
def test_kernels_take_the_tiles_that_they_have(
    library: str, dtype: str, machine: str, tokens: int, tiles: set[tuple[int, int]]
) -> None:
    op = pm.Moe(tokens=tokens, **QWEN, ep=4, dtype=dtype)
    values = {constant.name: constant.default for constant in FAMILIES[0].all_constants}
    layer = _Layer(op, Machine.of(hardware(machine), None), values, Conditions(library=library))
    left = np.broadcast_to(~layer.set_aside, (len(TILE_ROWS) * 3, 1)).ravel()
    candidates = list(itertools.product(TILE_ROWS, (64, 128, 256)))
    assert {tile for tile, kept in zip(candidates, left, strict=True) if kept} == tiles


def test_kernels_sort_slots_by_the_experts_of_all_ranks_and_those_in_fp4_by_the_ranks() -> None:
    for library, dtype, machine, ratio in (
        ("trtllm", "bf16", H100, 1.0), ("sglang", "bf16", H100, 1.0), ("sglang", "int4_wo", H100, 1.0),
        ("sglang", "nvfp4", hardware("b200-sxm-180gb"), 16.0),
    ):  # fmt: skip
        alone, spread = (
            pm.predict(pm.Moe(tokens=64, **QWEN, ep=ep, dtype=dtype), machine, library=library) for ep in (1, 16)
        )
        assert alone.predicted_terms_s["experts"] == pytest.approx(ratio * spread.predicted_terms_s["experts"])


@pytest.mark.parametrize(
    ("machine", "changed"),
    [("mi300x", {"dtype": "bf16"}), ("v100-pcie-32gb", {"dtype": "fp16"}),
     ("h100-sxm5-80gb", {"dtype": "int8", "weight_dtype": "int4", "scale": "group:128"})],
)  # fmt: skip
def test_a_machine_or_a_pair_that_nobody_measured_is_never_seen(machine: str, changed: dict[str, Any]) -> None:
    found = pm.predict(pm.Moe(tokens=64, **QWEN, **changed), machine)
    assert found.calibration == Calibration.NEVER_SEEN
    assert found.predicted_time_s >= found.bound_time_s
    assert found.predicted_time_high_s > 1.3 * found.predicted_time_low_s


@pytest.mark.parametrize(("dtype", "like"), [("int8", "fp8"), ("tf32", "bf16")])
@pytest.mark.parametrize("tokens", [16, 8192])
def test_a_dtype_without_rows_has_the_kernels_of_one_like_it_and_is_less_sure(
    dtype: str, like: str, tokens: int
) -> None:
    """On H100 int8 has the bytes and the rate of fp8, tf32 twice the bytes and half the rate of bf16."""
    found, known = (pm.predict(pm.Moe(tokens=tokens, **QWEN, dtype=name, router=False), H100) for name in (dtype, like))
    ratio = 1.0 if dtype == "int8" else 2.0
    assert found.predicted_time_s == pytest.approx(ratio * known.predicted_time_s, rel=0.0 if ratio == 1.0 else 0.15)
    assert found.calibration == Calibration.NEVER_SEEN
    widths = [one.predicted_time_high_s / one.predicted_time_low_s for one in (found, known)]
    assert widths[0] > 1.05 * widths[1]
    assert found.predicted_time_s >= found.bound_time_s


def test_weights_of_four_bits_are_widened_unless_the_engine_takes_them_as_they_are() -> None:
    """On B200 tcgen05 multiplies fp8 by fp4; activations of 16 bits meet kernels that widen, five times as slow."""

    def time_s(machine: str, dtype: str) -> float:
        op = pm.Moe(tokens=512, hidden=2880, inter=2880, experts=128, top_k=4, dtype=dtype)
        return float(pm.predict(op, machine, library="trtllm", timing="kernel").predicted_time_s)

    assert 3.0 < time_s("b200-sxm-180gb", "w4a16_mxfp4") / time_s("b200-sxm-180gb", "w4a8_mxfp4_mxfp8") < 8.0
    assert time_s("h200-sxm-141gb", "w4a16_mxfp4") < time_s("b200-sxm-180gb", "w4a16_mxfp4")


@pytest.mark.parametrize("machine", ["h100", "b200", "a100", "mi300x", "rtx-4090"])
@pytest.mark.parametrize("narrow", ["fp8", "int8"])
def test_weights_of_eight_bits_are_widened_and_save_bytes_alone(machine: str, narrow: str) -> None:
    def time_s(tokens: int, weights: str) -> Any:
        found = pm.predict(pm.Moe(tokens=tokens, **QWEN, dtype="bf16", weight_dtype=weights, router=False), machine)
        assert found.family == ("moe_bf16" if weights == "bf16" else "moe_int4")
        return found.predicted_time_s

    # 64 tokens read the weights of 126 of 128 experts: the time follows their bytes
    few = [time_s(64, weights) for weights in ("int4", narrow, "bf16")]
    assert few == sorted(few)
    # 4096 are 256 rows an expert, whose arithmetic is that of bf16 and of widening, however many bits the weights have
    many = [time_s(4096, weights) for weights in ("int4", narrow)]
    assert many[1] == pytest.approx(many[0], rel=0.05)
    assert many[1] > 0.9 * time_s(4096, "bf16")


@pytest.mark.parametrize(
    ("machine", "dtype"), [("b200", "fp32"), ("a100", "fp32"), ("t4", "fp32"), ("titan-xp", "fp16")]
)
@pytest.mark.parametrize("tokens", [4, 512, 8192])
def test_one_expert_takes_about_as_long_as_its_products(machine: str, dtype: str, tokens: int) -> None:
    layer = pm.Moe(tokens=tokens, hidden=2048, inter=4096, experts=1, top_k=1, dtype=dtype, router=False)
    products = (pm.Gemm(m=tokens, n=n, k=k, dtype=dtype) for n, k in ((8192, 2048), (2048, 4096)))
    found = pm.predict(layer, machine).estimate
    alone = sum(float(pm.predict(product, machine).predicted_time_s) for product in products)
    assert found.time_s > 0.5 * alone
    assert found.high_s > 0.9 * alone


def test_pytorch_runs_a_layer_call_by_call_by_hand() -> None:
    """22 calls, of a kernel's start each, or of the host's dispatch as well where events are around all of them."""
    sizes: dict[str, Any] = {"tokens": 512, "hidden": 1024, "inter": 256, "experts": 8, "top_k": 2, "dtype": "bf16"}
    op = pm.Moe(**sizes)
    alone, called = (pm.predict(op, H100, library="torch", timing=timing) for timing in ("kernel", "event"))
    assert alone.predicted_terms_s["launch"] == pytest.approx(22 * 2.4e-6)
    assert called.predicted_terms_s["launch"] == pytest.approx(22 * 14e-6)
    # 1,024 slots of 26 B for each of 1,024 numbers and 10 B for each of 256; they fit L2 or not
    moved = 1024 * (26 * 1024 + 10 * 256)
    assert 0.0 < alone.predicted_terms_s["permutation"] < 1.5 * moved / H100.main_memory.bandwidth_bytes_per_s
    fused = pm.predict(op, H100, library="sglang")
    assert alone.predicted_time_s > fused.predicted_time_s
    assert alone.calibration == Calibration.NEVER_SEEN


@pytest.mark.parametrize(
    ("tokens", "sizes", "measured_s"),
    [
        (1, (4096, 1536, 64, 8), 2.902e-3),
        (16, (4096, 1536, 64, 8), 14.537e-3),
        (256, (4096, 1536, 64, 8), 10.910e-3),
        (4096, (4096, 1536, 64, 8), 19.646e-3),
        (4096, (4096, 14336, 8, 2), 6.674e-3),
    ],
)
def test_pytorch_runs_expert_after_expert_where_it_does_not_group_them(
    tokens: int, sizes: tuple[int, int, int, int], measured_s: float
) -> None:
    """A loop over the experts in 16 bits on an H100, as our own record of 2026-11-23 has it (`examples/records`)."""
    hidden, inter, experts, top_k = sizes
    op = pm.Moe(tokens=tokens, hidden=hidden, inter=inter, experts=experts, top_k=top_k, dtype="fp16")
    found = pm.predict(op, H100, library="torch", timing="event")
    assert found.predicted_time_low_s < measured_s < found.predicted_time_high_s
    # searching for each expert's slots, and what those with any take
    calls = sum(part.count for part in op.composition_in("torch"))
    touched = math.ceil(op.touched)
    assert calls == 5 + 1 + 2 * experts + 9 * touched + 1
    assert found.predicted_time_s > calls * 14e-6
    # torch._grouped_mm multiplies bf16, and fused kernels any
    assert op.changed(dtype="bf16", weight_dtype="bf16", out_dtype="bf16").composition_in("torch") == ()
    assert pm.predict(op, H100).predicted_time_s < 0.8 * float(found.predicted_time_s)


def test_a_loop_over_experts_does_the_work_of_the_layer() -> None:
    """Every expert gets 128 rows, whose products are the layer's; narrow weights are widened before, all of them."""
    op = pm.Moe(tokens=512, hidden=1024, inter=256, experts=8, top_k=2, dtype="fp16", routing="balanced", router=False)
    products = [part for part in op.composition_in("torch") if part.op == "gemm"]
    assert [(part.m, part.n, part.k, part.count) for part in products] == [(128, 512, 1024, 8), (128, 1024, 256, 8)]
    assert sum(part.count * part.flop() for part in products) == op.product_flop()
    narrow = op.changed(weight_dtype="int4", scale="group:128")
    wide, scaled, *rest = narrow.composition_in("torch")
    assert wide.numel == scaled.numel == 8 * 1024 * 256 * 3
    assert [part.op for part in rest] == [part.op for part in op.composition_in("torch")]


def test_what_lies_between_the_kernels_takes_their_instructions_where_memory_is_fast() -> None:
    """Twice the bandwidth halves the time of passes over memory, but not that of instructions, which goes by clocks."""
    op = pm.Moe(tokens=16_384, **QWEN, dtype="bf16")
    slow, fast, clocked = (
        _Layer(op, replace(Machine.of(L40S, None), **changed), VALUES, Conditions(library="trtllm")).glue_s(op)
        for changed in (
            {"bandwidth_bytes_per_s": 1e11},
            {"bandwidth_bytes_per_s": 2e11},
            {"bandwidth_bytes_per_s": 1e16},
        )
    )
    assert slow == pytest.approx(2.0 * fast, rel=1e-3)
    machine = Machine.of(L40S, None)
    by_hand = VALUES["issue"] * op.glue_bytes() / (machine.sm_count * machine.clock_hz)
    assert clocked == pytest.approx(by_hand, rel=1e-3)


def test_tiles_of_few_rows_halve_the_rate_of_tcgen05_in_tritons_kernels_alone() -> None:
    op = pm.Moe(tokens=16_384, **QWEN, dtype="bf16")
    tcgen05, wgmma = (replace(Machine.of(H100, None), matrix_instruction=name) for name in ("tcgen05", "wgmma"))
    triton, vendor = (
        [_Layer(op, machine, VALUES, Conditions(library=library)).block_s for machine in (tcgen05, wgmma)]
        for library in ("sglang", "trtllm")
    )
    rows = np.repeat(TILE_ROWS, 3)
    np.testing.assert_allclose(np.ravel(triton[0] / triton[1]), np.where(rows < 128, 2.0, 1.0))
    np.testing.assert_allclose(vendor[0], vendor[1])


def test_data_in_l2_are_never_slower_than_device_memory() -> None:
    op = pm.Moe(tokens=64, hidden=512, inter=256, experts=8, top_k=2, dtype="bf16")
    for machine, cost in ((L40S, (0.1, 0.5)), (hardware("b200-sxm-180gb"), (1.0, 1.0))):
        layer = _Layer(op, Machine.of(machine, None), VALUES, Conditions(cache="warm"))
        assert cost[0] <= float(np.min(layer.weight_cost)) <= cost[1]
    # weights of 201 MB, all touched, come from device memory although the L2 of 100 MB is warm
    large = pm.Moe(tokens=64, hidden=2048, inter=2048, experts=8, top_k=2, dtype="bf16", router=False)
    assert np.all(_Layer(large, Machine.of(L40S, None), VALUES, Conditions(cache="warm")).weight_cost == 1.0)

"""Kernels of training: bars of charts, copies, products kept on the machine."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.training.flash import flash_rate
from perfmodel.training.framework import frameworks
from perfmodel.training.kernels import (
    BLOCK_SCALES,
    Core,
    Product,
    core_time,
    needs_transposed,
    product_times,
    row_slowness,
    stream_time,
)
from perfmodel.training.plan import ATTENTION


def test_a_charted_machine_has_the_bars_of_its_chart() -> None:
    a100, h100 = pm.hardware("a100-sxm4-80gb"), pm.hardware("h100")
    assert flash_rate(a100, "fa2", 4096, 128) == pytest.approx(173e12)
    assert flash_rate(a100, "fa2", 4096, 64) == pytest.approx(156e12)
    assert flash_rate(h100, "fa2", 16384, 128) == pytest.approx(328e12)
    assert flash_rate(h100, "fa1", 2048, 128) == pytest.approx(108e12)
    assert flash_rate(h100, "cudnn", 2048, 128) is None
    assert {kernel for kernel in ATTENTION if flash_rate(h100, kernel, 2048, 128)} == {"fa1", "fa2"}


@settings(max_examples=40)
@given(st.integers(128, 10**6), st.sampled_from([32, 64, 80, 96, 128, 192, 256]), st.sampled_from(["a100", "h100"]))
def test_a_rate_lies_between_its_bars(seq: int, head_dim: int, machine: str) -> None:
    hardware = pm.hardware("a100-sxm4-80gb" if machine == "a100" else machine)
    rate = flash_rate(hardware, "fa2", seq, head_dim)
    assert 0 < rate < 0.65 * hardware.native_peak("bf16").flop_per_s
    assert rate <= flash_rate(hardware, "fa2", 2 * seq, head_dim) * (1 + 1e-12)


def test_other_machines_scale_the_nearest_chart() -> None:
    h100 = flash_rate(pm.hardware("h100"), "fa2", 8192, 128)
    for name in ("b200-sxm-180gb", "mi300x", "h200-sxm-141gb"):
        assert 0.7 * h100 < flash_rate(pm.hardware(name), "fa2", 8192, 128) < 2 * h100
    # Hopper's instruction on Blackwell runs as fast as the SMs and their clock allow: 148 of them on B200, of 132
    b200 = pm.hardware("b200-sxm-180gb")
    by_clock = 148 * b200.clocks_hz["tensor"] / (132 * 1.83e9)
    assert flash_rate(b200, "fa2", 8192, 128) == pytest.approx(by_clock * h100)
    assert flash_rate(pm.hardware("l4"), "fa2", 8192, 128) < flash_rate(pm.hardware("a100-sxm4-80gb"), "fa2", 8192, 128)


def test_backward_runs_the_rest_of_the_charted_time() -> None:
    hardware = pm.hardware("h100")
    core = Core(1, 32, 32, 8192, 128, 128, True, 0, "fa2", "bf16")
    found = core_time(hardware, core, False, 1)
    whole = 3.5 * found.flop / flash_rate(hardware, "fa2", 8192, 128)
    assert found.forward_s + found.backward_s == pytest.approx(whole)
    assert found.charted
    windowed = core_time(hardware, core._replace(window=512), False, 1)
    assert windowed.forward_s < found.forward_s


def test_unfused_attention_moves_its_scores() -> None:
    core = Core(2, 16, 16, 1024, 64, 64, True, 0, "unfused", "fp16")
    plain, dropped = (core_time(pm.hardware("a100-sxm4-80gb"), core, dropout, 1) for dropout in (False, True))
    scores = 2 * 16 * 1024.0**2
    assert plain.softmax_bytes >= 4 * scores
    assert dropped.softmax_bytes - plain.softmax_bytes == pytest.approx(5 * scores)
    assert plain.flop == 2 * 2 * 64 * scores


def test_products_are_predicted_once_and_alike() -> None:
    hardware = pm.hardware("h100")
    listed = [Product(4096.0, 4096.0, 1024.0 * i, "bf16", "bf16") for i in range(1, 5)]
    together = product_times(hardware, listed)
    for product in listed:
        op = pm.Gemm(m=4096, n=4096, k=int(product.k), dtype="bf16")
        alone = pm.predict(op, hardware, load="sustained").predicted_time_s
        assert together[product] == pytest.approx(float(alone))
    assert product_times(hardware, listed)[listed[0]] == together[listed[0]]


@given(st.floats(1.0, 1e12), st.floats(1.0, 4.0))
def test_more_bytes_take_longer(moved: float, factor: float) -> None:
    hardware = pm.hardware("h100")
    assert stream_time(hardware, moved) <= stream_time(hardware, factor * moved) * (1 + 1e-9)
    assert stream_time(hardware, moved) * 3352e9 >= min(moved, 1e15) * 0.9 or moved < 1e8


def test_rows_are_never_faster_than_copies() -> None:
    for kind in ("norm", "softmax"):
        for cols in np.array([256, 4096, 16384]):
            assert row_slowness(pm.hardware("a100-sxm4-80gb"), kind, 8192, int(cols), "bf16") >= 1.0


def test_a_product_takes_the_mean_of_the_libraries_that_it_names():
    hardware = pm.hardware("h100-sxm5-80gb")
    size = (8192.0, 8192.0, 4096.0, "bf16", "bf16")
    names = ("vidur", "sglang", "vllm")
    alone = [product_times(hardware, [one])[one] for one in (Product(*size, libraries=(name,)) for name in names)]
    both = Product(*size, libraries=names)
    assert product_times(hardware, [both])[both] == pytest.approx(sum(alone) / 3)


def test_frameworks_name_libraries_that_were_measured():
    tables = pm.hardware("h100-sxm5-80gb").latency
    known = {family: tables[f"gemm_{family}"].known_libraries for family in ("bf16", "fp8")}
    for framework in frameworks().values():
        for family, names in framework.libraries.items():
            assert set(names) <= set(known[family]), framework.name
            assert "libraries" in framework.sources


def test_gradients_read_copies_where_products_sum_along_rows_only():
    names = {"h100-sxm5-80gb": True, "l40s": True, "b200-sxm-180gb": False}
    assert {name: needs_transposed(pm.hardware(name)) for name in names} == names


def test_products_with_scales_of_blocks_take_longer():
    cluster = pm.Cluster("b200", gpus=1)
    plan = pm.TrainingPlan(batch=2, seq=4096, dtype="fp8", framework="megatron-bridge")
    plain, scaled = (
        pm.train("gpt3-2.7b", cluster, plan.changed(seq=2048, dtype=dtype)).terms_s for dtype in ("fp8", "mxfp8")
    )
    # adding gradients up is no product, and a part of the same term
    assert 1.04 < scaled["products"] / plain["products"] <= BLOCK_SCALES["mxfp8"] == 1.05
    assert scaled["head"] == pytest.approx(plain["head"])

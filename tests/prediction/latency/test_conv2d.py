"""Convolutions: worked examples of each algorithm, limits, and agreement with rows that were not fitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.accuracy.fit import Group, fit, log_ratio
from perfmodel.accuracy.measured import shape_hash
from perfmodel.core.hardware import Kernels
from perfmodel.core.vocabulary import Timing
from perfmodel.formats import read_profile
from perfmodel.operators.conv2d import Conv2d
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.conv2d import FAMILY, algorithm_terms
from perfmodel.prediction.latency.conv2d.parts import Sizes
from perfmodel.prediction.latency.conv2d.products import direct
from perfmodel.prediction.latency.conv2d.steps import chain_s, groups_s, padded_groups, padding_s
from perfmodel.prediction.latency.family import spread_dispatch_s
from perfmodel.prediction.latency.gemm.rates import FEED
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import Terms
from perfmodel.records.measurements import read_measurements

#: 10 SMs at 1 GHz with 100 FLOP a clock each, 1 TB/s, no L2 cache
ROUND = Machine(10.0, 1e9, 1e12, "vector", "fp32", 1e12, 1e12, 0.0, np.inf)
TENSOR = replace(ROUND, engine="tensor", dtype="fp16", peak_flop_per_s=8e12)
VALUES = {
    "math": 0.5, "product": 0.5, "fused": 0.8, "eta": 0.5, "transform": 0.5, "filters": 0.25, "fill": 10.0,
    "fused_fill": 20.0, "launch": 2e-6, "energy": 1e-12, "host": 30e-6, "hidden": 10e-6,
}  # fmt: skip
THREE: dict[str, Any] = {"r": 3, "s": 3, "padding": 1}


def terms(op: Conv2d, on: Machine = ROUND, **other: float) -> Terms:
    return FAMILY.formula(op, on, {**VALUES, **other}, Conditions())


def seconds(op: Conv2d, on: Machine = ROUND) -> float:
    return float(np.asarray(terms(op, on).time_s))


def test_the_fused_winograd_kernel_by_hand() -> None:
    # 10 images of 8 x 16 are 32 tiles each, 32 filters are one block: 10 blocks on 10 SMs, one wave.
    # A block: 16 products of 32 x 32 x (16 channels + 20 of transforms), 2 * 16 * 1024 * 36 FLOP at 0.8 * 100 GFLOP/s
    got = terms(Conv2d(n=10, c=16, h=8, w=16, k=32, **THREE)).adds
    few = 1 + (16 / 16) ** 2  # what so few channels take longer
    block = few * 2 * 16 * 1024 * 36 / 80e9
    useful = block * 16 / 36  # all tiles, filters and channels are used, the transforms are not
    assert float(got["math"]) == pytest.approx(useful)
    assert float(got["tile waste"]) == pytest.approx(block - useful)
    assert float(got["wave quantisation"]) == pytest.approx(0, abs=1e-12)
    # the filters, 16 * 32 * 9 * 4 B, are read, and written as 4 x 4, at 0.5 TB/s
    assert float(got["transforms"]) == pytest.approx(few * 18432 * (1 + 16 / 9) / 0.5e12)
    assert float(got["launch"]) == pytest.approx(few * 4e-6)


def test_the_arithmetic_alone_takes_what_it_adds_up_to() -> None:
    for op in (Conv2d(n=10, c=16, h=8, w=16, k=32, **THREE), Conv2d(n=10, c=16, h=8, w=16, k=16, groups=16, **THREE)):
        got = terms(op, product=0.2, math=0.2)
        parts = sum(float(got.adds.get(name, 0.0)) for name in ("math", "tile waste", "wave quantisation"))
        assert float(got.alone["math"]) == pytest.approx(parts)


def test_a_second_wave_doubles_the_fused_kernel() -> None:
    # slow matrix products, so that no other algorithm fits the eleventh image into the SMs sooner
    one, two = (terms(Conv2d(n=n, c=16, h=8, w=16, k=32, **THREE), math=0.2, product=0.2).adds for n in (10, 11))
    assert float(two["wave quantisation"]) == pytest.approx(0.9 * sum(float(one[x]) for x in ("math", "tile waste")))


def test_the_fused_kernel_does_not_beat_the_power_limit() -> None:
    # of 40 W, 22 W are for arithmetic; a FLOP takes 8e-12 J, with its part of the transforms 1.25 times that, and 3.8
    # times that in 16 nm: 0.58 of 0.8 TFLOP/s. What a block pads is computed too.
    op = Conv2d(n=10, c=16, h=8, w=16, k=32, **THREE)
    free = terms(op, ROUND, product=0.2, math=0.2)
    limited = terms(op, replace(ROUND, tdp_w=40.0, process="TSMC 16FF"), product=0.2, math=0.2, energy=8e-12)
    computed = 10 * 2 * 16 * 1024 * 36
    assert float(limited.time_s - free.time_s) == pytest.approx(
        (1 + (16 / 16) ** 2) * (computed * (1e-11 * 3.8 / (40 * 0.55)) - computed / 0.8e12), rel=0.02
    )
    assert float(free.adds["power"]) == 0.0


@pytest.mark.waiting
def test_a_dispatch_that_varies_is_that_of_least_relative_error() -> None:
    # kernels of about 10 us under dispatches spread evenly from 50 to 350 us: the middle is 200 us
    size = np.full(400, 8)
    op = Conv2d(n=size, c=8, h=8, w=8, k=8, **THREE)
    group = Group(op, ROUND, Conditions(timing=Timing.EVENT), 10e-6 + np.linspace(50e-6, 350e-6, 400))

    even = replace(FAMILY, least_dispatch_s=50e-6)

    def error(host: float) -> float:
        return float(np.abs(np.expm1(log_ratio(even, {**VALUES, "host": host}, [group]))).mean())

    plain = fit(replace(FAMILY, least_dispatch_s=0.0), [group], VALUES).values["host"]
    found = fit(even, [group], VALUES).values["host"]
    assert error(found) < 0.95 * error(plain)
    # half of the weight 1 / t lies below the geometric mean of the ends
    assert found == pytest.approx((50e-6 * 350e-6) ** 0.5, rel=0.1)


@given(kernel_s=st.floats(0.0, 10e-3), least=st.floats(10e-6, 60e-6), times=st.floats(1.0, 20.0))
@settings(max_examples=40, deadline=None)
def test_no_other_dispatch_has_less_relative_error_under_an_even_spread(
    kernel_s: float, least: float, times: float
) -> None:
    calls = kernel_s + np.linspace(least, least * times, 2001)

    def error(dispatch: Any) -> Any:
        return np.abs((kernel_s + np.reshape(dispatch, (-1, 1))) / calls - 1).mean(axis=1)

    found = spread_dispatch_s(least * times**0.5, least, kernel_s)
    tried = np.linspace(least, least * times, 60)
    assert error(found)[0] <= error(tried).min() + 1e-6
    assert least * (1 - 1e-9) <= found <= least * (1 + times) / 2 * (1 + 1e-9)


def test_a_host_faster_than_the_least_dispatch_takes_its_own() -> None:
    assert spread_dispatch_s(20e-6, 45e-6, 1e-3) == pytest.approx(20e-6)


def test_large_winograd_products_take_a_quarter_of_the_products() -> None:
    # F(4x4): 36 products in place of 144. Arithmetic at 0.5 of 1 TFLOP/s; transforms and tiles add a little.
    op = Conv2d(n=64, c=1024, h=32, w=32, k=1024, **THREE)
    least = op.flop() / 4 / 0.5e12
    assert least < seconds(op) < 1.5 * least


def separate_products(op: Conv2d, on: Machine = ROUND) -> float:
    """Return what the products of the separate Winograd kernels take, without transforms [s]."""
    (got,) = algorithm_terms(op, on, VALUES, Conditions(), of=("winograd_f43",)).values()
    return float(got.time_s - got.adds["transforms"])


def test_products_of_winograd_tiles_fill_up_to_16_images() -> None:
    one, sixteen, more, two = (
        separate_products(Conv2d(n=n, c=512, h=32, w=32, k=512, **THREE)) for n in (1, 16, 17, 32)
    )
    assert one == pytest.approx(sixteen)
    assert more == pytest.approx(two)
    assert more == pytest.approx(2 * sixteen, rel=0.02)


def test_what_sums_over_the_tiles_fills_nothing_up_nor_does_miopen() -> None:
    sizes: dict[str, Any] = {"c": 512, "h": 32, "w": 32, "k": 512, **THREE}
    few, many = (separate_products(Conv2d(n=n, gradient="weight", backward=True, **sizes)) for n in (17, 32))
    assert few < 0.6 * many
    amd = Machine.of(pm.hardware("mi100"), resolve_peak(Conv2d(n=1, dtype="fp32", **sizes), pm.hardware("mi100")))
    few, many = (separate_products(Conv2d(n=n, **sizes), amd) for n in (17, 32))
    assert few < 0.6 * many


def test_filters_that_exceed_l2_are_read_again_for_each_wave_of_pixels() -> None:
    # 40 blocks of filters fill both places of all 10 SMs twice: each block of pixels is a wave of its own
    op = Conv2d(n=4, c=512, h=8, w=16, k=1280, **THREE)
    small, large = (
        float(terms(op, replace(ROUND, l2_bytes=size), product=0.2, math=0.2).alone["hbm"]) for size in (0.0, 1e9)
    )
    filters = 64 * 512 * 1280  # 4 x 4 numbers of 4 B each
    assert small - large == pytest.approx((4 - 1) * filters / 0.5e12 * (1 + (16 / 512) ** 2))


@pytest.mark.parametrize("other", [{"stride": 2}, {"dilation": 2}, {"groups": 2}, {"r": 1}])
def test_other_convolutions_do_all_products(other: dict[str, Any]) -> None:
    op = Conv2d(**{"n": 8, "c": 512, "h": 32, "w": 32, "k": 512, **THREE, "padding": 2, **other})
    assert seconds(op) > op.flop() / 0.5e12


@pytest.mark.parametrize(("dtype", "layout"), [("bf16", "nchw"), ("bf16", "nhwc"), ("fp16", "nhwc"), ("tf32", "nchw")])
def test_tensor_cores_do_all_products(dtype: str, layout: str) -> None:
    op = Conv2d(n=8, c=512, h=32, w=32, k=512, dtype=dtype, layout=layout, **THREE)
    assert seconds(op, replace(TENSOR, dtype=dtype)) > op.flop() / 8e12


def test_winograd_in_fp16_is_that_of_radeons_in_nchw() -> None:
    """MIOpen has a kernel of it for their matrix instruction; no measured row tells of another tensor engine's."""
    op = Conv2d(n=8, c=512, h=32, w=32, k=512, dtype="fp16", **THREE)
    radeon = replace(TENSOR, matrix_instruction="wmma")
    assert op.flop() / 4 / 8e12 < seconds(op, radeon) < op.flop() / 8e12
    for other in (TENSOR, replace(TENSOR, matrix_instruction="mfma")):
        assert seconds(op, other) > op.flop() / 8e12


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("gpu", ["v100", "t4", "a100", "l40s", "h100", "b200", "rtx-5090", "mi250x", "mi300x"])
def test_tensor_cores_are_no_faster_on_images_that_they_transpose(gpu: str, dtype: str) -> None:
    if pm.hardware(gpu).find_peak(dtype, "tensor") is None:
        pytest.skip(f"no {dtype} on the tensor engine of {gpu}")
    for c, size in ((64, 56), (256, 56), (256, 28), (512, 14)):
        shape = {"n": 32, "c": c, "h": size, "w": size, "k": c, "dtype": dtype}
        nchw, nhwc = (pm.predict(Conv2d(**shape, layout=layout, **THREE), gpu) for layout in ("nchw", "nhwc"))
        assert nchw.predicted_time_s >= nhwc.predicted_time_s


def test_kernels_of_tensor_cores_transpose_images_in_nchw() -> None:
    shape: dict[str, Any] = {"n": 8, "c": 64, "h": 32, "w": 32, "k": 64, "dtype": "bf16"}
    bf16 = replace(TENSOR, dtype="bf16")
    first, last = (terms(Conv2d(**shape, layout=layout, **THREE), bf16).adds for layout in ("nchw", "nhwc"))
    # three kernels that start in 2 us each: 154 clocks of a lane for an element of the filters, and 35 for one of the
    # images and outputs, or twice its 2 B at 0.79 TB/s, the default of 16-bit products, to the power of 1.5
    lanes, pixels = 128 * bf16.sm_count * bf16.clock_hz, 2 * 8 * 64 * 32 * 32
    images = ((35 * pixels / lanes) ** 1.5 + (2 * 2 * pixels / 0.79e12) ** 1.5) ** (1 / 1.5)
    assert float(first["layout"]) == pytest.approx(6e-6 + 154 * 64 * 64 * 9 / lanes + images)
    assert float(last.get("layout", 0.0)) == 0
    one_tap = terms(Conv2d(**shape, r=1, s=1), bf16).adds
    assert float(one_tap["layout"]) == 0  # its product takes the images as they are
    odd = terms(Conv2d(**{**shape, "h": 7, "w": 7}, r=1, s=1), replace(bf16, matrix_instruction="mfma")).adds
    assert float(odd["layout"]) > 6e-6  # unless a channel starts within a vector
    # NVIDIA's also have narrow loads, which take less time where there are few products for each pixel
    for size, few in ((7, True), (63, False)):
        wide = {**shape, "n": 64, "c": 64 if few else 2048, "k": 64 if few else 2048}
        loaded = terms(Conv2d(**{**wide, "h": size, "w": size}, r=1, s=1), bf16).adds
        assert (float(loaded["layout"]) == 0.0, float(loaded["alignment"]) > 0.0) == (few, few)


def test_taps_of_a_filter_have_addresses_of_their_own_on_tensor_cores() -> None:
    shape: dict[str, Any] = {"n": 8, "c": 64, "h": 32, "w": 32, "k": 64, "dtype": "bf16", "layout": "nhwc"}
    one, nine = (
        terms(Conv2d(**shape, **taps), replace(TENSOR, dtype="bf16")).adds for taps in ({"r": 1, "s": 1}, THREE)
    )
    assert float(one["gathering"]) == 0
    product = sum(float(time) for name, time in nine.items() if name not in ("gathering", "launch", "hbm"))
    assert float(nine["gathering"]) == pytest.approx(0.2 * product)


def test_fp16_has_no_winograd_from_hopper_on() -> None:
    fp16, bf16 = (pm.predict(Conv2d(n=4, c=320, h=64, w=64, k=320, dtype=d, **THREE), "h100") for d in ("fp16", "bf16"))
    assert fp16.predicted_time_s == pytest.approx(bf16.predicted_time_s)


def test_channels_are_padded_to_a_vector() -> None:
    shape: dict[str, Any] = {"n": 32, "h": 64, "w": 64, "k": 64, "dtype": "bf16", "layout": "nhwc", **THREE}
    # NVIDIA's kernels work through 64 B of a tap in a step, others through 16 B
    for machine, vector in ((replace(TENSOR, matrix_instruction="mfma"), 8), (TENSOR, 32)):
        sizes = (5, vector, vector + 1, 2 * vector)
        few, full, more, twice = (float(terms(Conv2d(c=c, **shape), machine).alone["math"]) for c in sizes)
        assert few == full
        assert more == twice
        assert more > 1.1 * full  # filling the pipeline takes the same


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "tf32"])
def test_few_channels_run_on_the_vector_engine(dtype: str) -> None:
    shape: dict[str, Any] = {"n": 64, "c": 3, "h": 224, "w": 224, "k": 64, "r": 7, "s": 7, "stride": 2, "padding": 3}
    for gpu in ("a100-sxm4-80gb", "h200-sxm-141gb"):
        fast, slow = (pm.predict(Conv2d(**shape, dtype=name, layout="nhwc"), gpu) for name in (dtype, "fp32"))
        assert fast.predicted_terms_s["math"] == pytest.approx(slow.predicted_terms_s["math"])
        assert fast.predicted_time_s <= slow.predicted_time_s  # fewer bytes
    both = Conv2d(**{**shape, "c": np.array([3, 64])}, dtype=dtype)
    apart = [float(np.asarray(terms(Conv2d(**{**shape, "c": c}, dtype=dtype), TENSOR).time_s)) for c in (3, 64)]
    assert np.asarray(terms(both, TENSOR).time_s) == pytest.approx(apart)


def test_addresses_of_taps_take_issue_slots_where_fp32_fills_them() -> None:
    # 128 lanes of an SM multiply and add in each slot of its 4 schedulers; two instructions in a clock before Volta
    full = replace(ROUND, peak_flop_per_s=2.56e12, vector_flop_per_s=2.56e12)
    shape: dict[str, Any] = {"n": 8, "h": 64, "w": 64, "c": 64, "k": 64, "stride": 2}
    taps, plain = Conv2d(**shape, r=3, s=3, padding=1), Conv2d(**shape, r=1, s=1)
    for machine, more in ((replace(full, copies_to_shared=True), 0.3), (full, 0.0), (ROUND, 0.0)):
        adds = terms(taps, machine).adds
        assert float(adds.get("gathering", 0.0)) == pytest.approx(more * float(adds["math"]), rel=0.2)
        assert float(terms(plain, machine).adds.get("gathering", 0.0)) == 0.0


#: 4096 FLOP a clock for each of the 10 SMs by wgmma, 62.9 % of it by mma.sync
WGMMA = replace(TENSOR, dtype="bf16", matrix_instruction="wgmma", peak_flop_per_s=4.096e13)


def test_the_peak_of_mma_sync_is_the_engines_own_where_it_has_no_other_instruction() -> None:
    assert WGMMA.mma_sync_flop_per_s == pytest.approx(0.629 * 4.096e13)
    assert replace(WGMMA, peak_flop_per_s=1e13).mma_sync_flop_per_s == 1e13
    assert replace(WGMMA, matrix_instruction="mma.sync").mma_sync_flop_per_s == 4.096e13


@pytest.mark.parametrize("channels", [8, 72, 264, 352])
def test_channels_that_fill_no_step_of_wgmma_run_by_mma_sync(channels: int) -> None:
    op = Conv2d(n=16, c=channels, h=32, w=32, k=256, dtype="bf16", layout="nhwc", **THREE)
    sync = replace(WGMMA, matrix_instruction="mma.sync", peak_flop_per_s=0.629 * 4.096e13)
    # and a kernel of 2 us computes addresses before
    assert seconds(op, WGMMA) == pytest.approx(seconds(op, sync) + 2e-6)
    assert float(terms(op, WGMMA).adds["launch"]) == pytest.approx(float(terms(op, sync).adds["launch"]) + 2e-6)
    whole = Conv2d(n=16, c=320, h=32, w=32, k=256, dtype="bf16", layout="nhwc", **THREE)
    # 320 channels are five whole steps, and keep the rate of wgmma
    assert seconds(whole, WGMMA) < seconds(whole, sync)
    both = Conv2d(n=16, c=np.array([channels, 320]), h=32, w=32, k=256, dtype="bf16", layout="nhwc", **THREE)
    assert np.asarray(terms(both, WGMMA).time_s) == pytest.approx([seconds(op, WGMMA), seconds(whole, WGMMA)])


@pytest.mark.parametrize(
    "other",
    [
        {"layout": "nchw"},  # kernels that transpose pad
        {"r": 1, "s": 1, "padding": 0},  # a plain product
        {"groups": 4},
        {"backward": True, "gradient": "input"},
        {"dtype": "tf32"},  # not measured
        {"c": 256},
    ],
)
def test_other_convolutions_run_by_wgmma(other: dict[str, Any]) -> None:
    op = Conv2d(**{"n": 16, "c": 264, "h": 32, "w": 32, "k": 256, "dtype": "bf16", "layout": "nhwc", **THREE, **other})
    fast, slow = (
        seconds(op, replace(WGMMA, dtype=op.dtype, matrix_instruction=name)) for name in ("wgmma", "mma.sync")
    )
    assert fast == pytest.approx(slow)  # at the same peak


def test_a_block_keeps_an_sm_busy_where_copies_bypass_the_registers() -> None:
    # 128 pixels and 32 filters are one block of 4,096 outputs; without such copies an SM takes as long as for 128
    # outputs of each lane, of which it has 50
    hopper = replace(ROUND, matrix_instruction="wgmma")  # no Winograd for 224 channels
    op = Conv2d(n=1, c=224, h=8, w=16, k=32, **THREE)
    copied, loaded = (terms(op, replace(hopper, copies_to_shared=copies)) for copies in (True, False))
    assert float(loaded.alone["math"]) == pytest.approx(128 * 50 / 4096 * float(copied.alone["math"]))
    # ten of them take as long as one
    ten = terms(replace(op, n=10), replace(hopper, copies_to_shared=True))
    assert float(ten.alone["math"]) == pytest.approx(float(copied.alone["math"]))


def test_twice_the_lanes_need_twice_the_outputs_in_flight() -> None:
    # one block of 128 x 32 on an SM of 64 lanes, which two would keep busy, or of 128 lanes, which four would
    op = Conv2d(n=1, c=224, h=8, w=16, k=32, **THREE)
    few, many = (
        terms(op, replace(ROUND, matrix_instruction="wgmma", peak_flop_per_s=peak)) for peak in (1.28e12, 2.56e12)
    )
    # as long, and a little longer since shared memory does not feed 128 lanes; else half as long
    assert 1.0 < float(many.alone["math"]) / float(few.alone["math"]) < 1.0 / FEED


def test_products_of_winograd_tiles_are_cut_as_the_specification_says() -> None:
    # 96 filters are three tiles of 32 columns, but two of 64 and one of 128
    op = Conv2d(n=64, c=512, h=32, w=32, k=96, **THREE)
    fitting = replace(ROUND, kernels=Kernels(winograd_tiles=((64, 32),)))
    assert 0.7 < separate_products(op, fitting) / separate_products(op) < 0.85


def test_without_groups_no_convolution_is_direct() -> None:
    hopper = replace(ROUND, matrix_instruction="wgmma")
    op = Conv2d(n=1, c=384, h=8, w=8, k=72, **THREE)  # 3 blocks on 10 SMs
    by_name = algorithm_terms(op, hopper, VALUES, Conditions(), of=("implicit_gemm", "direct"))
    implicit, unused = (float(np.asarray(found.time_s)) for found in by_name.values())
    assert unused < implicit
    assert seconds(op, hopper) == pytest.approx(implicit)


@pytest.mark.parametrize(
    ("sizes", "measured_s"),
    [
        ({"n": 9, "c": 792, "h": 28, "k": 40, "dtype": "fp16"}, 37.4e-6),
        ({"n": 36, "c": 352, "h": 7, "k": 144, "dtype": "bf16"}, 13.8e-6),
        ({"n": 53, "c": 264, "h": 112, "k": 480, "stride": 2, "dtype": "fp16"}, 858.5e-6),
        ({"n": 1, "c": 384, "h": 28, "k": 72}, 126.8e-6),
        ({"n": 7, "c": 640, "h": 7, "k": 128, "layout": "nchw"}, 199.3e-6),
        ({"n": 23, "c": 216, "h": 14, "k": 24, "layout": "nchw"}, 74.9e-6),
    ],
)
def test_random_sizes_on_an_h200(sizes: dict[str, Any], measured_s: float) -> None:
    """Six rows of examples/records/h200-sxm-141gb_2026-11-23_unseen.json.gz, all in view when the rules were chosen."""
    op = Conv2d(**{"w": sizes["h"], "layout": "nhwc", **THREE, **sizes})
    found = pm.predict(op, "h200", timing="graph", cache="cold", library="torch")
    assert abs(np.log(measured_s / found.predicted_time_s)) < 0.25


def test_hopper_has_winograd_for_few_channels_only() -> None:
    hopper = replace(ROUND, matrix_instruction="wgmma")
    for channels, machine, less in ((128, hopper, True), (216, hopper, False), (216, ROUND, True)):
        op = Conv2d(n=64, c=channels, h=32, w=32, k=512, **THREE)
        assert (seconds(op, machine) < op.flop() / 0.5e12) == less


def test_where_hoppers_choice_is_unknown_its_time_lies_between_both_algorithms() -> None:
    channels = np.arange(120, 225)
    op = Conv2d(n=64, c=channels, h=32, w=32, k=512, **THREE)
    time = np.asarray(terms(op, replace(ROUND, matrix_instruction="wgmma")).time_s)
    winograd, implicit = (np.asarray(one.time_s) for one in (terms(op), _named(op, "implicit_gemm")))
    assert time[channels <= 128] == pytest.approx(winograd[channels <= 128])
    assert time[channels >= 216] == pytest.approx(implicit[channels >= 216])
    share = np.log(time / winograd) / np.log(implicit / winograd)
    assert np.all(np.diff(share) > -1e-9)
    # in the middle, each is as likely
    assert share[channels == 166] == pytest.approx(0.5, abs=0.01)


def _named(op: Conv2d, name: str, machine: Machine = ROUND) -> Terms:
    return algorithm_terms(op, machine, VALUES, Conditions(), of=(name,))[name]


@pytest.mark.parametrize("gpu", ["h100-sxm5-80gb", "h200-sxm-141gb", "b200-sxm", "a100-sxm4-80gb"])
@pytest.mark.parametrize(("n", "side"), [(1, 14), (8, 28), (32, 28), (64, 28), (64, 56)])
def test_no_channel_more_takes_three_times_as_long(gpu: str, n: int, side: int) -> None:
    channels = np.arange(64, 520, 8)
    found = pm.predict(Conv2d(n=n, c=channels, h=side, w=side, k=channels, dtype="fp32", **THREE), gpu)
    time = np.asarray(found.predicted_time_s)
    assert np.all(time[1:] < 2.0 * time[:-1])


def test_channels_whose_algorithm_is_unknown_have_a_wide_interval() -> None:
    wide = []
    for channels in (128, 168, 224):
        found = pm.predict(Conv2d(n=64, c=channels, h=28, w=28, k=channels, dtype="fp32", **THREE), "h100-sxm5-80gb")
        wide.append(found.predicted_time_high_s / found.predicted_time_low_s)
    assert wide[1] > 1.5 * max(wide[0], wide[2])


@pytest.mark.parametrize("gpu", ["a100-sxm4-80gb", "h100-sxm5-80gb", "l40s", "mi300x"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_a_filter_of_one_tap_takes_as_long_as_its_product(gpu: str, layout: str) -> None:
    for n, c, h, k in ((32, 256, 56, 64), (8, 1024, 16, 2048), (64, 512, 28, 512)):
        conv = pm.predict(Conv2d(n=n, c=c, h=h, w=h, k=k, r=1, s=1, dtype="bf16", layout=layout), gpu)
        gemm = pm.predict(pm.Gemm(m=n * h * h, n=k, k=c, dtype="bf16"), gpu)
        assert conv.predicted_time_s == pytest.approx(gemm.predicted_time_s, rel=0.3)


HOPPER = replace(TENSOR, matrix_instruction="wgmma")


def test_a_lone_block_takes_its_taps_step_by_step() -> None:
    # 25 taps of 130 channels in 2 B are 75 steps of 128 B, 215 clocks of 1 ns each
    op = Conv2d(n=1, c=130, h=8, w=8, k=16, r=5, s=5, padding=2, dtype="fp16")
    assert float(np.asarray(chain_s(op, HOPPER))) == pytest.approx(75 * 215e-9)
    assert float(np.asarray(chain_s(replace_filter(op, 1), HOPPER))) == 0.0
    # 8 channels of TF32 fill a quarter of such a step: one of 600 clocks a tap
    few = Conv2d(n=1, c=8, h=8, w=8, k=16, r=5, s=5, padding=2, dtype="tf32")
    assert float(np.asarray(chain_s(few, HOPPER))) == pytest.approx(25 * 600e-9)


def replace_filter(op: Conv2d, side: int) -> Conv2d:
    return op.changed(r=side, s=side, padding=side // 2)


def test_padding_is_two_copies_and_what_sets_them_to_zero() -> None:
    # 39 channels in 4 B are no whole vectors of 16 B: 4 kernels of 2 us, images and filters read and written at 1 TB/s
    op = Conv2d(n=1, c=39, h=10, w=10, k=8, layout="nhwc", dtype="tf32", **THREE)
    sizes = Sizes.of(op)
    assert float(padding_s(op, sizes, 2e-6, 1e12)) == pytest.approx(8e-6 + 2 * (39 * 100 + 8 * 39 * 9) * 4e-12)
    assert float(padding_s(op.changed(c=40), sizes, 2e-6, 1e12)) == 0.0


def test_groups_off_whole_vectors_are_copied_to_padded_ones() -> None:
    # 2 groups of 12 channels in 2 B are padded to 16, and 8 filters of each are a whole vector
    op = Conv2d(n=3, c=24, h=10, w=10, k=16, groups=2, layout="nhwc", dtype="fp16", **THREE)
    assert padded_groups(op)
    assert not padded_groups(op.changed(c=32))
    assert padded_groups(op.changed(c=32, k=6))
    images, weights = 3 * 100 * (32 + 16), 16 * 16 * 9
    clocks = 281 * images + 1790 * weights
    assert float(groups_s(op, 2e-6, 1e12)) == pytest.approx(6 * 2e-6 + clocks / 1e12)
    assert "layout" in terms(op, HOPPER).adds


def test_groups_by_channels_in_fp32_are_a_kernel_each() -> None:
    machine = replace(ROUND, matrix_instruction="wgmma")
    starts = []
    for groups, layout in ((1, "nhwc"), (2, "nhwc"), (8, "nhwc"), (8, "nchw")):
        op = Conv2d(n=1, c=64, h=7, w=7, k=64, groups=groups, layout=layout, **THREE)
        starts.append(float(np.asarray(_named(op, "implicit_gemm", machine).adds["launch"])))
    assert starts == pytest.approx([2e-6, 2e-6 * 1.37, 2e-6 * (1 + 7 * 0.37), 2e-6])


def test_one_tap_by_channels_in_fp32_is_transposed_around() -> None:
    machine = replace(ROUND, matrix_instruction="wgmma")
    by_channels = {"n": 8, "c": 64, "h": 14, "w": 14, "k": 64, "layout": "nhwc"}
    for taps, on, transposed in ((1, machine, True), (3, machine, False), (1, ROUND, False)):
        op = Conv2d(**by_channels, r=taps, s=taps, padding=taps // 2)
        assert (float(_named(op, "implicit_gemm", on).adds.get("layout", 0.0)) > 6e-6) == transposed


def test_many_taps_in_nchw_in_fp32_are_looked_up() -> None:
    machine = replace(ROUND, matrix_instruction="wgmma")
    for side, layout, times in ((3, "nchw", 1.0), (5, "nchw", 1.5), (5, "nhwc", 1.0)):
        op = Conv2d(n=8, c=64, h=28, w=28, k=64, r=side, s=side, padding=side // 2, layout=layout)
        before, after = (float(_named(op, "implicit_gemm", on).time_s) - 2e-6 for on in (ROUND, machine))
        assert after / before == pytest.approx(times, rel=0.02)


def test_one_tile_of_filters_adds_up_whole_sums() -> None:
    """A block of 40 filters takes longer for twice the channels; 640 filters are split as products are."""
    for filters, longer in ((40, True), (640, False)):
        ops = [Conv2d(n=1, c=c, h=16, w=16, k=filters, dtype="fp16", layout="nhwc", **THREE) for c in (1024, 2048)]
        adds = [pm.predict(op, "h200-sxm-141gb", library="torch").predicted_terms_s for op in ops]
        assert ("split-k" not in adds[1] or adds[1]["split-k"] == 0.0) == longer


def test_a_depthwise_convolution_is_limited_by_memory_when_arithmetic_is_fast() -> None:
    # 9 products an element: an implicit GEMM would fill tiles of 32 columns with one filter
    op = Conv2d(n=32, c=256, h=56, w=56, k=256, groups=256, layout="nhwc", **THREE)
    fast = replace(ROUND, peak_flop_per_s=1e15, vector_flop_per_s=1e15)
    assert seconds(op, fast) == pytest.approx(op.work().bytes / 0.5e12, rel=0.02)


def test_a_depthwise_convolution_in_nchw_is_limited_by_its_instructions() -> None:
    # 100 clocks of a lane for an output and 20 for each of its taps, in every dtype
    op = Conv2d(n=32, c=256, h=56, w=56, k=256, groups=256, **THREE)
    fast = replace(ROUND, peak_flop_per_s=1e15, vector_flop_per_s=1e15)
    outputs = 32 * 256 * 56 * 56
    clocks = 280 * outputs / (128 * ROUND.sm_count * ROUND.clock_hz)
    assert float(direct(op, Sizes.of(op), fast, VALUES).alone["math"]) == pytest.approx(clocks)


def test_a_small_depthwise_convolution_waits_for_its_loads() -> None:
    op = Conv2d(n=1, c=4, h=7, w=7, k=4, groups=4, **THREE)
    assert float(direct(op, Sizes.of(op), ROUND, VALUES).alone["math"]) == pytest.approx(2000 / ROUND.clock_hz)


def test_unfolding_in_memory_costs_its_traffic() -> None:
    shape: dict[str, Any] = {"n": 8, "c": 64, "h": 32, "w": 32, "k": 64, **THREE}
    implicit, unfolded = Conv2d(**shape, stride=2), Conv2d(**shape, stride=2, algorithm="im2col")
    traffic = (unfolded.tensors()[0].size_bytes + unfolded.tensors()[3].size_bytes) / 0.5e12
    assert float(terms(unfolded).adds["im2col"]) == pytest.approx(traffic + 2e-6)
    assert seconds(unfolded) > seconds(implicit)


sizes = st.integers(1, 200)


@given(st.lists(st.tuples(sizes, sizes, sizes, sizes, st.integers(1, 2)), min_size=1, max_size=5))
def test_scalar_equals_array_and_no_term_is_negative(rows: list[tuple[int, ...]]) -> None:
    n, c, h, k, stride = (np.array(axis) for axis in zip(*rows, strict=True))
    together = terms(Conv2d(n=n, c=c, h=h, w=h, k=k, stride=stride, **THREE))
    assert all(np.all(np.asarray(part) >= 0) for part in together.adds.values())
    for index, (n1, c1, h1, k1, stride1) in enumerate(rows):
        alone = seconds(Conv2d(n=n1, c=c1, h=h1, w=h1, k=k1, stride=stride1, **THREE))
        assert np.asarray(together.time_s)[index] == pytest.approx(alone, rel=1e-12)


GPUS = ("a100-sxm4-80gb", "h100-sxm5-80gb", "v100-pcie-32gb", "t4", "p4", "mi300x")
DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "int8")
shapes = st.fixed_dictionaries(
    {
        "n": st.integers(1, 256), "c": st.integers(1, 128).map(lambda c: 8 * c), "h": st.integers(7, 128),
        "w": st.integers(7, 128), "k": st.integers(1, 128).map(lambda k: 8 * k), "r": st.sampled_from([1, 3, 5, 7]),
        "s": st.sampled_from([1, 3, 5, 7]), "stride": st.integers(1, 3), "padding": st.integers(0, 3),
        "layout": st.sampled_from(["nchw", "nhwc"]), "groups": st.sampled_from([1, 1, 1, 8]),
    }
)  # fmt: skip


def has(gpu: str, dtype: str) -> bool:
    return (
        pm.hardware(gpu).find_peak(dtype, "tensor") is not None
        or pm.hardware(gpu).find_peak(dtype, "vector") is not None
    )


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=30)
@given(shape=shapes)
def test_the_formula_needs_no_bound(gpu: str, dtype: str, shape: dict[str, Any]) -> None:
    """A prediction below the bound would be lifted to it, with "bound" among its terms."""
    if not has(gpu, dtype):
        pytest.skip(f"{gpu} has no {dtype}")
    found = pm.predict(Conv2d(**shape, dtype=dtype), gpu, cache="cold")
    assert found.predicted_terms_s.get("bound", 0.0) <= 1e-9 * found.predicted_time_s
    assert found.predicted_time_s >= (1 - 1e-9) * found.bound_time_s / (4.0 if dtype in ("fp32", "fp16") else 1.0)


@pytest.mark.parametrize("gpu", GPUS)
@given(shape=shapes, dtype=st.sampled_from(["fp32", "fp16"]), axis=st.sampled_from(["n", "c", "h", "k"]))
def test_more_work_takes_longer_and_nothing_jumps(gpu: str, shape: dict[str, Any], dtype: str, axis: str) -> None:
    if not has(gpu, dtype):
        return
    # Channels off whole vectors of 16 B take other kernels: up to 9 times as long, as measured (`DRAWN`).
    step = 8 * shape["groups"] if axis in ("c", "k") else 1
    shape = {**shape, axis: -(-shape[axis] // step) * step}
    sizes = {**shape, axis: shape[axis] + step * np.arange(5)}
    time = np.asarray(pm.predict(Conv2d(**sizes, dtype=dtype), gpu).predicted_time_s)
    assert np.all(time[1:] < 3.0 * time[:-1])
    if axis == "n":
        # Waves and tiles of whole images: a larger batch may fill them better, but not by much.
        assert np.all(time[1:] > 0.95 * time[:-1])


@pytest.mark.parametrize("gpu", ["a100-sxm4-80gb", "h100-sxm5-80gb", "v100-pcie-32gb", "t4"])
@given(shape=shapes)
def test_tensor_cores_are_not_slower_where_images_need_no_transpose(gpu: str, shape: dict[str, Any]) -> None:
    # fewer channels and filters than a tile mostly pad it
    shape = {**shape, "c": max(64, shape["c"]), "k": max(64, shape["k"]), "layout": "nhwc", "groups": 1}
    half, single = (pm.predict(Conv2d(**shape, dtype=dtype), gpu).predicted_time_s for dtype in ("fp16", "fp32"))
    # both start a kernel: 2 to 5 us
    assert half < 1.05 * single + 5e-6


@given(sizes, sizes, sizes, sizes)
def test_no_convolution_is_faster_than_its_least_products(n: int, c: int, h: int, k: int) -> None:
    op = Conv2d(n=n, c=c, h=h, w=h, k=k, **THREE)
    assert seconds(op) > op.least_flop() / 1e12


@pytest.mark.parametrize("size", [1, 4096])
def test_far_outside_the_data_times_stay_finite(size: int) -> None:
    op = Conv2d(n=size, c=size, h=size, w=size, k=size, **THREE)
    assert 2e-6 <= seconds(op) < 1e12


@pytest.mark.parametrize("gpu", ["v100-pcie-32gb", "t4"])
@pytest.mark.waiting
def test_some_rows_predict_others(data_dir: Path, gpu: str) -> None:
    hardware = pm.hardware(gpu)
    table = read_measurements(data_dir / "measurements" / "neusight_conv2d_fp32.csv.gz").calls
    (call,) = (call for call in table if call.hardware == gpu)
    place = shape_hash(call.op, len(call))
    machine = Machine.of(hardware, resolve_peak(call.op, hardware))
    seen, unseen = (call.take(chosen) for chosen in (place < 0.04, place > 0.92))
    fitted = fit(FAMILY, [Group(seen.op, machine, seen.conditions, seen.time_s)]).values
    error = np.abs(np.expm1(log_ratio(FAMILY, fitted, [Group(unseen.op, machine, unseen.conditions, unseen.time_s)])))
    assert np.median(error) < 0.16  # 9 % on T4, 13 % on V100: small calls scatter by a factor of three
    assert error.mean() < 0.22


def test_a_dtype_that_was_never_measured_has_a_wide_interval() -> None:
    op: dict[str, Any] = {"n": 32, "c": 256, "h": 56, "w": 56, "k": 256, **THREE}
    known, unknown = (pm.predict(Conv2d(**op, dtype=dtype), "v100-pcie-32gb") for dtype in ("fp32", "fp16"))
    assert known.predicted_time_high_s < 1.6 * known.predicted_time_low_s
    assert unknown.predicted_time_high_s > 2 * unknown.predicted_time_low_s
    assert unknown.calibration != "calibrated"


def test_bf16_convolutions_of_a_trace_are_within_a_factor_of_three(data_dir: Path) -> None:
    """MI300X in NCHW: most of the time goes to transposes and starts of kernels, which only their number predicts."""
    profile = read_profile(data_dir / "traces" / "tracelens_mi300_resnet_act_checkpoint_ddp.json.gz")
    measured, predicted = [], []
    for entry in profile.entries:
        if isinstance(entry.op, Conv2d):
            one = pm.predict(replace(entry.op, count=1), "mi300x", timing="kernel")
            measured.append(entry.time_s / entry.calls / entry.op.count)
            predicted.append(one.predicted_time_s)
    ratio = np.array(measured) / np.array(predicted)
    assert len(ratio) >= 20
    assert 1.0 < np.median(ratio) < 2.0
    assert ratio.max() < 2.5


@pytest.mark.parametrize("machine", ["b200", "h100", "mi300x", "l4"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_minutes_of_load_make_no_convolution_faster(machine: str, layout: str) -> None:
    rng = np.random.default_rng(8)
    n, c, k, side = (np.floor(np.exp2(rng.uniform(low, high, 400))) for low, high in ((0, 8), (4, 11), (4, 9), (4, 8)))
    op = pm.Conv2d(n=n, c=c, k=k, h=side, w=side, r=3, s=3, padding=1, layout=layout, dtype="bf16")
    burst, sustained = (
        np.asarray(pm.predict(op, machine, load=one).predicted_time_s) for one in ("burst", "sustained")
    )
    assert np.all(sustained >= 0.96 * burst)


#: own record of an H200 under torch 2.11.0, 2026-11-27, which was in view: sizes, time [us]
DRAWN: list[tuple[dict[str, Any], float]] = [
    ({"n": 2, "c": 992, "h": 56, "w": 56, "k": 768, "groups": 32, "layout": "nhwc", "dtype": "bf16", **THREE}, 167.3),
    ({"n": 62, "c": 104, "h": 56, "w": 56, "k": 971, "r": 1, "s": 1, "layout": "nhwc", "dtype": "bf16"}, 601.5),
    ({"n": 48, "c": 8, "h": 112, "w": 112, "k": 688, "dtype": "fp16", **THREE}, 1639.9),
    ({"n": 38, "c": 416, "h": 29, "w": 30, "k": 40, "r": 1, "s": 1, "dtype": "bf16"}, 28.2),
    ({"n": 38, "c": 416, "h": 30, "w": 30, "k": 40, "r": 1, "s": 1, "dtype": "bf16"}, 26.0),
    ({"n": 2, "c": 16, "h": 13, "w": 14, "k": 40, "r": 1, "s": 1, "dtype": "tf32"}, 3.9),
    ({"n": 4, "c": 8, "h": 15, "w": 14, "k": 256, "r": 1, "s": 1, "dtype": "bf16"}, 3.1),
]


@pytest.mark.parametrize(("sizes", "measured_us"), DRAWN)
def test_sizes_that_nobody_chose(sizes: dict[str, Any], measured_us: float) -> None:
    predicted = pm.predict(Conv2d(**sizes), "h200", library="torch", timing="graph").predicted_time_s
    assert predicted == pytest.approx(measured_us * 1e-6, rel=0.3)


def test_a_row_of_pixels_more_or_less_is_no_cliff_for_a_plain_product() -> None:
    """29, 30 and 31 rows of 30 pixels take 28.2, 26.0 and 26.5 us on an H200."""
    rows = np.arange(24, 40)
    op = Conv2d(n=38, c=416, h=rows, w=30, k=40, r=1, s=1, dtype="bf16")
    times = np.asarray(pm.predict(op, "h200", library="torch").predicted_time_s)
    off = rows * 30 % 8 != 0
    assert np.all(np.diff(times[off]) >= 0)
    assert np.all(times[off][1:] < 1.2 * times[off][:-1])


def test_groups_of_several_channels_are_less_sure() -> None:
    width = {}
    for groups in (1, 8):
        op = Conv2d(n=8, c=256, h=28, w=28, k=256, groups=groups, dtype="bf16", layout="nhwc", **THREE)
        found = pm.predict(op, "h200", library="torch")
        width[groups] = found.predicted_time_high_s / found.predicted_time_low_s
    assert width[8] > 1.5 * width[1]


SLOWER = 1.05
OF_INPUT: dict[str, Any] = {"backward": True, "gradient": "input"}


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_the_gradient_of_the_input_at_stride_1_is_a_convolution_of_the_outputs_gradient(dtype, layout, padding):
    same: dict[str, Any] = {"n": 8, "r": 3, "s": 3, "dtype": dtype, "layout": layout}
    gradient = Conv2d(c=160, k=73, h=28, w=30, padding=padding, **same, **OF_INPUT)
    # 28 + 2 padding - 2 rows of dy; 2 - padding zeros around them give 28 rows again
    other = Conv2d(c=73, k=160, h=26 + 2 * padding, w=28 + 2 * padding, padding=2 - padding, **same)
    assert (other.p, other.q) == (28, 30)
    found, expected = (pm.predict(op, "h200-sxm-141gb", library="torch") for op in (gradient, other))
    assert found.predicted_time_s == pytest.approx(SLOWER * expected.predicted_time_s)


def test_gradients_of_other_strides_and_paddings_stay_as_they_are_in_a_sweep():
    sizes = {"stride": [1, 2, 1, 1], "padding": [1, 1, 3, 0], "groups": [1, 1, 1, 4], "k": [64, 64, 64, 4]}
    sweep = Conv2d(
        n=8, c=64, h=28, w=28, r=3, s=3, dtype="bf16", layout="nhwc", **OF_INPUT,
        **{name: np.array(values, dtype=float) for name, values in sizes.items()},
    )  # fmt: skip
    swept = pm.predict(sweep, "h200-sxm-141gb", library="torch").predicted_time_s
    for place in range(4):
        one = sweep.changed(**{name: values[place] for name, values in sizes.items()})
        assert swept[place] == pytest.approx(pm.predict(one, "h200-sxm-141gb", library="torch").predicted_time_s)


@pytest.mark.parametrize(
    ("side", "by_flydsl_us", "by_torch_us"),
    [
        (16, 19.7, 26.0),
        (64, 18.9, 24.7),
        (128, 20.6, 33.1),
        (256, 46.0, 54.8),
        (512, 141.2, 188.4),
        (1024, 587.2, 843.6),
    ],
)
def test_flydsl_transposes_images_alone(side: int, by_flydsl_us: float, by_torch_us: float) -> None:
    """Seven convolutions of 128 channels on an MI355X (github.com/ROCm/FlyDSL/pull/733), by which it was set."""
    conv = Conv2d(n=1, c=128, h=side, w=side, k=128, dtype="bf16", **THREE)
    by_flydsl, by_torch = (pm.predict(conv, "mi355x", library=name) for name in ("flydsl", "torch"))
    assert by_flydsl.predicted_time_s * 1e6 == pytest.approx(by_flydsl_us, rel=0.2)
    assert by_torch.predicted_time_s * 1e6 == pytest.approx(by_torch_us, rel=0.3)
    assert by_flydsl.rows()[0]["predicted_terms_s"].get("split-k", 0.0) == 0.0
    # images by channels are not transposed
    by_channels = pm.predict(replace(conv, layout="nhwc"), "mi355x", library="flydsl")
    assert by_channels.predicted_time_s < by_flydsl.predicted_time_s
    assert by_channels.rows()[0]["predicted_terms_s"].get("layout", 0.0) == 0.0

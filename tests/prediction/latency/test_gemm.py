"""Matrix products: every term by hand, limits, scalars and arrays, and agreement with measurements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.core.hardware import Kernels, Tiles
from perfmodel.core.vocabulary import Timing
from perfmodel.hardware_catalog import hardware
from perfmodel.operators.gemm import Gemm
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.constants import constants
from perfmodel.prediction.latency.family import Family, Values
from perfmodel.prediction.latency.gemm import (
    FAMILIES,
    GEMM_BF16,
    GEMM_FP8,
    GEMM_FP32,
    Product,
    family_of,
    product,
    product_terms,
    rates,
)
from perfmodel.prediction.latency.gemm.rates import PAUSE_S
from perfmodel.prediction.latency.gemm.tiles import TENSOR, VECTOR, tiles_of
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.own_figures import THROUGH_REGISTERS
from perfmodel.prediction.latency.terms import STARTING, Terms
from perfmodel.prediction.predict import predict

#: 100 SMs at 1 GHz of 64 lanes: 0.128 TFLOP/s each; 1 TB/s; no L2. Batched products have one tile, 64 x 128.
VECTOR_GPU = Machine(
    *(100.0, 1e9, 12.8e12, "vector", "fp32", 12.8e12, 1e12, 0.0, np.inf),
    kernels=Kernels(gemm_tiles=((64, 64), (128, 32), (32, 128)), gemm_batched_tiles=((64, 128),)),
)
#: 100 SMs at 1 GHz of 1 TFLOP/s each
TENSOR_GPU = Machine(100.0, 1e9, 100e12, "tensor", "bf16", 12.8e12, 1e12, 0.0, np.inf)
FP32: Values = {
    "math": 1.0, "linear": 1.0, "eta": 1.0, "launch": 2e-6, "fill": 16.0, "split": 4e-6, "tile": 0.15, "stride": 1.0,
    "energy": 1e-12, "linear_call": 1.5, "host": 30e-6, "hidden": 10e-6, "bounds": 1.0,
}  # fmt: skip
#: 2000 clocks at 1 GHz are 2 us; L2 has 2.048 x 100 TFLOP/s x 2 B / 64 = 6.4 TB/s, which is 64 B a clock and SM
BF16: Values = {
    "math": 1.0, "eta": 1.0, "start": 2000.0, "fill": 64.0, "split": 4e-6, "l2": 2.048, "energy": 1e-12,
    "resident": 0.15625, "host": 30e-6, "hidden": 10e-6,
}  # fmt: skip
FP8: Values = {**BF16, "quantisation_bytes": 5.0, "quantisation_row": 1.0}
CASES = (
    (GEMM_FP32, VECTOR_GPU, FP32, "fp32"),
    (GEMM_BF16, TENSOR_GPU, BF16, "bf16"),
    (GEMM_FP8, TENSOR_GPU, FP8, "fp8"),
)
COLD, WARM = Conditions(), Conditions(cache="warm")
#: one block of 64 x 128 outputs, 1008 long, at 0.128 TFLOP/s: 2 x 64 x 128 x 1008 / 0.128e12 = 129.024 us
BLOCK = 129.024e-6
sizes = st.integers(1, 40_000)


def batched(
    batch: int, m: int, n: int, k: int, machine: Machine = VECTOR_GPU, conditions: Conditions = COLD, **c: float
) -> Terms:
    return product_terms(Product(m, n, k, batch, 4.0, 4.0), machine, {**FP32, **c}, conditions)


def test_one_whole_wave_by_hand() -> None:
    # 2 x 10 x 5 tiles are one block for each SM; 16 of 1024 steps fill the pipeline: 16 / 1008 of 129.024 us
    got = batched(2, 640, 640, 1008)
    assert got.adds["math"] == pytest.approx(BLOCK)
    assert got.adds["pipeline"] == pytest.approx(BLOCK * 16 / 1008)
    assert got.adds["tile waste"] == pytest.approx(0.0, abs=1e-15)
    assert got.adds["wave quantisation"] == pytest.approx(0.0, abs=1e-15)
    assert got.adds["launch"] == 2e-6
    # A, B and C once: 2 x (2 x 640 x 1008 + 640^2) x 4 B = 13.6 MB at 1 TB/s
    assert got.alone["hbm"] == pytest.approx(13.5987e-6, rel=1e-4)
    # 100 blocks x 1008 x 192 x 4 B at 0.8 x 64 B x 100 x 1 GHz = 5.12 TB/s
    assert got.alone["l2"] == pytest.approx(15.12e-6)
    # (131.072^4 + 13.599^4 + 15.12^4)^(1/4) - 131.072 = 0.0096 us
    assert got.adds["contention"] == pytest.approx(9.58e-9, rel=1e-2)


def test_an_sm_of_few_lanes_needs_few_outputs_in_flight() -> None:
    small = replace(VECTOR_GPU, kernels=Kernels(gemm_batched_tiles=((32, 32),)))
    # 2 blocks of 32 x 32 outputs: an SM of 64 lanes takes as long as for 5,760 outputs
    whole = batched(2, 32, 32, 1008, small).alone["math"]
    assert whole == pytest.approx(5760 / 1024 * 2 * 1024 * 1024 / 0.128e12)
    # with 2 lanes, as for fp64, 180 outputs would do, and a block takes its own arithmetic, 32 times as long
    few = batched(2, 32, 32, 1008, replace(small, dtype="fp64", peak_flop_per_s=0.4e12)).alone["math"]
    assert few == pytest.approx(2 * 1024 * 1024 / 0.004e12)
    # more lanes than 64 need no more
    many = batched(2, 32, 32, 1008, replace(small, peak_flop_per_s=25.6e12)).alone["math"]
    assert many <= whole


def test_padding_to_tiles_is_waste_by_hand() -> None:
    # 600 rows take the tiles of 640, so that 40 / 640 of a block's time is wasted
    got = batched(2, 600, 640, 1008)
    assert got.adds["tile waste"] == pytest.approx(BLOCK * 40 / 640)
    # 1001 takes the 126 steps of 8 of 1008
    assert batched(2, 640, 640, 1001).adds["tile waste"] == pytest.approx(BLOCK * 7 / 1008)


def test_the_last_wave_is_quantised_by_hand() -> None:
    # 150 blocks: 1.5 waves take 0.1 x 1.5 + 0.9 x 2 = 1.95
    got = batched(3, 640, 640, 1008)
    assert got.adds["wave quantisation"] == pytest.approx(0.45 * BLOCK)
    assert got.alone["math"] == pytest.approx(1.95 * BLOCK * 1024 / 1008)
    # half a wave takes as long as a whole one
    assert batched(2, 320, 640, 1008).adds["wave quantisation"] == pytest.approx(0.5 * BLOCK)


def test_memory_by_hand() -> None:
    # at 10 GB/s the 13.6 MB take 1.36 ms, and arithmetic hides behind them
    got = batched(2, 640, 640, 1008, replace(VECTOR_GPU, bandwidth_bytes_per_s=1e10))
    assert got.adds["hbm"] == pytest.approx(1.35987e-3, rel=1e-4)
    assert got.adds["math"] == 0.0
    # A wave is a super-tile of 1280 x 1280, so that without L2 2560 x 2560 reads A and B twice.
    a = 2560 * 1000 * 4.0
    out = 2560 * 2560 * 4.0
    assert batched(2, 2560, 2560, 1000).alone["hbm"] == pytest.approx(2 * (4 * a + out) / 1e12)
    # An L2 of A's size holds half of the panels: a half of the second reading remains.
    half = replace(VECTOR_GPU, l2_bytes=a)
    assert batched(2, 2560, 2560, 1000, half).alone["hbm"] == pytest.approx(2 * (3 * a + out) / 1e12)
    # What stays in L2 between calls is read at 2.3 times the speed; what is written goes to memory.
    large = replace(VECTOR_GPU, l2_bytes=1e9)
    assert batched(2, 2560, 2560, 1000, large, WARM).alone["hbm"] == pytest.approx(2 * (2 * a / 2.3 + out) / 1e12)
    # Reading A in pieces of rows of 512 numbers or more takes `stride` times as long.
    assert batched(2, 2560, 2560, 1000, large, stride=3.0).alone["hbm"] == pytest.approx(2 * (4 * a + out) / 1e12)


def test_rotating_weights_stay_in_a_large_l2() -> None:
    # five copies of 2 MB, and little else, stay in 100 MB: twice as fast; at 50 GB/s memory is what limits
    machine = replace(TENSOR_GPU, l2_bytes=1e8, bandwidth_bytes_per_s=5e10)
    product = Product(1.0, 1000.0, 1000.0, 1.0, 2.0, 2.0)
    # 1 / 128 of the 64 B x 100 x 1 GHz = 6.4 TB/s is as much as memory's 50 GB/s
    c = {**BF16, "resident": 1 / 128}
    cold, rotating = (product_terms(product, machine, c, Conditions(cache=cache)) for cache in ("cold", "rotating"))
    assert cold.alone["hbm"] == pytest.approx((2e6 + 4000) / 5e10)
    assert rotating.alone["hbm"] == pytest.approx((1e6 + 1000 + 2000) / 5e10)


def test_the_power_limit_by_hand() -> None:
    # 10 % of 100 W and 20 W more are not the engine's: 10 TFLOP x 10 pJ at 70 W
    product, machine = Product(1e4, 1e4, 5e4, 1, 4, 4), replace(VECTOR_GPU, tdp_w=100.0, l2_bytes=1e12)
    got = product_terms(product, machine, {**FP32, "energy": 1e-11, "byte_energy": 0.0}, COLD)
    assert got.alone["math"] == pytest.approx(1.0 / 0.7)
    assert got.adds["power"] > 0.1
    # two matrices of 2 GB are read and 0.4 GB are written: 0.264 J at 60 pJ a byte
    got = product_terms(product, machine, {**FP32, "energy": 1e-11}, COLD)
    assert got.alone["math"] == pytest.approx(1.0 / 0.7 + 0.264 / 70.0)


def test_the_power_limit_of_tensor_cores_by_hand() -> None:
    # below the knee of 1.2 GHz the voltage is at its lowest: 70 W / 10 pJ = 7 TFLOP/s
    product = Product(1e4, 1e4, 5e4, 1.0, 2.0, 2.0)
    limited = replace(TENSOR_GPU, tdp_w=100.0)
    got = product_terms(product, limited, {**BF16, "energy": 1e-11}, COLD)
    assert got.alone["math"] == pytest.approx(1e13 / 7e12)
    assert got.adds["power"] > 0.0
    # an 8-bit FLOP takes half of the energy: twice the rate
    bytes_ = product_terms(replace(product, input_bytes=1.0), limited, {**BF16, "energy": 1e-11}, COLD)
    assert bytes_.alone["math"] == pytest.approx(1e13 / 14e12)


def test_128_lanes_are_not_fed() -> None:
    wide = replace(VECTOR_GPU, peak_flop_per_s=25.6e12)
    assert batched(2, 640, 640, 1008, wide).adds["math"] == pytest.approx(BLOCK / 2 / 0.88)


def test_a_tensor_product_and_l2_by_hand() -> None:
    # 2560 x 2560 are 200 tiles of 256 x 128 (or 128 x 256), two waves: 2 x 2 x 256 x 128 x (6400 + 64) / 1e12
    product = Product(2560.0, 2560.0, 6400.0, 1.0, 2.0, 2.0)
    got = product_terms(product, TENSOR_GPU, BF16, COLD)
    assert got.alone["math"] == pytest.approx(847.25e-6, rel=1e-4)
    assert got.adds["math"] == pytest.approx(2 * 2560 * 2560 * 6400 / 100e12)
    # 200 blocks x 6400 x 384 x 2 B at 64 B x 100 x 1 GHz
    assert got.alone["l2"] == pytest.approx(153.6e-6)
    slow = product_terms(product, TENSOR_GPU, {**BF16, "l2": 0.2048}, COLD)
    assert slow.adds["l2"] == pytest.approx(1536e-6)
    assert slow.adds["math"] == slow.adds["hbm"] == 0.0


def test_rows_of_a_wave_far_apart_by_hand() -> None:
    # 100 SMs work on 2560 rows and 640 columns at once: 3200 rows of 43,750 x 4 B are 560 MB, of which 140 MB are
    # within reach: 1 + 2 x (1 - 140 / 560) = 2.5 times the arithmetic
    slow = replace(VECTOR_GPU, kernels=replace(VECTOR_GPU.kernels, translation_cost=2.0))

    def ratio(m: int, n: int, k: int, batch: int = 1) -> float:
        product = Product(m, n, k, batch, 4.0, 4.0)
        near, far = (product_terms(product, machine, FP32, COLD).alone["math"] for machine in (VECTOR_GPU, slow))
        return float(far / near)

    assert ratio(2560, 2560, 43750) == pytest.approx(2.5)
    # a column of 100 blocks is 12,800 rows, and 128 columns: 12,928 rows of 10,828 x 4 B are 560 MB, too
    assert ratio(25600, 2560, 10829) == pytest.approx(2.5, rel=1e-3)
    # 3200 rows of 10,937 x 4 B are 140 MB, and two rows are 0.35 MB; batches stayed within reach where measured
    assert ratio(2560, 2560, 10937) == ratio(1, 1, 43750) == ratio(2560, 2560, 43750, batch=2) == 1.0


def test_rows_in_one_channel_and_sizes_off_cache_lines_by_hand() -> None:
    # rows 65,536 x 4 B = 256 KiB apart take the whole cost, half of it at 128 KiB, none at 64 KiB or off powers of two
    crowded = replace(VECTOR_GPU, kernels=replace(VECTOR_GPU.kernels, channel_cost=2.0))

    def ratio(k: int, batch: int = 1) -> float:
        product = Product(2560, 2560, k, batch, 4.0, 4.0)
        spread, met = (product_terms(product, machine, FP32, COLD).alone["math"] for machine in (VECTOR_GPU, crowded))
        return float(met / spread)

    assert ratio(65536) == ratio(131072) == pytest.approx(3.0)
    assert ratio(32768) == pytest.approx(2.0)
    assert ratio(16384) == ratio(65500) == ratio(65536, batch=2) == 1.0

    def slower(m: int, n: int, k: int, batch: int = 1) -> float:
        product = Product(m, n, k, batch, 4.0, 4.0)
        whole, off = (product_terms(product, VECTOR_GPU, {**FP32, "bounds": b}, COLD).alone["math"] for b in (1.0, 1.5))
        return float(off / whole)

    # two sizes off multiples of 32 are needed
    assert slower(2561, 2561, 1024) == slower(2560, 2561, 1023) == pytest.approx(1.5)
    assert slower(2560, 2560, 1024) == slower(2561, 2560, 1024) == slower(2561, 2561, 1024, batch=2) == 1.0


def test_machines_that_copy_to_shared_memory_check_no_bounds() -> None:
    copying, product = replace(VECTOR_GPU, copies_to_shared=True), Product(2561, 2561, 1023, 1.0, 4.0, 4.0)
    loading, copied = (
        product_terms(product, machine, {**FP32, "bounds": 1.5}, COLD).alone["math"]
        for machine in (VECTOR_GPU, copying)
    )
    assert loading == pytest.approx(1.5 * copied)
    # compute capability 8.0 and above, and no other vendor's chip
    names = {"p100-pcie-16gb": False, "v100-pcie-32gb": False, "a100-pcie-40gb": True, "l4": True, "mi210": False}
    assert {name: Machine.of(hardware(name), None).copies_to_shared for name in names} == names


def test_sizes_off_cache_lines_take_energy_by_hand() -> None:
    # a board of 100 W leaves 70 W: at 20 pJ a FLOP and more power sets the time, in batches, too
    limited = replace(VECTOR_GPU, tdp_w=100.0)

    def ratio(m: int, n: int, batch: float = 1.0) -> float:
        product = Product(m, n, 1024, batch, 4.0, 4.0)
        constants = ({**FP32, "energy": 20e-12, "byte_energy": 0.0, "ragged": r} for r in (1.0, 1.3))
        plain, off = (product_terms(product, limited, c, COLD).alone["math"] for c in constants)
        return float(off / plain)

    assert ratio(2561, 2561) == ratio(2561, 2561, 2.0) == pytest.approx(1.3)
    assert ratio(2560, 2561) == 1.0


def test_weights_that_are_read_again_for_each_row_of_tiles_by_hand() -> None:
    # 25,601 columns exceed what 100 SMs cover at once, 1500 = 11 x 128 + 92 rows go into tiles of 128: with k = 256 the
    # weights take 2 (1500 / 2000)^(1/2) times the arithmetic; 1436 = 11 x 128 + 28 rows go into tiles of 64
    machine = replace(VECTOR_GPU, kernels=replace(VECTOR_GPU.kernels, reread_cost=2.0))

    def ratio(m: int, n: int, k: int, batch: int = 1) -> float:
        product = Product(m, n, k, batch, 4.0, 4.0)
        once, again = (product_terms(product, on, FP32, COLD).alone["math"] for on in (VECTOR_GPU, machine))
        return float(again / once)

    def together(cost: float) -> float:
        return float((1.0 + cost**4) ** 0.25)

    assert ratio(1500, 25601, 256) == pytest.approx(together(2.0 * 0.75**0.5))
    assert ratio(1436, 25601, 256) == pytest.approx(together(2.0 * 1.6 * (1436 / 1936) ** 0.5))
    assert ratio(1500, 25600, 256) == ratio(1500, 25601, 256, batch=2) == 1.0
    assert ratio(1500, 11, 257) < 1.001
    longer = [ratio(1500, 25601, k) for k in (257, 515, 2061, 8245)]
    assert longer == sorted(longer)


def test_small_products_of_a_batch_by_hand() -> None:
    machine = replace(VECTOR_GPU, kernels=replace(VECTOR_GPU.kernels, small_batch_cost=0.8))

    def ratio(m: int, n: int, k: int, batch: int = 64) -> float:
        product = Product(m, n, k, batch, 4.0, 4.0)
        usual, small = (product_terms(product, on, FP32, COLD).alone["math"] for on in (VECTOR_GPU, machine))
        return float(small / usual)

    # B is larger than A, or large; 64 rows fill half of a tile of 128
    assert ratio(128, 384, 384) == ratio(512, 256, 512) == pytest.approx(1.8)
    assert ratio(64, 384, 384) == pytest.approx(1.8 * 2.0**0.5)
    assert ratio(384, 64, 384) == ratio(384, 384, 64) == ratio(64, 384, 384, batch=1) == 1.0
    # half of it at 768, none from 1024 on
    assert ratio(128, 768, 768) == pytest.approx(1.4)
    assert ratio(64, 1024, 1024) == ratio(1024, 1024, 1024) == 1.0


def test_batches_whose_b_is_ragged_on_both_sides_take_longer_where_a_machine_says_so() -> None:
    machine = replace(VECTOR_GPU, kernels=replace(VECTOR_GPU.kernels, ragged_batch_cost=0.75))

    def ratio(m: int, n: int, k: int, batch: int = 64) -> float:
        product = Product(m, n, k, batch, 4.0, 4.0)
        usual, ragged = (product_terms(product, on, FP32, COLD).alone["math"] for on in (VECTOR_GPU, machine))
        return float(ragged / usual)

    assert ratio(256, 196, 196) == ratio(196, 196, 196) == pytest.approx(1.75)
    assert ratio(196, 192, 196) == ratio(196, 196, 192) == ratio(256, 196, 196, batch=1) == 1.0


def test_the_power_limit_counts_the_pauses_between_calls() -> None:
    # 2e12 FLOP in fp32 at 100 W, alone and between calls of a loop that events measure
    machine = replace(VECTOR_GPU, tdp_w=100.0, kernels=replace(VECTOR_GPU.kernels, averages_power=True))
    values = {**FP32, "energy": 20e-12}
    product = Product(1000, 10000, 10000, 1, 4.0, 4.0)

    def limited(timing: Timing, at: Product = product) -> float:
        return float(product_terms(at, machine, values, Conditions(timing=timing)).alone["math"])

    assert limited(Timing.KERNEL) - limited(Timing.EVENT) == pytest.approx(PAUSE_S)
    # a call that is shorter than the pause runs at the full clock
    short = Product(100, 100, 1000, 1, 4.0, 4.0)
    assert limited(Timing.EVENT, short) == pytest.approx(
        float(product_terms(short, VECTOR_GPU, values, Conditions(timing=Timing.EVENT)).alone["math"])
    )


def test_few_long_blocks_are_split() -> None:
    long = Product(64.0, 64.0, 65536.0, 1.0, 2.0, 2.0)
    got = product_terms(long, TENSOR_GPU, BF16, COLD)
    whole = product_terms(long, TENSOR_GPU, {**BF16, "split": 1.0}, COLD)
    assert got.adds["split-k"] == 4e-6
    assert whole.adds["split-k"] == 0.0
    # at best 32 parts, and the fixed 4 us beside
    assert whole.time_s / 32 < got.time_s < whole.time_s / 5
    assert product_terms(Product(4096, 4096, 65536, 1, 2, 2), TENSOR_GPU, BF16, COLD).adds["split-k"] == 0.0
    assert batched(2, 64, 128, 65536).adds["split-k"] == 0.0


def test_a_linear_layer_takes_more_dispatch() -> None:
    event = Conditions("event", "warm", "torch")
    plain, linear = (
        GEMM_FP32.timed_terms(Gemm(m=8, n=8, k=8, bias=bias), VECTOR_GPU, FP32, event) for bias in (False, True)
    )
    # a tiny kernel hides behind 30 us of dispatch, or 1.5 times as much
    assert plain.time_s == pytest.approx(30e-6, rel=0.02)
    assert linear.time_s == pytest.approx(45e-6, rel=0.02)


def test_tiles_by_machine_and_engine() -> None:
    assert tiles_of(VECTOR_GPU, True) == ((64, 128),)
    assert tiles_of(replace(VECTOR_GPU, kernels=Kernels()), True) == VECTOR
    assert tiles_of(TENSOR_GPU, True) == TENSOR
    assert tiles_of(replace(TENSOR_GPU, dtype="fp32"), False) == VECTOR


@pytest.mark.parametrize(
    ("engine", "dtype", "name"),
    [
        *(("vector", "fp32", "gemm_fp32"), ("tensor", "fp32", "gemm_fp32"), ("tensor", "fp64", "gemm_fp32")),
        *(("tensor", "bf16", "gemm_bf16"), ("tensor", "tf32", "gemm_bf16"), ("tensor", "fp16", "gemm_bf16")),
        *(("tensor", "fp8", "gemm_bf16"), ("tensor", "int8", "gemm_bf16"), ("tensor", "fp4", "gemm_fp8")),
    ],
)
def test_the_family_follows_engine_and_dtype(engine: str, dtype: str, name: str) -> None:
    assert family_of(replace(TENSOR_GPU, engine=engine, dtype=dtype)).name == name


def test_serving_libraries_have_8_bit_kernels_of_their_own() -> None:
    for dtype, name in (("fp8", "gemm_fp8"), ("int8", "gemm_fp8"), ("fp4", "gemm_fp8"), ("bf16", "gemm_bf16")):
        machine = replace(TENSOR_GPU, dtype=dtype)
        serving = [family.name for family in FAMILIES if family.applies(None, machine, "vllm")]
        assert serving == [name]


@pytest.mark.parametrize("family", [GEMM_FP32, GEMM_BF16, GEMM_FP8])
def test_at_most_twelve_constants_inside_their_limits(family: Family) -> None:
    # of a machine and one library; only fp32 products have rows with the dispatch of a call
    host = 2 if family is GEMM_FP32 else 0
    assert len(family.constants) + host <= 12
    for constant in family.constants:
        assert constant.low < constant.default < constant.high


@pytest.mark.parametrize(("family", "machine", "c", "dtype"), CASES)
@given(m=sizes, n=sizes, k=sizes, batch=st.integers(1, 100))
def test_physics_of_any_product(
    family: Family, machine: Machine, c: Values, dtype: str, m: int, n: int, k: int, batch: int
) -> None:
    op = Gemm(m=m, n=n, k=k, batch=batch, dtype=dtype)
    got = family.formula(op, machine, c, COLD)
    assert got.time_s >= op.flop() / machine.peak_flop_per_s
    assert got.time_s >= op.work().bytes / machine.bandwidth_bytes_per_s
    assert min(got.adds.values()) >= -1e-9 * got.time_s
    largest = max(got.alone.values())
    beside = sum(got.adds.get(name, 0.0) for name in ("quantisation", "sectors", "alignment"))
    assert largest <= got.time_s <= 3**0.25 * largest + 2e-6 + 4e-6 + beside + 1e-12


@pytest.mark.parametrize(("family", "machine", "c", "dtype"), CASES)
@given(shape=st.tuples(sizes, sizes, sizes, st.integers(2, 500)))
def test_a_larger_batch_takes_longer(
    family: Family, machine: Machine, c: Values, dtype: str, shape: tuple[int, int, int, int]
) -> None:
    m, n, k, batch = shape
    batches = np.array([batch, batch + 1, 2 * batch, 10 * batch], np.float64)
    time = np.asarray(family.formula(Gemm(m=m, n=n, k=k, batch=batches, dtype=dtype), machine, c, COLD).time_s)
    # Splits of k are whole numbers, fewer for a larger batch: each step of them may save some percent.
    assert (np.diff(time) >= -0.05 * time[:-1]).all()
    assert time[3] > time[0]


@pytest.mark.parametrize(("family", "machine", "c", "dtype"), CASES)
@given(shapes=st.lists(st.tuples(sizes, sizes, sizes, st.sampled_from([1, 1, 2, 60])), min_size=1, max_size=6))
def test_arrays_of_mixed_shapes_equal_scalars(
    family: Family, machine: Machine, c: Values, dtype: str, shapes: list[tuple[int, int, int, int]]
) -> None:
    names = ("m", "n", "k", "batch")
    columns = dict(zip(names, np.array(shapes, np.float64).T, strict=True))
    many = family.formula(Gemm(dtype=dtype, **columns), machine, c, COLD)
    for index, shape in enumerate(shapes):
        one = family.formula(Gemm(dtype=dtype, m=shape[0], n=shape[1], k=shape[2], batch=shape[3]), machine, c, COLD)
        for name, value in one.adds.items():
            assert np.broadcast_to(many.adds[name], len(shapes))[index] == pytest.approx(value, rel=1e-12, abs=1e-18)


def test_chunks_give_what_one_piece_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    m, n, k, batch = np.random.default_rng(0).integers(1, 3000, (4, 500)).astype(np.float64)
    product = Product(m, n, k, np.where(batch > 1500, 1.0, batch), 2.0, 2.0)
    whole = product_terms(product, TENSOR_GPU, BF16, COLD)
    monkeypatch.setattr("perfmodel.prediction.latency.gemm.product.CHUNK", 64)
    parts = product_terms(product, TENSOR_GPU, BF16, COLD)
    assert all(np.array_equal(parts.adds[name], value) for name, value in whole.adds.items())


@pytest.mark.parametrize(("machine", "c"), [(TENSOR_GPU, BF16), (VECTOR_GPU, FP32)], ids=["tensor", "vector"])
def test_of_a_tile_and_the_same_turned_the_one_of_fewer_blocks_is_timed(
    machine: Machine, c: Values, monkeypatch: pytest.MonkeyPatch
) -> None:
    m, n, k = np.exp(np.random.default_rng(1).uniform(0.0, 10.0, (3, 4000))).round()
    product, tiles = Product(m, n, k, 1.0, 2.0, 2.0), tiles_of(machine, False)
    here = rates.Rates(product, machine, c, COLD, False)
    assert sum(1 if turned is None else 2 for *_, turned in here.cuts) == len(tiles)
    assert any(turned is not None for *_, turned in here.cuts)
    fewer = product_terms(product, replace(machine), c, COLD).time_s
    monkeypatch.setattr(rates, "cuts", lambda tiles: ((index, tile, None) for index, tile in enumerate(tiles)))
    each = product_terms(product, replace(machine), c, COLD).time_s
    assert np.asarray(fewer) == pytest.approx(each, rel=1e-14)


@pytest.mark.parametrize(("family", "machine", "c", "dtype"), CASES)
@pytest.mark.parametrize("timing", [Timing.KERNEL, Timing.EVENT])
def test_the_time_is_what_the_terms_add_up_to(
    family: Family, machine: Machine, c: Values, dtype: str, timing: Timing
) -> None:
    rng = np.random.default_rng(2)
    m, n, k = np.exp(rng.uniform(0.0, 10.0, (3, 500))).round()
    batch = np.where(rng.random(500) < 0.3, 7.0, 1.0)
    conditions = Conditions(timing=timing)
    for op in (Gemm(m=m, n=n, k=k, batch=batch, dtype=dtype), Gemm(m=640, n=64, k=5000, dtype=dtype)):
        terms = family.timed_terms(op, machine, c, conditions, 0.1)
        total = family.timed_total(op, machine, c, conditions, 0.1)
        assert np.asarray(total.time_s) == pytest.approx(terms.time_s, rel=1e-12)
        started = sum(np.asarray(terms.adds[name]) for name in STARTING if name in terms.adds)
        assert np.asarray(total.starting_s) == pytest.approx(started, rel=1e-12, abs=1e-18)


def test_sizes_broadcast() -> None:
    got = product_terms(Product(np.ones((3, 1)), np.ones(4), 5.0, 1.0, 2.0, 2.0), TENSOR_GPU, BF16, COLD)
    assert np.shape(got.time_s) == (3, 4)


@pytest.mark.parametrize(("family", "machine", "c", "dtype"), CASES)
@pytest.mark.parametrize("l2_bytes", [0.0, 1e8])
@pytest.mark.parametrize("conditions", [COLD, WARM])
def test_far_outside_the_data(
    family: Family, machine: Machine, c: Values, dtype: str, l2_bytes: float, conditions: Conditions
) -> None:
    huge = np.array([1.0, 1e9])
    m, n, k = (grid.reshape(-1) for grid in np.meshgrid(huge, huge, huge))
    here = replace(machine, l2_bytes=l2_bytes)
    time = np.asarray(family.formula(Gemm(m=m, n=n, k=k, dtype=dtype), here, c, conditions).time_s)
    assert np.isfinite(time).all()
    assert time[0] < 20e-6
    # 2e27 FLOP: the loss beside the peak is a small one
    assert time[-1] == pytest.approx(2e27 / machine.peak_flop_per_s, rel=0.25)


@pytest.mark.parametrize("tiles", [TENSOR, VECTOR], ids=["tensor", "vector"])
def test_the_usual_tiles_are_powers_of_two_in_both_orientations(tiles: Tiles) -> None:
    """Whole warps share them; a tall product and a wide one of the same sizes have the same tiles."""
    assert all(side >= 32 and side.bit_count() == 1 for sides in tiles for side in sides)
    assert set(tiles) == {(columns, rows) for rows, columns in tiles}


def test_an_engine_at_half_rate_is_fed_in_time() -> None:
    """GeForce adds up fp32 at half rate, so that feeding the tiles costs nothing; 8-bit integers show the full rate."""
    card, server = (hardware(name) for name in ("rtx-4090", "l40s"))
    op = Gemm(m=8192, n=8192, k=8192, dtype="bf16")
    half, full = (Machine.of(machine, resolve_peak(op, machine)) for machine in (card, server))
    assert (half.slack, full.slack) == (pytest.approx(2.0, rel=1e-3), 1.0)
    # the same constants on both: the card reaches a larger share of its peak
    values = {c.name: c.default for c in GEMM_BF16.all_constants} | {"energy": 1e-15}
    shares = []
    for machine in (half, full):
        time = GEMM_BF16.timed_terms(op, machine, values, Conditions()).time_s
        shares.append(float(op.flop() / machine.peak_flop_per_s / time))
    assert shares[1] < values["math"] < shares[0] <= 1.0
    assert Machine.of(card, None).slack == 1.0, "the vector engine runs at its rate"


@pytest.mark.parametrize(("machine", "scale"), [("h100", "column"), ("b200", "column"), ("b200", "group:32")])
@pytest.mark.parametrize("m", [16, 4096])
def test_scales_of_columns_or_of_a_microscaling_format_are_multiplied_in_passing(
    machine: str, scale: str, m: int
) -> None:
    """A product of fp8 reads its scales, at most a byte for 32, and is less sure with them, since no table has any."""
    plain, scaled = (Gemm(m=m, n=8192, k=8192, dtype="fp8", scale=name) for name in ("none", scale))
    known, found = (pm.predict(op, machine, library="torch") for op in (plain, scaled))
    assert 1.0 <= found.predicted_time_s / known.predicted_time_s <= 33 / 32 + 1e-3
    widths = [one.predicted_time_high_s / one.predicted_time_low_s for one in (found, known)]
    assert widths[0] > widths[1]


def test_few_rows_of_4_bits_compute_as_long_as_128_in_cutlass_and_k_is_not_split() -> None:
    """40 blocks of 128 x 128 on an RTX 5090: twice k is twice the arithmetic of one block; other libraries split k."""
    rows, card = (1, 64, 128), hardware("rtx-5090")
    of_rows = [Gemm(m=m, n=5120, k=8192, dtype="nvfp4") for m in rows]
    times = [pm.predict(op, card, library="flashinfer_cutlass").predicted_time_s for op in of_rows]
    assert times[0] == pytest.approx(times[2], rel=0.05)
    assert all(pm.predict(op, card, library="helion").predicted_time_s < 0.8 * times[0] for op in of_rows)
    deeper = pm.predict(Gemm(m=64, n=5120, k=16384, dtype="nvfp4"), card, library="vllm_cutlass")
    assert deeper.predicted_time_s == pytest.approx(2.0 * times[1], rel=0.1)
    peak = card.find_peak("fp4", "tensor")
    assert peak is not None
    assert card.sm_count
    block_s = 2.0 * 128 * 128 * 8192 * card.sm_count / peak.flop_per_s
    assert block_s < times[0] < 1.5 * block_s


def test_an_engine_that_its_vendor_limits_is_fed_in_time() -> None:
    """What feeds an H20's engine is built for four times its rate: scales of blocks cost nothing, as measured."""
    limited, whole = (hardware(name) for name in ("h20-96gb", "h100-sxm5-80gb"))
    op = Gemm(m=8192, n=24576, k=7168, dtype="fp8", scale="block:128x128", quantized=True)
    machines = [Machine.of(machine, resolve_peak(op, machine)) for machine in (limited, whole)]
    assert [machine.slack for machine in machines] == [pytest.approx(4.0), 1.0]
    fast, slow = (predict(op, machine, library="vllm_deepgemm") for machine in (limited, whole))
    assert 0.9 < fast.bound.time_s / fast.predicted_time_s <= 0.96  # 94 % in vllm-project/vllm pull request 49932
    assert slow.bound.time_s / slow.predicted_time_s < 0.8
    # mma.sync is limited with it
    sixteen = Gemm(m=64, n=64, k=64, dtype="bf16")
    machines = [Machine.of(machine, resolve_peak(sixteen, machine)) for machine in (limited, whole)]
    shares = [machine.mma_sync_flop_per_s / machine.peak_flop_per_s for machine in machines]
    assert shares == [pytest.approx(0.629, rel=0.01)] * 2


def test_eight_bit_products_on_vector_lanes_have_a_time():
    # V100 has DP4A and no 8-bit tensor cores, and no table has such products
    op, machine = Gemm(m=[64, 4096], n=4096, k=4096, dtype="sq"), hardware("v100-sxm2-32gb")
    made = predict(op, machine)
    assert np.all(made.predicted_time_s >= made.bound_time_s)
    assert made.predicted_time_s[1] > 20 * made.predicted_time_s[0]


MIXED = (("h100-sxm5-80gb", "bf16"), ("h100-sxm5-80gb", "fp8"), ("t4", "fp32"), ("mi210", "fp32"))


@pytest.mark.parametrize(("name", "dtype"), MIXED)
def test_no_split_is_missed_where_none_is_tried(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = hardware(name)
    m, n, k = np.floor(2.0 ** np.random.default_rng(3).uniform(0.0, 14.0, (3, 4000)))
    op = Gemm(m=m, n=n, k=k, dtype=dtype)
    kept = predict(op, machine)
    monkeypatch.setattr(product, "_ABOVE", 0.0)  # then parts are timed for all products that may be split
    tried = predict(op, machine)
    assert np.array_equal(kept.predicted_time_s, tried.predicted_time_s)
    for term, time in tried.predicted_terms_s.items():
        assert np.all(kept.predicted_terms_s[term] == time), term


@pytest.mark.parametrize(("name", "dtype"), MIXED)
@pytest.mark.parametrize("shared", ["m", "n", "k", "mk", "nk", "mn"])
def test_sizes_that_all_products_share_are_those_of_each(name: str, dtype: str, shared: str) -> None:
    machine, random = hardware(name), np.random.default_rng(4)
    sizes = {size: np.floor(2.0 ** random.uniform(0.0, 13.0, 300)) for size in "mnk"}
    for size in shared:
        sizes[size] = np.full(300, 96.0 if size != "k" else 2048.0)
    each = predict(Gemm(**sizes, batch=np.ones(300), dtype=dtype), machine)
    one = predict(Gemm(**{**sizes, **{size: sizes[size][0] for size in shared}}, dtype=dtype), machine)
    # a residual surface adds up its corners in another order
    np.testing.assert_allclose(one.predicted_time_s, each.predicted_time_s, rtol=1e-15)
    for term, time in each.predicted_terms_s.items():
        assert np.all(np.abs(one.predicted_terms_s[term] - time) <= 1e-15 * each.predicted_time_s), term


@pytest.mark.parametrize("name", ["mi100", "mi210", "p100-pcie-16gb", "t4"])
def test_no_fp32_product_takes_three_times_as_long_as_its_neighbour(name: str) -> None:
    """A step of 5 % in one size, or of 1, from products of one row to those of 20,000."""
    random = np.random.default_rng(7)
    sizes = {size: np.exp(random.uniform(0.0, np.log(20_000), 1000)).astype(int) + 1 for size in "mnk"}
    for bias, batch in ((True, 1), (False, random.integers(2, 64, 1000))):

        def times(sizes: dict[str, Any], bias: bool = bias, batch: Any = batch) -> Any:
            product = Gemm(**sizes, batch=batch, dtype="fp32", bias=bias)
            return predict(product, hardware(name), library="torch").predicted_time_s

        here = times(sizes)
        for size, values in sizes.items():
            ratio = times({**sizes, size: np.maximum(values + 1, (values * 1.05).astype(int))}) / here
            assert 1.0 / 3.0 < ratio.min() <= ratio.max() < 3.0


@pytest.mark.parametrize(("family", "machine", "values", "dtype"), CASES)
def test_an_activation_takes_cycles_of_the_lanes_by_hand(
    family: Family, machine: Machine, values: Values, dtype: str
) -> None:
    # 6.4e12 lane cycles a second: 30 for each of 6.4 million outputs are 30 us
    sizes: dict[str, Any] = {"m": np.array([1000.0, 2000.0]), "n": 3200, "k": 64, "batch": 2, "dtype": dtype}
    plain, gelu = (Gemm(**sizes, activation=kind, quantized=True) for kind in ("none", "gelu"))
    added = family.formula(gelu, machine, values, COLD).time_s - family.formula(plain, machine, values, COLD).time_s
    assert added == pytest.approx([30e-6, 60e-6])
    assert family.total is not None
    whole = family.total(gelu, machine, values, COLD).time_s
    assert whole == pytest.approx(family.formula(gelu, machine, values, COLD).time_s)


def test_pytorch_activates_outputs_in_a_call_of_its_own_by_hand() -> None:
    # 12.8 MB of outputs read and written at 1 TB/s are 25.6 us, and a start is 2 us
    sizes: dict[str, Any] = {"m": 1000, "n": 3200, "k": 64, "batch": 2, "dtype": "bf16"}
    plain, relu = (
        GEMM_BF16.formula(Gemm(**sizes, activation=kind), TENSOR_GPU, BF16, Conditions(library="torch"))
        for kind in ("none", "relu")
    )
    assert relu.time_s - plain.time_s == pytest.approx(27.6e-6)
    assert relu.adds["epilogue"] == pytest.approx(27.6e-6)


@pytest.mark.parametrize(("family", "machine", "values", "dtype"), CASES)
def test_rows_that_begin_inside_a_sector_take_longer_by_hand(
    family: Family, machine: Machine, values: Values, dtype: str
) -> None:
    # rows of 32 B in 8 and 16 bits; 8 outputs of 2 B end in the middle of a sector; fp32 has constants of its own
    sizes = {"m": 4096.0, "k": 4096.0, "dtype": dtype, "quantized": True}
    whole, inside = (family.formula(Gemm(n=n, **sizes), machine, values, COLD) for n in (4096.0, 4088.0))
    assert "sectors" not in whole.adds
    if family is GEMM_FP32:
        assert "sectors" not in inside.adds
        return
    body = inside.time_s - inside.adds["sectors"] - inside.adds["launch"]
    assert inside.adds["sectors"] == pytest.approx(0.08 * body)
    assert family.total is not None
    assert family.total(Gemm(n=4088.0, **sizes), machine, values, COLD).time_s == pytest.approx(inside.time_s)


@pytest.mark.parametrize("machine", ["p100", "p4", "t4", "mi100", "h100"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_twice_the_rows_of_a_wide_product_take_no_less_time(machine: str, dtype: str) -> None:
    # An output layer of few tokens: rows of a block that hold none widen no wave, so that no more weights are in reach.
    op = pm.Gemm(m=2.0 ** np.arange(12), n=262144.0, k=1152.0, dtype=dtype)
    time = np.asarray(pm.predict(op, machine).predicted_time_s)
    assert np.all(time[1:] >= 0.95 * time[:-1])


def test_half_numbers_on_vector_lanes_are_added_up_in_fp32() -> None:
    """8192^3 take PyTorch 0.142 s in fp16 and 0.127 s in fp32 on a P100 (zzc0721/torch-performance-test-data, 174)."""
    machine = hardware("p100-pcie-16gb")
    half, whole = (predict(Gemm(m=4096, n=4096, k=4096, dtype=dtype), machine) for dtype in ("fp16", "fp32"))
    assert half.predicted_time_s == pytest.approx(whole.predicted_time_s, rel=0.15)
    assert half.bound_time_s < 0.6 * whole.bound_time_s, "the lanes could add up in fp16"


@pytest.mark.parametrize(
    ("machine", "factor"),
    [("v100-sxm2-32gb", THROUGH_REGISTERS), ("v100-pcie-16gb", THROUGH_REGISTERS), ("t4", None), ("a100", None)],
)
def test_tensor_cores_without_asynchronous_copies_take_longer_unless_power_limits_them(
    machine: str, factor: float | None
) -> None:
    assert constants(GEMM_BF16, hardware(machine), "", "fp16").values.get("factor") == factor


@pytest.mark.parametrize(
    ("name", "dtype", "cache"),
    [("l40s", "bf16", "warm"), ("rtx-4090", "fp16", "warm"), ("h100", "bf16", "cold"), ("a100", "fp32", "cold")],
)
def test_a_sweep_says_of_each_product_what_is_said_of_it_alone(name: str, dtype: str, cache: str) -> None:
    """Times, intervals and their sources to the last bit, where several doubts are about some of the products each."""
    m, n, k = np.exp(np.random.default_rng(3).uniform(0.0, 9.0, (3, 60))).round()
    n[::2], k[::2] = 32.0 * np.ceil(n[::2] / 32.0), 64.0 * np.ceil(k[::2] / 64.0)
    machine = hardware(name)
    many = pm.predict(Gemm(m=m, n=n, k=k, dtype=dtype), machine, cache=cache)
    sources = many.uncertainty.variances(many.regime)
    kinds = set()
    for index in range(m.size):
        one = pm.predict(Gemm(m=int(m[index]), n=int(n[index]), k=int(k[index]), dtype=dtype), machine, cache=cache)
        for key in ("predicted_time_s", "predicted_time_low_s", "predicted_time_high_s", "bound_time_s", "regime"):
            assert getattr(many, key)[index] == getattr(one, key), (key, index)
        alone = one.uncertainty.variances(one.regime)
        assert {source: sources[source][index] for source in alone} == alone
        assert all(sources[source][index] == 0.0 for source in sources.keys() - alone.keys())
        kinds.add(tuple(alone.values()))
    assert len(kinds) > 3

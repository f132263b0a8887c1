"""8-bit and 4-bit products by hand: quantisation of the input, and tiles that a library chooses by the rows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.core.hardware import Kernels
from perfmodel.operators.gemm import Gemm
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Values
from perfmodel.prediction.latency.gemm import GEMM_FP8, Product, product_terms
from perfmodel.prediction.latency.machine import Machine

#: 100 SMs at 1 GHz of 1 TFLOP/s each; 1 TB/s; no L2
TENSOR_GPU = Machine(
    *(100.0, 1e9, 100e12, "tensor", "fp8", 12.8e12, 1e12, 0.0, np.inf),
    kernels=Kernels(fp8_tiles={"sglang": ((64, 64, 256.0), (128, 128, math.inf))}),
)
#: 2000 clocks are 2 us; 0.15625 of L2's 64 B x 100 x 1 GHz are as much as device memory has
FP8: Values = {
    "eta": 1.0, "start": 2000.0, "fill": 64.0, "split": 4e-6, "l2": 4.096, "energy": 1e-12, "resident": 0.15625,
    "quantisation_bytes": 5.0, "quantisation_row": 1.0,
}  # fmt: skip
COLD, WARM = Conditions(library="vllm"), Conditions(cache="warm", library="vllm")


def test_fp8_quantises_its_input_by_hand() -> None:
    # 5 B for each of 1000 x 2000 numbers at 1 TB/s: 10 us
    got = GEMM_FP8.formula(Gemm(m=1000, n=10, k=2000, dtype="fp8"), TENSOR_GPU, FP8, COLD)
    assert got.adds["quantisation"] == pytest.approx(10e-6)


@pytest.mark.parametrize("library", ["", "torch", "triton", "nobody's"])
@pytest.mark.parametrize("dtype", ["fp8", "fp8_block", "nvfp4"])
def test_only_serving_libraries_quantise_in_the_call(library: str, dtype: str) -> None:
    op = Gemm(m=512, n=4096, k=4096, dtype=dtype)
    machine = "b200-sxm-180gb"
    got = pm.predict(op, machine, library=library)
    assert got.predicted_time_s == pm.predict(op.changed(quantized=True), machine, library=library).predicted_time_s
    assert "quantisation" not in got.predicted_terms_s
    assert pm.predict(op, machine, library="trtllm").predicted_terms_s["quantisation"] > 0


@pytest.mark.parametrize("machine", ["h100-sxm5-80gb", "h200-sxm-141gb", "l40s", "b200-sxm-180gb", "h20-96gb", "l4"])
@pytest.mark.parametrize("library", ["", "torch"])
def test_fp8_is_hardly_slower_than_bf16(machine: str, library: str) -> None:
    """The engine is twice as fast and the inputs are half as long; families state start and bandwidth to 10 %."""
    sizes = 2.0 ** np.random.default_rng(11).uniform(8.0, 13.5, (3, 1000))
    m, n, k = 16.0 * np.ceil(sizes / 16.0)
    narrow, wide = (
        np.asarray(
            pm.predict(Gemm(m=m, n=n, k=k, dtype=dtype, out_dtype="bf16"), machine, library=library).predicted_time_s
        )
        for dtype in ("fp8", "bf16")
    )
    assert np.max(narrow / wide) < 1.5
    assert np.max((narrow - wide)[wide > 10e-6] / wide[wide > 10e-6]) < 0.2
    assert np.mean(narrow[wide > 50e-6] / wide[wide > 50e-6]) < 0.75


def test_quantising_what_stays_in_l2_is_faster_by_hand() -> None:
    # 3 B x 2 million + 10 x 2000 B of weights fit 100 MB; 1 + 0.15625 x 6.4 TB/s / 1 TB/s = 2 times as fast
    op, machine = Gemm(m=1000, n=10, k=2000, dtype="fp8"), replace(TENSOR_GPU, l2_bytes=1e8)
    assert GEMM_FP8.formula(op, machine, FP8, WARM).adds["quantisation"] == pytest.approx(5e-6)
    assert GEMM_FP8.formula(op, machine, FP8, COLD).adds["quantisation"] == pytest.approx(10e-6)
    # 3 B x 200 million do not
    large = GEMM_FP8.formula(Gemm(m=100_000, n=10, k=2000, dtype="fp8"), machine, FP8, WARM)
    assert large.adds["quantisation"] == pytest.approx(1e-3)


def test_the_scale_of_fp4_is_known_before() -> None:
    # Of the 2 us that the kernels of fp8 take to start, fp4 in TensorRT-LLM takes 0.6; half a byte is written, not one.
    op, conditions = Gemm(m=1000, n=10, k=2000, dtype="fp4"), Conditions(library="trtllm")
    adds = GEMM_FP8.formula(op, replace(TENSOR_GPU, dtype="fp4"), FP8, conditions).adds
    assert adds["launch"] == pytest.approx(1.2e-6)
    assert adds["quantisation"] == pytest.approx(5e-6)
    assert GEMM_FP8.formula(op, replace(TENSOR_GPU, dtype="fp4"), FP8, COLD).adds["launch"] == pytest.approx(2e-6)


def test_tiles_by_the_rows_of_a_product_by_hand() -> None:
    # sglang's fp8 on Hopper, 100 SMs of 1 TFLOP/s: 64 x 6400 are 100 tiles of 64 x 64. They lose 1.5 / 1.25 beside
    # those of 128 x 128, and the outputs are twice as wide as the inputs: 2 x 64 x 64 x (6400 + 2 x 64) x 1.2
    # / 1e12 = 64.17 us, and 100 steps of 64 at 15 ns that no other block hides
    machine, conditions = TENSOR_GPU, Conditions(library="sglang")
    product = Product(64.0, 6400.0, 6400.0, 1.0, 1.0, 2.0)
    assert product_terms(product, machine, FP8, conditions).alone["math"] == pytest.approx(65.67e-6, rel=1e-3)
    # 65 rows take two tiles each; 200 blocks are two waves
    two = product_terms(replace(product, m=65.0), machine, FP8, conditions)
    assert two.alone["math"] == pytest.approx(2 * 64.17e-6, rel=1e-3)
    # 257 rows take three tiles of 128 x 128: 150 blocks are two waves, 2 x 2 x 128 x 128 x 6528 / 1e12
    assert product_terms(replace(product, m=257.0), machine, FP8, conditions).alone["math"] == pytest.approx(
        427.8e-6, rel=1e-3
    )
    # nothing is split, where another library would
    long = Product(64.0, 64.0, 65536.0, 1.0, 1.0, 2.0)
    assert product_terms(long, machine, FP8, conditions).adds["split-k"] == 0.0
    assert product_terms(long, machine, FP8, COLD).adds["split-k"] > 0.0
    # arrays see the rule of each row
    rows = np.array([1.0, 64.0, 65.0, 256.0, 257.0, 1e4])
    many = product_terms(replace(product, m=rows), machine, FP8, conditions).time_s
    assert many == pytest.approx([product_terms(replace(product, m=m), machine, FP8, conditions).time_s for m in rows])


@pytest.mark.parametrize("machine", ["h100", "h200", "b200", "l40s", "l40", "rtx-4090", "rtx-5090"])
def test_the_kernel_that_quantises_by_blocks_of_a_row_does_so_on_every_machine(machine: str) -> None:
    """vLLM's takes some 1600 clocks of an SM for each row, also where nobody measured it."""
    chip = pm.hardware(machine)
    vllm, other = (
        pm.predict(Gemm(m=16384, n=64, k=64, dtype="fp8"), chip, library=library).predicted_time_s
        for library in ("vllm", "trtllm")
    )
    clocks = vllm * chip.sm_count * chip.clocks_hz["tensor"] / 16384
    assert 1300 < clocks < 4000
    assert vllm > 2.5 * other

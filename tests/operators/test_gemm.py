"""Products of two dtypes and their scales, counted by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.operators.scales import FORMATS, weight_bytes


def test_weights_in_four_bits() -> None:
    """A 16 x 4096 x 2 B, B 4096^2 / 2 B, one scale of 2 B for 128 numbers of B, C 16 x 4096 x 2 B."""
    op = pm.Gemm(m=16, n=4096, k=4096, dtype="int4_wo")
    assert (op.dtype, op.weight_dtype, op.scale, op.out_dtype) == ("fp16", "int4", "group:128", "fp16")
    assert op.work().bytes == 131072 + 8388608 + 262144 + 131072
    assert op.flop() == 2 * 16 * 4096 * 4096


def test_blocks_of_fp8() -> None:
    """A and a scale of 4 B for 128 of its numbers; B and one for 128 x 128 of its; C in 16 bits."""
    op = pm.Gemm(m=128, n=4096, k=4096, dtype="fp8_block")
    assert op.work().bytes == 524288 + 16384 + 16777216 + 4096 + 1048576
    # A block at the edge may be cut off: 576 columns are 4.5 blocks.
    assert pm.Gemm(m=128, n=576, k=7168, dtype="fp8_block").tensors()[3].shape[1] == 5


def test_columns_have_a_scale_each() -> None:
    """W8A16: A 2 x 4 x 2 B, B 4 x 3 B, 3 scales of 4 B. SmoothQuant: A in 8 bits, too, and C in 16."""
    assert pm.Gemm(m=2, n=3, k=4, dtype="int8_wo").work().bytes == 16 + 12 + 12 + 12
    smooth = pm.Gemm(m=2, n=3, k=4, dtype="sq")
    assert smooth.work().bytes == 8 + 12 + 12 + 12
    assert smooth.quantized


@pytest.mark.parametrize(("name", "size", "total"), [("nvfp4", 0.5625, 9437184), ("mxfp4", 0.53125, 8912896)])
def test_fp4_has_scales(name: str, size: float, total: int) -> None:
    op = pm.Gemm(m=1, n=4096, k=4096, dtype=name)
    assert op.dtype == "fp4"
    assert size == weight_bytes("fp4", op.scale)
    tensors = {tensor.name: tensor.size_bytes for tensor in op.tensors()}
    assert tensors["b"] + tensors["b_scale"] == total == size * 4096**2
    assert tensors["a"] + tensors["a_scale"] == size * 4096


def test_a_name_of_weights_alone() -> None:
    op = pm.Gemm(m=1, n=32, k=32, dtype="bf16", weight_dtype="mxfp4")
    assert (op.dtype, op.weight_dtype, op.scale) == ("bf16", "fp4", "group:32")
    assert op.number_format == "bf16 fp4 group:32"


def test_what_is_given_beside_the_name_stays() -> None:
    op = pm.Gemm(m=1, n=64, k=64, dtype="int4_wo", scale="group:64", out_dtype="fp32")
    assert (op.scale, op.out_dtype) == ("group:64", "fp32")
    assert op.changed(m=5).scale == "group:64"
    assert op.changed(m=5).weight_dtype == "int4"


sizes = st.integers(1, 5000)


@given(sizes, sizes, sizes, st.sampled_from(["fp32", "tf32", "bf16", "fp16", "fp8", "int8"]), st.booleans())
def test_weights_like_the_activations_are_the_plain_product(m: int, n: int, k: int, dtype: str, bias: bool) -> None:
    plain = pm.Gemm(m=m, n=n, k=k, dtype=dtype, bias=bias)
    named = pm.Gemm(m=m, n=n, k=k, dtype=dtype, bias=bias, weight_dtype=dtype, scale="none")
    assert plain.work() == named.work()
    assert plain.tensors() == named.tensors()
    assert plain.given() == tuple(name for name in named.given() if name not in ("weight_dtype", "scale"))
    a100 = pm.hardware("a100-sxm4-80gb")
    if dtype != "fp8":
        assert pm.predict(plain, a100).predicted_time_s == pm.predict(named, a100).predicted_time_s


def test_operands_of_8_bits_run_at_most_at_the_rate_of_instructions_with_scales():
    """GeForce halves the rate of fp8 with sums in fp32, and not where operands have scales, which may all be one."""
    sizes = {"m": 8192, "n": 8192, "k": 8192}
    plain, blocks, scaled = (
        pm.predict(pm.Gemm(**sizes, dtype=name), "rtx-5090") for name in ("fp8", "fp8_block", "mxfp8")
    )
    for call in (plain, blocks, scaled):
        assert call.bound_time_s == pytest.approx(2 * 8192**3 / 838e12)
        assert call.peak.dtype == "fp8"
    assert scaled.predicted_time_low_s < scaled.predicted_time_s < blocks.predicted_time_s
    mixed = pm.predict(pm.Gemm(**sizes, dtype="fp8", weight_dtype="int8", scale="column"), "rtx-5090")
    assert mixed.bound_time_s == pytest.approx(2 * 8192**3 / 419e12)
    whole = pm.Gemm(**sizes, dtype="mxfp8")
    assert pm.predict(whole, "b200").bound_time_s == pm.predict(pm.Gemm(**sizes, dtype="fp8"), "b200").bound_time_s


@pytest.mark.parametrize("name", FORMATS)
def test_the_bound_is_that_of_the_activations_engine(name: str) -> None:
    """Large products are limited by arithmetic in the dtype of A."""
    b200 = pm.hardware("b200-sxm-180gb")
    op = pm.Gemm(m=16384, n=16384, k=16384, dtype=name)
    found = pm.predict(op, b200)
    assert found.bound_time_s == pytest.approx(op.flop() / b200.best_peak(FORMATS[name].dtype).flop_per_s)
    assert found.predicted_time_s >= found.bound_time_s


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"dtype": "int4_wo", "k": 100}, "k=100 is not a multiple of the 128 numbers of scale=group:128"),
        ({"dtype": "int4_wo", "k": np.array([256, 100])}, "k=100 is not a multiple"),
        ({"scale": "group:0"}, "is no kind of scale"),
        ({"scale": "block:128"}, "is no kind of scale"),
        ({"scale": "tensor"}, "is no kind of scale"),
        ({"weight_dtype": "int5"}, "int5"),
        ({"m": 0, "dtype": "fp8_block"}, "m=0 is below 1"),
    ],
)
def test_impossible_products(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        pm.Gemm(**{"m": 4, "n": 4, "k": 256, **changed})

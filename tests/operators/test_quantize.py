"""Quantising apart from the product: counts by hand, and what a product with and without it takes."""

from __future__ import annotations

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.operators.quantize import Quantize


def test_counts_by_hand() -> None:
    op = Quantize(rows=8, cols=100)
    # |x|, max, x / scale, round and clamp for 800 elements; 1600 B in bf16 in, 800 B of fp8 and 8 scales of 4 B out
    assert op.flop() == 4000
    assert (op.work().bytes_read, op.work().bytes_written) == (1600, 832)
    assert Quantize(rows=8, cols=100, dtype="fp4", in_dtype="fp32").work().bytes_read == 3200
    assert Quantize(rows=8, cols=100, dtype="fp4").work().bytes_written == 400 + 32
    # a group of 16 columns has a scale; rows and tensors may have any number of columns
    assert Quantize(rows=8, cols=96, scale="group:16").work().bytes_written == 768 + 4 * 8 * 6
    assert [Quantize(rows=8, cols=97, scale=shared).work().bytes_written for shared in ("row", "tensor")] == [808, 780]
    # one scale of all is known after a first read, which a cache may keep
    assert Quantize(rows=8, cols=100, scale="tensor").work().bytes_read == 3200
    assert Quantize(rows=8, cols=100, scale="tensor").work().least_bytes == 1600 + 800 + 4


def test_only_8_and_4_bits_are_quantised_to() -> None:
    with pytest.raises(UsageError, match="Allowed: fp4, fp8, int8"):
        Quantize(rows=8, cols=8, dtype="bf16")


@pytest.mark.parametrize("library", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("machine", ["h100-sxm5-80gb", "l40s", "b200-sxm-180gb"])
def test_a_product_is_at_most_its_parts_one_after_the_other(machine: str, library: str) -> None:
    sizes = np.array([16.0, 512.0, 8192.0])
    whole, product = (
        pm.predict(pm.Gemm(m=sizes, n=4096, k=4096, dtype="fp8", quantized=given), machine, library=library)
        for given in (False, True)
    )
    rows = pm.predict(Quantize(rows=sizes, cols=4096), machine, library=library)
    together = product.predicted_time_s + rows.predicted_time_s
    assert np.all(product.predicted_time_s < whole.predicted_time_s)
    # libraries start up to three kernels in front of a product, of some microseconds each
    assert np.all(whole.predicted_time_s < together + 15e-6)
    assert np.all(whole.predicted_time_s > 0.9 * together - 5e-6)
    for name in ("flop", "bytes_read", "bound_time_s"):
        assert np.all(getattr(whole, name) == getattr(product, name)), name


def test_quantising_takes_at_least_its_traffic_and_grows_with_it() -> None:
    rows = np.array([1.0, 64.0, 4096.0, 65536.0])
    prediction = pm.predict(Quantize(rows=rows, cols=4096), "h100")
    assert np.all(prediction.predicted_time_s >= prediction.bound_time_s)
    assert np.all(np.diff(prediction.predicted_time_s) > 0)
    assert "quantisation" in {str(term) for term in prediction.predicted_terms_s}


def test_16_bit_products_do_not_ask_for_it() -> None:
    plain, given = (
        pm.predict(pm.Gemm(m=64, n=64, k=64, dtype="bf16", quantized=value), "h100") for value in (False, True)
    )
    assert plain.predicted_time_s == given.predicted_time_s

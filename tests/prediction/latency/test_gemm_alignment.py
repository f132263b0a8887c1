"""Products whose rows begin off 16 bytes: by hand, limits, scalars and arrays, agreement with measurements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.prediction.latency.gemm.alignment import narrow_s
from perfmodel.prediction.latency.gemm.rates import Product
from perfmodel.prediction.latency.machine import Machine

#: 100 SMs at 1 GHz, 1024 FLOP a clock each
UNIT = Machine(100.0, 1e9, 1024 * 100e9, "tensor", "bf16", 1e13, 1e12, 5e7, 400.0)


def product(m: float, n: float, k: float, size: float = 2.0) -> Product:
    return Product(m, n, k, 1.0, size, 2.0)


def test_a_whole_wave_of_tiles_takes_its_loads_and_its_arithmetic_by_hand() -> None:
    """100 tiles of 128 x 128 on 100 SMs, one load an element: 0.22 x 256 clocks beside 32 for each of 32 + 64 of k.

    The step of 32 waits 300 clocks besides.
    """
    step = (32.0**4 + (0.22 * 256.0) ** 4) ** 0.25
    assert narrow_s(product(128, 12_799, 31), UNIT, "torch", 1.0) == pytest.approx((96.0 * step + 300.0) * 1e-9)


@pytest.mark.parametrize(("n", "loads"), [(12_798, 0.5), (12_796, 0.25)])
def test_wider_alignment_takes_fewer_loads(n: int, loads: float) -> None:
    # the least of tiles of 128 and, where the arithmetic of 2 x 64 x 64 takes 8 clocks, of 64 in two waves
    large, small = (((side / 128.0) ** 8 * 32.0**4 + (0.22 * 2 * side * loads) ** 4) ** 0.25 for side in (128.0, 64.0))
    least = min(96.0 * large, 4.0 * 96.0 * small) + 300.0
    assert narrow_s(product(128, n, 32), UNIT, "torch", 1.0) == pytest.approx(least * 1e-9)


def test_rows_beyond_the_last_load_up_to_half_of_a_tile() -> None:
    times = [narrow_s(product(m, 64 * 100 - 1, 31), UNIT, "torch", 1.0) for m in (2, 32, 48, 64)]
    assert times[0] == times[1] < times[2] < times[3]


@pytest.mark.parametrize(
    ("sizes", "library"),
    [((64, 64, 64), "torch"), ((63, 64, 8), "torch"), ((64, 64, 64), "triton"), ((1, 63, 63), "torch"),
     ((63, 1, 63), "torch")],
)  # fmt: skip
def test_whole_vectors_and_single_rows_lose_nothing(sizes: tuple[int, int, int], library: str) -> None:
    assert narrow_s(product(*sizes), UNIT, library, 1.0) == 0.0


def test_triton_knows_only_whether_16_divides_a_size() -> None:
    assert narrow_s(product(128, 128, 136), UNIT, "torch", 1.0) == 0.0
    assert narrow_s(product(128, 128, 136), UNIT, "triton", 1.0) > 0.0


@pytest.mark.parametrize("split", [2, 60], ids=["few split", "most split"])
@pytest.mark.parametrize("off", [2, 60], ids=["few off", "most off"])
def test_few_and_many_products_of_a_sweep_take_what_each_takes_alone(off: int, split: int) -> None:
    """Where few are off 16 bytes, or small enough to be split along k, these alone are gathered and computed."""
    places = np.arange(64)
    m, k = np.where(places % 64 < split, 60.0, 60_000.0), 4096.0 - (places * 7 % 64 < off)
    swept = narrow_s(Product(m, 2000.0, k, 1.0, 2.0, 2.0), UNIT, "torch", 1e-6)
    alone = [narrow_s(product(*sizes), UNIT, "torch", 1e-6) for sizes in zip(m, [2000.0] * 64, k, strict=True)]
    assert np.array_equal(swept, alone)
    square = narrow_s(Product(m[:, None], 2000.0, k, 1.0, 2.0, 2.0), UNIT, "torch", 1e-6)
    assert np.array_equal(np.diagonal(square), swept)


@pytest.mark.parametrize("dtype", ["fp8", "fp32"])
def test_engines_without_such_kernels_have_no_such_term(dtype: str) -> None:
    found = pm.predict(pm.Gemm(m=256, n=255, k=1001, dtype=dtype), "h100-sxm5-80gb")
    assert "alignment" not in found.predicted_terms_s


def test_a_chip_of_another_vendor_has_no_such_term() -> None:
    assert "alignment" not in pm.predict(pm.Gemm(m=256, n=255, k=1001, dtype="bf16"), "mi300x").predicted_terms_s


@given(
    m=st.integers(2, 5000),
    n=st.integers(2, 5000),
    k=st.integers(1, 5000),
    library=st.sampled_from(["", "triton"]),
    dtype=st.sampled_from(["bf16", "tf32"]),
)
@example(m=4096, n=26008, k=4096, library="triton", dtype="tf32")  # whole sectors, and not 16 elements
def test_scalars_are_arrays_and_terms_add_up(m: int, n: int, k: int, library: str, dtype: str) -> None:
    one = pm.predict(pm.Gemm(m=m, n=n, k=k, dtype=dtype), "h100-sxm5-80gb", library=library)
    sweep = pm.Gemm(m=np.array([m, 67.0]), n=np.array([n, 67.0]), k=np.array([k, 67.0]), dtype=dtype)
    many = pm.predict(sweep, "h100-sxm5-80gb", library=library)
    assert np.asarray(many.predicted_time_s)[0] == pytest.approx(one.predicted_time_s)
    assert sum(one.predicted_terms_s.values()) == pytest.approx(one.predicted_time_s)
    assert one.predicted_time_s >= one.bound_time_s


@pytest.mark.parametrize(
    ("sizes", "machine", "library", "measured_us"),
    [
        # our records; a trace of another H100; PyTorch float8_experimental, pull request 145: rows not chosen on
        ((67, 907, 1913), "h200-sxm-141gb", "torch", 16.2),
        ((4999, 1360, 16264), "h100-sxm5-80gb", "triton", 1229.7),
        ((110, 7336, 13528), "h100-sxm5-80gb", "triton", 311.4),
        ((141, 30522, 512), "h100-sxm5-80gb", "torch", 41.28),
        ((1023, 2512, 1029), "h100-sxm5-80gb", "torch", 74.3),
        ((4095, 10000, 511), "h100-sxm5-80gb", "torch", 441.5),
        ((127, 12288, 4097), "h100-sxm5-80gb", "torch", 147.3),
    ],
)
def test_measured_products_off_16_bytes(
    sizes: tuple[int, int, int], machine: str, library: str, measured_us: float
) -> None:
    m, n, k = sizes
    found = pm.predict(pm.Gemm(m=m, n=n, k=k, dtype="bf16"), machine, library=library)
    assert found.predicted_time_s * 1e6 == pytest.approx(measured_us, rel=0.25)


def test_narrow_loads_are_less_sure_on_an_engine_that_none_was_measured_on() -> None:
    def reach(name: str, n: int) -> float:
        found = pm.predict(pm.Gemm(m=8192, n=n, k=8192, dtype="bf16"), pm.hardware(name))
        return found.predicted_time_s / found.predicted_time_low_s

    assert reach("b200", 279) > 1.7 * reach("h100", 279)
    assert reach("b200", 288) < 1.7 * reach("h100", 288)


def test_a_column_of_rows_by_a_row_of_columns_is_the_same_as_each_pair() -> None:
    rows, columns = np.array([1.0, 16.0, 64.0]), np.array([64.0, 4093.0])
    for library in ("", "triton"):
        grid, flat = (
            pm.predict(pm.Gemm(m=m, n=n, k=1000, dtype="bf16"), "h100", library=library).predicted_time_s
            for m, n in ((rows[:, None], columns[None, :]), (np.repeat(rows, 2), np.tile(columns, 3)))
        )
        assert np.array_equal(np.ravel(grid), flat), library

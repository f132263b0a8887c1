"""Products in kernels of their own from Hopper on: blocks of fp64 on tensor cores, and few rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.prediction.latency.gemm.own_kernels import own_s
from perfmodel.prediction.latency.gemm.rates import Product
from perfmodel.prediction.latency.machine import Machine

#: 100 SMs at 1 GHz of 256 FLOP a clock each, 1 TB/s
HOPPER = Machine(100.0, 1e9, 25.6e12, "tensor", "fp64", 12.8e12, 1e12, 0.0, np.inf, matrix_instruction="wgmma")
ETA = {"eta": 0.5}
AMPERE = replace(HOPPER, engine="vector", dtype="fp32", matrix_instruction="mma.sync")


def _product(m: int, n: int, k: int, batch: int, size: float = 8.0) -> Product:
    return Product(1.0 * m, 1.0 * n, 1.0 * k, 1.0 * batch, size, size, rows_apart=False)


def test_blocks_of_fp64_by_hand() -> None:
    # 2 x 2 x 75 blocks of 64 x 64 are 3 on an SM, each of two steps of 1024 clocks and 1090 more; then 75 results of
    # 128 x 128 are written at 5 TB/s, fast enough that operands do not matter
    fast = replace(HOPPER, bandwidth_bytes_per_s=10e12)
    written = 75 * 128 * 128 * 8 / 5e12
    even = own_s(_product(128, 128, 64, 75), 0.0, fast, ETA)
    assert float(even) == pytest.approx(3 * (2 * 1024 + 1090) * 1e-9 + written)
    # k of 63 takes as many steps, each of narrow loads
    odd = own_s(_product(128, 128, 63, 75), 0.0, fast, ETA)
    assert float(odd) == pytest.approx(3 * (2 * 1024 * 1.65 + 1090) * 1e-9 + written)


def test_a_lone_product_of_few_blocks_keeps_its_time_and_a_batch_does_not() -> None:
    for batch, kept in ((1, True), (2, False)):
        found = own_s(_product(128, 128, 4096, batch), 1e-6, HOPPER, ETA)
        assert (float(found) == 1e-6) == kept


def test_few_rows_stream_their_operands() -> None:
    vector = replace(HOPPER, engine="vector", dtype="fp32")
    large = _product(4, 1024, 1024, 100, 4.0)
    moved = 100 * (4 * 1024 + 1024 * 1024 + 4 * 1024) * 4
    assert float(own_s(large, 1.0, vector, ETA)) == pytest.approx(moved / 0.65e12)
    # a small one takes 2000 clocks and 6.3 for each term, or as long as a tile if that is less
    small = _product(1, 64, 1000, 1, 4.0)
    assert float(own_s(small, 1.0, vector, ETA)) == pytest.approx(8.3e-6)
    assert float(own_s(small, 2e-6, vector, ETA)) == pytest.approx(2e-6)
    assert float(own_s(_product(8, 64, 1000, 1, 4.0), 1.0, vector, ETA)) == 1.0
    # which of both runs 6 rows is not known
    assert float(own_s(_product(6, 64, 1000, 1, 4.0), 1.0, vector, ETA)) == pytest.approx(8.3e-6**0.5)


def test_a_vector_streams_the_matrix_on_any_generation() -> None:
    for machine in (replace(HOPPER, engine="vector", dtype="fp32"), AMPERE):
        # 1000 x 4096 numbers at 0.85 TB/s, the matrix on either side; never longer than by tiles
        moved = (1000 * 4096 + 1000 + 4096) * 4
        column = _product(1000, 1, 4096, 1, 4.0)
        assert float(own_s(column, 1.0, machine, ETA)) == pytest.approx(moved / 0.85e12)
        assert float(own_s(column, 1e-6, AMPERE, ETA)) == 1e-6
        # few long sums: 2000 clocks, and one for each term that the threads of a block share
        assert float(own_s(_product(2, 1, 100_000, 1, 4.0), 1.0, machine, ETA)) == pytest.approx(102e-6)
        # nobody knows what runs two columns; from three on it is tiles
        two = float(own_s(_product(1000, 2, 4096, 1, 4.0), 1.0, machine, ETA))
        share = 0.85 if machine is AMPERE else 0.65  # that of Hopper's few rows, which have two columns as well
        assert two == pytest.approx(((1000 * 4096 + 2000 + 8192) * 4 / (share * 1e12)) ** 0.5)
        assert float(own_s(_product(1000, 3, 4096, 1, 4.0), 1.0, machine, ETA)) == 1.0
    # in a batch products of two columns run in tiles
    assert float(own_s(_product(1000, 2, 4096, 8, 4.0), 1.0, AMPERE, ETA)) == 1.0
    moved = 8 * (1000 * 4096 + 1000 + 4096) * 4
    assert float(own_s(_product(1000, 1, 4096, 8, 4.0), 1.0, AMPERE, ETA)) == pytest.approx((moved / 0.85e12) ** 0.25)


#: own records of an H200 (torch 2.11.0, 2026-11-27), chosen with all in view [us]
DRAWN: list[tuple[dict[str, Any], float]] = [
    ({"m": 160, "n": 1984, "k": 85, "batch": 42, "dtype": "fp64"}, 113.9),
    ({"m": 680, "n": 216, "k": 16, "batch": 91, "dtype": "fp64"}, 60.2),
    ({"m": 968, "n": 48, "k": 669, "batch": 35, "dtype": "fp64"}, 113.2),
    ({"m": 1360, "n": 24, "k": 1248, "batch": 4, "dtype": "fp64"}, 20.9),
    ({"m": 2, "n": 1472, "k": 11648, "dtype": "fp64"}, 45.1),
    ({"m": 3, "n": 360, "k": 752, "batch": 133, "dtype": "fp32"}, 48.7),
    ({"m": 1, "n": 56, "k": 806, "batch": 5, "dtype": "fp64"}, 5.7),
]


@pytest.mark.parametrize(("sizes", "measured_us"), DRAWN)
def test_products_that_nobody_chose(sizes: dict[str, Any], measured_us: float) -> None:
    found = pm.predict(pm.Gemm(**sizes), "h200", library="torch", timing="kernel", cache="cold")
    assert found.predicted_time_s == pytest.approx(measured_us * 1e-6, rel=0.2)


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
@pytest.mark.parametrize("batch", [1, 7])
def test_the_time_is_the_sum_of_terms_for_one_and_for_many(dtype: str, batch: int) -> None:
    m = np.array([1, 3, 4, 5, 64, 500, 3000])
    together = pm.predict(pm.Gemm(m=m, n=300, k=511, batch=batch, dtype=dtype), "h200", library="torch")
    times = np.asarray(together.predicted_time_s)
    for rows, time in zip(m, times, strict=True):
        alone = pm.predict(pm.Gemm(m=int(rows), n=300, k=511, batch=batch, dtype=dtype), "h200", library="torch")
        assert alone.predicted_time_s == pytest.approx(time, rel=1e-9)
        assert sum(alone.predicted_terms_s.values()) == pytest.approx(time, rel=1e-9)
        assert min(alone.predicted_terms_s.values()) >= 0.0


def test_triton_has_no_such_kernels() -> None:
    op = pm.Gemm(m=3, n=360, k=752, batch=133, dtype="fp32")
    torch, triton = (pm.predict(op, "h200", library=name).predicted_time_s for name in ("torch", "triton"))
    assert triton > 1.2 * torch


@pytest.mark.parametrize("machine", ["a100-pcie-40gb", "h100-sxm5-80gb"])
def test_products_with_a_vector_say_that_nobody_measured_them(machine: str) -> None:
    def found(n: int, batch: int) -> Any:
        return pm.predict(pm.Gemm(m=256, n=n, k=4096, batch=batch, dtype="fp32"), machine, library="torch")

    def wide(n: int, batch: int) -> float:
        one = found(n, batch)
        return float(one.predicted_time_high_s / one.predicted_time_s)

    assert "extrapolation" in found(1, 1).uncertainty
    assert "extrapolation" not in found(3, 1).uncertainty
    assert wide(1, 1) > wide(3, 1)
    assert wide(1, 8) > wide(1, 1)


@pytest.mark.parametrize("machine", [AMPERE, replace(AMPERE, matrix_instruction="wgmma")], ids=["ampere", "hopper"])
def test_narrow_products_of_a_sweep_take_what_each_takes_alone(machine: Machine) -> None:
    """They alone are gathered and computed; the others keep the time of tiles to the last bit."""
    m, n = np.array([1.0, 2.0, 6.0, 64.0, 4096.0, 300.0]), np.array([512.0, 1.0, 2.0, 3.0, 4096.0, 2.0])
    body = 1e-6 * (1.0 + np.arange(36.0).reshape(6, 6))
    swept: Any = own_s(Product(m[:, None], n, 1024.0, 1.0, 4.0, 4.0, rows_apart=False), body, machine, ETA)
    for row, column in np.ndindex(6, 6):
        alone = own_s(
            Product(m[row], n[column], 1024.0, 1.0, 4.0, 4.0, rows_apart=False), body[row, column], machine, ETA
        )
        assert swept[row, column] == pytest.approx(alone, rel=1e-14)
    wide = (m[:, None] >= 8) & (n >= 8)
    assert np.array_equal(swept[wide], body[wide])
    assert body[0, 0] == 1e-6, "what was given stays as it was"

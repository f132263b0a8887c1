"""Prefix sums: passes, levels and additions by hand."""

from __future__ import annotations

import numpy as np
import pytest

import perfmodel as pm

#: 1024 fp32 elements: 4 KiB; bytes, additions, kernels
COUNTS = {
    "look_back": (2 * 4096, 1023, 1),
    "reduce_then_scan": (3 * 4096, 1023, 3),
    "blelloch": (6 * 1023 * 4, 2 * 1023, 20),
    # 10 steps; 512 + 768 + ... additions: n log2 n - (n - 1)
    "hillis_steele": (20 * 4096, 1024 * 10 - 1023, 10),
}


@pytest.mark.parametrize("algorithm", COUNTS)
def test_counts_by_hand(algorithm: str) -> None:
    op = pm.Scan(cols=1024, algorithm=algorithm)
    assert (op.work().bytes, op.flop(), op.kernels()) == COUNTS[algorithm]
    assert op.work().bytes == (2 + op.passes()) * 4096
    assert op.work().least_bytes == 2 * 4096
    rows = pm.Scan(rows=3, cols=1024, algorithm=algorithm)
    assert (rows.work().bytes, rows.flop()) == (3 * op.work().bytes, 3 * op.flop())


@pytest.mark.parametrize("algorithm", COUNTS)
def test_one_element_has_no_addition(algorithm: str) -> None:
    op = pm.Scan(cols=1, algorithm=algorithm)
    assert op.flop() <= 1
    assert op.work().bytes >= 8


@pytest.mark.parametrize("algorithm", COUNTS)
def test_scalar_equals_array_and_never_beats_its_bound(algorithm: str) -> None:
    cols = np.array([1.0, 1000.0, 2.0**24])
    prediction = pm.predict(pm.Scan(cols=cols, algorithm=algorithm), "a100-sxm4-80gb")
    assert np.all(prediction.predicted_time_s >= prediction.bound_time_s)
    for index, size in enumerate(cols):
        alone = pm.predict(pm.Scan(cols=int(size), algorithm=algorithm), "a100-sxm4-80gb")
        assert alone.predicted_time_s == pytest.approx(prediction.predicted_time_s[index])  # type: ignore[index]


def test_look_back_moves_least() -> None:
    moved = {name: pm.Scan(cols=2**24, algorithm=name).work().bytes for name in COUNTS}
    assert min(moved, key=moved.__getitem__) == "look_back"
    assert moved["hillis_steele"] == 24 * moved["look_back"]

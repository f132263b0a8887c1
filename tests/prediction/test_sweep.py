"""A sweep in chunks gives what one prediction of everything gives, in bounded memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import UsageError


def test_chunks_together_are_the_whole() -> None:
    machine, m, n = pm.hardware("a100-sxm4-80gb"), np.arange(1.0, 60.0), np.arange(64.0, 1024.0, 96.0)
    whole = pm.predict(pm.Gemm(m=m[:, None], n=n, k=512, dtype="bf16"), machine)
    parts = list(pm.sweep(pm.Gemm(m=m[:, None], n=n, k=512, dtype="bf16"), machine, chunk=37))
    assert len(parts) == int(np.ceil(m.size * n.size / 37))
    joined = np.concatenate([part.predicted_time_s for part in parts])
    assert np.array_equal(joined, np.ravel(whole.predicted_time_s))
    assert np.array_equal(np.concatenate([part.params["n"] for part in parts]), np.tile(n, m.size))


def test_a_scalar_is_a_sweep_of_one_point() -> None:
    machine, op = pm.hardware("a100-sxm4-80gb"), pm.Elementwise(numel=1000)
    (only,) = pm.sweep(op, machine, timing="event")
    assert only.predicted_time_s == pm.predict(op, machine, timing="event").predicted_time_s


def test_memory_does_not_grow_with_the_sweep() -> None:
    machine = pm.hardware("a100-sxm4-80gb")

    def peak_bytes(side: int) -> int:
        sizes = np.arange(1.0, side + 1.0)
        tracemalloc.start()
        for _ in pm.sweep(pm.Elementwise(numel=sizes[:, None] * sizes), machine, chunk=4096):
            pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    # 16 times the points; the given sizes themselves grow by 8 B a point
    assert peak_bytes(400) < 1.5 * peak_bytes(100) + 8 * 400**2 * 3


def test_a_chunk_has_points() -> None:
    with pytest.raises(UsageError, match="chunk=0"):
        next(iter(pm.sweep(pm.Elementwise(numel=1), pm.hardware("t4"), chunk=0)))

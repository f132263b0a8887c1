"""A sweep in chunks gives what one prediction of everything gives, in bounded memory."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.core.vocabulary import CacheState, Load, Timing
from perfmodel.errors import UsageError
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.predict import CHUNK
from perfmodel.prediction.sweep import predict_shared


def test_chunks_together_are_the_whole() -> None:
    machine, m, n = pm.hardware("a100-sxm4-80gb"), np.arange(1.0, 60.0), np.arange(64.0, 1024.0, 96.0)
    whole = pm.predict(pm.Gemm(m=m[:, None], n=n, k=512, dtype="bf16"), machine)
    parts = list(pm.sweep(pm.Gemm(m=m[:, None], n=n, k=512, dtype="bf16"), machine, chunk=37))
    assert len(parts) == int(np.ceil(m.size * n.size / 37))
    joined = np.concatenate([part.predicted_time_s for part in parts])
    assert np.array_equal(joined, np.ravel(whole.predicted_time_s))
    assert np.array_equal(np.concatenate([part.params["n"] for part in parts]), np.tile(n, m.size))


@pytest.mark.slow
def test_workers_predict_the_same_to_the_last_bit() -> None:
    machine, m, n = pm.hardware("h100-sxm5-80gb"), np.arange(1.0, 60.0), np.arange(64.0, 1024.0, 96.0)
    op = pm.Gemm(m=m[:, None], n=n, k=512, dtype="fp8")
    alone, shared = list(pm.sweep(op, machine, chunk=97)), list(pm.sweep(op, machine, chunk=97, workers=2))
    for one, other in zip(alone, shared, strict=True):
        for key in ("predicted_time_s", "predicted_time_high_s", "bound_time_s", "limiter", "predicted_limiter"):
            assert np.array_equal(getattr(one, key), getattr(other, key)), key
        assert repr(other.rows()) == repr(one.rows())  # NaN is not equal to itself


def test_one_prediction_of_shared_pieces_is_that_of_one_process() -> None:
    machine, op = pm.hardware("h100-sxm5-80gb"), pm.Gemm(m=np.arange(1.0, 2.2 * CHUNK), n=64, k=512, dtype="bf16")
    conditions = Conditions.parse(Timing.EVENT, CacheState.COLD, "", Load.BURST)
    alone = pm.predict(op, machine, timing="event")
    with ThreadPoolExecutor(2) as pool:  # any executor will do
        shared = predict_shared(op, machine, conditions, pool, most=2)
    for key in ("predicted_time_s", "predicted_time_low_s", "bound_time_s", "limiter", "predicted_limiter"):
        assert np.array_equal(getattr(alone, key), getattr(shared, key)), key
    alone_terms, terms = alone.predicted_terms_s, shared.predicted_terms_s
    assert all(np.array_equal(terms[name], value) for name, value in alone_terms.items())
    assert terms.keys() == alone_terms.keys()


SHAPES = [((7,),), ((3, 1), (5,)), ((4, 1, 1), (3, 1), (2,)), ((2, 3), (3,)), ((2, 1, 3), (4, 1)), ((1, 6), (6,))]


@given(shapes=st.sampled_from(SHAPES), ends=st.tuples(st.integers(0, 100), st.integers(1, 100)))
def test_described_points_are_those_of_the_sweep(shapes: tuple[tuple[int, ...], ...], ends: tuple[int, int]) -> None:
    sizes = [1.0 + np.arange(np.prod(shape)).reshape(shape) for shape in shapes]
    op = pm.Gemm(**dict(zip("mnk", [*sizes, 8.0, 8.0][:3], strict=True)))
    start = ends[0] % op.points
    stop = min(op.points, start + ends[1])
    described, place = op.described(start, stop)
    (part,) = described.parts(op.points, place, place + stop - start)
    numbers = sum(np.size(value) for value in described.params().values() if np.ndim(value))
    assert numbers <= len(shapes) * (stop - start)
    for name, size in zip("mnk", sizes, strict=False):
        assert np.array_equal(
            np.broadcast_to(getattr(part, name), part.shape), np.broadcast_to(size, op.shape).ravel()[start:stop]
        )


def test_a_task_of_a_product_of_ranges_is_described_by_its_ranges() -> None:
    m, n = np.arange(1.0, 1001.0), np.arange(1.0, 501.0)
    described, start = pm.Gemm(m=m[:, None], n=n, k=8).described(123_456, 123_456 + 2000)
    assert np.array_equal(described.m.ravel(), m[246:251])
    assert np.array_equal(described.n, n)
    assert start == 123_456 - 246 * 500


@given(shapes=st.sampled_from(SHAPES), most=st.integers(1, 30))
def test_parts_are_the_points_in_row_major_order(shapes: tuple[tuple[int, ...], ...], most: int) -> None:
    sizes = [1.0 + np.arange(np.prod(shape)).reshape(shape) for shape in shapes]
    op = pm.Gemm(**dict(zip("mnk", [*sizes, 8.0, 8.0][:3], strict=True)))
    parts = list(op.parts(most))
    assert sum(part.points for part in parts) == op.points
    assert max(part.points for part in parts) <= most
    for name, size in zip("mnk", sizes, strict=False):
        joined = np.concatenate([np.atleast_1d(getattr(part, name)) for part in parts])
        assert np.array_equal(joined, np.broadcast_to(size, op.shape).ravel())


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


@pytest.mark.waiting
def test_a_long_prediction_is_its_parts() -> None:
    machine, points = pm.hardware("a100-sxm4-80gb"), 3 * CHUNK + 5
    # rows of 8-bit products end in the regimes of their own families, and quantise their input first
    m, n = np.random.default_rng(1).integers(1, 5000, (2, points)).astype(np.float64)
    for op in (pm.Gemm(m=m, n=n, k=512, dtype="int8"), pm.Softmax(rows=m, cols=n), pm.Transpose(rows=m, cols=n)):
        whole, parts = pm.predict(op, machine), list(pm.sweep(op, machine))
        for key in ("predicted_time_s", "predicted_time_low_s", "bound_time_s", "limiter", "regime", "largest_term",
                    "predicted_limiter", "fits_in", "predicted_utilization", "advice"):  # fmt: skip
            joined = np.concatenate([np.broadcast_to(getattr(part, key), part.operator.shape) for part in parts])
            assert np.array_equal(getattr(whole, key), joined), key
        assert sum(whole.predicted_terms_s.values()) == pytest.approx(whole.predicted_time_s, rel=1e-12)
        one = pm.predict(_one(op, -1), machine)
        assert one.predicted_time_s == pytest.approx(whole.predicted_time_s[-1], rel=1e-12)
        assert one.largest_term == whole.largest_term[-1]
        assert one.regime == whole.regime[-1]


def _one(op: pm.Operator, index: int) -> pm.Operator:
    """Return one point of a sweep."""
    return op.changed(**{name: value[index] for name, value in op.params().items() if np.ndim(value)})


def test_families_that_share_a_sweep_are_joined_by_point() -> None:
    machine, points = pm.hardware("a100-sxm4-80gb"), 2 * CHUNK
    seq = np.where(np.arange(points) % 3 == 0, 1.0, 256.0)  # decoding and prefill
    op = pm.Attention(batch=1, heads=8, seq_q=seq, seq_kv=512, head_dim=64, dtype="bf16")
    whole = pm.predict(op, machine)
    assert len(set(np.ravel(whole.family))) == 2
    for index in (0, 1, points - 1):
        one = pm.predict(_one(op, index), machine)
        assert one.family == whole.family[index]
        assert one.predicted_time_s == pytest.approx(whole.predicted_time_s[index], rel=1e-12)
        of_one = one.uncertainty.variances(one.regime)
        of_all = whole.uncertainty.variances(whole.regime)
        assert all(of_all[source][index] == variance for source, variance in of_one.items())


def test_one_call_with_many_points_holds_times_and_no_terms() -> None:
    machine, points = pm.hardware("a100-sxm4-80gb"), 20 * CHUNK
    m = np.arange(1.0, points + 1.0)
    tracemalloc.start()
    whole = pm.predict(pm.Gemm(m=m, n=64, k=64, dtype="bf16"), machine)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.size(whole.predicted_time_s) == points
    assert held < 6 * m.nbytes  # time, interval, bound and two codes; the terms alone would be 13
    assert peak < held + 100 * 8 * CHUNK


def test_predictions_go_to_other_processes() -> None:
    for op in (pm.Gemm(m=64, n=64, k=64), pm.Gemm(m=np.arange(1.0, CHUNK + 9.0), n=64, k=64)):
        one = pm.predict(op, "a100-sxm4-80gb")
        other = pickle.loads(pickle.dumps(one))
        assert np.array_equal(other.predicted_time_s, one.predicted_time_s)
        assert np.array_equal(other.largest_term, one.largest_term)


def test_a_chunk_has_points() -> None:
    for chunk in (0, 1.5, "many"):
        with pytest.raises(UsageError, match=f"chunk={chunk} is no whole number"):
            next(iter(pm.sweep(pm.Elementwise(numel=1), pm.hardware("t4"), chunk=chunk)))  # type: ignore[arg-type]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the thresholds are glibc's")
def test_a_sweep_keeps_its_memory_where_the_environment_lets_glibc_return_it() -> None:
    """Dask's nanny sets the variable for its workers; the kernel then took twice the time of the sweep itself."""
    code = (
        "import os, numpy as np, perfmodel as pm\n"
        "sizes = np.arange(1.0, 801.0)\n"
        "op = pm.Gemm(m=sizes[:, None], n=sizes, k=512, dtype='bf16')\n"
        "pm.predict(pm.Gemm(m=1, n=1, k=1), 'h100')\n"
        "before = os.times()\n"
        "for _ in pm.sweep(op, pm.hardware('h100')): pass\n"
        "after = os.times()\n"
        "print(after.user - before.user, after.system - before.system)\n"
    )
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    user_s, system_s = map(float, ran.stdout.split())
    assert system_s < 0.5 * user_s

"""The prediction of a call that runs several operators: their sum, with the interval of a sum."""

from __future__ import annotations

import math

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.core.vocabulary import ErrorSource, Timing
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.predict import CHUNK, predict_piece
from perfmodel.prediction.uncertainty import half_width, of_sum, shape_of

ADD = pm.Elementwise(numel=10**8, kind="add", dtype="fp32", count=3)
NORM = pm.LayerNorm(rows=10**5, cols=1024)
WHOLE = pm.LayerNorm(rows=10**5, cols=1024)


def of_parts(op, parts, machine, timing=Timing.KERNEL, library=""):
    """Return the prediction of a call that runs some operators in place of one."""
    return predict_piece(op, machine, Conditions.parse(timing, "cold", library), parts)


def test_the_time_is_the_sum_and_its_terms_add_up_to_it(simple_gpu):
    found = of_parts(WHOLE, [ADD, NORM], simple_gpu)
    add, norm = (pm.predict(op, simple_gpu) for op in (ADD, NORM))
    assert found.predicted_time_s == pytest.approx(3 * add.predicted_time_s + norm.predicted_time_s)
    assert sum(found.predicted_terms_s.values()) == pytest.approx(found.predicted_time_s)
    assert (found.operator, found.family) == (WHOLE, "elementwise + layer_norm")
    # the bound is that of the operator, whichever kernels compute it
    assert found.bound_time_s == pm.predict(WHOLE, simple_gpu).bound_time_s


def test_the_interval_is_that_of_a_sum(simple_gpu):
    found = of_parts(WHOLE, [ADD, NORM], simple_gpu)
    parts = [
        (op.count * p.predicted_time_s, shape_of(op), p.uncertainty.variances(p.regime))
        for op in (ADD, NORM)
        for p in [pm.predict(op, simple_gpu)]
    ]
    factor = math.exp(half_width(of_sum(parts).values()))
    assert found.predicted_time_high_s == pytest.approx(factor * found.predicted_time_s)
    assert found.predicted_time_low_s == pytest.approx(max(found.predicted_time_s / factor, found.bound_time_s))
    assert found.uncertainty.variances(found.regime) == pytest.approx(of_sum(parts))
    # equal calls err by the same, and do not average out
    one, many = (of_parts(WHOLE, [ADD.changed(count=n)], simple_gpu) for n in (1, 100))
    assert many.predicted_time_high_s == pytest.approx(100 * one.predicted_time_high_s)


def test_what_events_measure_has_every_dispatch(simple_gpu):
    small = pm.Elementwise(numel=1000, kind="add", dtype="fp32")
    once, twice = (
        of_parts(small, [small.changed(count=n)], simple_gpu, timing="event").predicted_time_s for n in (1, 2)
    )
    assert once == pytest.approx(pm.predict(small, simple_gpu, timing="event").predicted_time_s)
    assert twice > 1.5 * once


def test_no_sum_is_faster_than_the_bound_of_the_operator(simple_gpu):
    # a thousandth of the elements cannot be all of the work
    found = of_parts(ADD.changed(count=1), [ADD.changed(count=1, numel=10**5)], simple_gpu)
    assert found.predicted_time_s == found.predicted_time_low_s == found.bound_time_s
    assert sum(found.predicted_terms_s.values()) == pytest.approx(found.predicted_time_s)


@pytest.mark.parametrize("timing", ["kernel", "event"])
def test_an_operator_that_a_library_composes_is_the_sum_of_its_parts(timing):
    op = pm.CrossEntropy(rows=4096, vocab=32000, dtype="fp16")
    how = {"timing": timing, "library": "torch"}
    own = pm.predict(op, "h100-sxm5-80gb", **how)
    found = of_parts(op, op.composition(), own.machine, **how)
    for name in ("time_low_s", "time_s", "time_high_s"):
        assert getattr(found, f"predicted_{name}") == getattr(own, f"predicted_{name}")


@pytest.mark.parametrize("count", [3, CHUNK + 5], ids=["one piece", "several"])
def test_points_of_a_sweep_have_the_intervals_of_single_calls(count):
    rows = np.geomspace(1, 10**6, count).round()
    sweep = pm.predict(pm.Swiglu(rows=rows, cols=1000, dtype="bf16"), "h200-sxm-141gb", library="torch")
    for place in (0, count // 2, count - 1):
        one = pm.predict(pm.Swiglu(rows=int(rows[place]), cols=1000, dtype="bf16"), sweep.machine, library="torch")
        for name in ("time_low_s", "time_s", "time_high_s"):
            expected = getattr(one, f"predicted_{name}")
            assert getattr(sweep, f"predicted_{name}")[place] == pytest.approx(expected)
        shares = one.uncertainty.variances(one.regime)
        swept = sweep.uncertainty.variances(sweep.regime)
        assert {source: value[place] for source, value in swept.items()} == pytest.approx(shares)
        assert shares[ErrorSource.SHAPE] > 0.0


def test_parts_of_equal_shape_at_one_point_of_a_sweep_err_alike_there(simple_gpu):
    # at 3 x 10^6 elements both are the same call, whose errors do not average out; elsewhere they do
    def both(numel):
        other = pm.Elementwise(numel=3 * 10**6, kind="add", dtype="fp32")
        swept = other.changed(numel=numel)
        third = other.changed(numel=6 * 10**6 - numel)
        return of_parts(WHOLE, [swept, other, third], simple_gpu)

    sizes = np.array([1e6, 3e6, 5e6])
    many = both(sizes)
    for place, numel in enumerate(sizes.tolist()):
        one = both(numel)
        for name in ("predicted_time_low_s", "predicted_time_s", "predicted_time_high_s"):
            assert getattr(many, name)[place] == pytest.approx(getattr(one, name), rel=1e-12)
    assert (
        many.predicted_time_high_s[1] / many.predicted_time_s[1]
        > many.predicted_time_high_s[0] / many.predicted_time_s[0]
    )


#: calls whose interval is that of their kernels' sum between events, or which compute nothing at some points
SWEPT = [
    (pm.Moe(tokens=1, hidden=4096, inter=1536, experts=64, top_k=6, dtype="fp8"), "tokens", "rtx-5090", "trtllm"),
    (pm.Reduction(rows=151, cols=1, dtype="fp32"), "cols", "b200-sxm-180gb", ""),
    (pm.EmbeddingBag(bags=5, pooling=1, vocab=100000, dim=482, dtype="fp32"), "pooling", "b200-sxm-180gb", "torch"),
    (pm.CrossEntropy(rows=1, vocab=32000, dtype="bf16"), "rows", "rtx-4090", ""),
]


@pytest.mark.parametrize(("op", "size", "machine", "library"), SWEPT, ids=lambda one: getattr(one, "op", None))
@pytest.mark.parametrize("count", [3, CHUNK + 5], ids=["one piece", "several"])
@pytest.mark.parametrize("timing", ["kernel", "event"])
def test_a_point_of_a_sweep_is_predicted_as_the_call_alone(op, size, machine, library, count, timing):
    sizes = np.geomspace(1, 512, count).round()
    how = {"timing": timing, "library": library, "cache": "warm"}
    swept = pm.predict(op.changed(**{size: sizes}), machine, **how)
    variances = swept.uncertainty.variances(swept.regime)
    for place in (0, count // 2, count - 1):
        single = pm.predict(op.changed(**{size: float(sizes[place])}), machine, **how)
        for name in ("predicted_time_low_s", "predicted_time_s", "predicted_time_high_s", "bound_time_s"):
            assert getattr(swept, name)[place] == pytest.approx(getattr(single, name), rel=1e-12)
        of_point = {source: float(np.broadcast_to(v, sizes.shape)[place]) for source, v in variances.items()}
        alone = {source: float(v) for source, v in single.uncertainty.variances(single.regime).items()}
        assert {k: v for k, v in of_point.items() if v} == pytest.approx({k: v for k, v in alone.items() if v})

"""The prediction of a call that runs several operators: their sum, with the interval of a sum."""

from __future__ import annotations

import math

import pytest

import perfmodel as pm
from perfmodel.prediction.parts import dispatch_time, predict_parts
from perfmodel.prediction.uncertainty import half_width, of_sum

ADD = pm.Elementwise(numel=10**8, kind="add", dtype="fp32", count=3)
NORM = pm.LayerNorm(rows=10**5, cols=1024)
WHOLE = pm.LayerNorm(rows=10**5, cols=1024)


def test_the_time_is_the_sum_and_its_terms_add_up_to_it(simple_gpu):
    found = predict_parts(WHOLE, [ADD, NORM], simple_gpu)
    add, norm = (pm.predict(op, simple_gpu) for op in (ADD, NORM))
    assert found.predicted_time_s == pytest.approx(3 * add.predicted_time_s + norm.predicted_time_s)
    assert sum(found.predicted_terms_s.values()) == pytest.approx(found.predicted_time_s)
    assert (found.operator, found.family) == (WHOLE, "elementwise + layer_norm")
    # the bound is that of the operator, whichever kernels compute it
    assert found.bound_time_s == pm.predict(WHOLE, simple_gpu).bound_time_s


def test_the_interval_is_that_of_a_sum(simple_gpu):
    found = predict_parts(WHOLE, [ADD, NORM], simple_gpu)
    parts = [
        (op.count * p.predicted_time_s, op.op, p.uncertainty.variances(p.regime))
        for op in (ADD, NORM)
        for p in [pm.predict(op, simple_gpu)]
    ]
    factor = math.exp(half_width(of_sum(parts).values()))
    assert found.predicted_time_high_s == pytest.approx(factor * found.predicted_time_s)
    assert found.predicted_time_low_s == pytest.approx(found.predicted_time_s / factor)
    assert found.uncertainty.variances(found.regime) == pytest.approx(of_sum(parts))
    # equal calls err by the same, and do not average out
    one, many = (predict_parts(WHOLE, [ADD.changed(count=n)], simple_gpu) for n in (1, 100))
    assert many.predicted_time_high_s == pytest.approx(100 * one.predicted_time_high_s)


def test_a_slow_host_is_part_of_what_events_measure(simple_gpu):
    small = pm.Elementwise(numel=1000, kind="add", dtype="fp32", count=5)
    whole = small.changed(count=1)
    found = predict_parts(whole, [small], simple_gpu, timing="event")
    assert found.predicted_time_s == pytest.approx(5 * dispatch_time(small, simple_gpu))
    assert sum(found.predicted_terms_s.values()) == pytest.approx(found.predicted_time_s)
    assert predict_parts(whole, [small], simple_gpu).predicted_time_s < found.predicted_time_s


def test_no_sum_is_faster_than_the_floor_of_the_operator(simple_gpu):
    # a thousandth of the elements cannot be all of the work
    found = predict_parts(ADD.changed(count=1), [ADD.changed(count=1, numel=10**5)], simple_gpu)
    assert found.predicted_time_s == found.predicted_time_low_s == found.bound_time_s
    assert sum(found.predicted_terms_s.values()) == pytest.approx(found.predicted_time_s)


def test_parts_that_the_model_takes_for_the_operator_itself_are_its_own_prediction(simple_gpu):
    op = pm.CrossEntropy(rows=4096, vocab=32000, dtype="fp16")
    own, found = pm.predict(op, simple_gpu), predict_parts(op, op.composition(), simple_gpu)
    assert (found.predicted_time_low_s, found.predicted_time_s, found.predicted_time_high_s) == (
        own.predicted_time_low_s,
        own.predicted_time_s,
        own.predicted_time_high_s,
    )

"""Sorts, selections and sampling on a CPU: a time for each element, by hand."""

from __future__ import annotations

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.hardware_catalog.read import parse_spec, to_hardware
from perfmodel.prediction.latency.host import EXPONENTIAL_S, HEAP_S, RANDOM_S, STABLE_S

SPEC = {"name": "cpu", "vendor": "x", "architecture": "x", "kind": "cpu", "title": "CPU",
        "memory": {"dram": {"capacity": "8 GiB", "bandwidth": "20 GB/s", "source": "x"}},
        "peak": {"vector": {"fp32": {"rate": "200 GFLOP/s"}, "source": "x"}}}  # fmt: skip
CPU = to_hardware(parse_spec(SPEC, "spec"), "spec")


def terms(op) -> dict[str, float]:
    return {str(name): value for name, value in pm.predict(op, CPU).predicted_terms_s.items()}


def test_by_hand() -> None:
    sort = terms(pm.Sort(cols=2**20))
    assert sort["math"] == pytest.approx(STABLE_S * 20 * 2**20)
    assert sort["dram"] == pytest.approx(2 * 4 * 2**20 / 20e9)
    assert terms(pm.Topk(rows=3, cols=1000, k=5))["math"] == pytest.approx(HEAP_S * 3000)
    assert terms(pm.Topk(cols=1024, k=5, algorithm="sort"))["math"] == pytest.approx(STABLE_S * 1024 * 10)
    drawn = terms(pm.Sampling(rows=8, vocab=1000))
    assert drawn["math"] == pytest.approx((RANDOM_S + EXPONENTIAL_S) * 8000)
    top_k = terms(pm.Sampling(rows=8, vocab=1000, k=50, algorithm="top_k"))
    assert top_k["math"] == pytest.approx(HEAP_S * 8000 + RANDOM_S * 400)
    assert terms(pm.Sampling(rows=8, vocab=1000, algorithm="top_p"))["math"] > drawn["math"]


def test_a_gpu_takes_its_own_family_and_other_operators_the_roofline() -> None:
    assert pm.predict(pm.Sort(cols=1000), "h100").family == "sort"
    assert pm.predict(pm.Sort(cols=1000), CPU).family == "host"
    assert pm.predict(pm.Softmax(rows=4, cols=4), CPU).family == "roofline"
    assert pm.predict(pm.Scan(cols=1000), CPU).family == "roofline"


def test_scalar_equals_array_and_never_beats_its_bound() -> None:
    cols = np.array([2.0, 1000.0, 2.0**20])
    together = pm.predict(pm.Sort(cols=cols), CPU)
    assert np.all(together.predicted_time_s >= together.bound_time_s)
    for index, size in enumerate(cols):
        assert pm.predict(pm.Sort(cols=int(size)), CPU).predicted_time_s == together.predicted_time_s[index]  # type: ignore[index]


def test_the_algorithms_of_a_draw_take_what_the_operator_takes() -> None:
    for algorithm in ("multinomial", "gumbel", "top_k", "top_p"):
        op = pm.Sampling(rows=8, vocab=100_000, algorithm=algorithm)
        chosen = pm.choose(op, CPU)[algorithm].time_s
        assert chosen == pytest.approx(pm.predict(op, CPU).predicted_time_s, rel=0.02)
    found = pm.choose(op, CPU)  # a sort takes longer than a race
    assert found["top_p"].time_s > 3 * found["multinomial"].time_s

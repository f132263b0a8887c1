"""What is kept of a call's settings says nothing of its sizes."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

import perfmodel as pm
from perfmodel.operators.base import Operator
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.fitted import fitted_to_any_size
from perfmodel.prediction.result import Prediction

CALLS = (
    pm.Gemm(m=4096, n=4096, k=4096, dtype="bf16"),
    pm.Gemm(m=3, n=77, k=1001, dtype="bf16"),
    pm.Gemm(m=64, n=512, k=1000, batch=8, dtype="bf16"),
    pm.Gemm(m=64, n=512, k=1000, dtype="fp32"),
    pm.Gemm(m=64, n=512, k=1000, dtype="fp32", bias=True, activation="gelu"),
    pm.Gemm(m=64, n=512, k=1024, dtype="fp16", weight_dtype="int4", scale="group:128"),
    pm.Gemm(m=1, n=512, k=1024, dtype="fp8", scale="block:128x128"),
)


def stated(one: Prediction) -> tuple[object, ...]:
    """Return what a prediction says, to the last bit."""
    estimate = one.estimate
    ends = (estimate.low_s, estimate.high_s)
    return one.bound.time_s, estimate.time_s, ends, estimate.basis, estimate.uncertainty, estimate.terms.adds


@pytest.mark.parametrize("library", ["", "torch", "vllm", "cutlass", "triton"])
@pytest.mark.parametrize("timing", ["kernel", "event", "do_bench"])
@pytest.mark.parametrize("name", ["h100", "a100-sxm4-40gb"])
def test_a_call_is_predicted_alike_whatever_was_asked_before(name: str, timing: str, library: str) -> None:
    calls = [op for op in CALLS if name == "h100" or op.dtype != "fp8"]
    known = pm.hardware(name)
    after_others = [stated(pm.predict(op, known, timing=timing, library=library)) for op in (*calls, *calls)]
    alone = [stated(pm.predict(op, replace(known), timing=timing, library=library)) for op in calls]
    assert after_others == [*alone, *alone]


def test_settings_are_all_but_sizes_count_and_label() -> None:
    op = CALLS[0]
    for same in (op.changed(m=1, batch=7), op.changed(count=3), op.changed(name="query")):
        assert same.settings == op.settings
    others: list[Operator] = [op.changed(dtype="fp16"), op.changed(bias=True), op.changed(engine="vector")]
    for other in (*others, pm.Quantize(rows=4096, cols=4096, dtype="fp8")):
        assert other.settings != op.settings
    assert pickle.loads(pickle.dumps(op)).settings == op.settings


def test_constants_that_change_are_those_of_another_machine() -> None:
    machine, op = pm.hardware("h100"), CALLS[0]
    slower = replace(machine, peaks=tuple(replace(peak, flop_per_s=0.5 * peak.flop_per_s) for peak in machine.peaks))
    before = pm.predict(op, machine).predicted_time_s
    assert pm.predict(op, slower).predicted_time_s > 1.2 * before
    assert pm.predict(op, machine).predicted_time_s == before


@pytest.mark.parametrize(
    "op",
    [
        pm.Attention(batch=1, heads=8, seq_q=128, head_dim=64, dtype="bf16"),
        pm.LinearCrossEntropy(rows=4096, hidden=512, vocab=32000, dtype="bf16"),
    ],
    ids=lambda op: op.op,
)
def test_where_sizes_may_decide_nothing_is_known_of_all(op: Operator) -> None:
    machine = pm.hardware("h100")
    assert fitted_to_any_size(machine, op, machine.find_peak("bf16", "tensor"), Conditions()) is None

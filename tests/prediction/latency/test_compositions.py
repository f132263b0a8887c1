"""What a library of some release runs one after another."""

import pytest

import perfmodel as pm
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.compositions import parts_of

SIZES = {"rows": 8192, "hidden": 4096, "vocab": 128256}
HEAD = pm.LinearCrossEntropy(**SIZES, dtype="bf16")


def seconds(library: str, op: pm.Operator = HEAD, machine: str = "b200") -> float:
    return float(pm.predict(op, machine, library=library, timing="kernel").predicted_time_s)


@pytest.mark.parametrize("machine", ["a100", "h100", "b200", "mi300x"])
def test_liger_adds_the_gradients_of_weights_in_two_passes_more_until_0_8_3(machine: str) -> None:
    """In each of 32 chunks: V H numbers are read in 16 bits, written in 32, read again with dW, and written."""
    apart, fused = (seconds(f"liger-{release}", machine=machine) for release in ("0.8.2", "0.8.3"))
    moved = 32 * 2 * 6.0 * SIZES["vocab"] * SIZES["hidden"]
    saved = 32 * 2.0 * SIZES["vocab"] * SIZES["hidden"]
    assert apart - fused > (moved - saved) / pm.hardware(machine).main_memory.bandwidth_bytes_per_s
    assert seconds("liger", machine=machine) == fused
    assert seconds("liger-0.6.1", machine=machine) == fused


def test_a_call_of_no_release_may_be_of_one_that_adds_apart() -> None:
    found, fused = (pm.predict(HEAD, "b200", library=name) for name in ("liger", "liger-0.8.3"))
    assert found.predicted_time_s == fused.predicted_time_s
    assert float(fused.predicted_time_high_s) < seconds("liger-0.8.2") <= float(found.predicted_time_high_s)


def test_one_chunk_is_added_once() -> None:
    whole, chunked = (
        seconds("liger-0.8.2", op) - seconds("liger-0.8.3", op) for op in (HEAD.changed(chunk=8192), HEAD)
    )
    assert chunked == pytest.approx(32.0 * whole, rel=1e-6)


@pytest.mark.parametrize("op", [HEAD.changed(gradients=False), HEAD.changed(dtype="fp32")])
def test_nothing_is_widened_without_gradients_or_in_fp32(op: pm.Operator) -> None:
    assert seconds("liger-0.8.2", op) == seconds("liger-0.8.3", op)


def test_other_libraries_run_what_the_operator_says() -> None:
    for library in ("", "torch", "liger_cutedsl", "xla"):
        assert parts_of(HEAD, Conditions(library=library, version="0.7")) == HEAD.composition_in(library)
    gated = pm.Swiglu(rows=64, cols=64)
    assert parts_of(gated, Conditions(library="torch")) == gated.composition_in("torch")

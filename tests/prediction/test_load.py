"""Milliseconds against minutes of work: what the power limit leaves of the clock."""

from __future__ import annotations

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.prediction.whole_model import predict_model

PRODUCT = pm.Gemm(m=8192, n=8192, k=8192, dtype="bf16")


def flop_per_s(machine: str, load: str, op=PRODUCT) -> float:
    return float(op.flop() / pm.predict(op, machine, load=load).predicted_time_s)


def test_an_h100_in_training_is_slower_than_in_replays() -> None:
    # published training steps ask for 615 to 700 TFLOP/s, depending on what is taken to slow their other kernels down
    assert 600e12 < flop_per_s("h100", "sustained") < 710e12
    assert flop_per_s("h100", "sustained") < 0.97 * flop_per_s("h100", "burst")


@pytest.mark.parametrize("machine", ["a100-sxm4-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "l40s", "rtx-4090", "l4"])
def test_sustained_is_never_faster_than_burst_nor_than_the_bound(machine: str) -> None:
    sizes = np.array([16.0, 256.0, 4096.0, 16384.0])
    for op in (
        pm.Gemm(m=sizes, n=4096, k=4096, dtype="bf16"),
        pm.Attention(heads=32, seq_q=sizes, head_dim=128, dtype="bf16"),
    ):
        burst, sustained = (pm.predict(op, machine, load=load) for load in ("burst", "sustained"))
        assert np.all(sustained.predicted_time_s >= burst.predicted_time_s * (1 - 1e-12))
        assert np.all(sustained.bound_time_s == burst.bound_time_s)


def test_what_is_not_limited_by_power_does_not_change() -> None:
    for op in (pm.Elementwise(numel=10**8), pm.Gemm(m=1, n=4096, k=4096, dtype="bf16")):
        burst, sustained = (pm.predict(op, "h100", load=load) for load in ("burst", "sustained"))
        assert sustained.predicted_time_s == pytest.approx(burst.predicted_time_s, rel=1e-12)


def test_what_minutes_of_load_cost_attention_is_power_and_nothing_else() -> None:
    op = pm.Attention(batch=4, heads=32, seq_q=8192, head_dim=128, causal=True, dtype="bf16")
    burst, sustained = (pm.predict(op, "h100", load=load, library="fa3") for load in ("burst", "sustained"))
    longer = {name: sustained.predicted_terms_s[name] - value for name, value in burst.predicted_terms_s.items()}
    assert sustained.predicted_terms_s["power"] > burst.predicted_terms_s["power"] > 0.0
    assert sum(longer.values()) == pytest.approx(longer["power"], rel=0.03)  # the surface corrects all of it
    # an engine that waits for exponentials has its clock held down, not its lowest voltage: 1.3^(1/3) = 1.09 and more
    assert 1.09 < sustained.predicted_time_s / burst.predicted_time_s < 1.25


def test_a_model_passes_its_load_on() -> None:
    burst, sustained = (predict_model([PRODUCT], pm.hardware("h100"), load=load) for load in ("burst", "sustained"))
    assert sustained.kernels_s > 1.05 * burst.kernels_s
    assert "load" in sustained.parts[0].prediction.prediction_basis


def test_rows_and_basis_name_the_load() -> None:
    prediction = pm.predict(PRODUCT, "h100", load="sustained")
    assert prediction.rows()[0]["load"] == "sustained"
    assert "minutes of load" in prediction.prediction_basis


def test_an_unknown_load_is_refused() -> None:
    with pytest.raises(UsageError, match="burst, sustained"):
        pm.predict(PRODUCT, "h100", load="short")

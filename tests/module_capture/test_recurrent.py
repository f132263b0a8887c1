"""Recurrent layers: the products of every step by hand, whatever operator this machine's CPU has for them."""

from __future__ import annotations

from typing import Any

import pytest

import perfmodel as pm

torch = pytest.importorskip("torch")
nn = torch.nn

STEPS, BATCH, INSIDE, HIDDEN = 10, 4, 128, 256


def products(captured: Any, phase: str = "forward") -> float:
    return sum(call.flop for call in captured.modelled if call.op.op == "gemm" and call.phase == phase)


def x(steps: int = STEPS, dtype: Any = None) -> Any:
    return torch.empty(steps, BATCH, INSIDE, dtype=dtype)


@pytest.mark.parametrize(("layer", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
@pytest.mark.parametrize("directions", [1, 2])
def test_the_products_of_each_step_are_counted(layer: Any, gates: int, directions: int) -> None:
    captured = pm.capture(layer(INSIDE, HIDDEN, num_layers=2, bidirectional=directions == 2, bias=False), x())
    # the second layer reads the states of all directions of the first
    widths = (INSIDE + HIDDEN) + (directions * HIDDEN + HIDDEN)
    assert products(captured) == 2 * gates * HIDDEN * widths * directions * STEPS * BATCH
    assert captured.recurrent == (layer.__name__,)
    assert not any("mkldnn" in call.name for call in captured.calls)
    assert captured.not_modelled_share() == 0


def test_the_gradients_of_an_lstm_by_hand() -> None:
    captured = pm.capture(nn.LSTM(INSIDE, HIDDEN, bias=False), x(), backward=True)
    step = 2 * 4 * HIDDEN * BATCH
    # those of both weights in every step; those of the states in each but the first, whose state is not trained
    assert products(captured, "backward") == step * ((INSIDE + HIDDEN) * STEPS + HIDDEN * (STEPS - 1))
    # saved: the inputs, and for each step four gates, the cell, its tanh and the state
    assert captured.root.activation_bytes == 4 * STEPS * BATCH * (INSIDE + 7 * HIDDEN)


def test_twice_the_steps_are_twice_the_work() -> None:
    once, twice = (pm.capture(nn.GRU(INSIDE, HIDDEN), x(steps)) for steps in (STEPS, 2 * STEPS))
    assert products(twice) == 2 * products(once)


def test_the_layer_and_pytorch_are_as_they_were() -> None:
    net = nn.LSTM(INSIDE, HIDDEN)
    enabled, fused = torch.backends.mkldnn.enabled, torch.backends.mha.get_fastpath_enabled()
    pm.capture(net, x(dtype=torch.bfloat16), backward=True)
    assert (torch.backends.mkldnn.enabled, torch.backends.mha.get_fastpath_enabled()) == (enabled, fused)
    out, _ = net(torch.randn(STEPS, BATCH, INSIDE))
    assert out.dtype == torch.float32
    assert all(parameter.grad is None for parameter in net.parameters())


def test_an_encoder_layer_without_gradients_has_the_products_of_one_with_them() -> None:
    # PyTorch has one operator for the whole layer, which it takes in evaluation only
    net, tokens = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True), torch.empty(2, 16, 64)
    training, evaluation = pm.capture(net.train(), tokens), pm.capture(net.eval(), tokens)
    assert products(evaluation) == products(training) > 0


def test_its_time_is_an_upper_limit() -> None:
    report = pm.capture(nn.LSTM(INSIDE, HIDDEN), x()).report(hardware=pm.hardware("h100"))
    notes = " ".join(report.shown_notes)
    assert "Expected on h100-sxm5-80gb: at most" in notes
    assert "LSTM: every step is counted" in notes
    assert "Not modelled" not in notes

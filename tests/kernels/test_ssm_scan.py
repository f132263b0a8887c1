"""The selective scan: the definition, with states that are carried and with a gate."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import perfmodel as pm  # noqa: E402 -- after the check that torch is there
from perfmodel.kernels.check import check  # noqa: E402
from perfmodel.kernels.inputs import make_inputs  # noqa: E402
from perfmodel.kernels.reference import find_reference  # noqa: E402
from perfmodel.kernels.registry import find_kernels  # noqa: E402

SIZES = {"batch": 2, "channels": 5, "state": 3, "dtype": "fp64"}


def _exact(op, inputs):
    everything = tuple(torch.arange(n) for n in (op.batch, op.seq, op.channels))
    return find_reference(op.op)(op, inputs, everything).value


def _by_definition(inputs):
    """h[t] = exp(dt A) h[t - 1] + dt x B, y[t] = (C h + D x) silu(z): the outputs and the last states."""
    state, out = inputs["state"].double(), []
    for t in range(inputs["x"].shape[1]):
        step, value = inputs["dt"][:, t, :, None], inputs["x"][:, t, :, None]
        state = torch.exp(step * inputs["a"].double()) * state + step * value * inputs["b"][:, t, None]
        result = (state * inputs["c"][:, t, None]).sum(-1) + inputs["d"].double() * inputs["x"][:, t]
        out.append(result * inputs["z"][:, t] * torch.sigmoid(inputs["z"][:, t]))
    return torch.stack(out, 1), state


def test_carried_states_and_gates_are_as_defined_and_halves_make_the_whole():
    whole = pm.SsmScan(seq=16, carried=True, gated=True, **SIZES)
    inputs = make_inputs(whole, "cpu", seed=7)
    expected, _ = _by_definition(inputs)
    torch.testing.assert_close(_exact(whole, inputs), expected, rtol=1e-12, atol=1e-12)
    by_token = ("x", "dt", "b", "c", "z")
    first = {name: x[:, :8] if name in by_token else x for name, x in inputs.items()}
    _, between = _by_definition(first)
    second = {name: x[:, 8:] if name in by_token else x for name, x in inputs.items()} | {"state": between}
    torch.testing.assert_close(_exact(whole.changed(seq=8), second), expected[:, 8:], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("lost", ["state", "z"])
def test_kernels_agree_with_float64_and_need_states_and_gates(lost):
    op = pm.SsmScan(batch=2, seq=20, channels=32, state=8, carried=True, gated=True, dtype="bf16")
    inputs = make_inputs(op, "cpu", seed=8)
    kernels = [kernel for kernel in find_kernels(op.op) if kernel.computes(op)]
    assert kernels
    for kernel in kernels:
        assert check(op, inputs, kernel.prepare(op, inputs)()).correct
        without = {**inputs, lost: torch.zeros_like(inputs[lost])}
        assert not check(op, inputs, kernel.prepare(op, without)()).correct


def test_a_carried_state_has_no_gradient():
    with pytest.raises(pm.UsageError, match="no backward pass"):
        pm.SsmScan(seq=4, channels=8, carried=True, backward=True)

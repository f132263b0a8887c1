"""Linear attention with a carried state: the definition, and halves that make the whole."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import perfmodel as pm  # noqa: E402 -- after the check that torch is there
from perfmodel.kernels.check import check  # noqa: E402
from perfmodel.kernels.inputs import make_inputs  # noqa: E402
from perfmodel.kernels.reference import find_reference  # noqa: E402
from perfmodel.kernels.registry import find_kernels  # noqa: E402

SIZES = {"batch": 2, "heads": 3, "head_dim": 8, "value_dim": 6, "dtype": "fp64"}


def _exact(op, inputs):
    everything = tuple(torch.arange(n) for n in (op.batch, op.heads, op.seq, op.value_dim))
    return find_reference(op.op)(op, inputs, everything).value


def _by_definition(inputs):
    """S[t] = decay[t] S[t - 1] + k[t]^T v[t], o[t] = q[t] S[t]: the outputs and the last state."""
    state, out = inputs["state"].double(), []
    for t in range(inputs["q"].shape[2]):
        outer = inputs["k"][:, :, t, :, None] * inputs["v"][:, :, t, None, :]
        state = inputs["decay"][:, :, t, None, None].double() * state + outer
        out.append(inputs["q"][:, :, t, None, :] @ state)
    return torch.cat(out, 2), state


def test_a_carried_state_is_read_as_defined_and_halves_make_the_whole():
    whole = pm.LinearAttention(seq=32, carried=True, **SIZES)
    inputs = make_inputs(whole, "cpu", seed=7)
    expected, _ = _by_definition(inputs)
    torch.testing.assert_close(_exact(whole, inputs), expected, rtol=1e-12, atol=1e-12)
    first = {name: x[:, :, :16] if name != "state" else x for name, x in inputs.items()}
    _, between = _by_definition(first)
    second = {name: x[:, :, 16:] if name != "state" else between for name, x in inputs.items()}
    torch.testing.assert_close(_exact(whole.changed(seq=16), second), expected[:, :, 16:], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(("seq", "algorithm"), [(64, "chunked"), (64, "recurrent"), (1, "recurrent")])
def test_kernels_agree_with_float64_and_need_the_state(seq, algorithm, dtype):
    op = pm.LinearAttention(heads=2, seq=seq, head_dim=32, chunk=16, algorithm=algorithm, carried=True, dtype=dtype)
    inputs = make_inputs(op, "cpu", seed=8)
    kernels = [kernel for kernel in find_kernels(op.op) if kernel.computes(op)]
    assert kernels
    for kernel in kernels:
        assert check(op, inputs, kernel.prepare(op, inputs)()).correct
        without = {**inputs, "state": torch.zeros_like(inputs["state"])}
        assert not check(op, inputs, kernel.prepare(op, without)()).correct


@pytest.mark.parametrize("algorithm", ["chunked", "recurrent"])
def test_heads_that_share_keys_are_heads_with_copies_of_them(algorithm):
    op = pm.LinearAttention(batch=2, heads=4, key_heads=2, seq=32, head_dim=8, chunk=16, algorithm=algorithm)
    inputs = make_inputs(op, "cpu", seed=9)
    own = {**inputs, **{name: inputs[name].repeat_interleave(2, 1) for name in ("q", "k")}}
    expected = _exact(op.changed(key_heads=4), own)
    torch.testing.assert_close(_exact(op, inputs), expected, rtol=0.0, atol=0.0)
    kernels = [kernel for kernel in find_kernels(op.op) if kernel.computes(op)]
    assert kernels
    for kernel in kernels:
        assert check(op, inputs, kernel.prepare(op, inputs)()).correct


def test_groups_of_heads_have_one_size():
    with pytest.raises(pm.UsageError, match="heads=4 is not a multiple of key_heads=3"):
        pm.LinearAttention(heads=4, key_heads=3, seq=4, head_dim=8)


def test_a_carried_state_has_no_gradient():
    with pytest.raises(pm.UsageError, match="no backward pass"):
        pm.LinearAttention(heads=2, seq=4, head_dim=8, carried=True, backward=True)

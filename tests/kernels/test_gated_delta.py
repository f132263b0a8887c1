"""The gated delta rule computed: chunks, steps and float64 agree, and limits that are known without them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import perfmodel as pm  # noqa: E402 -- after the check that torch is there
from perfmodel.kernels.check import check  # noqa: E402
from perfmodel.kernels.inputs import make_inputs  # noqa: E402
from perfmodel.kernels.reference import find_reference  # noqa: E402
from perfmodel.kernels.torch.gated_delta import by_chunks, by_tokens  # noqa: E402

SHARED = {"batch": 2, "heads": 4, "key_heads": 2, "head_dim": 16, "value_dim": 12, "dtype": "fp64"}
FORMS = (by_chunks, by_tokens)


def _exact(op, inputs):
    everything = tuple(torch.arange(n) for n in (op.batch, op.heads, op.seq, op.value_dim))
    return find_reference(op.op)(op, inputs, everything).value


def _by_definition(op, inputs):
    """The formula of the class, one head and one token after another."""
    out = torch.empty(op.batch, op.heads, op.seq, op.value_dim, dtype=torch.float64)
    for batch in range(op.batch):
        for head in range(op.heads):
            q, k = (inputs[name][batch, head // (op.heads // op.key_heads)].double() for name in ("q", "k"))
            v, decay, beta = (inputs[name][batch, head].double() for name in ("v", "decay", "beta"))
            state = torch.zeros(op.head_dim, op.value_dim, dtype=torch.float64)
            if op.carried:
                state = inputs["state"][batch, head].double()
            for t in range(op.seq):
                kept = decay[t] * state
                state = kept + torch.outer(k[t], beta[t] * (v[t] - k[t] @ kept))
                out[batch, head, t] = q[t] @ state
    return out


@pytest.mark.parametrize("carried", [False, True])
@pytest.mark.parametrize(("seq", "chunk"), [(64, 16), (64, 64), (12, 64), (1, 64)])
def test_chunks_steps_and_reference_are_the_definition(seq, chunk, carried):
    op = pm.GatedDelta(seq=seq, chunk=chunk, carried=carried, **SHARED)
    inputs = make_inputs(op, "cpu", seed=3)
    expected = _by_definition(op, inputs)
    torch.testing.assert_close(_exact(op, inputs), expected, rtol=1e-12, atol=1e-12)
    for form in FORMS:
        torch.testing.assert_close(form(op, inputs)[0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_two_halves_that_carry_the_state_are_the_whole(form):
    op = pm.GatedDelta(seq=64, chunk=16, carried=True, **SHARED)
    inputs = make_inputs(op, "cpu", seed=4)
    whole, last = form(op, inputs)
    half = op.changed(seq=32)
    first, state = form(half, {n: x[:, :, :32] if n != "state" else x for n, x in inputs.items()})
    second, end = form(half, {n: x[:, :, 32:] if n != "state" else state for n, x in inputs.items()})
    torch.testing.assert_close(torch.cat([first, second], 2), whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(end, last, rtol=1e-12, atol=1e-12)


def _without_decay(op, beta):
    inputs = make_inputs(op, "cpu", seed=5)
    inputs["decay"].fill_(1.0)
    inputs["beta"].fill_(beta)
    return inputs


@pytest.mark.parametrize("form", FORMS)
def test_a_key_that_comes_again_reads_back_its_last_value(form):
    """With beta = 1 a state forgets what it held for a key, and nothing of the keys at right angles to it."""
    op = pm.GatedDelta(heads=1, seq=64, head_dim=16, chunk=16, dtype="fp64")
    inputs = _without_decay(op, 1.0)
    inputs["k"].copy_(torch.eye(16, dtype=torch.float64).repeat(4, 1))
    inputs["q"].copy_(inputs["k"])
    torch.testing.assert_close(form(op, inputs)[0], inputs["v"], rtol=1e-12, atol=1e-12)
    inputs["q"].copy_(inputs["k"].roll(1, 2))  # the key of the token before
    torch.testing.assert_close(form(op, inputs)[0][:, :, 1:], inputs["v"][:, :, :-1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_with_keys_at_right_angles_it_is_linear_attention(form):
    op = pm.GatedDelta(heads=3, seq=16, head_dim=16, chunk=8, dtype="fp64")
    inputs = _without_decay(op, 1.0)
    inputs["k"].copy_(torch.linalg.qr(inputs["k"]).Q)
    linear = pm.LinearAttention(heads=3, seq=16, head_dim=16, dtype="fp64")
    expected = _exact(linear, {name: inputs[name] for name in ("q", "k", "v", "decay")})
    torch.testing.assert_close(form(op, inputs)[0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_a_state_that_is_forgotten_at_once_gives_the_last_update(form):
    op = pm.GatedDelta(heads=2, seq=32, head_dim=8, chunk=8, dtype="fp64")
    inputs = _without_decay(op, 0.5)
    inputs["decay"].fill_(1e-30)
    scores = (inputs["q"] * inputs["k"]).sum(-1, keepdim=True)
    torch.testing.assert_close(form(op, inputs)[0], 0.5 * scores * inputs["v"], rtol=1e-12, atol=1e-12)


def test_inputs_are_those_of_a_layer():
    op = pm.GatedDelta(heads=2, seq=64, head_dim=32)
    inputs = make_inputs(op, "cpu", seed=1)
    torch.testing.assert_close(inputs["k"].norm(dim=-1), torch.ones(1, 2, 64))
    assert 0 < float(inputs["beta"].min()) < float(inputs["beta"].max()) < 1
    assert 0.2 < float(inputs["decay"].min()) < float(inputs["decay"].max()) < 1


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_rule_that_is_off_is_wrong(dtype):
    op = pm.GatedDelta(heads=4, key_heads=2, seq=64, head_dim=16, chunk=16, dtype=dtype)
    inputs = make_inputs(op, "cpu", seed=2)
    assert check(op, inputs, by_chunks(op, inputs)[0]).correct
    for changed in (
        {**inputs, "beta": torch.ones_like(inputs["beta"])},
        {**inputs, "decay": torch.ones_like(inputs["decay"])},
        {**inputs, "k": inputs["k"].flip(1)},
        {**inputs, "v": inputs["v"].roll(1, 2)},
    ):
        assert not check(op, inputs, by_chunks(op, changed)[0]).correct


def _rounded_as_by_kernels(op, inputs, dtype):
    """Chunks with T, W, U, V', states and scores rounded to the dtype, as flash-linear-attention's kernels do."""
    length = int(op.chunk)
    q, k, v, decay, beta = (inputs[n].float().unflatten(2, (-1, length)) for n in ("q", "k", "v", "decay", "beta"))
    logs = decay.log().cumsum(-1)
    between = (logs[..., :, None] - logs[..., None, :]).tril().exp().tril()
    triangle = ((k * beta[..., None]) @ k.mT) * between
    one = torch.eye(length).expand_as(triangle).contiguous()
    t = torch.linalg.solve_triangular(triangle, one, upper=False, unitriangular=True).to(dtype).float()
    u = (t @ (v * beta[..., None]).to(dtype).float()).to(dtype).float()
    w = (t @ (k * (beta * logs.exp())[..., None]).to(dtype).float()).to(dtype).float()
    state, out = torch.zeros(*v.shape[:2], k.shape[-1], v.shape[-1]), []
    for c in range(v.shape[2]):
        read = state.to(dtype).float()
        new = u[:, :, c] - w[:, :, c] @ read
        scores = ((q[:, :, c] @ k[:, :, c].mT) * between[:, :, c]).to(dtype).float()
        out.append((q[:, :, c] @ read) * logs[:, :, c].exp()[..., None] + scores @ new.to(dtype).float())
        left = (logs[:, :, c, -1:] - logs[:, :, c]).exp()[..., None]
        state = state * logs[:, :, c, -1:, None].exp() + k[:, :, c].mT @ (new * left).to(dtype).float()
    return torch.stack(out, 2).flatten(2, 3).to(dtype)


@pytest.mark.parametrize(("name", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
@pytest.mark.parametrize("decay", [None, 0.9999])
def test_what_kernels_round_is_within_the_tolerance(name, dtype, decay):
    op = pm.GatedDelta(heads=2, seq=256, head_dim=64, dtype=name)
    inputs = make_inputs(op, "cpu", seed=6)
    if decay is not None:
        inputs["decay"].fill_(decay)
    assert check(op, inputs, _rounded_as_by_kernels(op, inputs, dtype)).correct

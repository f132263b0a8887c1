"""Gradients: autograd of every kernel of the forward pass, each against float64, with inputs left as they were."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import perfmodel as pm  # noqa: E402 -- after the check that torch is there
from perfmodel.kernels import registry  # noqa: E402
from perfmodel.kernels.check_gradient import PARTS, _chosen, check_gradients  # noqa: E402
from perfmodel.kernels.device import open_device  # noqa: E402
from perfmodel.kernels.gradients import differentiated, forward_of, gradient_inputs  # noqa: E402
from perfmodel.kernels.inputs import changed_inputs, make_inputs  # noqa: E402
from perfmodel.kernels.verify import verify  # noqa: E402
from perfmodel.measure.timing.input_copies import InputCopies  # noqa: E402
from perfmodel.operators.listing import load_operator, operator_names  # noqa: E402

CPU = open_device("cpu")


def _operators(dtype):
    each = {"dtype": dtype, "backward": True}
    yield pm.LayerNorm(rows=7, cols=300, **each)
    yield pm.RmsNorm(rows=7, cols=300, **each)
    yield pm.AddRmsNorm(rows=7, cols=300, **each)
    yield pm.Softmax(rows=7, cols=300, **each)
    yield pm.Reduction(rows=7, cols=300, **each)
    yield pm.Rope(tokens=9, heads=3, kv_heads=1, head_dim=8, **each)
    yield pm.Swiglu(rows=7, cols=33, **each)
    yield pm.Geglu(rows=7, cols=33, gelu="tanh", **each)
    yield pm.Dropout(numel=1001, **each)
    yield pm.BatchNorm(n=3, c=5, hw=49, **each)
    yield pm.GroupNorm(n=3, groups=2, c=6, hw=49, **each)
    yield pm.Pool2d(n=2, c=3, h=9, w=8, k=3, stride=2, padding=1, **each)
    yield pm.Pool2d(n=2, c=3, h=9, w=8, k=2, kind="mean", **each)
    film = {"n": 2, "c": 4, "d": 4, "h": 6, "w": 7}
    yield pm.Pool3d(**film, t=2, r=3, s=2, stride_h=2, padding_h=1, **each)
    yield pm.Pool3d(**film, t=1, r=2, s=3, kind="mean", **each)
    yield pm.Conv3d(**film, k=6, t=3, r=3, s=2, padding_d=1, stride_h=2, **each)
    yield pm.Conv3d(**film, k=6, t=2, r=2, s=2, groups=2, gradient="weight", **each)
    yield pm.Resample(n=2, c=3, h=5, w=9, p=8, q=6, **each)
    yield pm.Resample(n=2, c=3, h=5, w=9, p=8, q=6, grid=True, **each)
    yield pm.Embedding(tokens=20, vocab=50, dim=16, **each)
    yield pm.EmbeddingBag(bags=20, pooling=3, vocab=50, dim=16, **each)
    yield pm.Gather(numel=100, table=1000, distribution="zipf", **each)
    yield pm.IndexSelect(rows=20, cols=9, table=30, distribution="same", **each)
    yield pm.ScatterAdd(rows=200, cols=3, table=30, **each)
    yield pm.CrossEntropy(rows=9, vocab=1000, **each)
    yield pm.Conv2d(n=2, c=4, h=9, w=8, k=6, r=3, s=3, padding=1, **each)
    yield pm.Conv2d(n=2, c=4, h=9, w=8, k=6, r=3, s=3, stride=2, gradient="weight", **each)
    yield pm.Attention(batch=2, heads=4, kv_heads=2, seq_q=20, head_dim=16, causal=True, **each)
    yield pm.Attention(batch=2, heads=4, seq_q=20, seq_kv=33, head_dim=16, algorithm="unfused", **each)
    yield pm.LinearAttention(heads=2, seq=16, head_dim=8, chunk=8, **each)
    yield pm.GatedDelta(batch=2, heads=4, key_heads=2, seq=16, head_dim=8, chunk=8, **each)
    yield pm.GatedDelta(heads=2, seq=16, head_dim=8, value_dim=4, algorithm="recurrent", **each)
    yield pm.SsmScan(batch=2, seq=8, channels=6, state=4, **each)
    yield pm.SsmScan(batch=2, seq=8, channels=6, state=4, gated=True, **each)
    for kind in ("mul", "where", "fma", "gelu", "silu_mul", "pow"):
        yield pm.Elementwise(numel=500, kind=kind, **each)


def _kernels(op):
    return [k for k in registry.find_kernels(op.op) if k.computes(op) and not k.refuses(op, CPU) and not k.compiles]


def _call(op, seed=1):
    (kernel, *_), inputs = _kernels(op), make_inputs(op, "cpu", seed)
    with CPU.precision(op.dtype):
        return kernel, inputs, kernel.prepare(op, inputs)


#: operators whose gradients have intermediate results that 16 bits round
ROUNDED = ("rms_norm", "softmax", "swiglu", "cross_entropy", "attention", "pool2d", "pool3d")


def _of_both_dtypes():
    yield from _operators("fp32")
    # torch has no mean of films in 16 bits on a CPU
    narrow = (op for op in _operators("bf16") if op.op in ROUNDED)
    yield from (op for op in narrow if op.op != "pool3d" or op.kind == "max")


def test_gradients_agree_with_float64():
    for op in _of_both_dtypes():
        kernels, inputs = _kernels(op), make_inputs(op, "cpu", seed=1)
        before = {name: tensor.clone() for name, tensor in inputs.items()}
        assert kernels, (op.op, op.params())
        for kernel in kernels:
            with CPU.precision(op.dtype):
                verdict = verify(op, kernel.prepare(op, inputs), inputs, seed=1)
            assert verdict.correct, (op.op, op.params(), kernel.name, verdict)
            assert verdict.checked == "all gradients"
            assert all(torch.equal(before[name], tensor) for name, tensor in inputs.items())


def test_every_operator_with_a_backward_count_has_a_kernel_of_it_and_a_case_in_the_full_preset():
    with_gradient = {name for name in operator_names() if "backward" in load_operator(name).dimensions()}
    assert with_gradient == {op.op for op in _operators("fp32")}
    for name in with_gradient:
        assert any(kernel.gradient for kernel in registry.find_kernels(name)), name
        (cases,) = (c for c in registry.benchmark_cases(name) if c.cpu_full)
        assert "backward=true" in cases.cpu_full, name
        assert "backward=true" in cases.cuda_more, name


def test_a_kernel_returns_the_gradients_that_the_operator_counts():
    assert differentiated(pm.LayerNorm(rows=2, cols=3, backward=True)) == ("x", "gamma", "beta")
    assert differentiated(pm.Conv2d(n=1, c=1, h=4, w=4, k=1, r=3, s=3, backward=True, gradient="weight")) == ("weight",)
    assert differentiated(pm.IndexSelect(rows=2, cols=3, table=4, backward=True)) == ("table",)
    op = pm.Embedding(tokens=20, vocab=50, dim=16, backward=True)
    assert [tensor.name for tensor in gradient_inputs(op)] == ["index", "table", "dy"]
    assert not forward_of(op).backward
    _, inputs, call = _call(op)
    (gradient,) = call()
    assert gradient.shape == (50, 16)
    by_hand = torch.zeros(50, 16).index_add_(0, inputs["index"], inputs["dy"])
    torch.testing.assert_close(gradient, by_hand)


def test_gradients_of_what_an_operator_in_fp64_keeps_in_fp32_are_rounded_to_it():
    op = pm.GatedDelta(heads=2, seq=16, head_dim=8, chunk=8, dtype="fp64", backward=True)
    _, inputs, call = _call(op)
    dq, _, _, ddecay, dbeta = call()
    assert (dq.dtype, ddecay.dtype, dbeta.dtype) == (torch.float64, torch.float32, torch.float32)
    assert check_gradients(op, inputs, call()).correct


def test_a_gradient_that_is_off_is_wrong():
    for op, wrong in (
        (pm.GatedDelta(heads=2, seq=16, head_dim=8, backward=True), lambda q, k, v, d, b: (q, k, v, b, d)),
        (pm.LayerNorm(rows=7, cols=300, backward=True), lambda dx, dg, db: (dx, dg * 1.001, db)),
        (pm.Softmax(rows=7, cols=300, backward=True), lambda dx: (dx.roll(1, 0),)),
        (pm.Swiglu(rows=7, cols=33, backward=True), lambda dg, du: (du, dg)),
        (pm.Attention(heads=2, seq_q=8, head_dim=8, causal=True, backward=True), lambda q, k, v: (q, k, v.flip(2))),
        (pm.Gather(numel=100, table=1000, backward=True), lambda dx: (torch.full_like(dx, torch.nan),)),
        (pm.Softmax(rows=7, cols=300, backward=True), lambda dx: (dx[:, 1:],)),
    ):
        _, inputs, call = _call(op)
        assert check_gradients(op, inputs, call()).correct, op.op
        assert not check_gradients(op, inputs, wrong(*call())).correct, op.op


def test_a_gradient_that_was_computed_before_is_wrong():
    op = pm.Softmax(rows=7, cols=300, backward=True)
    _, inputs, call = _call(op)
    kept = call()
    assert not verify(op, lambda: kept, inputs, seed=1).correct
    assert changed_inputs(op, inputs, 1) == []


def test_a_part_of_a_large_gradient_is_checked(monkeypatch):
    monkeypatch.setattr("perfmodel.kernels.check_gradient._MOST_ELEMENTS", {"cpu": 500})
    for op in _operators("fp32"):
        _, inputs, call = _call(op)
        verdict = check_gradients(op, inputs, call())
        assert verdict.correct, (op.op, verdict)
        chosen = _chosen(op, inputs, 0)
        if chosen is not None:
            assert f"{chosen.numel()} of {getattr(op, PARTS[op.op].dimension)}" in verdict.checked
    assert "2 of 7 rows" in check_gradients(*_part_of_softmax()).checked


def _part_of_softmax():
    op = pm.Softmax(rows=7, cols=300, backward=True)
    _, inputs, call = _call(op)
    return op, inputs, call()


def test_copies_of_inputs_have_their_own_gradients():
    op = pm.LayerNorm(rows=7, cols=300, backward=True)
    kernel, inputs, call = _call(op)
    with CPU.precision(op.dtype):
        first, second = InputCopies(op, kernel, inputs, call, CPU).calls(2)
        results = first(), second()
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))
    assert results[0][0].data_ptr() != results[1][0].data_ptr()


def test_a_users_function_computes_a_gradient(tmp_path, monkeypatch):
    source = "def dsoftmax(x, dy):\n    y = x.softmax(-1)\n    return y * (dy - (y * dy).sum(-1, True))\n"
    (tmp_path / "mine13.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    kernel = registry.load_kernel("mine13:dsoftmax", "softmax")
    op = pm.Softmax(rows=7, cols=30, backward=True)
    inputs = make_inputs(op, "cpu", 0)
    assert kernel.computes(op)
    with CPU.precision(op.dtype):
        assert verify(op, kernel.prepare(op, inputs), inputs).correct


def test_kernels_of_the_forward_pass_do_not_run_backward():
    forward, backward = (next(k for k in registry.find_kernels("softmax") if k.gradient is g) for g in (False, True))
    assert "not what was asked for" in forward.refuses(pm.Softmax(rows=2, cols=3, backward=True), CPU)
    assert "the gradient of softmax" in backward.refuses(pm.Softmax(rows=2, cols=3), CPU)
    copy = pm.Elementwise(numel=8, kind="copy", backward=True)
    gradient = next(kernel for kernel in registry.find_kernels("elementwise") if kernel.gradient)
    assert "hands the gradient of a copy on" in gradient.refuses(copy, CPU)

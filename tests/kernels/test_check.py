"""The tolerances of checks: what rounding alone does passes, and what it cannot do is wrong."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

import perfmodel as pm  # noqa: E402 -- after the check that torch is there
from perfmodel.kernels.check import check, count_wrong, growth  # noqa: E402
from perfmodel.kernels.check_gradient import check_gradients  # noqa: E402
from perfmodel.kernels.device import open_device  # noqa: E402
from perfmodel.kernels.inputs import make_inputs  # noqa: E402
from perfmodel.kernels.reference.dropout import DROPPED  # noqa: E402
from perfmodel.kernels.reference.optimizer import BETAS, DECAY, EPS, LR  # noqa: E402
from perfmodel.kernels.registry import find_kernels  # noqa: E402
from perfmodel.kernels.torch.gemm import PANEL  # noqa: E402

CPU = open_device("cpu")


def _panels(op, inputs, left_out=None):
    """Sum panels of a product in the operator's dtype."""
    a, b = inputs["a"], inputs["b"]
    total = torch.zeros(a.shape[0], a.shape[1], b.shape[2], dtype=a.dtype)
    for first in range(0, int(op.k), PANEL):
        if first != left_out:
            total += a[:, :, first : first + PANEL] @ b[:, first : first + PANEL]
    return total


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_sums_that_are_rounded_again_and_again_grow_as_derived_and_a_panel_that_is_missing_is_wrong(dtype):
    op = pm.Gemm(m=64, n=256, k=8192, dtype=dtype)
    inputs = make_inputs(op, "cpu", seed=2)
    naive = next(k for k in find_kernels("gemm") if k.name == "naive")
    assert naive.rounded_sums(op) == 32
    assert growth(32) == pytest.approx(math.sqrt(sum(j for j in range(1, 33)) / 32 + 1))
    assert not check(op, inputs, _panels(op, inputs)).correct, "what a kernel that adds in float32 never does"
    assert check(op, inputs, _panels(op, inputs), rounded_sums=32).correct
    assert not check(op, inputs, _panels(op, inputs, left_out=512), rounded_sums=32).correct


def test_a_convolution_with_eleven_bits_is_wrong_in_fp32():
    op = pm.Conv2d(n=2, c=16, h=14, w=14, k=16, r=3, s=3, padding=1, dtype="fp32")
    inputs = make_inputs(op, "cpu", seed=2)

    def convolved(rounded):
        return torch.nn.functional.conv2d(rounded(inputs["x"]), rounded(inputs["weight"]), padding=1)

    assert check(op, inputs, convolved(lambda x: x)).correct
    assert not check(op, inputs, convolved(lambda x: x.to(torch.float16).float())).correct


def test_convolutions_of_float32_are_rounded_to_tf32_only_where_that_is_asked_for():
    before = torch.backends.cudnn.allow_tf32
    for dtype, allowed in (("fp32", False), ("tf32", True), ("bf16", False)):
        with CPU.precision(dtype):
            assert torch.backends.cudnn.allow_tf32 is allowed
    assert torch.backends.cudnn.allow_tf32 is before


def _adamw(inputs, betas, epsilon=EPS):
    """The first step in float32, with betas of float32 or float64."""
    first, second = (torch.tensor(beta, dtype=torch.float32).item() if betas is None else beta for beta in BETAS)
    w, g = inputs["weights"], inputs["gradient"]
    mean = first * inputs["exp_avg"] + (1 - first) * g
    square = second * inputs["exp_avg_sq"] + (1 - second) * g * g
    root = torch.sqrt(square) / math.sqrt(1 - second) + epsilon
    return w * (1 - LR * DECAY) - LR / (1 - first) * mean / root


def test_betas_of_float32_are_roundings_and_another_epsilon_is_an_error():
    op = pm.Optimizer(parameters=200_000, kind="adamw", dtype="fp32")
    inputs = make_inputs(op, "cpu", seed=2)
    assert check(op, inputs, _adamw(inputs, BETAS)).correct
    assert check(op, inputs, _adamw(inputs, None)).correct
    assert not check(op, inputs, _adamw(inputs, BETAS, epsilon=1e-4)).correct
    assert not check(op, inputs, _adamw(inputs, BETAS) * (1 + 1e-5)).correct


@pytest.mark.waiting
def test_an_element_in_millions_may_be_dropped_and_one_in_a_thousand_may_not():
    op = pm.Dropout(numel=2**22, dtype="bf16")
    inputs = make_inputs(op, "cpu", seed=2)
    x = inputs["x"]
    kept = x / (1 - DROPPED)
    once, often = kept.clone(), kept.clone()
    once[12345] = 0.0
    often[::1000] = 0.0
    assert check(op, inputs, once).correct
    assert not check(op, inputs, often).correct
    off = torch.tensor([True])
    assert count_wrong("dropout", off, torch.zeros(1)) == 1, "one of one element is not one in millions"
    assert count_wrong("elementwise", off.expand(2**24), torch.zeros(2**24)) == 2**24


def _attention_gradients(op, inputs, forget=""):
    """The gradients by hand, rounded as a kernel rounds them; ``forget`` leaves out a part of the formula."""
    q, k, v, do = (inputs[name] for name in ("q", "k", "v", "dy"))
    dtype, scale = q.dtype, 1 / math.sqrt(op.head_dim)
    scores = (q @ k.mT).float() * scale
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(2 if forget == "mask" else 1)
    p = torch.softmax(scores.masked_fill(later, -math.inf), -1)
    dp = (do @ v.mT).float()
    total = 0.0 if forget == "total" else (do.float() * (p @ v.float()).to(dtype).float()).sum(-1, keepdim=True)
    ds, p = (p * (dp - total)).to(dtype), p.to(dtype)
    return scale * (ds @ k), scale * (ds.mT @ q), p.mT @ do


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_gradients_of_attention_pass_with_rounded_intermediates_and_fail_with_a_term_less(dtype):
    op = pm.Attention(heads=2, seq_q=96, head_dim=32, causal=True, dtype=dtype, backward=True)
    inputs = make_inputs(op, "cpu", seed=2)
    assert check_gradients(op, inputs, _attention_gradients(op, inputs)).correct
    for forgotten in ("mask", "total"):
        assert not check_gradients(op, inputs, _attention_gradients(op, inputs, forgotten)).correct, forgotten


def test_gradients_of_softmax_and_rope_pass_where_they_cancel_and_fail_where_the_formula_is_another():
    op = pm.Softmax(rows=256, cols=512, dtype="bf16", backward=True)
    inputs = make_inputs(op, "cpu", seed=2)
    y, dy = torch.softmax(inputs["x"].float(), -1), inputs["dy"].float()
    # all of what a composition rounds
    y16, products = y.bfloat16(), (y * dy).bfloat16()
    total = products.float().sum(-1, keepdim=True).bfloat16()
    assert check_gradients(op, inputs, (products - y16 * total,)).correct
    assert not check_gradients(op, inputs, (products,)).correct
    op = pm.Rope(tokens=64, heads=4, head_dim=64, dtype="bf16", backward=True)
    inputs = make_inputs(op, "cpu", seed=2)
    cos, sin = inputs["cos_sin"][inputs["positions"]][:, None, :].chunk(2, -1)
    first, second = inputs["dy"].reshape(64, -1, 64).chunk(2, -1)
    back = torch.cat((first * cos + second * sin, second * cos - first * sin), -1).flatten(-2)
    forth = torch.cat((first * cos - second * sin, second * cos + first * sin), -1).flatten(-2)
    assert check_gradients(op, inputs, (back,)).correct
    assert not check_gradients(op, inputs, (forth,)).correct


def test_a_popular_row_of_a_table_has_the_error_of_its_many_terms():
    op = pm.IndexSelect(rows=20_000, cols=4, table=50, distribution="zipf", dtype="fp32", backward=True)
    inputs = make_inputs(op, "cpu", seed=2)
    index, dy = inputs["index"], inputs["dy"]
    one_by_one = torch.zeros(50, 4)
    for row, gradient in zip(index.tolist(), dy, strict=True):
        one_by_one[row] += gradient
    assert check_gradients(op, inputs, (one_by_one,)).correct
    halves = torch.zeros(50, 4, dtype=torch.float16).index_add_(0, index, dy.half()).float()
    assert not check_gradients(op, inputs, (halves,)).correct
    lost = one_by_one.clone()
    lost[index[0]] -= dy[0]
    assert not check_gradients(op, inputs, (lost,)).correct

"""Gradients whose terms are rounded before they are added: their errors stay where the terms cancel."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import perfmodel as pm  # noqa: E402 -- after the check that torch is there
from perfmodel.kernels.check_gradient import check_gradients  # noqa: E402
from perfmodel.kernels.inputs import make_inputs  # noqa: E402


def _digits(x, bits):
    """Cut off what lies below some bits of a float32, as tensor cores read TF32."""
    return (x.view(torch.int32) & -(1 << (23 - bits))).view(torch.float32)


def _convolution(op, inputs, bits):
    x, weight, dy = (_digits(inputs[name].clone(), bits).double() for name in ("x", "weight", "dy"))
    leaves = x.requires_grad_(), weight.requires_grad_()
    y = torch.nn.functional.conv2d(*leaves, padding=int(op.padding))
    return [gradient.float() for gradient in torch.autograd.grad(y, leaves, dy)]


def test_operands_of_tf32_have_ten_bits_and_not_seven():
    """One of these 137,216 gradients lies beyond a tolerance of its size and the median."""
    op = pm.Conv2d(n=8, c=64, h=14, w=14, k=64, r=3, s=3, padding=1, backward=True, dtype="tf32")
    inputs = make_inputs(op, "cpu", 0)
    verdict = check_gradients(op, inputs, _convolution(op, inputs, bits=10))
    assert verdict.correct, verdict
    assert not check_gradients(op, inputs, _convolution(op, inputs, bits=7)).correct


def _mean(op, dy, dtype):
    """Sum dy / k^2, each in a dtype, over the windows that a pixel is in."""
    each = (dy.float() / float(op.k) ** 2).to(dtype).float().flatten(0, 1)[:, None]
    summed = torch.nn.functional.conv_transpose2d(each, torch.ones(1, 1, int(op.k), int(op.k)), stride=int(op.stride))
    return summed.reshape(int(op.n), int(op.c), int(op.h), int(op.w)).to(torch.float16)


@pytest.mark.waiting
def test_the_terms_of_a_mean_are_rounded_to_its_dtype():
    op = pm.Pool2d(n=2, c=160, h=113, w=113, k=3, stride=2, kind="mean", backward=True, dtype="fp16")
    inputs = make_inputs(op, "cpu", 0)
    for dtype, correct in ((torch.float32, True), (torch.float16, True), (torch.bfloat16, False)):
        verdict = check_gradients(op, inputs, [_mean(op, inputs["dy"], dtype)])
        assert verdict.correct is correct, (dtype, verdict)


@pytest.mark.parametrize("gradient", ["input", "weight", "both"])
def test_each_gradient_of_a_convolution_has_its_own_terms(gradient):
    op = pm.Conv2d(n=2, c=8, h=9, w=9, k=8, r=3, s=3, padding=1, backward=True, gradient=gradient, dtype="tf32")
    inputs = make_inputs(op, "cpu", 0)
    both = _convolution(op, inputs, bits=10)
    wanted = {"input": both[:1], "weight": both[1:], "both": both}[gradient]
    assert check_gradients(op, inputs, wanted).correct

"""Draws of torch find the token that has nearly all of the probability; a wrong token is found."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import perfmodel as pm
from perfmodel.kernels import registry
from perfmodel.kernels.check import check
from perfmodel.kernels.device import open_device
from perfmodel.kernels.inputs import make_inputs
from perfmodel.kernels.verify import verify

CPU = open_device("cpu")


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "bf16"])
@pytest.mark.parametrize("algorithm", ["multinomial", "gumbel", "top_k", "top_p"])
def test_every_draw_finds_the_raised_logit(algorithm: str, dtype: str) -> None:
    op = pm.Sampling(rows=20, vocab=1000, k=7, algorithm=algorithm, dtype=dtype)
    inputs = make_inputs(op, "cpu", seed=1)
    (kernel,) = registry.find_kernels("sampling")
    assert not kernel.supports(op, CPU)
    call = kernel.prepare(op, inputs)
    verdict = verify(op, call, inputs)
    assert verdict.correct, verdict
    wrong = call().clone()
    wrong[3] = (wrong[3] + 1) % 1000
    assert not check(op, inputs, wrong).correct


def test_what_torch_does_not_draw_is_said() -> None:
    (kernel,) = registry.find_kernels("sampling")
    assert "gumbel_fused" in kernel.supports(pm.Sampling(rows=1, vocab=9, algorithm="gumbel_fused"), CPU)
    assert "round to 0" in kernel.supports(pm.Sampling(rows=1, vocab=9, dtype="fp16"), CPU)

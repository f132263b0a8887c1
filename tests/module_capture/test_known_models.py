"""Known models: parameters as published, FLOP as counted by hand."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

import perfmodel as pm

torch = pytest.importorskip("torch")
SPEC = importlib.util.spec_from_file_location("known_models", Path(__file__).with_name("known_models.py"))
assert SPEC is not None
assert SPEC.loader is not None
known = importlib.util.module_from_spec(SPEC)
sys.modules["known_models"] = known
SPEC.loader.exec_module(known)

TOKENS, IMAGES = 512, 2


def tokens() -> Any:
    return torch.zeros(1, TOKENS, dtype=torch.int64, device="meta")


def images() -> Any:
    return torch.empty(IMAGES, 3, 224, 224, device="meta")


def flop_of(captured: Any, *ops: str) -> float:
    return sum(call.flop for call in captured.modelled if call.op.op in ops)


def causal(layers: int, hidden: int, seq: int) -> float:
    """Return the FLOP of two products of attention under a causal mask: half of the square and half of its diagonal."""
    return 4.0 * layers * hidden * seq * (seq + 1) / 2


def test_gpt2() -> None:
    captured = pm.capture(known.Gpt2, tokens())
    assert captured.root.parameters == 124_439_808
    products = 12 * (768 * 2304 + 768 * 768 + 2 * 768 * 3072) + 768 * 50257
    biases = 12 * (2304 + 768 + 3072 + 768)
    assert flop_of(captured, "gemm") == TOKENS * (2 * products + biases)
    assert flop_of(captured, "attention") == pytest.approx(causal(12, 768, TOKENS), rel=5e-3)


def test_vit_b_16() -> None:
    captured = pm.capture(known.Vit, images())
    assert captured.root.parameters == 86_567_656
    layer, biases = 768 * 2304 + 768 * 768 + 2 * 768 * 3072, 2304 + 768 + 3072 + 768
    assert flop_of(captured, "gemm") == IMAGES * (197 * 12 * (2 * layer + biases) + 2 * 768 * 1000 + 1000)
    assert flop_of(captured, "conv2d") == pytest.approx(IMAGES * 196 * 768 * 2 * 3 * 16 * 16, rel=1e-3)
    assert flop_of(captured, "attention") == pytest.approx(IMAGES * 12 * 4 * 768 * 197**2, rel=1e-2)


def test_resnet50() -> None:
    captured = pm.capture(known.resnet50, images())
    assert captured.root.parameters == 25_557_032
    # 4.09e9 multiply-adds an image, as torchvision states for these weights
    assert flop_of(captured, "conv2d", "gemm") == pytest.approx(IMAGES * 2 * 4.09e9, rel=2e-3)


@pytest.mark.waiting
@pytest.mark.slow
def test_llama_3_1_70b() -> None:
    captured = pm.capture(known.llama_70b, tokens())
    assert captured.root.parameters == 70_553_706_496
    layer = 8192 * (8192 + 2 * 1024) + 8192 * 8192 + 3 * 8192 * 28672
    assert flop_of(captured, "gemm") == 2 * TOKENS * (80 * layer + 8192 * 128_256)
    assert flop_of(captured, "attention") == pytest.approx(causal(80, 8192, TOKENS), rel=5e-3)
    peak, h100 = 989.4e12, pm.hardware("h100")
    assert captured.predict(h100).kernels_s > flop_of(captured, "gemm") / peak, "never faster than the peak"


@pytest.mark.slow
@pytest.mark.waiting
def test_mixtral_8x7b() -> None:
    captured = pm.capture(known.mixtral_8x7b, tokens())
    assert captured.root.parameters == 46_702_792_704
    layer = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 4096 * 8 + 2 * 3 * 4096 * 14336
    assert flop_of(captured, "gemm") == 2 * TOKENS * (32 * layer + 4096 * 32_000), "two experts of eight for each token"
    assert flop_of(captured, "attention") == pytest.approx(causal(32, 4096, TOKENS), rel=5e-3)


@pytest.mark.slow
def test_gradients_of_gpt2_are_twice_its_products() -> None:
    captured = pm.capture(known.Gpt2, tokens(), backward=True, optimizer="adamw")
    phases = {phase: sum(call.flop for call in captured.modelled if call.op.op == "gemm" and call.phase == phase)
              for phase in ("forward", "backward")}  # fmt: skip
    assert phases["backward"] == pytest.approx(2 * phases["forward"], rel=1e-3)
    (step,) = [call for call in captured.calls if call.phase == "optimizer"]
    assert step.op.parameters == 124_439_808, "the head and the embedding are one"

"""Cross entropy: F.cross_entropy, and the loss alone as a logarithm of a sum less the right logit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._compile import compiled, compiled_kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.operators import Operator
from perfmodel.operators.cross_entropy import CrossEntropy


def _library(op: CrossEntropy, inputs: Mapping[str, torch.Tensor]) -> Call:
    logits, target = inputs["logits"], inputs["target"]
    return lambda: F.cross_entropy(logits, target, reduction="none").float()


def _primitives(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    picked = logits.gather(-1, target[:, None])[:, 0]
    return torch.logsumexp(logits.float(), -1) - picked.float()


def _compiled(op: CrossEntropy, inputs: Mapping[str, torch.Tensor]) -> Call:
    logits, target, function = inputs["logits"], inputs["target"], compiled(_primitives)
    return lambda: function(logits, target)


def _fused(op: CrossEntropy, inputs: Mapping[str, torch.Tensor]) -> Call:
    """The loss and its gradient in one call, which a compiler makes two passes over the logits."""
    logits, target, function = inputs["logits"], inputs["target"], compiled(_with_gradient)
    return lambda: function(logits, target)[0]


def _with_gradient(logits: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    total = torch.logsumexp(logits.float(), -1, keepdim=True)
    gradient = torch.exp(logits.float() - total)
    right = torch.arange(logits.shape[-1], device=logits.device) == target[:, None]
    loss = total[:, 0] - logits.gather(-1, target[:, None])[:, 0].float()
    return loss, (gradient - right.float()).to(logits.dtype)


def _composition(op: CrossEntropy) -> tuple[Operator, ...]:
    return op.composition()


def _is(*algorithms: str) -> Callable[[CrossEntropy], bool]:
    return lambda op: op.algorithm in algorithms


def _workspace_bytes(op: CrossEntropy) -> float:
    return float(op.tensors()[0].size_bytes)


_FORWARD = (
    Kernel(
        "F.cross_entropy",
        "cross_entropy",
        "torch",
        _library,
        supports_dtype,
        _is("plain"),
        workspace_bytes=_workspace_bytes,
        composition=_composition,
    ),
    compiled_kernel("cross_entropy", _compiled, supports_dtype, applies=_is("loss")),
    compiled_kernel(
        "cross_entropy",
        _fused,
        supports_dtype,
        applies=_is("fused"),
        workspace_bytes=_workspace_bytes,
        name="compiled.gradient",
    ),
)
KERNELS = (*_FORWARD, gradient_kernel(_FORWARD[0], _composition))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        rows=512 vocab=50257
        rows=512 vocab=50257 algorithm=loss
        rows=512 vocab=50257 algorithm=fused
        rows=64 vocab=50257 backward=true
    """,
    cuda_more="""
        rows=8192 vocab=128256 dtype=bf16
        rows=8192 vocab=128256 dtype=bf16 backward=true
    """,
)

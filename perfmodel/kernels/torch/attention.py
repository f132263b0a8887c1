"""Attention: F.scaled_dot_product_attention by each backend, and the composition that writes the scores to memory."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.precision import TORCH_DTYPES, unsupported_dtype
from perfmodel.kernels.reference.attention import hidden
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch import _sdpa
from perfmodel.kernels.torch._compile import compiled, compiled_kernel
from perfmodel.kernels.torch._passes import streamed
from perfmodel.kernels.torch._workspace import tensor_bytes
from perfmodel.operators import Operator
from perfmodel.operators.attention import Attention

Function = Callable[..., torch.Tensor]


def _supports_naive(op: Attention, device: Device) -> str:
    return unsupported_dtype(device.kind, op.dtype, op.kv_dtype)


def _composed(op: Attention, inputs: Mapping[str, torch.Tensor]) -> tuple[Function, tuple[torch.Tensor, ...]]:
    """Return product, mask, softmax and product as a function, and its arguments."""
    group, dtype, scale = int(op.heads // op.kv_heads), TORCH_DTYPES[op.dtype], 1 / math.sqrt(op.head_dim)

    def function(
        q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        k, v = keys.to(dtype), values.to(dtype)
        if group > 1:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = torch.matmul(q, k.mT) * scale
        if mask is not None:
            scores = scores.masked_fill(mask, -math.inf)
        return torch.matmul(torch.softmax(scores, -1), v)

    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    mask = hidden(op, torch.arange(int(op.seq_q), device=q.device))
    return function, (q, k, v) if mask is None else (q, k, v, mask)


def _naive(op: Attention, inputs: Mapping[str, torch.Tensor]) -> Call:
    """The composition: all scores are computed and cross memory several times."""
    function, arguments = _composed(op, inputs)
    return lambda: function(*arguments)


def _compiled(op: Attention, inputs: Mapping[str, torch.Tensor]) -> Call:
    """The compiled composition: scale and mask are fused, or all of it becomes scaled_dot_product_attention."""
    composed, arguments = _composed(op, inputs)
    function = compiled(composed)
    return lambda: function(*arguments)


def _unfused(op: Attention) -> Operator:
    # The tensors contain only the keys that some query attends to.
    return dataclasses.replace(op, algorithm="unfused", seq_kv=op.keys())


def _passes(op: Attention) -> tuple[Operator, ...]:
    """The three kernels of the unfused algorithm, and the scale, the mask and the copies of keys between them.

    masked_fill copies the scores, then fills the copy; a kernel whose operand is a view (the mask, or a repeated key)
    has no vectors and takes twice, where it only reads the view one and a half times, as long as a copy.
    """
    scores = op.batch * op.heads * op.seq_q * op.keys()
    between = ("mul", *("copy",) * 3) if op.causal else ("mul",)
    return (*_unfused(op).composition(), *streamed(scores, op.dtype, *between), *_repeated(op, op.dtype))


def _repeated(op: Attention, dtype: str) -> tuple[Operator, ...]:
    """Return the copies of keys and values for each query head of a group."""
    numel = op.batch * op.heads * op.keys() * 0.5 * (op.head_dim + op.value_columns)
    return streamed(numel, dtype, *("copy",) * 3) if op.heads > op.kv_heads else ()


def _math_passes(op: Attention) -> tuple[Operator, ...]:
    """The kernels of _scaled_dot_product_attention_math, in fp32 (aten/src/ATen/native/transformers/attention.cpp).

    The mask is added in place. _safe_softmax also compares each score with -inf and reduces what it finds, together
    six bytes a score, and writes the result anew; in 16 bits the probabilities are converted at the end, six more.
    """
    scores = op.batch * op.heads * op.seq_q * op.keys()
    if op.backward:  # four products, the gradients of the softmax and of its result written anew
        return (*_wide(op).composition(), *streamed(scores, "fp32", "copy"))
    masked = ("copy",) if op.causal and op.seq_q > 1 else ()
    six_bytes = ("copy",) if op.dtype == "fp32" else ("copy", "copy")
    passes = (*streamed(scores, "fp32", "copy", *masked), *streamed(0.75 * scores, "fp32", *six_bytes))
    return (*_wide(op).composition(), *passes, *_repeated(op, "fp32"))


def _wide(op: Attention) -> Operator:
    return _unfused(op.changed(dtype="fp32", kv_dtype="fp32"))


def _fused_passes(op: Attention) -> tuple[Operator, ...]:
    return _unfused(op).composition()


def _workspace_bytes(op: Attention) -> float:
    scores = tensor_bytes(_unfused(op), "scores")
    return 4.0 * scores


def _library(name: str, backend: str) -> Kernel:
    """Return scaled_dot_product_attention by one of its backends; with "" torch chooses."""
    prepare, supports = functools.partial(_sdpa.prepare, backend), functools.partial(_sdpa.supports, backend)
    kernel = Kernel(name, "attention", "torch", prepare, supports)
    if backend != "MATH":
        return kernel
    return dataclasses.replace(kernel, workspace_bytes=_workspace_bytes, composition=_math_passes)


_FORWARD = (
    _library("torch.sdpa", ""),
    *(_library(f"torch.sdpa.{name}", backend) for name, backend in _sdpa.BACKENDS.items()),
    Kernel(
        "naive",
        "attention",
        "torch",
        _naive,
        _supports_naive,
        workspace_bytes=_workspace_bytes,
        own_operator=_unfused,
        composition=_passes,
    ),
    compiled_kernel(
        "attention",
        _compiled,
        _supports_naive,
        workspace_bytes=_workspace_bytes,
        own_operator=_unfused,
        composition=_fused_passes,
    ),
)
KERNELS = (
    *_FORWARD,
    *(
        gradient_kernel(kernel, _math_passes if kernel.name.endswith("math") else None)
        for kernel in _FORWARD
        if kernel.name.startswith("torch.sdpa")
    ),
    gradient_kernel(next(kernel for kernel in _FORWARD if kernel.name == "naive"), _fused_passes),
)

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_quick="""
        heads=8 seq_q=512 head_dim=64 causal=true
        heads=16 kv_heads=4 seq_q=1 seq_kv=4096 head_dim=64 causal=true
    """,
    cpu_full="""
        heads=8 seq_q=128/512/1024 head_dim=64 causal=true
        heads=8 seq_q=512 head_dim=64
        heads=8 seq_q=512 head_dim=64 causal=true dtype=bf16
        heads=8 kv_heads=2 seq_q=256 seq_kv=1024 head_dim=64 causal=true
        heads=8 seq_q=1024 head_dim=64 causal=true window=128
        heads=8 seq_q=512 head_dim=96 value_dim=64 causal=true
        heads=16 kv_heads=4 seq_q=1 seq_kv=4096 head_dim=64 causal=true
        heads=8 seq_q=256/512 head_dim=64 causal=true backward=true
    """,
    cuda_quick="""
        heads=32 seq_q=2048 head_dim=128 causal=true dtype=bf16
        batch=16 heads=32 kv_heads=8 seq_q=1 seq_kv=8192 head_dim=128 causal=true dtype=bf16
    """,
    cuda_targets="batch=2 heads=32 seq_q=8192 head_dim=128 causal=true dtype=bf16",
    cuda_sweep="""
        batch=1/4 heads=32 seq_q=256..8192 head_dim=128 causal=true dtype=bf16
        heads=32 kv_heads=8 seq_q=256..8192 head_dim=128 causal=true dtype=bf16
        batch=4 heads=16 seq_q=512..4096 head_dim=64 dtype=bf16
        batch=1..64 heads=32 kv_heads=8 seq_q=1 seq_kv=1024/4096/16384 head_dim=128 causal=true dtype=bf16
    """,
    cuda_more="""
        heads=32 seq_q=4096 head_dim=128 dtype=fp16
        heads=32 seq_q=2048 head_dim=64 dtype=fp32
        heads=32 kv_heads=8 seq_q=512 seq_kv=4096 head_dim=128 causal=true dtype=bf16
        batch=16 heads=32 kv_heads=8 seq_q=1 seq_kv=8192 head_dim=128 causal=true dtype=bf16
        batch=4 heads=32 seq_q=4096 head_dim=128 causal=true dtype=bf16 backward=true
    """,
)

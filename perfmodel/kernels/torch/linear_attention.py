"""Linear attention with a decay: chunk by chunk, and token by token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.gradients import gradient_kernel
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._chunks import computes, in_chunks, of_each_head, repeating, supports_chunks
from perfmodel.kernels.torch._passes import streamed, twice
from perfmodel.operators import Operator
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.linear_attention import LinearAttention


def _chunked(op: LinearAttention, inputs: Mapping[str, torch.Tensor]) -> Call:
    q, k, v, decay = (inputs[name] for name in ("q", "k", "v", "decay"))
    length = int(min(op.chunk, op.seq))

    def run() -> torch.Tensor:
        work = torch.float64 if q.dtype is torch.float64 else torch.float32
        queries, keys = (in_chunks(of_each_head(op, x.to(work)), length) for x in (q, k))
        values = in_chunks(v.to(work), length)
        logs = in_chunks(decay.to(work).log(), length).cumsum(-1)
        # within a chunk: attention without softmax, each pair weighted by the decay between its tokens
        between = (logs[..., :, None] - logs[..., None, :]).tril().exp().tril()
        inside = ((queries @ keys.mT) * between) @ values
        # between chunks: the state, decayed
        last = logs[..., -1:]
        updates = (keys * (last - logs).exp()[..., None]).mT @ values
        kept = last.exp()[..., None]
        state = inputs["state"].to(work) if op.carried else torch.zeros_like(updates[:, :, 0])
        before = []
        for chunk in range(updates.shape[2]):
            before.append(state)
            state = state * kept[:, :, chunk] + updates[:, :, chunk]
        across = (queries * logs.exp()[..., None]) @ torch.stack(before, 2)
        result: torch.Tensor = (inside + across).flatten(2, 3).to(q.dtype)
        return result

    return run


def _recurrent(op: LinearAttention, inputs: Mapping[str, torch.Tensor]) -> Call:
    q, k, v, decay = (inputs[name] for name in ("q", "k", "v", "decay"))

    def run() -> torch.Tensor:
        work = torch.float64 if q.dtype is torch.float64 else torch.float32
        queries, keys = (of_each_head(op, x) for x in (q, k))
        state = (
            inputs["state"].to(work)
            if op.carried
            else v.new_zeros((*v.shape[:2], q.shape[-1], v.shape[-1]), dtype=work)
        )
        out = torch.empty_like(v)
        for token in range(q.shape[2]):
            key, value = keys[:, :, token].to(work), v[:, :, token].to(work)
            state = state * decay[:, :, token, None, None] + key[..., None] * value[..., None, :]
            out[:, :, token] = (queries[:, :, token, None, :].to(work) @ state)[..., 0, :].to(v.dtype)
        return out

    return run


def _workspace_bytes(op: LinearAttention) -> float:
    size = min(float(np.max(op.chunk)), float(np.max(op.seq)))
    return 16.0 * float(op.batch * op.heads * op.seq) * (size + 4.0 * float(op.head_dim))


def _products(op: LinearAttention, length: int) -> tuple[Gemm, ...]:
    """Return the four batched products in fp32: scores, their values, updates of the state, and what it gives."""
    key, value = op.head_dim, op.value_dim
    sizes: tuple[tuple[Any, Any, Any], ...]
    sizes = ((length, length, key), (length, value, length), (key, value, length), (length, value, key))
    chunks = op.batch * op.heads * op.chunks
    return tuple(Gemm(batch=chunks, m=m, n=n, k=k, dtype="fp32") for m, n, k in sizes)


def _passes(op: LinearAttention) -> tuple[Operator, ...]:
    """The kernels of the chunked form, all in fp32.

    A conversion from 16 bits moves three quarters of a copy. The weights of pairs take five copies: differences of
    logarithms (half), tril, exp, tril, and the product with the scores (one and a half). The state is multiplied and
    added to once a chunk, and all states are stacked.
    """
    tokens, chunks, length = op.batch * op.heads * op.seq, op.chunks, int(min(op.chunk, op.seq))
    state = op.batch * op.heads * op.head_dim * op.value_dim
    inputs = 2.0 * op.batch * op.seq * (op.key_heads * op.head_dim + op.heads * op.value_dim)
    widened = () if op.dtype == "fp32" else streamed(0.75 * inputs, "fp32", "copy")
    return (
        *_products(op, length),
        *widened,
        *repeating(op),
        *streamed(tokens * length, "fp32", *("copy",) * 5),
        *streamed(tokens * op.head_dim, "fp32", "mul", "mul"),
        *streamed(state, "fp32", *("mul",) * int(chunks)),
        *streamed(state, "fp32", *("add",) * int(chunks), tensors=2),
        *streamed(state * chunks, "fp32", "copy"),
        *streamed(tokens * op.value_dim, "fp32", "add", tensors=2),
    )


def _gradient_passes(op: LinearAttention) -> tuple[Operator, ...]:
    """The kernels of autograd: two products for each, the passes once more, and a tensor of all states for each chunk.

    The gradient of a chunk's updates is written into zeros of the size of all chunks (half a copy), which are added to
    those of the chunks before (one and a half).
    """
    passes = _passes(op)
    every = op.batch * op.heads * op.chunks * op.head_dim * op.value_dim
    return (
        *passes,
        *_products(op, int(min(op.chunk, op.seq))),
        *streamed(every, "fp32", *("copy",) * (2 * int(op.chunks))),
    )


def _steps(op: LinearAttention) -> tuple[Operator, ...]:
    """The kernels of the loop over tokens: the state decayed, the outer product, their sum, and what the query reads.

    Conversions and results are a head's columns each.
    """
    state, heads = op.batch * op.heads * op.head_dim * op.value_dim, op.batch * op.heads
    token = (
        *streamed(state, "fp32", "mul", "mul", strided=True),
        *streamed(state, "fp32", "add", tensors=2),
        Gemm(batch=heads, m=1, n=op.value_dim, k=op.head_dim, dtype="fp32"),
        *streamed(heads * op.head_dim, "fp32", *("copy",) * 4, strided=True),
    )
    return tuple(part.changed(count=part.count * int(op.seq)) for part in token)


_FORWARD = (
    Kernel(
        "chunked",
        "linear_attention",
        "torch",
        _chunked,
        supports_chunks,
        computes("chunked"),
        workspace_bytes=_workspace_bytes,
        composition=_passes,
    ),
    Kernel(
        "recurrent", "linear_attention", "torch", _recurrent, supports_chunks, computes("recurrent"), composition=_steps
    ),
)
KERNELS = (*_FORWARD, gradient_kernel(_FORWARD[0], _gradient_passes), gradient_kernel(_FORWARD[1], twice(_steps)))

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        heads=4 seq=1024 head_dim=64
        heads=4 seq=256 head_dim=64 algorithm=recurrent
        batch=4 heads=8 seq=1 head_dim=64 algorithm=recurrent carried=true
        heads=4 seq=512 head_dim=64 backward=true
    """,
    cuda_more="""
        batch=4 heads=16 seq=4096 head_dim=128 dtype=bf16
        batch=4 heads=16 seq=4096 head_dim=128 dtype=bf16 backward=true
        batch=64 heads=64 seq=1 head_dim=128 dtype=bf16 algorithm=recurrent carried=true
    """,
)

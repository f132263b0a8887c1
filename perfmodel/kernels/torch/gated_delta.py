"""The gated delta rule: chunk by chunk, and token by token."""

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
from perfmodel.operators.gated_delta import GatedDelta
from perfmodel.operators.gemm import Gemm


def _widened(op: GatedDelta, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Return q and k of each head, v, decay, beta and the first state, all in the dtype of the arithmetic."""
    work = torch.float64 if inputs["v"].dtype is torch.float64 else torch.float32
    q, k, v, decay, beta = (inputs[name].to(work) for name in ("q", "k", "v", "decay", "beta"))
    q, k = (of_each_head(op, x) for x in (q, k))
    if op.carried:
        return q, k, v, decay, beta, inputs["state"].to(work)
    return q, k, v, decay, beta, v.new_zeros((*v.shape[:2], k.shape[-1], v.shape[-1]))


def by_chunks(op: GatedDelta, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return o and the last state, by the products of chunks.

    Within a chunk that starts with the state S, with g[i] the product of the decays up to token i: u[i] + beta[i] sum
    over j < i of g[i] / g[j] (k[i] . k[j]) u[j] = beta[i] (v[i] - g[i] k[i] S). A triangle is solved once for beta v
    and once for beta g k, and u is the first solution minus the second times S.
    """
    length = int(op.length)
    *given, state = _widened(op, inputs)
    queries, keys, values, decay, betas = (in_chunks(x, length) for x in given)
    logs = decay.log().cumsum(-1)
    between = (logs[..., :, None] - logs[..., None, :]).tril().exp().tril()
    scaled = keys * betas[..., None]
    earlier = (scaled @ keys.mT) * between  # of the triangle, the part below its diagonal of ones is read
    right = torch.cat([values * betas[..., None], scaled * logs.exp()[..., None]], -1)
    u, w = torch.linalg.solve_triangular(earlier, right, upper=False, unitriangular=True).split(
        [values.shape[-1], keys.shape[-1]], -1
    )
    last = logs[..., -1:]
    kept, decayed = last.exp()[..., None], (keys * (last - logs).exp()[..., None]).mT
    before, updates = [], []
    for chunk in range(keys.shape[2]):
        before.append(state)
        updates.append(u[:, :, chunk] - w[:, :, chunk] @ state)
        state = state * kept[:, :, chunk] + decayed[:, :, chunk] @ updates[-1]
    inside = ((queries @ keys.mT) * between) @ torch.stack(updates, 2)
    across = (queries * logs.exp()[..., None]) @ torch.stack(before, 2)
    return (inside + across).flatten(2, 3).to(inputs["v"].dtype), state


def by_tokens(op: GatedDelta, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return o and the last state, one token after another."""
    q, k, v, decay, beta, state = _widened(op, inputs)
    out = torch.empty_like(inputs["v"])
    for token in range(v.shape[2]):
        key = k[:, :, token, None, :]
        state = state * decay[:, :, token, None, None]
        update = beta[:, :, token, None, None] * (v[:, :, token, None, :] - key @ state)
        state = state + key.mT * update
        out[:, :, token] = (q[:, :, token, None, :] @ state)[..., 0, :].to(out.dtype)
    return out, state


def _chunked(op: GatedDelta, inputs: Mapping[str, torch.Tensor]) -> Call:
    return lambda: by_chunks(op, inputs)[0]


def _recurrent(op: GatedDelta, inputs: Mapping[str, torch.Tensor]) -> Call:
    return lambda: by_tokens(op, inputs)[0]


def _workspace_bytes(op: GatedDelta) -> float:
    """Return four squares of a chunk, ten tensors of keys or values and two of all states, in fp32 or fp64 [B]."""
    if op.algorithm == "recurrent":
        return 0.0
    each, dims = 8.0 if op.dtype == "fp64" else 4.0, float(np.max(op.head_dim + op.value_dim))
    tokens = each * float(op.batch * op.heads * op.seq) * (4.0 * float(np.max(op.length)) + 5.0 * dims)
    return tokens + 2.0 * each * float(op.batch * op.heads * op.chunks * op.head_dim * op.value_dim)


def _products(op: GatedDelta, length: int) -> tuple[Gemm, ...]:
    """Return the batched products in fp32, and the triangle's two solutions as a product of its size."""
    key, value = op.head_dim, op.value_dim
    sizes: tuple[tuple[Any, Any, Any], ...] = (
        (length, length, key),  # keys and keys
        (length, length, key),  # queries and keys
        (length, key + value, length),  # the solutions
        (length, value, length),  # what the updates of a chunk give
        (length, value, key),  # what the states give
    )
    each = op.batch * op.heads
    of_a_chunk: tuple[tuple[Any, Any, Any], ...] = ((length, value, key), (key, value, length))
    return (
        *(Gemm(batch=each * op.chunks, m=m, n=n, k=k, dtype="fp32") for m, n, k in sizes),
        *(Gemm(batch=each, m=m, n=n, k=k, dtype="fp32", count=int(op.chunks)) for m, n, k in of_a_chunk),
    )


def _widening(op: GatedDelta) -> tuple[Operator, ...]:
    """Return the conversions from 16 bits, three quarters of a copy each, and the keys of each head, a copy."""
    tokens = op.batch * op.seq
    inputs = 2.0 * op.key_heads * op.head_dim + op.heads * op.value_dim
    converted = () if op.dtype == "fp32" else streamed(0.75 * tokens * inputs, "fp32", "copy")
    return (*converted, *repeating(op))


def _passes(op: GatedDelta) -> tuple[Operator, ...]:
    """The kernels of the chunked form, all in fp32.

    The weights of pairs take five copies and a half: differences of logarithms (half), tril, exp, tril, and the
    products with both scores (one and a half each). Keys are scaled three times and queries once, values once, and the
    right sides are joined and the solutions written again in another order. Each chunk takes the difference of its
    updates, and scales its state and adds to it; updates and states are stacked.
    """
    tokens, chunks, length = op.batch * op.heads * op.seq, int(op.chunks), int(op.length)
    state = op.batch * op.heads * op.head_dim * op.value_dim
    both = tokens * (op.head_dim + op.value_dim)
    return (
        *_products(op, length),
        *_widening(op),
        *streamed(5.5 * tokens * length, "fp32", "copy"),
        *streamed(tokens * op.head_dim, "fp32", *("mul",) * 4, strided=True),
        *streamed(tokens * op.value_dim, "fp32", "mul", strided=True),
        *streamed(both, "fp32", "copy", "copy"),
        *streamed(tokens * op.value_dim / op.chunks, "fp32", *("add",) * chunks, tensors=2),
        *streamed(state, "fp32", *("mul",) * chunks, strided=True),
        *streamed(state, "fp32", *("add",) * chunks, tensors=2),
        *streamed(tokens * op.value_dim + state * op.chunks, "fp32", "copy"),
        *streamed(tokens * op.value_dim, "fp32", "add", tensors=2),
    )


def _gradient_passes(op: GatedDelta) -> tuple[Operator, ...]:
    """The kernels of autograd: two products for each, the passes once more, and a tensor of all chunks for each chunk.

    The gradients of what a chunk reads, its part of both solutions and of the keys, are written into zeros of the size
    of all chunks (half a copy each), which are added to those of the chunks before (one and a half).
    """
    passes = _passes(op)
    every = op.batch * op.heads * op.seq * (2.0 * op.head_dim + op.value_dim)
    return (*passes, *_products(op, int(op.length)), *streamed(every, "fp32", *("copy",) * (2 * int(op.chunks))))


def _steps(op: GatedDelta) -> tuple[Operator, ...]:
    """The kernels of the loop over tokens: the state decayed, what it holds, the outer product, their sum, the result.

    The update and what is written are a head's columns each.
    """
    state, heads = op.batch * op.heads * op.head_dim * op.value_dim, op.batch * op.heads
    token = (
        *streamed(state, "fp32", "mul", "mul", strided=True),
        *streamed(state, "fp32", "add", tensors=2),
        Gemm(batch=heads, m=1, n=op.value_dim, k=op.head_dim, dtype="fp32", count=2),
        *streamed(heads * op.value_dim, "fp32", *("copy",) * 3, strided=True),
    )
    return (*_widening(op), *(part.changed(count=part.count * int(op.seq)) for part in token))


_FORWARD = (
    Kernel(
        "chunked",
        "gated_delta",
        "torch",
        _chunked,
        supports_chunks,
        computes("chunked"),
        workspace_bytes=_workspace_bytes,
        composition=_passes,
    ),
    Kernel("recurrent", "gated_delta", "torch", _recurrent, supports_chunks, computes("recurrent"), composition=_steps),
)
KERNELS = (*_FORWARD, gradient_kernel(_FORWARD[0], _gradient_passes), gradient_kernel(_FORWARD[1], twice(_steps)))

#: sizes for the presets of `perfmodel bench`; those of a GPU have a layer of Qwen3-Next-80B-A3B and a step of it
CASES = BenchmarkCases(
    cpu_full="""
        heads=4 seq=1024 head_dim=64
        heads=4 key_heads=2 seq=256 head_dim=64 algorithm=recurrent
        batch=4 heads=8 seq=1 head_dim=64 algorithm=recurrent carried=true
        heads=4 seq=512 head_dim=64 backward=true
    """,
    cuda_more="""
        heads=32 key_heads=16 seq=8192 head_dim=128 dtype=bf16 carried=true
        batch=4 heads=16 seq=4096 head_dim=128 dtype=bf16 backward=true
        batch=64 heads=32 key_heads=16 seq=1 head_dim=128 dtype=bf16 algorithm=recurrent carried=true
    """,
)

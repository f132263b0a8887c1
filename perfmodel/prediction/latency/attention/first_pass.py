"""The pass before attention: rotating the tokens of a prompt and writing their keys and values to the cache."""

from __future__ import annotations

from typing import Any

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, where
from perfmodel.operators.attention import Attention
from perfmodel.prediction.latency.attention.kernels import TCGEN05, WGMMA, Kernel
from perfmodel.prediction.latency.family import Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import smooth_max


def narrow_keys(op: Attention) -> bool:
    """Return whether keys have 8 bits and queries 16."""
    return dtype_bytes(op.dtype) == 2 and dtype_bytes(op.kv_dtype) == 1


def narrowing_s(op: Attention, kernel: Kernel) -> float:
    """Return the start of the kernel that narrows the queries [s]."""
    return kernel.narrowing_s if narrow_keys(op) and op.kv_write else 0.0


def prepared(op: Attention, machine: Machine, kernel: Kernel) -> Any:
    """Return where a pass before attention reads and writes Q: to turn it, or to narrow it for an 8-bit cache."""
    if kernel.name == "trtllm" and machine.matrix_instruction == WGMMA and dtype_bytes(op.kv_dtype) == 2:
        return op.head_dim != 128
    narrows = narrow_keys(op) and machine.matrix_instruction in (WGMMA, TCGEN05)
    return kernel.prepares_q or (narrows and (kernel.name == "trtllm_gen" or kernel.two_level))


def _read_bytes(op: Attention, kernel: Kernel) -> float:
    """Return the size of an element of Q, K and V as the pass before attention reads them [B].

    That is the dtype of the model, which is 16 bits in TensorRT-LLM's 8-bit attention.
    """
    return max(2.0, dtype_bytes(op.dtype)) if kernel.name == "trtllm" else dtype_bytes(op.dtype)


def inputs(op: Attention, machine: Machine, kernel: Kernel) -> Number:
    """Return the size of what the pass before attention reads and does not write back to its place [B].

    Q is turned in its place, unless it is narrowed to the dtype of the products.
    """
    read = _read_bytes(op, kernel)
    columns: Number = 2.0 * op.kv_heads
    if read > dtype_bytes(op.dtype) or (narrow_keys(op) and machine.matrix_instruction in (WGMMA, TCGEN05)):
        columns = columns + where(prepared(op, machine, kernel), op.heads, 0.0)
    return columns * op.head_dim * read * op.batch * op.seq_q


def first_pass(op: Attention, machine: Machine, c: Values, kernel: Kernel, stream: Number) -> Number:
    """Return the time before attention: rotating the tokens and writing their keys and values [s].

    Where a kernel of its own writes the cache, each of its blocks takes ``write_token`` cycles for a token and
    ``write_column`` for a column that it narrows, and another kernel narrows the queries.
    """
    tokens = 1.0 * op.batch * op.seq_q
    # K and V are written in the dtype of the cache, and Q in that of the products.
    read = _read_bytes(op, kernel)
    moved = 2.0 * tokens * op.kv_heads * op.head_dim * (read + dtype_bytes(op.kv_dtype))
    queries: Number = tokens * op.heads * op.head_dim * (read + dtype_bytes(op.dtype))
    queries = where(prepared(op, machine, kernel), queries, 0.0)
    cycles = machine.sm_count * machine.clock_hz
    rotated = c["token"] * kernel.token * tokens * op.heads / cycles
    if not kernel.write_token:
        return smooth_max(2, rotated, c["kv"] * (moved + queries) / stream)
    columns = kernel.write_column * op.kv_heads * op.head_dim if narrow_keys(op) else 0.0
    written = tokens * (kernel.write_token + columns) / cycles
    return smooth_max(2, rotated, c["kv"] * moved / stream) + written + queries / stream

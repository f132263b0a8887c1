"""Which calls of attention are decodes: a few queries of a longer sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfmodel.core.work import Number, clipped, plain
from perfmodel.operators.attention import Attention
from perfmodel.prediction.latency.attention.libraries import kernel_of
from perfmodel.prediction.latency.machine import Machine

#: libraries whose calls send a prompt of one token, with its RoPE and its write, to the kernel of decode too
PROMPTS_OF_ONE = ("vllm",)
#: queries of a sequence that the kernels of decode serve (those of speculative decoding), and those of one block, which
#: they serve where the keys are `LONGER` times as many
FEW_QUERIES, BLOCK_QUERIES, LONGER = 8, 128, 4


def is_decode(op: Attention, machine: Machine, library: str) -> Any:
    """Whether each point has few queries of a longer sequence; what holds no earlier keys is a (short) prompt.

    In a serving library, whose calls also write the cache (``kv_write``), a prompt has its own kernels, however short:
    64 sequences of 32 heads take a B200 60 us with a prompt of one token, and 16 us with one query of 16 keys; 256 of
    64 heads take an H100 412 us, and 29 (aiconfigurator @ 095f58a51c4c, SGLang and TensorRT-LLM). Attention alone sees
    one query and one key, and does not know whether they are a prompt. Kernels that have no form for few queries serve
    them as a prefill.
    """
    kernel = kernel_of(op, machine, library)
    if op.backward or not kernel.decodes:
        return False
    prompts_of_one = (not op.kv_write) or library.partition("/")[0] in PROMPTS_OF_ONE
    if kernel.one_query:
        return (op.seq_q == 1) & ((op.seq_kv > 1) | prompts_of_one)
    few = (op.seq_q <= FEW_QUERIES) | ((op.seq_q <= BLOCK_QUERIES) & (op.seq_kv >= LONGER * op.seq_q))
    return (few & (op.seq_kv > op.seq_q)) | ((op.seq_q == 1) & prompts_of_one)


def may_be_few(op: Attention, machine: Machine, library: str) -> Any:
    """Whether each point that is no decode is short enough for the kernels of a few queries: attention alone."""
    kernel = kernel_of(op, machine, library)
    if op.backward or op.kv_write or kernel.one_query or not kernel.decodes:
        return False
    return op.seq_q < BLOCK_QUERIES


def filled(op: Attention) -> Number:
    """Return 0 up to half of `BLOCK_QUERIES`, 1 at all of them, with the logarithm between."""
    return clipped(plain(np.log2(2.0 * op.seq_q / BLOCK_QUERIES)), 0.0, 1.0)


def measured_share(op: Attention) -> Number:
    """Return the share of a prompt's residual surface that holds: those measured are causal and write the cache.

    A short prompt that writes none may have the kernels of a few queries (`may_be_few`).
    """
    return float(op.causal) * (1.0 if op.kv_write else filled(op))

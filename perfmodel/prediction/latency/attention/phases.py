"""Which calls of attention are decodes: a few queries of a longer sequence."""

from __future__ import annotations

from typing import Any

from perfmodel.operators.attention import Attention
from perfmodel.prediction.latency.attention.kernels import kernel_of
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

"""Attention: unfused, flash, and linear attention in chunks, which computes something else.

Flash attention takes 4 d FLOP for each pair of a query and a key, half of all pairs where it is causal: 2 S d a query.
Linear attention in chunks of C positions (GLA, arXiv 2312.06635; SSD, arXiv 2405.21060) takes 4 C d + 4 d N a query,
with a state of d x N: it grows with S, not with S^2.
"""

from __future__ import annotations

import math
from dataclasses import replace

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware
from perfmodel.operators.attention import Attention
from perfmodel.prediction.algorithms.base import Cost, Problem, counted, predicted

#: positions of a chunk of linear attention, as the published kernels have them
CHUNK = 64.0
#: kernels of it: the states of the chunks, what passes between them, and the outputs
KERNELS = 3.0
#: rate of flash attention over that of kernels of linear attention. No table of this project has rows of them: assumed
#: from "beyond 2K" of Mamba (arXiv 2312.00752, section 4.5) and SSD, so that its row is a range and no check
SLOWER, LEAST_SLOWER, MOST_SLOWER = 4.0, 1.0, 5.0


def costs(op: Attention, hardware: Hardware) -> list[Cost]:
    """Return what each algorithm takes for an attention call."""
    flash, unfused = op.changed(algorithm="flash"), op.changed(algorithm="unfused")
    decode = bool(op.seq_q == 1)
    scores = float(op.batch * op.heads * op.seq_q * op.seq_kv) * dtype_bytes(op.dtype)
    fast = predicted("flash", flash, hardware)
    return [
        fast,
        predicted("unfused", unfused, hardware, kernels=3.0, workspace_bytes=2.0 * scores),
        Cost("linear", why_not="one query reads a state, not keys: see its own operator") if decode
        else _linear(flash, hardware),
    ]  # fmt: skip


def _linear(op: Attention, hardware: Hardware) -> Cost:
    """Return linear attention as flash attention over such a sequence that it does `SLOWER` times as many FLOP.

    So the two cross at S = 4 (2 C + 2 N) under a causal mask, wherever flash attention's rate is.
    """
    queries = float(op.batch * op.heads * op.seq_q)
    flop = 4.0 * queries * float(op.head_dim) * (min(CHUNK, float(op.seq_kv)) + float(op.head_dim))
    state = float(op.batch * op.heads * op.head_dim**2) * float(op.seq_kv) / CHUNK * dtype_bytes("fp32")
    times = [_flash_s(op, slower * flop, hardware) for slower in (SLOWER, LEAST_SLOWER, MOST_SLOWER)]
    cost = counted("linear", times[0], flop=flop, moved_bytes=float(op.work().bytes) + 2.0 * state,
                   kernels=KERNELS, workspace_bytes=state, basis="flash attention's rate / 4, assumed (1 to 5)",
                   why_not="computes another function, without softmax: a model has to be trained with it")  # fmt: skip
    return replace(cost, time_low_s=times[1], time_high_s=times[2])


def _flash_s(op: Attention, flop: float, hardware: Hardware) -> float:
    """Return the time of flash attention over a square of so many FLOP [s]."""
    pairs = flop / (4.0 * float(op.batch * op.heads) * float(op.head_dim)) * (2.0 if op.causal else 1.0)
    length = max(1.0, float(round(math.sqrt(pairs))))
    return predicted("flash", op.changed(seq_q=length, seq_kv=length, window=0), hardware).time_s


def _resized(op: Attention, size: float) -> Attention:
    """Return attention over sequences of another length, queries and keys alike."""
    return op.changed(seq_q=size, seq_kv=None)


PROBLEM = Problem(
    "attention",
    op="attention",
    size="seq_q",
    sizes=(64.0, 131072.0),
    costs=costs,
    resized=_resized,
    defaults={"heads": 32, "seq_q": 2048, "head_dim": 64, "dtype": "fp16", "causal": True},
    note="Sizes are positions of queries and keys alike.",
)

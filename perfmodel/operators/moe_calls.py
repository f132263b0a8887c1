"""A layer of a mixture of experts as calls of PyTorch, expert by expert: what `perfmodel.kernels.torch.moe` runs.

Each ``op`` is a `perfmodel.operators.moe.Moe`, which imports these functions.
"""

from __future__ import annotations

from typing import Any

from perfmodel.core.work import Number, ceil, maximum
from perfmodel.operators.base import Operator
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gather import Gather
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.index_select import IndexSelect
from perfmodel.operators.scan import Scan
from perfmodel.operators.scatter_add import ScatterAdd
from perfmodel.operators.softmax import Softmax
from perfmodel.operators.topk import Topk

#: dtypes of the weights that PyTorch multiplies in groups on a GPU: torch._grouped_mm those of bf16 alone, and
#: torch._scaled_grouped_mm those of 8 and 4 bits with their scales (aten/native/cuda/GroupedBlas.cpp)
GROUPED = ("bf16", "fp8", "fp4")


def one_by_one(op: Any) -> tuple[Operator, ...]:
    """Return the calls of a loop over the experts of a rank.

    Each expert's slots are searched for among all, which the host waits for. The tokens of those that have any are
    gathered, multiplied, weighted in fp32 and added to the result. Experts and rows are rounded up to whole ones.
    """
    tokens, touched = maximum(1.0, ceil(op.visiting_tokens())), maximum(1.0, ceil(op.touched))
    rows = maximum(1.0, ceil(op.computed_slots / touched))
    wide = op.dtype == "fp32"
    slots = tokens * op.top_k
    found: tuple[Operator, ...] = (
        Elementwise(numel=slots, kind="sub", num_inputs=1, dtype="int64", out_dtype="int8", name="places == expert"),
        # counts the slots, and writes their places in a scan: one call
        Scan(cols=slots, dtype="int8", name="nonzero"),
    )
    hidden = rows * op.inter_of_rank
    expert: tuple[Operator, ...] = (
        IndexSelect(rows=rows, cols=op.hidden, table=tokens, dtype=op.dtype, name="tokens"),
        Gemm(m=rows, n=(1.0 + op.gated) * op.inter_of_rank, k=op.hidden, dtype=op.dtype, name="up"),
        # both halves of a gated hidden layer are views with gaps
        Elementwise(numel=hidden, kind="silu", dtype=op.dtype, strided=bool(op.gated)),
        *([Elementwise(numel=hidden, kind="mul", dtype=op.dtype, strided=True, name="gate")] if op.gated else []),
        Gemm(m=rows, n=op.hidden, k=op.inter_of_rank, dtype=op.dtype, name="down"),
        Gather(numel=rows, dtype="fp32", name="shares"),
        *([] if wide else [_cast(rows * op.hidden, op.dtype, "fp32")]),
        Elementwise(numel=rows * op.hidden, kind="mul", num_inputs=1, dtype="fp32", strided=True, name="weighted"),
        ScatterAdd(rows=rows, cols=op.hidden, table=maximum(tokens, rows), unique=rows, dtype="fp32", name="sum"),
    )
    return (
        *_choice(op, tokens),
        Elementwise(numel=tokens * op.hidden, kind="fill", dtype="fp32", name="zeros"),
        *(part.repeated(op.experts_of_rank) for part in found),
        *(part.repeated(touched) for part in expert),
        *([] if wide else [_cast(tokens * op.hidden, "fp32", op.dtype)]),
    )


def _choice(op: Any, tokens: Number) -> tuple[Operator, ...]:
    """Return the router's calls: its product in fp32, the largest logits and their shares."""
    if not op.router:
        return ()
    operands = () if op.out_dtype == "fp32" else (tokens * op.hidden, op.hidden * op.experts)
    return (
        *(_cast(numel, op.out_dtype, "fp32") for numel in operands),
        Gemm(m=tokens, n=op.experts, k=op.hidden, dtype="fp32", name="router"),
        Topk(rows=tokens, cols=op.experts, k=op.top_k, dtype="fp32"),
        Softmax(rows=tokens, cols=op.top_k, dtype="fp32"),
    )


def widened(op: Any) -> tuple[Operator, ...]:
    """Return a cast and a product of all weights of the touched experts, and then the loop in the tokens' dtype."""
    numbers = maximum(1.0, ceil(op.touched * op.hidden * op.inter_of_rank * (2.0 + op.gated)))
    plain = op.changed(dtype=op.out_dtype, weight_dtype=op.out_dtype, scale="none")
    return (
        _cast(numbers, "int8", op.out_dtype),
        *([Elementwise(numel=numbers, kind="mul", dtype=op.out_dtype)] if op.scale != "none" else []),
        *one_by_one(plain),
    )


def _cast(numel: Number, dtype: str, out_dtype: str) -> Elementwise:
    return Elementwise(numel=numel, kind="cast", dtype=dtype, out_dtype=out_dtype, name="cast")

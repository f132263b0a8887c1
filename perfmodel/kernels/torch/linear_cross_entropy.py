"""The last linear layer and its cross entropy, chunk by chunk, and all at once."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.core.work import Number
from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.operators import Operator
from perfmodel.operators.cross_entropy import CrossEntropy
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.linear_cross_entropy import LinearCrossEntropy
from perfmodel.operators.softmax import Softmax


def _chunked(op: LinearCrossEntropy, inputs: Mapping[str, torch.Tensor]) -> Call:
    """Logits, loss, gradient of the logits in place, and both products with it, for each chunk of rows."""
    x, weight, target, rows = inputs["x"], inputs["weight"], inputs["target"], int(op.chunk)

    def run() -> torch.Tensor:
        dx = torch.empty_like(x) if op.gradients else None
        dweight = torch.zeros_like(weight) if op.gradients else None
        losses = []
        for start in range(0, x.shape[0], rows):
            part, right = x[start : start + rows], target[start : start + rows]
            logits = part @ weight.mT
            losses.append(F.cross_entropy(logits.float(), right, reduction="none"))
            if dx is not None and dweight is not None:
                gradient = torch.softmax(logits, -1)
                gradient.scatter_add_(-1, right[:, None], torch.full_like(gradient[:, :1], -1.0))
                dx[start : start + rows] = gradient @ weight
                dweight.addmm_(gradient.mT, part)
        return torch.cat(losses).to(torch.float32)

    return run


def _at_once(op: LinearCrossEntropy, inputs: Mapping[str, torch.Tensor]) -> Call:
    """The logits of all rows and their loss: what the chunks save is this memory."""
    x, weight, target = inputs["x"], inputs["weight"], inputs["target"]
    return lambda: F.cross_entropy((x @ weight.mT).float(), target, reduction="none").to(torch.float32)


def _loss_only(op: LinearCrossEntropy) -> bool:
    return not op.gradients


def _of_chunk(op: LinearCrossEntropy, rows: Number) -> tuple[Operator, ...]:
    """The kernels of a chunk. The loss is that of logits in float32; the gradient of W is read and added to."""
    logits, *products = (part for part in op.of_chunk(rows) if part.op != "cross_entropy")
    loss = CrossEntropy(rows=rows, vocab=op.vocab, dtype="fp32")
    passes: tuple[Operator, ...] = (
        Elementwise(numel=rows * op.vocab, kind="cast", dtype=op.dtype, out_dtype="fp32"),
        *loss.composition(),
    )
    if op.gradients:
        passes = (*passes, Softmax(rows=rows, cols=op.vocab, dtype=op.dtype))
    return (logits, *passes, *products)


def _composition(op: LinearCrossEntropy) -> tuple[Operator, ...]:
    """The kernels of all chunks."""
    return tuple(kernel.repeated(count) for rows, count in op.chunk_rows() for kernel in _of_chunk(op, rows))


def _workspace_bytes(op: LinearCrossEntropy) -> float:
    return 8.0 * float(op.rows * op.vocab)


KERNELS = (
    Kernel("chunked", "linear_cross_entropy", "torch", _chunked, supports_dtype, composition=_composition),
    Kernel(
        "at_once",
        "linear_cross_entropy",
        "torch",
        _at_once,
        supports_dtype,
        _loss_only,
        workspace_bytes=_workspace_bytes,
        composition=_composition,
    ),
)

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_full="""
        rows=512 hidden=256 vocab=32000
        rows=512 hidden=256 vocab=32000 gradients=false
    """,
    cuda_more="""
        rows=16384 hidden=4096 vocab=128256 dtype=bf16
    """,
)

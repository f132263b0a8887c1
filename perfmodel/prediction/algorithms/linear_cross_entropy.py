"""The last linear layer with its loss and gradients: all logits at once, their gradient in place, or in chunks."""

from __future__ import annotations

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware
from perfmodel.operators.cross_entropy import CrossEntropy
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.linear_cross_entropy import LinearCrossEntropy
from perfmodel.prediction.algorithms.base import Cost, Problem, in_sequence, predicted


def costs(op: LinearCrossEntropy, hardware: Hardware) -> list[Cost]:
    """Return what each way takes to form loss and gradients, or the loss alone."""
    sizes = [(op.rows, op.vocab, op.hidden)]
    if op.gradients:
        sizes += [(op.rows, op.hidden, op.vocab), (op.vocab, op.hidden, op.rows)]
    products = [(1.0, predicted("product", Gemm(m=m, n=n, k=k, dtype=op.dtype), hardware)) for m, n, k in sizes]
    plain = [(1.0, _loss(op, hardware, "plain", backward=False))]
    if op.gradients:
        plain.append((1.0, _loss(op, hardware, "plain", backward=True)))
    in_place = _loss(op, hardware, "fused" if op.gradients else "loss", backward=False)
    held = float(op.rows * op.vocab) * dtype_bytes(op.dtype)
    kernels = (4.0 if op.gradients else 2.0) * float(op.chunks)
    return [
        # logits, their log-softmax, and its gradient, which takes the place of none of them
        in_sequence("plain", [*products, *plain], workspace_bytes=(3.0 if op.gradients else 2.0) * held),
        in_sequence("in_place", [*products, (1.0, in_place)], workspace_bytes=held),
        predicted("chunked", op, hardware, kernels=kernels, workspace_bytes=float(op.peak_bytes)),
    ]


def _loss(op: LinearCrossEntropy, hardware: Hardware, algorithm: str, *, backward: bool) -> Cost:
    loss = CrossEntropy(rows=op.rows, vocab=op.vocab, dtype=op.dtype, algorithm=algorithm, backward=backward)
    return predicted("loss", loss, hardware, kernels=2.0 if algorithm == "plain" else 1.0)


def _resized(op: LinearCrossEntropy, size: float) -> LinearCrossEntropy:
    """Return the loss of another number of rows, with the chunks that belong to it."""
    return op.changed(rows=size, chunk=None)


PROBLEM = Problem(
    "linear_cross_entropy",
    op="linear_cross_entropy",
    size="rows",
    sizes=(256.0, 65536.0),
    costs=costs,
    resized=_resized,
    defaults={"rows": 16384, "hidden": 4096, "vocab": 128256, "dtype": "fp16"},
)

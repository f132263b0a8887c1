"""C[b, m, n] = activation(A B + bias) in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.kernels.reference.elementwise import FUNCTIONS
from perfmodel.kernels.scaled import widened
from perfmodel.operators.elementwise import ACTIVATIONS as KINDS_TO_FUSE
from perfmodel.operators.gemm import Gemm

ACTIVATIONS: Mapping[str, Callable[..., torch.Tensor]] = MappingProxyType(
    {"none": FUNCTIONS["copy"], **{name: FUNCTIONS[name] for name in KINDS_TO_FUSE}}
)


def reference(op: Gemm, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return the product for some batches, rows and columns.

    The partial sums that a kernel may round have the size sqrt(sum a^2 b^2) of independent terms.
    """
    batches, rows, columns = selection
    chosen = {name: tensor if name == "bias" else tensor[batches] for name, tensor in inputs.items()}
    a, b = widened(op, chosen, torch.float64, rows, columns)
    product = a @ b
    partial = torch.sqrt(a.square() @ b.square())
    summed = a.abs() @ b.abs()
    bias = exact(inputs["bias"][columns]) if op.bias else torch.zeros((), dtype=torch.float64, device=a.device)
    total = product + bias
    # The slopes of these activations are at most 1.13 (gelu), so they leave errors unchanged.
    value = ACTIVATIONS[op.activation](total)
    return Reference(value, partial + product.abs() + bias.abs(), summed + bias.abs(), int(op.k))

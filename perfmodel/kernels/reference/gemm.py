"""C[b, m, n] = activation(A B + bias) in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.reference._base import Reference, Selection, exact
from perfmodel.operators.gemm import Gemm

ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = MappingProxyType(
    {
        "none": lambda x: x,
        "relu": F.relu,
        "gelu": F.gelu,
        "silu": F.silu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
    }
)


def reference(op: Gemm, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return the product for some batches, rows and columns.

    The partial sums that a kernel may round are of the size sqrt(sum a^2 b^2), those of independent terms.
    """
    batches, rows, columns = selection
    a = exact(inputs["a"][batches][:, rows])
    b = exact(inputs["b"][batches][:, :, columns])
    product = a @ b
    partial = torch.sqrt(a.square() @ b.square())
    summed = a.abs() @ b.abs()
    bias = exact(inputs["bias"][columns]) if op.bias else torch.zeros((), dtype=torch.float64, device=a.device)
    total = product + bias
    # The slopes of these activations are at most 1.13 (gelu), so errors pass through as they are.
    value = ACTIVATIONS[op.activation](total)
    return Reference(value, partial + product.abs() + bias.abs(), summed + bias.abs(), int(op.k))

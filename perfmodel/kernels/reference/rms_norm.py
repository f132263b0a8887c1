"""y = x / sqrt(mean(x^2) + eps) * gamma in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.rms_norm import RmsNorm

#: as Llama and most models after it have it; torch's default is the epsilon of the dtype
EPS = 1e-5


def reference(op: RmsNorm, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return the normalisation of some rows, some columns of them; the mean square takes whole rows."""
    rows, columns = selection
    x, gamma = exact(inputs["x"][rows]), exact(inputs["gamma"][columns])
    root = torch.sqrt(x.square().mean(-1, keepdim=True) + EPS)
    value = x[:, columns] / root * gamma
    # A rounded root and a rounded quotient shift an element by its own rounding each.
    rounded = 2 * value.abs()
    return Reference(value, rounded, rounded, int(op.cols))

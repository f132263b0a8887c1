"""y = x / sqrt(mean(x^2) + eps) * gamma in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.rms_norm import RmsNorm

#: as in Llama and most later models; torch's default is the epsilon of the dtype
EPS = 1e-5


def reference(op: RmsNorm, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return the normalised values in some rows and columns; the mean square is that of whole rows."""
    rows, columns = selection
    x, gamma = exact(inputs["x"][rows]), exact(inputs["gamma"][columns])
    root = torch.sqrt(x.square().mean(-1, keepdim=True) + EPS)
    value = x[:, columns] / root * gamma
    # Rounding the root and rounding the quotient each change an element by one rounding.
    rounded = 2 * value.abs()
    return Reference(value, rounded, rounded, int(op.cols))

"""The weights after one step of Muon in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.muon import STEPS, Muon

LR, MOMENTUM = 2e-2, 0.95
#: of the polynomial a X + b A X + c A^2 X with A = X X^T (Jordan et al. 2024)
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Return the matrix with its singular values drawn towards 1, by Newton and Schulz's iteration."""
    a, b, c = COEFFICIENTS
    x: torch.Tensor = matrix / matrix.norm(dim=(-2, -1), keepdim=True)
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else x.mT
    for _ in range(STEPS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x if wide else x.mT


def reference(op: Muon, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some updated weights; each iteration multiplies a rounding by up to 3.4, five of them by 480."""
    matrices, rows, columns = selection
    part = {name: exact(inputs[name][matrices]) for name in ("weights", "gradient", "momentum")}
    step = LR * orthogonal(MOMENTUM * part["momentum"] + part["gradient"])
    value = (part["weights"] - step)[:, rows][..., columns]
    size = step.norm(dim=(-2, -1), keepdim=True)
    rounded = value.abs() + part["weights"][:, rows][..., columns].abs() + 480 * size
    return Reference(value, rounded, rounded, 1)

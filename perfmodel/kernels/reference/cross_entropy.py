"""loss[r] = log sum exp x[r, :] - x[r, target[r]] in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.cross_entropy import CrossEntropy


def reference(op: CrossEntropy, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return the losses of some rows; kernels round logits relative to the largest of the row."""
    (rows,) = selection
    logits, target = exact(inputs["logits"][rows]), inputs["target"][rows]
    total = torch.logsumexp(logits, -1)
    value = total - logits.gather(-1, target[:, None])[:, 0]
    rounded = value.abs() + total.abs() + logits.abs().amax(-1) + 1
    return Reference(value, rounded, rounded, int(op.vocab))

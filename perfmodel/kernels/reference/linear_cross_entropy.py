"""loss[r] of the logits x W^T in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.linear_cross_entropy import LinearCrossEntropy


def reference(op: LinearCrossEntropy, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return the losses of some rows; kernels round each logit as a product of ``hidden`` terms."""
    (rows,) = selection
    x, weight, target = exact(inputs["x"][rows]), exact(inputs["weight"]), inputs["target"][rows]
    logits = x @ weight.mT
    total = torch.logsumexp(logits, -1)
    value = total - logits.gather(-1, target[:, None])[:, 0]
    partial = torch.sqrt(x.square() @ weight.square().mT).amax(-1)
    rounded = value.abs() + total.abs() + logits.abs().amax(-1) + 2 * partial
    summed = (x.abs() @ weight.abs().mT).amax(-1)
    return Reference(value, rounded, 2 * summed, int(op.hidden))

"""The weights after the first step of AdamW or SGD from given moments, in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.optimizer import Optimizer

#: torch's defaults, and a momentum
LR, BETAS, EPS, DECAY, MOMENTUM = 1e-3, (0.9, 0.999), 1e-8, 1e-2, 0.9


def reference(op: Optimizer, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some updated weights; the step counts as the first, so that corrections divide by 1 - beta.

    A kernel may round the betas to float32 before it takes them from 1. That changes 1 - beta by beta / (1 - beta)
    relative roundings: 9 for the first moment, and 999 for the second, of which the step has the root.
    """
    (elements,) = selection
    weights, gradient = exact(inputs["weights"][elements]), exact(inputs["gradient"][elements])
    if op.kind == "adamw":
        first, second = exact(inputs["exp_avg"][elements]), exact(inputs["exp_avg_sq"][elements])
        first = BETAS[0] * first + (1 - BETAS[0]) * gradient
        second = BETAS[1] * second + (1 - BETAS[1]) * gradient.square()
        kept = weights * (1 - LR * DECAY)
        step = LR * (first / (1 - BETAS[0])) / (torch.sqrt(second / (1 - BETAS[1])) + EPS)
        of_betas = step.abs() * (BETAS[0] / (1 - BETAS[0]) + BETAS[1] / (1 - BETAS[1]) / 2)
    else:
        kept, of_betas = weights, torch.zeros_like(weights)
        step = LR * (gradient + (MOMENTUM * exact(inputs["momentum"][elements]) if op.momentum else 0.0))
    value = kept - step
    # each of the passes of foreach rounds the step; near cancelling moments it is rounded as they are
    rounded = value.abs() + weights.abs() + 8 * step.abs() + 8 * LR
    return Reference(value, rounded, rounded + of_betas, 1)

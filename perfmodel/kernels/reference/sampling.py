"""The token that has nearly all of a row's probability, in float64.

The inputs of a check raise one logit of each row so far that any draw finds it: the same kernels, with a result that
can be checked. That the draws follow the distribution is checked by chi-square in ``bench --algorithms sampling``.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.sampling import Sampling

#: by how much the largest logit of a row is raised: e^-200 of the probability is left for the others
RAISED = 200.0


def raise_largest(logits: torch.Tensor) -> torch.Tensor:
    """Return rows of logits in which the largest is raised, so that every draw finds it."""
    return logits.scatter_add(-1, logits.argmax(-1, keepdim=True), torch.full_like(logits[..., :1], RAISED))


def reference(op: Sampling, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return the tokens of some rows; a whole number is not rounded, so that it has to be equal."""
    (rows,) = selection
    value = exact(inputs["logits"][rows]).argmax(-1).to(torch.float64)
    return Reference(value, torch.zeros_like(value), torch.zeros_like(value), 1)

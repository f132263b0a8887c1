"""The result of a reference: the exact value, and the size of the numbers that a kernel rounds."""

from __future__ import annotations

from dataclasses import dataclass

import torch

#: one index tensor for each axis of the output: the part that is checked
Selection = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Reference:
    """The float64 result for a selection of the output, and the scale of its rounding errors.

    Attributes
    ----------
    value : the result.
    rounded : root sum square of the intermediate results that a kernel may round to the operator's dtype.
    summed : sum of the magnitudes of the terms that are added.
    length : number of terms that are added.
    """

    value: torch.Tensor
    rounded: torch.Tensor
    summed: torch.Tensor
    length: int


def exact(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in float64."""
    return tensor.to(torch.float64)

"""y = silu(gate) up in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.swiglu import Swiglu


def reference(op: Swiglu, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some rows and columns; a rounding within silu changes it in proportion to the gate."""
    rows, columns = selection
    gate, up = (exact(inputs[name][rows][:, columns]) for name in ("gate", "up"))
    value = F.silu(gate) * up
    rounded = value.abs() * (2 + gate.abs())
    return Reference(value, rounded, rounded, 1)

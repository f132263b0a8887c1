"""y = gelu(gate) up in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.geglu import Geglu

#: form of gelu -> torch's name for it
FORMS = {"erf": "none", "tanh": "tanh"}


def reference(op: Geglu, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some rows and columns; near 0 the distribution function loses what it differs from 1 by."""
    rows, columns = selection
    gate, up = (exact(inputs[name][rows][:, columns]) for name in ("gate", "up"))
    value = F.gelu(gate, approximate=FORMS[op.gelu]) * up
    rounded = value.abs() + (gate * up).abs() * (1 + gate.abs())
    return Reference(value, rounded, rounded, 1)

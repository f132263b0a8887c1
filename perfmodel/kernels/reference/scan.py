"""y[r, i] = x[r, 0] + ... + x[r, i], in float64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.scan import Scan


def reference(op: Scan, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return the sums up to some places of some rows; each partial sum may be rounded."""
    rows, columns = selection
    x = exact(inputs["x"][rows])
    value = x.cumsum(-1)
    rounded = value.square().cumsum(-1).sqrt()
    return Reference(value[:, columns], rounded[:, columns], x.abs().cumsum(-1)[:, columns], int(op.cols))

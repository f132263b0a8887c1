"""cache[:, slot[t]] = k[t], v[t]."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.reference.base import Reference, Selection, exact
from perfmodel.operators.kv_write import KvWrite


def reference(op: KvWrite, inputs: Mapping[str, torch.Tensor], selection: Selection) -> Reference:
    """Return some entries of the cache; a narrower dtype rounds them once."""
    which, tokens, heads, columns = selection
    token_of = torch.argsort(inputs["slots"])[tokens]
    value = exact(inputs["kv"][which][:, token_of][:, :, heads][..., columns])
    rounded = torch.zeros_like(value) if op.cache_dtype == op.dtype else value.abs()
    return Reference(value, rounded, rounded, 1)

"""Results whose sizes follow from values, where an argument says what they are meant to be.

Nobody knows these values where inputs are shapes alone; the sizes below are those of a call as it is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

_ATEN = torch.ops.aten


def assumed(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return tensors of the size that a result is meant to have; None where nothing says it."""
    made = _MEANT.get(func.overloadpacket)
    if made is None:
        return None
    names = [argument.name for argument in func._schema.arguments]
    defaults = {argument.name: argument.default_value for argument in func._schema.arguments}
    return made({**defaults, **dict(zip(names, args, strict=False)), **kwargs})


def _bincount(given: Mapping[str, Any]) -> torch.Tensor | None:
    """Return a count of each number below ``minlength``, as of the neighbours of each node of a graph."""
    weights, length = given["weights"], int(given["minlength"])
    dtype = torch.int64 if weights is None else weights.dtype
    return given["self"].new_empty(length, dtype=dtype) if length else None


def _ctc_loss(given: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the losses [n], and the paths [n, steps, 2 labels + 1] of the longest row of labels that there is."""
    steps, samples = given["log_probs"].shape[:2]
    labels = given["targets"]
    longest = labels.shape[1] if labels.dim() > 1 else labels.numel() // max(samples, 1)
    new = given["log_probs"].new_empty
    return new(samples), new(samples, steps, 2 * longest + 1)


_MEANT: Mapping[Any, Callable[[Mapping[str, Any]], Any]] = MappingProxyType(
    {_ATEN.bincount: _bincount, _ATEN._ctc_loss: _ctc_loss}
)

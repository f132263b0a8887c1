"""A contest: kernels that solve one problem by different algorithms, on the same inputs, checked alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from perfmodel.operators.base import Operator

Inputs = Mapping[str, Any]
Call = Callable[[], Any]
#: (inputs, operator) -> the call that is timed; its own work is not timed
Prepare = Callable[[Inputs, Any], Call]


@dataclass(frozen=True)
class Contest:
    """Kernels for the algorithms of one problem.

    Attributes
    ----------
    problem : name of the problem, in `perfmodel.prediction.algorithms`.
    sizes : sizes of its dimension at which the kernels run on a CPU; a GPU has the larger ones too.
    operator : size -> the operator that states the problem.
    inputs : (operator, torch device, seed) -> the inputs of all kernels.
    kernels : algorithm -> what makes the call.
    check : (operator, inputs, output, algorithm) -> what is wrong with an output, or an empty string.
    cpu_only : algorithms that run on the host alone.
    more_sizes : larger sizes, which only a long run or a GPU has.
    """

    problem: str
    sizes: tuple[float, ...]
    operator: Callable[[float], Operator]
    inputs: Callable[[Any, str, int], Inputs]
    kernels: Mapping[str, Prepare]
    check: Callable[[Any, Inputs, Any, str], str]
    cpu_only: tuple[str, ...] = ()
    more_sizes: tuple[float, ...] = ()


def normal(shape: tuple[int, ...], device: str, seed: int) -> torch.Tensor:
    """Return standard normal numbers in fp32, the same for the same seed on the same kind of device."""
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randn(shape, generator=generator, device=device)


def beyond(output: torch.Tensor, expected: torch.Tensor, tolerance: float) -> str:
    """Return by how much an output misses a reference in float64, relative to its largest value; "" if within."""
    if tuple(output.shape) != tuple(expected.shape):
        return f"shape {tuple(output.shape)} instead of {tuple(expected.shape)}"
    error = float((output.double() - expected).abs().max() / expected.abs().max())
    return "" if error <= tolerance else f"largest error {error:.1e} of the largest value, above {tolerance:.0e}"

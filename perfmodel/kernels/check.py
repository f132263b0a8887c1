"""Is the output of a kernel right? A float64 reference, and a tolerance that follows from the rounding.

The tolerance of one output element is

    4 (u_dtype R + sqrt(L) u_acc S + eta)

with u the unit roundoff and eta half the smallest subnormal number, which gradual underflow may lose (Higham,
"Accuracy and Stability of Numerical Algorithms", 2nd ed. 2002, sections 2.1 and 2.2), R the
root sum square of the intermediate results that may be rounded to the operator's dtype, S the sum of the magnitudes of
the L terms that are added up, and u_acc the roundoff in which they are added: float32 for narrower dtypes. sqrt(L) in
place of L is the probabilistic growth of rounding errors (Higham and Mary, "A new approach to probabilistic rounding
error analysis", SIAM J. Sci. Comput. 41(5), 2019, doi:10.1137/18M1226312).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from perfmodel.kernels.reference._base import Reference, Selection
from perfmodel.operators import Operator

#: unit roundoff: half the distance from 1 to the next number; fp8 is e4m3
UNIT_ROUNDOFF = MappingProxyType(
    {"fp64": 2.0**-53, "fp32": 2.0**-24, "tf32": 2.0**-11, "bf16": 2.0**-8, "fp16": 2.0**-11, "fp8": 2.0**-4}
)
#: half the smallest subnormal number of the dtypes in which ordinary results come near it
_UNDERFLOW = MappingProxyType({"fp16": 2.0**-25, "fp8": 2.0**-10})
#: roundoff of the sums that Hopper's tensor cores keep of 8-bit products, once every `_FP8_STEP` products
#: (DeepSeek-V3 Technical Report, arXiv 2412.19437, section 3.3.2: about 14 bits)
_FP8_ADDING, _FP8_STEP = 2.0**-14, 32
_SAFETY = 4.0
#: FLOP that the reference of one check may cost: about 0.1 s of one CPU core in float64
_BUDGET_FLOP = 2e9
#: output elements that one check compares at most
_MOST_ELEMENTS = 2**22


@dataclass(frozen=True)
class Verdict:
    """The outcome of a check.

    Attributes
    ----------
    correct : every element that was looked at is within its tolerance.
    max_relative_error : largest error over the largest value of the reference.
    checked : how many elements of how many were looked at.
    message : what is wrong, or an empty string.
    """

    correct: bool
    max_relative_error: float
    checked: str
    message: str = ""


def check(op: Operator, inputs: Mapping[str, torch.Tensor], output: Any, seed: int = 0) -> Verdict:
    """Compare the output of a kernel with the float64 reference computed from the same inputs.

    Where all of it would cost too much, a random part of the output is compared, its corners always among it.
    """
    shape, dtype = declared_output(op)
    if not isinstance(output, torch.Tensor) or tuple(output.shape) != shape:
        found = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
        return Verdict(False, math.inf, "", f"the output is {found}, not of shape {shape}")
    device = output.device
    selection = select(shape, float(op.flop()), seed, device)
    module = importlib.import_module(f"perfmodel.kernels.reference.{op.op}")
    expected = module.reference(op, inputs, selection)
    got = output[torch.meshgrid(*selection, indexing="ij")].to(torch.float64)
    allowed = _allowed(op.dtype, dtype, expected)
    error = (got - expected.value).abs()
    # written so that a NaN fails
    bad = int((~(error <= allowed)).sum())
    largest = float(expected.value.abs().max())
    relative = float(error.max()) / largest if largest else float(error.max())
    total = math.prod(shape)
    checked = "all outputs" if got.numel() == total else f"{got.numel()} of {total} outputs"
    message = f"{bad} of {got.numel()} outputs are beyond the tolerance" if bad else ""
    return Verdict(not bad, relative, checked, message)


def _allowed(dtype: str, out_dtype: str, expected: Reference) -> torch.Tensor:
    """Return the tolerance of each element; 8-bit inputs are only read, nothing between is rounded to 8 bits."""
    if dtype == "fp8":
        roundoff, adding, length = UNIT_ROUNDOFF[out_dtype], _FP8_ADDING, expected.length / _FP8_STEP
    else:
        roundoff, length = max(UNIT_ROUNDOFF[dtype], UNIT_ROUNDOFF[out_dtype]), float(expected.length)
        adding = min(UNIT_ROUNDOFF[dtype], UNIT_ROUNDOFF["fp32"])
    lost = _UNDERFLOW.get(out_dtype, 0.0)
    return _SAFETY * (roundoff * expected.rounded + math.sqrt(length) * adding * expected.summed + lost)


def declared_output(op: Operator) -> tuple[tuple[int, ...], str]:
    """Return shape and dtype of the first tensor that the operator writes and does not read."""
    tensor = next(t for t in op.tensors() if t.writes and not t.reads)
    return tuple(int(size) for size in tensor.shape), tensor.dtype


def select(shape: tuple[int, ...], flop: float, seed: int, device: torch.device) -> Selection:
    """Return which part of an output to look at: indices for each axis, the first and the last among them.

    The longest axis is halved until what remains costs no more than the budget, the cost of an element being
    the operator's FLOP over its outputs.
    """
    total = math.prod(shape)
    most = min(_MOST_ELEMENTS, _BUDGET_FLOP / max(flop / total, 1.0))
    counts = list(shape)
    while math.prod(counts) > max(most, 1) and max(counts) > 2:
        longest = counts.index(max(counts))
        counts[longest] = max(2, counts[longest] // 2)
    generator = torch.Generator(device="cpu").manual_seed(seed)
    chosen = []
    for size, count in zip(shape, counts, strict=True):
        if count == size:
            chosen.append(torch.arange(size, device=device))
        else:
            drawn = torch.randint(size, (count - 2,), generator=generator)
            both_ends = torch.tensor([0, size - 1])
            chosen.append(torch.unique(torch.cat([drawn, both_ends])).to(device))
    return tuple(chosen)

"""Checks the output of a kernel against a float64 reference, with a tolerance that follows from the rounding.

The tolerance of one output element is

    4 (u_dtype R + sqrt(L) u_acc S + eta)

where u is the unit roundoff and eta half the smallest subnormal number, which gradual underflow may lose (Higham,
"Accuracy and Stability of Numerical Algorithms", 2nd ed. 2002, sections 2.1 and 2.2). R is the root sum square of the
intermediate results that may be rounded to the operator's dtype, S the sum of the magnitudes of the L terms that are
added, and u_acc the roundoff of that addition: float32 for narrower dtypes. sqrt(L) instead of L is the probabilistic
growth of rounding errors (Higham and Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci.
Comput. 41(5), 2019, doi:10.1137/18M1226312).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from perfmodel.kernels.reference import Reference, Selection, find_reference
from perfmodel.operators import Operator

#: unit roundoff: half the distance between 1 and the next number; fp8 is e4m3, and whole numbers are not rounded
UNIT_ROUNDOFF = MappingProxyType(
    {
        "fp64": 2.0**-53,
        "fp32": 2.0**-24,
        "tf32": 2.0**-11,
        "bf16": 2.0**-8,
        "fp16": 2.0**-11,
        "fp8": 2.0**-4,
        "int64": 0,
    }
)
#: half the smallest subnormal number, for the dtypes in which ordinary results come near it
UNDERFLOW = MappingProxyType({"fp16": 2.0**-25, "fp8": 2.0**-10})
#: Hopper's tensor cores round their sums of 8-bit products to about 14 bits, once every 32 products
#: (DeepSeek-V3 Technical Report, arXiv 2412.19437, section 3.3.2)
_FP8_SUM_ROUNDOFF, _FP8_STEP = 2.0**-14, 32
SAFETY = 4.0
#: operator -> share of its outputs that may be zero by chance. Dropout keeps an element where a uniform number is below
#: the probability of keeping it, which is 1 when that is rounded to float32; cuRAND's numbers reach 1, where they round
#: to it, with a probability of 2^-25 (cuRAND documentation, curand_uniform: "excluding 0.0 and including 1.0"). Twice
#: that, for generators with numbers of 24 bits.
RARELY_ZERO = MappingProxyType({"dropout": 2.0**-24})
_UNLIKELY = 1e-4
#: FLOP that the reference may cost in one check: about 0.1 s of one CPU core in float64
_BUDGET_FLOP = 2e9
#: most output elements that one check compares
_MOST_ELEMENTS = 2**22


@dataclass(frozen=True)
class Verdict:
    """The outcome of a check.

    Attributes
    ----------
    correct : every checked element is within its tolerance.
    max_relative_error : largest error, divided by the largest value of the reference.
    checked : number of checked elements and of all elements, in words.
    message : what is wrong, or an empty string.
    """

    correct: bool
    max_relative_error: float
    checked: str
    message: str = ""


def check(
    op: Operator, inputs: Mapping[str, torch.Tensor], output: Any, seed: int = 0, rounded_sums: int = 1
) -> Verdict:
    """Compare the output of a kernel with the float64 reference of the same inputs.

    When comparing all of the output would cost too much, a random part is compared that contains the corners.

    Parameters
    ----------
    op, inputs, output : the operator, and what the kernel read and returned.
    seed : chooses the part that is compared.
    rounded_sums : how many partial sums the kernel rounds to the operator's dtype; see `growth`.
    """
    shape, dtype = declared_output(op)
    if not isinstance(output, torch.Tensor) or tuple(output.shape) != shape:
        actual = f"shape {tuple(output.shape)}" if isinstance(output, torch.Tensor) else f"type {type(output).__name__}"
        return Verdict(False, math.inf, "", f"the output has {actual} instead of shape {shape}")
    device = output.device
    selection = select(shape, float(op.flop()), seed, device)
    expected = find_reference(op.op)(op, inputs, selection)
    values = output[torch.meshgrid(*selection, indexing="ij")].to(torch.float64)
    error = (values - expected.value).abs()
    # A comparison with NaN is false, so that a NaN counts as wrong.
    off = ~(error <= _tolerance(op.dtype, dtype, expected, growth(rounded_sums)))
    wrong = count_wrong(op.op, off, values)
    largest = float(expected.value.abs().max())
    relative = float(error.max()) / largest if largest else float(error.max())
    total = math.prod(shape)
    checked = "all outputs" if values.numel() == total else f"{values.numel()} of {total} outputs"
    message = f"{wrong} of {values.numel()} outputs are beyond the tolerance" if wrong else ""
    return Verdict(not wrong, relative, checked, message)


def growth(rounded_sums: int) -> float:
    """Return how many times larger R is when n partial sums are rounded in place of the last one.

    With terms of equal size s, independent of each other, the j-th partial sum has the size s sqrt(j), and the n terms
    are rounded too: the root sum square of all that is rounded is s sqrt(n (n + 1) / 2 + n), where R is s sqrt(n).

    >>> growth(1), growth(32)  # once is what R counts; sqrt(33 / 2 + 1)
    (1.0, 4.183300132670378)
    """
    return 1.0 if rounded_sums <= 1 else math.sqrt((rounded_sums + 1) / 2 + 1)


def count_wrong(operator: str, off: torch.Tensor, values: torch.Tensor) -> int:
    """Return how many elements are wrong, of those that are beyond the tolerance.

    Elements that an operator may set to zero by chance are not, as long as they are few enough: with mean m, a Poisson
    distribution has more than these with a probability below 1e-4.
    """
    wrong = int(off.sum())
    mean = values.numel() * RARELY_ZERO.get(operator, 0.0)
    if not wrong or not mean:
        return wrong
    zeros = int((off & (values == 0)).sum())
    return wrong - zeros if zeros <= _most_of_poisson(mean) else wrong


def _most_of_poisson(mean: float) -> int:
    """Return the smallest count that a Poisson distribution exceeds with a probability below 1e-4.

    >>> [_most_of_poisson(mean) for mean in (1e-5, 1e-2, 4.0)]
    [0, 1, 13]
    """
    count, term = 0, math.exp(-mean)
    beyond = 1.0 - term
    while beyond >= _UNLIKELY:
        count += 1
        term *= mean / count
        beyond -= term
    return count


def _tolerance(dtype: str, out_dtype: str, expected: Reference, grown: float = 1.0) -> torch.Tensor:
    """Return the tolerance of each element. 8-bit inputs are only read: no intermediate is rounded to 8 bits."""
    if dtype in ("int8", "int4"):
        # integers are added exactly; their sums are rounded when they are scaled
        roundoff, sum_roundoff, length = UNIT_ROUNDOFF[out_dtype], UNIT_ROUNDOFF["fp32"], 1.0
    elif dtype == "fp4":
        roundoff, sum_roundoff, length = UNIT_ROUNDOFF[out_dtype], UNIT_ROUNDOFF["fp32"], float(expected.length)
    elif dtype == "fp8":
        roundoff, sum_roundoff, length = UNIT_ROUNDOFF[out_dtype], _FP8_SUM_ROUNDOFF, expected.length / _FP8_STEP
    else:
        roundoff, length = max(UNIT_ROUNDOFF[dtype], UNIT_ROUNDOFF[out_dtype]), float(expected.length)
        sum_roundoff = min(UNIT_ROUNDOFF[dtype], UNIT_ROUNDOFF["fp32"])
    underflow = UNDERFLOW.get(out_dtype, 0.0)
    of_sums = math.sqrt(length) * sum_roundoff * expected.summed
    return SAFETY * (grown * roundoff * expected.rounded + of_sums + underflow)


def declared_output(op: Operator) -> tuple[tuple[int, ...], str]:
    """Return shape and dtype of the first tensor that the operator writes and does not read."""
    tensor = next(t for t in op.buffers() if t.writes and not t.reads)
    return tuple(int(size) for size in tensor.shape), tensor.dtype


def select(shape: tuple[int, ...], flop: float, seed: int, device: torch.device) -> Selection:
    """Return the part of an output to check: indices for each axis, always with the first and the last.

    The longest axis is halved until the rest costs no more than the budget, where an element costs the operator's
    FLOP divided by its outputs.
    """
    total = math.prod(shape)
    most = min(_MOST_ELEMENTS, _BUDGET_FLOP / max(flop / total, 1.0))
    counts = list(shape)
    while math.prod(counts) > max(most, 1) and max(counts) > 2:
        longest = counts.index(max(counts))
        counts[longest] = max(2, counts[longest] // 2)
    generator = torch.Generator(device="cpu").manual_seed(seed)
    axes = []
    for size, count in zip(shape, counts, strict=True):
        if count == size:
            axes.append(torch.arange(size, device=device))
        else:
            random = torch.randint(size, (count - 2,), generator=generator)
            both_ends = torch.tensor([0, size - 1])
            # sorted on the device: a GPU sorts millions in a millisecond
            axes.append(torch.unique(torch.cat([random, both_ends]).to(device)))
    return tuple(axes)

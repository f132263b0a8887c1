"""GPUs of several kinds in one data parallel run: who gets how much, and what the slowest costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.core.report import Reportable
from perfmodel.errors import UsageError


@dataclass(frozen=True)
class MixedStep(Reportable):
    """A step of unequal GPUs.

    Attributes
    ----------
    samples : samples of each GPU, in proportion to its rate as far as whole numbers allow.
    time_s : of the step: the GPU that ends last [s].
    equal_s : the same with equal shares: the slowest GPU sets the step [s].
    bound_s : with shares that need not be whole: all samples over all rates [s].
    """

    samples: tuple[int, ...]
    time_s: float
    equal_s: float
    bound_s: float

    @property
    def speedup(self) -> float:
        """Of shares in proportion over equal ones."""
        return self.equal_s / self.time_s


def mixed_step(samples: int, rates_per_s: Sequence[float]) -> MixedStep:
    """Return the step of GPUs that each have a rate.

    Samples go one by one to the GPU that would end first with one more, which makes the longest time the smallest
    possible for whole samples.

    Parameters
    ----------
    samples : of the step, over all GPUs.
    rates_per_s : samples that each GPU trains in a second.

    Raises
    ------
    UsageError
        For no GPU, a rate that is not above 0, or no sample.

    >>> mixed_step(8, [1.0, 3.0]).samples
    (2, 6)
    """
    rates = [float(rate) for rate in rates_per_s]
    if not rates or any(not 0 < rate < math.inf for rate in rates):
        raise UsageError("every GPU needs a rate above 0.", place="mixed GPUs")
    if samples < 1:
        raise UsageError(f"{samples} samples are no step.", place="mixed GPUs")
    total = sum(rates)
    shares = [math.floor(samples * rate / total) for rate in rates]
    for _ in range(samples - sum(shares)):
        first = min(range(len(rates)), key=lambda i: (shares[i] + 1) / rates[i])
        shares[first] += 1
    return MixedStep(
        samples=tuple(shares),
        time_s=max(share / rate for share, rate in zip(shares, rates, strict=True)),
        equal_s=math.ceil(samples / len(rates)) / min(rates),
        bound_s=samples / total,
    )

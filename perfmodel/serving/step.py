"""The time of one step of an engine, by the parts that add up to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perfmodel.core.report import Reportable
from perfmodel.core.units import format_si
from perfmodel.core.work import Number, same


@dataclass(frozen=True, eq=False)
class Step(Reportable):
    """The time of a step of an engine; numbers are floats, or arrays for arrays of steps.

    Attributes
    ----------
    time_s, low_s, high_s : expected time and its 80 % interval [s].
    terms_s : the parts that add up to it [s]: weights (matrix products), experts, kv (attention of decoding
        sequences), prefill (attention of prompts), encoder (of the sound of prompts, all of it), exchange (between
        GPUs), sends (between stages), kernels (norms, rotation, activation), head (logits and sampling), gaps (between
        kernels), host.
    """

    time_s: Number
    low_s: Number
    high_s: Number
    terms_s: Mapping[str, Number]

    def __eq__(self, other: object) -> bool:
        """Return whether another one has the same numbers, at all points where they are arrays."""
        return same(vars(self), vars(other)) if isinstance(other, Step) else NotImplemented

    def __repr__(self) -> str:
        """Return the time, or the number of steps, and the largest term."""
        several = np.size(self.time_s) > 1
        time = f"{np.size(self.time_s)} steps" if several else format_si(float(np.max(self.time_s)), "s")
        return f"<Step: {time}, mostly {self.limiter}>"

    @property
    def limiter(self) -> str:
        """The largest term in the sum over all steps."""
        return max(self.terms_s, key=lambda term: float(np.sum(self.terms_s[term])))

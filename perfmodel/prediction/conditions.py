"""The conditions that a predicted or measured time holds for: the interval timed, the caches, the library, the load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from perfmodel.core.vocabulary import CacheState, Load, Timing


@dataclass(frozen=True)
class Conditions:
    """What a time means.

    Attributes
    ----------
    timing : which interval the time is: on the device, or between events around a framework's call.
    cache : what the caches hold when the operator starts.
    library : whose kernels run ("torch", "sglang", "trtllm", "nccl"), as measurement tables name them; "" for any.
        For attention also the kernel, "fa2" or "torch/fa2".
    load : for how long the device has been at work.
    """

    timing: Timing = Timing.KERNEL
    cache: CacheState = CacheState.COLD
    library: str = ""
    load: Load = Load.BURST

    @classmethod
    def parse(
        cls, timing: str = Timing.KERNEL, cache: str = CacheState.COLD, library: str = "", load: str = Load.BURST
    ) -> Self:
        """Return the conditions that these words name.

        Raises
        ------
        UsageError
            When a word is unknown; the message lists the allowed ones and the nearest.
        """
        return cls(Timing.parse(timing), CacheState.parse(cache), library, Load.parse(load))

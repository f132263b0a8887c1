"""The conditions that a predicted or measured time holds for: the interval timed, the caches, the library, the load."""

from __future__ import annotations

import functools
from dataclasses import dataclass

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
    ) -> Conditions:
        """Return the conditions that these words name.

        Raises
        ------
        UsageError
            When a word is unknown; the message lists the allowed ones and the nearest.
        """
        try:
            return _parsed(timing, cache, library, load)
        except TypeError:  # what cannot be looked up is no word: it gets its message
            return _parsed.__wrapped__(timing, cache, library, load)


@functools.lru_cache(maxsize=64)
def _parsed(timing: str, cache: str, library: str, load: str) -> Conditions:
    return Conditions(Timing.parse(timing), CacheState.parse(cache), library, Load.parse(load))

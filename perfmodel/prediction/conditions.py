"""The conditions that a predicted or measured time holds for: the interval timed, the caches, the library, the load."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from perfmodel.core.vocabulary import CacheState, Load, Timing
from perfmodel.errors import expect
from perfmodel.prediction.implementations import asked_for


@dataclass(frozen=True)
class Conditions:
    """What a time means.

    Attributes
    ----------
    timing : which interval the time is: on the device, or between events around a call.
    cache : what the caches hold when the operator starts.
    library : whose kernels run ("torch", "sglang", "trtllm", "nccl"), as measurement tables name them; "" for any.
        For attention also the kernel, "fa2" or "torch/fa2".
    load : for how long the device has been at work.
    version : of the library, "2.1"; "" for one of today. Kernels that a release replaced differ by it.
    """

    timing: Timing = Timing.KERNEL
    cache: CacheState = CacheState.COLD
    library: str = ""
    load: Load = Load.BURST
    version: str = ""

    def __hash__(self) -> int:
        """Return the hash of what tells most conditions apart: members of enumerations take longer to hash than all."""
        return hash((self.library, self.version))

    @functools.cached_property
    def release(self) -> tuple[int, ...]:
        """The numbers of the version, the first three: (0, 5, 6) of "0.5.6.post2"; () without one."""
        return tuple(int(number) for number in re.findall(r"\d+", self.version)[:3])

    @functools.cached_property
    def caller(self) -> str:
        """Whose call it is: "vllm" of "vllm_triton", "torch" of "torch/fa2"."""
        return self.library.partition("/")[0].partition("_")[0]

    def is_before(self, *release: int) -> bool:
        """Whether the library is older than a release; one without a version is not.

        >>> Conditions(version="2.1").is_before(2, 7), Conditions(version="2.11.0").is_before(2, 7)
        (True, False)
        """
        return bool(self.release) and self.release[: len(release)] < release

    @classmethod
    def parse(
        cls, timing: str = Timing.KERNEL, cache: str = CacheState.COLD, library: str = "", load: str = Load.BURST
    ) -> Conditions:
        """Return the conditions that these words name; a library may be any implementation that a table names.

        Raises
        ------
        UsageError
            When a word is unknown; the message lists the allowed ones and the nearest. When a library is no text.
        """
        try:
            return _parsed(timing, cache, library, load)
        except TypeError:  # what cannot be looked up is no word: it gets its message
            return _parsed.__wrapped__(timing, cache, library, load)


@functools.lru_cache(maxsize=64)
def _parsed(timing: str, cache: str, library: str, load: str) -> Conditions:
    expect(library, str, "name of a library", place="library", remedy='Write library="vllm", or "" for any.')
    name, version = asked_for(library)
    return Conditions(Timing.parse(timing), CacheState.parse(cache), name, Load.parse(load), version)

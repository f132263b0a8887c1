"""The presets of `perfmodel bench`: which cases of every operator with kernels run, and how long."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfmodel.errors import unknown_name
from perfmodel.kernels.registry import benchmark_cases, operators_with_kernels
from perfmodel.measure.benchmark.jobs import points
from perfmodel.measure.memory_limit import QUICK_BYTES, MemoryLimit
from perfmodel.operators import Operator


@dataclass(frozen=True)
class Part:
    """Cases that are measured alike.

    Attributes
    ----------
    cases : the attribute of `perfmodel.kernels.cases.BenchmarkCases` that has them.
    library_only : whether only the first kernel that can run is timed at each point, which is the library's call: many
        sizes for `calibrate --from`, and no kernel that is tuned for each of them.
    """

    cases: str
    library_only: bool = False


@dataclass(frozen=True)
class Preset:
    """A named set of cases.

    Attributes
    ----------
    parts : what is measured, the most important first, since a run may be cut short.
    time_limit_s : time limit of one kernel [s].
    min_time_s : shortest time of one kernel's samples [s].
    beyond_caches : an fp32 addition of ``{beyond}`` elements moves at least this many times the last-level cache.
    most_memory_bytes : most memory in use [B]; a quarter of the free memory is the limit in any case.
    """

    parts: tuple[Part, ...]
    time_limit_s: float
    min_time_s: float
    beyond_caches: float
    most_memory_bytes: float = math.inf

    def tokens(self, cache_bytes: float) -> list[str]:
        """Return the words of the command line, for a device with a last-level cache of some size [B]."""
        return [word for part in self.parts for word in self.words(part, cache_bytes)]

    def words(self, part: Part, cache_bytes: float) -> list[str]:
        """Return the words of one part: operators with their dimensions."""
        beyond = elements_beyond(cache_bytes, self.beyond_caches)
        return [word for case in _cases(part) for word in case.format(beyond=beyond).split()]


def _cases(part: Part) -> Iterator[str]:
    """Yield the cases of one part, each with its operator in front."""
    for operator in operators_with_kernels():
        for cases in benchmark_cases(operator):
            for line in getattr(cases, part.cases).splitlines():
                if line.strip():
                    yield f"{operator} {line}"


#: name -> kind of device -> preset
PRESETS = {
    "quick": {
        "cpu": Preset((Part("cpu_quick"),), 0.5, 0.02, 4, QUICK_BYTES),
        "cuda": Preset((Part("cuda_quick"),), 0.5, 0.02, 64),
    },
    "full": {
        "cpu": Preset((Part("cpu_full"),), 5.0, 0.1, 4),
        "cuda": Preset((Part("cuda_targets"), Part("cuda_sweep", library_only=True), Part("cuda_more")), 0.3, 0.02, 64),
    },
}


def preset(name: str, device_kind: str) -> Preset:
    """Return a preset for a kind of device.

    Raises
    ------
    UsageError
        When there is no such preset.
    """
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS, place="--preset")
    return PRESETS[name][device_kind]


def within_memory(operators: Sequence[Operator], limit: MemoryLimit) -> tuple[list[Operator], int]:
    """Return the points of operators, reduced in size where they exceed a memory limit, and how many were reduced."""
    wanted = [point for op in operators for point in points(op)]
    kept = [limit.reduced(point) for point in wanted]
    return kept, sum(before is not after for before, after in zip(wanted, kept, strict=True))


def elements_beyond(cache_bytes: float, times: float) -> int:
    """Return the smallest power of two of elements whose fp32 addition moves at least ``times`` the cache.

    An addition moves 12 B per element: two inputs and one output.

    >>> elements_beyond(36 * 2**20, 4)
    16777216
    """
    return int(2 ** math.ceil(math.log2(max(times * cache_bytes / 12, 1.0))))

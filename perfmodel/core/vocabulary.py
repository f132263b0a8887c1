"""One word for one thing: the vocabularies that code, JSON and printed text share.

Every member is a string, so that it compares equal to what users write and is written to JSON as it is.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Self

from perfmodel.errors import unknown_name


def spelt(text: str, words: Iterable[str]) -> str | None:
    """Return the one of some words that a text spells, hyphens and underscores being alike; None where it is none.

    >>> spelt("adam_8bit", ("adam", "adam-8bit"))
    'adam-8bit'
    """
    key = _key(text)
    return next((word for word in words if _key(word) == key), None)


def _key(text: str) -> str:
    return text.replace("_", "-")


class Vocabulary(enum.StrEnum):
    """A closed set of words."""

    def __repr__(self) -> str:
        """Return the word in quotes, as for any string."""
        return repr(self.value)

    @classmethod
    def parse(cls, text: str, *, place: str = "") -> Self:
        """Return the member that a text names, with hyphens or underscores.

        Raises
        ------
        UsageError
            When the text names none; the message lists the allowed words and the nearest one, those of an option of the
            command line with hyphens, as its help has them.
        """
        if isinstance(text, cls):
            return text
        try:
            return cls(text)
        except ValueError:
            member = spelt(str(text), cls)
        if member is not None:
            return cls(member)
        what = "".join(f" {c.lower()}" if c.isupper() else c for c in cls.__name__).strip()
        shown = [_key(member) if place.startswith("--") else str(member) for member in cls]
        raise unknown_name(what, str(text), shown, place=place)


class Limiter(Vocabulary):
    """What limits an operator: the ceiling that sets its bound, or the resource that takes most of its time."""

    COMPUTE = "compute"
    HBM = "hbm"  # device memory of a GPU, whatever its technology
    DRAM = "dram"  # main memory of a CPU
    LLC = "llc"
    L3 = "l3"
    L2 = "l2"
    L1 = "l1"
    SHARED = "shared"
    REGISTERS = "registers"
    LINK = "link"  # PCIe, NVLink, xGMI: anything that leaves the device
    LAUNCH = "launch"
    HOST = "host"
    UNKNOWN = "unknown"


class CacheState(Vocabulary):
    """What the caches hold when an operator starts."""

    COLD = "cold"  # inputs come from device memory; a benchmark flushes the caches first
    WARM = "warm"  # the same buffers are used again and again
    ROTATING = "rotating"  # several sets of weights take turns

    @classmethod
    def _missing_(cls, value: object) -> CacheState | None:
        """Accept "flushed", the word for cold of schema version 1 and of older tables."""
        return cls.COLD if value == "flushed" else None


class Timing(Vocabulary):
    """Which interval a time is."""

    KERNEL = "kernel"  # on the device, as a profiler sees it
    GRAPH = "graph"  # on the device, a share of a replayed CUDA graph
    DO_BENCH = "do_bench"  # between events around one call that waits in the queue, as Triton's do_bench has it
    EVENT = "event"  # between events around one call with nothing in the queue, its dispatch included

    @property
    def includes_host(self) -> bool:
        """Whether the interval contains the host's dispatch of the call."""
        return self is Timing.EVENT


class EventKind(Vocabulary):
    """What kind of work an event on a time line, or an entry of a profile, is."""

    KERNEL = "kernel"
    MEMCPY = "memcpy"
    MEMSET = "memset"
    COMMUNICATION = "communication"
    HOST = "host"

    @property
    def code(self) -> int:
        """The number that stands for the kind in columns of numpy arrays."""
        return _CODES[self]

    @classmethod
    def from_code(cls, code: int) -> EventKind:
        """Return the kind for a number from a column."""
        return _KINDS[code]


_KINDS = tuple(EventKind)
_CODES = {kind: code for code, kind in enumerate(_KINDS)}


class Load(Vocabulary):
    """For how long the device has been at work, which decides what its power limit leaves of the clock."""

    BURST = "burst"  # milliseconds, as benchmarks replay a kernel
    SUSTAINED = "sustained"  # minutes, as in training


class Calibration(Vocabulary):
    """How well the constants of a prediction know the machine, library and dtype; from best to worst."""

    CALIBRATED = "calibrated"  # fitted on rows of all three
    SAME_GENERATION = "same generation"  # on rows of the machine's generation; or of the library or dtype elsewhere
    NEVER_SEEN = "never seen"


class ErrorSource(Vocabulary):
    """Why a prediction is off: what its constants have not seen; see `perfmodel.prediction.latency.constants`."""

    SHAPE = "shape"
    KERNEL = "kernel"  # of a kind that nobody measured on any machine
    MACHINE = "machine"
    MACHINE_HERE = "machine_here"  # measured with sibling operators
    LIBRARY = "library"
    LIBRARY_HERE = "library_here"  # measured on other machines
    DTYPE = "dtype"
    DTYPE_HERE = "dtype_here"
    VENDOR = "vendor"
    LINK = "link"  # a kind of it
    HOST = "host"  # through which devices exchange
    NETWORK = "network"  # between nodes, which nobody measured
    INSTALLATION = "installation"  # of a library, on another host and in another release
    EXTRAPOLATION = "extrapolation"  # calls unlike those that the constants were fitted on
    DISPATCH = "dispatch"  # of the call, by another host than the one measured
    RELEASE = "release"  # of the library, where several differ and none that was measured is named
    POWER = "power"  # that a board needs, where its limit sets the clock
    CACHE = "cache"  # what stays in it from one call to the next
    SPECIFICATION = "specification"  # leaves figures out, and usual ones stand for them
    RUN = "run"  # of a whole model


class Dimension(Vocabulary):
    """Where the wall time of a run goes; the parts of a diagnosis."""

    COMPUTE = "compute"
    MEMORY = "memory"
    OTHER = "other kernels"  # GPU work of which nothing says what limits it
    LAUNCH = "launch"
    TRANSFER = "transfer"
    SYNC = "sync"
    IDLE = "idle"

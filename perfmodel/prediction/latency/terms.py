"""A predicted time as a sum of terms, each with a name, what limits it, and what it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple

from perfmodel.core.record import record
from perfmodel.core.vocabulary import Limiter
from perfmodel.core.work import Number, maximum, where
from perfmodel.prediction.topology import NETWORK_LINK, PEER_LINKS


class Term(str):
    """The name of one part of a time. It is a string, so that it is a key of JSON rows as it stands.

    Attributes
    ----------
    limiter : what the time is spent on; UNKNOWN for what belongs to no single resource.
    meaning : a phrase for people.
    """

    __slots__ = ("limiter", "meaning")
    limiter: Limiter
    meaning: str

    def __new__(cls, name: str, limiter: Limiter, meaning: str) -> Term:
        """Return the string with its two facts."""
        term = super().__new__(cls, name)
        term.limiter, term.meaning = limiter, meaning
        return term

    def __getnewargs__(self) -> tuple[str, Limiter, str]:  # type: ignore[override]
        """Return what `pickle` and `copy` build the term from."""
        return str(self), self.limiter, self.meaning


# Terms that several families have; a family declares its own beside its formula.
MATH = Term("math", Limiter.COMPUTE, "arithmetic at the sustained rate")
TILE_WASTE = Term("tile waste", Limiter.COMPUTE, "padding of the sizes to whole tiles")
WAVES = Term("wave quantisation", Limiter.COMPUTE, "SMs idle while the last wave of blocks finishes")
BLOCK = Term("block setup", Limiter.COMPUTE, "start and end of each block of queries")
HBM = Term("hbm", Limiter.HBM, "traffic to device memory")
L2 = Term("l2", Limiter.L2, "traffic between the L2 cache and the SMs")
CONTENTION = Term("contention", Limiter.UNKNOWN, "resources that overlap only in part")
SPLIT_K = Term("split-k", Limiter.COMPUTE, "combining the partial results of a split contraction")
LAUNCH = Term("launch", Limiter.LAUNCH, "start and drain of the kernel")
SYNCHRONISATION = Term("synchronisation", Limiter.LINK, "devices waiting for one another")
HOST = Term("host", Limiter.HOST, "dispatch of the call, as events around it measure")
EVENTS = Term("events", Limiter.LAUNCH, "from the first event to the kernel, and from its end to the second event")
SURFACE = Term("residual surface", Limiter.UNKNOWN, "how far measured kernels of such sizes are from the closed form")
#: what two events around a single kernel add to it where the host is ahead [s], and by what factors it differs, an 80 %
#: interval: the middle of 17 rows of kernels below 5 us that Triton's do_bench timed on V100, H20, H100, H200 and B200.
#: Eleven say 3.7 to 4.6, four more, and two less than 1 (`examples/published`)
EVENTS_S, EVENTS_DIFFER = 4e-6, (0.5, 1.4)
#: terms that are not the kernel's own work
STARTING = (LAUNCH, EVENTS, HOST)
BOUND = Term("bound", Limiter.UNKNOWN, "amount by which the formula fell short of the bound")

_LEVELS = {
    HBM: HBM,
    L2: L2,
    **{
        name: Term(name, Limiter(name), meaning)
        for name, meaning in (
            ("dram", "traffic to main memory"),
            ("llc", "traffic to the last-level cache"),
            ("l3", "traffic to the L3 cache"),
            ("l1", "traffic between the L1 cache and the registers"),
            ("shared", "traffic to shared memory"),
            ("registers", "traffic to the registers"),
        )
    },
}


def ceiling_term(name: str) -> Term:
    """Return the term for the time that one ceiling takes: compute, a memory level, or else a link by its name."""
    return MATH if name == Limiter.COMPUTE else _LEVELS.get(name) or link_term(name)


def link_term(name: str, technology: str = "") -> Term:
    """Return the term for the traffic over a link, under the name of what it is where that is not the link's."""
    if technology:
        return Term(technology, Limiter.LINK, f"traffic over {technology} between host and device")
    what = "the network between nodes" if name == NETWORK_LINK else f"{name.upper()} between devices"
    return Term(name, Limiter.LINK, f"traffic over {what}")


#: terms that the roofline may have, whatever the machine
CEILING_TERMS = (MATH, *_LEVELS.values(), *map(link_term, PEER_LINKS))


@record
class Terms:
    """The time of one kernel as a sum.

    Attributes
    ----------
    adds : term -> the time that it adds [s], in the order in which people read it; the sum is the time.
    alone : resource -> the time that it alone would take [s]; resources overlap, so these do not add up.
    """

    adds: Mapping[Term, Number]
    alone: Mapping[Term, Number] = field(default_factory=dict)

    def plus(self, name: Term, time_s: Number) -> Terms:
        """Return the terms with one more, whose sum is not added up anew."""
        more = Terms({**self.adds, name: time_s}, self.alone)
        vars(more)["_sum"] = self.time_s + time_s
        return more

    def times(self, factor: Number) -> Terms:
        """Return the terms of a kernel that takes ``factor`` times as long in all its parts."""
        adds, alone = ({name: factor * time for name, time in part.items()} for part in (self.adds, self.alone))
        return Terms(adds, alone)

    @property
    def time_s(self) -> Number:
        """The sum of the terms [s]."""
        if "_sum" in vars(self):  # kept here, since `functools.cached_property` locks until Python 3.12
            known: Number = vars(self)["_sum"]
            return known
        values = iter(self.adds.values())
        total: Number = next(values, 0.0)
        for value in values:
            total = total + value
        vars(self)["_sum"] = total
        return total


def between(one: Terms, other: Terms, share: Number) -> Terms:
    """Return the mean of two calls' terms, with a share of the other."""

    def mean(first: Mapping[Term, Number], second: Mapping[Term, Number]) -> dict[Term, Number]:
        names = dict.fromkeys((*first, *second))
        return {name: (1.0 - share) * first.get(name, 0.0) + share * second.get(name, 0.0) for name in names}

    return Terms(mean(one.adds, other.adds), mean(one.alone, other.alone))


def faster(one: Terms, other: Terms) -> Terms:
    """Return the terms of the call that takes less time, point by point."""
    return between(one, other, where(other.time_s < one.time_s, 1.0, 0.0))


class Total(NamedTuple):
    """The time of one call without its parts.

    Attributes
    ----------
    time_s : what the terms add up to [s].
    starting_s : what of it starts the kernel, on the device and on the host [s].
    """

    time_s: Number
    starting_s: Number


def total_of(terms: Terms) -> Total:
    """Return what some terms add up to."""
    return Total(terms.time_s, starting_s(terms.adds))


def starting_s(adds: Mapping[Term, Number]) -> Number:
    """Return what starting the kernel takes of a time, on the device and on the host [s]."""
    return sum((adds[name] for name in STARTING if name in adds), start=0.0)


def smooth_max(power: float, *times: Number) -> Number:
    """Return the smooth maximum (a^p + b^p + ...)^(1/p) of resources that overlap, but not perfectly [s].

    It is at least the largest time and at most n^(1/p) times that. Scaling by the largest prevents underflow.

    >>> round(float(smooth_max(4, 3.0, 3.0)), 3)
    3.568
    """
    largest = times[0]
    for time in times[1:]:
        largest = maximum(largest, time)
    scale = maximum(largest, 1e-300)
    total: Number = (times[0] / scale) ** power
    for time in times[1:]:
        total = total + (time / scale) ** power
    return scale * total ** (1.0 / power)


def overlapped(power: float, times: Mapping[Term, Number]) -> Terms:
    """Return the smooth maximum of some resources as a sum: the largest time, and "contention".

    Contention is what the other resources add because they overlap only in part. Of equal times the first counts.
    """
    total = smooth_max(power, *times.values())
    largest: Number = 0.0
    for time in times.values():
        largest = maximum(largest, time)
    adds: dict[Term, Number] = {}
    free: Any = True
    for name, time in times.items():
        here = (time >= largest) & free
        free = free & (here ^ True)
        adds[name] = where(here, time, 0.0)
    adds[CONTENTION] = total - largest
    return Terms(adds, dict(times))

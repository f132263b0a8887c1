"""What every latency family is made of: constants, the machine's symbols, the conditions of time, and the terms of a sum.

A *family* is a closed form for one kind of kernel: it takes an operator, a machine and a few constants, and gives
the terms whose sum is the time of the kernel. Scalars and arrays go through the same code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from perfmodel.core.work import Number, maximum
from perfmodel.operators.base import Operator
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.machine import Machine

#: values of a family's constants by name, in SI units
Values = Mapping[str, float]


@dataclass(frozen=True)
class Constant:
    """One scalar of a family: what it means, where it starts, and how far it can go.

    Attributes
    ----------
    name, unit, meaning : for people; the unit is SI, "" for a share.
    default : a typical value, and where a fit starts when no defaults file has a better one.
    low, high : what physics allows; a fit stays inside.
    spread : how much machines differ in it, as a standard deviation of the logarithm; the weight of the
        default against the rows of a fit.
    library : whether it belongs to the software (launch path, kernel choice), so that each library may have its own.
    """

    name: str
    unit: str
    default: float
    low: float
    high: float
    spread: float
    meaning: str
    library: bool = False


@dataclass(frozen=True)
class Terms:
    """The time of one kernel as a sum.

    Attributes
    ----------
    adds : what limits -> the time that it adds [s], in the order in which people read it; the sum is the time.
    alone : resource -> the time that it alone would take [s], for terms that overlap with others.
    """

    adds: Mapping[str, Number]
    alone: Mapping[str, Number] = field(default_factory=dict)

    @property
    def time_s(self) -> Number:
        """The sum of the terms [s]."""
        total: Number = 0.0
        for value in self.adds.values():
            total = total + value
        return total


def smooth_max(power: float, *times: Number) -> Number:
    """Return the smooth maximum (a^p + b^p + ...)^(1/p): resources that overlap, but not perfectly [s].

    At least the largest, at most the largest times n^(1/p). Scaled by the largest, so that nothing underflows.

    >>> round(float(smooth_max(4, 3.0, 3.0)), 3)
    3.568
    """
    largest = times[0]
    for time in times[1:]:
        largest = maximum(largest, time)
    scale = maximum(largest, 1e-300)
    total = sum((time / scale) ** power for time in times)
    return scale * total ** (1.0 / power)


def overlapped(power: float, **times: Number) -> Terms:
    """Return the smooth maximum of some resources as a sum: the largest one's own time, and "contention".

    Contention is what the others add because resources do not overlap perfectly.
    """
    total = smooth_max(power, *times.values())
    largest: Number = 0.0
    for time in times.values():
        largest = np.maximum(largest, time)
    adds: dict[str, Number] = {}
    free: Number | np.ndarray = True
    for name, time in times.items():
        here = np.logical_and(time >= largest, free)
        free = np.logical_and(free, np.logical_not(here))
        adds[name] = np.where(here, time, 0.0)
    adds["contention"] = total - largest
    return Terms(adds, dict(times))


@dataclass(frozen=True, eq=False)
class Family:
    """A closed form for one kind of kernel.

    Attributes
    ----------
    name : its key in the ``[latency.NAME]`` tables.
    constants : its scalars, at most 12 with the two of the host.
    terms : the formula: (operator, machine, values, conditions) -> terms of the time on the device, for ``timing="kernel"``.
    dispatched : whether an event round a framework's call also sees the host's dispatch. Collectives are
        measured in queues, where it does not show.
    by_dtype : whether constants fitted on one dtype say less of another; not of kernels that move bytes only.
    calls : (operator, values) -> the dispatch of this very call over a plain one's, where calls differ: through
        a layer of the framework, or with a scalar that it turns into a tensor. 1 where None.
    """

    name: str
    constants: tuple[Constant, ...]
    terms: Callable[[Operator, Machine, Values, Conditions], Terms]
    dispatched: bool = True
    by_dtype: bool = True
    calls: Callable[[Operator, Values], Number] | None = None

    @functools.cached_property
    def all_constants(self) -> tuple[Constant, ...]:
        """The family's own constants, and those of the host where it is dispatched."""
        return (*self.constants, *HOST) if self.dispatched else self.constants

    def timed_terms(self, op: Operator, machine: Machine, values: Values, conditions: Conditions) -> Terms:
        """Return the terms of the time that ``conditions.timing`` sees.

        Between events round a framework's call the host dispatches for ``host``, and starts the kernel ``hidden``
        before it is done; the second event waits for both: t = ||host, host - hidden + t_kernel||. A call that
        takes more dispatch than a plain one (``calls``) takes it before it starts the kernel.
        """
        kernel = self.terms(op, machine, values, conditions)
        if conditions.timing != "event" or not self.dispatched:
            return kernel
        host = values["host"] * (self.calls(op, values) if self.calls else 1.0)
        # A kernel cannot hide behind more of the dispatch than there is.
        before = maximum(0.0, host - values["hidden"])
        total = smooth_max(CORNER, host, before + kernel.time_s)
        return Terms({**kernel.adds, "host": total - kernel.time_s}, kernel.alone)


#: exponent of the smooth maximum of dispatch and kernel: measured corners are within 3 % of the larger one
CORNER = 20.0
HOST = (
    Constant("host", "s", 26e-6, 2e-6, 300e-6, 0.4, "dispatch of a framework's call, as events round it see", True),
    Constant("hidden", "s", 13e-6, 3e-6, 100e-6, 0.5, "end of the dispatch that the running kernel hides", True),
)

"""What a latency family is: a formula for one kind of kernel, its constants, and the terms of its time.

A *family* is a closed form: it takes an operator, a machine and a few constants, and returns the terms whose sum is the
time of the kernel. Scalars and arrays run the same code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from perfmodel.core.hardware import Hardware, Link
from perfmodel.core.latency_table import LatencyTable
from perfmodel.core.vocabulary import Timing
from perfmodel.core.work import Number, anywhere, maximum, minimum
from perfmodel.operators.base import Operator
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.doubts import ANY_CALLER, NO_DISPATCH, OTHER_HOST, Doubt
from perfmodel.prediction.latency.few_watts import FEW_WATTS
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import (
    BOUND,
    EVENTS,
    EVENTS_S,
    HOST,
    SURFACE,
    Term,
    Terms,
    Total,
    smooth_max,
    total_of,
)

#: members of an enumeration take longer to find than all else that is done with them
_EVENT, _DO_BENCH = Timing.EVENT, Timing.DO_BENCH
#: values of a family's constants by name, in SI units
Values = Mapping[str, float]


@dataclass(frozen=True)
class Constant:
    """One scalar of a family: what it means, where it starts, and how far it can go.

    Attributes
    ----------
    name, unit, meaning : for people; the unit is SI, "" for a share.
    default : a typical value; a fit starts there if no file of defaults has a better one.
    low, high : what physics allows; a fit stays inside.
    spread : how much machines differ in it, as a standard deviation of the logarithm; the weight of the default
        against the rows of a fit.
    library : whether it is a property of the software (launch path, kernel choice), so that each library may have its
        own value.
    unmeasured : the value for the kernels of a library that no table has rows of, where it is not that of the others.
    of_kernel : whether the kernel alone sets it, so that the ratio of two libraries' is the same on all machines.
    between_kernels : how much kernels of different libraries differ in it, where that is more than the spread of one
        over machines; None where they differ as machines do.
    starts : values of kernels of other kinds, from each of which a fit starts, too: where another path takes longer,
        the constant has no slope that leads there.
    """

    name: str
    unit: str
    default: float
    low: float
    high: float
    spread: float
    meaning: str
    library: bool = False
    unmeasured: float | None = None
    of_kernel: bool = False
    between_kernels: float | None = None
    starts: tuple[float, ...] = ()


#: exponent of the smooth maximum of dispatch and kernel: measured corners are within 3 % of the larger one
CORNER = 20.0
HOST_CONSTANTS = (
    Constant(
        "host", "s", 26e-6, 2e-6, 600e-6, 0.4, "dispatch of a framework's call, as events around it measure", True
    ),
    Constant("hidden", "s", 13e-6, 3e-6, 500e-6, 0.5, "end of the dispatch that overlaps with the kernel", True),
)
HOST_DEFAULTS = {constant.name: constant.default for constant in HOST_CONSTANTS}
#: key of values whose ``host`` is that of calls of any kind, so that no call costs more than another
OF_ANY_CALL = "of any call"
#: what no constant of the formula can tell: slow kernels of one's own, a clock far below the usual one
FACTOR = Constant(
    "factor", "", 1.0, 0.1, 10.0, 0.3, "time of the kernel over what its formula says, in all its parts", library=True
)
_FACTOR = FACTOR.name


def dispatched_s(host_s: Number, hidden_s: Number, calls: Number) -> Number:
    """Return the time of the host to dispatch some calls one after another [s]: host + (calls - 1) (host - hidden).

    Of each further call counts what comes before its kernel starts; the way back, and the events, count once.

    >>> round(dispatched_s(26e-6, 13e-6, 100.0) * 1e3, 3)
    1.313
    """
    return host_s + (calls - 1.0) * maximum(0.0, host_s - hidden_s)


def spread_dispatch_s(host_s: Number, least_s: float, kernel_s: Number) -> Number:
    """Return the dispatch of least mean relative error of calls whose own is spread evenly from ``least_s`` on [s].

    A call then takes t, evenly between kernel + least and kernel + most. E|t - p| / t is least where half of the weight
    1 / t lies below p: the geometric mean of both ends. So a call of no kernel takes host = (least most)^(1/2), and one
    of a long kernel the mean of least and most longer than that.

    >>> round(spread_dispatch_s(200e-6, 50e-6, 0.0) * 1e6, 3), round(spread_dispatch_s(200e-6, 50e-6, 1.0) * 1e6)
    (200.0, 425)
    """
    least = minimum(least_s, host_s)
    most = host_s * host_s / least
    ends = kernel_s * (least + most) + host_s * host_s
    # (kernel + least) (kernel + most) = kernel^2 + ends, whose root less the kernel loses no digits so
    dispatch: Number = ends / ((kernel_s * kernel_s + ends) ** 0.5 + kernel_s)
    return dispatch


def scaled(terms: Terms, values: Values) -> Terms:
    """Return the terms of a family's formula as its calls take: times the `FACTOR` that a table may have."""
    return terms.times(values[FACTOR.name]) if FACTOR.name in values else terms


def always(op: Operator, machine: Machine, library: str) -> bool:
    """Return that a family is for all points."""
    return True


def _never(op: Operator) -> bool:
    return False


def _no_link(links: Iterable[Link]) -> str:
    return ""


def _everywhere(op: Operator) -> float:
    return 1.0


@dataclass(frozen=True)
class Axis:
    """A size that the residual of a family depends on, through its logarithm.

    Attributes
    ----------
    name : of the size.
    size : (operator, machine) -> the size, at least 1.
    step : distance of the knots [octaves].
    length : distance over which residuals lose their likeness: their correlation is exp(-distance / length) [octaves].
    last : the largest logarithm that the axis has, where its meaning ends there; the surface does not fade beyond it.
    rising : the logarithm up to which the surface does not fall: where a larger size costs nothing in the closed form,
        it would be faster. The axis begins at 1.
    """

    name: str
    size: Callable[[Any, Machine], Number]
    step: float = 1.5
    length: float = 4.0
    last: float | None = None
    rising: float = 0.0


def forward_only(op: Any, machine: Machine, library: str) -> bool:
    """Whether an operator is not a backward pass, for families that were fitted on forward passes alone."""
    return not op.backward


@dataclass(frozen=True, eq=False)
class Family:
    """A closed form for one kind of kernel.

    Attributes
    ----------
    name : its key in the ``[latency.NAME]`` tables.
    constants : its scalars, at most 12 with the two of the host.
    formula : (operator, machine, values, conditions) -> terms of the time on the device.
    terms : every term that the formula may return.
    total : (operator, machine, values, conditions) -> what the terms of the formula add up to, where that takes less
        time than they; None where it does not.
    applies : (operator, machine, library) -> the points that the family is for, where several families serve an
        operator.
    by_size : whether sizes of an operator decide what ``applies``; else its settings, the machine and the library do.
    dispatched : whether tables tell the host's dispatch, which events around a framework's call also see.
    dispatched_like : the family whose dispatch stands for that of such a call on a GPU where no table tells it:
        collectives and copies are measured in queues.
    least_dispatch_s : the shortest dispatch [s] where the measured one varies between calls by more than short kernels
        take, so that the time is that of least mean relative error, and not the middle (`spread_dispatch_s`); 0 where
        it does not.
    by_dtype : whether constants fitted on one dtype say less about another; not for kernels that only move bytes.
    by_library : whether libraries have kernels of different designs, so that constants fitted on some say less about
        one that is not named.
    of_framework : whether serving engines run the framework's kernel, which changes with its versions.
    streams : whether its constant ``eta`` is the share of the bandwidth that plain streams sustain, so that a measured
        bandwidth replaces it.
    call_cost : (operator, values) -> dispatch of this call relative to a plain one, where calls differ: through a layer
        of the framework, or with a scalar that it turns into a tensor. None means 1.
    slower_calls : (machine, library) -> dispatch of a library's calls over that of kernels compiled beforehand, where
        the host does more before each of them. None means 1.
    since : library -> the release since which the kernels are those of calls that name none; older ones had others.
    aliases : other names of libraries -> the names that tables have for their kernels of this family.
    of_release : library -> a release of which tables have the rows apart, since they ran where others did not.
    chooses : (operator, machine, conditions) -> the points, as masks, and the conditions that name the kernel of each,
        where a library has several and sizes, machine or release decide; asked of the first family of an operator for
        all of its families. It raises what no machine has. None means that the conditions name it.
    borrows : (machine, library, dtype) -> the library's name, and the libraries whose constants may hold for it, the
        best first: those that run the same kernel, where ``library`` names a kernel. None means itself.
    kernels : names of kernels that the formula knows apart, whether tables have rows of them or not.
    unmeasured : deviation of ln(measured / predicted) of its kernels in each regime where no table has rows of them, if
        others' measurements tell it; None where it may be as far off as a kernel of any kind.
    wide_library : the most that libraries differ by in elements of four bytes and more, in each regime; None where the
        width of the elements says nothing of that.
    of_any_kind : whether it stands for kinds of kernels that no family is for, so that its interval is one error of all
        shapes of a kind.
    on_cpu : whether it is for CPUs, which the others are not; None for both.
    own_table : machine -> its own table where the constants stand elsewhere in the specification; None where nothing of
        the family was measured on it.
    for_pytorch : operator -> the calls of which it is PyTorch's kernel, while calls of no library assume another one.
    apart : operator -> the calls whose shapes differ by more or less than the others', which have their own intervals.
    doubts : calls that are less sure than others; of one that several are about they add up.
    link : links of a machine -> the kind of link that its calls cross, "" where they cross none.
    like : the family whose constants it uses, and whose interval is its own where no table has rows of it, widened by a
        further deviation ``unlike`` of ln(measured / predicted).
    beyond : (operator, machine) -> the calls that reach what nobody measured, a mask, and what is assumed of it, for
        people; None where there is nothing of the kind.
    basis : (operator, machine, terms) -> the figures that set the time, for people, where they are not the constants.
    axes : the sizes over which a residual surface corrects the kernel's time (`perfmodel.core.surface`); none where
        the rows do not earn one.
    surfaced : operator -> share of the surface that holds: 1 for calls like those measured, less for others.
    """

    name: str
    constants: tuple[Constant, ...]
    formula: Callable[[Operator, Machine, Values, Conditions], Terms]
    terms: tuple[Term, ...]
    applies: Callable[[Any, Machine, str], Any] = always
    by_size: bool = True
    total: Callable[[Operator, Machine, Values, Conditions], Total] | None = None
    dispatched: bool = True
    dispatched_like: Family | None = None
    least_dispatch_s: float = 0.0
    by_dtype: bool = True
    by_library: bool = False
    of_framework: bool = False
    streams: bool = False
    call_cost: Callable[[Operator, Values], Number] | None = None
    slower_calls: Callable[[Machine, str], float] | None = None
    since: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    of_release: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    chooses: Callable[[Any, Machine, Conditions], list[tuple[Any, Conditions]]] | None = None
    borrows: Callable[[Hardware, str, str], tuple[str, tuple[str, ...]]] | None = None
    kernels: tuple[str, ...] = ()
    apart: Callable[[Any], Any] = _never
    doubts: tuple[Doubt, ...] = ()
    link: Callable[[Iterable[Link]], str] = _no_link
    like: Family | None = None
    unlike: float = 0.0
    beyond: Callable[[Operator, Machine], tuple[Any, str]] | None = None
    basis: Callable[[Operator, Machine, Terms], str] | None = None
    unmeasured: tuple[float, float, float] | None = None
    wide_library: tuple[float, float, float] | None = None
    of_any_kind: bool = False
    on_cpu: bool | None = False
    own_table: Callable[[Hardware], LatencyTable | None] | None = None
    for_pytorch: Callable[[Any], Any] = _never
    axes: tuple[Axis, ...] = ()
    surfaced: Callable[[Any], Number] = _everywhere

    @functools.cached_property
    def all_constants(self) -> tuple[Constant, ...]:
        """The family's own constants, and those of the host if it is dispatched."""
        return (*self.constants, *HOST_CONSTANTS) if self.dispatched else self.constants

    def library_of(self, conditions: Conditions) -> str:
        """Return the library that tables may have constants of: with its release where they have it apart."""
        library = conditions.library
        release = self.of_release.get(library) if self.of_release else None
        if release is None or conditions.release[:2] != release:
            return library
        return f"{library}-{release[0]}.{release[1]}"

    def key_of(self, conditions: Conditions) -> str:
        """Return the name that tables have for the kernels of a library, where they have them."""
        named = self.library_of(conditions)
        return self.aliases.get(named, named)

    @functools.cached_property
    def all_doubts(self) -> tuple[Doubt, ...]:
        """The calls that are less sure than others; with those dispatched by another host than the one measured.

        So are those that the power limit of a small module sets.
        """
        if self.dispatched_like is not None:
            return (*self.doubts, NO_DISPATCH)
        if not self.dispatched or self.on_cpu:
            return self.doubts
        return (*self.doubts, FEW_WATTS, OTHER_HOST, ANY_CALLER)

    @functools.cached_property
    def table_constants(self) -> tuple[Constant, ...]:
        """The constants that a table may have: also the factor that calls of one's own may take (`FACTOR`)."""
        return (*self.all_constants, FACTOR)

    @functools.cached_property
    def all_terms(self) -> tuple[Term, ...]:
        """The terms of the formula, and those that `timed_terms` and the bound may add."""
        corrected = (*self.terms, SURFACE) if self.axes else self.terms
        seen = self.dispatched or self.dispatched_like is not None
        return (*corrected, EVENTS, HOST, BOUND) if seen else (*corrected, EVENTS, BOUND)

    def _sees_host(self, machine: Machine, conditions: Conditions) -> bool:
        """Return whether the time that ``conditions.timing`` measures holds the host's dispatch."""
        if conditions.timing != _EVENT:
            return False
        return self.dispatched or (self.dispatched_like is not None and not machine.is_cpu)

    def timed_terms(
        self,
        op: Operator,
        machine: Machine,
        values: Values,
        conditions: Conditions,
        gain: Number = 0.0,
        least_s: Number = 0.0,
    ) -> Terms:
        """Return the terms of the time that ``conditions.timing`` measures.

        The kernel takes ``gain`` times longer than its formula says, by the residual surface of the machine, and
        `FACTOR` times as long where a table has one. Dispatch comes beside a kernel of ``least_s`` [s] or more: what
        its formula falls short of the bound by hides none of it.

        Between events around a call the host dispatches for ``host``, and starts the kernel ``hidden``
        before it has finished; the second event waits for both: t = ||host, host - hidden + t_kernel||. A call with
        more dispatch than a plain one (``call_cost``) spends it before it starts the kernel. Of several calls
        (`Operator.calls`) the device runs one while the host dispatches the next, and the slower of both sets the time
        (`dispatched_s`). Around a call that waits in the queue the events add `EVENTS_S`.
        """
        kernel = scaled(self.formula(op, machine, values, conditions), values)
        if anywhere(gain):
            kernel = kernel.plus(SURFACE, kernel.time_s * gain)
        if conditions.timing == _DO_BENCH:
            return kernel.plus(EVENTS, EVENTS_S)
        if not self._sees_host(machine, conditions):
            return kernel
        if anywhere(least_s > kernel.time_s):
            kernel = kernel.plus(BOUND, maximum(least_s - kernel.time_s, 0.0))
        return kernel.plus(HOST, self._dispatch_s(op, machine, values, conditions, kernel.time_s))

    def timed_total(
        self,
        op: Operator,
        machine: Machine,
        values: Values,
        conditions: Conditions,
        gain: Number = 0.0,
        least_s: Number = 0.0,
    ) -> Total:
        """Return what `timed_terms` add up to."""
        if self.total is None:
            return total_of(self.timed_terms(op, machine, values, conditions, gain, least_s))
        kernel_s, starting_s = self.total(op, machine, values, conditions)
        if _FACTOR in values:
            kernel_s, starting_s = values[_FACTOR] * kernel_s, values[_FACTOR] * starting_s
        if anywhere(gain):
            kernel_s = kernel_s + kernel_s * gain
        if conditions.timing == _DO_BENCH:
            return Total(kernel_s + EVENTS_S, starting_s + EVENTS_S)
        if not self._sees_host(machine, conditions):
            return Total(kernel_s, starting_s)
        kernel_s = maximum(kernel_s, least_s)
        host_s = self._dispatch_s(op, machine, values, conditions, kernel_s)
        return Total(kernel_s + host_s, starting_s + host_s)

    def _dispatch_s(
        self, op: Operator, machine: Machine, values: Values, conditions: Conditions, kernel_s: Number
    ) -> Number:
        """Return what the dispatch of a call adds to the time of its kernel [s]."""
        slower = self.slower_calls(machine, conditions.library) if self.slower_calls else 1.0
        if "host" not in values:  # constants that a fit tries, of a family without a dispatch of its own
            values = {**HOST_DEFAULTS, **values}
        cost = self.call_cost(op, values) if self.call_cost and OF_ANY_CALL not in values else 1.0
        host = slower * values["host"] * cost
        if self.least_dispatch_s and OF_ANY_CALL not in values:
            host = spread_dispatch_s(host, slower * self.least_dispatch_s, kernel_s)
        hidden, calls = slower * values["hidden"], op.calls()
        # A kernel cannot hide behind more of the dispatch than there is.
        before = maximum(0.0, host - hidden)
        whole = dispatched_s(host, hidden, calls)
        # The device is busy from the first start on, or has the last kernel left when it is started.
        device = maximum(before + kernel_s, whole - (host - before) + kernel_s / calls)
        return smooth_max(CORNER, whole, device) - kernel_s

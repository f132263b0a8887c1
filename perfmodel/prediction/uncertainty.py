"""What the interval of a prediction is made of: the share of each source of error."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfmodel.core.latency_table import REGIMES
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.core.work import Number, Text, plain
from perfmodel.operators.base import Operator

#: source of error -> variance of ln(measured / predicted) in each regime
Variances = Mapping[ErrorSource, tuple[float, ...]]
#: the same, where each variance may be an array with one value for each point of a sweep
PointVariances = Mapping[ErrorSource, tuple[Number, ...]]
#: half of an 80 % interval over the standard deviation, of a normal distribution
Z80 = 1.2816

#: what a source of error means, for people
MEANINGS: Mapping[ErrorSource, str] = {
    ErrorSource.SHAPE: "shapes differ among themselves",
    ErrorSource.KERNEL: "nobody measured kernels of this kind, and typical values stand for them",
    ErrorSource.MACHINE: "nobody measured this machine",
    ErrorSource.MACHINE_HERE: "this machine was measured with other collectives only",
    ErrorSource.LIBRARY: "nobody measured this library, or none was named and several differ",
    ErrorSource.LIBRARY_HERE: "this library was measured on other machines only",
    ErrorSource.DTYPE: "nobody measured this dtype on this vendor's machines",
    ErrorSource.DTYPE_HERE: "this dtype was measured on other machines only",
    ErrorSource.VENDOR: "nobody measured a machine of this vendor",
    ErrorSource.LINK: "nobody measured exchanges over this kind of link there",
    ErrorSource.HOST: "hosts differ in the paths between their devices",
    ErrorSource.NETWORK: "nobody measured this network between nodes, and networks differ",
    ErrorSource.INSTALLATION: "installations of a library differ in releases, settings, clocks, fabric and hosts",
    ErrorSource.EXTRAPOLATION: "calls measured were of sizes that take other kernels, or of fewer devices",
    ErrorSource.DISPATCH: "what such a time holds beside the kernel was measured on another host, and hosts differ",
    ErrorSource.RELEASE: "releases of this library differ, and none that was measured is named",
    ErrorSource.POWER: "nobody measured how much power a product takes of this board, whose limit sets the clock",
    ErrorSource.CACHE: "nobody measured the same call again where a large L2 keeps what it reads",
    ErrorSource.SPECIFICATION: "the machine's specification leaves figures out, and usual ones stand for them",
    ErrorSource.RUN: "the run of a whole model differs from its operators measured alone: clock, temperature, memory",
}

#: those of single calls of a family (`perfmodel.prediction.latency.family.Doubt`)
DOUBTS = (
    ErrorSource.LINK, ErrorSource.NETWORK, ErrorSource.EXTRAPOLATION, ErrorSource.DISPATCH, ErrorSource.RELEASE,
    ErrorSource.POWER, ErrorSource.CACHE,
)  # fmt: skip
#: those that make a prediction no standard for good kernels: nobody measured what it is about
UNMEASURED = frozenset((
    ErrorSource.MACHINE, ErrorSource.VENDOR, ErrorSource.LINK, ErrorSource.LIBRARY, ErrorSource.DTYPE,
    ErrorSource.NETWORK, ErrorSource.EXTRAPOLATION,
))  # fmt: skip


@dataclass(frozen=True)
class Uncertainty:
    """The sources of error of a prediction; those of one point depend on its family and its regime.

    Attributes
    ----------
    parts : mask of the points of a family (True for all of them), and the family's variances.
    """

    parts: tuple[tuple[Any, PointVariances], ...] = ()

    def __iter__(self) -> Iterator[ErrorSource]:
        """Iterate over the sources of error of all points, in the order of `ErrorSource`."""
        sources = {source for _, variances in self.parts for source in variances}
        return (source for source in ErrorSource if source in sources)

    def variances(self, regime: Text) -> dict[ErrorSource, Number]:
        """Return source -> variance of ln(measured / predicted) for points in some regimes; 0 where it does not apply.

        Parameters
        ----------
        regime : "launch", "mid" or "large" of each point.
        """
        if isinstance(regime, str):
            index = REGIMES.index(regime)
            return {source: values[index] for _, variances in self.parts[:1] for source, values in variances.items()}
        code = np.select([regime == name for name in REGIMES], range(len(REGIMES)))
        shape = np.shape(code)
        found: dict[ErrorSource, Number] = dict.fromkeys(self, 0.0)
        taken = np.zeros(code.shape, dtype=bool)
        for mask, variances in self.parts:
            here = ~taken & mask
            for source, values in variances.items():
                of_regime = np.choose(code, [np.broadcast_to(value, shape) for value in values])
                found[source] = np.where(here, of_regime, found[source])
            taken |= here
        return found

    def and_of(self, source: ErrorSource, variance: Number) -> Uncertainty:
        """Return the sources of error with a variance more in every regime, of a source that may be among them."""
        more = {source: (variance,) * len(REGIMES)}
        if not self.parts:
            return Uncertainty(((True, more),))
        none = (0.0,) * len(REGIMES)
        return Uncertainty(
            tuple(
                (mask, {**known, source: tuple(plain(value + variance) for value in known.get(source, none))})
                for mask, known in self.parts
            )
        )


@dataclass(frozen=True)
class Shape:
    """Name, dtype and dimensions of an operator: operators that share them have the same error.

    Attributes
    ----------
    key : tells shapes apart; a sweep of some sizes is one shape.
    sizes : the dimensions, numbers and words; arrays in a sweep.
    """

    key: tuple[Any, ...]
    sizes: Mapping[str, Any] = field(compare=False)

    @property
    def swept(self) -> bool:
        """Whether it has more than one point."""
        return any(isinstance(size, np.ndarray) for size in self.sizes.values())

    def equals(self, other: Shape) -> Any:
        """Return the points of a sweep at which another shape has the same dimensions, a mask; False for none."""
        if self.key[:2] != other.key[:2] or self.sizes.keys() != other.sizes.keys():
            return False
        alike: Any = True
        for name, size in self.sizes.items():
            alike = alike & (size == other.sizes[name])
        return alike


def shape_of(op: Operator) -> Shape:
    """Return the shape of an operator."""
    sizes = op.params()
    hashable = ((name, value.tobytes() if isinstance(value, np.ndarray) else value) for name, value in sizes.items())
    return Shape((op.op, op.dtype, tuple(hashable)), sizes)


def of_sum(parts: Iterable[tuple[Number, Hashable, Mapping[ErrorSource, Number]]]) -> dict[ErrorSource, Number]:
    """Return source of error -> variance of ln(measured / predicted) of a sum of times.

    The errors of different shapes are independent of each other and average out; what a machine, a library, a dtype or
    a vendor differs by is the same for all parts and adds up:

        shape: sum over shapes of (sum of w s)^2;  any other source: (sum of w s)^2,  with w the share of the sum.

    Of a sweep, two parts may have the same shape at some points alone; there each adds 2 (w s) (w s) of the other.

    Parameters
    ----------
    parts : time [s], shape, and variances of each part; parts of the same shape have the same error. In a sweep times
        and variances are arrays, with one value for each point.
    """
    listed = list(parts)
    total: Number = sum((time for time, _, _ in listed), 0.0)
    shapes: dict[Hashable, Number] = {}
    others: dict[ErrorSource, Number] = {}
    for time, shape, variances in listed:
        for source, variance in variances.items():
            deviation = time / total * np.sqrt(variance)
            if source is ErrorSource.SHAPE:
                shapes[shape] = shapes.get(shape, 0.0) + deviation
            else:
                others[source] = others.get(source, 0.0) + deviation
    of_shapes = sum((deviation**2 for deviation in shapes.values()), 0.0)
    swept = [shape for shape in shapes if isinstance(shape, Shape) and shape.swept]
    for place, one in enumerate(swept):
        alone = (other for other in shapes if isinstance(other, Shape) and not other.swept)
        for other in (*swept[:place], *alone):
            of_shapes = of_shapes + 2.0 * one.equals(other) * shapes[one] * shapes[other]
    return {
        ErrorSource.SHAPE: plain(of_shapes),
        **{source: plain(deviation**2) for source, deviation in others.items()},
    }


def half_width(variances: Iterable[float]) -> float:
    """Return half of the 80 % interval of ln(measured / predicted), of independent sources of error."""
    return float(half_widths(variances))


def half_widths(variances: Iterable[Number]) -> Number:
    """Return `half_width` of each point, of variances that may be arrays."""
    return plain(Z80 * np.sqrt(sum(variances)))


def unmeasured(sources: Iterable[ErrorSource]) -> str:
    """Return in words what nobody measured of an operator's machine, library, dtype and sizes; "" if all were.

    >>> unmeasured([ErrorSource.SHAPE, ErrorSource.MACHINE, ErrorSource.EXTRAPOLATION])
    'machine and kind of call'
    """
    words = ["kind of call" if one is ErrorSource.EXTRAPOLATION else str(one) for one in sources if one in UNMEASURED]
    return " and ".join(words)

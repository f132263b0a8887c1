"""The base class of all operators: dimensions and their rules, FLOP, tensors, math engine."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.hardware import ENGINES
from perfmodel.core.work import Number, Tensor, Work, check_shapes, same
from perfmodel.errors import ArgumentError, PerfModelError, UsageError, unknown_name
from perfmodel.operators.checks import CHECKS, is_unset
from perfmodel.operators.spans import span

#: parameters that are not dimensions; nor is the engine, unless one is chosen
_NOT_DIMENSIONS = frozenset({"dtype", "name", "count"})


def size(default: Any = dataclasses.MISSING, *, minimum: int = 1, quiet: bool = False, doc: str = "") -> Any:
    """Declare a dimension: a whole number from ``minimum`` to 2^53, or an array of such numbers.

    With a default of None, the operator derives it from the others in `Operator.check`. One that is ``quiet`` is no
    dimension of a call at its default.
    """
    return _declare("size", default, minimum=minimum, quiet=quiet, doc=doc)


def flag(default: bool, *, quiet: bool = False, doc: str = "") -> Any:
    """Declare a parameter that is true or false; one that is ``quiet`` is no dimension of a call at its default."""
    return _declare("flag", default, quiet=quiet, doc=doc)


def choice(
    default: str, allowed: tuple[str, ...], *, always_shown: bool = False, quiet: bool = False, doc: str = ""
) -> Any:
    """Declare a parameter that is one of several names.

    With ``always_shown`` tables show its default too; one that is ``quiet`` is no dimension of a call at its default.
    """
    return _declare("choice", default, allowed=allowed, always_shown=always_shown, quiet=quiet, doc=doc)


def dtype_of(default: str = "", *, doc: str = "") -> Any:
    """Declare a dtype; when it is empty, the operator derives it in `Operator.check`."""
    return _declare("dtype", default, doc=doc)


def number(default: float, *, doc: str = "") -> Any:
    """Declare a parameter that is a number from 0 on."""
    return _declare("number", default, doc=doc)


def scale_of(default: str = "", *, doc: str = "") -> Any:
    """Declare how the weights are scaled (`perfmodel.operators.scales`); when empty, `Operator.check` derives it."""
    return _declare("scale", default, doc=doc)


def network_rate(*, doc: str) -> Any:
    """Declare the rate of a network, as text ("400Gb/s", "50GB/s") or as a number [B/s]; it is kept as text."""
    return _declare("rate", "", quiet=True, doc=doc)


def _declare(kind: str, default: Any, **rules: Any) -> Any:
    metadata = {"kind": kind, "optional": is_unset(default), **rules}
    return dataclasses.field(default=default, metadata=metadata)


def wrong_dimensions(kind: type[Operator], given: Mapping[str, Any]) -> PerfModelError:
    """Return the error for dimensions of which one does not exist, or which lack one or the names.

    Parameters
    ----------
    kind : the operator's class.
    given : the dimensions.
    """
    dimensions = kind.dimensions()
    for key in given:
        if key not in dimensions:
            return unknown_name("dimension", key, dimensions, place=kind.op, kind=ArgumentError)
    missing = [key for key, rules in dimensions.items() if key not in given and rules["default"] is dataclasses.MISSING]
    if not missing:
        return ArgumentError("dimensions are given by name.", place=kind.op, remedy="Write name=value.")
    listed = ", ".join(f"{key}=... ({dimensions[key]['doc']})" for key in missing)
    verb = "is" if len(missing) == 1 else "are"
    return ArgumentError(f"{', '.join(missing)} {verb} missing.", place=kind.op, remedy=f"Add {listed}.")


@dataclass(frozen=True, kw_only=True, eq=False)
class Operator(abc.ABC):
    """One call of an operator: dimensions in, FLOP and tensors out.

    A subclass declares its dimensions with `size`, `flag`, `choice`, `number`, `dtype_of`, `scale_of` and
    `network_rate`, and implements `flop` and `tensors`. ``op`` is its public name, that of its module; the class has
    the same name in CamelCase. Dimensions may be numpy arrays; counts are then arrays too.

    Raises
    ------
    UsageError
        On construction, for a size that is zero, negative, fractional, infinite or above 2^53, and for an unknown
        dtype, engine or choice.
    ArgumentError
        On construction, for a dimension that does not exist, or one that is missing.
    """

    op: ClassVar[str] = ""
    #: names of the dimensions that were derived from others
    _derived: ClassVar[frozenset[str]] = frozenset()
    #: whether no dimension is an array, as far as the check of a new operator has found out
    _single: ClassVar[bool] = False
    #: the engine that the operator's arithmetic runs on by default
    preferred_engine: ClassVar[str] = "vector"
    #: whether a call that names no library may be several calls of PyTorch, where it has no kernel for the operator
    eager_by_default: ClassVar[bool] = True

    dtype: str = dtype_of("fp32", doc="dtype of inputs and outputs")
    engine: str = choice("auto", ("auto", *ENGINES), doc="math engine; auto chooses by operator and dtype")
    name: str = _declare("label", "", doc="label in results")
    count: int = _declare("count", 1, minimum=1, doc="number of such calls")

    def __post_init__(self) -> None:
        kept = self.__dict__
        for name, check, rules, default in _checks(type(self)):
            given = kept[name]
            if given is not default:
                kept[name] = check(self.op, name, given, rules)
        self._check_shapes()
        self.check()

    def __eq__(self, other: object) -> bool:
        """Return whether another operator is the same call: of one class, with equal parameters, name and count.

        Arrays are equal where their shapes and all of their numbers are. What an operator keeps of its own results, and
        whether a value was given or derived, make no difference.
        """
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        own, others = vars(self), vars(other)
        return all(same(own[name], others[name]) for name in _declared(type(self)))

    def __hash__(self) -> int:
        """Return a number that equal operators share; of arrays the shapes count alone."""
        own = vars(self)
        values = (own[name] for name in _declared(type(self)))
        return hash((type(self), *(_hashed(value) for value in values)))

    def _check_shapes(self) -> None:
        """Check that the dimensions that are arrays can be broadcast together."""
        kept = self.__dict__
        if np.ndarray not in map(type, kept.values()):
            kept["_single"] = True
            return
        shapes = {name: value.shape for name, value in kept.items() if type(value) is np.ndarray and value.ndim}
        check_shapes(self.op, shapes)

    def check(self) -> None:  # noqa: B027 -- most operators have nothing to add
        """Derive defaults and check the dimensions against each other; for subclasses."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the dimensions that are arrays have together; () for a single call."""
        return np.broadcast_shapes(*(array.shape for array in self._arrays().values()))

    @property
    def points(self) -> int:
        """Number of points of a sweep; 1 for a single call."""
        return 1 if self._single else math.prod(self.shape)

    @property
    def numbers(self) -> int:
        """How many numbers the dimensions that are arrays have: fewer than points where they broadcast."""
        return sum(array.size for array in self._arrays().values())

    def parts(self, most: int, start: int = 0, stop: int | None = None) -> Iterator[Self]:
        """Yield the operator of up to ``most`` points of a sweep at a time, in row-major order.

        They are not checked again, and arrays are copied a part at a time, so that arrays that broadcast, as ``m`` of
        shape [M, 1] and ``n`` of shape [N], never take the memory of all points.

        Parameters
        ----------
        most : points of a part.
        start, stop : the points to divide; by default all.
        """
        arrays = self._arrays()
        if not arrays:
            yield self
            return
        shape = self.shape
        columns = {
            name: value.reshape(-1) if value.shape == shape else np.broadcast_to(value, shape)
            for name, value in arrays.items()
        }
        stop = math.prod(shape) if stop is None else stop
        for first in range(start, stop, most):
            last = min(first + most, stop)
            yield self._with({name: span(column, first, last) for name, column in columns.items()})

    def described(self, start: int, stop: int) -> tuple[Self, int]:
        """Return an operator of few numbers that has some points of a sweep, and the place of the first of them.

        Of arrays that vary along the first axis it has the rows of these points, the others are whole: of ``m`` of
        shape [M, 1] and ``n`` of shape [N], a few sizes m and all sizes n. Where that is more than the points
        themselves, it has these.
        """
        arrays, shape = self._arrays(), self.shape
        row = math.prod(shape[1:])
        first, last = start // row, (stop - 1) // row + 1
        found = {
            name: value[first:last] if value.shape[:1] == shape[:1] and value.ndim == len(shape) else value
            for name, value in arrays.items()
        }
        if sum(value.size for value in found.values()) <= len(found) * (stop - start):
            return self._with(found), start - first * row
        return next(self.parts(stop - start, start, stop)), 0

    def _arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return the dimensions that are arrays; what an operator keeps of its own results is none."""
        found = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray) and value.ndim}
        return {name: found[name] for name in found if name in _declared(type(self))} if found else found

    @property
    def settings(self) -> tuple[Any, ...]:
        """The operator's class and all that is said of it but sizes and other numbers, count and label."""
        kept: tuple[Any, ...] | None = self.__dict__.get("_settings")
        if kept is None:
            kept = self.__dict__["_settings"] = (type(self), _settings_of(type(self))(self.__dict__))
        return kept

    def repeated(self, count: Number) -> Self:
        """Return the same call ``count`` times; in a sweep as often at each point as its array says."""
        return self._with({"count": count}) if np.ndim(count) else self.changed(count=int(count))

    def _with(self, arrays: Mapping[str, Any]) -> Self:
        """Return the operator with the arrays of some of its points."""
        part = object.__new__(type(self))
        names = [item.name for item in dataclasses.fields(self)]
        vars(part).update({name: vars(self)[name] for name in (*names, "_derived") if name in vars(self)})
        vars(part).update(arrays)
        return part

    @abc.abstractmethod
    def flop(self) -> Number:
        """Return the floating-point operations of one call [FLOP]. A fused multiply-add is 2."""

    @property
    def kernel_dtype(self) -> str:
        """The dtype that decides which of a family's kernels runs: that of the weights where they are narrower."""
        return self.dtype

    def least_flop(self) -> Number:
        """Return the FLOP that every known algorithm needs, where that is less than the conventional count [FLOP]."""
        return self.flop()

    @abc.abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """Return the tensors that one call reads and writes."""

    def buffers(self) -> tuple[Tensor, ...]:
        """Return the tensors as a benchmark holds them: whole tables where a call touches a part of them."""
        return self.tensors()

    def index_limit(self, name: str) -> Number:
        """Return what the whole numbers of an input tensor stay below: the rows of the table that they point into."""
        return 1

    def link_traffic(self) -> Mapping[str, Number]:
        """Return the bytes that cross links to other devices or the host, by link name [B]."""
        return {}

    def composition(self) -> tuple[Operator, ...]:
        """Return the operators that run one after another instead of this one; empty for a single kernel."""
        return ()

    def composition_in(self, library: str) -> tuple[Operator, ...]:
        """Return the operators that a library runs one after another, where it has no kernel for this one."""
        return self.composition()

    def calls(self) -> Number:
        """Return how many calls of a framework it takes, one after another: what the host has to dispatch."""
        return 1.0

    def work(self) -> Work:
        """Return FLOP, traffic and working set; that of a single call is counted once."""
        return self.counted()[1]

    def counted(self) -> tuple[tuple[Tensor, ...], Work]:
        """Return the tensors, and what they and the FLOP make; those of a single call are listed and counted once."""
        kept: tuple[tuple[Tensor, ...], Work] | None = self.__dict__.get("_counted")
        if kept is None:
            tensors = self.tensors()
            kept = tensors, Work.from_tensors(self.flop(), tensors)
            if type(kept[1].working_set_bytes) is float:  # arrays would stay for as long as the operator does
                self.__dict__["_counted"] = kept
        return kept

    def once(self, name: str, find: Callable[[], Number]) -> Number:
        """Return a number that takes some time to find; that of a single call is found once, and kept by its name."""
        kept: Number | None = self.__dict__.get(name)
        if kept is None:
            kept = find()
            if type(kept) is float:
                self.__dict__[name] = kept
        return kept

    def params(self) -> dict[str, Any]:
        """Return the operator's dimensions by name, without dtype, name and count.

        Those that were neither given nor derived are left out, as are quiet ones at their default (``backward``).
        """
        quiet, skipped = self._quiet(), _NOT_DIMENSIONS if self.engine != "auto" else _NOT_DIMENSIONS | {"engine"}
        values = {name: getattr(self, name) for name in self.dimensions() if name not in skipped}
        return {
            name: value
            for name, value in values.items()
            if value is not None and not (name in quiet and same(value, quiet[name]))
        }

    @classmethod
    @functools.cache
    def _quiet(cls) -> dict[str, Any]:
        """Return the parameters that are no dimensions of a call at their defaults, with these."""
        return {name: rules["default"] for name, rules in cls.dimensions().items() if rules.get("quiet")}

    def given(self) -> tuple[str, ...]:
        """Return the names of the parameters that tables show: those that were given and are not defaults."""
        rules = self.dimensions()
        return tuple(
            name
            for name, value in self.params().items()
            if rules[name].get("always_shown")
            or (name not in self._derived and (isinstance(value, np.ndarray) or value != rules[name]["default"]))
        )

    @classmethod
    @functools.cache
    def dimensions(cls) -> dict[str, Mapping[str, Any]]:
        """Return every parameter with its kind, rules, documentation and default."""
        return {f.name: {**f.metadata, "default": f.default} for f in dataclasses.fields(cls)}

    def changed(self, **values: Any) -> Self:
        """Return the operator with some parameters changed; derived ones are derived again.

        Raises
        ------
        UsageError
            When the changed operator breaks a rule of its dimensions.
        """
        given = {name: getattr(self, name) for name in self.dimensions() if name not in self._derived}
        return type(self)(**(given | values))

    def derive(self, **values: Any) -> None:
        """Set those dimensions among ``values`` that were not given; for `check`."""
        missing = {name: values[name] for name in values if is_unset(self.__dict__[name])}
        self.__dict__.update(missing, _derived=frozenset(missing))


def _hashed(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return value.shape or value.item()  # an array of one number is equal to the number


@functools.cache
def _checks(kind: type[Operator]) -> tuple[tuple[str, Callable[..., Any], Mapping[str, Any], Any], ...]:
    """Return name, check and rules of each of an operator's parameters, and its default where that needs no check."""
    return tuple(map(_check_of, dataclasses.fields(kind)))


@functools.cache
def _check_of(item: dataclasses.Field[Any]) -> tuple[str, Callable[..., Any], Mapping[str, Any], Any]:
    """Return the part of `_checks` for one parameter, which all operators may share."""
    check, rules, default = CHECKS[item.metadata["kind"]], item.metadata, item.default
    if default is not dataclasses.MISSING:
        with contextlib.suppress(UsageError):  # a wrong default gets its message where it is used
            default = default if check("", item.name, default, rules) is default else dataclasses.MISSING
    return item.name, check, rules, default


@functools.cache
def _settings_of(kind: type[Operator]) -> Callable[[Mapping[str, Any]], Any]:
    """Return the function that picks an operator's parameters that are neither numbers nor its label."""
    others = ("size", "number", "count", "label")
    return operator.itemgetter(*(i.name for i in dataclasses.fields(kind) if i.metadata["kind"] not in others))


@functools.cache
def _declared(kind: type[Operator]) -> frozenset[str]:
    """Return the names of an operator's dimensions, label and count."""
    return frozenset(item.name for item in dataclasses.fields(kind))

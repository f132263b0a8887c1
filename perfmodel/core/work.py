"""The counted work of an operator: its tensors, the bytes that follow from them, and FLOP.

An operator declares the tensors that it reads and writes. Bytes moved and the working set are derived from them here,
and the same tensors build the inputs of a benchmark, so that no count is written twice.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.dtypes import DTYPE_BYTES, dtype_bytes
from perfmodel.core.record import record
from perfmodel.errors import UsageError

#: a count or a size: a number, or an array of numbers in a sweep, float64 but for arguments
Number = float | NDArray[Any]
#: a name, or an array of names in a sweep
Text = str | NDArray[np.str_]


# numpy takes ten times as long as Python for one point. A formula written with the functions below runs on scalars and
# arrays alike, and stays fast for a single call.


def plain(value: Number | np.float64) -> Number:
    """Return a float for a scalar or 0-d array, the array itself otherwise."""
    if type(value) is float:
        return value
    if isinstance(value, float):
        return float(value)
    return float(value) if np.ndim(value) == 0 else np.asarray(value)


def number_array(value: Any) -> NDArray[Any] | None:
    """Return the array that NumPy makes of numbers of any kind; None for what holds something else.

    Something else are lists of unequal lengths, switches, dates and texts.
    """
    try:
        array = np.asarray(value)
        if array.dtype == object and all(isinstance(item, (int, float)) for item in array.flat):
            array = array.astype(np.float64)  # whole numbers that no integer of NumPy holds
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None
    return array if array.dtype.kind in "iuf" or not array.size else None


def as_floats(name: str, value: Any) -> NDArray[np.float64]:
    """Return an argument, a number or several, as float64.

    Raises
    ------
    UsageError
        When it is something else.
    """
    array = number_array(value)
    if array is None:
        raise UsageError(f"{name}={reprlib.repr(value)} is no number.", remedy="Give a number, or an array of them.")
    return array.astype(np.float64, copy=False)


def arguments(place: str, **values: Any) -> tuple[NDArray[np.float64], ...]:
    """Return arguments of one formula, each a number or several, as float64.

    Raises
    ------
    UsageError
        When one is something else, or they are arrays that cannot be broadcast together.
    """
    arrays = {name: as_floats(name, value) for name, value in values.items()}
    check_shapes(place, {name: array.shape for name, array in arrays.items() if array.ndim})
    return tuple(arrays.values())


def check_shapes(place: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise a UsageError unless arrays, given by name and shape, can be broadcast together."""
    try:
        np.broadcast_shapes(*shapes.values())
    except ValueError:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise UsageError(
            f"the arrays cannot be broadcast together: {listed}.",
            place=place,
            remedy="Give arrays of one shape, or of shapes that numpy can broadcast.",
        ) from None


def same(value: Any, other: Any) -> bool:
    """Return whether two values are equal: arrays in their shape and all numbers, mappings in their keys and values."""
    if isinstance(value, np.ndarray) or isinstance(other, np.ndarray):
        return np.shape(value) == np.shape(other) and np.array_equal(value, other)
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return value.keys() == other.keys() and all(same(value[key], other[key]) for key in value)
    return bool(value == other)


def plain_ints(made: object, names: Iterable[str]) -> None:
    """Replace NumPy's whole numbers in some fields of a frozen dataclass by Python's; others stay as they are."""
    for name in names:
        value = getattr(made, name)
        if isinstance(value, np.integer):
            object.__setattr__(made, name, int(value))


#: found in half of the time that ``np.ndarray`` takes
_ARRAY = np.ndarray
#: types of single numbers
_SINGLE = frozenset({int, float, np.float64})


def maximum(a: Number, b: Number) -> Number:
    """Return the larger of two, element by element; NaN where either is NaN, as `numpy.maximum`."""
    if type(a) is not float or type(b) is not float:
        if type(a) not in _SINGLE or type(b) not in _SINGLE:
            return np.maximum(a, b)
        a, b = float(a), float(b)
    return a if a >= b or a != a else b  # only NaN differs from itself


def raised(value: Number, least: Number) -> Number:
    """Return what `maximum` does, in the memory of ``value`` where that is an array, which nothing else may use."""
    if type(value) is float and type(least) is float:
        return value if value >= least or value != value else least
    return np.maximum(value, least, out=value if isinstance(value, np.ndarray) else None)


def minimum(a: Number, b: Number) -> Number:
    """Return the smaller of two, element by element; NaN where either is NaN, as `numpy.minimum`."""
    if type(a) is not float or type(b) is not float:
        if type(a) not in _SINGLE or type(b) not in _SINGLE:
            return np.minimum(a, b)
        a, b = float(a), float(b)
    return a if a <= b or a != a else b  # only NaN differs from itself


def clipped(value: Number, least: Number, most: Number) -> Number:
    """Return a value, or the nearer of two limits where it lies beyond them, element by element, as `numpy.clip`."""
    if type(value) in _SINGLE and type(least) in _SINGLE and type(most) in _SINGLE:
        return minimum(maximum(value, least), most)
    between: NDArray[np.float64] = np.clip(value, least, most)
    return between


def ceil(value: Number) -> Any:
    """Return the least whole number that is not below a finite value, element by element, as `numpy.ceil`."""
    return float(math.ceil(value)) if type(value) in _SINGLE else np.ceil(value)


def floor(value: Number) -> Any:
    """Return the largest whole number that is not above a finite value, element by element, as `numpy.floor`."""
    return float(math.floor(value)) if type(value) in _SINGLE else np.floor(value)


def log2(size: Number) -> Number:
    """Return the binary logarithm of a size, element by element; nothing has less than one element."""
    if not isinstance(size, np.ndarray):
        return math.log2(size) if size > 1.0 else 0.0
    least: NDArray[np.float64] = np.maximum(size, 1.0)
    return np.log2(least, out=least)


class Functions(NamedTuple):
    """What a formula asks for very often, chosen once for what it works on: a number, or arrays.

    Of arrays ``raised`` works in the memory of the first; the whole numbers of a number are Python's own.
    """

    ceil: Callable[[Any], Any]
    floor: Callable[[Any], Any]
    raised: Callable[[Any, Any], Any]
    lowered: Callable[[Any, Any], Any]
    number: Callable[[Any], Any]


def where(mask: Any, a: Any, b: Any) -> Any:
    """Return ``a`` where the mask holds and ``b`` elsewhere, as `numpy.where`; for a single mask one of the two."""
    if isinstance(mask, (bool, np.bool_)):
        return a if mask else b
    return np.where(mask, a, b)


def number(mask: Any) -> Any:
    """Return 1.0 where a mask holds and 0.0 elsewhere."""
    return mask.astype(np.float64) if isinstance(mask, np.ndarray) else float(mask)


def _larger(value: float, least: float) -> float:
    """Return the larger of two numbers, none of which is NaN, in a third of the time that `max` takes."""
    return value if value >= least else least


def _smaller(value: float, most: float) -> float:
    """Return the smaller of two numbers in a third of the time that `min` takes."""
    return value if value <= most else most


OF_ONE = Functions(math.ceil, math.floor, _larger, _smaller, float)
OF_MANY = Functions(np.ceil, floor, raised, minimum, number)


def product_of(values: Iterable[Number]) -> Number:
    """Return the product of some numbers in float64, since int64 overflows silently; no array is multiplied by 1.

    >>> product_of((2, 3))
    6.0
    >>> product_of(np.array([2**40]) for _ in range(2))
    array([1.20892582e+24])
    """
    product: Number = 1.0
    for value in values:
        if type(value) is _ARRAY and value.dtype == np.float64 and type(product) is float and product == 1.0:
            product = value
        else:
            product = product * value
    return product


def anywhere(mask: bool | Number | NDArray[np.bool_]) -> bool:
    """Return whether a mask holds, or a number is not 0, for any point."""
    return bool(mask.any()) if isinstance(mask, _ARRAY) else bool(mask)


def everywhere(mask: bool | NDArray[np.bool_]) -> bool:
    """Return whether a mask holds for all points."""
    return bool(mask.all()) if isinstance(mask, _ARRAY) else bool(mask)


def largest(size: Number) -> Number:
    """Return the largest number of all points."""
    return float(size.max()) if isinstance(size, np.ndarray) else size


def common_divisor(a: Number, b: Number) -> Number:
    """Return the greatest common divisor of two whole numbers, element by element, as `numpy.gcd`.

    >>> common_divisor(12.0, 18)
    6.0
    """
    if type(a) in _SINGLE and type(b) in _SINGLE:
        return float(math.gcd(int(a), int(b)))
    return np.gcd(np.asarray(a, np.int64), np.asarray(b, np.int64)).astype(np.float64)


#: how often most tensors are read, or written; this very number is known without a look at its value
NEVER = 0.0


class Tensor(NamedTuple):
    """One tensor of an operator, and how often it crosses device memory; a tuple, since all calls make some.

    Attributes
    ----------
    name : the tensor's name within the operator ("a", "scores").
    shape : its dimensions; each a number or an array of numbers.
    dtype : canonical dtype.
    reads, writes : how many times the whole tensor is read from and written to device memory. The
        compulsory traffic is one read of every input and one write of every output.
    repeated : how many of the reads and writes a cache may serve, so that no floor counts them: a kernel may find in
        L2 what another of its passes has read, or leave there what the next pass reads and overwrites. Writes are
        among them as far as they exceed the reads.
    """

    name: str
    shape: tuple[Any, ...]
    dtype: str
    reads: Number = NEVER
    writes: Number = NEVER
    repeated: Number = NEVER

    @classmethod
    def input(cls, name: str, shape: Sequence[Any], dtype: str) -> Tensor:
        """A tensor that is read once."""
        return tuple.__new__(cls, (name, tuple(shape), dtype, 1.0, NEVER, NEVER))  # half the time of `__new__`

    @classmethod
    def output(cls, name: str, shape: Sequence[Any], dtype: str) -> Tensor:
        """A tensor that is written once."""
        return tuple.__new__(cls, (name, tuple(shape), dtype, NEVER, 1.0, NEVER))

    @classmethod
    def intermediate(cls, name: str, shape: Sequence[Any], dtype: str) -> Tensor:
        """A tensor that is written to device memory by one kernel and read back by the next."""
        return tuple.__new__(cls, (name, tuple(shape), dtype, 1.0, 1.0, NEVER))

    def inner(self, name: str) -> Tensor:
        """Return the tensor as one between the kernels of a call: a cache may hold it, so that no floor counts it."""
        return self._replace(name=name, repeated=self.reads + self.writes)

    @property
    def numel(self) -> Number:
        """Number of elements; float64, since int64 products overflow silently."""
        return product_of(self.shape)

    @property
    def size_bytes(self) -> Number:
        """Size in memory [B]."""
        return product_of(self.shape) * dtype_bytes(self.dtype)


@record
class Work:
    """The counted work of one call of an operator.

    Attributes
    ----------
    flop : floating-point operations, a fused multiply-add counted as 2 [FLOP].
    bytes_read, bytes_written : traffic to device memory when nothing is cached [B].
    working_set_bytes : size of all tensors together [B].
    repeated_bytes : bytes among those read and written that a cache may serve [B].
    repeated_written_bytes : those of them that are written [B].
    """

    flop: Number
    bytes_read: Number
    bytes_written: Number
    working_set_bytes: Number
    repeated_bytes: Number = 0.0
    repeated_written_bytes: Number = 0.0

    @property
    def bytes(self) -> Number:
        """Traffic to device memory, both directions [B]."""
        return self.bytes_read + self.bytes_written

    @property
    def least_bytes(self) -> Number:
        """Traffic without what a cache may serve [B]: the compulsory traffic, which no cold call avoids."""
        return self.bytes - self.repeated_bytes if anywhere(self.repeated_bytes) else self.bytes

    @property
    def least_read_bytes(self) -> Number:
        """The part of `least_bytes` that is read [B]."""
        return self.bytes_read - (self.repeated_bytes - self.repeated_written_bytes)

    @property
    def least_written_bytes(self) -> Number:
        """The part of `least_bytes` that is written [B]."""
        return self.bytes_written - self.repeated_written_bytes

    @classmethod
    def from_tensors(cls, flop: Number, tensors: Sequence[Tensor]) -> Work:
        """Derive the traffic and the working set from the declared tensors."""
        read: Number = 0.0
        written: Number = 0.0
        total: Number = 0.0
        repeated: Number = 0.0
        again_written: Number = 0.0
        for _, shape, dtype, reads, writes, again in tensors:
            size = product_of(shape) * DTYPE_BYTES[dtype]
            if type(size) is float and again is NEVER:  # nearly every tensor of a single call
                total, read, written = total + size, read + reads * size, written + writes * size
                continue
            total = _added(total, size)
            if reads is not NEVER:
                read = _added(read, size, reads)
            if writes is not NEVER:
                written = _added(written, size, writes)
            if again is not NEVER:
                repeated = _added(repeated, size, again)
                if writes is not NEVER:  # reads are served first: what is written last has to arrive
                    again_written = _added(again_written, size, maximum(0.0, again - reads))
        return cls(flop, read, written, total, repeated, again_written)


def _added(moved: Number, size: Number, passes: Number = 1.0) -> Number:
    """Return bytes with those of some passes over a tensor; the usual numbers, none and one, multiply no array."""
    if type(size) is not float and type(passes) is float:
        if passes == 0.0:
            return moved
        if passes == 1.0:
            return size if type(moved) is float and moved == 0.0 else moved + size
    return moved + passes * size

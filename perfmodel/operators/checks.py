"""The checks of an operator's dimensions: each returns the value as the operator keeps it, or says what is wrong."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.dtypes import canonical_dtype
from perfmodel.core.units import FASTEST_NETWORK, SLOWEST_NETWORK, network_text, parse_network_rate, parse_quantity
from perfmodel.core.work import Number, anywhere, number_array
from perfmodel.errors import UsageError, unknown_name
from perfmodel.operators.scales import check_scale

#: the largest dimension: float64 represents all whole numbers up to here
LARGEST_SIZE = 2**53
#: an empty word, which Python has once
_EMPTY = ""
#: sizes that are checked at a time
_BLOCK = 2**15


def is_unset(value: Any) -> bool:
    """Return whether a dimension has its default of None, or an empty dtype."""
    return value is None or value is _EMPTY or (isinstance(value, str) and not value)


def _check_size(op: str, name: str, value: Any, rules: Mapping[str, Any]) -> Any:
    """Return a size as an int, or an array of sizes as float64.

    What NumPy makes an array of is one: tensors of torch, columns of a table, ranges. One without axes is a number.
    """
    if type(value) is int and rules["minimum"] <= value <= LARGEST_SIZE:
        return value  # nearly all are
    if value is None and rules["optional"]:
        return None
    if type(value) is not int and (isinstance(value, (list, tuple, range)) or hasattr(value, "__array__")):
        value = _as_array(op, name, value)
        if value.ndim:
            return _check_sizes(op, name, value, rules)
        value = value.item()
    if name == "bytes" and isinstance(value, str) and any(map(str.isdigit, value)):
        value = bytes_in(op, value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _bad_size(op, name, reprlib.repr(value), "is not a whole number")
    return int(_in_range(op, name, value, rules))


def bytes_in(op: str, text: str) -> float:
    """Return the bytes that a text states with their unit, as "1MiB".

    Raises
    ------
    UsageError
        For a text that is no number with a unit of bytes.
    """
    try:
        return parse_quantity(text, "B")
    except UsageError as error:
        raise UsageError(f"bytes={error.message}", place=op, remedy=error.remedy) from None


def _as_array(op: str, name: str, value: Any) -> NDArray[Any]:
    """Return numbers of any kind as an array.

    Raises
    ------
    UsageError
        For what holds something else than numbers.
    """
    array = number_array(value)
    if array is None:
        listed = isinstance(value, (list, tuple)) or getattr(value, "ndim", False)
        reason = "is not an array of whole numbers" if listed else "is not a whole number"
        raise _bad_size(op, name, reprlib.repr(value), reason)
    return array


def _in_range(op: str, name: str, value: Any, rules: Mapping[str, Any]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise _bad_size(op, name, str(value), "is not finite")
    if isinstance(value, float) and not value.is_integer():
        raise _bad_size(op, name, str(value), "is not a whole number")
    if value < rules["minimum"]:
        raise _bad_size(op, name, str(value), f"is below {rules['minimum']}", rules["minimum"])
    if value > LARGEST_SIZE:
        raise _bad_size(op, name, _shortened(value), "is above 2^53, the largest exact size")
    return value


def _shortened(value: float) -> str:
    """Return a number as text, one of many digits by its power of ten."""
    text = str(value)
    return text if len(text) <= 24 else f"{text[0]}.{text[1:3]}e{len(text) - 1}"


def _check_sizes(op: str, name: str, value: NDArray[Any], rules: Mapping[str, Any]) -> NDArray[np.float64]:
    array = value.astype(np.float64, copy=False)
    if array.size == 0:
        raise _bad_size(op, name, "[]", "contains no size")
    for part in _blocks(array):
        with np.errstate(invalid="ignore"):
            valid = (part >= rules["minimum"]) & (part <= LARGEST_SIZE) & (part == np.floor(part))
        if not valid.all():
            _in_range(op, name, float(part[~valid].flat[0]), rules)
    return array


def _blocks(array: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """Yield an array some rows at a time, so that what is compared stays in a processor's cache."""
    if array.size <= _BLOCK:
        yield array
        return
    rows = max(1, _BLOCK * len(array) // array.size)
    for start in range(0, len(array), rows):
        yield array[start : start + rows]


def _bad_size(op: str, name: str, value: str, reason: str, least: int = 1) -> UsageError:
    return UsageError(f"{name}={value} {reason}.", place=op, remedy=f"Write a whole number from {least} to 2^53.")


def _check_flag(op: str, name: str, value: Any, rules: Mapping[str, Any]) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise UsageError(f"{name}={value!r} is neither true nor false.", place=op)
    return bool(value)


def _check_choice(op: str, name: str, value: Any, rules: Mapping[str, Any]) -> str:
    if not isinstance(value, str) or value not in rules["allowed"]:  # an array of names is none of them
        raise unknown_name(name, str(value), rules["allowed"], place=op)
    return str(value)


def _check_dtype(op: str, name: str, value: Any, rules: Mapping[str, Any]) -> str:
    if is_unset(value) and rules["optional"]:
        return ""
    return canonical_dtype(value, place=op)


def _check_number(op: str, name: str, value: Any, rules: Mapping[str, Any]) -> float:
    valid = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not valid or not (math.isfinite(value) and value >= 0):
        raise UsageError(f"{name}={value!r} is not a number from 0 on.", place=op)
    return float(value)


def _check_scale(op: str, name: str, value: Any, rules: Mapping[str, Any]) -> str:
    return "" if is_unset(value) else check_scale(op, name, value)


def _check_rate(op: str, name: str, value: Any, rules: Mapping[str, Any]) -> str:
    """Return the rate of a network as text, which is how tables and records have it; "" where none is given."""
    if is_unset(value) and rules["optional"]:
        return ""
    given = value
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        value = network_text(float(value)) if 0 < value < math.inf else str(value)
    rate = parse_network_rate(value, place=f"{op}: {name}")
    if not SLOWEST_NETWORK <= rate <= FASTEST_NETWORK:
        remedy = "Write it as in '400Gb/s' or '50GB/s'; a number is in B/s."
        raise UsageError(f"{name}={given} is no rate of a GPU's network.", place=op, remedy=remedy)
    return network_text(rate)


def _check_label(op: str, name: str, value: Any, rules: Mapping[str, Any]) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name}={value!r} is not text.", place=op)
    return value


def _check_count(op: str, name: str, value: Any, rules: Mapping[str, Any]) -> Any:
    if np.ndim(value):
        raise UsageError(f"{name} must be a single number.", place=op)
    return _check_size(op, name, value, rules)


#: kind of a dimension -> its check
CHECKS = {
    "size": _check_size,
    "flag": _check_flag,
    "choice": _check_choice,
    "dtype": _check_dtype,
    "number": _check_number,
    "scale": _check_scale,
    "rate": _check_rate,
    "label": _check_label,
    "count": _check_count,
}


def first_point(wrong: Any, *sizes: Number) -> tuple[int, ...]:
    """Return the sizes of a sweep's first point at which something is ``wrong``, for a message.

    >>> first_point(np.array([False, True, True]), np.array([1.0, 2.0, 3.0]), 4)
    (2, 4)
    """
    place = int(np.argmax(np.asarray(wrong) != 0))
    return tuple(int(np.broadcast_to(value, np.shape(wrong)).flat[place]) for value in sizes)


def check_causal(op: Any) -> None:
    """Check that causal attention has no more queries than keys.

    Raises
    ------
    UsageError
        ``seq_kv`` below ``seq_q``; the message names the first such point.
    """
    if op.causal and anywhere(short := op.seq_kv < op.seq_q):
        keys, queries = first_point(short, op.seq_kv, op.seq_q)
        raise UsageError(
            f"seq_kv={keys} is below seq_q={queries} in causal attention.",
            place=op.op,
            remedy="The queries are the last positions of the sequence, so seq_kv is at least seq_q.",
        )


def check_groups(op: str, remedy: str, **sizes: Number) -> None:
    """Refuse a size that no whole groups make up; of a sweep the message has the first point that is wrong.

    Parameters
    ----------
    op, remedy : the operator, and what its groups are.
    sizes : the whole, and what has to divide it, by name.

    Raises
    ------
    UsageError
        The former are not a multiple of the latter.
    """
    (name, total), (other, groups) = sizes.items()
    rest = total % groups
    if anywhere(rest):
        found, of = first_point(rest, total, groups)
        raise UsageError(f"{name}={found} is not a multiple of {other}={of}.", place=op, remedy=remedy)

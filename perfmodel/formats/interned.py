"""Values as numbers, so that a million events share one list of names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from perfmodel.formats.packed import ints
from perfmodel.profile.timeline import Ints

_Value = TypeVar("_Value")


class Interned(dict[_Value, int], Generic[_Value]):
    """Value -> number, counted from 0 in the order of first appearance.

    >>> names = Interned[str]()
    >>> names["gemm"], names["copy"], names["gemm"], tuple(names)
    (0, 1, 0, ('gemm', 'copy'))
    """

    def __missing__(self, value: _Value) -> int:
        number = self[value] = len(self)
        return number

    def numbers(self, values: Iterable[_Value]) -> Ints:
        """Return the number of each value."""
        return ints(list(map(self.__getitem__, values)))

"""Frozen dataclasses that are quick to make."""

import copy
import pickle
import re
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from perfmodel.core.record import quick_init, record


@record
class Pair:
    first: float
    second: float = 2.0
    rest: list[float] = field(default_factory=list)


def test_a_record_is_made_as_a_dataclass_is() -> None:
    assert (Pair(1.0), Pair(1.0, second=3.0, rest=[4.0])) == (Pair(1.0, 2.0, []), Pair(1.0, 3.0, [4.0]))
    assert Pair(1.0).rest is not Pair(1.0).rest


@pytest.mark.parametrize("values", [{}, {"first": 1.0, "third": 2.0}])
def test_a_missing_or_unknown_field_is_an_error(values: dict[str, float]) -> None:
    with pytest.raises(TypeError):
        Pair(**values)


def test_a_refused_call_gets_the_error_of_its_class() -> None:
    def refuse(kind: type, given: Mapping[str, object]) -> Exception:
        return ValueError(f"{kind.__name__}: {dict(given)}")

    @dataclass(frozen=True, kw_only=True)
    class Shape:
        rows: int
        cols: int = 1

        def __post_init__(self) -> None:
            self.__dict__["cols"] = -self.cols

    usual = Shape(rows=2)
    quick_init(Shape, refuse=refuse)
    assert Shape(rows=2) == usual
    with pytest.raises(ValueError, match=re.escape("Shape: {'cols': 3}")):
        Shape(cols=3)
    with pytest.raises(ValueError, match=re.escape("Shape: {'rows': 2, 'cols': 1, 'depth': 3}")):
        Shape(rows=2, depth=3)
    with pytest.raises(ValueError, match=re.escape("Shape: {'rows': 2, 'cols': 1}")):
        Shape(2, rows=2)


def test_fields_may_have_any_name() -> None:
    """Also those that an `__init__` might use itself."""

    @record
    class Odd:
        values: int
        MISSING: int
        refuse: int = 3
        type: int = 4
        given: list[int] = field(default_factory=list)

    assert vars(Odd(1, 2)) == {"values": 1, "MISSING": 2, "refuse": 3, "type": 4, "given": []}


def test_a_record_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Pair(1.0).first = 2.0  # type: ignore[misc]


def test_a_record_can_be_replaced_copied_and_sent() -> None:
    one = Pair(1.0, rest=[5.0])
    assert replace(one, second=7.0) == Pair(1.0, 7.0, [5.0])  # type: ignore[type-var]
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one

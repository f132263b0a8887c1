"""Numbers and arrays through the same functions: what is quicker for one point says what numpy says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perfmodel.core.dtypes import DTYPE_BYTES
from perfmodel.core.work import Number, Tensor, Work, anywhere, maximum, minimum, plain, raised, where

any_float = st.floats(allow_nan=True, allow_infinity=True)


@given(any_float, any_float)
@example(math.nan, 1.0)
@example(1.0, math.nan)
@example(math.nan, math.nan)
@example(math.inf, math.nan)
def test_the_larger_and_the_smaller_are_numpys(a: float, b: float) -> None:
    for ours, numpys in ((maximum, np.maximum), (minimum, np.minimum)):
        one, many = ours(a, b), ours(np.array([a, a]), b)
        assert one == numpys(a, b) or (math.isnan(one) and math.isnan(numpys(a, b)))
        np.testing.assert_array_equal(many, numpys([a, a], b))


def test_a_single_mask_chooses_one_of_two_values_and_an_array_point_by_point() -> None:
    assert where(True, "left", "right") == "left"
    assert where(np.float64(1.0) > 2.0, 1.0, 2.0) == 2.0
    assert where(np.array([True, False]), 1.0, np.array([2.0, 3.0])).tolist() == [1.0, 3.0]


@pytest.mark.parametrize("mask", [True, False, np.bool_(True), np.array([False, True]), np.array([False, False])])
def test_anywhere_is_whether_a_point_holds(mask: bool | np.ndarray) -> None:
    assert anywhere(mask) is bool(np.any(mask))


@pytest.mark.parametrize("value", [2, 2.0, np.float64(2.0), np.array(2.0)])
def test_a_single_number_is_a_plain_float(value: float) -> None:
    assert type(plain(value)) is float
    assert plain(value) == 2.0


def test_traffic_and_working_set_follow_from_the_tensors() -> None:
    tensors = (
        Tensor.input("x", (2, 3), "fp16"),
        Tensor.input("index", (5,), "int64"),
        Tensor.intermediate("scores", (4,), "fp32"),
        Tensor.output("y", (7,), "fp8"),
    )
    work = Work.from_tensors(11.0, tensors)
    assert work.flop == 11.0
    assert work.bytes_read == 6 * 2 + 5 * 8 + 4 * 4
    assert work.bytes_written == 4 * 4 + 7
    assert work.bytes == work.bytes_read + work.bytes_written
    # what is written and read back takes its place only once
    assert work.working_set_bytes == 6 * 2 + 5 * 8 + 4 * 4 + 7
    assert Work.from_tensors(0.0, ()) == Work(0.0, 0.0, 0.0, 0.0)


def test_what_a_cache_may_serve_is_no_compulsory_traffic() -> None:
    tensors = (
        Tensor("x", (10,), "fp32", reads=3.0, repeated=2.0),
        Tensor.output("y", (5,), "fp32"),
        Tensor("between", (7,), "fp32", reads=2.0, writes=2.0, repeated=4.0),
        Tensor("kept", (3,), "fp32", reads=1.0, writes=2.0, repeated=2.0),
    )
    work = Work.from_tensors(0.0, tensors)
    assert (work.least_read_bytes, work.least_written_bytes) == (4 * 10, 4 * 5 + 4 * 3)
    assert work.least_bytes == work.least_read_bytes + work.least_written_bytes
    assert work.bytes == 4 * (3 * 10 + 5 + 4 * 7 + 3 * 3)


def test_each_pass_over_a_tensor_crosses_device_memory() -> None:
    work = Work.from_tensors(0.0, (Tensor("x", (3,), "fp32", reads=3.0, writes=2.0),))
    assert (work.bytes_read, work.bytes_written, work.working_set_bytes) == (36.0, 24.0, 12.0)


@given(st.lists(st.integers(1, 2**30), max_size=4), st.sampled_from(sorted(DTYPE_BYTES)))
def test_a_tensor_is_as_large_as_the_product_of_its_sides(shape: list[int], dtype: str) -> None:
    tensor = Tensor.input("x", shape, dtype)
    assert tensor.numel == pytest.approx(math.prod(shape))
    assert tensor.size_bytes == pytest.approx(math.prod(shape) * DTYPE_BYTES[dtype])
    sweep: Number = Tensor.input("x", (np.array([1.0, 2.0]), *shape), dtype).size_bytes
    np.testing.assert_allclose(sweep, [tensor.size_bytes, 2 * tensor.size_bytes])
    # Arrays of whole numbers, whose products in int64 overflow.
    np.testing.assert_allclose(Tensor.input("x", [np.array([n]) for n in shape], dtype).numel, 1.0 * math.prod(shape))


def test_raised_is_the_maximum_in_the_memory_of_its_first() -> None:
    values = np.array([1.0, 5.0, np.nan])
    expected = np.maximum(values, [2.0, 2.0, 2.0])
    found = raised(values, 2.0)
    assert found is values
    assert np.array_equal(values, expected, equal_nan=True)
    assert (raised(1.0, 2.0), raised(3.0, 2.0)) == (2.0, 3.0)
    assert np.array_equal(raised(1.0, np.array([0.0, 2.0])), [1.0, 2.0])

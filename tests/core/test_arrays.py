"""Different values and medians, against numpy's own."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.core.arrays import distinct, median

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9)


@given(values=NUMBERS)
def test_a_median_is_that_of_numpy(values: list[float]) -> None:
    assert median(np.array(values)) == np.median(values)


@given(values=st.lists(st.integers(-5, 5), max_size=9))
def test_different_values_are_those_of_numpy(values: list[int]) -> None:
    column = np.array(values, dtype=np.int64)
    assert distinct(column).tolist() == np.unique(column).tolist()

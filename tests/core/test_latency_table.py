"""The table of fitted constants: which dtypes it covers, and what holds for a library that it does not know."""

from __future__ import annotations

import pytest

from perfmodel.core.latency_table import LatencyTable


@pytest.mark.parametrize(
    ("fitted", "dtype", "covered"),
    [
        (("fp32",), "fp32", True),
        (("fp32",), "fp16", False),
        # the two 16-bit formats run at the same speed, so rows of one stand for the other
        (("bf16",), "fp16", True),
        (("fp16",), "bf16", True),
        (("bf16", "fp32"), "fp8", False),
        # a table that does not say what it was fitted on makes no difference between dtypes
        ((), "fp8", True),
    ],
)
def test_a_dtype_is_covered_by_rows_of_the_same_speed(fitted: tuple[str, ...], dtype: str, covered: bool) -> None:
    assert LatencyTable({"eta": 0.8}, dtypes=fitted).covers(dtype) is covered


def test_an_unknown_library_has_the_geometric_mean_of_the_others() -> None:
    """The error of a constant is a factor, so 2 and 8 average to 4 and not to 5."""
    table = LatencyTable({"eta": 0.8}, {"alpha": {"issue": 2.0, "eta": 0.1}, "beta": {"issue": 8.0}})
    assert table.without_library["issue"] == pytest.approx(4.0)
    # a constant that holds for every library stays as it is
    assert table.without_library["eta"] == 0.8
    assert dict(LatencyTable({"eta": 0.8}).without_library) == {"eta": 0.8}


def test_tables_are_values() -> None:
    assert LatencyTable({"eta": 0.8}) == LatencyTable({"eta": 0.8})
    assert LatencyTable({"eta": 0.8}) != LatencyTable({"eta": 0.9})

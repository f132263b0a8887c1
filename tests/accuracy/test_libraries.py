"""What rows tell of: a dtype of a single row is not known."""

from __future__ import annotations

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.accuracy.fit import Group
from perfmodel.accuracy.libraries import TELLING, dtypes
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.families import family
from perfmodel.prediction.latency.machine import Machine

MACHINE = Machine(100.0, 1e9, 4e14, "tensor", "bf16", 1e13, 1e13, 0.0, np.inf)


def rows(dtype: str, count: int) -> Group:
    sizes = np.arange(1.0, count + 1.0) * 64.0
    return Group(pm.Gemm(m=sizes, n=64, k=64, dtype=dtype), MACHINE, Conditions(), np.full(count, 1e-5))


@pytest.mark.parametrize(
    ("counts", "known"),
    [
        ({"bf16": 1000, "tf32": 1}, ("bf16",)),
        ({"bf16": 1000, "tf32": TELLING - 1, "fp16": TELLING}, ("bf16", "fp16")),
        ({"bf16": 6, "fp16": 6}, ("bf16", "fp16")),  # half of the rows of a user
        ({"bf16": 11, "fp16": 1}, ("bf16",)),
        ({"bf16": 1}, ("bf16",)),
    ],
)
def test_a_dtype_is_known_by_ten_rows_or_half_of_few(counts: dict[str, int], known: tuple[str, ...]) -> None:
    groups = [rows(dtype, count) for dtype, count in counts.items()]
    assert dtypes(family("gemm_bf16"), groups) == known


def test_rows_of_a_dtype_in_several_groups_count_together() -> None:
    assert dtypes(family("gemm_bf16"), [rows("bf16", 100), rows("fp16", 5), rows("fp16", 5)]) == ("bf16", "fp16")

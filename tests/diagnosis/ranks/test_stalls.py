"""When its exchanges keep a rank from computing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.diagnosis.intervals import union
from perfmodel.diagnosis.ranks.stalls import stalled


@pytest.mark.parametrize(
    ("compute", "expected"),
    [([], [[0.0, 10.0]]),
     ([[0.0, 10.0]], []),  # hidden
     ([[-1.0, 4.0], [10.0, 12.0]], [[4.0, 10.0]]),  # from when nothing is left to compute
     ([[-1.0, 4.0], [8.5, 12.0]], []),  # the rank computes on before the end: its host slept
     ([[-1.0, 4.0], [7.0, 7.1], [10.0, 12.0]], [[4.0, 10.0]]),  # small work does not end a wait
     ([[0.0, 1.0], [1.5, 2.5], [3.0, 4.0], [4.5, 5.5], [6.0, 7.0], [7.5, 10.0]], [])],  # pauses between kernels
)  # fmt: skip
def test_an_exchange_keeps_a_rank_from_when_it_has_nothing_left_to_compute(
    compute: list[list[float]], expected: list[list[float]]
) -> None:
    spans = np.array(compute).reshape(-1, 2)
    assert stalled(np.array([0.0]), np.array([10.0]), spans).tolist() == expected


@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(0, 20)), max_size=8),
    st.lists(st.tuples(st.floats(0, 50), st.floats(0, 20)), max_size=12),
)
def test_each_exchange_keeps_a_rank_until_its_end_or_not_at_all(
    spans: list[tuple[float, float]], work: list[tuple[float, float]]
) -> None:
    start_s = np.array([start for start, _ in spans])
    end_s = start_s + np.array([length for _, length in spans])
    computes = np.array([(start, start + length) for start, length in work]).reshape(-1, 2)
    compute = union(*computes.T)
    kept = stalled(start_s, end_s, compute)
    for low, high in kept.tolist():
        assert ((start_s <= low) & (end_s >= low)).any(), "it begins in an exchange"
        assert (end_s == high).any(), "it ends with one"
    # from any moment of a wait on, at most one part in four of the idle time is computed until the end of the exchange
    alone = stalled(start_s[:1], end_s[:1], compute)
    for low, high in alone.tolist():
        inside = np.clip(compute, low, high)
        computed_s = float((inside[:, 1] - inside[:, 0]).sum())
        assert 4 * computed_s <= (high - low - computed_s) * (1 + 1e-9) + 1e-9

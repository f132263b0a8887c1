"""Launching many kernels: reference case 9, and what bounds what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.prediction.launching import fused_time_s, graph_time_s, pipelined_time_s, serialised_time_s

_TIMES = st.floats(1e-7, 1e-2)


def test_a_hundred_kernels_of_50_us_and_launches_of_7_us():
    # reference case 9: 100 (50 + 7) = 5.7 ms; 7 + 100 x 50 = 5.007 ms fused; queued ahead the launches hide
    assert serialised_time_s(100, 50e-6, 7e-6) == pytest.approx(5.7e-3)
    assert fused_time_s(100, 50e-6, 7e-6) == pytest.approx(5.007e-3)
    assert serialised_time_s(100, 50e-6, 7e-6) / fused_time_s(100, 50e-6, 7e-6) == pytest.approx(1.14, abs=0.005)
    assert pipelined_time_s(100, 50e-6, 7e-6) / fused_time_s(100, 50e-6, 7e-6) == pytest.approx(1.0)


def test_short_kernels_are_launch_bound():
    # 7 + 99 x 7 + 5 = 705 us: the host sets the pace; from a graph 7 + 100 x 5 + 99 x 2 = 705 us by chance
    assert pipelined_time_s(100, 5e-6, 7e-6) == pytest.approx(705e-6)
    assert graph_time_s(100, 5e-6, 7e-6) == pytest.approx(705e-6)
    assert graph_time_s(100, 5e-6, 50e-6) < pipelined_time_s(100, 5e-6, 50e-6) / 6


@given(st.integers(1, 1000), _TIMES, _TIMES)
def test_fused_is_no_slower_than_queued_and_queued_no_slower_than_waiting(count, kernel_s, launch_s):
    fused, queued = fused_time_s(count, kernel_s, launch_s), pipelined_time_s(count, kernel_s, launch_s)
    assert fused <= queued * (1 + 1e-9)
    assert queued <= serialised_time_s(count, kernel_s, launch_s) * (1 + 1e-9)
    assert fused <= graph_time_s(count, kernel_s, launch_s)

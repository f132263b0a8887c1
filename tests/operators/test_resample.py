"""Interpolation and grids of samples: FLOP and traffic by hand."""

from __future__ import annotations

from typing import Any

import pytest

import perfmodel as pm

SIZES: dict[str, Any] = {"n": 2, "c": 3, "h": 8, "w": 8, "p": 16, "q": 16}


@pytest.mark.parametrize(("kind", "taps"), [("nearest", 1), ("linear", 4), ("cubic", 16)])
def test_counts_by_hand(kind: str, taps: int) -> None:
    op = pm.Resample(**SIZES, kind=kind)
    outputs = 2 * 3 * 256
    assert (op.axes, op.taps) == (2, taps)
    assert op.flop() == (2 * taps * outputs if taps > 1 else 0)
    assert (op.work().bytes_read, op.work().bytes_written) == (4 * 2 * 3 * 64, 4 * outputs)


def test_fewer_outputs_than_pixels_meet_as_many_as_they_have_taps() -> None:
    op = pm.Resample(n=1, c=1, h=100, w=100, p=10, q=10)
    assert op.work().bytes_read == 4 * 400
    whole = next(tensor for tensor in op.buffers() if tensor.name == "x")
    assert whole.size_bytes == 4 * 10_000


def test_a_grid_is_read_once_for_all_channels() -> None:
    op = pm.Resample(**SIZES, grid=True)
    assert op.work().bytes_read == 4 * (2 * 3 * 64 + 2 * 256 * 2)
    gradient = pm.Resample(**SIZES, grid=True, backward=True)
    # as many products again for each of two axes
    assert gradient.flop() == 3 * op.flop()
    assert gradient.work().bytes_written == 4 * (2 * 2 * 3 * 64 + 2 * 256 * 2)


def test_axes_are_those_that_are_longer_than_one() -> None:
    assert pm.Resample(c=1, w=8, q=16).taps == 2
    assert pm.Resample(c=1, d=2, w=8, o=4, q=16).taps == 8
    assert pm.Resample(c=1, w=8, q=16, axes=2).taps == 4, "an image of one row"

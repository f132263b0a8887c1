"""Pools of films: counts by hand, and those of images that they hold."""

from __future__ import annotations

from typing import Any

import pytest

import perfmodel as pm
from perfmodel.errors import UsageError

SIZES: dict[str, Any] = {"n": 2, "c": 3, "d": 4, "h": 6, "w": 8, "t": 2, "r": 2, "s": 2}


def test_counts_by_hand() -> None:
    op = pm.Pool3d(**SIZES)
    outputs = 2 * 3 * 2 * 3 * 4
    assert op.flop() == outputs * 7
    assert (op.work().bytes_read, op.work().bytes_written) == (4 * 8 * outputs, (4 + 8) * outputs)
    mean = pm.Pool3d(**SIZES, kind="mean", backward=True)
    assert mean.flop() == outputs * 9
    assert (mean.work().bytes_read, mean.work().bytes_written) == (4 * outputs, 4 * 8 * outputs)


@pytest.mark.parametrize(
    "more", [{}, {"stride": 1}, {"padding": 1}, {"kind": "mean"}, {"ceil_mode": True, "indices": False}]
)
def test_of_one_picture_it_is_a_pool_of_images(more: dict[str, Any]) -> None:
    image = pm.Pool2d(n=2, c=3, h=7, w=9, k=3, **more)
    each = {f"{name}_{axis}": value for name, value in more.items() if name in ("stride", "padding") for axis in "hw"}
    rest = {name: value for name, value in more.items() if name not in ("stride", "padding")}
    film = pm.Pool3d(n=2, c=3, d=1, h=7, w=9, t=1, r=3, s=3, **each, **rest)
    assert (film.flop(), film.work().bytes) == (image.flop(), image.work().bytes)


@pytest.mark.parametrize(
    ("more", "part"),
    [({"t": 5}, "t=5 does not fit d=4"), ({"padding_w": 2}, "padding_w=2 is above half of the window, s=")],
)
def test_what_does_not_fit_is_refused(more: dict[str, Any], part: str) -> None:
    with pytest.raises(UsageError) as raised:
        pm.Pool3d(**SIZES | more)
    assert part in str(raised.value)

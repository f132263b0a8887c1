"""Convolutions of films: counts by hand, and those of images that they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.errors import UsageError

#: 2 films of 4 channels, 5 pictures of 9 x 8 pixels
SIZES: dict[str, Any] = {"n": 2, "c": 4, "d": 5, "h": 9, "w": 8, "k": 6, "t": 3, "r": 3, "s": 3}
PADDED = {f"padding_{axis}": 1 for axis in "dhw"}


def test_counts_by_hand() -> None:
    op = pm.Conv3d(**SIZES, **PADDED)
    assert (op.o, op.p, op.q) == (5, 9, 8)
    assert op.flop() == 2 * 2 * 6 * (5 * 9 * 8) * 4 * 27
    assert op.work().bytes == 4 * (2 * 4 * 360 + 6 * 4 * 27 + 2 * 6 * 360)
    both = pm.Conv3d(**SIZES, **PADDED, backward=True)
    assert both.flop() == 2 * op.flop()
    # dy twice, x and the weights, and their gradients
    assert both.work().bytes == 4 * (2 * 2 * 6 * 360 + 2 * 2 * 4 * 360 + 2 * 6 * 4 * 27)
    assert [part.gradient for part in both.composition()] == ["input", "weight"]


def test_a_step_of_its_own_in_each_direction() -> None:
    op = pm.Conv3d(**SIZES, **PADDED, stride_h=2, stride_w=3, dilation_d=2)
    # d: 5 + 2 - 2 x 2 = 3; h: (9 + 2 - 3) // 2 + 1; w: (8 + 2 - 3) // 3 + 1
    assert (op.o, op.p, op.q) == (3, 5, 3)
    # a filter of one tap at every second row and third column meets those alone
    one = pm.Conv3d(**SIZES | {"t": 1, "r": 1, "s": 1}, stride_h=2, stride_w=3)
    assert one.work().bytes == 4 * (2 * 4 * 5 * 5 * 3 + 6 * 4 + 2 * 6 * 5 * 5 * 3)
    assert next(tensor for tensor in one.buffers() if tensor.name == "x").size_bytes == 4 * 2 * 4 * 360


@pytest.mark.parametrize("more", [{}, {"stride": 2}, {"dilation": 2}, {"padding": 1, "groups": 2}])
@pytest.mark.parametrize("backward", [False, True])
def test_of_one_picture_it_is_a_convolution_of_images(more: dict[str, int], backward: bool) -> None:
    image = pm.Conv2d(n=2, c=4, h=9, w=8, k=6, r=3, s=3, backward=backward, **more)
    each = {f"{name}_{axis}": more[name] for name in more if name != "groups" for axis in "hw"}
    film = pm.Conv3d(**SIZES | {"d": 1, "t": 1}, groups=more.get("groups", 1), backward=backward, **each)
    assert (film.flop(), film.work().bytes) == (image.flop(), image.work().bytes)


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ({"d": 2}, "a filter of 3 taps at dilation 1 does not fit 2 with padding 0 (d, t)"),
        ({"dilation_w": 4}, "(w, s)"),
        ({"groups": 3}, "groups=3"),
        ({"gradient": "input"}, "needs backward=true"),
    ],
)
def test_what_does_not_fit_is_refused(more: dict[str, Any], part: str) -> None:
    with pytest.raises(UsageError) as raised:
        pm.Conv3d(**SIZES | more)
    assert part in str(raised.value)


def test_its_time_is_that_of_images_with_as_many_products() -> None:
    h100 = pm.hardware("h100")
    film = {"n": 4, "c": 128, "k": 128, "h": 28, "w": 28, "r": 3, "s": 3, "dtype": "bf16"}
    padded = pm.Conv3d(**film, d=16, t=3, **PADDED)
    predicted = pm.predict(padded, h100)
    assert predicted.calibration == "never seen"
    assert float(predicted.predicted_time_s) > float(predicted.bound_time_s)
    # three times the channels under filters of 3 x 3 in 16 pictures each: the same product (n o p q) x k x (c t r s)
    images = pm.Conv2d(**film | {"n": 64, "c": 384}, padding=1)
    assert images.flop() == padded.flop()
    ratio = float(predicted.predicted_time_s / pm.predict(images, h100).predicted_time_s)
    assert 0.6 < ratio < 1.4
    depthwise = pm.predict(pm.Conv3d(**film | {"groups": 128}, d=16, t=3, **PADDED), h100)
    assert float(depthwise.bound_time_s) < float(depthwise.predicted_time_s) < 2 * float(predicted.predicted_time_s)


def test_arrays_are_their_elements() -> None:
    strides = np.array([1, 2, 3])
    together = pm.Conv3d(**SIZES, **PADDED, stride_d=strides)
    times = pm.predict(together, "h100").predicted_time_s
    for index, stride in enumerate(strides):
        alone = pm.Conv3d(**SIZES, **PADDED, stride_d=int(stride))
        assert (together.flop()[index], together.work().bytes[index]) == (alone.flop(), alone.work().bytes)
        assert times[index] == pytest.approx(float(pm.predict(alone, "h100").predicted_time_s))

"""Convolutions that are plain products, whose images are loaded by less than whole vectors where these do not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from perfmodel.core.work import Number, anywhere, ceil, maximum, minimum, where
from perfmodel.operators.conv2d import Conv2d
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.conv2d.parts import Sizes, plus
from perfmodel.prediction.latency.gemm import Product
from perfmodel.prediction.latency.gemm.alignment import ALIGNMENT, LOAD_CLOCKS, SIDES, STEP, beside, narrow_s
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import LAUNCH, Terms


def is_plain(conv: Conv2d) -> Any:
    """Return where a convolution is a plain product: filters of one tap, at every pixel."""
    return (conv.r == 1) & (conv.s == 1) & (conv.stride == 1) & (conv.padding == 0)


def plain_by_channels(
    conv: Conv2d, sizes: Sizes, of_group: Product, terms: Terms, machine: Machine, conditions: Conditions,
    split_s: float,
) -> Terms:  # fmt: skip
    """Return the terms of images by channels, with narrow loads where a plain product's rows begin off 16 bytes.

    62 images of 104 x 56 x 56 take 602 us with 971 filters in bf16 on an H200 (own record, torch 2.11.0, 2026-11-27, in
    view), a fifth less than a product of these sizes would, and 4 times what whole vectors would.
    """
    plain = is_plain(conv) & (conv.groups == 1)
    if conv.backward or not anywhere(plain):
        return terms
    product = replace(of_group, k=1.0 * sizes.channels)
    body = terms.time_s - terms.adds[LAUNCH]
    loaded = beside(body, narrow_s(product, machine, conditions.library, split_s)) - body
    return plus(terms, ALIGNMENT, where(plain, loaded, 0.0))


def pixels_s(product: Product, machine: Machine) -> Number:
    """Return the time of a product whose images are loaded pixel by pixel, without its launch [s].

    It is that of `perfmodel.prediction.latency.gemm.alignment`, an element a load whatever the alignment: 38 images of
    416 channels of 29 x 30, 30 x 30 and 31 x 30 pixels take 26 to 28 us with 40 filters on an H200 (25 to 27 so). The
    pipeline's fill is none: three products of 8 to 64 channels take 3.1 to 3.9 us (own record, torch 2.11.0,
    2026-11-27; all were in view).
    """
    least: Number = np.inf
    for side in SIDES:
        loads = minimum(product.m, side) + minimum(product.n, side)
        blocks = ceil(product.m / side) * ceil(product.n / side) * product.batch
        waves = maximum(1.0, blocks / machine.sm_count)  # an SM holds several, which share its issue slots
        least = minimum(least, waves * ceil(product.k / STEP) * STEP * loads * LOAD_CLOCKS / machine.clock_hz)
    return least

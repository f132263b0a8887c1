"""Convolutions of films and volumes: implicit products as those of images, with the constants fitted there.

Libraries compute them by the same implicit GEMM, whose filters have taps in one direction more (cuDNN API reference,
cudnnConvolutionForward: tensors of 4 and 5 dimensions). Winograd's algorithm and depthwise kernels of their own exist
for images alone. No table has a row of them, so that predictions are "never seen".
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from perfmodel.core.work import anywhere
from perfmodel.operators.base import Operator
from perfmodel.operators.conv2d import Conv2d
from perfmodel.operators.conv3d import Conv3d
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency import conv2d
from perfmodel.prediction.latency.constants import constants
from perfmodel.prediction.latency.conv2d.parts import Sizes, fastest, only
from perfmodel.prediction.latency.conv2d.products import direct, implicit
from perfmodel.prediction.latency.family import Constant, Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import Terms

SERVES = {"conv3d": ("conv3d",)}

CONSTANTS = (Constant("slower", "", 1.0, 0.5, 4.0, 0.3, "time over that of a convolution of images with as many taps"),)


def as_images(conv: Conv3d) -> Conv2d:
    """Return a convolution of images with as many outputs and taps: the pictures of a film lie one below another.

    Its products have the same sizes m, n and k; its images are as large as outputs and taps ask for.
    """
    taps = 1.0 * conv.t * conv.r
    return Conv2d(
        n=conv.n,
        c=conv.c,
        h=conv.o * conv.p + taps - 1.0,
        w=conv.q + conv.s - 1.0,
        k=conv.k,
        r=taps,
        s=conv.s,
        groups=conv.groups,
        dtype=conv.dtype,
        backward=conv.backward,
        gradient=conv.gradient,
    )


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of the implicit product, or of a direct kernel where each channel has filters of its own.

    The tensors that cross memory are those of the film itself.
    """
    conv = cast(Conv3d, op)
    images = as_images(conv)
    film = {tensor.name.removeprefix("d"): tensor.size_bytes for tensor in conv.counted()[0]}
    sizes = replace(Sizes.of(images), x=film["x"], weight=film["weight"], y=film["y"])
    values: Values = {constant.name: constant.default for constant in conv2d.FAMILY.all_constants}
    if machine.hardware is not None:
        values = constants(conv2d.FAMILY, machine.hardware, conditions.library, op.dtype).values
    depthwise = (conv.groups > 1) & (conv.groups == conv.c)
    algorithms = [implicit(images, sizes, machine, values, conditions)]
    if anywhere(depthwise):
        algorithms.append(only(depthwise, direct(images, sizes, machine, values)))
    terms = fastest(algorithms)
    return terms.times(c["slower"])


FAMILIES = (Family("conv3d", CONSTANTS, formula, conv2d.TERMS),)

"""Convolutions as matrix products, implicit or after im2col, and by direct kernels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perfmodel.core.hardware import Kernels
from perfmodel.core.work import Number
from perfmodel.operators.conv2d import Conv2d
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency import gemm
from perfmodel.prediction.latency.constants import constants
from perfmodel.prediction.latency.conv2d.parts import IM2COL, LAYOUT, Sizes, plus, with_memory
from perfmodel.prediction.latency.family import Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import LAUNCH, MATH, Terms

#: a direct kernel loads both factors of each product: this share of the vector peak
DIRECT = 0.125
#: bytes of neighbouring channels that a kernel for tensor cores loads at once: 8 in fp16, others are padded (NVIDIA
#: technical blog, "Tensor ops made easier in cuDNN")
VECTOR_BYTES = 16.0
#: (pixels, filters) of a block, read off the kernels' names in NeuSight's rows: scudnn_128x32, 128x64 and 128x128 of
#: implicit GEMMs; of the products of Winograd's tiles, sgemm_64x64 and 32x128
IMPLICIT_TILES = ((128, 32), (128, 64), (128, 128))
PRODUCT_TILES = ((64, 64), (32, 128))


def engine_of(
    machine: Machine, c: Values, conditions: Conditions, *, batched: bool
) -> tuple[Machine, dict[str, float]]:
    """Return the machine with the tiles of convolutions, and the constants of their matrix products.

    On tensor engines they are those of the machine's GEMMs. The kernel starts as one in 16 bits, without what scales
    inputs to 8 bits. MIOpen sets the fp32 sums of a split to zero and converts them in two more kernels.
    """
    family = gemm.family_of(machine)
    values = {constant.name: constant.default for constant in family.constants}
    if gemm.is_fp32(machine):
        # The sum is never split, and the rows of the unfolded matrix are gathered anyway.
        values |= {"math": c["product" if batched else "math"], "linear": 1.0, "split": 1.0, "stride": 1.0}
        values |= {"ragged": 1.0, "bounds": 1.0, "byte_energy": 0.0}
        values |= {name: c[name] for name in ("eta", "launch", "energy", "fill")}
        tiles = PRODUCT_TILES if batched else IMPLICIT_TILES
        # The unfolded matrix does not lie in memory, so that its rows cost nothing there.
        kernels = Kernels(gemm_tiles=tiles, gemm_batched_tiles=tiles)
        key = ("conv2d", batched)
        if key not in machine.cache:
            machine.cache[key] = replace(machine, kernels=kernels)
        return machine.cache[key], values
    if machine.hardware is not None:
        values |= constants(family, machine.hardware, conditions.library).values
        start = constants(gemm.GEMM_BF16, machine.hardware, conditions.library).values["start"]
    else:
        start = next(constant.default for constant in gemm.GEMM_BF16.constants if constant.name == "start")
    split = values["split"] + (2.0 * c["launch"] if machine.matrix_instruction == "mfma" else 0.0)
    return machine, {**values, "launch": start / machine.clock_hz, "split": split}


def implicit(conv: Conv2d, sizes: Sizes, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of one matrix product a group: implicit GEMM, or after a kernel that unfolds the images."""
    machine, values = engine_of(machine, c, conditions, batched=False)
    if conv.backward and conv.gradient == "weight":  # few filters and many pixels: the sum over these is split
        usual = {constant.name: constant.default for constant in gemm.family_of(machine).constants}
        values["split"] = min(values["split"], usual.get("split", gemm.VECTOR_SPLIT))
    vector = 1.0 if gemm.is_fp32(machine) else VECTOR_BYTES / sizes.size
    product = gemm.Product(*_product_sizes(conv, sizes, vector), conv.groups, sizes.size, sizes.size)
    speed = values["eta"] * machine.bandwidth_bytes_per_s
    if conv.algorithm == "im2col":
        unfolded = conv.tensors()[3].size_bytes
        unfold = (sizes.x + unfolded) / speed + values["launch"]
        return plus(gemm.product_terms(product, machine, values, conditions), IM2COL, unfold)
    # The unfolded matrix is built from data in the caches, so that x crosses memory once, and its copies do not.
    arithmetic = gemm.product_terms(product, machine, {**values, "eta": np.inf}, conditions)
    terms = with_memory(arithmetic, sizes.compulsory / speed)
    if conv.layout == "nhwc" or gemm.is_fp32(machine):
        return terms
    # A filter of one tap multiplies the images as they are.
    as_it_is = np.equal(conv.r, 1) & np.equal(conv.s, 1) & np.equal(conv.stride, 1) & np.equal(conv.padding, 0)
    transposes = 3.0 * c["launch"] + 2.0 * sizes.compulsory / speed
    return plus(terms, LAYOUT, np.where(as_it_is, 0.0, transposes))


def _product_sizes(conv: Conv2d, sizes: Sizes, vector: float) -> tuple[Number, Number, Number]:
    """Return m, n and k of a group's product; channels fill whole vectors of some elements.

    The gradient of the input has filters and channels in each other's place, that of the weights sums over pixels.
    """
    pixels = 1.0 * sizes.images * sizes.p * sizes.q
    channels, filters = sizes.channels / conv.groups, sizes.filters / conv.groups
    if not conv.backward:
        return pixels, filters, np.ceil(channels / vector) * vector * conv.r * conv.s
    if conv.gradient == "input":
        return pixels, channels, np.ceil(filters / vector) * vector * conv.r * conv.s
    return filters, channels * conv.r * conv.s, pixels


def direct(conv: Conv2d, sizes: Sizes, machine: Machine, c: Values) -> Terms:
    """Return the terms of a kernel that loads both factors of each product."""
    # The engine's own peak in fp64, which may be far below that of fp32.
    rate = DIRECT * np.fmin(machine.vector_flop_per_s, machine.peak_flop_per_s)
    math_s = conv.flop() / rate
    arithmetic = Terms({MATH: math_s, LAUNCH: c["launch"]}, {MATH: math_s})
    return with_memory(arithmetic, sizes.compulsory / (c["eta"] * machine.bandwidth_bytes_per_s))

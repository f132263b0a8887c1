"""Convolutions: the fastest of the algorithms that cuDNN has, each as a matrix product.

Implicit GEMM multiplies the unfolded images by the filters. Winograd's minimal filtering (Lavin and Gray 2016, arXiv
1509.09308) multiplies transformed tiles instead: F(2x2, 3x3) in one fused kernel does 2.25 times fewer
multiplications, F(4x4, 3x3) in separate kernels 4 times fewer, and moves the transformed tiles through memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number
from perfmodel.operators.base import Operator
from perfmodel.operators.conv2d import Conv2d
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.family import Constant, Family, Terms, Values, smooth_max
from perfmodel.prediction.latency.gemm import families as gemm
from perfmodel.prediction.latency.machine import Machine

CONSTANTS = (
    Constant("math", "", 0.75, 0.2, 1.0, 0.12, "share of the peak that the matrix products reach"),
    Constant("fused", "", 0.7, 0.1, 1.0, 0.25, "share of the peak that the fused Winograd kernel reaches"),
    Constant("eta", "", 0.8, 0.3, 1.0, 0.1, "share of the datasheet bandwidth"),
    Constant("launch", "s", 2.7e-6, 0.5e-6, 60e-6, 0.3, "start and drain of one kernel", True),
)

#: resources overlap as in the matrix products
POWER = gemm.POWER
#: a block of the fused kernel makes 32 tiles of 2 x 2 outputs for 32 filters: 16 products of 32 x 32 x c
FUSED_TILES, FUSED_FILTERS = 32.0, 32.0
#: images x rows x columns of outputs that the 32 tiles may lie in, by the names of cuDNN's kernels (tile148, ...);
#: Volta's and Turing's only has the first
FUSED_PATCHES = ((1, 8, 16), (2, 8, 8), (2, 4, 16), (4, 4, 8), (4, 2, 16))
#: length of c that the fused kernel's transforms take
FUSED_FILL = 20.0
#: outputs along one side of a tile of the separate Winograd kernels; its products see (4 + 2)^2 = 36 numbers
SIDE = 4.0
POINTS = (SIDE + 2.0) ** 2
#: a direct kernel loads both factors of each product: this share of the vector peak
DIRECT = 0.125


@dataclass(frozen=True)
class _Sizes:
    """The sizes of one convolution as arrays, and its tensors in bytes."""

    images: Number
    channels: Number
    filters: Number
    p: Number
    q: Number
    size: float
    x: Number
    weight: Number
    y: Number

    @classmethod
    def of(cls, op: Conv2d) -> _Sizes:
        x, weight, y = (tensor.size_bytes for tensor in op.tensors()[:3])
        return cls(op.n, op.c, op.k, op.p, op.q, dtype_bytes(op.dtype), x, weight, y)

    @property
    def compulsory(self) -> Number:
        """The tensors together [B]."""
        return self.x + self.weight + self.y


def terms(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of the fastest algorithm that can do the convolution.

    - implicit GEMM: (n p q) x (k / groups) x (c / groups r s), `groups` of them, with no split of the sum; memory
      sees each tensor once. "im2col" unfolds in a kernel before.
    - direct: every product from registers, at an eighth of the vector peak; fastest for depthwise filters.
    - Winograd, for 3 x 3 filters of stride and dilation 1 in one group on the vector engine: fused, blocks of 32
      tiles x 32 filters of 16 products; or 36 separate products (n p q / 16) x k x c, whose inputs and outputs pass
      through memory once more for the transforms.
    """
    conv = cast(Conv2d, op)
    sizes = _Sizes.of(conv)
    values = _product_values(machine, c)
    made = [_implicit(conv, sizes, machine, values, conditions)]
    if conv.algorithm == "implicit_gemm":
        made.append(_direct(conv, sizes, machine, c))
        can = conv.winograd() & (machine.engine == "vector")
        if np.any(can):
            made += [_only(can, t) for t in (_fused(sizes, machine, c), _separate(sizes, machine, values, conditions))]
    return _fastest(made)


def _product_values(machine: Machine, c: Values) -> dict[str, float]:
    """Return the constants of the matrix products: those of a GEMM, but without the split of the sum."""
    defaults = {x.name: x.default for x in gemm.family_of(machine).constants}
    return {**defaults, "math": c["math"], "eta": c["eta"], "launch": c["launch"], "linear": 1.0, "split": 1.0}


def _implicit(conv: Conv2d, sizes: _Sizes, machine: Machine, values: Values, conditions: Conditions) -> Terms:
    product = gemm.Product(
        1.0 * sizes.images * sizes.p * sizes.q,
        sizes.filters / conv.groups,
        sizes.channels / conv.groups * conv.r * conv.s,
        conv.groups,
        sizes.size,
        sizes.size,
    )
    if conv.algorithm == "im2col":
        unfolded = conv.tensors()[3].size_bytes
        unfold = (sizes.x + unfolded) / (values["eta"] * machine.bandwidth_bytes_per_s) + values["launch"]
        return _plus(gemm.product_terms(product, machine, values, conditions), "im2col", unfold)
    # The unfolded matrix is made of data that lie in the caches, so that memory sees x, not its copies.
    arithmetic = gemm.product_terms(product, replace(machine, bandwidth_bytes_per_s=np.inf), values, conditions)
    return _with_memory(arithmetic, sizes.compulsory / (values["eta"] * machine.bandwidth_bytes_per_s))


def _direct(conv: Conv2d, sizes: _Sizes, machine: Machine, c: Values) -> Terms:
    arithmetic = Terms({"math": conv.flop() / (DIRECT * machine.vector_flop_per_s), "launch": c["launch"]})
    return _with_memory(arithmetic, sizes.compulsory / (c["eta"] * machine.bandwidth_bytes_per_s))


def _fused(sizes: _Sizes, machine: Machine, c: Values) -> Terms:
    """Return the terms of F(2x2, 3x3) in one kernel, and of the kernel that transforms the filters before."""
    patches = FUSED_PATCHES if machine.generation.startswith("pascal") else FUSED_PATCHES[:1]
    spatial = np.minimum.reduce(
        [np.ceil(sizes.images / n) * np.ceil(sizes.p / p) * np.ceil(sizes.q / q) for n, p, q in patches]
    )
    waves = spatial * np.ceil(sizes.filters / FUSED_FILTERS) / machine.sm_count
    # 16 products of 32 x 32 x c, a multiply-add counted as 2
    rate = c["fused"] * machine.peak_flop_per_s / machine.sm_count
    wave = 2.0 * 16.0 * FUSED_TILES * FUSED_FILTERS * (np.ceil(sizes.channels / 8.0) * 8.0 + FUSED_FILL) / rate
    full = 32.0 * sizes.images * sizes.p * sizes.q / 4.0 * sizes.filters * sizes.channels
    ideal = full / (c["fused"] * machine.peak_flop_per_s)
    speed = c["eta"] * machine.bandwidth_bytes_per_s
    arithmetic = Terms(
        {
            "math": ideal,
            "tile waste": np.maximum(waves * wave - ideal, 0.0),
            "wave quantisation": (np.maximum(1.0, np.ceil(waves)) - waves) * wave,
            "launch": 2.0 * c["launch"],
        }
    )
    # 3 x 3 filters become 4 x 4
    made = _with_memory(arithmetic, (sizes.x + sizes.y + sizes.weight * 16.0 / 9.0) / speed)
    return _plus(made, "transforms", sizes.weight * (1.0 + 16.0 / 9.0) / speed)


def _separate(sizes: _Sizes, machine: Machine, values: Values, conditions: Conditions) -> Terms:
    """Return the terms of F(4x4, 3x3): transforms of images and filters, 36 products, transform of the outputs."""
    tiles = sizes.images * np.ceil(sizes.p / SIDE) * np.ceil(sizes.q / SIDE)
    product = gemm.Product(tiles, sizes.filters, sizes.channels, POINTS, sizes.size, sizes.size)
    made = gemm.product_terms(product, machine, values, conditions)
    moved = POINTS * tiles * (sizes.channels + sizes.filters) * sizes.size
    moved = moved + sizes.x + sizes.y + sizes.weight * (1.0 + POINTS / 9.0)
    return _plus(made, "transforms", moved / (values["eta"] * machine.bandwidth_bytes_per_s) + 3.0 * values["launch"])


def _with_memory(arithmetic: Terms, memory: Number) -> Terms:
    """Return arithmetic with what device memory, which works at the same time, adds to it."""
    total = arithmetic.time_s
    adds = _plus(arithmetic, "dram", np.maximum(smooth_max(POWER, total, memory) - total, 0.0)).adds
    return Terms(adds, {**arithmetic.alone, "dram": memory})


def _plus(made: Terms, name: str, time: Number) -> Terms:
    """Return terms with one more time."""
    return Terms({**made.adds, name: made.adds.get(name, 0.0) + time}, made.alone)


def _only(can: NDArray[np.bool_], made: Terms) -> Terms:
    """Return terms that never win where an algorithm cannot be used."""
    return Terms({**made.adds, "impossible": np.where(can, 0.0, np.inf)}, made.alone)


def _fastest(made: Sequence[Terms]) -> Terms:
    """Return, point by point, the terms of the fastest algorithm; a term that another one has is 0."""
    totals = np.stack(np.broadcast_arrays(*(one.time_s for one in made)))
    best = np.argmin(totals, axis=0)

    def chosen(parts: list[Number]) -> Number:
        return np.asarray(np.choose(best, [np.broadcast_to(part, best.shape) for part in parts]))

    names = dict.fromkeys(name for one in made for name in one.adds if name != "impossible")
    adds = {name: chosen([one.adds.get(name, 0.0) for one in made]) for name in names}
    alone = dict.fromkeys(name for one in made for name in one.alone)
    return Terms(adds, {name: chosen([one.alone.get(name, 0.0) for one in made]) for name in alone})


FAMILY = Family("conv2d", CONSTANTS, terms)

"""Convolutions: the fastest of the algorithms that cuDNN has, each as a matrix product.

Implicit GEMM multiplies the unfolded images by the filters. Winograd's minimal filtering (Lavin and Gray 2016, arXiv
1509.09308) multiplies transformed tiles instead: F(2x2, 3x3) in one fused kernel does 2.25 times fewer
multiplications, F(4x4, 3x3) in separate kernels 4 times fewer, and moves the transformed tiles through memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.vocabulary import Limiter
from perfmodel.core.work import Number
from perfmodel.operators.base import Operator
from perfmodel.operators.conv2d import Conv2d
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency import gemm
from perfmodel.prediction.latency.family import Constant, Family, Values
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import HBM, LAUNCH, MATH, TILE_WASTE, WAVES, Term, Terms, smooth_max

SERVES = {"conv2d": ("conv2d",)}

IM2COL = Term("im2col", Limiter.HBM, "unfolding the images in a kernel of its own")
TRANSFORMS = Term("transforms", Limiter.HBM, "Winograd's transforms of filters, images and outputs")
_IMPOSSIBLE = Term("impossible", Limiter.UNKNOWN, "an algorithm that cannot be used here")

CONSTANTS = (
    Constant("math", "", 0.75, 0.2, 1.0, 0.12, "share of the peak that the matrix products reach"),
    Constant("fused", "", 0.7, 0.1, 1.0, 0.25, "share of the peak that the fused Winograd kernel reaches"),
    Constant("eta", "", 0.8, 0.3, 1.0, 0.1, "share of the datasheet bandwidth"),
    Constant("launch", "s", 2.7e-6, 0.5e-6, 60e-6, 0.3, "start and drain of one kernel", True),
    Constant("energy", "J/FLOP", 3e-12, 1e-13, 1e-10, 0.15, "energy of an fp32 FLOP at the lowest voltage, in TSMC 4N"),
)
#: energy of a FLOP on a tensor engine over that of fp32: that of GEMMs, 0.58 pJ over 3 pJ
TENSOR_ENERGY = 0.2

#: resources overlap as in the matrix products
POWER = gemm.POWER
#: a block of the fused kernel makes 32 tiles of 2 x 2 outputs for 32 filters: 16 products of 32 x 32 x c
FUSED_TILES, FUSED_FILTERS = 32.0, 32.0
#: images x rows x columns of outputs that the 32 tiles lie in, where a specification states no others
FUSED_PATCHES = ((1, 8, 16),)
#: length of c that the fused kernel's transforms take
FUSED_FILL = 20.0
#: outputs along one side of a tile of the separate Winograd kernels; its products see (4 + 2)^2 = 36 numbers
SIDE = 4.0
POINTS = (SIDE + 2.0) ** 2
#: a direct kernel loads both factors of each product: this share of the vector peak
DIRECT = 0.125


@dataclass(frozen=True)
class _Sizes:
    """The sizes of a convolution, and of its tensors in bytes."""

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


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of the fastest algorithm that can do the convolution.

    - implicit GEMM: ``groups`` products (n p q) x (k / groups) x (c / groups r s), with no split of the sum; each
      tensor crosses memory once. "im2col" unfolds in a kernel before.
    - direct: every product from registers, at an eighth of the vector peak; fastest for depthwise filters.
    - Winograd, for 3 x 3 filters of stride and dilation 1 in one group on the vector engine: fused, blocks of 32
      tiles x 32 filters of 16 products; or 36 separate products (n p q / 16) x k x c, whose inputs and outputs pass
      through memory once more for the transforms.
    """
    conv = cast(Conv2d, op)
    sizes = _Sizes.of(conv)
    values = _product_values(machine, c)
    algorithms = [_implicit(conv, sizes, machine, values, conditions)]
    if conv.algorithm == "implicit_gemm":
        algorithms.append(_direct(conv, sizes, machine, c))
        can = conv.winograd() & (machine.engine == "vector")
        if np.any(can):
            winograd = (_fused(sizes, machine, c), _separate(sizes, machine, values, conditions))
            algorithms += [_only(can, terms) for terms in winograd]
    return _fastest(algorithms)


def _product_values(machine: Machine, c: Values) -> dict[str, float]:
    """Return the constants of the matrix products: those of a GEMM, but without the split of the sum."""
    defaults = {constant.name: constant.default for constant in gemm.family_of(machine).constants}
    own = {"math": c["math"], "eta": c["eta"], "launch": c["launch"], "linear": 1.0, "split": 1.0}
    return {**defaults, **own, "energy": c["energy"] * (1.0 if gemm.is_fp32(machine) else TENSOR_ENERGY)}


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
        return _plus(gemm.product_terms(product, machine, values, conditions), IM2COL, unfold)
    # The unfolded matrix is built from data in the caches, so that x crosses memory once, and its copies do not.
    arithmetic = gemm.product_terms(product, machine, {**values, "eta": np.inf}, conditions)
    return _with_memory(arithmetic, sizes.compulsory / (values["eta"] * machine.bandwidth_bytes_per_s))


def _direct(conv: Conv2d, sizes: _Sizes, machine: Machine, c: Values) -> Terms:
    arithmetic = Terms({MATH: conv.flop() / (DIRECT * machine.vector_flop_per_s), LAUNCH: c["launch"]})
    return _with_memory(arithmetic, sizes.compulsory / (c["eta"] * machine.bandwidth_bytes_per_s))


def _fused(sizes: _Sizes, machine: Machine, c: Values) -> Terms:
    """Return the terms of F(2x2, 3x3) in one kernel, and of the kernel that transforms the filters before."""
    patches = machine.kernels.winograd_patches or FUSED_PATCHES
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
            MATH: ideal,
            TILE_WASTE: np.maximum(waves * wave - ideal, 0.0),
            WAVES: (np.maximum(1.0, np.ceil(waves)) - waves) * wave,
            LAUNCH: 2.0 * c["launch"],
        }
    )
    # 3 x 3 filters become 4 x 4
    terms = _with_memory(arithmetic, (sizes.x + sizes.y + sizes.weight * 16.0 / 9.0) / speed)
    return _plus(terms, TRANSFORMS, sizes.weight * (1.0 + 16.0 / 9.0) / speed)


def _separate(sizes: _Sizes, machine: Machine, values: Values, conditions: Conditions) -> Terms:
    """Return the terms of F(4x4, 3x3): transforms of images and filters, 36 products, transform of the outputs."""
    tiles = sizes.images * np.ceil(sizes.p / SIDE) * np.ceil(sizes.q / SIDE)
    product = gemm.Product(tiles, sizes.filters, sizes.channels, POINTS, sizes.size, sizes.size)
    terms = gemm.product_terms(product, machine, values, conditions)
    moved = POINTS * tiles * (sizes.channels + sizes.filters) * sizes.size
    moved = moved + sizes.x + sizes.y + sizes.weight * (1.0 + POINTS / 9.0)
    return _plus(terms, TRANSFORMS, moved / (values["eta"] * machine.bandwidth_bytes_per_s) + 3.0 * values["launch"])


def _with_memory(arithmetic: Terms, memory: Number) -> Terms:
    """Return arithmetic with what device memory, which works at the same time, adds to it."""
    total = arithmetic.time_s
    adds = _plus(arithmetic, HBM, np.maximum(smooth_max(POWER, total, memory) - total, 0.0)).adds
    return Terms(adds, {**arithmetic.alone, HBM: memory})


def _plus(terms: Terms, name: Term, time: Number) -> Terms:
    """Return terms with one more time."""
    return Terms({**terms.adds, name: terms.adds.get(name, 0.0) + time}, terms.alone)


def _only(can: NDArray[np.bool_], terms: Terms) -> Terms:
    """Return terms that never win where an algorithm cannot be used."""
    return Terms({**terms.adds, _IMPOSSIBLE: np.where(can, 0.0, np.inf)}, terms.alone)


def _fastest(algorithms: Sequence[Terms]) -> Terms:
    """Return, point by point, the terms of the fastest algorithm; a term that only another one has is 0."""
    totals = np.stack(np.broadcast_arrays(*(terms.time_s for terms in algorithms)))
    best = np.argmin(totals, axis=0)

    def chosen(parts: list[Number]) -> Number:
        return np.asarray(np.choose(best, [np.broadcast_to(part, best.shape) for part in parts]))

    names = dict.fromkeys(name for terms in algorithms for name in terms.adds if name != _IMPOSSIBLE)
    adds = {name: chosen([terms.adds.get(name, 0.0) for terms in algorithms]) for name in names}
    alone = dict.fromkeys(name for terms in algorithms for name in terms.alone)
    return Terms(adds, {name: chosen([terms.alone.get(name, 0.0) for terms in algorithms]) for name in alone})


FAMILY = Family("conv2d", CONSTANTS, formula, (*gemm.PRODUCT_TERMS, IM2COL, TRANSFORMS))
FAMILIES = (FAMILY,)

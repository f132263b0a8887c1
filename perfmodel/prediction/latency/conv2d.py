"""Convolutions: the fastest of the algorithms that libraries have, each as a matrix product.

Implicit GEMM multiplies the unfolded images by the filters. Winograd's minimal filtering (Lavin and Gray 2016, arXiv
1509.09308) multiplies transformed tiles instead: F(2x2, 3x3) in one fused kernel does 2.25 times fewer
multiplications, F(4x4, 3x3) in separate kernels 4 times fewer, and moves the transformed tiles through memory.

On tensor engines the products are those of the machine's GEMMs, with the constants fitted there. Their kernels load
vectors of 16 B of neighbouring channels: tensors in the order NCHW are transposed before and after, by kernels of their
own, and fewer channels than fill such a vector are padded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
from perfmodel.prediction.latency.constants import constants
from perfmodel.prediction.latency.family import Constant, Family, Values, forward_only
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import HBM, LAUNCH, MATH, TILE_WASTE, WAVES, Term, Terms, smooth_max

SERVES = {"conv2d": ("conv2d",), "conv2d_backward": ("conv2d",)}

IM2COL = Term("im2col", Limiter.HBM, "unfolding the images in a kernel of its own")
TRANSFORMS = Term("transforms", Limiter.HBM, "Winograd's transforms of filters, images and outputs")
LAYOUT = Term("layout", Limiter.HBM, "transposing images, filters and outputs for kernels that want NHWC")
_IMPOSSIBLE = Term("impossible", Limiter.UNKNOWN, "an algorithm that cannot be used here")

CONSTANTS = (
    Constant("math", "", 0.8, 0.2, 1.0, 0.12, "share of the peak that implicit GEMMs reach"),
    Constant("product", "", 0.75, 0.2, 1.0, 0.12, "share of the peak that the products of Winograd's tiles reach"),
    Constant("fused", "", 0.7, 0.1, 1.0, 0.25, "share of the peak that the fused Winograd kernel reaches"),
    Constant("eta", "", 0.7, 0.3, 1.0, 0.1, "share of the datasheet bandwidth"),
    Constant("transform", "", 0.6, 0.1, 2.0, 0.2, "the same for Winograd's transforms of images and outputs"),
    Constant("filters", "", 0.4, 0.02, 2.0, 0.3, "the same for its transform of the filters, in single numbers"),
    Constant("fill", "", 30.0, 1.0, 1000.0, 0.4, "length of the sum that filling and draining a block takes"),
    Constant("launch", "s", 2.7e-6, 0.5e-6, 60e-6, 0.3, "start and drain of one kernel", True),
    Constant("energy", "J/FLOP", 3e-12, 1e-13, 1e-10, 0.15, "energy of an fp32 FLOP at the lowest voltage, in TSMC 4N"),
)

#: resources overlap as in the matrix products
POWER = gemm.POWER
#: a block of the fused kernel makes 32 tiles of 2 x 2 outputs for 32 filters: 16 products of 32 x 32 x c
FUSED_TILES, FUSED_FILTERS = 32.0, 32.0
#: images x rows x columns of outputs that the 32 tiles lie in, where a specification states no others
FUSED_PATCHES = ((1, 8, 16),)
#: blocks of it that an SM holds at once
FUSED_BLOCKS = 2.0
#: a block reads its 8 x 16 pixels and those around them, 10 rows of 72 B in sectors of 32 B: 100 B on average
HALO = 10.0 * 100.0 / (8.0 * 16.0 * 4.0)
#: length of c that the fused kernel's transforms take
FUSED_FILL = 20.0
#: outputs along one side of a tile of the separate Winograd kernels; its products see (4 + 2)^2 = 36 numbers
SIDE = 4.0
POINTS = (SIDE + 2.0) ** 2
#: a direct kernel loads both factors of each product: this share of the vector peak
DIRECT = 0.125
#: bytes of neighbouring channels that a kernel for tensor cores loads at once: 8 in fp16, others are padded (NVIDIA
#: technical blog, "Tensor ops made easier in cuDNN")
VECTOR_BYTES = 16.0
#: (pixels, filters) of a block, read off the kernels' names in NeuSight's rows: scudnn_128x32, 128x64 and 128x128 of
#: implicit GEMMs; of the products of Winograd's tiles, sgemm_64x64 and 32x128
IMPLICIT_TILES = ((128, 32), (128, 64), (128, 128))
PRODUCT_TILES = ((64, 64), (32, 128))


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
        tensors = {tensor.name.removeprefix("d"): tensor.size_bytes for tensor in op.tensors()}
        x, weight, y = (tensors[name] for name in ("x", "weight", "y"))
        return cls(op.n, op.c, op.k, op.p, op.q, dtype_bytes(op.dtype), x, weight, y)

    @property
    def compulsory(self) -> Number:
        """The tensors together [B]."""
        return self.x + self.weight + self.y


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of the fastest algorithm that can do the convolution.

    - implicit GEMM: ``groups`` products (n p q) x (k / groups) x (c / groups r s); each tensor crosses memory once.
      "im2col" unfolds in a kernel before.
    - direct: every product from registers, at an eighth of the vector peak; fastest for depthwise filters. On the
      tensor engine only groups have it.
    - Winograd, where `Conv2d.winograd` says so, in NCHW: fused, on the vector engine only, blocks of 32 tiles x 32
      filters of 16 products; or 36 separate products (n p q / 16) x k x c, whose inputs and outputs pass through memory
      once more for the transforms.
    """
    conv = cast(Conv2d, op)
    if conv.algorithm == "im2col":
        return _implicit(conv, _Sizes.of(conv), machine, c, conditions)
    algorithms = [algorithm_terms(conv, machine, c, conditions, of=("implicit_gemm",))["implicit_gemm"]]
    grouped = np.greater(conv.groups, 1)
    if machine.engine == "vector" or np.any(grouped):
        direct = algorithm_terms(conv, machine, c, conditions, of=("direct",))["direct"]
        algorithms.append(_only(grouped | (machine.engine == "vector"), direct))
    # cuDNN's Winograd kernels want NCHW (API reference, supported algorithms for cudnnConvolutionForward, 2D).
    can = conv.winograd() & (conv.layout == "nchw")
    if np.any(can):
        names = ("winograd_f43", "winograd_f23") if machine.engine == "vector" else ("winograd_f43",)
        by_name = algorithm_terms(conv, machine, c, conditions, of=names)
        algorithms += [_only(can, by_name[name]) for name in names]
    return _fastest(algorithms)


#: the algorithms that `algorithm_terms` knows
ALGORITHMS = ("implicit_gemm", "direct", "winograd_f23", "winograd_f43")


def algorithm_terms(
    conv: Conv2d, machine: Machine, c: Values, conditions: Conditions, *, of: Sequence[str] = ALGORITHMS
) -> dict[str, Terms]:
    """Return the terms of each algorithm by its name, whether or not it can do the convolution."""
    sizes = _Sizes.of(conv)
    by_name: dict[str, Callable[[], Terms]] = {
        "implicit_gemm": lambda: _implicit(conv, sizes, machine, c, conditions),
        "direct": lambda: _direct(conv, sizes, machine, c),
        "winograd_f23": lambda: _fused(sizes, machine, c),
        "winograd_f43": lambda: _separate(sizes, machine, c, conditions),
    }
    return {name: by_name[name]() for name in of}


def _engine(machine: Machine, c: Values, conditions: Conditions, *, batched: bool) -> tuple[Machine, dict[str, float]]:
    """Return the machine with the tiles of convolutions, and the constants of their matrix products.

    On tensor engines they are those of the machine's GEMMs. The kernel starts as one in 16 bits, without what scales
    inputs to 8 bits. MIOpen sets the fp32 sums of a split to zero and converts them in two more kernels.
    """
    family = gemm.family_of(machine)
    values = {constant.name: constant.default for constant in family.constants}
    if gemm.is_fp32(machine):
        # The sum is never split, and the rows of the unfolded matrix are gathered anyway.
        values |= {"math": c["product" if batched else "math"], "linear": 1.0, "split": 1.0, "stride": 1.0}
        values["ragged"] = 1.0
        values |= {name: c[name] for name in ("eta", "launch", "energy", "fill")}
        tiles = PRODUCT_TILES if batched else IMPLICIT_TILES
        kernels = replace(machine.kernels, gemm_tiles=tiles, gemm_batched_tiles=tiles)
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


def _implicit(conv: Conv2d, sizes: _Sizes, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    machine, values = _engine(machine, c, conditions, batched=False)
    if conv.backward and conv.gradient == "weight":  # few filters and many pixels: the sum over these is split
        usual = {constant.name: constant.default for constant in gemm.family_of(machine).constants}
        values["split"] = min(values["split"], usual.get("split", gemm.VECTOR_SPLIT))
    vector = 1.0 if gemm.is_fp32(machine) else VECTOR_BYTES / sizes.size
    product = gemm.Product(*_product_sizes(conv, sizes, vector), conv.groups, sizes.size, sizes.size)
    speed = values["eta"] * machine.bandwidth_bytes_per_s
    if conv.algorithm == "im2col":
        unfolded = conv.tensors()[3].size_bytes
        unfold = (sizes.x + unfolded) / speed + values["launch"]
        return _plus(gemm.product_terms(product, machine, values, conditions), IM2COL, unfold)
    # The unfolded matrix is built from data in the caches, so that x crosses memory once, and its copies do not.
    arithmetic = gemm.product_terms(product, machine, {**values, "eta": np.inf}, conditions)
    terms = _with_memory(arithmetic, sizes.compulsory / speed)
    if conv.layout == "nhwc" or gemm.is_fp32(machine):
        return terms
    # A filter of one tap multiplies the images as they are.
    as_it_is = np.equal(conv.r, 1) & np.equal(conv.s, 1) & np.equal(conv.stride, 1) & np.equal(conv.padding, 0)
    transposes = 3.0 * c["launch"] + 2.0 * sizes.compulsory / speed
    return _plus(terms, LAYOUT, np.where(as_it_is, 0.0, transposes))


def _product_sizes(conv: Conv2d, sizes: _Sizes, vector: float) -> tuple[Number, Number, Number]:
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


def _direct(conv: Conv2d, sizes: _Sizes, machine: Machine, c: Values) -> Terms:
    # The engine's own peak in fp64, which may be far below that of fp32.
    rate = DIRECT * np.fmin(machine.vector_flop_per_s, machine.peak_flop_per_s)
    arithmetic = Terms({MATH: conv.flop() / rate, LAUNCH: c["launch"]})
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
    # 3 x 3 filters become 4 x 4. Blocks of the same pixels run side by side; the next pixels read all filters again.
    columns = np.ceil(sizes.filters / FUSED_FILTERS)
    resident = FUSED_BLOCKS * machine.sm_count
    filters = sizes.weight * 16.0 / 9.0
    passes = np.maximum(1.0, spatial * np.minimum(1.0, columns / resident))
    missed = np.maximum(0.0, 1.0 - machine.l2_bytes / filters)
    traffic = HALO * sizes.x * np.maximum(1.0, columns / resident) + filters * (1.0 + missed * (passes - 1.0)) + sizes.y
    terms = _with_memory(arithmetic, traffic / speed)
    return _plus(terms, TRANSFORMS, sizes.weight * (1.0 + 16.0 / 9.0) / speed)


def _separate(sizes: _Sizes, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of F(4x4, 3x3): transforms of images and filters, 36 products, transform of the outputs."""
    machine, values = _engine(machine, c, conditions, batched=True)
    tiles = sizes.images * np.ceil(sizes.p / SIDE) * np.ceil(sizes.q / SIDE)
    product = gemm.Product(tiles, sizes.filters, sizes.channels, POINTS, sizes.size, sizes.size)
    terms = gemm.product_terms(product, machine, values, conditions)
    moved = POINTS * tiles * (sizes.channels + sizes.filters) * sizes.size
    moved = (moved + sizes.x + sizes.y) / c["transform"] + sizes.weight * (1.0 + POINTS / 9.0) / c["filters"]
    return _plus(terms, TRANSFORMS, moved / machine.bandwidth_bytes_per_s + 3.0 * c["launch"])


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
    names = dict.fromkeys(name for terms in algorithms for name in terms.adds if name != _IMPOSSIBLE)
    alone = dict.fromkeys(name for terms in algorithms for name in terms.alone)
    times = [terms.time_s for terms in algorithms]
    if all(np.ndim(time) == 0 for time in times):
        one = algorithms[int(np.argmin(np.array(times)))]
        return Terms({n: one.adds.get(n, 0.0) for n in names}, {n: one.alone.get(n, 0.0) for n in alone})
    totals = np.stack(np.broadcast_arrays(*times))
    best = np.argmin(totals, axis=0)

    def chosen(parts: list[Number]) -> Number:
        return np.asarray(np.choose(best, [np.broadcast_to(part, best.shape) for part in parts]))

    adds = {name: chosen([terms.adds.get(name, 0.0) for terms in algorithms]) for name in names}
    return Terms(adds, {name: chosen([terms.alone.get(name, 0.0) for terms in algorithms]) for name in alone})


def gradient(op: Operator, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of a gradient: those of a convolution of its sizes, with the constants of convolutions."""
    values: Values = {constant.name: constant.default for constant in FAMILY.all_constants}
    if machine.hardware is not None:
        values = constants(FAMILY, machine.hardware, conditions.library, op.dtype).values
    terms = formula(op, machine, values, conditions)
    slower = c["slower"]
    return Terms({term: slower * time for term, time in terms.adds.items()}, terms.alone)


def _backward(op: Conv2d, machine: Machine, library: str) -> bool:
    return op.backward


TERMS = (*gemm.PRODUCT_TERMS, IM2COL, TRANSFORMS, LAYOUT)
FAMILY = Family("conv2d", CONSTANTS, formula, TERMS, forward_only)
#: nothing is fitted; in an open trace of a V100 that trains ResNet-50 (pytorch/kineto @ 624ae15193b7) convolutions take
#: 1.23 times, their gradients 1.3 times what is predicted
BACKWARD = Family(
    "conv2d_backward",
    (Constant("slower", "", 1.05, 0.5, 4.0, 0.2, "time of a gradient over that of such a convolution"),),
    gradient,
    TERMS,
    _backward,
)
FAMILIES = (FAMILY, BACKWARD)

"""Winograd's algorithms: F(2x2, 3x3) in one fused kernel, F(4x4, 3x3) as transforms around matrix products."""

from __future__ import annotations

import functools

from perfmodel.core.work import Number, ceil, maximum, minimum
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency import gemm
from perfmodel.prediction.latency.conv2d.engine import engine_of
from perfmodel.prediction.latency.conv2d.parts import TRANSFORMS, Sizes, plus, with_memory
from perfmodel.prediction.latency.conv2d.products import gather_share
from perfmodel.prediction.latency.family import Values
from perfmodel.prediction.latency.machine import AMD, Machine
from perfmodel.prediction.latency.power import s_per_flop
from perfmodel.prediction.latency.terms import LAUNCH, MATH, TILE_WASTE, WAVES, Terms

#: a block of the fused kernel makes 32 tiles of 2 x 2 outputs for 32 filters: 16 products of 32 x 32 x c
FUSED_TILES, FUSED_FILTERS = 32.0, 32.0
#: images x rows x columns of outputs that the 32 tiles lie in, where a specification states no others
FUSED_PATCHES = ((1, 8, 16),)
#: blocks of it that an SM holds at once
FUSED_BLOCKS = 2.0
#: a block reads its 8 x 16 pixels and those around them, 10 rows of 72 B in sectors of 32 B: 100 B on average
HALO = 10.0 * 100.0 / (8.0 * 16.0 * 4.0)
#: energy of a FLOP of the fused kernel over that of matrix products: its transforms draw power, and count no FLOP. On
#: P4 implicit GEMMs reach 4.5 TFLOP/s in calls of 0.5 to 10 ms alike, where the fused kernel falls from 3.9 to 3.1
#: (NeuSight @ 6945927d9afc). Of 1, 1.25, 1.5 and 2, the last three leave the same error there and on T4
FUSED_ENERGY = 1.25
#: with few channels the fused kernel loses to implicit GEMM by more than its arithmetic says: its time grows by
#: (16 / c)^2, so that on V100 implicit GEMM is chosen up to c k / (c + k) = 11 and Winograd from 21 on. By the names
#: of the kernels that cuDNN's benchmark mode chose (NeuSight @ 6945927d9afc), GEMM or not is right in 93 % of 3017
#: convolutions of random sizes on V100, 93 % of 3029 on T4, 89 % of 3039 on P4 and 94 % of 3018 on P100 (all in view);
#: with 8.5 in 92, 92, 88 and 93 %. Their times are as far off with either. A factor of implicit GEMM that falls with
#: the images, which would mend what is missed below 9 x 9 pixels, adds 0.1 points on the half of the rows that it was
#: not chosen on, and is left out
FEW_CHANNELS = 16.0
#: outputs along one side of a tile of the separate Winograd kernels; its products see (4 + 2)^2 = 36 numbers
SIDE = 4.0
POINTS = (SIDE + 2.0) ** 2
#: images that cuDNN's products of Winograd's tiles multiply together: a smaller rest is filled up. By the names of the
#: kernels (NeuSight @ 6945927d9afc) V100 takes them for 61 % of the fitted shapes with 16 images and 11 % of those with
#: 17, for 63 and 42 % with 32 and 33; T4 for 61, 11, 63 and 58 %; none of the four machines for more than 12 % up to 9
#: images but V100 with 8 and P100 with 9. What T4 takes with them, over what the formula says without filling up, falls
#: from 17 to 32 images by 0.2 in ln, rises at 33 by 0.16, falls again, and rises at 49. With 8, 16 and 32 the fitted
#: half is off by 14.5, 14.1 and 14.7 % in the mean, by 14.9 % with none, each with constants fitted to it. Whether
#: MIOpen does so was not measured
TOGETHER = 16.0


def fused(sizes: Sizes, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of F(2x2, 3x3) in one kernel, and of the kernel that transforms the filters before.

    What whole blocks compute draws power, the padding too; pauses between calls give it back as in products. Few
    channels take longer (`few_channels`).
    """
    patches = machine.kernels.winograd_patches or FUSED_PATCHES
    spatial = functools.reduce(
        minimum, [ceil(sizes.images / n) * ceil(sizes.p / p) * ceil(sizes.q / q) for n, p, q in patches]
    )
    waves = spatial * ceil(sizes.filters / FUSED_FILTERS) / machine.sm_count
    # 16 products of 32 x 32 x c, a multiply-add counted as 2
    reached = c["fused"] / (1.0 + gather_share(machine)) * machine.peak_flop_per_s
    rate = reached / machine.sm_count
    wave = 2.0 * 16.0 * FUSED_TILES * FUSED_FILTERS * (ceil(sizes.channels / 8.0) * 8.0 + c["fused_fill"]) / rate
    full = 32.0 * sizes.images * sizes.p * sizes.q / 4.0 * sizes.filters * sizes.channels
    ideal = full / reached
    busy = maximum(1.0, ceil(waves)) * wave
    power = waves * wave * reached * s_per_flop(machine, FUSED_ENERGY * c["energy"], conditions.load)
    power = maximum(0.0, power - gemm.pause_s(machine, conditions))
    speed = c["eta"] * machine.bandwidth_bytes_per_s
    arithmetic = Terms(
        {
            MATH: ideal,
            TILE_WASTE: maximum(waves * wave - ideal, 0.0),
            WAVES: busy - waves * wave,
            gemm.POWER_LIMIT: maximum(0.0, power - busy),
            LAUNCH: 2.0 * c["launch"],
        },
        {MATH: maximum(busy, power)},
    )
    traffic = _fused_traffic_bytes(sizes, spatial, machine)
    terms = plus(with_memory(arithmetic, traffic / speed), TRANSFORMS, sizes.weight * (1.0 + 16.0 / 9.0) / speed)
    return terms.times(few_channels(sizes.channels))


def few_channels(channels: Number) -> Number:
    """Return the fused kernel's time over what its arithmetic and traffic say: 1 + (16 / c)^2.

    >>> few_channels(16.0), round(few_channels(160.0), 3)
    (2.0, 1.01)
    """
    return 1.0 + (FEW_CHANNELS / channels) ** 2.0


def _fused_traffic_bytes(sizes: Sizes, spatial: Number, machine: Machine) -> Number:
    """Return what the fused kernel moves with ``spatial`` blocks of pixels [B].

    3 x 3 filters become 4 x 4. Blocks of the same pixels run side by side; the next pixels read all filters again.
    """
    columns = ceil(sizes.filters / FUSED_FILTERS)
    resident = FUSED_BLOCKS * machine.sm_count
    filters = sizes.weight * 16.0 / 9.0
    passes = maximum(1.0, spatial * minimum(1.0, columns / resident))
    missed = maximum(0.0, 1.0 - machine.l2_bytes / filters)
    return HALO * sizes.x * maximum(1.0, columns / resident) + filters * (1.0 + missed * (passes - 1.0)) + sizes.y


def separate(sizes: Sizes, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of F(4x4, 3x3): transforms of images and filters, 36 products, transform of the outputs.

    The products multiply whole `TOGETHER` images. The gradient of the weights, F(3x3, 4x4), sums over the tiles: few
    blocks where channels and filters are few.
    """
    of_miopen = machine.hardware is not None and machine.hardware.vendor == AMD
    key = (separate, conditions.library)
    machine, values = machine.kept(key, c, lambda: engine_of(machine, c, conditions, batched=True))
    of_image = ceil(sizes.p / SIDE) * ceil(sizes.q / SIDE)
    tiles = sizes.images * of_image
    filled = tiles if of_miopen else ceil(sizes.images / TOGETHER) * TOGETHER * of_image
    filters, channels = sizes.filters, sizes.channels
    m, n, k = (filters, channels, tiles) if sizes.over_pixels else (filled, filters, channels)
    product = gemm.Product(m, n, k, POINTS, sizes.size, sizes.size)
    terms = gemm.product_terms(product, machine, values, conditions)
    moved = POINTS * tiles * (sizes.channels + sizes.filters) * sizes.size
    moved = (moved + sizes.x + sizes.y) / c["transform"] + sizes.weight * (1.0 + POINTS / 9.0) / c["filters"]
    return plus(terms, TRANSFORMS, moved / machine.bandwidth_bytes_per_s + 3.0 * c["launch"])

"""Convolutions as matrix products, implicit or after im2col, and by direct kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware
from perfmodel.core.work import Number, anywhere, ceil, everywhere, maximum, where
from perfmodel.operators.conv2d import Conv2d
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency import gemm
from perfmodel.prediction.latency.conv2d.engine import implicit_engine, vector_engine
from perfmodel.prediction.latency.conv2d.parts import GATHERING, IM2COL, LAYOUT, Sizes, fastest, only, plus, with_memory
from perfmodel.prediction.latency.conv2d.plain import is_plain, pixels_s, plain_by_channels
from perfmodel.prediction.latency.conv2d.steps import (
    STEP_BYTES,
    VECTOR_BYTES,
    groups_s,
    one_by_one,
    padded_groups,
    padding_s,
    waiting,
)
from perfmodel.prediction.latency.family import Values, scaled
from perfmodel.prediction.latency.gemm.alignment import ALIGNMENT, INSTRUCTIONS, beside
from perfmodel.prediction.latency.machine import AMD, Machine
from perfmodel.prediction.latency.terms import HBM, L2, LAUNCH, MATH, SPLIT_K, Terms, smooth_max

#: a direct kernel loads both factors of each product: this share of the vector peak
DIRECT = 0.125
#: clocks that a lane spends on one output of a grouped direct kernel, and on each of its taps: four divisions find the
#: output, and a tap is two loads, two comparisons with the border, their addresses and a multiply-add (PyTorch's
#: aten/src/ATen/native/cuda/DepthwiseConv2d.cu). Their sum for 3 x 3 taps, 280, is that of three depthwise layers in
#: bf16 and fp32 alike on an H100 (own measurement, torch 2.11.0, 2026-11-23: 250 to 330); their ratio is assumed
DIRECT_OUTPUT, DIRECT_TAP = 100.0, 20.0
#: clocks that a thread of it waits for its loads: three depthwise layers of 2,548 to 50,176 outputs take 3.0 to 3.4 us
#: on an H200, of which 2.0 are the start (own record, torch 2.11.0, 2026-11-27; in view)
DIRECT_WAIT = 2000.0
#: lanes of a warp
LANES = 32.0
#: time of a product on tensor cores whose filters have several taps, over that of a plain one: every tap has addresses
#: and borders of its own; clocks of a lane that the kernels which transpose spend on an element of the filters, whose
#: taps lie apart, and of the images; and the power of the smooth maximum of the latter and their bytes. Convolutions of
#: ResNet-50, MobileNet and a U-Net in 16 bits, by channels or not, are off by 10 % in the mean on an H100 and an H200
#: with them, by 31 % without and with no clocks of depthwise kernels (own measurements, torch 2.11.0, 2026-11-23;
#: chosen with both in view)
GATHER, FILTER_CLOCKS, IMAGE_CLOCKS, TRANSPOSE_POWER = 1.2, 154.0, 35.0, 1.5
#: the same on the vector engine where fp32 multiply-adds take every slot of the schedulers, so that addresses wait for
#: them: 4 convolutions of 3 x 3 take 0.93, 1.26, 1.35 and 1.65 times what those of 1 x 1 say on an H100, whatever its
#: memory (own measurements, torch 2.11.0, 2026-11-23). The fused Winograd kernel's transforms are said to wait as long
GATHER_FP32 = 1.3
#: taps in NCHW in fp32 above which a kernel looks up the place of each, and its time over that of others: one and two
#: images of 268 x 28 x 28 take 809 and 1529 us with 552 filters of 7 x 7 on an H200, by tiles of 32 x 32 and steps of 8
#: (sm80_xmma_fprop_implicit_gemm_indexed_f32f32 ... nchwkcrs, torch 2.11.0, cuDNN 9.19, 2026-11-27; in view). Three
#: images take 7.9 ms, by FFTs and 2112 products one after another
INDEXED_TAPS, INDEXED = 9.0, 1.5
#: dtypes and channels of images whose convolutions run on the vector engine where they do not fill such a vector. For a
#: first layer of 3 channels an A100 ran ampere_scudnn_128x64, a kernel of fp32, where all other layers ran in TF32
#: (open traces of ResNet and AlexNet, HolisticTraceAnalysis); in bf16 an H200 takes 454 us by channels and 634 in NCHW,
#: an H100 649, and in fp32 they take 735 and 729 (own measurements, torch 2.11.0, 2026-11-23)
IMAGE_DTYPES, IMAGE_CHANNELS = ("fp16", "bf16", "tf32"), 4
#: instructions of engines on which that was not seen: those of AMD, whose convolutions are MIOpen's
OF_MIOPEN = ("mfma", "wmma")
#: libraries whose kernels add up no sums in memory and write NCHW themselves, from images that a kernel before them
#: transposes; filters are packed once (github.com/ROCm/FlyDSL/issues/993). Over what the parts say: seven convolutions
#: of 128 channels and filters of 3 x 3 on an MI355X, of no table, take 1.28 to 1.72 times as long, by the median,
#: where MIOpen's take 0.78 to 1.17 (pull/733). 17 of AITER's come out 15 % off with it, in view
OF_FLYDSL, FLYDSL_SLOWER = ("flydsl", "aiter_flydsl"), 1.45
#: engine whose kernels work through steps of 128 B of a tap (`steps`), and its dtypes. Images by channels whose
#: channels are no whole steps seem to run by mma.sync, after a kernel that computes addresses (cuDNN's
#: computeOffsetsKernel): seven of random sizes on an H200 took 1.36 to 2.2 times as long as wgmma would, and are 16 %
#: off in the mean with this rule, which has no constant of its own (own measurements, torch 2.11.0, 2026-11-23; chosen
#: with all seven in view). In NCHW the kernels that transpose pad: beside them 31,360 x 248 x (752 x 9) runs at 670
#: TFLOP/s, more than mma.sync reaches. Filters of one tap at every pixel are plain products, and were not measured
STEP_ENGINE, STEP_DTYPES = "wgmma", ("fp16", "bf16")
#: filters of one tile up to which a block adds up a whole sum of several taps there: of 16 and 40 filters, four such
#: calls take what their steps say (`steps`), up to four times as long as in parts; 4096 x 640 x (1920 x 9) takes what
#: parts say (own records, torch 2.11.0, 2026-11-23 and 2026-11-27; all in view)
WHOLE_FILTERS = 64.0
#: bytes of a sum that kernels add to
FP32_BYTES = 4.0
#: bytes of a tap's channels that the kernels of tensor cores by NVIDIA work through in a step: filters of several taps
#: are padded to them. 48 images of 8 x 112 x 112 take 1640 us with 688 filters of 3 x 3 in fp16 on an H200, 1380 by
#: these and 1140 by vectors of 16 B; of 12 such calls with at most 42 channels 9 come out nearer by them and none
#: farther by more than 4 % (own record, torch 2.11.0, 2026-11-27, in view)
TAP_BYTES = 64.0


def implicit(conv: Conv2d, sizes: Sizes, machine: Machine, c: Values, conditions: Conditions) -> Terms:
    """Return the terms of implicit GEMM by the kernels that images, filters and groups of such sizes take."""
    few, alone, ragged = _few_channels(conv, machine), _groups_alone(conv, machine), _ragged_channels(conv, machine)
    stepping = _stepping(conv, machine)
    whole = stepping & (conv.k / conv.groups <= WHOLE_FILTERS)

    def find(*, few: bool = False, alone: bool = False, ragged: bool = False, whole: bool = False) -> Terms:
        if few:
            return product(conv, sizes, vector_engine(machine), c, conditions)
        terms = product(conv, sizes, machine.by_mma_sync if ragged else machine, c, conditions, whole=whole)
        if alone:
            return one_by_one(conv, terms, machine)
        if ragged:  # a kernel computes addresses before
            terms = plus(terms, LAUNCH, c["launch"])
        return _around(conv, sizes, waiting(conv, terms, machine) if anywhere(stepping) else terms, machine, c)

    usual = (few | alone) ^ True
    kinds: list[tuple[Any, Callable[[], Terms]]] = [(few, lambda: find(few=True)), (alone, lambda: find(alone=True))]
    for is_ragged, of_channels in ((True, ragged), (False, ragged ^ True)):
        for is_whole, of_filters in ((True, whole), (False, whole ^ True)):
            kinds.append((usual & of_channels & of_filters, partial(find, ragged=is_ragged, whole=is_whole)))
    for where_so, found in kinds:
        if everywhere(where_so):
            return found()
    return fastest([only(where_so, found()) for where_so, found in kinds if anywhere(where_so)])


def _stepping(conv: Conv2d, machine: Machine) -> Any:
    """Return where a block on tensor cores works through several taps, from Hopper on; see `steps`."""
    has = machine.engine == "tensor" and machine.matrix_instruction == STEP_ENGINE and conv.dtype in IMAGE_DTYPES
    return (conv.r * conv.s > 1) & (has and not conv.backward and conv.algorithm != "im2col")


def _around(conv: Conv2d, sizes: Sizes, terms: Terms, machine: Machine, c: Values) -> Terms:
    """Return the terms with those of kernels that pad images by channels, or the groups of any, for tensor cores."""
    has = machine.engine == "tensor" and machine.matrix_instruction in INSTRUCTIONS
    if not has or conv.backward or conv.algorithm == "im2col":
        return terms
    if anywhere(padded := padded_groups(conv)):
        layout = where(padded, groups_s(conv, c["launch"], _lanes(machine)), terms.adds.get(LAYOUT, 0.0))
        terms = Terms({**terms.adds, LAYOUT: layout}, terms.alone)
    if conv.layout != "nhwc" or not anywhere(several := is_plain(conv) ^ True):
        return terms
    padding = padding_s(conv, sizes, c["launch"], c["eta"] * machine.bandwidth_bytes_per_s)
    return plus(terms, LAYOUT, where(several, padding, 0.0))


def _groups_alone(conv: Conv2d, machine: Machine) -> Any:
    """Return where groups of images by channels run one after another in fp32."""
    has = machine.engine == "vector" and machine.matrix_instruction == STEP_ENGINE and not conv.backward
    grouped = (conv.groups > 1) & (conv.groups < conv.c)
    return grouped & (has and conv.layout == "nhwc" and conv.algorithm != "im2col")


def _ragged_channels(conv: Conv2d, machine: Machine) -> Any:
    """Return where channels of images leave a step of the engine's kernels unfilled, so that others run."""
    has = machine.engine == "tensor" and machine.matrix_instruction == STEP_ENGINE and conv.dtype in STEP_DTYPES
    channels = conv.c * dtype_bytes(conv.dtype)
    ragged = (channels % STEP_BYTES != 0.0) & (conv.groups == 1) & (is_plain(conv) ^ True)
    # Many that are no whole vectors are padded, also to whole steps.
    ragged = ragged & ((channels % VECTOR_BYTES == 0.0) | (channels < STEP_BYTES))
    return ragged & (has and conv.layout == "nhwc" and not conv.backward and conv.algorithm != "im2col")


def _few_channels(conv: Conv2d, machine: Machine) -> Any:
    """Return where channels are few, `IMAGE_CHANNELS`, and fill no whole vectors of the kernels for tensor cores."""
    has = machine.engine == "tensor" and machine.matrix_instruction not in OF_MIOPEN and conv.dtype in IMAGE_DTYPES
    few = (conv.c * dtype_bytes(conv.dtype) < VECTOR_BYTES) & (conv.c <= IMAGE_CHANNELS) & (conv.groups == 1)
    return few & (has and not conv.backward and conv.algorithm != "im2col")


def product(
    conv: Conv2d, sizes: Sizes, machine: Machine, c: Values, conditions: Conditions, *, whole: bool = False
) -> Terms:
    """Return the terms of one matrix product a group: implicit GEMM, or after a kernel that unfolds the images.

    No sum is split where it is ``whole``.
    """
    weight = conv.backward and conv.gradient == "weight"
    key = (product, weight, whole, conditions.library)
    machine, values, in_caches = machine.kept(key, c, lambda: implicit_engine(machine, c, conditions, weight, whole))
    vector: Number = 1.0 if gemm.is_fp32(machine) else VECTOR_BYTES / sizes.size
    if machine.engine == "tensor" and machine.matrix_instruction in INSTRUCTIONS and conv.algorithm != "im2col":
        vector = where(conv.r * conv.s > 1, TAP_BYTES / sizes.size, vector)
    of_group = gemm.Product(*_product_sizes(conv, sizes, vector), conv.groups, sizes.size, sizes.size)
    speed = values["eta"] * machine.bandwidth_bytes_per_s
    if conv.algorithm == "im2col":
        unfolded = conv.counted()[0][3].size_bytes
        starts = 2.0 * unfoldings(conv, machine.hardware) - 1.0
        unfold = (sizes.x + unfolded) / speed + starts * values["launch"]
        return plus(scaled(gemm.product_terms(of_group, machine, values, conditions), values), IM2COL, unfold)
    # The unfolded matrix is built from data in the caches, so that x crosses memory once, and its copies do not.
    arithmetic = scaled(gemm.product_terms(of_group, machine, in_caches, conditions), values)
    terms = with_memory(_gathered(conv, arithmetic, machine), sizes.compulsory / speed)
    if gemm.is_fp32(machine):
        return _one_tap_in_fp32(conv, sizes, terms, machine, c, speed)
    if conditions.library in OF_FLYDSL:
        images = 1.0 * conv.n * conv.c * conv.h * conv.w
        before = c["launch"] + _images_s(images, sizes, machine, speed) if conv.layout == "nchw" else 0.0
        return plus(terms, LAYOUT, before).times(FLYDSL_SLOWER)
    if machine.matrix_instruction == "mfma":
        terms = plus(terms, SPLIT_K, _sums_s(conv, sizes, c["launch"], speed))
    if conv.layout == "nhwc":
        return plain_by_channels(conv, sizes, of_group, terms, machine, conditions, values["split"])
    # A filter of one tap multiplies the images as they are, if each of their channels starts at a whole vector, or else
    # by narrow loads where that takes less time than to transpose them.
    transposed = 3.0 * c["launch"] + _transposes_s(conv, sizes, machine, speed)
    plain = is_plain(conv)
    narrow = plain & (conv.h * conv.w * sizes.size % VECTOR_BYTES != 0.0)
    if anywhere(narrow) and machine.matrix_instruction in INSTRUCTIONS:
        body = terms.time_s - terms.adds[LAUNCH]
        loaded = beside(body, pixels_s(of_group, machine)) - body
        by_loads = narrow & (loaded < transposed)
        terms = plus(terms, ALIGNMENT, where(by_loads, loaded, 0.0))
        narrow = narrow & (by_loads ^ True)
    return plus(terms, LAYOUT, where(plain & (narrow ^ True), 0.0, transposed))


def unfoldings(conv: Conv2d, hardware: Hardware | None) -> Number:
    """Return how many kernels unfold images in memory, each before a product of its own.

    MIOpen takes one image after another (GemmFwdRest, ROCm/MIOpen @ 002e51b3, src/solver/gemm.cpp), cuDNN all at once.
    """
    return conv.n if hardware is not None and hardware.vendor == AMD else 1.0


def _sums_s(conv: Conv2d, sizes: Sizes, launch_s: float, speed: float) -> Number:
    """Return the time of the kernels by which MIOpen sets sums in fp32 to zero and converts them to 16 bits [s].

    Its kernels add to such sums, whether these are split or not. In a training of ResNet-18 in bf16 on an MI300X
    (AMD-AGI/TraceLens @ 171dd74721ca) all 29 products but those of one tap forward stand behind a kernel that fills
    (SubTensorOpWithScalar, or a memset), and 17 of them before one that converts (SubTensorOpWithCastTensor).
    """
    results = {"weight": sizes.weight, "input": sizes.x}[conv.gradient] if conv.backward else sizes.y
    sums = results / sizes.size * FP32_BYTES
    alone = is_plain(conv) | ((conv.r == 1) & (conv.s == 1) & (not conv.backward))
    added: Number = where(alone, 0.0, 2.0 * launch_s + (2.0 * sums + results) / speed)
    return added


def _one_tap_in_fp32(
    conv: Conv2d, sizes: Sizes, terms: Terms, machine: Machine, c: Values, speed: float
) -> Terms:  # fmt: skip
    """Return the terms with those of transposing images by channels for filters of one tap, from Hopper on.

    The kernels that multiply want NCHW (nhwcToNchwKernel and nchwToNhwcKernel stand around those of two groups of 286
    channels). Four calls of 8 to 445 channels, 13 to 52 us in fp32 on an H200, come out at 0.68 to 1.07 of that so, and
    at 0.2 to 0.7 without (own records, torch 2.11.0, 2026-11-27; all in view). Several taps take as long as in NCHW.
    """
    has = machine.engine == "vector" and machine.matrix_instruction == STEP_ENGINE and conv.layout == "nhwc"
    if not has or conv.backward or not anywhere(one := (conv.r == 1) & (conv.s == 1) & (conv.groups == 1)):
        return terms
    transposed = 3.0 * c["launch"] + _transposes_s(conv, sizes, machine, speed)
    return plus(terms, LAYOUT, where(one, transposed, 0.0))


def _gathered(conv: Conv2d, arithmetic: Terms, machine: Machine) -> Terms:
    """Return the terms of a product with those of its addresses, `GATHER`; they draw little power."""
    share = gather_share(machine)
    slower = where(conv.r * conv.s > 1, share, 0.0)
    if gemm.is_fp32(machine) and machine.matrix_instruction == STEP_ENGINE and conv.layout == "nchw":
        indexed = (conv.r * conv.s > INDEXED_TAPS) & (conv.c > IMAGE_CHANNELS)
        slower = where(indexed, (1.0 + slower) * INDEXED - 1.0, slower)
    if not share and not anywhere(slower):
        return arithmetic
    limited = _by_power(arithmetic)
    more = slower * (arithmetic.time_s - arithmetic.adds.get(LAUNCH, 0.0) - limited)
    return plus(arithmetic, GATHERING, maximum(0.0, more - limited))


def _by_power(arithmetic: Terms) -> Number:
    """Return what the power limit adds to a product's time [s]: less than to its arithmetic, which others overlap."""
    limited = arithmetic.adds.get(gemm.POWER_LIMIT, 0.0)
    loads = [arithmetic.alone[name] for name in (HBM, L2) if name in arithmetic.alone]
    if not anywhere(limited) or not loads:
        return limited
    busy = arithmetic.alone[MATH]
    slow, fast = (smooth_max(gemm.POWER, math, *loads) for math in (busy, maximum(busy - limited, 0.0)))
    return slow - fast


def gather_share(machine: Machine) -> float:
    """Return what addresses add to a product whose filters have several taps, as a share of its time.

    Fp32 multiply-adds leave issue slots free where an SM has fewer lanes than its schedulers issue to (64 on P100,
    V100, T4, A100), or where a scheduler issues two instructions in a clock (before Volta).
    """
    if not gemm.is_fp32(machine):
        return GATHER - 1.0
    full = machine.flop_per_clock_per_sm / 2.0 > 0.9 * LANES * machine.schedulers_per_sm
    return GATHER_FP32 - 1.0 if full and machine.copies_to_shared else 0.0


def _transposes_s(conv: Conv2d, sizes: Sizes, machine: Machine, speed: float) -> Number:
    """Return the time of transposing images, also the pixels that no tap meets, filters and outputs [s]."""
    moved = _images_s((1.0 * conv.n * conv.c * conv.h * conv.w) + sizes.y / sizes.size, sizes, machine, speed)
    return moved + FILTER_CLOCKS * sizes.weight / sizes.size / _lanes(machine)


def _images_s(elements: Number, sizes: Sizes, machine: Machine, speed: float) -> Number:
    """Return the time of transposing images of some elements [s]."""
    return smooth_max(TRANSPOSE_POWER, 2.0 * elements * sizes.size / speed, IMAGE_CLOCKS * elements / _lanes(machine))


def _lanes(machine: Machine) -> float:
    """Return the lanes that a machine issues to in a second [1/s]."""
    return LANES * machine.schedulers_per_sm * machine.sm_count * machine.clock_hz


def _product_sizes(conv: Conv2d, sizes: Sizes, vector: Number) -> tuple[Number, Number, Number]:
    """Return m, n and k of a group's product; channels fill whole vectors of some elements.

    The gradient of the input has filters and channels in each other's place, that of the weights sums over pixels.
    """
    pixels = 1.0 * sizes.images * sizes.p * sizes.q
    channels, filters = sizes.channels / conv.groups, sizes.filters / conv.groups
    if not conv.backward:
        return pixels, filters, ceil(channels / vector) * vector * conv.r * conv.s
    if conv.gradient == "input":
        return pixels, channels, ceil(filters / vector) * vector * conv.r * conv.s
    return filters, channels * conv.r * conv.s, pixels


def direct(conv: Conv2d, sizes: Sizes, machine: Machine, c: Values) -> Terms:
    """Return the terms of a kernel that loads both factors of each product; with groups, its instructions count too."""
    # The engine's own peak in fp64, which may be far below that of fp32.
    rate = DIRECT * float(np.fmin(machine.vector_flop_per_s, machine.peak_flop_per_s))
    outputs = 1.0 * sizes.images * sizes.filters * sizes.p * sizes.q
    clocks = outputs * (DIRECT_OUTPUT + DIRECT_TAP * sizes.channels / conv.groups * conv.r * conv.s)
    # cuDNN has a kernel of its own for channels that lie beside each other.
    native = (conv.groups > 1) & (conv.layout == "nchw")
    waited = where(conv.groups > 1, DIRECT_WAIT / machine.clock_hz, 0.0)
    math_s = maximum(maximum(conv.flop() / rate, waited), where(native, clocks / _lanes(machine), 0.0))
    arithmetic = Terms({MATH: math_s, LAUNCH: c["launch"]}, {MATH: math_s})
    return with_memory(arithmetic, sizes.compulsory / (c["eta"] * machine.bandwidth_bytes_per_s))

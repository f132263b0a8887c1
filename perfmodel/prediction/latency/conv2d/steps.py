"""What cuDNN runs within and around an implicit GEMM from Hopper on, by the names and times of its kernels.

A block works through the taps of its filters one step of channels after the other. Tensors whose channels are no whole
vectors are copied to padded ones before. All times are of torch 2.11.0 with cuDNN 9.19 on an H200 (torch.profiler, and
own records, 2026-11-27; every convolution named here was in view).
"""

from __future__ import annotations

from typing import Any

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, ceil, maximum, where
from perfmodel.operators.conv2d import Conv2d
from perfmodel.prediction.latency.conv2d.parts import Sizes, plus
from perfmodel.prediction.latency.gemm.times import PIPELINE
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.terms import LAUNCH, Terms

#: bytes of a tap's channels in a step of the kernels by wgmma, which cuDNN names after it (tilesize64x64x64 in 16 bits,
#: 64x128x32 in TF32), and SM clocks of a step of a lone block. 25 taps of 440 channels are 175 steps of 23.0 us less
#: 2.5 of start. 735 steps of 941 channels take 83 us with all else, 180 of 1280 channels 26
STEP_BYTES, STEP_CLOCKS = 128.0, 215.0
#: the same of kernels by mma.sync for TF32 whose channels fill no step (s1688fprop_optimized_tf32_128x128_16x4): 49
#: taps of 8 channels take 18.0 us
NARROW_BYTES, NARROW_CLOCKS = 64.0, 600.0
#: bytes of a vector of neighbouring channels
VECTOR_BYTES = 16.0
#: kernels that pad images and filters: a memset of each, and a copy (nhwcAddPaddingKernel)
PADDING_KERNELS = 4.0
#: kernels that pad images, filters and outputs of each group: a memset and a copy of each (tensorTransformGeneric), and
#: clocks of a lane on an element of padded images and outputs, and of filters. 6.4 million elements take 58 us, on
#: either side, and the 221,184 of 768 filters 12.8
GROUP_KERNELS, GROUP_CLOCKS, GROUP_FILTER_CLOCKS = 6.0, 281.0, 1790.0
#: SM clocks that a thread of convolve_common_engine_float_NHWC spends on a term of its sum, one after another: 12 terms
#: take 3.5 us, 108 take 7.8 and 1,176 take 55. It runs once for each group; a start beside others that run takes this
#: share of a lone one: eight groups take 8.6 us together
TERM_CLOCKS, BESIDE_OTHERS = 85.0, 0.37


def chain_s(conv: Conv2d, machine: Machine) -> Number:
    """Return what a block takes for the steps of its taps, one after another, without its start [s].

    Zero for filters of one tap, which other kernels multiply.
    """
    of_tap = ceil(conv.c / conv.groups) * dtype_bytes(conv.dtype)
    clocks = ceil(of_tap / STEP_BYTES) * STEP_CLOCKS
    if conv.dtype == "tf32":
        clocks = where(of_tap < STEP_BYTES, ceil(of_tap / NARROW_BYTES) * NARROW_CLOCKS, clocks)
    taps = 1.0 * conv.r * conv.s
    waited: Number = where(taps > 1, taps * clocks, 0.0) / machine.clock_hz
    return waited


def waiting(conv: Conv2d, terms: Terms, machine: Machine) -> Terms:
    """Return the terms of a product that takes no less than the steps of a block."""
    body = terms.time_s - terms.adds[LAUNCH]
    return plus(terms, PIPELINE, maximum(chain_s(conv, machine) - body, 0.0))


def padding_s(conv: Conv2d, sizes: Sizes, launch_s: float, speed: float) -> Number:
    """Return the time of copying images by channels and their filters to whole vectors [s], 0 where they are such.

    39 channels of 112 x 112 take 6.6 us for it in TF32, beside a kernel of 12.4 us.
    """
    ragged = (conv.c * dtype_bytes(conv.dtype) % VECTOR_BYTES != 0.0) & (conv.groups == 1)
    copies: Number = where(ragged, PADDING_KERNELS * launch_s + 2.0 * (sizes.x + sizes.weight) / speed, 0.0)
    return copies


def padded_groups(conv: Conv2d) -> Any:
    """Return where channels or filters of a group are no whole vectors, of groups with several channels.

    Those of the next group lie behind them, so that they cannot be read as if they were padded.
    """
    size = dtype_bytes(conv.dtype)
    ragged = (conv.c / conv.groups * size % VECTOR_BYTES != 0.0) | (conv.k / conv.groups * size % VECTOR_BYTES != 0.0)
    return (conv.groups > 1) & (conv.groups < conv.c) & ragged


def groups_s(conv: Conv2d, launch_s: float, lanes_per_s: float) -> Number:
    """Return the time of copying the images, filters and outputs of each group to and from padded ones [s]."""
    vector = VECTOR_BYTES / dtype_bytes(conv.dtype)
    channels, filters = (ceil(count / conv.groups / vector) * vector * conv.groups for count in (conv.c, conv.k))
    images = 1.0 * conv.n * (channels * conv.h * conv.w + filters * conv.p * conv.q)
    weights = 1.0 * conv.k * channels / conv.groups * conv.r * conv.s
    copies: Number = GROUP_KERNELS * launch_s + (GROUP_CLOCKS * images + GROUP_FILTER_CLOCKS * weights) / lanes_per_s
    return copies


def one_by_one(conv: Conv2d, of_group: Terms, machine: Machine) -> Terms:
    """Return the terms of groups in fp32 by channels, each by a kernel of its own beside the others."""
    body = of_group.time_s - of_group.adds[LAUNCH]
    chain = 1.0 * conv.c / conv.groups * conv.r * conv.s * TERM_CLOCKS / machine.clock_hz
    terms = plus(of_group, PIPELINE, maximum(chain - body, 0.0))
    return plus(terms, LAUNCH, (conv.groups - 1.0) * BESIDE_OTHERS * of_group.adds[LAUNCH])

"""Rates of attention's products: the FLOP of an SM in a clock, by the dtype, the kernel and the size of a head."""

from __future__ import annotations

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, maximum, minimum, where
from perfmodel.operators.attention import Attention
from perfmodel.prediction.latency.attention.first_pass import narrow_keys
from perfmodel.prediction.latency.attention.kernels import MMA, TCGEN05, WGMMA, Kernel
from perfmodel.prediction.latency.machine import Machine

#: an 8-bit product reaches less of its peak than a 16-bit one: probabilities are narrowed, values transposed; with
#: tcgen05, whose exponentials and corrections take longer than its products
EIGHT_BIT, EIGHT_BIT_TCGEN05 = 0.75, 0.6
#: rate of TensorRT-LLM's 8-bit kernels on Ada, over that of 8-bit products: heads of 64, 128, 192 and 256 columns. Only
#: those of 128 and 192 gain from 8 bits.
ADA_8BIT = {64.0: 0.36, 128.0: 0.88, 192.0: 0.70}
ADA_8BIT_LARGE = 0.24
#: rate of products with 8-bit keys in two levels, over that of 16 bits, for heads of 64; its loss up to heads of 256
TWO_LEVEL, TWO_LEVEL_LOSS = 1.12, 0.87
#: rate of FlashInfer's kernels for heads above 128, whose accumulators leave the registers
LARGE_HEADS = 0.55
#: rate of TensorRT-LLM's mma.sync kernels for heads between 128 and 256, which they pad
PADDED_HEADS = 0.65


def flop_per_clock(op: Attention, machine: Machine, kernel: Kernel) -> Number:
    """Return the FLOP of an SM in a clock at the precision of the products, before the share ``math``.

    Kernels of wgmma multiply 8-bit keys by queries narrowed to 8 bits, at the 8-bit rate (twice that of 16 bits);
    vLLM's add up in two levels, which costs the more the larger the heads are. Rates that depend on the size of a head
    are read off the rows of the kernel.
    """
    if dtype_bytes(op.dtype) > 2:
        return _fp32_flop_per_clock(machine, kernel)
    rate = machine.flop_per_clock_per_sm * kernel.rate
    instruction, narrow = machine.matrix_instruction, narrow_keys(op)
    if dtype_bytes(op.dtype) == 1:
        if ada_8bit(op, machine, kernel):
            sizes = list(ADA_8BIT)
            return rate * np.select([op.head_dim <= size for size in sizes], list(ADA_8BIT.values()), ADA_8BIT_LARGE)
        return rate * EIGHT_BIT
    if narrow and instruction == WGMMA:
        if kernel.two_level:
            return TWO_LEVEL * rate / (1.0 + TWO_LEVEL_LOSS * maximum(op.head_dim - 64.0, 0.0) / 192.0)
        return 2.0 * rate * EIGHT_BIT
    if narrow and instruction == TCGEN05 and kernel.name == "trtllm_gen":
        return 2.0 * rate * EIGHT_BIT_TCGEN05
    if kernel.name == "flashinfer":
        large: Number = where(op.head_dim > 128, LARGE_HEADS, 1.0)
        return rate * large
    if kernel.name == "trtllm" and instruction == MMA:
        padded: Number = where((op.head_dim > 128) & (op.head_dim < 256), PADDED_HEADS, 1.0)
        return rate * padded
    return rate


def reached_per_clock(op: Attention, machine: Machine, kernel: Kernel, math: float) -> Number:
    """Return the FLOP of an SM in a clock that the kernel reaches in long blocks: the share ``math`` of its most.

    An engine that the vendor limits is fed with what the kernel reaches of the design's rate, up to what its
    instructions can take: FlashAttention-2, at half the rate of an H100, feeds the quarter of an H20 in time, of which
    mma.sync reaches 0.63.
    """
    at_most = flop_per_clock(op, machine, kernel)
    if dtype_bytes(op.dtype) > 2:
        return at_most * machine.fed(math)
    return at_most / kernel.rate * minimum(kernel.instruction_rate, machine.fed(kernel.rate * math))


def _fp32_flop_per_clock(machine: Machine, kernel: Kernel) -> float:
    """Return the FLOP of an SM in a clock in fp32: of some products in TF32 for one, or of the vector lanes."""
    tf32 = machine.hardware.find_peak("tf32", "tensor") if machine.hardware and kernel.tf32_products else None
    if tf32 is None:
        return machine.flop_per_clock_per_sm * kernel.fp32_rate
    return tf32.flop_per_s * kernel.rate / kernel.tf32_products / (machine.sm_count * machine.clock_hz)


def ada_8bit(op: Attention, machine: Machine, kernel: Kernel) -> bool:
    """Return whether TensorRT-LLM's 8-bit kernels for Ada run."""
    return dtype_bytes(op.dtype) == 1 and machine.kernels.widens_fp8_keys and kernel.name == "trtllm"

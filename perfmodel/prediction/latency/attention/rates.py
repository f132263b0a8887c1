"""Rates of attention's products: the FLOP of an SM in a clock, by the dtype, the kernel and the size of a head."""

from __future__ import annotations

import math

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Peak
from perfmodel.core.work import Number, maximum, minimum, where
from perfmodel.operators.attention import Attention
from perfmodel.prediction.designs import product_line
from perfmodel.prediction.latency.attention.first_pass import narrow_keys
from perfmodel.prediction.latency.attention.kernels import MMA, TCGEN05, WGMMA, WMMA, Kernel
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
#: rows and keys of a step of the memory-efficient kernel for heads whose sums it keeps in memory
#: (cutlassF_*_32x128_gmem): each step reads its keys, values and queries, and reads and writes the sums in fp32
SPILLED_ROWS, SPILLED_KEYS, SUM_BYTES = 32.0, 128.0, 4.0
#: bytes that an SM reads from L2 in a clock, where the machine's file has no measured bandwidth: 36 to 41 on A100,
#: H100 PCIe and H200, 15 and 17 on L40S and A40
L2_PER_CLOCK, L2_PER_CLOCK_GDDR = 36.0, 15.0
#: bytes that shared memory delivers in a clock (32 banks of 4 B), and FLOP of 16 bits to a byte of the operands of
#: mma.sync.m16n8k16 (4096 FLOP, 16 x 16 and 8 x 16 elements), where the sums leave no registers to keep operands in
SHARED_PER_CLOCK, MMA_FLOP_PER_BYTE = 128.0, 16.0 / 3.0
#: columns of a head whose sums the registers of Radeon's units hold, and rate of its kernels above: for a FLOP heads of
#: 128 take 1.4 times as long as heads of 64 by Composable Kernel, and 1.7 and 2.1 times in gradients of AOTriton and of
#: another Triton kernel (rocm-flash-attention-2 and chelokot-7900xtx in `examples/published`, six rows of 128 columns
#: in view)
RADEON_COLUMNS, ON_RADEON_ABOVE = 64.0, 0.62
#: the kernel that computes whole tiles of queries on vector lanes, too
TILED_ON_LANES = "efficient"
#: inputs of the tensor engine with 4 bytes: the products are its own, not those of fp32
TF32 = "tf32"
#: rate of TensorRT-LLM's mma.sync kernels for heads between 128 and 256, which they pad
PADDED_HEADS = 0.65


def flop_per_clock(op: Attention, machine: Machine, kernel: Kernel) -> Number:
    """Return the FLOP of an SM in a clock at the precision of the products, before the share ``math``.

    Kernels of wgmma multiply 8-bit keys by queries narrowed to 8 bits, at the 8-bit rate (twice that of 16 bits);
    vLLM's add up in two levels, which costs the more the larger the heads are. Rates that depend on the size of a head
    are read off the rows of the kernel.
    """
    if op.dtype == TF32:
        return minimum(machine.flop_per_clock_per_sm * kernel.rate, kernel.tf32_most)
    if dtype_bytes(op.dtype) > 2:
        return _fp32_flop_per_clock(machine, kernel)
    rate = summed_per_clock(machine) * kernel.rate
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


def summed_per_clock(machine: Machine) -> float:
    """Return the FLOP of an SM in a clock of products that are summed in fp32.

    On the vector lanes that is the rate of fp32: a packed multiply-add of fp16 (P100) would add in fp16.
    """
    if machine.engine == "vector" and machine.vector_flop_per_s < machine.peak_flop_per_s:
        return machine.vector_flop_per_s / (machine.sm_count * machine.clock_hz)
    return machine.flop_per_clock_per_sm


def reached_per_clock(op: Attention, machine: Machine, kernel: Kernel, share: float) -> Number:
    """Return the FLOP of an SM in a clock that the kernel reaches in long blocks: a share of its most.

    An engine that the vendor limits is fed with what the kernel reaches of the design's rate, up to what its
    instructions can take: FlashAttention-2, at half the rate of an H100, feeds the quarter of an H20 in time, of which
    mma.sync reaches 0.63.
    """
    at_most = flop_per_clock(op, machine, kernel)
    if dtype_bytes(op.dtype) > 2:
        reached: Number = at_most * machine.fed(share)
    else:
        reached = at_most / kernel.rate * minimum(kernel.instruction_rate, machine.fed(kernel.rate * share))
    if machine.matrix_instruction == WMMA:
        reached = reached * where(op.head_dim > RADEON_COLUMNS, ON_RADEON_ABOVE, 1.0)
    return minimum(reached, where(op.head_dim > kernel.columns, _large_heads(op, machine, kernel), reached))


def _large_heads(op: Attention, machine: Machine, kernel: Kernel) -> float:
    """Return the FLOP of an SM in a clock that its memory feeds where the registers do not hold the sums of a block.

    A kernel that spills them waits for L2: r rows and n keys of c columns move 2 n c elements of keys and values, r c
    of queries and 2 r c sums for 4 r n c FLOP. One that keeps them has its operands from shared memory for each
    instruction; those of wgmma and tcgen05 are there anyway.
    """
    if kernel.spills:
        moved = 2.0 * dtype_bytes(op.kv_dtype) / SPILLED_ROWS
        moved += (dtype_bytes(op.dtype) + 2.0 * SUM_BYTES) / SPILLED_KEYS
        return _l2_bytes_per_clock(machine) * 4.0 / moved
    if machine.engine == "tensor" and (machine.matrix_instruction == MMA or kernel.instruction_rate < 1.0):
        return SHARED_PER_CLOCK * MMA_FLOP_PER_BYTE * 2.0 / dtype_bytes(op.dtype)
    return math.inf


def _l2_bytes_per_clock(machine: Machine) -> float:
    """Return the bytes that an SM reads from L2 in a clock, as measured or else as on machines of its memory."""
    level = machine.hardware.level("l2") if machine.hardware else None
    if level is not None and level.sustained_bytes_per_s:
        return level.sustained_bytes_per_s / (machine.sm_count * machine.clock_hz)
    graphics = machine.hardware is not None and product_line(machine.hardware).endswith("gddr")
    return L2_PER_CLOCK_GDDR if graphics else L2_PER_CLOCK


def on_lanes(op: Attention, machine: Machine, kernel: Kernel) -> bool:
    """Return whether vector lanes compute the products row by row, and neither an instruction nor a kernel of tiles.

    The memory-efficient kernel computes whole tiles on lanes, too: its blocks of 64 or 32 queries are warps' tiles of
    CUTLASS, which leave out what they store, not what they multiply (kernel_forward.h of PyTorch, OpClassSimt).
    """
    if kernel.name == TILED_ON_LANES:
        return False
    return machine.engine == "vector" and (dtype_bytes(op.dtype) <= 2 or _tf32(machine, kernel) is None)


def _tf32(machine: Machine, kernel: Kernel) -> Peak | None:
    """Return the peak of TF32 where a kernel multiplies fp32 by it."""
    return machine.hardware.find_peak("tf32", "tensor") if machine.hardware and kernel.tf32_products else None


def _fp32_flop_per_clock(machine: Machine, kernel: Kernel) -> float:
    """Return the FLOP of an SM in a clock in fp32: of some products in TF32 for one, or of the vector lanes."""
    tf32 = _tf32(machine, kernel)
    if tf32 is None:
        return machine.flop_per_clock_per_sm * kernel.fp32_rate
    return tf32.flop_per_s * kernel.rate / kernel.tf32_products / (machine.sm_count * machine.clock_hz)


def ada_8bit(op: Attention, machine: Machine, kernel: Kernel) -> bool:
    """Return whether TensorRT-LLM's 8-bit kernels for Ada run."""
    return dtype_bytes(op.dtype) == 1 and machine.kernels.widens_fp8_keys and kernel.name == "trtllm"

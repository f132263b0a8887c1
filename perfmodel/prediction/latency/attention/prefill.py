"""Attention over many queries: blocks of query rows that walk along the keys, after a pass that fills the KV cache.

A block holds `TILE` rows of queries and visits its keys a tile at a time. A pair of kernel costs the tensor engine
two products of TILE x TILE x head_dim, and the exponential unit TILE^2 results, which the first hides only in part
(T. Dao, "FlashAttention-2", arXiv 2307.08691; J. Shah et al., "FlashAttention-3", arXiv 2407.08608).
"""

from __future__ import annotations

from typing import Any, cast

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.work import Number, anywhere, maximum, minimum, where
from perfmodel.operators.attention import Attention
from perfmodel.operators.base import Operator
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.attention.axes import PREFILL_AXES
from perfmodel.prediction.latency.attention.beyond import (
    ANOTHERS_KERNEL,
    BEYOND,
    BY_XFORMERS,
    IN_TRITON_ON_VOLTA,
    LARGE_HEADS,
    UNSPLIT,
)
from perfmodel.prediction.latency.attention.blocks import GROUP_ROWS, L2_SPEED, LARGE, block_times, masked
from perfmodel.prediction.latency.attention.choice import choices, is_by_pytorch
from perfmodel.prediction.latency.attention.first_pass import first_pass, inputs, narrowing_s, prepared
from perfmodel.prediction.latency.attention.kernels import KERNELS, Kernel
from perfmodel.prediction.latency.attention.libraries import kernel_of, lenders
from perfmodel.prediction.latency.attention.phases import is_decode, measured_share
from perfmodel.prediction.latency.attention.terms import KV_WRITE, MASK, SOFTMAX, WITHOUT_WRITE
from perfmodel.prediction.latency.attention.values import by_width
from perfmodel.prediction.latency.constants import constants
from perfmodel.prediction.latency.family import Constant, Family, Values
from perfmodel.prediction.latency.gemm.times import POWER_LIMIT
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.power import TENSOR_ENERGY
from perfmodel.prediction.latency.streams import warm_bandwidth
from perfmodel.prediction.latency.terms import (
    BLOCK,
    CONTENTION,
    HBM,
    LAUNCH,
    MATH,
    SPLIT_K,
    TILE_WASTE,
    WAVES,
    Terms,
    smooth_max,
)

CONSTANTS = (
    Constant("launch", "s", 9e-6, 1e-6, 60e-6, 0.4, "start and drain of the kernels of one call", True),
    Constant("math", "", 0.75, 0.1, 1.0, 0.25, "share of the tensor peak in the two products", True),
    Constant("block", "", 2500.0, 50.0, 1e5, 0.7, "SM cycles of a block of query rows, its kernel aside", True),
    Constant("token", "", 35.0, 0.1, 1000.0, 1.0, "SM cycles of a token of a head before the kernel", True, None, True),
    Constant(
        "energy",
        "J/FLOP",
        TENSOR_ENERGY,
        1e-13,
        2e-11,
        0.15,
        "energy of a 16-bit FLOP at the lowest voltage in TSMC 4N",
    ),
    Constant("kv", "", 1.2, 0.1, 10.0, 0.4, "traffic of the pass that writes the KV cache, over the least", True),
)

#: share of the datasheet bandwidth of a stream
STREAM = 0.85
#: start of the three small kernels that make a mask [s], the bytes of an element before it has the dtype of Q, and the
#: share of the bandwidth that moves them: 2816 x 2817 and 3008 x 3072 elements take an H200 18.5 and 20.9 us (profiles
#: of torch 2.11)
MASK_KERNELS_S, MASK_BYTES, MASK_STREAM = 5.5e-6, 1.0, 0.28
#: start and drain of their kernels of heads of 128 in 16 bits, over that of others: no pass prepares Q (H100, H200)
UNPREPARED = 0.78


def formula(op: Operator, machine: Machine, c: Values, conditions: Conditions, kernel: Kernel | None = None) -> Terms:
    """Return launch + KV pass + || busy SMs and their tail, traffic ||_4 [s].

    With n blocks a head of r rows that visit k keys, F FLOP and X exponentials of an SM in a clock, f the clock:

        pair(k)  = r k (4 head_dim / (math F) + 1 / X)                        [cycles]
        block    = block of the constants, less the kernel's share ``filled`` of it for rows without queries
        busy     = batch heads n (pair(k) + block) / (SM f)
        longest  = (pair(k_max) / split + block) / f
        blocks   = || busy + tail longest, longest ||_4 + joining + what the power limit adds
        t        = launch + || blocks, bytes / W ||_4 + || token batch seq_q heads / (SM f), kv (new bytes) / W ||_2

    head_dim is the size that the kernel pads a head to. Where all blocks visit as many keys, kernels whose blocks end
    together show the rest of their last wave in place of the tail. A mask that is a tensor (`masked`) takes kernels of
    its own; its scores are all visited, and take longer than exponentials do.
    The new bytes are those of K and V, read as computed and written as cached, and of Q, read and written, where
    the library turns it in a pass of its own. If the queries of a chunk are few against its keys, the keys are split
    over idle SMs, in at most seq_kv / seq_q parts of at least one step each; FlashAttention-3 splits those of a whole
    prompt, too (`perfmodel.prediction.latency.attention.blocks`).
    """
    attention = cast(Attention, op)
    kernel = kernel or kernel_of(attention, machine, conditions.library)
    if anywhere(attention.value_dim):
        return by_width(attention, kernel, lambda one: formula(one, machine, c, conditions, kernel))
    blocks = block_times(attention, machine, c, kernel, conditions.load)
    traffic = attention.work().bytes
    # The pass before attention reads K and V where the layer before left them, beside the cache that it fills.
    used = traffic + (inputs(attention, machine, kernel) if attention.kv_write else 0.0)
    stream = warm_bandwidth(STREAM * machine.bandwidth_bytes_per_s, L2_SPEED, used, machine, conditions)
    hbm = traffic / stream
    if kernel.large_blocks:
        waits = where((attention.head_dim > LARGE) & (attention.seq_q <= GROUP_ROWS), hbm, 0.0)
        blocks = blocks.waiting(waits * minimum(1.0 * attention.batch * attention.heads / machine.sm_count, 1.0))
    computes = blocks.run >= hbm
    first = first_pass(attention, machine, c, kernel, stream) if attention.kv_write else 0.0
    adds = {
        MATH: where(computes, blocks.math, 0.0),
        SOFTMAX: where(computes, blocks.softmax, 0.0),
        TILE_WASTE: where(computes, maximum(blocks.waste, 0.0), 0.0),
        BLOCK: where(computes, blocks.setup, 0.0),
        WAVES: where(computes, blocks.tail, 0.0),
        SPLIT_K: where(computes, blocks.joining, 0.0),
        POWER_LIMIT: where(computes, blocks.held, 0.0),
        HBM: where(computes, 0.0, hbm),
        CONTENTION: smooth_max(4, blocks.run, hbm) - maximum(blocks.run, hbm),
        KV_WRITE: first,
        LAUNCH: c["launch"] * _launches(attention, machine, kernel) + narrowing_s(attention, kernel),
        MASK: _mask_s(attention, machine, kernel),
    }
    return Terms(adds, {MATH: blocks.run, HBM: hbm, KV_WRITE: first})


def _mask_s(op: Attention, machine: Machine, kernel: Kernel) -> Number:
    """Return the time of the kernels that make the tensor of a mask [s].

    Two fill values, and one chooses between them by the mask's bytes: 3 B an element of 16 bits, one by one
    (convert_boolean_attn_mask in aten/src/ATen/native/transformers/attention.cpp of github.com/pytorch/pytorch).
    """
    if not kernel.masks:
        return 0.0
    moved = (MASK_BYTES + dtype_bytes(op.dtype)) * op.seq_q * op.keys()
    mask_s = MASK_KERNELS_S + moved / (MASK_STREAM * machine.bandwidth_bytes_per_s)
    found: Number = where(masked(op, kernel), mask_s, 0.0)
    return found


def _launches(op: Attention, machine: Machine, kernel: Kernel) -> Number:
    """Return the launches of a call over those of a usual one."""
    usual = 1.0 if op.kv_write else WITHOUT_WRITE
    if kernel.prepares_q:
        others: Number = where(prepared(op, machine, kernel), 1.0, UNPREPARED)
        return usual * others
    return usual


def applies(op: Attention, machine: Machine, library: str) -> Any:
    """Whether each point has several queries, or a sequence of one token."""
    if op.backward:
        return False
    one_query = is_decode(op, machine, library)
    return not one_query if isinstance(one_query, bool) else ~one_query


def values_on(machine: Machine, library: str, dtype: str) -> Values:
    """Return the constants of many queries on a machine, for families that use them."""
    if machine.hardware is None:
        return {constant.name: constant.default for constant in PREFILL.all_constants}
    return constants(PREFILL, machine.hardware, library, dtype).values


PREFILL = Family(
    "attention_prefill",
    CONSTANTS,
    formula,
    (MATH, SOFTMAX, TILE_WASTE, BLOCK, WAVES, SPLIT_K, POWER_LIMIT, HBM, CONTENTION, KV_WRITE, LAUNCH, MASK),
    applies,
    chooses=choices,
    borrows=lenders,
    kernels=tuple(KERNELS),
    for_pytorch=is_by_pytorch,
    doubts=(*BEYOND, ANOTHERS_KERNEL, UNSPLIT, LARGE_HEADS, BY_XFORMERS, IN_TRITON_ON_VOLTA),
    axes=PREFILL_AXES,
    surfaced=measured_share,
)

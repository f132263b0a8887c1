"""Calls of attention that no table has: heads of sizes between those of the kernels or above, masks off vectors."""

from __future__ import annotations

from typing import Any

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.vocabulary import ErrorSource
from perfmodel.operators.attention import Attention
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.attention.choice import masks_window
from perfmodel.prediction.latency.attention.flash2 import chooses_splits
from perfmodel.prediction.latency.attention.kernels import KERNELS
from perfmodel.prediction.latency.attention.libraries import kernel_of
from perfmodel.prediction.latency.attention.phases import BLOCK_QUERIES, LONGER
from perfmodel.prediction.latency.doubts import Doubt, by_hand
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.streams import FRAMEWORKS

#: elements of a mask's row that PyTorch pads it to (`pad_bias`, aten/native/transformers/attention.cpp), and standard
#: deviation of ln(measured / predicted) where it does: root mean square of five calls on an H200 (torch 2.11.0,
#: 2026-11-23), all measured slower. At launch it is assumed to hold for two fifths of the time
MASK_ROW, MASKED = 8.0, (0.2, 0.5, 0.5)
#: deviation of the memory-efficient kernel with a mask, which no row has: without one a call of an A100 takes 37 ms,
#: with cuDNN's cycles for rows off vectors 64, and 45 is expected
UNSEEN_MASK = (0.1, 0.2, 0.2)
#: sizes of the heads of all tables are multiples of it; kernels pad others to one, or to multiples of 32, so that 80
#: columns may take as long as 96 or as 128. The deviation is assumed: half of ln(128 / 80), and rounded up
HEAD, PADDED = 64.0, (0.1, 0.3, 0.3)
#: constants of PyTorch's FlashAttention-2 rest on six rows; 74 prompts that were drawn at random are 14 % off on an
#: H200 (`examples/records`, 2026-11-27)
FEW_ROWS = (0.25, 0.2, 0.1)
#: larger heads than those of all tables: libraries have kernels of their own for them, or none that is tuned. Assumed:
#: published ones of 320 to 896 columns reach 13 to 80 % of the tensor peak on three chips (README.md of
#: github.com/xlite-dev/ffpa-attn), and half of the logarithm of what these differ by is 0.9; half of it lies in the
#: kernels' and chips' rates, which are known
LARGE = (0.2, 0.5, 0.5)

#: the most columns of a head that a kernel of the tables has
COLUMNS = 256.0
HALF_BYTES = 2.0


#: kernels whose blocks are not known, and FlashAttention-1, of which a rate alone is: root mean square of the medians
#: of ln(measured / predicted) of 13 pairs of source and machine is 0.23, up to 0.55 (`examples/published`, in view)
ANOTHERS = (0.25, 0.25, 0.25)


def _is_of_another(op: Attention, machine: Machine, conditions: Conditions) -> bool:
    """Whether a library runs kernels of its own that nobody described: "cudnn_oss" has none of cuDNN's."""
    caller = conditions.caller
    if not caller or caller in FRAMEWORKS or caller in Attention.WRITING or "triton" in conditions.library:
        return False
    return conditions.library.partition("/")[0] not in KERNELS or caller == "fa1"


def _may_not_split(op: Attention, machine: Machine, conditions: Conditions) -> Any:
    """Whether a few queries of long sequences leave half of the SMs idle, unless a kernel splits their keys."""
    if not _is_of_another(op, machine, conditions):
        return False
    few = (op.seq_q > 1) & (op.seq_q <= BLOCK_QUERIES) & (op.seq_kv >= LONGER * op.seq_q)
    return few & (2.0 * op.batch * op.heads <= machine.sm_count)


def _may_not_split_alone(op: Attention, machine: Machine, conditions: Conditions) -> Any:
    """Whether one query leaves SMs idle unless a kernel in Triton, or by hand, splits its keys."""
    of_one = _is_of_another(op, machine, conditions) and by_hand(op, machine, conditions)
    if conditions.library != "triton" and not of_one:
        return False
    return (op.seq_q == 1) & (op.batch * op.kv_heads < machine.sm_count)


def _may_keep_keys_whole(op: Attention, machine: Machine, conditions: Conditions) -> Any:
    """Whether one query leaves SMs idle unless FlashAttention-4 splits its keys, which callers have to ask for."""
    if conditions.library.rpartition("/")[2] != "fa4":
        return False
    return (op.seq_q == 1) & (op.batch * op.kv_heads < machine.sm_count)


def _may_run_on_lanes(op: Attention, machine: Machine, conditions: Conditions) -> Any:
    """Whether FlashInfer's decode on the vector lanes, its default, takes longer for a group than the cache streams.

    A number of the keys or values takes a multiply-add for each head of the group.
    """
    if conditions.library != "flashinfer":
        return False
    group = op.heads / op.kv_heads
    computing_s = 2.0 * group / (LANES_REACHED * machine.vector_flop_per_s)
    streaming_s = dtype_bytes(op.kv_dtype) / machine.bandwidth_bytes_per_s
    return (op.seq_q == 1) & (group > 1) & (computing_s > streaming_s)


def _masked(op: Attention, machine: Machine, conditions: Conditions) -> Any:
    """Whether a framework pads the rows of a mask: causal calls with fewer queries than keys."""
    if conditions.library not in FRAMEWORKS or not op.causal:
        return False
    return (op.seq_q > 1) & (op.seq_q < op.seq_kv) & (op.seq_kv % MASK_ROW != 0)


def _unseen_mask(op: Attention, machine: Machine, conditions: Conditions) -> Any:
    """Whether a tensor masks a window in a kernel whose masks nobody measured."""
    kernel = kernel_of(op, machine, conditions.library)
    return kernel.masks and not kernel.masks_ends and masks_window(op)


def _padded(op: Attention, machine: Machine, conditions: Conditions) -> Any:
    """Whether the size of the heads is between those measured."""
    return op.head_dim % HEAD != 0


def _large(op: Attention, machine: Machine, conditions: Conditions) -> Any:
    """Whether the sums of a block are more than the registers hold."""
    return op.head_dim > kernel_of(op, machine, conditions.library).columns


def _decodes_large(op: Attention, machine: Machine, conditions: Conditions) -> Any:
    """Whether one query has heads that no kernel of the tables has."""
    return (op.seq_q == 1) & (op.head_dim > COLUMNS)


def _by_xformers(op: Attention, machine: Machine, conditions: Conditions) -> bool:
    """Whether xformers' own build of the memory-efficient kernel computes in 16 bits, and not PyTorch's."""
    return conditions.library == "efficient" and dtype_bytes(op.dtype) == HALF_BYTES


def _in_triton(op: Attention, machine: Machine, conditions: Conditions) -> bool:
    return "triton" in conditions.library


def _flash2_of_torch(op: Attention, machine: Machine, conditions: Conditions) -> bool:
    """Whether it is PyTorch's build of FlashAttention-2 for sequences of one length."""
    return chooses_splits(kernel_of(op, machine, conditions.library))


#: one query with heads of 512: nine calls of cuDNN and its open kernel on a B200 take 1.5 to 5.1 times the predicted
#: time, ln with a root mean square of 1.3; four of Triton on an MI325X lie in their interval anyway (two sources of
#: `examples/published`, in view)
LARGE_DECODES = Doubt(
    ErrorSource.KERNEL,
    _decodes_large,
    (0.4, 1.2, 1.2),
    machines=lambda hardware: hardware.vendor == "NVIDIA",
)
#: twelve calls of xformers' kernel of 2022 and 2023 take 0.46 to 1.7 times the predicted time on A100 and H100, ln with
#: a root mean square of 0.44, and seven of its gradients 1.3 to 13 times: they had a block for each head of a sequence
#: alone, so that 16 heads leave most of an A100 idle (five sources of `examples/published`, in view)
BY_XFORMERS = Doubt(ErrorSource.RELEASE, _by_xformers, (0.4, 0.4, 0.4))
XFORMERS_GRADIENTS = Doubt(ErrorSource.RELEASE, _by_xformers, (0.5, 0.8, 0.8))
#: Triton's products on Volta: four calls take 2.2 to 3 times the predicted time, ln with a root mean square of 0.95
#: (one source of `examples/published`, Triton 2.3, in view); later releases have none for its tensor cores
IN_TRITON_ON_VOLTA = Doubt(
    ErrorSource.KERNEL,
    _in_triton,
    (0.5, 0.9, 0.9),
    machines=lambda hardware: hardware.architecture == "Volta",
)
#: libraries whose kernels are neither the vendor's nor described by `KERNELS`
ANOTHERS_KERNEL = Doubt(ErrorSource.LIBRARY, _is_of_another, ANOTHERS, part_of=ErrorSource.VENDOR, lasting=True)
#: such kernels may not split the keys of several queries: neither cuDNN's nor its open one does, whose 4 queries of
#: 62208 keys take an A100 1.4 and 2.5 ms with 9 heads, and 0.2 if all SMs work (`examples/published`). Assumed: a
#: quarter do not, and take three times as long or more
UNSPLIT = Doubt(ErrorSource.KERNEL, _may_not_split, (0.3, 0.9, 0.9), lasting=True)
#: of 26 such decodes of nine authors those of four take 1.8 to 8 times the predicted time, as if they split no keys,
#: and those of the others 0.3 to 1.1 times (`examples/published`, in view)
UNSPLIT_ALONE = Doubt(ErrorSource.KERNEL, _may_not_split_alone, (0.5, 1.0, 1.0), lasting=True)
#: FlashAttention-4 with 64 blocks of 32768 keys takes a B200 361 us, 1.6 times what 512 blocks of 4096 take, as if it
#: split no keys (roofline-decode-b200 in `examples/published`, one row in view). That other calls split them is assumed
KEEPS_KEYS_WHOLE = Doubt(ErrorSource.KERNEL, _may_keep_keys_whole, (0.2, 0.6, 0.6), lasting=True)
#: share of the vector engine's peak in fp32 that FlashInfer's decode without tensor cores reaches: 0.16 to 0.17 in
#: three calls on a B200 (roofline-decode-b200) and 0.20 on an H100 PCIe (fa-flashinfer-decode), both in view
LANES_REACHED = 0.17
#: the two kernels differ by up to 2.5 times with groups of 4 on a B200: assumed to reach both
ON_LANES = Doubt(ErrorSource.KERNEL, _may_run_on_lanes, (0.3, 0.6, 0.6), lasting=True)
BEYOND = (
    Doubt(ErrorSource.EXTRAPOLATION, _masked, MASKED),
    Doubt(ErrorSource.EXTRAPOLATION, _padded, PADDED),
    Doubt(ErrorSource.KERNEL, _flash2_of_torch, FEW_ROWS),
    Doubt(ErrorSource.EXTRAPOLATION, _unseen_mask, UNSEEN_MASK, lasting=True),
)
#: kernels for 320 and for 896 columns have little in common
LARGE_HEADS = Doubt(ErrorSource.EXTRAPOLATION, _large, LARGE, lasting=True)

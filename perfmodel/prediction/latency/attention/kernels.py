"""The kernels of attention by name: how each cuts the work into blocks, on machines of each kind.

`KERNELS` holds what the formulas know about kernels; which of them a library runs is in `libraries`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from perfmodel.core.work import Number, where

#: instructions of the tensor engine: Ampere and Ada, Hopper, Blackwell
MMA, WGMMA, TCGEN05 = "mma.sync", "wgmma", "tcgen05"
#: AMD's: Instinct, Radeon
MFMA, WMMA = "mfma", "wmma"


@dataclass(frozen=True)
class Kernel:
    """How a kernel cuts attention into blocks.

    Attributes
    ----------
    name : what people call it.
    rows, keys : query rows of a block of a prefill, and the keys of a step.
    few_rows : rows of a block of a prefill of no more queries, where there is such a tile; 0 where not.
    packed : the query heads that share a key head fill one block together (FlashAttention's pack_gqa).
    splits : whether the keys of a chunk of few queries are split over idle SMs.
    prepares_q : a pass before attention also reads and writes Q (RoPE outside the kernel).
    window_cost : cost of a block with a window in a prefill, over that of a full row.
    rate : share of the tensor peak that it reaches at most, where the SM feeds the engine no faster than it computes.
    instruction_rate : share that its instructions alone reach, however fast they are fed.
    exponentials : share of the exponentials that its products do not hide, in a prefill.
    score_ops : other operations of the vector lanes for a score of a prefill, where products of one tile run beside the
        softmax of another, and the longer of both counts; 0 where a tile's products wait for its softmax.
    filled : share of the cost of a block of a prefill that goes with those of its rows that hold queries, as loading Q
        and storing the output do.
    tail : share of the longest block of a prefill that the last ones add to an even distribution over the SMs: little
        where the longest start first, all where two blocks share an SM, so that one alone is no faster.
    ascending : what ``tail`` grows by where the blocks of a causal prefill start in the order of their keys, so that
        the longest end last: times the share of the longest that an average block lacks.
    sharing : blocks that share an SM and hide each other's waits: of a prefill one alone takes as many times longer
        than its part of a busy SM.
    splits_whole : whether the keys of a whole prompt are split as well, where it has few blocks.
    beside : energy of exponentials, sums and operands in registers, over that of the FLOP of both products in 16 bits.
    columns : most columns of a head whose sums the registers of a block hold.
    spills : whether a kernel for larger heads keeps its sums in memory, as the memory-efficient one does.
    step_by_head : whether the keys of a step are those of FlashAttention-2's split kernel, fewer for larger heads, in
        place of ``keys``.
    two_level : whether 8-bit products add up in two levels, on the vector lanes (vLLM's FlashAttention-3).
    apart_in_windows : whether each query head of a decode with a window has a block of its own.
    varlen : FlashAttention-2 for sequences of several lengths (vLLM): heads share blocks, and keys are split, only for
        one query of groups of two and more, without a window.
    group_rows : query heads of a group for which a block of a decode costs as much as for one head.
    small_rows : rows of the tile of a decode whose packed query heads fit it, where there is a smaller one.
    widened : elements of 8-bit keys and values that an SM turns to 16 bits in a clock of a decode; 0 where none are.
    decodes : whether few queries have a kernel of their own, which packs the heads of a group and splits keys.
    one_query : whether that kernel is for one query only.
    heads_alone : whether a decode may run on the kernel of single heads (TensorRT-LLM).
    tf32_products : products of TF32 that give one of fp32, for kernels with fp32 on the tensor engine; 0 without.
    fp32_rate : share of the vector engine's fp32 peak that other kernels reach in fp32.
    tf32_most : FLOP of an SM in a clock that it reaches at most in TF32.
    sizes : columns of the heads that it is built for; smaller heads are padded to the next size. Empty: to none.
    large_blocks : whether the cost of a block of a prefill grows with heads of more than 128 columns.
    in_waves : whether equal blocks, which start and end together, show their last wave in full.
    masks : whether a tensor masks the keys that a window hides: a call visits all of its keys then.
    masks_ends : whether one also masks what lies beyond a query, unless queries and keys are equally many.
    mask_cycles : cycles of the vector lanes for a score that such a tensor masks, over those of an exponential: where
        the queries fill whole blocks, where they do not, and where the rows of the mask are no multiples of 16 B.
    token : cycles of a token of a head before a prefill, over those of TensorRT-LLM, whose pass turns each pair of
        columns with a sine and a cosine. Others write vectors of 16 B: fits of each library without this share give
        3 to 8 cycles to vLLM and SGLang where TensorRT-LLM takes 40 to 54 (A100, H100, H200).
    own_values : whether values may have another width than keys: FlashAttention-1 and -2 have one for both, and
        callers pad the narrower.
    narrowing_s : start of a further kernel of a call whose keys are narrower than its queries [s].
    write_token : SM cycles of a token in a kernel that only writes the cache, a block for each token.
    write_column : the same of a column of a key head that is narrowed to 8 bits, keys and values together.
    """

    name: str
    rows: float = 128.0
    keys: float = 128.0
    few_rows: float = 0.0
    packed: bool = True
    splits: bool = True
    prepares_q: bool = False
    window_cost: float = 1.0
    rate: float = 1.0
    instruction_rate: float = 1.0
    exponentials: float = 1.0
    score_ops: float = 0.0
    filled: float = 0.0
    tail: float = 0.5
    ascending: float = 0.0
    sharing: float = 1.0
    splits_whole: bool = False
    beside: float = 0.0
    columns: float = 256.0
    spills: bool = False
    step_by_head: bool = False
    two_level: bool = False
    apart_in_windows: bool = False
    varlen: bool = False
    group_rows: float = 128.0
    small_rows: float = 128.0
    widened: float = 0.0
    decodes: bool = True
    one_query: bool = False
    heads_alone: bool = False
    tf32_products: float = 0.0
    fp32_rate: float = 1.0
    tf32_most: float = math.inf
    sizes: tuple[float, ...] = ()
    large_blocks: bool = False
    in_waves: bool = False
    masks: bool = False
    masks_ends: bool = False
    mask_cycles: tuple[float, float, float] = (0.0, 0.0, 0.0)
    token: float = 0.15
    own_values: bool = True
    narrowing_s: float = 0.0
    write_token: float = 0.0
    write_column: float = 0.0

    def rows_for(self, queries: Number) -> Number:
        """Return the rows of a block of a prefill."""
        if not self.few_rows:
            return self.rows
        found: Number = where(queries <= self.few_rows, self.few_rows, self.rows)
        return found

    def step_keys(self, head_dim: Number) -> Number:
        """Return the keys of a step of a prefill."""
        return head_step_keys(head_dim) if self.step_by_head else self.keys

    def padded(self, head_dim: Number) -> Number:
        """Return the columns of a head that the products compute."""
        if not self.sizes:
            return head_dim
        if np.ndim(head_dim):
            return np.select([head_dim <= size for size in self.sizes], list(self.sizes), head_dim)
        return next((size for size in self.sizes if head_dim <= size), head_dim)


def head_step_keys(head_dim: Number) -> Number:
    """Return the keys of a step of FlashAttention-2's split kernel: 256 for heads up to 64, 128 up to 128, else 64."""
    return np.where(head_dim <= 64, 256.0, np.where(head_dim <= 128, 128.0, 64.0))


#: share of Hopper's tensor peak that mma.sync reaches: Luo et al. 2025, "Dissecting the NVIDIA Hopper Architecture
#: through Microbenchmarking and Multiple Level Analysis", arXiv 2501.12084
HOPPER_MMA = 0.629
#: share of the peak that the products of Triton's kernels reach on AMD's matrix cores: read off 15 rows on an MI300X in
#: `examples/published/fourth.csv`, which reach 0.14 to 0.27 with all else, 0.21 in the mean. PyTorch's kernels on ROCm
#: are Triton's, too (AOTriton: aten/src/ATen/native/transformers/hip)
IN_TRITON = 0.3
#: the same of AMD's own kernels in C++ and assembly: without it prompts and gradients on MI300X and MI355X are
#: predicted at 0.45 to 1.02 times what they take, 0.78 in the median of twelve pairs of a source and a kernel (six
#: sources of `examples/published`); chosen in coarse steps, all in view
OF_AMD = 0.8
#: the same of Triton's kernels on Hopper, whose warps take no turns as FlashAttention-3's do, and whose blocks of 128
#: rows are cut as those of its wgmma. Of 18 rows of four sources on H100 (`examples/published`: pytorch-benchmark-2391
#: and 2443, flash-attention-1777, triton-2459) and six of our own kernel (`examples/records`), in view, the medians of
#: each come out at 0.79 to 1.1 times, and of one whose warps do take turns (tlx-3582) at 1.4. With 64 rows the rate
#: would double with the length, which it does not
IN_TRITON_BY_WGMMA = 0.75
#: ``score_ops`` of kernels that keep two tiles in turn on tcgen05: scaling, the largest, the sum, the narrowing and the
#: correction, 4 to 5 of them. With these, and the longer of softmax and products, 38 rows of cuDNN and FlashAttention-4
#: with heads of 64 and 128 columns on B200, GB200 and GB300, which has twice the exponentials, come out with a root
#: mean square of 0.12, without 0.22 (seven sources of `examples/published`, in view)
SCORE_OPS = 4.5
#: ``sharing`` of these kernels on Instinct: one and two heads of 8192 queries take an MI300X 1.9 and 2.1 times as long,
#: by torch, as a block's part of a busy unit says (iree-golden-torch in `examples/published`, in view)
ON_INSTINCT = 2.0
#: the same of FlashAttention-2 as AMD's Composable Kernel has it for Radeon's vector units: read off 13 rows of one
#: document on an RX 7900 XTX. Nine rows of AOTriton's kernels there reach what Triton's reach on Instinct (both in
#: `examples/published/ninth.csv`)
ON_RADEON = 0.42
# The sizes of heads: csrc/flash_attn/src and hopper/instantiations of github.com/Dao-AILab/flash-attention. cuDNN's are
# not known; heads of 80 and 96 columns take what those of 128 do (`examples/records`, nine rows), those of 192 less.
_FA2 = Kernel(
    "fa2", 64.0, packed=False, own_values=False, step_by_head=True, apart_in_windows=True, filled=0.6, tail=0.4,
    sizes=(32.0, 64.0, 96.0, 128.0, 192.0, 256.0),
)  # fmt: skip
# FlashAttention-1, cut as the second: assumed. Its rate is read off 20 rows of five sources on A100, which reach 41 to
# 79 TFLOP/s and, of gradients, 26 to 83 (`examples/published`).
_FA1 = replace(_FA2, name="fa1", rate=0.3, sizes=(16.0, 32.0, 64.0, 128.0))
# It splits keys for one query alone: 68 queries of 32 heads and 7961 keys take an H200 327 us, and 256 of 8192 keys
# 210 us (`examples/records`), where one takes 17; nobody asks how many they are.
_CUDNN = Kernel(
    "cudnn", packed=False, splits=False, one_query=True, in_waves=True, sizes=(64.0, 128.0, 192.0, 256.0),
    large_blocks=True,
)  # fmt: skip
# In TF32 each warp reads keys and values from shared memory element by element, since no instruction transposes numbers
# of 32 bits: 8 FLOP a byte, 1024 in a clock, of which four calls of an H20 reach a quarter (niehen-h20 in
# `examples/published`, in view).
_TRITON = Kernel("triton", 64.0, packed=False, fp32_rate=0.2, tf32_most=256.0)
# cutlassF_*_64x64_rf_sm80 and 64x128_rf_sm80: aten/src/ATen/native/transformers/cuda/mem_eff_attention of
# github.com/pytorch/pytorch. In fp32 it has OpMultiplyAddFastF32: three products of TF32 (gemm_kernel_utils.h).
# Heads of more than 128 columns have cutlassF_*_32x128_gmem, whose sums are in device memory.
_EFFICIENT = Kernel(
    "efficient", 64.0, 64.0, packed=False, splits=False, exponentials=5.5, tail=0.2, ascending=1.4, sharing=2.0,
    tf32_products=3.0, decodes=False, columns=128.0, spills=True,
)  # fmt: skip
# The rows, of heads of 128 columns alone, do not tell an energy of a score from one of its columns. With one of 500
# FLOP a score heads of 64 would reach 187 TFLOP/s on an H100 PCIe, which reaches 323 (flash-attention issue 1777).
_FA3 = Kernel(
    "fa3", filled=0.6, tail=0.3, splits_whole=True, beside=500.0 / 512.0, sizes=(64.0, 96.0, 128.0, 192.0, 256.0)
)
_FA4 = replace(_FA3, name="fa4")
# AMD's kernels for its matrix cores, Composable Kernel's and AITER's: cut as FlashAttention-3, which no build for AMD
# is, without its splits of whole prompts: one head of 4096 queries takes an MI300X 112 us, 64 heads 764
# (iree-golden-ck in `examples/published`).
_CK = replace(_FA3, name="ck", splits_whole=False)
_TRTLLM = Kernel("trtllm", packed=False, prepares_q=True, heads_alone=True, filled=0.4, token=1.0)
_TRTLLM_GEN = Kernel("trtllm_gen", packed=False, group_rows=8.0, exponentials=0.7, filled=0.3, tail=0.8)

#: name -> the kernel, and what differs on machines with a certain instruction. Blocks of FlashAttention-2 and 3,
#: FlashInfer and TensorRT-LLM are read off rows of aiconfigurator on A100, L40S, H100, H200 and B200, unless a source
#: is named. So are ``filled``, ``tail`` and ``beside``, in coarse steps, with the rows that judge in view as well:
#: both halves agree to 0.2 points. ``ascending`` of all, and ``tail``, ``sharing`` and ``exponentials`` of torch's
#: kernels on Hopper are read off 65 rows of two own records (H100, torch 2.11) in the same way.
KERNELS: Mapping[str, tuple[Kernel, Mapping[str, Kernel]]] = MappingProxyType({
    # Heads of a group share a block only for one query without a window: seqlenq_ngroups_swapped in mha_fwd of
    # csrc/flash_attn/flash_api.cpp, github.com/Dao-AILab/flash-attention.
    # On Hopper its mma.sync reaches half of what wgmma does: 329 of 632 TFLOP/s in
    # github.com/pytorch/pytorch/issues/142132. The quarter on Blackwell is assumed.
    "fa2": (_FA2, {
        WGMMA: replace(_FA2, rows=128.0, rate=0.5, instruction_rate=HOPPER_MMA, tail=0.2, ascending=1.4),
        TCGEN05: replace(_FA2, rows=128.0, rate=0.25, tail=0.2, ascending=1.4),
        WMMA: replace(_FA2, rate=ON_RADEON),
    }),
    "fa1": (_FA1, {
        WGMMA: replace(_FA1, rate=0.5 * _FA1.rate, instruction_rate=HOPPER_MMA),  # as of the second: assumed
        TCGEN05: replace(_FA1, rate=0.25 * _FA1.rate),
    }),
    "fa3": (_FA3, {WGMMA: replace(_FA3, exponentials=0.7)}),
    "ck": (_CK, {MFMA: replace(_CK, rate=OF_AMD)}),
    # Assumed to be cut as fa3; its rows are few (head_dim 512) and 10 times slower. On Blackwell multiply-adds compute
    # a quarter of its exponentials (assumed).
    "fa4": (_FA4, {
        TCGEN05: replace(_FA4, exponentials=0.75, score_ops=SCORE_OPS, beside=0.0),
        MMA: replace(_FA2, name="fa4"),  # assumed: by mma.sync it is cut as the second
    }),
    # Tiles of 16 rows: FA2DetermineCtaTileQ of include/flashinfer/utils.cuh, github.com/flashinfer-ai/flashinfer. Its
    # keys of 8 bits are widened in registers: 16 elements a clock and SM beside the products fit two decodes on an H20,
    # 437 and 760 us (issue 1753), where 16-bit keys take 339 and 633 us; an L40S has less bandwidth an SM and hides it.
    "flashinfer": (Kernel("flashinfer", 64.0, group_rows=16.0, small_rows=16.0, widened=16.0), {}),
    "triton": (_TRITON, {
        WGMMA: replace(_TRITON, rows=128.0, rate=IN_TRITON_BY_WGMMA, tail=0.2),
        MFMA: replace(_TRITON, rate=IN_TRITON, sharing=ON_INSTINCT),
        WMMA: replace(_TRITON, rate=IN_TRITON),
    }),
    "efficient": (_EFFICIENT, {
        WGMMA: replace(_EFFICIENT, rate=0.5, instruction_rate=HOPPER_MMA),
        TCGEN05: replace(_EFFICIENT, rate=0.25),
        MFMA: replace(_FA2, name="efficient", rate=IN_TRITON, sharing=ON_INSTINCT),
        WMMA: replace(_FA2, name="efficient", rate=IN_TRITON),
    }),
    # As fast as FlashAttention-3 on Hopper: 631 TFLOP/s, github.com/pytorch/pytorch/issues/142132.
    # By mma.sync there are tiles of 64 rows, too: its names end in 128x64x64_4x1x1 and 64x64x128_4x1x1.
    "cudnn": (_CUDNN, {
        WGMMA: replace(_CUDNN, exponentials=0.7, tail=0.4, ascending=1.0),
        TCGEN05: replace(_CUDNN, score_ops=SCORE_OPS),
        MMA: replace(_CUDNN, few_rows=64.0),
    }),
    "trtllm": (replace(_TRTLLM, rows=64.0, keys=32.0, filled=0.5), {
        # Every tile of a window is masked in its wgmma kernels.
        WGMMA: replace(_TRTLLM, window_cost=3.7, filled=0.2),
        TCGEN05: replace(_TRTLLM, tail=0.8),
    }),
    # The kernels for tcgen05 that SGLang takes from TensorRT-LLM by way of FlashInfer: blocks of 8 query heads.
    "trtllm_gen": (_TRTLLM_GEN, {}),
})  # fmt: skip

"""The libraries with attention: which kernel each runs, how its build of it differs, and whose constants hold for it.

A library is "sglang", or "torch/fa2" where the kernel within it is named, or the kernel alone: "fa2".
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware
from perfmodel.operators.attention import Attention
from perfmodel.prediction.latency.attention.kernels import KERNELS, MFMA, MMA, TCGEN05, WGMMA, WMMA, Kernel
from perfmodel.prediction.latency.machine import Machine

NARROWING_S = 1.5e-6
#: what differs in vLLM's builds. Its reshape_and_cache_flash writes the cache, a block for each token
#: (csrc/cache_kernels.cu); on Hopper, where it narrows keys and values, a kernel of its own narrows the queries. The
#: cycles are read off its rows of prompts on H100: 15.0 % without them, 11.9 with these, 12.2 with 200 and 1. So is the
#: start of that kernel, off those of decodes: 0, 1, 2 and 3 us leave 13.0, 12.3, 12.2 and 12.6 % on H100, and of
#: FlashInfer's 15.3, 14.8, 14.8 and 15.5 % on L40S.
IN_VLLM: Mapping[str, Mapping[str, Any]] = MappingProxyType({
    "fa2": {"varlen": True, "splits": False, "write_token": 200.0},
    "fa3": {
        "two_level": True, "beside": 0.0, "write_token": 200.0, "write_column": 0.6, "narrowing_s": NARROWING_S,
    },
    "flashinfer": {"narrowing_s": NARROWING_S},
})  # fmt: skip
#: ``mask_cycles`` of cuDNN; that a score takes the memory-efficient kernel as long is assumed: no row has a mask there
MASK_CYCLES = (2.0, 3.2, 6.5)
#: what differs where scaled_dot_product_attention calls a kernel: its is_causal aligns the first query with the first
#: key, so that queries at the end of a sequence need a mask. FlashAttention-2 and the memory-efficient kernel have it
#: as an argument (torch.nn.attention.bias.causal_lower_right), cuDNN as a tensor, which its kernels of prompts read.
#: It has no argument for a window, which is a tensor to cuDNN and the memory-efficient kernel alike.
IN_TORCH: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "cudnn": {
            "masks": True,
            "masks_ends": True,
            "mask_cycles": MASK_CYCLES,
        },
        "efficient": {"masks": True, "mask_cycles": MASK_CYCLES},
        "fa2": {"in_waves": True},
    }
)

#: (library, instruction or "" for any other, whether keys and values are narrower than queries, or None for both) ->
#: kernel; the first that fits.
RUNS: tuple[tuple[str, str, bool | None, str], ...] = (
    ("trtllm", "", None, "trtllm"),
    ("sglang", TCGEN05, None, "trtllm_gen"),
    ("sglang", "", None, "fa3"),  # also on Ampere and Ada, in its build for mma.sync
    ("vllm", MMA, True, "flashinfer"),
    ("vllm", MMA, False, "fa2"),
    ("vllm", WGMMA, None, "fa3"),
    # what it usually launches; `perfmodel.prediction.latency.attention.choice` knows sizes, releases and older chips
    ("torch", WGMMA, None, "cudnn"),
    ("torch", TCGEN05, None, "cudnn"),
    ("torch", "", None, "fa2"),
    ("", TCGEN05, None, "trtllm_gen"),
    ("vllm", "", None, "fa3"),  # its differences are those of this one
    ("tilelang", MFMA, None, "triton"),  # a compiler of tiles, too; nothing else is known of what it compiles to
    ("", MFMA, None, "ck"),
    ("", WMMA, None, "ck"),
    ("", "", None, "fa3"),
)
#: library -> its kernel in fp32, where those of `RUNS` have none
IN_FP32: Mapping[str, str] = MappingProxyType({"torch": "efficient"})

#: kernel -> libraries whose rows it is in, or a kernel like it, by instruction: the first that was measured near the
#: machine lends its constants to the kernel named alone
ROWS_OF: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType({
    "fa2": {MMA: ("vllm", "sglang"), "": ("torch/fa2", "sglang")},
    "fa1": {MMA: ("vllm", "sglang"), "": ("torch/fa2", "sglang")},
    "fa3": {"": ("sglang",)},
    "fa4": {MMA: ("vllm", "sglang"), "": ("sglang",)},
    "flashinfer": {MMA: ("vllm", "sglang"), "": ("sglang",)},
    "triton": {"": ("sglang",)},
    "cudnn": {"": ("torch/cudnn", "sglang")},
    "efficient": {"": ("torch/efficient", "vllm", "sglang")},
    "trtllm_gen": {"": ("sglang",)},
})  # fmt: skip

#: the same of one query for each sequence, where it differs. By TensorRT-LLM's constants five of six calls of cuDNN on
#: an A100 are predicted at 0.92 to 1.24 times what they take, five on an RTX PRO 6000 at 0.96 to 1.03; SGLang's rows
#: reach half of the bandwidth on A100 (github.com/NVIDIA/cudnn-frontend, benchmark/attention_inference, in view)
DECODING: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType({
    "cudnn": {MMA: ("torch/cudnn", "trtllm", "sglang")},
})  # fmt: skip

#: (library, instruction) -> libraries whose kernels have the same origin (FlashAttention): they lend their constants
#: where the library was not measured at all
LIKE: Mapping[tuple[str, str], tuple[str, ...]] = MappingProxyType(
    {
        ("sglang", MMA): ("vllm",),
        ("sglang", WGMMA): ("vllm",),
        ("vllm", MMA): ("sglang",),
        ("vllm", WGMMA): ("sglang",),
    }
)


def kernel_of(op: Attention, machine: Machine, library: str) -> Kernel:
    """Return the kernel that serves a call."""
    narrow = dtype_bytes(op.kv_dtype) < dtype_bytes(op.dtype)
    wide = dtype_bytes(op.dtype) > 2
    return _kernel(library, machine.matrix_instruction, narrow, wide, machine.l2_copies > 1)


@functools.cache
def _kernel(library: str, instruction: str, narrow: bool, wide: bool, partitioned: bool) -> Kernel:
    base, name = library.partition("/")[0], kernel_name(library, instruction, narrow, wide)
    if base == "torch" and instruction in (MFMA, WMMA):
        name = "efficient"  # on ROCm FlashAttention-2 and the memory-efficient kernel are both AOTriton's
    usual, on = KERNELS[name]
    found = on.get(instruction, usual)
    if found.name == "fa2" and partitioned:
        # A100, whose L2 has two parts, has the shared memory for blocks of 128 rows, which chips for graphics lack.
        found = replace(found, rows=128.0)
    if partitioned and instruction == MMA:
        # And for two blocks at once, so that the last ones are no faster alone.
        found = replace(found, tail=1.0)
    differs = {"vllm": IN_VLLM, "torch": IN_TORCH}.get(base, {})
    found = replace(found, **differs.get(found.name, {}))
    # Where FlashAttention-2 is named, it is called without the dispatcher, with its own argument for a window.
    return replace(found, masks=False) if library == "torch/fa2" else found


def kernel_name(library: str, instruction: str, narrow: bool, wide: bool = False) -> str:
    """Return the name of the kernel that a library usually runs, or that it names."""
    base, _, named = library.partition("/")
    if (named or base) in KERNELS and (named or base) != "trtllm":
        return named or base
    if wide and base in IN_FP32:
        return IN_FP32[base]
    for key, on, cache, kernel in RUNS:
        if key in (base, "") and on in (instruction, "") and cache in (narrow, None):
            return kernel
    raise AssertionError("the last line of RUNS fits every library")


def lenders(hardware: Hardware, library: str, dtype: str = "") -> tuple[str, tuple[str, ...]]:
    """Return a library's name without a kernel that it runs anyway, and the libraries whose constants may hold for it.

    The best come first. A library lends itself its constants; a kernel takes those of libraries whose rows it is in.
    torch has one for each backend, so that its kernel is always named.
    """
    base, _, named = library.partition("/")
    instruction = hardware.matrix_instruction or MMA
    own = kernel_name(base, instruction, narrow=False, wide=bool(dtype) and dtype_bytes(dtype) > 2)
    if base == "torch":
        named = named or own
        library = f"{base}/{named}"
    elif base not in ROWS_OF and named in ("", own):
        return base, (base, *LIKE.get((base, instruction), ()))
    rows = ROWS_OF.get(named or base, {})
    return library, (library, *rows.get(instruction, rows.get("", (base,))))


def decoding_lenders(hardware: Hardware, library: str, dtype: str = "") -> tuple[str, tuple[str, ...]]:
    """Return `lenders` of the kernels of one query."""
    library, usual = lenders(hardware, library, dtype)
    base, _, named = library.partition("/")
    own = DECODING.get(named or base, {}).get(hardware.matrix_instruction or MMA)
    return library, (library, *own) if own else usual

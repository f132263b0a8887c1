"""Which kernel a library launches where machine, dtype, sizes and release decide, and what no machine has.

`choices` is asked once for each prediction, before its family is chosen. Machines that are made of symbols have no
compute capability: they run what `perfmodel.prediction.latency.attention.libraries.RUNS` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.core.hardware import Hardware
from perfmodel.core.work import anywhere, everywhere
from perfmodel.errors import UsageError
from perfmodel.operators.attention import Attention
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.attention.kernels import MMA, TCGEN05, WGMMA
from perfmodel.prediction.latency.attention.libraries import kernel_name
from perfmodel.prediction.latency.attention.phases import is_decode
from perfmodel.prediction.latency.machine import NVIDIA, Machine

#: a compute capability, major and minor
Capability = tuple[int, int]


@dataclass(frozen=True)
class Needs:
    """What a kernel needs.

    Attributes
    ----------
    first, last : NVIDIA's compute capabilities that it is built for.
    chips : the same in words.
    sizes : bytes of an element of Q that it has products for.
    eight_bit : first compute capability with products, or keys and values, of 8 bits.
    elsewhere : whether other vendors' machines have a build of it.
    """

    first: Capability
    last: Capability
    chips: str
    sizes: tuple[float, ...] = (2,)
    eight_bit: Capability = (99, 0)
    elsewhere: bool = False


#: kernel -> what it needs. FlashAttention-2, 3 and 4: README.md of github.com/Dao-AILab/flash-attention; for the build
#: of the third for mma.sync is_fa3_supported of sgl-kernel, github.com/sgl-project/sglang; for the fourth on Ampere and
#: on cards of Blackwell the measurements of github.com/NVIDIA/cudnn-frontend. cuDNN and the memory-efficient kernel:
#: check_cudnn_hardware_support and check_mem_efficient_hardware_support of sdp_utils.cpp (`prefers_cudnn`); cuDNN's own
#: API has products of 8 bits from Hopper on. FlashInfer: its README.md. TensorRT-LLM's kernels that FlashInfer takes
#: are of tcgen05.
NEEDS: Mapping[str, Needs] = MappingProxyType({
    "fa2": Needs((8, 0), (12, 1), "Ampere and later", elsewhere=True),
    "fa3": Needs((8, 0), (9, 0), "Ampere, Ada and Hopper", (1, 2), (9, 0)),
    "fa4": Needs((8, 0), (12, 1), "Ampere and later", (1, 2), (9, 0)),
    "cudnn": Needs((8, 0), (12, 1), "Ampere and later", (1, 2), (9, 0)),
    "efficient": Needs((5, 0), (12, 1), "Maxwell and later", (2, 4), elsewhere=True),
    "flashinfer": Needs((7, 5), (12, 1), "Turing and later", (1, 2), (8, 0), elsewhere=True),
    "trtllm_gen": Needs((10, 0), (10, 3), "the Blackwell of data centres", (1, 2), (10, 0)),
})  # fmt: skip

#: most columns of a head of FlashAttention-2: its README.md, and check_head_dim_size_flash of sdp_utils.cpp
FLASH_COLUMNS = 256.0
#: the same of cuDNN on Hopper, and on others: heads of 256 take an H100 what its rate says (`examples/records`), and
#: check_cudnn_tensor_shapes has them on Blackwell from cuDNN 9.22 on alone. Columns are multiples of 8
CUDNN_COLUMNS, CUDNN_COLUMNS_ELSEWHERE, CUDNN_STEP = 256.0, 128.0, 8.0
#: releases of TensorRT-LLM whose decodes on the Blackwell of data centres ran on its kernel of single heads
#: (aiconfigurator @ 095f58a51c4c)
FALLING_BACK = ("1.3.0rc10",)
#: major compute capabilities on which scaled_dot_product_attention prefers cuDNN
PREFERRING_CUDNN = (9, 10)


def choices(op: Attention, machine: Machine, conditions: Conditions) -> list[tuple[Any, Conditions]]:
    """Return the points of a call, as masks, and the conditions that name the kernel of each.

    Only where it is not the one that the library usually runs, the kernel is named: "torch/efficient".

    Raises
    ------
    UsageError
        When the machine, the dtype or the columns of a head have no such kernel.
    """
    hardware = machine.hardware
    if hardware is None or not conditions.library:
        return [(True, conditions)]
    base, _, named = conditions.library.partition("/")
    _check(named or base, op, hardware)
    # PyTorch's kernel of other vendors is AOTriton's, whose limit is another one
    if base == "fa2" or (named == "fa2" and hardware.vendor == NVIDIA):
        _check_columns(op)
    if base == "trtllm":
        return _of_trtllm(op, machine, conditions)
    if base != "torch":
        return [(True, conditions)]
    _check_torch(op)
    if named or hardware.vendor != NVIDIA:
        return [(True, conditions)]
    return _of_torch(op, hardware, conditions)


def prefers_cudnn(conditions: Conditions) -> bool:
    """Return whether a release of PyTorch tries cuDNN before FlashAttention-2, on Hopper and Blackwell.

    2.5.0 did, pull request 138522 withdrew it, 162073 brought it back for 2.9, and since 2.10 it asks for a cuDNN above
    9.15, which 2.11 has (check_prefer_cudnn_attention in aten/src/ATen/native/transformers/cuda/sdp_utils.cpp of
    github.com/pytorch/pytorch; its environment variables are not known).

    >>> [prefers_cudnn(Conditions(version=version)) for version in ("2.4", "2.5.0", "2.5.1", "2.10", "2.11.0", "")]
    [False, True, False, False, True, True]
    """
    release = conditions.release
    if not release or release >= (2, 11):
        return True
    return release[:2] == (2, 9) or release in ((2, 5), (2, 5, 0))


def masks_window(op: Attention) -> Any:
    """Return where a window needs a mask: one beyond the sequence hides nothing, and one query has its last keys."""
    return (op.seq_q > 1) & (op.window > 0) & (op.window < op.seq_kv)


def is_by_pytorch(op: Attention) -> Any:
    """Return the calls for which PyTorch has other kernels than those that calls of no library assume.

    Those have windows, which PyTorch masks after it has visited all keys; nobody but PyTorch has fp32. It has no fused
    kernel of other widths (`_check_torch`).
    """
    sizes = {dtype_bytes(op.dtype), dtype_bytes(op.kv_dtype)}
    return (masks_window(op) | (4 in sizes)) if sizes <= {2, 4} else False


def _of_trtllm(op: Attention, machine: Machine, conditions: Conditions) -> list[tuple[Any, Conditions]]:
    """Return what TensorRT-LLM launches: on the Blackwell of data centres its kernels of tcgen05 for a few queries.

    The release of the tables fell back to its kernel of single heads there, which reads the cache again for each head
    of a group: 128 sequences of 32 heads that share one of 4096 keys take it 1169 us, and these kernels 61
    (roofline-decode-b200 in `examples/published`). Published runs of the engine contradict the fallback
    (`engine_specs/serving/trtllm.toml`).
    """
    if machine.matrix_instruction != TCGEN05 or conditions.version in FALLING_BACK or "/" in conditions.library:
        return [(True, conditions)]
    few = is_decode(op, machine, conditions.library)
    if not anywhere(few):
        return [(True, conditions)]
    own = replace(conditions, library=f"{conditions.library}/trtllm_gen")
    return [(True, own)] if everywhere(few) else [(few, own), (np.logical_not(few), conditions)]


def _of_torch(op: Attention, hardware: Hardware, conditions: Conditions) -> list[tuple[Any, Conditions]]:
    """Return what scaled_dot_product_attention launches: the first that serves the call of cuDNN's, two of its own.

    FlashAttention-2 and cuDNN have products of 16 bits, up to some columns of a head, from Ampere on; the
    memory-efficient kernel has all. FlashAttention-2 has no values of another width than keys. A window is an
    ``attn_mask``, of which it takes none (check_for_attn_mask of sdp_utils.cpp).
    """
    capability, wide = _capability(hardware), dtype_bytes(op.dtype) > 2
    flash: Any = (op.head_dim <= FLASH_COLUMNS) & (op.value_columns == op.head_dim) & np.logical_not(masks_window(op))
    if wide or (capability is not None and capability < NEEDS["fa2"].first):
        flash = False
    cudnn: Any = False
    if capability is not None and capability[0] in PREFERRING_CUDNN and prefers_cudnn(conditions) and not wide:
        most = CUDNN_COLUMNS if hardware.matrix_instruction == WGMMA else CUDNN_COLUMNS_ELSEWHERE
        cudnn = (op.head_dim <= most) & (op.head_dim % CUDNN_STEP == 0)
    usual = kernel_name("torch", hardware.matrix_instruction or MMA, narrow=False, wide=wide)
    points: list[tuple[Any, Conditions]] = []
    rest: Any = True
    for name, serves in (("cudnn", cudnn), ("fa2", flash), ("efficient", True)):
        here = rest & serves
        if anywhere(here):
            points.append((here, conditions if name == usual else replace(conditions, library=f"torch/{name}")))
            rest = rest & np.logical_not(here)
        if not anywhere(rest):
            break
    return points


def _check_torch(op: Attention) -> None:
    """Check that scaled_dot_product_attention has a fused kernel for a dtype (check_dtypes_* of sdp_utils.cpp)."""
    sizes = [dtype_bytes(dtype) for dtype in (op.dtype, op.kv_dtype)]
    if min(sizes) < 2:
        narrow = op.dtype if sizes[0] < 2 else op.kv_dtype
        raise UsageError(
            f"scaled_dot_product_attention has no {narrow}.",
            place=op.op,
            remedy="Give bf16 or fp16, or a library that has: sglang, trtllm, vllm.",
        )
    if max(sizes) > 4:
        raise UsageError(
            f"scaled_dot_product_attention has no fused kernel for {op.dtype}.",
            place=op.op,
            remedy="It runs products and softmax in turn: algorithm=unfused.",
        )


def _check_columns(op: Attention) -> None:
    """Check that FlashAttention-2 has a kernel for the columns of a head."""
    if anywhere(op.head_dim > FLASH_COLUMNS):
        raise UsageError(
            f"fa2 has no heads of {np.max(op.head_dim):g} columns, but of up to {FLASH_COLUMNS:g}.",
            place=op.op,
            remedy="library=torch is what PyTorch runs there; without a library it is the usual kernel.",
        )


def _check(kernel: str, op: Attention, hardware: Hardware) -> None:
    """Check that a kernel exists for a machine and the dtypes."""
    needs, capability = NEEDS.get(kernel), _capability(hardware)
    if needs is None or (hardware.vendor == NVIDIA and capability is None):
        return
    if not (needs.elsewhere if capability is None else needs.first <= capability <= needs.last):
        raise UsageError(
            f"{kernel} does not run on {hardware.name}, but on {needs.chips}.",
            place=op.op,
            remedy="library=torch is what PyTorch runs there; without a library it is the usual kernel.",
        )
    sizes = [dtype_bytes(dtype) for dtype in (op.dtype, op.kv_dtype)]
    narrow = min(sizes) < 2 and (1 not in needs.sizes or (capability is not None and capability < needs.eight_bit))
    if narrow or sizes[0] > max(needs.sizes):
        dtype = op.dtype if sizes[0] != 2 else op.kv_dtype
        raise UsageError(
            f"{kernel} has no {dtype} on {hardware.name}.",
            place=op.op,
            remedy="Without a library it is the usual kernel; library=torch has fp32 and 16 bits.",
        )


def _capability(hardware: Hardware) -> Capability | None:
    """Return NVIDIA's compute capability of a machine; None where it has none, or states none."""
    major, _, minor = hardware.compute_capability.partition(".")
    if hardware.vendor != NVIDIA or not (major.isdigit() and minor.isdigit()):
        return None
    return int(major), int(minor)

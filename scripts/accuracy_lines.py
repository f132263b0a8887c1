"""The lines of the summary in docs/accuracy.md, those that the README quotes, their headings, and Markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perfmodel.accuracy.measured import MeasuredCalls

#: which rows of a call a line is of
Keep = Callable[[MeasuredCalls], Any]


def _all(call: MeasuredCalls) -> bool:
    return True


def _long(call: MeasuredCalls) -> Any:
    return call.time_s > 1e-4


def _fp32(call: MeasuredCalls) -> Any:
    return call.op.dtype == "fp32"


def _sixteen(call: MeasuredCalls) -> Any:
    return call.op.dtype in ("fp16", "bf16")


def _of(*names: str) -> Keep:
    return lambda call: call.hardware in names


#: lines of the summary: title, family, machines (all where empty), rows
SUMMARY: tuple[tuple[str, str, tuple[str, ...], Keep], ...] = (
    ("elementwise fp32, above 0.1 ms", "elementwise", (), lambda call: _fp32(call) & _long(call)),
    ("elementwise fp32, all sizes", "elementwise", (), _fp32),
    ("elementwise in 16 bits", "elementwise", (), _sixteen),
    ("layer_norm fp32, above 0.1 ms", "layer_norm", (), _long),
    ("softmax fp32, above 0.1 ms", "softmax", (), _long),
    ("rms_norm in 16 bits", "rms_norm", (), _all),
    ("rope in 16 bits", "rope", (), _all),
    ("embedding in 16 bits", "embedding", (), _all),
    ("gemm fp32 linear, V100 A100 H100", "gemm_fp32", ("v100-pcie-32gb", "a100-pcie-40gb", "h100-sxm5-80gb"),
     lambda call: call.op.params().get("bias", False)),
    ("gemm fp32 batched, V100 A100 H100", "gemm_fp32", ("v100-pcie-32gb", "a100-pcie-40gb", "h100-sxm5-80gb"),
     lambda call: not call.op.params().get("bias", False)),
    ("gemm fp32, T4 P4 (power-limited)", "gemm_fp32", ("t4", "p4"), _all),
    ("gemm bf16, H100 H200", "gemm_bf16", ("h100-sxm5-80gb", "h200-sxm-141gb"), _all),
    ("gemm bf16, A100", "gemm_bf16", ("a100-sxm4-80gb",), _all),
    ("gemm bf16, L40S B200", "gemm_bf16", ("l40s", "b200-sxm-180gb"), _all),
    ("gemm bf16, RTX 4090", "gemm_bf16", ("rtx-4090",), _all),
    ("gemm fp32, MI100 MI210", "gemm_fp32", ("mi100", "mi210"), _all),
    ("gemm fp8", "gemm_fp8", (), _all),
    ("gemm int4 weights, A100", "gemm_w4a16", (), _all),
    ("gemm int8 weights, A100", "gemm_w8a16", (), _all),
    ("gemm int8 SmoothQuant, A100", "gemm_w8a8", (), _all),
    ("gemm fp8 by blocks, H100 H200 L40S", "gemm_fp8_block", ("h100-sxm5-80gb", "h200-sxm-141gb", "l40s"), _all),
    ("gemm fp8 by blocks, B200", "gemm_fp8_block", ("b200-sxm-180gb",), _all),
    ("moe bf16", "moe_bf16", (), _all),
    ("moe fp8", "moe_fp8", (), _all),
    ("moe fp8 by blocks, H100 H200", "moe_fp8_block", ("h100-sxm5-80gb", "h200-sxm-141gb"), _all),
    ("moe int4 weights (Marlin)", "moe_int4", (), _all),
    ("moe nvfp4, B200", "moe_fp4", (), _all),
    ("attention prefill", "attention_prefill", (), _all),
    ("attention decode", "attention_decode", (), _all),
    ("conv2d fp32", "conv2d", (), _all),
    ("all_reduce, in a node", "all_reduce", (), _all),
    ("collectives through the host", "collective_host", (), _all),
    ("all_gather, in a node", "all_gather", (), _all),
    ("reduce_scatter, in a node", "reduce_scatter", (), _all),
    ("alltoall, in a node", "alltoall", (), _all),
)  # fmt: skip

SUMMARY_HEAD = (
    "family", "rows", "datasheet roofline", "calibrated: mean", "in the 80 % interval", "width",
    "machine left out: mean", "in the 80 % interval", "width",
    "library left out: mean", "in the 80 % interval", "width",
)  # fmt: skip

#: lines of the summary that the README quotes, and what it calls them
QUOTED = {
    "elementwise fp32, all sizes": "elementwise in fp32",
    "elementwise in 16 bits": "elementwise in 16 bits",
    "rms_norm in 16 bits": "RMSNorm in 16 bits",
    "gemm bf16, H100 H200": "GEMM in bf16 on H100 and H200",
    "gemm bf16, L40S B200": "GEMM in bf16 on L40S and B200",
    "gemm fp8": "GEMM in fp8",
    "attention prefill": "attention prefill",
    "attention decode": "attention decode",
    "conv2d fp32": "convolution",
    "all_reduce, in a node": "all-reduce",
}
QUOTED_HEAD = (
    "mean absolute error", "rows", "datasheet roofline", "machine never measured", "in the 80 % interval", "width",
    "machine measured", "in the 80 % interval", "width",
)  # fmt: skip


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))

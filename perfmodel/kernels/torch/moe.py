"""Layers of a mixture of experts: a loop over the experts, all experts for every token, and grouped products."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.kernels.precision import COMPUTED, TORCH_DTYPES, unsupported_dtype
from perfmodel.kernels.reference.moe import choose, weights_of
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._passes import streamed
from perfmodel.operators import Operator
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.moe import Moe
from perfmodel.operators.moe_calls import one_by_one, widened

#: the oldest compute capability that torch._grouped_mm has a kernel for on a GPU (aten/native/cuda/GroupedBlas.cpp)
_GROUPED_CAPABILITY = (8, 0)
#: rows of operands are multiples of so many bytes there
_GROUPED_BYTES = 16


def _is_ordinary(op: Moe) -> bool:
    """Return whether the experts are of one dtype that torch computes in, without scales."""
    return op.number_format == op.dtype in COMPUTED


def _is_narrow(op: Moe) -> bool:
    return not _is_ordinary(op)


def _supports(op: Moe, device: Device) -> str:
    return unsupported_dtype(device.kind, op.dtype, op.out_dtype) or _supports_widening(op, device)


def _supports_widening(op: Moe, device: Device) -> str:
    if op.weight_dtype not in TORCH_DTYPES:
        return f"torch has no tensors in {op.weight_dtype}"
    if op.ep != 1 or op.skew or op.slots:
        return "the kernel computes all experts on one rank, with even loads"
    return unsupported_dtype(device.kind, op.out_dtype)


def _supports_grouped(op: Moe, device: Device) -> str:
    if getattr(torch, "_grouped_mm", None) is None:
        return "this torch has no _grouped_mm"
    if device.kind == "cuda" and op.dtype != "bf16":
        return "torch._grouped_mm computes bf16 on a GPU"
    if device.kind == "cuda" and torch.cuda.get_device_capability() < _GROUPED_CAPABILITY:
        return f"torch._grouped_mm needs compute capability {'.'.join(map(str, _GROUPED_CAPABILITY))}"
    size = TORCH_DTYPES.get(op.dtype, torch.float32).itemsize
    if any(number * size % _GROUPED_BYTES for number in (op.hidden, op.inter_of_rank)):
        return f"torch._grouped_mm needs rows of multiples of {_GROUPED_BYTES} bytes"
    return _supports(op, device)


def _activate(op: Moe, hidden: torch.Tensor) -> torch.Tensor:
    """Return silu of the gate times the rest, or silu alone."""
    inter = int(op.inter_of_rank)
    gate = torch.nn.functional.silu(hidden[..., :inter])
    return gate * hidden[..., inter:] if op.gated else gate


def _loop(op: Moe, inputs: Mapping[str, torch.Tensor]) -> Call:
    """Each expert's tokens are gathered, multiplied and added to the result."""
    x, up, down = inputs["x"], inputs["w_up"], inputs["w_down"]

    def call() -> torch.Tensor:
        places, shares = choose(op, inputs)
        y = torch.zeros_like(x, dtype=torch.float32)
        for expert in range(up.shape[0]):
            rows, slot = (places == expert).nonzero(as_tuple=True)
            if rows.numel():
                wide = _activate(op, x[rows] @ up[expert])
                y.index_add_(0, rows, shares[rows, slot, None] * (wide @ down[expert]).float())
        return y.to(TORCH_DTYPES[op.out_dtype])

    return call


def _widened(op: Moe, inputs: Mapping[str, torch.Tensor]) -> Call:
    """All weights times their scales in the dtype of the tokens, which stay as they are; then expert by expert."""

    def call() -> torch.Tensor:
        up, down = weights_of(op, inputs, inputs["x"].dtype)
        wide: torch.Tensor = _loop(op, {**inputs, "w_up": up, "w_down": down})()
        return wide

    return call


def _widened_bytes(op: Moe) -> float:
    return _slots_bytes(op) + 8.0 * float(op.touched * op.hidden * op.inter_of_rank * (2.0 + op.gated))


def _dense(op: Moe, inputs: Mapping[str, torch.Tensor]) -> Call:
    """All experts compute all tokens; those that were not chosen count with a share of 0."""
    x, up, down = inputs["x"], inputs["w_up"], inputs["w_down"]

    def call() -> torch.Tensor:
        places, shares = choose(op, inputs)
        weights = torch.zeros((x.shape[0], up.shape[0]), dtype=torch.float32, device=x.device)
        weights.scatter_(1, places, shares)
        results = _activate(op, x @ up) @ down
        return torch.einsum("te,eth->th", weights, results.float()).to(TORCH_DTYPES[op.out_dtype])

    return call


def _grouped(op: Moe, inputs: Mapping[str, torch.Tensor]) -> Call:
    """Slots sorted by expert, two grouped products, and the weighted sum of each token's slots."""
    x, up, down, chosen = inputs["x"], inputs["w_up"], inputs["w_down"], int(op.top_k)
    multiply: Callable[..., torch.Tensor] = getattr(torch, "_grouped_mm")  # noqa: B009 -- a private name

    def call() -> torch.Tensor:
        places, shares = choose(op, inputs)
        slots = places.flatten()
        order = slots.argsort(stable=True)
        ends = torch.bincount(slots, minlength=up.shape[0]).cumsum(0).to(torch.int32)
        hidden = multiply(x[order // chosen], up, offs=ends)
        sorted_results = multiply(_activate(op, hidden), down, offs=ends)
        results = torch.empty_like(sorted_results)
        results[order] = sorted_results
        y: torch.Tensor = (results.float().reshape(*shares.shape, -1) * shares[..., None]).sum(dim=1)
        return y.to(TORCH_DTYPES[op.out_dtype])

    return call


def _dense_parts(op: Moe) -> tuple[Operator, ...]:
    """The products of all experts with all tokens, the activation of views with gaps, and the weighted sum in float32.

    The sum is a product of one row, the shares of a token, with the results of all experts.
    """
    experts = max(1, round(float(op.touched)))
    up, inter = int((1 + op.gated) * op.inter_of_rank), int(op.inter_of_rank)
    hidden, results = experts * op.tokens * inter, experts * op.tokens * op.hidden
    return (
        Gemm(m=op.tokens, n=up, k=op.hidden, batch=experts, dtype=op.dtype),
        *streamed(hidden, op.dtype, "silu", strided=bool(op.gated)),
        *(streamed(hidden, op.dtype, "mul", tensors=2, strided=True) if op.gated else ()),
        Gemm(m=op.tokens, n=op.hidden, k=inter, batch=experts, dtype=op.dtype),
        Elementwise(numel=results, kind="cast", dtype=op.dtype, out_dtype="fp32"),
        Gemm(m=1, n=op.hidden, k=experts, batch=op.tokens, dtype="fp32"),
    )


def _slots_bytes(op: Moe) -> float:
    return 2.0 * float(op.glue_bytes())


def _dense_bytes(op: Moe) -> float:
    return float(8.0 * op.touched * op.tokens * (op.inter_of_rank + op.hidden))


KERNELS = (
    Kernel(
        "experts one by one",
        "moe",
        "torch",
        _loop,
        _supports,
        _is_ordinary,
        _slots_bytes,
        composition=one_by_one,
    ),
    Kernel("torch._grouped_mm", "moe", "torch", _grouped, _supports_grouped, _is_ordinary, _slots_bytes),
    Kernel("dense", "moe", "torch", _dense, _supports, _is_ordinary, _dense_bytes, composition=_dense_parts),
    Kernel(
        "widened",
        "moe",
        "torch",
        _widened,
        _supports_widening,
        _is_narrow,
        _widened_bytes,
        composition=widened,
    ),
)

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_quick="tokens=32 hidden=128 inter=256 experts=8 top_k=2",
    cpu_full="""
        tokens=1 hidden=512 inter=1024 experts=8 top_k=2
        tokens=64 hidden=512 inter=1024 experts=8 top_k=2
        tokens=256 hidden=256 inter=512 experts=32 top_k=4
        tokens=64 hidden=512 inter=1024 experts=8 top_k=2 router=false routing=balanced
        tokens=16 hidden=256 inter=256 experts=8 top_k=2 dtype=fp8_block
        tokens=16 hidden=256 inter=256 experts=8 top_k=2 dtype=int4_wo
        tokens=16 hidden=256 inter=256 experts=8 top_k=2 dtype=nvfp4
    """,
    cuda_quick="tokens=512 hidden=2048 inter=768 experts=64 top_k=8 dtype=bf16",
    cuda_more="""
        tokens=1/16/256/4096 hidden=4096 inter=1536 experts=64 top_k=8 dtype=bf16
        tokens=4096 hidden=4096 inter=14336 experts=8 top_k=2 dtype=bf16
    """,
)

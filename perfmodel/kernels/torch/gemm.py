"""Matrix products: torch.matmul and its relatives, a sum of panels, and a product with a compiled epilogue."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.device import Device
from perfmodel.kernels.precision import FP8_CAPABILITY, TORCH_DTYPES, unsupported_dtype
from perfmodel.kernels.reference.gemm import ACTIVATIONS
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._compile import compiled, compiled_kernel
from perfmodel.kernels.torch._mixed_gemm import MIXED_KERNELS
from perfmodel.kernels.torch._passes import streamed
from perfmodel.kernels.torch._workspace import tensor_bytes
from perfmodel.operators import Operator
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm

#: columns of A and rows of B per panel of the naive product
PANEL = 256


def _supports(op: Gemm, device: Device) -> str:
    return unsupported_dtype(device.kind, op.dtype, op.out_dtype)


def _supports_scaled(op: Gemm, device: Device) -> str:
    if op.batch != 1:
        return "torch._scaled_mm computes a single product, not a batch"
    if device.kind == "cuda" and torch.cuda.get_device_capability() < FP8_CAPABILITY:
        return f"8-bit products need compute capability {'.'.join(map(str, FP8_CAPABILITY))}"
    if device.kind == "cuda" and (op.k % 16 or op.n % 16):
        return f"torch._scaled_mm needs multiples of 16, not k={op.k} and n={op.n}"
    return unsupported_dtype(device.kind, op.out_dtype)


def _library(op: Gemm, inputs: Mapping[str, torch.Tensor]) -> Call:
    """torch.matmul, or with a bias torch.addmm or torch.baddbmm; then the activation as a separate call."""
    a, b, out = inputs["a"], inputs["b"], TORCH_DTYPES[op.out_dtype]
    bias = inputs.get("bias")
    activate = ACTIVATIONS[op.activation]
    if bias is None:
        return _finished(lambda: torch.matmul(a, b), out, op.activation)
    if bias.dtype != a.dtype:
        return lambda: activate(torch.matmul(a, b).to(out) + bias)
    if int(op.batch) == 1:
        left, right = a[0], b[0]
        return _finished(lambda: torch.addmm(bias, left, right)[None], out, op.activation)
    return _finished(lambda: torch.baddbmm(bias, a, b), out, op.activation)


def _finished(product: Call, out: torch.dtype, activation: str) -> Call:
    """Return the product followed by the cast and the activation, if any."""
    if activation == "none":
        return lambda: product().to(out)
    activate = ACTIVATIONS[activation]
    return lambda: activate(product().to(out))


def _scaled(op: Gemm, inputs: Mapping[str, torch.Tensor]) -> Call:
    """torch._scaled_mm with scales of 1 and fast accumulation; bias and activation are separate calls."""
    a, b, out, bias = inputs["a"][0], inputs["b"][0], TORCH_DTYPES[op.out_dtype], inputs.get("bias")
    one, activate = torch.ones((), device=a.device), ACTIVATIONS[op.activation]
    fast = a.is_cuda

    def product() -> torch.Tensor:
        c = torch._scaled_mm(a, b, one, one, out_dtype=out, use_fast_accum=fast)[None]
        return c if bias is None else c.add_(bias)

    return product if op.activation == "none" else lambda: activate(product())


def _with_epilogue(op: Gemm, inputs: Mapping[str, torch.Tensor]) -> Call:
    """Product, then bias and activation compiled into one pass over C."""
    out, activate = TORCH_DTYPES[op.out_dtype], ACTIVATIONS[op.activation]
    arguments = [inputs[name] for name in ("a", "b", "bias") if name in inputs]

    def composed(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | float = 0.0) -> torch.Tensor:
        return activate(torch.matmul(a, b).to(out) + bias)

    function = compiled(composed)
    return lambda: function(*arguments)


def _naive(op: Gemm, inputs: Mapping[str, torch.Tensor]) -> Call:
    """C is summed in memory over panels of 256 columns of A; bias and activation are separate passes."""
    a_panels = torch.split(inputs["a"], PANEL, dim=2)
    b_panels = torch.split(inputs["b"], PANEL, dim=1)
    bias, activate, out = inputs.get("bias"), ACTIVATIONS[op.activation], TORCH_DTYPES[op.out_dtype]

    def call() -> torch.Tensor:
        c = torch.matmul(a_panels[0], b_panels[0]).to(out)
        for a, b in zip(a_panels[1:], b_panels[1:], strict=True):
            c += torch.matmul(a, b)
        if bias is not None:
            c += bias
        return activate(c)

    return call


def _composition(op: Gemm) -> tuple[Operator, ...]:
    """A product for every panel, a sum for every panel but the first, then bias and activation."""
    batch, m, n = op.batch, op.m, op.n
    whole, rest = divmod(int(op.k), PANEL)
    products = [Gemm(m=m, n=n, k=PANEL, batch=batch, dtype=op.dtype, count=whole)] if whole else []
    products += [Gemm(m=m, n=n, k=rest, batch=batch, dtype=op.dtype)] if rest else []
    numel, dtype = batch * m * n, op.out_dtype
    sums = streamed(numel, dtype, *["add"] * (whole + bool(rest) - 1), tensors=2)
    return (*products, *sums, *_epilogue(op, bias=bool(op.bias)))


def _library_parts(op: Gemm) -> tuple[Operator, ...]:
    """The product with its bias, and an activation after it; what is converted has its bias added after that."""
    converted = TORCH_DTYPES[op.out_dtype] != TORCH_DTYPES[op.dtype]
    if not converted and op.activation == "none":
        return ()
    numel = op.batch * op.m * op.n
    product = op.changed(activation="none", **({"bias": False, "out_dtype": op.dtype} if converted else {}))
    cast = [Elementwise(numel=numel, kind="cast", dtype=op.dtype, out_dtype=op.out_dtype)] * converted
    return (product, *cast, *_epilogue(op, bias=bool(converted and op.bias)))


def _scaled_parts(op: Gemm) -> tuple[Operator, ...]:
    """The product, and its bias and activation after it."""
    if not op.bias and op.activation == "none":
        return ()
    return (op.changed(bias=False, activation="none"), *_epilogue(op, bias=bool(op.bias)))


def _epilogue(op: Gemm, *, bias: bool) -> tuple[Operator, ...]:
    """Return the passes over C after a product."""
    numel, dtype = op.batch * op.m * op.n, op.out_dtype
    activation = [op.activation] * (op.activation != "none")
    return (*streamed(numel, dtype, *["add"] * bias, strided=True), *streamed(numel, dtype, *activation))


def _panels(op: Gemm) -> int:
    return math.ceil(op.k / PANEL)


def _is_8_bit(op: Gemm) -> bool:
    return op.number_format == "fp8"


def _is_ordinary(op: Gemm) -> bool:
    """Return whether torch.matmul computes it; there are separate calls for 8-bit products and those with scales."""
    return op.number_format == op.dtype != "fp8"


def _differs(op: Gemm) -> bool:
    return bool(op.k > PANEL or op.bias) and _is_ordinary(op)


def _has_epilogue(op: Gemm) -> bool:
    return bool(op.bias or op.activation != "none") and _is_ordinary(op)


def _workspace_bytes(op: Gemm) -> float:
    return 2.0 * tensor_bytes(op, "c")


KERNELS = (
    Kernel("torch.matmul", "gemm", "torch", _library, _supports, applies=_is_ordinary, composition=_library_parts),
    Kernel("torch.scaled_mm", "gemm", "torch", _scaled, _supports_scaled, applies=_is_8_bit, composition=_scaled_parts),
    Kernel(
        "naive",
        "gemm",
        "torch",
        _naive,
        _supports,
        applies=_differs,
        workspace_bytes=_workspace_bytes,
        composition=_composition,
        rounded_sums=_panels,
    ),
    compiled_kernel("gemm", _with_epilogue, _supports, applies=_has_epilogue, workspace_bytes=_workspace_bytes),
    *MIXED_KERNELS,
)

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_quick="""
        m=64/256/1024 n=64 k=64
        m=256 n=256 k=256
        m=512 n=512 k=512 bias=true activation=gelu
        m=1024 n=1024 k=1024
    """,
    cpu_full="""
        m=64 n=64 k=64
        m=128 n=128 k=128
        m=256 n=256 k=256
        m=512 n=512 k=512
        m=1024 n=1024 k=1024
        m=2048 n=2048 k=2048
        m=1024 n=1024 k=1024 dtype=fp64
        m=512 n=512 k=512 dtype=bf16
        m=1 n=4096 k=4096
        m=128 n=128 k=64 batch=64
        m=512 n=2048 k=512 bias=true activation=gelu
        m=512 n=2048 k=512 bias=true activation=relu
        m=1 n=4096 k=4096 dtype=bf16 weight_dtype=int4 scale=group:128
        m=64 n=1024 k=1024 dtype=bf16 weight_dtype=int8 scale=column
        m=64 n=1024 k=1024 dtype=sq
        m=16 n=512 k=512 dtype=fp8_block
        m=16 n=512 k=512 dtype=nvfp4
        m=16 n=512 k=512 dtype=mxfp4
    """,
    cuda_quick="""
        m=512 n=512 k=512 dtype=bf16
        m=4096 n=4096 k=4096 dtype=bf16
        m=4096 n=4096 k=4096 dtype=fp32
        m=4096 n=4096 k=4096 dtype=tf32
        m=16 n=8192 k=8192 dtype=bf16
        m=4096 n=4096 k=1024 bias=true activation=gelu dtype=bf16
    """,
    cuda_targets="m=8192 n=8192 k=8192 dtype=bf16",
    cuda_sweep="""
        m=1..512 n=8192 k=8192 dtype=bf16
        m=128/1024/4096 n=1024/4096 k=1024/4096 dtype=bf16
        m=16..512 n=8192 k=8192 dtype=fp8
        m=128/512/1024/4096 n=1024/4096 k=1024/4096 dtype=fp8
    """,
    cuda_more="""
        m=512 n=512 k=512 dtype=bf16
        m=2048 n=2048 k=2048 dtype=bf16
        m=16 n=8192 k=8192 dtype=bf16
        m=8192 n=8192 k=8192 dtype=fp8
        m=8192 n=8192 k=2048 bias=true activation=gelu dtype=bf16
        m=4096 n=4096 k=4096 dtype=fp16
        m=4096 n=4096 k=4096 dtype=tf32
        m=4096 n=4096 k=4096 dtype=fp32
        m=4096 n=4096 k=4096 dtype=fp64
        m=16 n=8192 k=8192 dtype=sq
        m=4096 n=4096 k=4096 dtype=sq
        m=16 n=8192 k=8192 dtype=bf16 weight_dtype=int4 scale=group:128
    """,
)

"""The inputs of a kernel: random tensors with the shapes and dtypes that the operator declares."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

import torch

from perfmodel.errors import UsageError
from perfmodel.kernels.gradients import OUTPUT_GRADIENT, gradient_inputs, is_gradient
from perfmodel.kernels.precision import FP4_DOUBLED, INTEGERS, TORCH_DTYPES
from perfmodel.kernels.reference.sampling import raise_largest
from perfmodel.operators import Operator

#: dtypes of a product's second operand that is stored column by column
_BY_COLUMNS = ("fp8", "int8", "int4", "fp4")
#: how the names of scales end, and about how large they are: products of integers then fit 16 bits
_SCALE, SCALE_SIZE = "_scale", 2.0**-5
#: elementwise kinds that are defined for positive inputs only
_POSITIVE = ("log", "sqrt", "rsqrt", "pow")
#: (operator, input) -> what its values are made of standard normal ones: second moments and scales are positive, a
#: decay is near 1 from below, and the steps of a state-space model are small
_VALUES: dict[tuple[str, str], Callable[[torch.Tensor], torch.Tensor]] = {
    ("optimizer", "exp_avg_sq"): torch.square,
    ("optimizer_adamw", "exp_avg_sq"): torch.square,
    ("sampling", "logits"): raise_largest,
    ("dequantize", "scales"): lambda x: x.abs() + 0.125,
    ("linear_attention", "decay"): lambda x: torch.sigmoid(x + 3.0),
    # keys of length 1: the state would grow without limit with longer ones
    ("gated_delta", "k"): lambda x: torch.nn.functional.normalize(x, dim=-1),
    ("gated_delta", "decay"): lambda x: torch.sigmoid(x + 3.0),
    ("gated_delta", "beta"): torch.sigmoid,
    ("resample", "grid"): torch.tanh,  # places inside of the image
    ("ssm_scan", "dt"): lambda x: 0.1 * x.abs(),
    ("ssm_scan", "a"): lambda x: -0.125 - x.abs(),
}
#: operators whose indices are all different
_PERMUTED = ("kv_write",)


def make_inputs(op: Operator, device_kind: str, seed: int) -> dict[str, torch.Tensor]:
    """Return the operator's inputs on a device, by the names that `Operator.buffers` has; a gradient's, with ``dy``.

    The values are standard normal, generated on the device in float32 (fp64: in float64) and rounded to the dtype.
    Zeros would not do: a GPU clocks higher on them than on real data (arXiv 2501.12084). The second operand of an
    product in 8 bits or fewer is stored column by column, the only order that Hopper's tensor cores accept, and what a
    convolution with the layout NHWC reads, channel by channel. Integers fill their range, and scales are positive.

    They are no inference tensors, also where they are made in inference mode, in which kernels run
    (`perfmodel.kernels.precision.rounding`): autograd keeps none of these, and none can be a parameter of an optimizer.

    Parameters
    ----------
    op : the operator; its dimensions are numbers, not arrays.
    device_kind : "cpu" or "cuda".
    seed : the same seed gives the same inputs on the same kind of device.

    Raises
    ------
    UsageError
        When torch has no such dtype.
    """
    inputs: dict[str, torch.Tensor] = {}
    tensors = gradient_inputs(op) if is_gradient(op) else op.buffers()
    for tensor in tensors:
        if not tensor.reads or tensor.writes:
            continue
        dtypes = {**TORCH_DTYPES, **INTEGERS}
        if tensor.dtype not in dtypes:
            raise UsageError(f"torch has no tensors in {tensor.dtype}.", remedy=f"Allowed: {', '.join(TORCH_DTYPES)}.")
        shape = tuple(round(float(size)) for size in tensor.shape)
        by_columns = op.op == "gemm" and tensor.name == "b" and tensor.dtype in _BY_COLUMNS
        stored = (*shape[:-2], shape[-1], shape[-2]) if by_columns else shape
        layout = torch.channels_last if _by_channels(op, tensor.name) else torch.contiguous_format
        with torch.inference_mode(False):
            empty = torch.empty(stored, dtype=dtypes[tensor.dtype], device=device_kind, memory_format=layout)
            inputs[tensor.name] = empty.mT if by_columns else empty
    fill_inputs(op, inputs, seed)
    return inputs


def _by_channels(op: Operator, name: str) -> bool:
    """Return whether a tensor of an operator is stored with its channels next to each other."""
    return getattr(op, "layout", "") == "nhwc" and name in ("x", "weight", OUTPUT_GRADIENT)


def fill_inputs(op: Operator, inputs: Mapping[str, torch.Tensor], seed: int) -> None:
    """Write the inputs of a seed into existing tensors; the values are those of `make_inputs`."""
    for name, tensor in inputs.items():
        tensor.copy_(_random(op, name, tensor, seed))


def copied_inputs(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return copies that are no inference tensors, as those of `make_inputs` are not."""
    with torch.inference_mode(False):
        return {name: value.clone() for name, value in inputs.items()}


def changed_inputs(op: Operator, inputs: Mapping[str, torch.Tensor], seed: int) -> list[str]:
    """Return the names of the inputs that differ from what `fill_inputs` writes with this seed."""
    return [
        name
        for name, tensor in inputs.items()
        if not torch.equal(*map(_comparable, (tensor, _random(op, name, tensor, seed).to(tensor.dtype))))
    ]


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that torch can compare: 8-bit numbers as bytes, since it cannot compare float8."""
    return tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor


def _random(op: Operator, name: str, like: torch.Tensor, seed: int) -> torch.Tensor:
    """Return the random values of one input, before they are rounded to its dtype."""
    generator = torch.Generator(device=like.device)
    generator.manual_seed(seed ^ zlib.crc32(f"{op.op} {name}".encode()))
    if like.dtype is torch.int8:
        return _narrow(_dtype_of(op, name), like, generator)
    if not like.is_floating_point():
        return _indices(op, name, like, generator)
    dtype = torch.float64 if like.dtype is torch.float64 else torch.float32
    values = torch.randn(like.shape, generator=generator, dtype=dtype, device=like.device)
    if name.endswith(_SCALE):
        # the layers of a mixture of experts multiply three times; 16 bits hold their results with smaller scales
        deep = op.op == "moe" and getattr(op, "weight_dtype", "") == "int8"
        return values.abs_().add_(0.125).mul_(SCALE_SIZE / 8 if deep else SCALE_SIZE)
    if (op.op, name) in _VALUES:
        return _VALUES[op.op, name](values)
    # positive where the operation is defined for positive numbers only
    return values.abs_().add_(0.125) if getattr(op, "kind", "") in _POSITIVE and name == "x" else values


def _dtype_of(op: Operator, name: str) -> str:
    """Return the dtype that an operator declares for an input."""
    return next((tensor.dtype for tensor in op.buffers() if tensor.name == name), "int8")


def _narrow(dtype: str, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return random numbers of 8 or 4 bits, one a byte."""
    if dtype == "fp4":
        numbers = torch.tensor([*FP4_DOUBLED, *(-number for number in FP4_DOUBLED)], dtype=torch.int8)
        return numbers.to(like.device)[torch.randint(16, like.shape, generator=generator, device=like.device)]
    largest = 8 if dtype == "int4" else 128
    return torch.randint(-largest, largest, like.shape, generator=generator, dtype=torch.int8, device=like.device)


def _indices(op: Operator, name: str, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return whole numbers below the operator's limit, spread as its dimension ``distribution`` says.

    Zipf's law, p_r = 1 / (r H_V), is drawn as the whole part of V^u, with u uniform: ranks between r and r + 1 have the
    share ln(1 + 1 / r) / ln V.
    """
    limit, spread = int(op.index_limit(name)), getattr(op, "distribution", "even")
    if op.op in _PERMUTED:
        return torch.randperm(like.numel(), generator=generator, device=like.device).reshape(like.shape)
    if spread == "same":
        one = torch.randint(limit, (1,), generator=generator, device=like.device)
        return one.expand(like.shape)
    if spread == "zipf":
        uniform = torch.rand(like.shape, generator=generator, dtype=torch.float64, device=like.device)
        return torch.clamp((limit + 1.0) ** uniform, max=limit).to(torch.int64) - 1
    return torch.randint(limit, like.shape, generator=generator, device=like.device)

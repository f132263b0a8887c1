"""Checks gradients against autograd in float64 of the operator's float64 reference.

Where the whole would cost too much, a part is checked of the inputs that are independent of each other, as rows of a
softmax: the gradients that sum over all of them, as those of a norm's weights, are then left out.

The tolerance of one element is 4 (u_dtype R + u_acc S), as in `perfmodel.kernels.check`, with R and S from
`perfmodel.kernels.gradient_errors` for the operators whose gradients cancel: attention, softmax and rope. For others R
is its size plus the median size of those that are not zero, since terms that cancel are about as large as the results
elsewhere, or plus the root sum square of the terms where these are rounded (convolutions in TF32, pools by their mean),
and S is sqrt(L) R; both are a times as large, with a 1 for most operators.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from perfmodel.kernels.check import SAFETY, UNDERFLOW, UNIT_ROUNDOFF, Verdict, count_wrong, declared_output
from perfmodel.kernels.gradient_errors import SCALES, Scale
from perfmodel.kernels.gradients import OUTPUT_GRADIENT, differentiated, forward_of, leaves
from perfmodel.kernels.reference import find_reference, pool2d, pool3d
from perfmodel.operators import Operator

#: elements of inputs, output and, in attention, scores that are checked at once, by kind of device: about 1 GB in
#: float64 with what autograd keeps on a CPU
_MOST_ELEMENTS = MappingProxyType({"cpu": 2**23, "cuda": 2**27})
#: FLOP of a check, by kind of device: seconds of a CPU core, and of a GPU with an eighth of a TFLOP/s in float64
_MOST_FLOP = MappingProxyType({"cpu": 1e10, "cuda": 5e11})


#: operator -> how many times more a rounding changes its gradients, beyond what their sizes say
_AMPLIFIED: Mapping[str, Callable[[Any], float]] = MappingProxyType(
    {
        # probabilities whose logarithms are rounded
        "cross_entropy": lambda op: 1.0 + math.log(float(op.vocab)) / 2,
        # the place of a sample is rounded in units of the image's width, and its gradient multiplied by it
        "resample": lambda op: float(max(op.d, op.h, op.w)) if op.grid else 1.0,
        # Winograd's algorithm transforms tiles of images and filters: with tiles of 4 x 4 its largest error is 7 times
        # that of the plain sum (Lavin and Gray, arXiv 1509.09308)
        "conv2d": lambda op: 7.0 if (op.dtype, op.r, op.s, op.stride) == ("fp32", 3, 3, 1) else 1.0,
    }
)


#: operators that read rows of a table, whose gradients are sums of different lengths
_LOOKUPS = ("embedding", "embedding_bag", "gather", "index_select")
#: pools -> torch's own, which knows to which of several equal elements a maximum's gradient goes
_POOLS: Mapping[str, Callable[[Any, torch.Tensor], torch.Tensor]] = MappingProxyType(
    {"pool2d": pool2d.pooled, "pool3d": pool3d.pooled}
)


class Part(NamedTuple):
    """What is cut to check a part: a dimension, the axis that it is of some inputs and of dy, and these inputs."""

    dimension: str
    axis: int
    inputs: tuple[str, ...]


#: operator -> the part of it that can be checked alone; the whole is checked of others
PARTS: Mapping[str, Part] = MappingProxyType(
    {
        "add_rms_norm": Part("rows", 0, ("x", "residual")),
        "layer_norm": Part("rows", 0, ("x",)),
        "rms_norm": Part("rows", 0, ("x",)),
        "softmax": Part("rows", 0, ("x",)),
        "reduction": Part("rows", 0, ("x",)),
        "swiglu": Part("rows", 0, ("gate", "up")),
        "geglu": Part("rows", 0, ("gate", "up")),
        "cross_entropy": Part("rows", 0, ("logits", "target")),
        "rope": Part("tokens", 0, ("qk", "positions")),
        "dropout": Part("numel", -1, ("x",)),
        "elementwise": Part("numel", -1, ("x",)),
        "pool2d": Part("n", 0, ("x",)),
        "pool3d": Part("n", 0, ("x",)),
        "conv2d": Part("n", 0, ("x",)),
        "conv3d": Part("n", 0, ("x",)),
        "resample": Part("n", 0, ("x", "grid")),
        "group_norm": Part("n", 0, ("x",)),
        "batch_norm": Part("c", 1, ("x",)),
        "embedding": Part("dim", -1, ("table",)),
        "embedding_bag": Part("dim", -1, ("table",)),
        "index_select": Part("cols", -1, ("table",)),
        "scatter_add": Part("cols", -1, ("x",)),
        "attention": Part("batch", 0, ("q", "k", "v")),
        "linear_attention": Part("batch", 0, ("q", "k", "v", "decay")),
        "gated_delta": Part("batch", 0, ("q", "k", "v", "decay", "beta")),
        "ssm_scan": Part("batch", 0, ("x", "dt", "b", "c", "z")),
    }
)


def check_gradients(op: Operator, inputs: Mapping[str, torch.Tensor], outputs: Any, seed: int = 0) -> Verdict:
    """Compare the gradients that a kernel returned with those of float64.

    Parameters
    ----------
    op : the backward pass.
    inputs : those of `perfmodel.kernels.gradients.gradient_inputs`, as they were when it ran.
    outputs : a gradient, or several, in the order of the inputs that they belong to.
    seed : chooses the part that is checked.
    """
    results = _tensors(op, outputs)
    wanted = leaves(op, inputs)[1]
    shapes = [tuple(result.shape) for result in results]
    expected_shapes = [tuple(leaf.shape) for leaf in wanted]
    if shapes != expected_shapes:
        return Verdict(False, math.inf, "", f"the gradients have shapes {shapes} instead of {expected_shapes}")
    part, chosen = PARTS.get(op.op), _chosen(op, inputs, seed)
    checked_op, checked_inputs = op, inputs
    if part is not None and chosen is not None:
        checked_op = op.changed(**{part.dimension: chosen.numel()})
        cut = (*part.inputs, OUTPUT_GRADIENT)
        checked_inputs = {n: x.index_select(part.axis, chosen) if n in cut else x for n, x in inputs.items()}
        kept = [op.op == "elementwise" or name in cut for name in _names(op, len(results))]
        results = [x.index_select(part.axis, chosen) for x, keep in zip(results, kept, strict=True) if keep]
    else:
        kept = [True] * len(results)
    exact = [x for x, keep in zip(_exact(checked_op, checked_inputs), kept, strict=True) if keep]
    scales = _scales(checked_op, checked_inputs, exact, kept)
    checked = (
        "all gradients"
        if part is None or chosen is None
        else f"the gradients of {chosen.numel()} of {getattr(op, part.dimension)} {part.dimension}"
    )
    return _compared(checked_op, results, exact, scales, checked)


def _tensors(op: Operator, outputs: Any) -> list[torch.Tensor]:
    """Return the gradients one by one; a user's function may return a stack of an elementwise operator's."""
    if isinstance(outputs, torch.Tensor):
        return list(outputs) if op.op == "elementwise" and outputs.dim() > 1 else [outputs]
    return [x for x in outputs if isinstance(x, torch.Tensor)] if isinstance(outputs, (tuple, list)) else []


def _names(op: Operator, count: int) -> tuple[str, ...]:
    return ("x",) * count if op.op == "elementwise" else differentiated(op)


def _chosen(op: Operator, inputs: Mapping[str, torch.Tensor], seed: int) -> torch.Tensor | None:
    """Return what of the operator's part is checked, with both ends, or None for the whole."""
    part = PARTS.get(op.op)
    if part is None:
        return None
    dy = inputs[OUTPUT_GRADIENT]
    elements = sum(x.numel() for x in inputs.values()) + dy.numel()
    if op.op == "attention":
        scores: Any = op
        elements += int(scores.batch * scores.heads * scores.seq_q * scores.keys())
    share = min(_MOST_ELEMENTS[dy.device.type] / elements, _MOST_FLOP[dy.device.type] / max(float(op.flop()), 1.0))
    size = int(getattr(op, part.dimension))
    count = max(2, int(share * size))
    if share >= 1 or count >= size:
        return None
    random = torch.randint(size, (count - 2,), generator=torch.Generator().manual_seed(seed))
    both_ends = torch.tensor([0, size - 1])
    chosen: torch.Tensor = torch.unique(torch.cat([random, both_ends]).to(dy.device))
    return chosen


def _exact(op: Operator, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Return the gradients in float64."""
    with torch.inference_mode(False), torch.enable_grad():
        # copies, since autograd keeps no inference tensors, as those are that a check computes from its inputs
        wide = {n: x.to(torch.float64, copy=True) if x.is_floating_point() else x.clone() for n, x in inputs.items()}
        forward = forward_of(op)
        prepared, wanted = leaves(op, wide)
        if op.op == "elementwise":
            prepared = {"x": torch.stack(list(prepared["x"]))}
        exact: tuple[torch.Tensor, ...] = torch.autograd.grad(
            _forward(forward, prepared), wanted, wide[OUTPUT_GRADIENT]
        )
        return exact


def _forward(op: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return the whole output in float64: that of the reference, but of pools with torch's choice among equals."""
    if op.op in _POOLS:
        return _POOLS[op.op](op, inputs["x"])
    device = next(iter(inputs.values())).device
    everything = tuple(torch.arange(size, device=device) for size in declared_output(op)[0])
    return find_reference(op.op)(op, inputs, everything).value


def _scales(
    op: Operator, inputs: Mapping[str, torch.Tensor], exact: list[torch.Tensor], kept: Sequence[bool]
) -> Sequence[Scale]:
    """Return the sizes that the errors of each gradient are proportional to; ``kept`` tells which are checked."""
    if op.op in SCALES:
        return SCALES[op.op](op, {n: x.to(torch.float64) if x.is_floating_point() else x for n, x in inputs.items()})
    if op.op in _LOOKUPS:
        return _of_lookups(op, inputs)
    amplified = _AMPLIFIED.get(op.op, lambda _: 1.0)(op)
    outputs = sum(x.numel() for x in exact)
    rounded = _rounded_terms(op, inputs)
    cancelled = [_median(x.abs()) for x in exact] if rounded is None else list(itertools.compress(rounded, kept))
    scales = []
    for expected, least in zip(exact, cancelled, strict=True):
        terms = max(float(op.flop()) / (2 * outputs), *map(float, expected.shape), 1.0)
        scale = amplified * (expected.abs() + least)
        scales.append(Scale(scale, math.sqrt(terms) * scale))
    return scales


def _median(size: torch.Tensor) -> torch.Tensor | float:
    """Return the median of the sizes that are not zero."""
    nonzero = size[size > 0]
    return nonzero.median() if nonzero.numel() else 0.0


def _rounded_terms(op: Any, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...] | None:
    """Return the root sum square of the terms of each gradient where these are rounded before they are added.

    Their errors stay where terms cancel, so that no size of other results tells them.

    - Tensor cores read both operands of a product in TF32: each has an error of its own, so that those of the products
      are sqrt(2) times as large in the mean square. Cores that cut the digits off, and do not round, add a part that is
      proportional to the gradient. Of 1.2 million gradients of a convolution one to three were beyond a tolerance of
      the gradient and its median, on an H200 and with digits cut off on a CPU.
    - The gradient of a mean is dy over the pixels of the window, a number in dy's dtype (AveragePool2d.cu), summed over
      the windows that a pixel is in.
    """
    if op.op in ("conv2d", "conv3d") and op.dtype == "tf32":
        squares = {name: x.to(torch.float64).square() for name, x in inputs.items()}
        return tuple(math.sqrt(2.0) * x.clamp(min=0.0).sqrt() for x in _exact(op, squares))
    if op.op in _POOLS and op.kind == "mean":
        window = float(op.k) ** 2 if op.op == "pool2d" else float(op.t * op.r * op.s)
        squares = {**inputs, OUTPUT_GRADIENT: inputs[OUTPUT_GRADIENT].to(torch.float64).square()}
        return tuple(x.sqrt() / math.sqrt(window) for x in _exact(op, squares))
    return None


def _of_lookups(op: Operator, inputs: Mapping[str, torch.Tensor]) -> list[Scale]:
    """Return the sizes for sums of the dy of each place that read a row of a table: a popular row has many.

    Atomic additions round each partial sum to the dtype. Those of n terms of size s have the size s sqrt(j), and all
    of them together s n / sqrt(2), which is about the sum of the magnitudes.
    """
    dy = inputs[OUTPUT_GRADIENT]
    magnitudes = _exact(op, {**inputs, OUTPUT_GRADIENT: dy.abs()})
    counts = _exact(op, {**inputs, OUTPUT_GRADIENT: torch.ones_like(dy)})
    return [Scale(size, count.sqrt() * size) for size, count in zip(magnitudes, counts, strict=True)]


def _compared(
    op: Operator, results: list[torch.Tensor], exact: list[torch.Tensor], scales: Sequence[Scale], checked: str
) -> Verdict:
    """Return the verdict on some gradients."""
    wrong, count, relative = 0, 0, 0.0
    sums = min(UNIT_ROUNDOFF[op.dtype], UNIT_ROUNDOFF["fp32"])
    for result, expected, scale in zip(results, exact, scales, strict=True):
        # gradients of what is kept in fp32 are rounded to that in an operator in fp64
        roundoff = max(UNIT_ROUNDOFF[op.dtype], torch.finfo(result.dtype).eps / 2)
        tolerance = SAFETY * (roundoff * scale.rounded + sums * scale.summed + UNDERFLOW.get(op.dtype, 0.0))
        error = (result.to(torch.float64) - expected).abs()
        wrong += count_wrong(op.op, ~(error <= tolerance), result)  # a comparison with NaN is false
        count += error.numel()
        largest = float(expected.abs().max())
        relative = max(relative, float(error.max()) / largest if largest else float(error.max()))
    message = f"{wrong} of {count} elements of gradients are beyond the tolerance" if wrong else ""
    return Verdict(not wrong, relative, checked, message)

"""Maps calls of pools, functions of single elements and optimizers to operators of the model.

Each function takes a `Call` and returns the operator, or raises `NotModelledError` with the reason. The order of the
arguments is that of PyTorch's native_functions.yaml and derivatives.yaml. If a trace does not say how much a call
moves, the least possible is counted, so that a bound stays a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from perfmodel.formats.torch_trace.call import Call, NotModelledError, Shape
from perfmodel.formats.torch_trace.operators.memory import list_dtype, listed
from perfmodel.operators import Operator
from perfmodel.operators.dropout import Dropout
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.optimizer import Optimizer
from perfmodel.operators.pool2d import Pool2d
from perfmodel.operators.reduction import Reduction

# --- pools


def max_pool(call: Call) -> Operator:
    """aten::max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)."""
    return _pool(call, "max", 5)


def mean_pool(call: Call) -> Operator:
    """aten::avg_pool2d(self, kernel_size, stride, padding, ceil_mode, count_include_pad, ...)."""
    return _pool(call, "mean", 4)


def _pool(call: Call, kind: str, ceil_mode: int) -> Operator:
    x = call.tensor(0)
    if not call.has_values:
        return _pool_of_sizes(x, call.result, kind, backward=False)
    if len(x.dims) < 3:
        raise NotModelledError(f"its input has the shape {x.text()}")
    kernel, stride, padding = ({*call.ints(index)} for index in (1, 2, 3))
    if len(kernel) != 1 or len(stride) > 1 or len(padding) > 1:
        raise NotModelledError("its windows differ by direction")
    side = kernel.pop()
    *images, c, h, w = x.dims
    return Pool2d(n=math.prod(images), c=c, h=h, w=w, k=side, stride=(stride or {side}).pop(),
                  padding=(padding or {0}).pop(), ceil_mode=call.true(ceil_mode), kind=kind, dtype=x.dtype)  # fmt: skip


def max_pool_backward(call: Call) -> Operator:
    """aten::max_pool2d_with_indices_backward(grad_output, self, kernel_size, ...): both sizes tell what it moves."""
    return _pool_of_sizes(call.tensor(1), call.tensor(0).dims, "max", backward=True)


def mean_pool_backward(call: Call) -> Operator:
    """aten::avg_pool2d_backward(grad_output, self, ...), aten::_adaptive_avg_pool2d_backward(grad_output, self)."""
    return _pool_of_sizes(call.tensor(1), call.tensor(0).dims, "mean", backward=True)


def _pool_of_sizes(x: Shape, result: tuple[int, ...], kind: str, *, backward: bool) -> Operator:
    """Return a pool with as many outputs, of windows side by side: the least FLOP, and the same bytes."""
    if len(x.dims) < 3 or len(result) != len(x.dims):
        raise NotModelledError("the trace does not say its windows")
    *images, c, h, w = x.dims
    side = h // result[-2] if result[-2] else 0
    if side < 1 or (h // side, w // side) != result[-2:]:
        raise NotModelledError("no window leads from its input to its output")
    return Pool2d(n=math.prod(images), c=c, h=h, w=w, k=side, kind=kind, backward=backward, dtype=x.dtype)


def adaptive_mean_pool(call: Call) -> Operator:
    """aten::_adaptive_avg_pool2d(self, output_size): the sum of each window; to one pixel where sizes are missing."""
    x = call.tensor(0)
    if len(x.dims) < 3:
        raise NotModelledError(f"its input has the shape {x.text()}")
    outputs = math.prod(call.ints(1)) if call.has_values else 1
    pixels = x.dims[-1] * x.dims[-2]
    if outputs < 1 or pixels % outputs:
        raise NotModelledError("its windows overlap")
    return Reduction(rows=x.numel // pixels * outputs, cols=pixels // outputs, dtype=x.dtype)


# --- images of another size


def enlarged(call: Call) -> Operator:
    """aten::upsample_nearest2d(self, output_size, ...) and its kin: every pixel is written, and fewer are read."""
    x, size = call.tensor(0), call.ints(1)
    if not size or len(size) != len(x.dims) - 2 or min(size) < 1:
        raise NotModelledError("the trace does not say the size of its result")
    numel = math.prod(x.dims[:2]) * math.prod(size)
    return Elementwise(numel=numel, kind="copy", num_inputs=int(numel <= x.numel), dtype=x.dtype)


def enlarged_backward(call: Call) -> Operator:
    """aten::upsample_nearest2d_backward(grad_output, output_size, input_size, ...): sums of the gradient's pixels."""
    dy, size = call.tensor(0), call.ints(2)
    rows = math.prod(size)
    if not size or rows < 1 or dy.numel % rows:
        raise NotModelledError("its windows overlap")
    return Reduction(rows=rows, cols=dy.numel // rows, dtype=dy.dtype)


# --- elementwise


def gated(call: Call) -> Operator:
    """aten::glu(self, dim): one half times the sigmoid of the other, 5 FLOP as silu(x) y."""
    x = call.tensor(0)
    return Elementwise(numel=x.numel // 2, kind="silu_mul", dtype=x.dtype)


def gated_backward(call: Call) -> Operator:
    """aten::glu_backward(grad_output, self, dim)."""
    dy = call.tensor(0)
    return Elementwise(numel=dy.numel, kind="silu_mul", backward=True, dtype=dy.dtype)


def gradient(kind: str) -> Callable[[Call], Operator]:
    """Return the mapping of the gradient of a function: aten::gelu_backward(grad_output, self, ...) and its kin."""

    def build(call: Call) -> Operator:
        dy = call.tensor(0)
        return Elementwise(numel=dy.numel, kind=kind, backward=True, dtype=dy.dtype)

    return build


def dropout(call: Call) -> Operator:
    """aten::native_dropout(input, p, train), aten::_fused_dropout."""
    x = call.tensor(0)
    return Dropout(numel=x.numel, dtype=x.dtype)


def dropout_backward(call: Call) -> Operator:
    """aten::native_dropout_backward(grad_output, mask, scale), aten::_masked_scale."""
    dy = call.tensor(0)
    return Dropout(numel=dy.numel, backward=True, dtype=dy.dtype)


def fill(call: Call) -> Operator:
    """aten::fill_(self, value), aten::zero_(self), and what writes random numbers: every element is written once."""
    x = call.tensor(0)
    return Elementwise(numel=x.distinct, kind="fill", dtype=x.dtype)


# --- optimizers


def fused_adam(call: Call) -> Operator:
    """aten::_fused_adamw_(self, grads, exp_avgs, exp_avg_sqs, ...), aten::_fused_adam_."""
    return _optimizer(call, "adamw")


def fused_sgd(call: Call) -> Operator:
    """aten::_fused_sgd_(self, grads, momentum_buffer_list, ...); without the list it has no momentum."""
    return _optimizer(call, "sgd", momentum=isinstance(call.argument(2), tuple))


def _optimizer(call: Call, kind: str, *, momentum: bool = True) -> Operator:
    weights = listed(call, 0)
    total = sum(shape.numel for shape in weights)
    return Optimizer(parameters=total, kind=kind, num_tensors=len(weights), momentum=momentum, dtype=list_dtype(call))

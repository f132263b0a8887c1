"""Maps calls of functions of single elements and of optimizers to operators of the model.

Each function takes a `Call` and returns the operator, or raises `NotModelledError` with the reason. The order of the
arguments is that of PyTorch's native_functions.yaml and derivatives.yaml. If a trace does not say how much a call
moves, the least possible is counted, so that a bound stays a bound.
"""

from __future__ import annotations

from collections.abc import Callable

from perfmodel.formats.torch_trace.call import Call
from perfmodel.formats.torch_trace.operators.memory import list_dtype, listed
from perfmodel.operators import Operator
from perfmodel.operators.dropout import Dropout
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.optimizer import Optimizer

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

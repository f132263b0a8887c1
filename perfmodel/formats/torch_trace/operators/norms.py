"""Maps calls of norms, softmax and losses, forward and backward, to operators of the model.

Each function takes a `Call` and returns the operator, or raises `NotModelledError` with the reason. The order of the
arguments is that of PyTorch's native_functions.yaml and derivatives.yaml. If a trace does not say how much a call
moves, the least possible is counted, so that a bound stays a bound.
"""

from __future__ import annotations

import math
import re

from perfmodel.formats.torch_trace.call import Call, NotModelledError, Shape
from perfmodel.formats.torch_trace.operators.memory import rows_of
from perfmodel.operators import Operator
from perfmodel.operators.batch_norm import BatchNorm
from perfmodel.operators.cross_entropy import CrossEntropy
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gather import Gather
from perfmodel.operators.group_norm import GroupNorm
from perfmodel.operators.layer_norm import LayerNorm
from perfmodel.operators.reduction import Reduction
from perfmodel.operators.rms_norm import RmsNorm
from perfmodel.operators.softmax import Softmax

#: kernels of cuDNN, MIOpen and PyTorch (Normalization.cuh) that compute the statistics of a batch
_STATISTICS = re.compile(r"bn_fw_tr|batchnormfwdtrain|batch_norm_collect_statistics", re.IGNORECASE)

# --- norms


def batch_norm(call: Call) -> Operator:
    """aten::native_batch_norm(input, weight, bias, running_mean, running_var, training, ...), cudnn, miopen.

    Without values, the names of the kernels say whether statistics of this batch are computed; where they do not, those
    of earlier batches are assumed, which is the least.
    """
    n, c, hw, dtype = _channels(call.tensor(0))
    training = call.true(5) if call.has_values else any(_STATISTICS.search(kernel) for kernel in call.kernels)
    return BatchNorm(n=n, c=c, hw=hw, training=training, dtype=dtype)


def batch_norm_of_batch(call: Call) -> Operator:
    """aten::_batch_norm_with_update(input, weight, bias, running_mean, running_var, momentum, eps), in training."""
    n, c, hw, dtype = _channels(call.tensor(0))
    return BatchNorm(n=n, c=c, hw=hw, training=True, dtype=dtype)


def batch_norm_backward(call: Call) -> Operator:
    """aten::native_batch_norm_backward(grad_out, input, ...), aten::cudnn_batch_norm_backward(input, grad_out, ...)."""
    n, c, hw, dtype = _channels(call.tensor(0))
    return BatchNorm(n=n, c=c, hw=hw, backward=True, dtype=dtype)


def _channels(x: Shape) -> tuple[int, int, int, str]:
    """Return images, channels, pixels and dtype."""
    if len(x.dims) < 2:
        raise NotModelledError(f"its input has the shape {x.text()}")
    return x.dims[0], x.dims[1], math.prod(x.dims[2:]), x.dtype


def group_norm(call: Call) -> Operator:
    """aten::native_group_norm(input, weight, bias, N, C, HxW, group, eps)."""
    return _group_norm(call, call.tensor(0), first=3, backward=False)


def group_norm_backward(call: Call) -> Operator:
    """aten::native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)."""
    return _group_norm(call, call.tensor(1), first=5, backward=True)


def _group_norm(call: Call, x: Shape, *, first: int, backward: bool) -> Operator:
    sizes = [number for index in range(first, first + 4) for number in call.ints(index)]
    if len(sizes) != 4:
        raise NotModelledError("the trace does not say the groups of the norm")
    n, c, hw, groups = sizes
    return GroupNorm(n=n, groups=groups, c=c, hw=hw, backward=backward, dtype=x.dtype)


def layer_norm_backward(call: Call) -> Operator:
    """aten::native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask)."""
    x, mean = call.tensor(1), call.tensor(3)
    return LayerNorm(rows=mean.numel, cols=_per(x, mean), backward=True, dtype=x.dtype)


def rms_norm_backward(call: Call) -> Operator:
    """aten::_fused_rms_norm_backward(grad_out, input, normalized_shape, rstd, weight, output_mask)."""
    x, root = call.tensor(1), call.tensor(3)
    return RmsNorm(rows=root.numel, cols=_per(x, root), backward=True, dtype=x.dtype)


def _per(x: Shape, statistics: Shape) -> int:
    """Return the elements of x for each of its statistics."""
    if x.numel % statistics.numel:
        raise NotModelledError(f"{statistics.numel} statistics do not belong to {x.numel} elements")
    return x.numel // statistics.numel


# --- softmax and losses


def softmax_backward(call: Call) -> Operator:
    """aten::_softmax_backward_data(grad_output, output, dim, input_dtype), aten::_log_softmax_backward_data."""
    rows, cols = rows_of(call, 2)
    return Softmax(rows=rows, cols=cols, backward=True, log="log_softmax" in call.name, dtype=call.tensor(0).dtype)


def cross_entropy(call: Call) -> Operator:
    """aten::cross_entropy_loss(self [rows, classes], target, ...), if it launches kernels itself."""
    rows, cols, dtype = _classes(call.tensor(0))
    return CrossEntropy(rows=rows, vocab=cols, algorithm="loss", dtype=dtype)


def nll_loss(call: Call) -> Operator:
    """aten::nll_loss_forward(self [rows, classes], target, ...): one element a row."""
    rows, _, dtype = _classes(call.tensor(0))
    return Gather(numel=rows, dtype=dtype)


def row_loss(call: Call) -> Operator:
    """aten::multi_margin_loss(self [rows, classes], target, ...): a number of each row."""
    rows, cols, dtype = _classes(call.tensor(0))
    return Reduction(rows=rows, cols=cols, dtype=dtype)


def nll_loss_backward(call: Call) -> Operator:
    """aten::nll_loss_backward(grad_output, self [rows, classes], target, ...): zeros, and one element a row."""
    rows, cols, dtype = _classes(call.tensor(1))
    return Elementwise(numel=rows * cols, kind="fill", dtype=dtype)


def _classes(x: Shape) -> tuple[int, int, str]:
    if len(x.dims) < 2:
        raise NotModelledError(f"its input has the shape {x.text()}")
    return x.numel // x.dims[1], x.dims[1], x.dtype

"""Maps calls of norms, pools, losses, look-ups and optimizers, forward and backward, to operators of the model.

Each function takes a `Call` and returns the operator, or raises `NotModelledError` with the reason. The order of the
arguments is that of PyTorch's native_functions.yaml and derivatives.yaml. If a trace does not say how much a call
moves, the least possible is counted, so that a bound stays a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from perfmodel.formats.torch_trace.call import Call, NotModelledError, Shape
from perfmodel.formats.torch_trace.operators.memory import list_dtype, listed, rows_of
from perfmodel.operators import Operator
from perfmodel.operators.batch_norm import BatchNorm
from perfmodel.operators.cross_entropy import CrossEntropy
from perfmodel.operators.dropout import Dropout
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.embedding import Embedding
from perfmodel.operators.gather import Gather
from perfmodel.operators.group_norm import GroupNorm
from perfmodel.operators.index_select import IndexSelect
from perfmodel.operators.layer_norm import LayerNorm
from perfmodel.operators.optimizer import Optimizer
from perfmodel.operators.pool2d import Pool2d
from perfmodel.operators.reduction import Reduction
from perfmodel.operators.rms_norm import RmsNorm
from perfmodel.operators.sampling import Sampling
from perfmodel.operators.scan import Scan
from perfmodel.operators.scatter_add import ScatterAdd
from perfmodel.operators.softmax import Softmax
from perfmodel.operators.sort import Sort
from perfmodel.operators.topk import Topk

#: where nothing is said of the indices, all of them may be the same
_LEAST = "same"


# --- norms


def batch_norm(call: Call) -> Operator:
    """aten::native_batch_norm(input, weight, bias, running_mean, running_var, training, ...), cudnn, miopen.

    Without values, statistics of earlier batches are assumed, which is the least.
    """
    n, c, hw, dtype = _channels(call.tensor(0))
    training = call.has_values and call.true(5)
    return BatchNorm(n=n, c=c, hw=hw, training=training, dtype=dtype)


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
    return Softmax(rows=rows, cols=cols, backward=True, dtype=call.tensor(0).dtype)


def cross_entropy(call: Call) -> Operator:
    """aten::cross_entropy_loss(self [rows, classes], target, ...), if it launches kernels itself."""
    rows, cols, dtype = _classes(call.tensor(0))
    return CrossEntropy(rows=rows, vocab=cols, algorithm="loss", dtype=dtype)


def nll_loss(call: Call) -> Operator:
    """aten::nll_loss_forward(self [rows, classes], target, ...): one element a row."""
    rows, _, dtype = _classes(call.tensor(0))
    return Gather(numel=rows, dtype=dtype)


def nll_loss_backward(call: Call) -> Operator:
    """aten::nll_loss_backward(grad_output, self [rows, classes], target, ...): zeros, and one element a row."""
    rows, cols, dtype = _classes(call.tensor(1))
    return Elementwise(numel=rows * cols, kind="fill", dtype=dtype)


def _classes(x: Shape) -> tuple[int, int, str]:
    if len(x.dims) < 2:
        raise NotModelledError(f"its input has the shape {x.text()}")
    return x.numel // x.dims[1], x.dims[1], x.dtype


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


# --- look-ups


def embedding_backward(call: Call) -> Operator:
    """aten::embedding_dense_backward(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq)."""
    dy, index, vocab = call.tensor(0), call.tensor(1), call.ints(2)
    if len(vocab) != 1:
        raise NotModelledError("the trace does not say the rows of the table")
    return Embedding(tokens=index.numel, vocab=vocab[0], dim=dy.dims[-1], unique=1, backward=True, dtype=dy.dtype)


def gather(call: Call) -> Operator:
    """aten::gather(self, dim, index)."""
    return Gather(numel=call.tensor(2).numel, distribution=_LEAST, dtype=call.tensor(0).dtype)


def index(call: Call) -> Operator:
    """aten::index(self, indices) with indices along the first axis."""
    table, lists = call.tensor(0), call.argument(1)
    indices = lists if isinstance(lists, tuple) else (lists,) if isinstance(lists, Shape) else ()
    if len(indices) != 1:
        raise NotModelledError("it has indices along several axes")
    return IndexSelect(rows=indices[0].numel, cols=_row(table), distribution=_LEAST, dtype=table.dtype)


def index_add(call: Call) -> Operator:
    """aten::index_add_(self, dim, index, source) along the first axis."""
    table, at, source = call.tensor(0), call.tensor(2), call.tensor(3)
    if call.ints(1) != (0,):
        raise NotModelledError("it adds along another axis than the first")
    return ScatterAdd(rows=at.numel, cols=_row(source), table=table.dims[0], unique=1, dtype=table.dtype)


def scatter_add(call: Call) -> Operator:
    """aten::scatter_add_(self, dim, index, src)."""
    table = call.tensor(0)
    return ScatterAdd(rows=call.tensor(2).numel, table=table.numel, unique=1, dtype=table.dtype)


def _row(x: Shape) -> int:
    """Return the elements of a row of the first axis."""
    return math.prod(x.dims[1:])


# --- elementwise


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


# --- sorts and scans


def sort(call: Call) -> Operator:
    """aten::sort(self, dim, descending): pairs of a key and its place; the radix sort moves the least."""
    rows, cols = rows_of(call, 1)
    return Sort(rows=rows, cols=cols, value_dtype="int64", dtype=call.tensor(0).dtype)


def topk(call: Call) -> Operator:
    """aten::topk(self, k, dim, largest, sorted)."""
    rows, cols = rows_of(call, 2)
    kept = call.ints(1)
    if len(kept) != 1:
        raise NotModelledError("the trace does not say how many are kept")
    return Topk(rows=rows, cols=cols, k=kept[0], dtype=call.tensor(0).dtype)


def scan(call: Call) -> Operator:
    """aten::cumsum(self, dim, dtype), aten::cumprod."""
    rows, cols = rows_of(call, 1)
    return Scan(rows=rows, cols=cols, dtype=call.tensor(0).dtype)


def multinomial(call: Call) -> Operator:
    """aten::multinomial(self [rows, classes], num_samples, ...), if it launches kernels itself."""
    x = call.tensor(0)
    return Sampling(rows=math.prod(x.dims[:-1]), vocab=x.dims[-1], algorithm="gumbel_fused", dtype=x.dtype)


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
    return Optimizer(
        parameters=total, kind=kind, num_tensors=len(weights), momentum=momentum, dtype=list_dtype(call, 0)
    )

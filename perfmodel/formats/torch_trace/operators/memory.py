"""Calls of a framework's operators that move data more than they compute, as operators of the model.

Elementwise operators, norms, reductions, copies, look-ups, optimizers, collectives and Triton's generated kernels.
Each function takes a `Call` and returns the operator, or raises `NotModelledError` with the reason. Where a trace does
not say how much a call moves, it is counted low: a bound made of it stays one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.formats.torch_trace.call import DTYPES, Call, NotModelledError, Shape, known
from perfmodel.operators import Operator
from perfmodel.operators.all_gather import AllGather
from perfmodel.operators.all_reduce import AllReduce
from perfmodel.operators.alltoall import Alltoall
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.embedding import Embedding
from perfmodel.operators.layer_norm import LayerNorm
from perfmodel.operators.reduce_scatter import ReduceScatter
from perfmodel.operators.reduction import Reduction
from perfmodel.operators.rms_norm import RmsNorm
from perfmodel.operators.softmax import Softmax


def elementwise(kind: str, out_dtype: str = "") -> Callable[[Call], Operator]:
    """Return the mapping of an operator whose tensors broadcast against each other."""

    def build(call: Call) -> Operator:
        tensors = tuple(known(shape) for shape in call.all_tensors())
        return _elementwise(kind, tensors, out_dtype)

    return build


def _elementwise(kind: str, tensors: Sequence[Shape], out_dtype: str = "") -> Operator:
    """Return an operator over tensors that broadcast; those smaller than the result are read from cache.

    Of mixed dtypes the inputs have the smallest; the result has the largest, unless ``out_dtype`` says otherwise.
    """
    if not tensors:
        raise NotModelledError("no shapes of tensors")
    numel = _broadcast(tensors)
    full = [shape for shape in tensors if shape.distinct == numel]
    if not full:
        raise NotModelledError("no input as large as the result: it broadcasts them all")
    dtypes = sorted((shape.dtype for shape in full), key=dtype_bytes)
    return Elementwise(numel=numel, kind=kind, num_inputs=len(full), dtype=dtypes[0], out_dtype=out_dtype or dtypes[-1])


def _broadcast(tensors: Sequence[Shape]) -> int:
    """Return the number of elements of what shapes broadcast to."""
    rank = max(len(shape.dims) for shape in tensors)
    axes = zip(*((1,) * (rank - len(shape.dims)) + shape.dims for shape in tensors), strict=True)
    sizes = [set(axis) - {1} for axis in axes]
    if any(len(different) > 1 for different in sizes):
        raise NotModelledError("shapes that do not broadcast")
    return math.prod(different.pop() for different in sizes if different)


def unary(kind: str) -> Callable[[Call], Operator]:
    """Return the mapping of an operator of which only the first argument is read."""

    def build(call: Call) -> Operator:
        return _elementwise(kind, (call.tensor(0),))

    return build


def where(call: Call) -> Operator:
    """aten::where(condition, self, other): the condition is one byte an element and counts as a value, too low."""
    return _elementwise("where", (call.tensor(1), call.tensor(2)))


def copy(call: Call) -> Operator:
    """aten::copy_(self, src): a cast where the dtypes differ."""
    target, source = call.tensor(0), call.tensor(1)
    if source.distinct < target.numel:
        raise NotModelledError("a copy of an expanded tensor, which writes more than it reads")
    kind = "copy" if source.dtype == target.dtype else "cast"
    return Elementwise(numel=target.numel, kind=kind, dtype=source.dtype, out_dtype=target.dtype)


def joined(call: Call) -> Operator:
    """aten::cat(tensors, dim), aten::stack: everything is read once and written once."""
    dtype = _list_dtype(call, 0)
    return Elementwise(numel=sum(shape.numel for shape in _listed(call, 0)), kind="copy", dtype=dtype)


def foreach(kind: str) -> Callable[[Call], Operator]:
    """Return the mapping of an aten::_foreach_ operator: lists of tensors of equal sizes, and numbers."""

    def build(call: Call) -> Operator:
        lists = [argument for argument in call.arguments if isinstance(argument, tuple)]
        numel = sum(shape.numel for shape in _listed(call, 0))
        same = [one for one in lists if sum(shape.numel for shape in one) == numel]
        return Elementwise(numel=numel, kind=kind, num_inputs=len(same), dtype=_list_dtype(call, 0))

    return build


def foreach_copy(call: Call) -> Operator:
    """aten::_foreach_copy_(self, src): src is read and self is written."""
    return Elementwise(numel=sum(shape.numel for shape in _listed(call, 0)), kind="copy", dtype=_list_dtype(call, 0))


def fused_adam(call: Call) -> Operator:
    """aten::_fused_adam_(self, grads, exp_avgs, exp_avg_sqs, ...), aten::_fused_adamw_.

    Reads the weights, gradients and both moments, writes the weights and both moments: seven tensors are moved, which
    the operator counts as six inputs and one output.
    """
    numel = sum(shape.numel for shape in _listed(call, 0))
    return Elementwise(numel=numel, kind="fma", num_inputs=6, dtype=_list_dtype(call, 0))


def _listed(call: Call, index: int) -> tuple[Shape, ...]:
    """Return a list of tensors, whose dtypes the trace may not hold."""
    found = call.arguments[index] if index < len(call.arguments) else None
    if isinstance(found, Shape):
        found = (found,)
    if not found or sum(shape.numel for shape in found) < 1:
        raise NotModelledError(f"argument {index} of {call.name} is no list of tensors")
    return found


def _list_dtype(call: Call, index: int) -> str:
    """Return the dtype that all tensors of a list have."""
    said = {known(shape).dtype for shape in _listed(call, index)}
    if len(said) > 1:
        raise NotModelledError(f"a list of tensors of dtypes {', '.join(sorted(said))}")
    return said.pop()


def _rows(axes: tuple[int, ...], *, of: Shape) -> tuple[int, int]:
    """Return independent rows, and the elements of each, of a tensor that is worked through along some axes."""
    rank = len(of.dims)
    if any(not -rank <= axis < rank for axis in axes):
        raise NotModelledError(f"axes {axes} of a tensor of {rank}")
    cols = math.prod(of.dims[axis] for axis in {axis % rank for axis in axes}) if axes else of.numel
    return of.numel // cols, cols


def softmax(call: Call) -> Operator:
    """aten::_softmax(self, dim, half_to_float), aten::_log_softmax."""
    x = call.tensor(0)
    axes = call.ints(1)
    if len(axes) != 1:
        raise NotModelledError("a softmax whose axis the trace does not hold")
    rows, cols = _rows(axes, of=x)
    return Softmax(rows=rows, cols=cols, dtype=x.dtype)


def layer_norm(call: Call) -> Operator:
    """aten::native_layer_norm(input, normalized_shape, weight, bias, eps)."""
    rows, cols, dtype = _norm(call)
    return LayerNorm(rows=rows, cols=cols, dtype=dtype)


def batch_norm(call: Call) -> Operator:
    """aten::native_batch_norm(input, weight, bias, ...), aten::cudnn_batch_norm: reads the input, writes the result.

    Counted low: in training the statistics need a pass over the input before the first result, from a cache at best.
    A multiplication and an addition an element are the least that it computes.
    """
    return _elementwise("fma", (call.tensor(0),))


def batch_norm_backward(call: Call) -> Operator:
    """aten::native_batch_norm_backward(grad_out, input, ...), aten::cudnn_batch_norm_backward(input, grad_out, ...).

    Reads both and writes the gradient of the input, once each: counted low, as `batch_norm`.
    """
    return _elementwise("fma", (call.tensor(0), call.tensor(1)))


def rms_norm(call: Call) -> Operator:
    """aten::rms_norm(input, normalized_shape, weight, eps), aten::_fused_rms_norm."""
    rows, cols, dtype = _norm(call)
    return RmsNorm(rows=rows, cols=cols, dtype=dtype)


def _norm(call: Call) -> tuple[int, int, str]:
    """Return rows, columns and dtype of a norm; the columns are as many as it has weights, where it has any."""
    x, weight = call.tensor(0), call.optional(2)
    cols = weight.numel if weight is not None else math.prod(call.ints(1))
    if cols < 1 or x.numel % cols:
        raise NotModelledError(f"a norm over {cols} of {x.numel} elements")
    return x.numel // cols, cols, x.dtype


def reduction(call: Call) -> Operator:
    """aten::sum(self, dim, keepdim, dtype), aten::mean and their like; without axes over everything.

    aten::sum(self, dtype) has two arguments, and none of them is an axis; aten::max(self, other) is elementwise.
    """
    x = call.tensor(0)
    if call.optional(1) is not None:
        return _elementwise("maximum", (x, call.tensor(1)))
    axes = () if len(call.values) == 2 else call.ints(1)
    rows, cols = _rows(axes, of=x)
    return Reduction(rows=rows, cols=cols, dtype=x.dtype)


def vector_norm(call: Call) -> Operator:
    """aten::linalg_vector_norm(self, ord, dim, keepdim)."""
    x = call.tensor(0)
    rows, cols = _rows(call.ints(2), of=x)
    return Reduction(rows=rows, cols=cols, dtype=x.dtype)


def embedding(call: Call) -> Operator:
    """aten::embedding(weight, indices)."""
    return _embedding(call.tensor(0), call.tensor(1))


def index_select(call: Call) -> Operator:
    """aten::index_select(self, dim, index): along the first axis of a matrix it is what an embedding does."""
    if call.ints(1) != (0,):
        raise NotModelledError("an index_select along another axis than the first")
    return _embedding(call.tensor(0), call.tensor(2))


def _embedding(table: Shape, index: Shape) -> Operator:
    if len(table.dims) != 2:
        raise NotModelledError(f"a table of shape {table.text()}")
    # how many different rows are looked up is not in the trace; one at least, so that the bound stays one
    return Embedding(tokens=index.numel, vocab=table.dims[0], dim=table.dims[1], unique=1, dtype=table.dtype)


def triton_pointwise(call: Call) -> Operator:
    """triton_poi_...(tensors, xnumel): TorchInductor's fused elementwise kernels, by the tensors that they move."""
    return _triton(call, call.ints(_last(call)))


def triton_reduction(call: Call) -> Operator:
    """triton_red_... and triton_per_...(tensors, xnumel, rnumel): fused reductions, by the tensors that they move."""
    last = _last(call)
    sizes = (*call.ints(last - 1), *call.ints(last))
    if len(sizes) == 2 and sum(shape.numel >= math.prod(sizes) for shape in call.all_tensors()) == 1:
        return Reduction(
            rows=sizes[0], cols=sizes[1], dtype=known(max(call.all_tensors(), key=lambda s: s.numel)).dtype
        )
    return _triton(call, sizes)


def _last(call: Call) -> int:
    """Return the place of the last argument that has a value."""
    return max((place for place, value in enumerate(call.values) if value.strip()), default=-1)


def _triton(call: Call, sizes: tuple[int, ...]) -> Operator:
    """Return a copy that moves each tensor of the kernel's size once; what it reads and writes counts once, too low."""
    numel = math.prod(sizes)
    full = [known(shape) for shape in call.all_tensors() if shape.distinct >= numel]
    if not sizes or numel < 1 or len(full) < 2:
        raise NotModelledError("a generated kernel that the trace tells too little about")
    dtypes = sorted((shape.dtype for shape in full), key=dtype_bytes)
    return Elementwise(numel=numel, kind="copy", num_inputs=len(full) - 1, dtype=dtypes[0])


def collective(name: str, elements: tuple[float, float], group_size: float, dtype: str) -> Operator:
    """Return a collective by its name in the trace, elements of a rank before and after, ranks, and dtype.

    Raises
    ------
    NotModelledError
        For one that the model does not have, or whose size the trace does not hold.
    """
    kind = name.lower().strip("_").replace("_", "").removesuffix("coalesced")
    kind = kind.removesuffix("base").removesuffix("intotensor").removesuffix("tensor").removesuffix("single")
    known_dtype = DTYPES.get(dtype.lower())
    operator = _COLLECTIVES.get(kind)
    if operator is None:
        raise NotModelledError(f"the collective {name}")
    if known_dtype is None or not max(elements) > 0 or not group_size >= 1 or max(*elements, group_size) > 2**50:
        raise NotModelledError(f"a message of {name} whose size the trace does not hold")
    # the whole buffer of a rank is the larger of what it holds before and after, see `Collective`
    return operator(bytes=max(elements) * dtype_bytes(known_dtype), num_gpus=group_size, dtype=known_dtype)


_COLLECTIVES: dict[str, Callable[..., Operator]] = {
    "allreduce": AllReduce,
    "allgather": AllGather,
    "reducescatter": ReduceScatter,
    "alltoall": Alltoall,
    "alltoallv": Alltoall,
}

"""Maps calls that move data more than they compute to operators of the model.

These are elementwise operators, norms, reductions, copies, look-ups, collectives and Triton's generated
kernels. Each function takes a `Call` and returns the operator, or raises `NotModelledError` with the reason. If a trace
does not say how much a call moves, the least possible is counted, so that a bound stays a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from perfmodel.core.dtypes import dtype_bytes
from perfmodel.formats.torch_trace.call import DTYPES, Call, NotModelledError, Shape, modelled, part_of
from perfmodel.operators import Operator
from perfmodel.operators.all_gather import AllGather
from perfmodel.operators.all_reduce import AllReduce
from perfmodel.operators.alltoall import Alltoall
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.embedding import Embedding
from perfmodel.operators.index_select import IndexSelect
from perfmodel.operators.layer_norm import LayerNorm
from perfmodel.operators.reduce_scatter import ReduceScatter
from perfmodel.operators.reduction import Reduction
from perfmodel.operators.rms_norm import RmsNorm
from perfmodel.operators.scatter_add import ScatterAdd
from perfmodel.operators.softmax import Softmax
from perfmodel.operators.transpose import Transpose

#: a copy between two orders of axes transposes matrices if both sides are at least this long: shorter rows stay within
#: the cache lines that a warp reads
_TRANSPOSED = 32
#: how Inductor names the view of a matrix product in a fused kernel
_VIEWED = "_unsafe_view"
#: reductions that are elementwise with a second tensor, and those that are always over all elements
_OF_TWO, _OF_ALL = ("aten::max", "aten::min"), ("aten::histc", "aten::bincount", "aten::nonzero")
#: elements and ranks above this, 1e15, are damage
_LARGEST = 2**50


def elementwise(kind: str, out_dtype: str = "") -> Callable[[Call], Operator]:
    """Return the mapping of an operator whose tensors broadcast."""

    def build(call: Call) -> Operator:
        tensors = tuple(modelled(shape) for shape in call.all_tensors())
        return _elementwise(kind, tensors, out_dtype)

    return build


def _elementwise(kind: str, tensors: Sequence[Shape], out_dtype: str = "") -> Operator:
    """Return an operator over tensors that broadcast; those smaller than the result do not count as inputs.

    If dtypes differ, the inputs get the smallest, and the result the largest unless ``out_dtype`` is given.
    """
    if not tensors:
        raise NotModelledError("no argument is a tensor")
    numel = broadcast(tensors)
    full = [shape for shape in tensors if shape.distinct == numel]
    dtypes = sorted((shape.dtype for shape in full or tensors), key=dtype_bytes)
    return Elementwise(numel=numel, kind=kind, num_inputs=len(full), dtype=dtypes[0], out_dtype=out_dtype or dtypes[-1])


def broadcast(tensors: Sequence[Shape]) -> int:
    """Return the number of elements after broadcasting."""
    rank = max(len(shape.dims) for shape in tensors)
    axes = zip(*((1,) * (rank - len(shape.dims)) + shape.dims for shape in tensors), strict=True)
    sizes = [set(axis) - {1} for axis in axes]
    if any(len(different) > 1 for different in sizes):
        raise NotModelledError("its shapes do not broadcast")
    return math.prod(different.pop() for different in sizes if different)


def unary(kind: str, out_dtype: str = "") -> Callable[[Call], Operator]:
    """Return the mapping of an operator that reads only its first argument."""

    def build(call: Call) -> Operator:
        return _elementwise(kind, (call.tensor(0),), out_dtype)

    return build


def of_two(kind: str, *, first: int = 0) -> Callable[[Call], Operator]:
    """Return the mapping of an operator that reads the two arguments from a place on, as a loss does."""

    def build(call: Call) -> Operator:
        return _elementwise(kind, (call.tensor(first), call.tensor(first + 1)))

    return build


def where(call: Call) -> Operator:
    """aten::where(condition, self, other); the condition, one byte an element, is not counted."""
    return _elementwise("where", (call.tensor(1), call.tensor(2)))


def copy(call: Call) -> Operator:
    """aten::copy_(self, src); a cast if the dtypes differ, a transpose if another axis lies innermost in memory."""
    target, source = call.tensor(0), call.tensor(1)
    expanded = source.distinct < target.numel
    if target.dims == source.dims and source.dtype == target.dtype and not expanded:
        transposed = _transposed(target, source)
        if transposed is not None:
            return transposed
    kind = "copy" if source.dtype == target.dtype else "cast"
    read = 0 if expanded else 1
    return Elementwise(numel=target.numel, kind=kind, num_inputs=read, dtype=source.dtype, out_dtype=target.dtype)


def copied(index: int) -> Callable[[Call], Operator]:
    """Return the mapping of an operator that moves one argument: reads it, and writes as much in another place."""

    def build(call: Call) -> Operator:
        return _elementwise("copy", (call.tensor(index),))

    return build


def scaled(call: Call) -> Operator:
    """aten::_weight_norm_interface(v, g, dim): v times a number of its row, after a norm of it."""
    v = call.tensor(0)
    return Elementwise(numel=v.numel, kind="mul", num_inputs=1, dtype=v.dtype)


def written(call: Call) -> Operator:
    """aten::index_put_(self, indices, values, accumulate), aten::index_put: writes its values, or adds them."""
    values = call.tensor(2)
    if not call.has_values:
        raise NotModelledError("the trace does not say whether it adds its values")
    indices = call.argument(1)
    rows = max((one.numel for one in indices), default=0) if isinstance(indices, tuple) else 0
    if not call.true(3) or rows < 1 or values.numel % rows:
        return copied(2)(call)
    table = call.tensor(0)
    return ScatterAdd(rows=rows, cols=values.numel // rows, table=table.dims[0], unique=1, dtype=table.dtype)


def _transposed(target: Shape, source: Shape) -> Operator | None:
    """Return the transpose that a copy into another order of axes is, None where the innermost axis stays."""
    inner = (source.inner, target.inner)
    if inner[0] is None or inner[1] is None or inner[0] == inner[1]:
        return None
    rows, cols = source.dims[inner[1]], source.dims[inner[0]]
    if min(rows, cols) < _TRANSPOSED:
        return None
    return Transpose(rows=rows, cols=cols, batch=target.numel // (rows * cols), dtype=source.dtype)


def joined(call: Call) -> Operator:
    """aten::cat(tensors, dim), aten::stack: reads and writes every element once."""
    dtype = list_dtype(call)
    return Elementwise(numel=sum(shape.numel for shape in listed(call, 0)), kind="copy", dtype=dtype)


def polar(call: Call) -> Operator:
    """aten::polar(abs, angle): reads two numbers, and writes two parts; cosine and sine are not counted."""
    size, angle = call.tensor(0), call.tensor(1)
    if size.distinct != angle.distinct:
        raise NotModelledError("one of its tensors is expanded")
    return Elementwise(numel=2 * size.distinct, kind="copy", dtype=size.dtype)


def foreach(kind: str) -> Callable[[Call], Operator]:
    """Return the mapping of an aten::_foreach_ operator, whose arguments are numbers and lists of equal tensors."""

    def build(call: Call) -> Operator:
        lists = [argument for argument in call.arguments if isinstance(argument, tuple)]
        numel = sum(shape.numel for shape in listed(call, 0))
        inputs = [tensors for tensors in lists if sum(shape.numel for shape in tensors) == numel]
        return Elementwise(numel=numel, kind=kind, num_inputs=len(inputs), dtype=list_dtype(call))

    return build


def foreach_norm(call: Call) -> Operator:
    """aten::_foreach_norm(self, ord): reads every element once; a number for each tensor is written."""
    tensors = listed(call, 0)
    return Reduction(rows=1, cols=sum(shape.numel for shape in tensors), dtype=list_dtype(call))


def foreach_copy(call: Call) -> Operator:
    """aten::_foreach_copy_(self, src): reads src and writes self."""
    return Elementwise(numel=sum(shape.numel for shape in listed(call, 0)), kind="copy", dtype=list_dtype(call))


def listed(call: Call, index: int) -> tuple[Shape, ...]:
    """Return an argument that has to be a list of tensors, whose dtypes the trace may not have."""
    argument = call.argument(index)
    tensors = (argument,) if isinstance(argument, Shape) else argument
    if not tensors or sum(shape.numel for shape in tensors) < 1:
        raise NotModelledError(f"argument {index} of {call.name} is not a list of tensors")
    return tensors


def list_dtype(call: Call) -> str:
    """Return the one dtype of all tensors in a call's first argument, a list."""
    dtypes = {modelled(shape).dtype for shape in listed(call, 0)}
    if len(dtypes) > 1:
        raise NotModelledError(f"its tensors have the dtypes {', '.join(sorted(dtypes))}")
    return dtypes.pop()


def _rows(axes: tuple[int, ...], *, of: Shape) -> tuple[int, int]:
    """Return the number of independent rows, and the elements of each, for work along some axes of a tensor."""
    rank = len(of.dims)
    if any(not -rank <= axis < rank for axis in axes):
        raise NotModelledError(f"it works along the axes {axes} of a tensor with {rank}")
    cols = math.prod(of.dims[axis] for axis in {axis % rank for axis in axes}) if axes else of.numel
    return of.numel // cols, cols


def softmax(call: Call) -> Operator:
    """aten::_softmax(self, dim, half_to_float), aten::_log_softmax."""
    rows, cols = rows_of(call, 1)
    return Softmax(rows=rows, cols=cols, log="log_softmax" in call.name, dtype=call.tensor(0).dtype)


def rows_of(call: Call, index: int) -> tuple[int, int]:
    """Return rows and columns of the first argument for work along the one axis that an argument names."""
    axes = call.ints(index)
    if len(axes) != 1:
        raise NotModelledError(f"the trace does not say the axis of {call.name}")
    return _rows(axes, of=call.tensor(0))


def layer_norm(call: Call) -> Operator:
    """aten::native_layer_norm(input, normalized_shape, weight, bias, eps)."""
    rows, cols, dtype = _norm(call)
    return LayerNorm(rows=rows, cols=cols, dtype=dtype)


def rms_norm(call: Call) -> Operator:
    """aten::rms_norm(input, normalized_shape, weight, eps), aten::_fused_rms_norm."""
    rows, cols, dtype = _norm(call)
    return RmsNorm(rows=rows, cols=cols, dtype=dtype)


def _norm(call: Call) -> tuple[int, int, str]:
    """Return rows, columns and dtype of a norm; it has a column for each weight, if it has weights."""
    x, weight = call.tensor(0), call.optional(2)
    cols = weight.numel if weight is not None else math.prod(call.ints(1))
    if cols < 1 or x.numel % cols:
        raise NotModelledError(f"it is a norm over {cols} of {x.numel} elements")
    return x.numel // cols, cols, x.dtype


def reduction(call: Call) -> Operator:
    """aten::sum(self, dim, keepdim, dtype), aten::mean and similar ones; without axes over all elements.

    aten::sum(self, dtype) has two arguments, neither of which is an axis; aten::max(self, other) is elementwise.
    The two parts of complex numbers are reduced apart.
    """
    x = call.argument(0)
    part = part_of(x) if isinstance(x, Shape) and x.numel else ""
    if not isinstance(x, Shape) or not part:
        x = call.tensor(0)
    if call.optional(1) is not None and call.name in _OF_TWO and not part:
        return _elementwise("maximum", (x, call.tensor(1)))
    axes = () if len(call.values) == 2 or call.name in _OF_ALL else call.ints(1)
    rows, cols = _rows(axes, of=x)
    return Reduction(rows=rows * (2 if part else 1), cols=cols, dtype=part or x.dtype)


def vector_norm(call: Call) -> Operator:
    """aten::linalg_vector_norm(self, ord, dim, keepdim), aten::norm(self, p, dim, keepdim)."""
    x = call.tensor(0)
    rows, cols = _rows(call.ints(2), of=x)
    return Reduction(rows=rows, cols=cols, dtype=x.dtype)


def embedding(call: Call) -> Operator:
    """aten::embedding(weight, indices)."""
    return _embedding(call.tensor(0), call.tensor(1))


def index_select(call: Call) -> Operator:
    """aten::index_select(self, dim, index), which along the first axis of a matrix is an embedding."""
    table, index = call.tensor(0), call.tensor(2)
    if call.ints(1) == (0,) and len(table.dims) == 2:
        return _embedding(table, index)
    _, cols = along(call, table)
    return IndexSelect(rows=index.numel, cols=cols, distribution="same", dtype=table.dtype)


def along(call: Call, table: Shape) -> tuple[int, int]:
    """Return the elements along the axis that the second argument names, and how many there are at each place of it."""
    axes = call.ints(1)
    if len(axes) != 1 or not -len(table.dims) <= axes[0] < len(table.dims):
        raise NotModelledError(f"the trace does not say the axis of {call.name}")
    axis = axes[0] % len(table.dims)
    return table.dims[axis], table.numel // table.dims[axis]


def _embedding(table: Shape, index: Shape) -> Operator:
    if len(table.dims) != 2:
        raise NotModelledError(f"its table has the shape {table.text()}")
    # the trace does not say how many different rows are read; one is the least
    return Embedding(tokens=index.numel, vocab=table.dims[0], dim=table.dims[1], unique=1, dtype=table.dtype)


def triton_pointwise(call: Call) -> Operator:
    """triton_poi_...(tensors, xnumel), TorchInductor's fused elementwise kernels, by the tensors that they move."""
    return _triton(call, call.ints(_last(call)))


def triton_reduction(call: Call) -> Operator:
    """triton_red_... and triton_per_...(tensors, xnumel, rnumel), fused reductions, by the tensors that they move."""
    last = _last(call)
    sizes = (*call.ints(last - 1), *call.ints(last))
    if len(sizes) == 2 and sum(shape.numel >= math.prod(sizes) for shape in call.all_tensors()) == 1:
        return Reduction(
            rows=sizes[0], cols=sizes[1], dtype=modelled(max(call.all_tensors(), key=lambda s: s.numel)).dtype
        )
    return _triton(call, sizes)


def _last(call: Call) -> int:
    """Return the position of the last argument with a value."""
    return max((position for position, value in enumerate(call.values) if value.strip()), default=-1)


def _triton(call: Call, sizes: tuple[int, ...]) -> Operator:
    """Return a copy that moves each tensor of the kernel's size once, and again the one that it writes in place.

    Inductor lists buffers that are read and written first, then inputs, then outputs (codegen/common.py, KernelArgs).
    Where the last one is a matrix product that the kernel views in the shape of the first, it is an input: the first is
    written in place. Where nothing tells, the last one is the output, which is the least.
    """
    numel = math.prod(sizes)
    full = [modelled(shape) for shape in call.all_tensors() if shape.distinct >= numel]
    if not sizes or numel < 1 or len(full) < 2:
        raise NotModelledError("the trace does not say the sizes of the generated kernel")
    dtypes = sorted((shape.dtype for shape in full), key=dtype_bytes)
    in_place = _VIEWED in call.name and len(full[-1].dims) == 2 < len(full[0].dims)
    return Elementwise(numel=numel, kind="copy", num_inputs=len(full) - (not in_place), dtype=dtypes[0])


def collective(name: str, elements: tuple[float, float], group_size: float, dtype: str) -> Operator:
    """Return a collective from its name in the trace, the elements of a rank before and after, ranks and dtype.

    Raises
    ------
    NotModelledError
        When the model does not have it, or the trace does not say its size.
    """
    kind = name.lower().strip("_").replace("_", "").removesuffix("coalesced")
    kind = kind.removesuffix("base").removesuffix("intotensor").removesuffix("tensor").removesuffix("single")
    model_dtype = DTYPES.get(dtype.lower())
    operator = _COLLECTIVES.get(kind)
    if operator is None:
        raise NotModelledError(f"the model has no collective {name}")
    if model_dtype is None or not max(elements) > 0 or not group_size >= 1 or max(*elements, group_size) > _LARGEST:
        raise NotModelledError(f"the trace does not say the size of the {name}")
    # the whole buffer of a rank is the larger of the two, see `Collective`
    return operator(bytes=max(elements) * dtype_bytes(model_dtype), num_gpus=group_size, dtype=model_dtype)


_COLLECTIVES: dict[str, Callable[..., Operator]] = {
    "allreduce": AllReduce,
    "allgather": AllGather,
    "reducescatter": ReduceScatter,
    "alltoall": Alltoall,
    "alltoallv": Alltoall,
}

"""Maps calls of look-ups, sorts and scans, forward and backward, to operators of the model.

Each function takes a `Call` and returns the operator, or raises `NotModelledError` with the reason. The order of the
arguments is that of PyTorch's native_functions.yaml and derivatives.yaml. If a trace does not say how much a call
moves, the least possible is counted, so that a bound stays a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from perfmodel.formats.torch_trace.call import WHOLE, Call, NotModelledError, Shape
from perfmodel.formats.torch_trace.operators.memory import along, broadcast, rows_of
from perfmodel.operators import Operator
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.embedding import Embedding
from perfmodel.operators.embedding_bag import EmbeddingBag
from perfmodel.operators.gather import Gather
from perfmodel.operators.index_select import IndexSelect
from perfmodel.operators.sampling import Sampling
from perfmodel.operators.scan import Scan
from perfmodel.operators.scatter_add import ScatterAdd
from perfmodel.operators.sort import Sort
from perfmodel.operators.topk import Topk

#: where nothing is said of the indices, all of them may be the same
_LEAST = "same"


# --- look-ups


def embedding_backward(call: Call) -> Operator:
    """aten::embedding_dense_backward(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq)."""
    dy, index, vocab = call.tensor(0), call.tensor(1), call.ints(2)
    if len(vocab) != 1:
        raise NotModelledError("the trace does not say the rows of the table")
    return Embedding(tokens=index.numel, vocab=vocab[0], dim=dy.dims[-1], unique=1, backward=True, dtype=dy.dtype)


def embedding_bag(call: Call) -> Operator:
    """aten::_embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse, weights, include_last, ...)."""
    table, index, offsets = (call.tensor(position) for position in range(3))
    if len(table.dims) != 2:
        raise NotModelledError(f"its table has the shape {table.text()}")
    bags = offsets.numel - (call.has_values and call.true(7))
    return _bags(index.numel, bags, table.dims[0], table.dims[1], table.dtype)


def embedding_bag_backward(vocab: int) -> Callable[[Call], Operator]:
    """Return the mapping of a gradient of bags, whose rows of the table are told by an argument."""

    def build(call: Call) -> Operator:
        dy, index, rows = call.tensor(0), call.tensor(1), call.ints(vocab)
        if len(rows) != 1 or len(dy.dims) != 2:
            raise NotModelledError("the trace does not say the rows of the table")
        return _bags(index.numel, dy.dims[0], rows[0], dy.dims[1], dy.dtype, backward=True)

    return build


def _bags(tokens: int, bags: int, vocab: int, dim: int, dtype: str, *, backward: bool = False) -> Operator:
    """Return the look-up of bags of one size; indices beyond a whole number for each are not counted."""
    if not 0 < bags <= tokens:
        raise NotModelledError(f"{tokens} indices are not of {bags} bags")
    return EmbeddingBag(
        bags=bags,
        pooling=tokens // bags,
        vocab=vocab,
        dim=dim,
        distribution=_LEAST,
        dtype=dtype,
        backward=backward,
    )


def gather(call: Call) -> Operator:
    """aten::gather(self, dim, index)."""
    return Gather(numel=call.tensor(2).numel, distribution=_LEAST, dtype=call.tensor(0).dtype)


def index(call: Call) -> Operator:
    """aten::index(self, indices), whose indices broadcast: a row is all that has one place of the axes with indices.

    A capture tells axes without indices, `WHOLE`; a trace does not, so that there they are along the first axes.
    """
    table, lists = call.tensor(0), call.argument(1)
    given = lists if isinstance(lists, tuple) else (lists,) if isinstance(lists, Shape) else ()
    indices = [index for index in given if index != WHOLE]
    if not all(index.dims for index in indices) or not indices or len(given) > len(table.dims):
        raise NotModelledError("it has indices along other axes than the first ones")
    if any(index.dtype == "int8" for index in indices):
        if len(indices) > 1 or given[0] == WHOLE:
            raise NotModelledError("it has a mask beside other indices, or along other axes than the first ones")
        return _by_mask(table, given[0], call.result)
    chosen = math.prod(size for size, index in zip(table.dims, given, strict=False) if index != WHOLE)
    return IndexSelect(rows=broadcast(indices), cols=table.numel // chosen, distribution=_LEAST, dtype=table.dtype)


def _by_mask(table: Shape, mask: Shape, result: tuple[int, ...]) -> Operator:
    """Return the selection of rows by a mask over the first axes, whose places are found before."""
    cols = math.prod(table.dims[len(mask.dims) :])
    rows = math.prod(result) // cols if result else 0
    if mask.dtype != "int8" or mask.dims != table.dims[: len(mask.dims)] or rows < 1:
        raise NotModelledError("its mask does not say how many elements it selects")
    return IndexSelect(rows=rows, cols=cols, distribution=_LEAST, dtype=table.dtype)


def masked_select(call: Call) -> Operator:
    """aten::masked_select(self, mask): single elements, whose places are found before."""
    if not call.result or math.prod(call.result) < 1:
        raise NotModelledError("its mask does not say how many elements it selects")
    return Gather(numel=math.prod(call.result), distribution=_LEAST, dtype=call.tensor(0).dtype)


def index_add(call: Call) -> Operator:
    """aten::index_add_(self, dim, index, source), aten::index_reduce_: a row is all that has one place of the axis."""
    table, at = call.tensor(0), call.tensor(2)
    length, cols = along(call, table)
    return ScatterAdd(rows=at.numel, cols=cols, table=length, unique=1, dtype=table.dtype)


def scatter_add(call: Call) -> Operator:
    """aten::scatter_add_(self, dim, index, src), aten::scatter_reduce_."""
    table = call.tensor(0)
    return ScatterAdd(rows=call.tensor(2).numel, table=table.numel, unique=1, dtype=table.dtype)


def scatter(call: Call) -> Operator:
    """aten::scatter_(self, dim, index, src), aten::scatter: reads an index and a number, and writes it there."""
    return Gather(numel=call.tensor(2).numel, distribution=_LEAST, dtype=call.tensor(0).dtype)


def take(call: Call) -> Operator:
    """aten::take(self, index): single elements."""
    return Gather(numel=call.tensor(1).numel, distribution=_LEAST, dtype=call.tensor(0).dtype)


def searched(index: int) -> Callable[[Call], Operator]:
    """Return the mapping of a search of numbers in a sorted list: aten::searchsorted(sorted, self), aten::bucketize."""

    def build(call: Call) -> Operator:
        x = call.tensor(index)
        return Elementwise(numel=x.numel, kind="copy", dtype=x.dtype, out_dtype="int64")

    return build


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


def order_statistic(axis: int) -> Callable[[Call], Operator]:
    """Return the mapping of aten::median(self, dim), aten::kthvalue(self, k, dim): a selection in each row.

    Without an axis it is one of all elements.
    """

    def build(call: Call) -> Operator:
        x = call.tensor(0)
        rows, cols = rows_of(call, axis) if call.has_values and call.value(axis) else (1, x.numel)
        return Topk(rows=rows, cols=cols, k=1, dtype=x.dtype)

    return build


def scan(call: Call) -> Operator:
    """aten::cumsum(self, dim, dtype), aten::cumprod, aten::cummax, aten::logcumsumexp."""
    rows, cols = rows_of(call, 1)
    return Scan(rows=rows, cols=cols, dtype=call.tensor(0).dtype)


def multinomial(call: Call) -> Operator:
    """aten::multinomial(self [rows, classes], num_samples, ...), if it launches kernels itself."""
    x = call.tensor(0)
    return Sampling(rows=math.prod(x.dims[:-1]), vocab=x.dims[-1], algorithm="gumbel_fused", dtype=x.dtype)

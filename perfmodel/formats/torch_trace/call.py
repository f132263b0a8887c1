"""One call of a framework's operator as a trace describes it: shapes, dtypes and values of its arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from perfmodel.formats.kernel_names import kernel_dtype
from perfmodel.operators.checks import LARGEST_SIZE

#: PyTorch's names of dtypes in traces, and those in the metadata of collectives
DTYPES = {
    "double": "fp64",
    "float": "fp32",
    "c10::half": "fp16",
    "half": "fp16",
    "c10::bfloat16": "bf16",
    "bfloat16": "bf16",
    "c10::float8_e4m3fn": "fp8",
    "c10::float8_e5m2": "fp8",
    "c10::float8_e4m3fnuz": "fp8",
    "c10::float8_e5m2fnuz": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "float8_e4m3fnuz": "fp8",
    "float8_e5m2fnuz": "fp8",
    "signed char": "int8",
    "unsigned char": "int8",
    "char": "int8",
    "byte": "int8",
    "bool": "int8",
    "int": "int32",
    "long int": "int64",
    "long": "int64",
    "long long": "int64",
}
_MODELLED = frozenset(DTYPES.values())
#: numbers of two parts, by their names in traces -> the dtype of a part
COMPLEX = {"c10::complex<float>": "fp32", "c10::complex<double>": "fp64", "c10::complex<c10::half>": "fp16"}
_LISTS = ("TensorList", "GenericList")
_LIST = msgspec.json.Decoder(list[Any])
#: longer lists of tensors are named by their number and elements
_LONGEST_LIST = 4


class NotModelledError(Exception):
    """Why a call has no operator of the model, as a phrase for people."""


@dataclass(frozen=True)
class Shape:
    """One tensor.

    Attributes
    ----------
    dims : its sizes.
    dtype : its dtype under the model's name, or the trace's name in brackets if the model does not have it.
    distinct : number of different elements; less than all of them if the tensor is expanded, since an axis of stride 0
        repeats the same elements.
    channels_last : whether images [n, c, h, w] lie in memory in the order n, h, w, c.
    inner : the axis whose neighbours lie next to each other in memory; None where the trace has no strides.
    dense : whether its elements fill memory without gaps, in some order of the axes; True where it has no strides.
    """

    dims: tuple[int, ...]
    dtype: str
    distinct: int
    channels_last: bool = False
    inner: int | None = None
    dense: bool = True

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.dims)

    def text(self) -> str:
        """Return the dims as "16x2048"."""
        return "x".join(map(str, self.dims))


Argument = Shape | tuple[Shape, ...] | None
#: an axis without indices, among the indices of a call
WHOLE = Shape((), "whole", 0)


@dataclass(frozen=True)
class Call:
    """The name of an operator and its arguments in order.

    Attributes
    ----------
    name : name in the trace ("aten::addmm").
    arguments : for each argument its tensor, its list of tensors, or None for anything else.
    values : for each argument its value in the trace ("1", "[1, 1]", "True"), or "".
    kernels : names of the kernels that it launched.
    result : sizes of what it returns, if a later operator tells.
    has_shapes, has_values : whether the trace has any shapes, and any values.
    """

    name: str
    arguments: tuple[Argument, ...] = ()
    values: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    has_shapes: bool = False
    has_values: bool = False
    result: tuple[int, ...] = ()

    def argument(self, index: int) -> Argument:
        """Return an argument, or None if there are fewer."""
        return self.arguments[index] if index < len(self.arguments) else None

    def tensor(self, index: int) -> Shape:
        """Return an argument that has to be a tensor.

        Raises
        ------
        NotModelledError
            When it is not a tensor, or the model does not have its dtype.
        """
        argument = self.argument(index)
        if not isinstance(argument, Shape):
            raise NotModelledError(f"argument {index} of {self.name} is not a tensor")
        return modelled(argument)

    def optional(self, index: int) -> Shape | None:
        """Return an argument if it is a tensor, else None."""
        argument = self.argument(index)
        return argument if isinstance(argument, Shape) else None

    def all_tensors(self) -> tuple[Shape, ...]:
        """Return every tensor among the arguments and in their lists."""
        tensors: list[Shape] = []
        for argument in self.arguments:
            tensors.extend((argument,) if isinstance(argument, Shape) else argument or ())
        return tuple(tensors)

    def value(self, index: int) -> str:
        """Return the text of an argument's value, or "".

        Raises
        ------
        NotModelledError
            When the trace has no values.
        """
        if not self.has_values:
            raise NotModelledError("the trace has no values of arguments (Concrete Inputs)")
        return self.values[index].strip() if index < len(self.values) else ""

    def ints(self, index: int) -> tuple[int, ...]:
        """Return the whole numbers of an argument ("[1, 1]", "2"); none if it is empty."""
        text = self.value(index).strip("[]() ")
        try:
            return tuple(int(part) for part in text.split(",")) if text else ()
        except ValueError:
            raise NotModelledError(f"argument {index} of {self.name} is not a list of whole numbers") from None

    def true(self, index: int) -> bool:
        """Whether an argument is true."""
        return self.value(index).lower() in ("true", "1")


def modelled(shape: Shape) -> Shape:
    """Return the shape if the model has its dtype and it has elements.

    Raises
    ------
    NotModelledError
        Otherwise.
    """
    if shape.dtype not in _MODELLED:
        raise NotModelledError(f"the dtype is {shape.dtype}" if shape.dtype else "the trace does not say the dtype")
    if shape.numel < 1:
        raise NotModelledError("a tensor has no elements")
    return shape


def in_parts(call: Call) -> Call:
    """Return a call on complex numbers as one on their two parts, along an axis of its own; any other as it is.

    Tensors of real numbers have one element along this axis, so that they broadcast as before.
    """
    if not any(part_of(shape) for shape in call.all_tensors()):
        return call

    def parted(argument: Argument) -> Argument:
        if isinstance(argument, tuple):
            return tuple(_parted(shape) for shape in argument)
        return argument and _parted(argument)

    return replace(call, arguments=tuple(parted(argument) for argument in call.arguments))


def _parted(shape: Shape) -> Shape:
    part = part_of(shape)
    if not part:
        return replace(shape, dims=(*shape.dims, 1))
    inner = None if shape.inner is None else len(shape.dims)
    return replace(shape, dims=(*shape.dims, 2), dtype=part, distinct=2 * shape.distinct, inner=inner)


def part_of(shape: Shape) -> str:
    """Return the dtype of the parts of a tensor of complex numbers; "" for real ones."""
    return COMPLEX.get(shape.dtype.strip("()").lower(), "")


def parse_call(name: str, texts: Sequence[bytes], kernels: tuple[str, ...] = ()) -> Call:
    """Return a call from the JSON texts of its dims, strides, dtypes and values, and of its result's sizes."""
    dims, strides, types, values, *result = [_decoded(text) for text in texts]
    # traces of 2021 have no dtypes, and no trace has those of lists of tensors; the longest kernel's name may
    untold = len(types) < len(dims) or any(kind in _LISTS for kind in types)
    by_kernel = kernel_dtype(kernels[0]) if kernels and untold else ""
    arguments = [
        _argument(
            sizes,
            strides[index] if index < len(strides) else None,
            types[index] if index < len(types) else by_kernel,
            by_kernel,
        )
        if sizes
        else None
        for index, sizes in enumerate(dims)
    ]
    shown = tuple([value if isinstance(value, str) else str(value) for value in values])
    has_shapes = arguments.count(None) < len(arguments)
    sizes = tuple(result[0]) if result else ()
    return Call(name, tuple(arguments), shown, kernels, has_shapes, has_values=bool(values), result=sizes)


def _decoded(text: bytes) -> list[Any]:
    """Return the list in a JSON text, an empty one for anything else."""
    if not text:
        return []
    try:
        return _LIST.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


def _argument(dims: Any, strides: Any, kind: Any, by_kernel: str) -> Argument:
    """Return an argument as a tensor, a list of tensors, or None; a number has no dims and is None."""
    if not isinstance(dims, list) or not dims:
        return None
    if isinstance(dims[0], list) and all(isinstance(sizes, list) for sizes in dims):
        inner = strides if isinstance(strides, list) and len(strides) == len(dims) else [None] * len(dims)
        dtype = by_kernel if kind in _LISTS else kind
        shapes = tuple(shape_of(sizes, stride, dtype) for sizes, stride in zip(dims, inner, strict=True))
        return tuple(shape for shape in shapes if shape is not None) or None
    return shape_of(dims, strides, kind)


def shape_of(dims: Any, strides: Any, kind: Any) -> Shape | None:
    """Return a tensor from its sizes, its strides and PyTorch's name of its dtype; None for impossible sizes."""
    for size in dims:  # a loop, since short traces wait for such expressions longer than for their events
        if type(size) is not int or not 0 <= size < LARGEST_SIZE:
            return None
    dtype = (DTYPES.get(kind.lower()) or (f"({kind})" if kind else "")) if isinstance(kind, str) else ""
    if not isinstance(strides, list) or len(strides) != len(dims):
        return Shape(tuple(dims), dtype, math.prod(dims))
    distinct, inner = 1, None
    for axis, stride in enumerate(strides):
        if type(stride) is not int:
            return Shape(tuple(dims), dtype, math.prod(dims))
        if stride != 0:
            distinct *= dims[axis]
        if stride == 1 < dims[axis] and inner is None:
            inner = axis
    channels_last = len(dims) == 4 and strides[1] == 1 < dims[1] and strides[3] == dims[1]
    return Shape(tuple(dims), dtype, distinct, channels_last, inner, inner is None or _is_dense(dims, strides))


def _is_dense(dims: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether the elements of a tensor fill memory without gaps: of each axis past those within it."""
    expected = 1
    for axis in range(len(dims) - 1, -1, -1):  # most tensors have their axes in order
        if strides[axis] != expected:
            break
        expected *= max(dims[axis], 1)
    else:
        return True
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(dims, strides, strict=True) if size > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def describe(call: Call) -> str:
    """Return the name, the shapes and the dtypes of a call: "aten::mm(16x2048, 2048x512) bf16".

    The bias of an addmm is marked; dtypes appear once if all tensors have the same.
    """
    shapes = []
    for argument in call.arguments:
        if isinstance(argument, Shape):
            shapes.append(argument.text())
        elif argument:
            shapes.append(_list_text(argument))
    if not shapes:
        return call.name
    bias = call.optional(0)
    if call.name == "aten::addmm" and bias is not None and len(bias.dims) == 1:
        shapes[0] = f"bias {shapes[0]}"
    # the trace has no dtypes of lists, and the names of kernels that only move data tell no more than the size
    single = [argument for argument in call.arguments if isinstance(argument, Shape)]
    dtypes = list(dict.fromkeys(shape.dtype for shape in single if shape.dtype))
    return f"{call.name}({', '.join(shapes)}) {'/'.join(dtypes)}".strip()


def _list_text(shapes: tuple[Shape, ...]) -> str:
    """Return a list of tensors as "[2x3, 4x3]", a long one as its number of tensors and elements."""
    if len(shapes) <= _LONGEST_LIST:
        return f"[{', '.join(shape.text() for shape in shapes)}]"
    return f"[{len(shapes)} tensors, {sum(shape.numel for shape in shapes)} elements]"

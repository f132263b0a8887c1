"""One call of a framework's operator as a trace describes it: shapes, dtypes, values of its arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from perfmodel.formats.kernel_names import kernel_dtype

#: PyTorch's names of dtypes in traces, and those of collectives in their metadata
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
_LISTS = ("TensorList", "GenericList")


class NotModelledError(Exception):
    """Why a call has no operator of the model: a phrase for people."""


@dataclass(frozen=True)
class Shape:
    """One tensor: its dims, its dtype in the model's names (or the trace's in brackets), its different elements.

    ``distinct`` is less than the number of elements where the tensor is expanded: an axis of stride 0 is the same
    element over and over.
    """

    dims: tuple[int, ...]
    dtype: str
    distinct: int

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.dims)

    def text(self) -> str:
        """Return the dims as "16x2048"."""
        return "x".join(map(str, self.dims))


@dataclass(frozen=True)
class Call:
    """The name of an operator and its arguments in order.

    Attributes
    ----------
    name : as the trace has it ("aten::addmm").
    arguments : of each argument the tensor, the list of tensors, or None for anything else.
    values : of each argument what the trace says of its value ("1", "[1, 1]", "True"), or "".
    kernels : names of the kernels that it launched.
    has_shapes, has_values : whether the trace holds shapes, and values, at all.
    """

    name: str
    arguments: tuple[Shape | tuple[Shape, ...] | None, ...] = ()
    values: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    has_shapes: bool = False
    has_values: bool = False

    def tensor(self, index: int) -> Shape:
        """Return the tensor that an argument is.

        Raises
        ------
        NotModelledError
            When it is none, or of a dtype that the model does not have.
        """
        found = self.arguments[index] if index < len(self.arguments) else None
        if not isinstance(found, Shape):
            raise NotModelledError(f"argument {index} of {self.name} is no tensor")
        return known(found)

    def optional(self, index: int) -> Shape | None:
        """Return the tensor that an argument is, or None."""
        found = self.arguments[index] if index < len(self.arguments) else None
        return found if isinstance(found, Shape) else None

    def tensors(self, index: int) -> tuple[Shape, ...]:
        """Return the list of tensors that an argument is; one tensor is a list of one."""
        found = self.arguments[index] if index < len(self.arguments) else None
        if isinstance(found, Shape):
            found = (found,)
        if not found:
            raise NotModelledError(f"argument {index} of {self.name} is no list of tensors")
        return tuple(known(one) for one in found)

    def all_tensors(self) -> tuple[Shape, ...]:
        """Return every argument that is a tensor, with those in lists."""
        made: list[Shape] = []
        for argument in self.arguments:
            made.extend((argument,) if isinstance(argument, Shape) else argument or ())
        return tuple(made)

    def value(self, index: int) -> str:
        """Return the text of an argument's value, or "".

        Raises
        ------
        NotModelledError
            When the trace holds no values.
        """
        if not self.has_values:
            raise NotModelledError("the trace does not hold the values of arguments (Concrete Inputs)")
        return self.values[index].strip() if index < len(self.values) else ""

    def ints(self, index: int) -> tuple[int, ...]:
        """Return the whole numbers of an argument ("[1, 1]", "2"), none where it is empty."""
        text = self.value(index).strip("[]() ")
        try:
            return tuple(int(part) for part in text.split(",")) if text else ()
        except ValueError:
            raise NotModelledError(f"argument {index} of {self.name} is no list of whole numbers") from None

    def true(self, index: int) -> bool:
        """Whether an argument is true."""
        return self.value(index).lower() in ("true", "1")


def known(shape: Shape) -> Shape:
    """Return a shape whose dtype the model has, and that holds elements.

    Raises
    ------
    NotModelledError
        For another.
    """
    if shape.dtype not in DTYPES.values():
        raise NotModelledError(f"the dtype {shape.dtype or 'that is not said'}")
    if shape.numel < 1:
        raise NotModelledError("a tensor without elements")
    return shape


def parse_call(name: str, texts: Sequence[bytes], kernels: tuple[str, ...] = ()) -> Call:
    """Return a call from the texts of its dims, strides, dtypes and values in the trace."""
    dims, strides, types, values = (_decoded(text) for text in texts)
    # traces of 2021 hold no dtypes, and no trace holds those of lists of tensors; the kernel that took longest may
    unsaid = kernel_dtype(kernels[0]) if kernels else ""
    arguments = tuple(
        _argument(
            one,
            strides[index] if index < len(strides) else None,
            types[index] if index < len(types) else unsaid,
            unsaid,
        )
        for index, one in enumerate(dims)
    )
    shown = tuple(value if isinstance(value, str) else str(value) for value in values)
    has_shapes = any(argument is not None for argument in arguments)
    return Call(name, arguments, shown, kernels, has_shapes, has_values=bool(values))


def _decoded(text: bytes) -> list[Any]:
    """Return the list that a text holds, empty for anything else."""
    try:
        found = msgspec.json.decode(text) if text else []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def _argument(dims: Any, strides: Any, kind: Any, unsaid: str) -> Shape | tuple[Shape, ...] | None:
    """Return an argument as a tensor, a list of tensors, or None; numbers have no dims, and are none."""
    if not isinstance(dims, list) or not dims:
        return None
    if all(isinstance(one, list) for one in dims):
        inner = strides if isinstance(strides, list) and len(strides) == len(dims) else [None] * len(dims)
        dtype = unsaid if kind in _LISTS else kind
        shapes = tuple(_shape(one, stride, dtype) for one, stride in zip(dims, inner, strict=True))
        return tuple(shape for shape in shapes if shape is not None) or None
    return _shape(dims, strides, kind)


def _shape(dims: Any, strides: Any, kind: Any) -> Shape | None:
    if not all(isinstance(size, int) and 0 <= size < 2**53 for size in dims):
        return None
    dtype = DTYPES.get(kind.lower(), f"({kind})" if kind else "") if isinstance(kind, str) else ""
    if not isinstance(strides, list) or len(strides) != len(dims):
        strides = [1] * len(dims)
    distinct = math.prod(size for size, stride in zip(dims, strides, strict=True) if stride != 0)
    return Shape(tuple(dims), dtype, distinct)


def describe(call: Call) -> str:
    """Return the name, the shapes and the dtypes of a call: "aten::mm(16x2048, 2048x512) bf16".

    The bias of an addmm is marked; dtypes stand once where all tensors have the same.
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
    # those of lists are not in the trace, and kernels that only move data know no more than their size
    alone = [argument for argument in call.arguments if isinstance(argument, Shape)]
    dtypes = list(dict.fromkeys(shape.dtype for shape in alone if shape.dtype))
    return f"{call.name}({', '.join(shapes)}) {'/'.join(dtypes)}".strip()


def _list_text(shapes: tuple[Shape, ...]) -> str:
    """Return a list of tensors: "[2x3, 4x3]"; a long one by its length and its elements."""
    if len(shapes) <= 4:
        return f"[{', '.join(shape.text() for shape in shapes)}]"
    return f"[{len(shapes)} tensors, {sum(shape.numel for shape in shapes)} elements]"

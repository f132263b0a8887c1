"""Recording the operators that PyTorch dispatches, as the calls that a trace would have."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.functional import dropout, multi_head_attention_forward, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.module_tracker import ModuleTracker

from perfmodel.errors import UsageError
from perfmodel.formats.torch_trace.call import WHOLE, Argument, Call, Shape, describe, shape_of
from perfmodel.formats.torch_trace.operators.aten import operator_of
from perfmodel.module_capture.known import KnownValues
from perfmodel.module_capture.result import CapturedCall, Phase

#: PyTorch's names of dtypes in traces
_DTYPES = {
    torch.float64: "double", torch.float32: "float", torch.float16: "c10::Half", torch.bfloat16: "c10::BFloat16",
    torch.int64: "long int", torch.int32: "int", torch.int8: "signed char", torch.uint8: "unsigned char",
    torch.complex64: "c10::complex<float>", torch.complex128: "c10::complex<double>", torch.bool: "bool",
    torch.float8_e4m3fn: "c10::Float8_e4m3fn", torch.float8_e5m2: "c10::Float8_e5m2",
}  # fmt: skip
#: operators that run no kernel although they return a tensor of their own
_NO_KERNEL = (
    "aten::_unsafe_view", "aten::_reshape_alias", "aten::_reshape_copy", "aten::lift_fresh", "aten::unsafe_split",
    "aten::unsafe_split_with_sizes", "aten::unsafe_chunk",
)  # fmt: skip
#: operators of PyTorch's own bookkeeping
_OF_PYTORCH = ("prim::", "prims::", "profiler::", "debugprims::", "rngprims::", "inductor::", "streams::")
_ALLOCATES = ("aten::empty", "aten::new_empty", "aten::_local_scalar_dense", "aten::resize_", "aten::set_")
#: copies into a new tensor -> the operator of a copy between two
_COPIES = ("aten::_to_copy", "aten::clone", "aten::contiguous")
#: operators that fill a new tensor with one number, which runs the kernel of aten::fill_
_FILLED = (
    "aten::zeros", "aten::ones", "aten::full", "aten::new_zeros", "aten::new_ones", "aten::new_full", "aten::full_like",
    "aten::arange", "aten::linspace", "aten::eye", "aten::scalar_tensor", "aten::repeat", "aten::rand", "aten::randn",
    "aten::randint", "aten::rand_like", "aten::randn_like", "aten::randint_like", "aten::randperm", "aten::hann_window",
    "aten::hamming_window", "aten::blackman_window", "aten::normal", "aten::bernoulli", "aten::tril_indices",
    "aten::triu_indices",
)  # fmt: skip
#: operators that write their first argument into a part of a tensor of zeros, by two kernels
_PLACED = ("aten::select_backward", "aten::slice_backward", "aten::diagonal_backward", "aten::constant_pad_nd")
#: operators that select by a mask
_BY_MASK = ("aten::index", "aten::masked_select")
_ATEN = torch.ops.aten
#: products, all tensors of which have one dtype
_PRODUCTS = (
    _ATEN.mm.default, _ATEN.bmm.default, _ATEN.addmm.default, _ATEN.baddbmm.default, _ATEN.mv.default,
    _ATEN.addmv.default, _ATEN.convolution.default,
)  # fmt: skip
#: attention on a CPU, which the GPU computes by another operator with other arguments
_CPU_ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"
_GPU_ATTENTION = "aten::_scaled_dot_product_flash_attention"

#: functions that drop numbers -> their arguments
_DROPPING = {
    dropout: ("input", "p", "training", "inplace"),
    scaled_dot_product_attention: ("query", "key", "value", "attn_mask", "dropout_p", "is_causal"),
    multi_head_attention_forward: tuple(inspect.signature(multi_head_attention_forward).parameters),
}


@dataclass(frozen=True)
class _Key:
    """What equal calls share."""

    module: str
    phase: Phase
    call: Call
    bytes: float


class GpuDropout(TorchFunctionMode):
    """Drops as a GPU does: within the kernel of attention, else by one kernel; a CPU runs several, and products.

    Nothing is counted within attention: the kernel of a GPU draws its numbers beside the products.
    """

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Call a function, or what a GPU would run in its place."""
        kwargs = kwargs or {}
        given = {**dict(zip(_DROPPING.get(func, ()), args, strict=False)), **kwargs}
        if func is dropout and given.get("training", True) and not given.get("inplace") and 0 < given.get("p", 0.5) < 1:
            return torch.native_dropout(given["input"], given.get("p", 0.5), True)[0]
        # scores that are returned are those of products
        in_kernel = func is multi_head_attention_forward and not given.get("need_weights", True)
        if in_kernel or func is scaled_dot_product_attention:
            return func(**given | {"dropout_p": 0.0})
        return func(*args, **kwargs)


class Recorder(TorchDispatchMode):
    """Counts the operators that are dispatched while it is active, by module and phase.

    Attributes
    ----------
    tracker : knows the modules that are active.
    phase : of everything that follows.
    known : the values of tensors that no parameter changes, where the module asks for some.
    """

    def __init__(self, tracker: ModuleTracker, known: KnownValues | None = None) -> None:
        super().__init__()
        self.tracker = tracker
        self.phase = Phase.FORWARD
        self.known = known
        self._counts: Counter[_Key] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Run an operator and count it.

        Raises
        ------
        UsageError
            When a product has operands of different dtypes.
        """
        if func in _PRODUCTS:
            _check_dtypes(func, args, self.module())
        run = self.known.run if self.known else _run
        out = run(func, args, kwargs or {})
        if _runs_a_kernel(func) and not _is_empty(out):
            phase = Phase.BACKWARD if self.tracker.is_bw and self.phase == Phase.FORWARD else self.phase
            moved = _bytes(args, kwargs or {}, out)
            calls = _calls(func, args, kwargs or {}, out)
            for call in calls:
                self._counts[_Key(self.module(), phase, call, moved / len(calls))] += 1
        return out

    def module(self) -> str:
        """Return the path of the innermost active module, without the name of the captured one."""
        inner = max(self.tracker.parents, key=lambda path: (path.count("."), path != "Global", len(path)))
        return inner.partition(".")[2]

    def calls(self) -> list[CapturedCall]:
        """Return what was counted."""
        found = []
        for key, count in self._counts.items():
            op, reason = operator_of(key.call)
            found.append(CapturedCall(key.module, key.phase, describe(key.call), op, count, key.bytes, reason))
        return found


def _run(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return func(*args, **kwargs)


def _runs_a_kernel(func: Any) -> bool:
    """Return whether an operator runs a kernel: no view, no allocation, no question to the framework.

    One of another package than PyTorch runs one; the model may not have it, but it is named.
    """
    schema = func._schema
    if schema.name.startswith(_OF_PYTORCH) or schema.name in _NO_KERNEL:
        return False
    if schema.name.startswith(_ALLOCATES) or torch.Tag.inplace_view in func.tags:
        return False
    views = [returned.alias_info for returned in schema.returns if returned.alias_info is not None]
    return not views or any(alias.is_write for alias in views)


def _is_empty(out: Any) -> bool:
    """Return whether an operator made tensors without elements alone, for which no kernel runs."""
    made = [leaf for leaf in torch.utils._pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]
    return bool(made) and all(tensor.numel() == 0 for tensor in made)


def _check_dtypes(product: Any, args: Sequence[Any], module: str) -> None:
    """Refuse what PyTorch refuses: on tensors without values, a product takes operands of different dtypes."""
    dtypes = dict.fromkeys(str(value.dtype).removeprefix("torch.") for value in args if isinstance(value, torch.Tensor))
    if len(dtypes) > 1:
        raise UsageError(
            f"{product._schema.name} has operands in {' and '.join(dtypes)}, which PyTorch refuses.",
            place=module or "capture",
            remedy="Give the inputs the dtype of the module's parameters.",
        )


def _calls(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> list[Call]:
    """Return a dispatched operator as the calls that a trace of a GPU would have."""
    arguments = func._schema.arguments
    given = [args[i] if i < len(args) else kwargs.get(one.name, one.default_value) for i, one in enumerate(arguments)]
    name = func._schema.name
    if name in _COPIES:
        name, given = "aten::copy_", [out, given[0]]
    if name in _FILLED:
        name, given = "aten::fill_", [out]
    if name in _PLACED:  # zeros, and a copy of the first argument into a part of them
        return [_call("aten::fill_", [out]), _call("aten::copy_", [given[0], given[0]])]
    if name.startswith(("aten::_upsample", "aten::upsample")):
        given[1] = given[1] if name.endswith("backward") else list(out.shape[2:])  # or it has a factor
    if name == _CPU_ATTENTION:
        name, given = _GPU_ATTENTION, given[:5]
    if name == f"{_CPU_ATTENTION}_backward":
        # gradient, q, k, v, out, logsumexp | dropout, causal; the GPU's has lengths and largest lengths between
        name, given = f"{_GPU_ATTENTION}_backward", [*given[:6], None, None, None, None, *given[6:8]]
    return [_call(name, given, out if name in _BY_MASK else None)]


def _call(name: str, given: Sequence[Any], out: Any = None) -> Call:
    """Return a call of an operator with its arguments, and the sizes of a result that follows from values."""
    return Call(
        name,
        tuple(_argument(value) for value in given),
        tuple("" if value is None or _argument(value) is not None else str(value) for value in given),
        has_shapes=True,
        has_values=True,
        result=tuple(map(int, out.shape)) if isinstance(out, torch.Tensor) else (),
    )


def _argument(value: Any) -> Argument:
    if isinstance(value, torch.Tensor):
        return _shape(value)
    if not isinstance(value, (list, tuple)) or not any(isinstance(item, torch.Tensor) for item in value):
        return None
    if all(item is None or isinstance(item, torch.Tensor) for item in value):
        return tuple(WHOLE if item is None else _shape(item) for item in value)
    return None


def _shape(tensor: torch.Tensor) -> Shape:
    dims, strides = [int(size) for size in tensor.shape], [int(stride) for stride in tensor.stride()]
    shape = shape_of(dims, strides, _DTYPES.get(tensor.dtype, str(tensor.dtype)))
    assert shape is not None, "a tensor that exists has possible sizes"
    return replace(shape, dims=shape.dims or (1,))


def _bytes(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> float:
    """Return the bytes of all tensors that go into an operator and come out of it."""
    flat = [*args, *kwargs.values(), *(out if isinstance(out, (list, tuple)) else [out])]
    tensors = [item for value in flat for item in (value if isinstance(value, (list, tuple)) else [value])]
    return float(sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor)))

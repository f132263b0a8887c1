"""Capturing a PyTorch module: its forward pass, gradients and optimizer, on tensors that have shapes and no values.

Under FakeTensorMode an operator computes only the shapes of its results, so that a model of 70 billion parameters is
captured in seconds and without its memory. A dispatch mode records the operators, a module tracker says which module
they belong to, and the mapping that traces use turns them into operators of the model.
"""

from __future__ import annotations

import contextlib
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.module_tracker import ModuleTracker

from perfmodel.errors import UsageError, unknown_name
from perfmodel.module_capture.dispatch import Recorder
from perfmodel.module_capture.result import Captured, CapturedCall, ModuleFacts, Phase, merged
from perfmodel.operators.optimizer import Optimizer

#: what ``optimizer`` may be -> kind and algorithm of the operator
OPTIMIZERS = {
    "adamw": ("adamw", "foreach"),
    "adamw-fused": ("adamw", "fused"),
    "sgd": ("sgd", "foreach"),
    "adam8bit": ("adam8bit", "fused"),
}
_HERE = Path(__file__).parent
_DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64"}


def capture(
    module: Any,
    inputs: Any = (),
    *,
    backward: bool = False,
    optimizer: str = "",
    loss: Callable[[Any], Any] | None = None,
) -> Captured:
    """Return the operators of a module, by module, without running it.

    Parameters
    ----------
    module : a `torch.nn.Module`, compiled or exported ones too, or a function without arguments that builds one. A
        function is called with the meta device as default, so that a large model takes no memory.
    inputs : a tensor, a sequence of positional arguments, or a mapping of keyword arguments. Only shapes, dtypes and
        strides matter; the tensors may be on the meta device.
    backward : whether gradients of all parameters are computed, too, of ``loss`` or the sum of the output.
    optimizer : "adamw" (foreach), "adamw-fused", "sgd", "adam8bit", or "" for none; counted by its formula.
    loss : turns the output into a scalar.

    Raises
    ------
    UsageError
        When the inputs do not fit the module, a value of a tensor decides what runs next, or ``optimizer`` is unknown.
    """
    if optimizer and optimizer not in OPTIMIZERS:
        raise unknown_name("optimizer", optimizer, OPTIMIZERS)
    net = module_of(module)
    args, kwargs = arguments_of(inputs)
    with FakeTensorMode(allow_non_fake_inputs=True):
        state = {**_fakes(net.named_parameters(remove_duplicate=False)), **_fakes(net.named_buffers())}
        recorder, saved = _recorded(net, state, (_fake_tree(args), _fake_tree(kwargs)), backward=backward, loss=loss)
    calls = [*recorder.calls(), *_optimizer(net, optimizer)]
    return Captured(
        title=f"{type(net).__name__}({_described(args, kwargs)})",
        calls=merged(calls),
        modules=tuple(_facts(net, saved)),
    )


def module_of(module: Any, *, device: str = "meta") -> torch.nn.Module:
    """Return the module itself: of a compiled or exported one, or what a function builds with a default device.

    Raises
    ------
    UsageError
        When there is none.
    """
    module = _plain(module)
    if not isinstance(module, torch.nn.Module) and callable(module):
        with torch.device(device), _explained(getattr(module, "__name__", "the builder")):
            module = _plain(module())
    if not isinstance(module, torch.nn.Module):
        raise UsageError(
            f"{type(module).__name__} is no torch.nn.Module.",
            place="capture",
            remedy="Pass a module or what builds one.",
        )
    return module


def _plain(module: Any) -> Any:
    """Return the module of a compiled or exported one, with its modules inside, and anything else as it is."""
    if isinstance(module, torch.export.ExportedProgram):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what PyTorch's own code uses
            return torch.export.unflatten(module)
    return getattr(module, "_orig_mod", module)


def arguments_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments from a tensor, a sequence, or a mapping."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    return tuple(inputs), {}


def _fakes(named: Iterator[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return tensors without values in the place of others, the same one for one that occurs twice."""
    made: dict[int, torch.Tensor] = {}
    result = {}
    for name, tensor in named:
        if id(tensor) not in made:
            made[id(tensor)] = _fake(tensor)
        result[name] = made[id(tensor)]
    return result


def _fake(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without values on a CPU, whose operators are those of a GPU but for attention."""
    floats = tensor.dtype.is_floating_point
    return torch.empty_strided(
        tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu", requires_grad=tensor.requires_grad and floats
    )


def _fake_tree(value: Any) -> Any:
    return torch.utils._pytree.tree_map_only(torch.Tensor, _fake, value)


def _recorded(
    net: torch.nn.Module,
    state: Mapping[str, torch.Tensor],
    inputs: tuple[Any, Any],
    *,
    backward: bool,
    loss: Callable[[Any], Any] | None,
) -> tuple[Recorder, dict[str, float]]:
    """Run a module on tensors without values; return the operators, and module -> bytes that it saves."""
    tracker = ModuleTracker()
    recorder = Recorder(tracker)
    saved = _Saved(recorder, state.values())
    args, kwargs = inputs
    with _explained(type(net).__name__), tracker, recorder, saved.hooks(), torch.set_grad_enabled(backward):
        out = torch.func.functional_call(net, dict(state), args, kwargs)
        if backward:
            scalar_of(out, loss).backward()
    return recorder, saved.bytes


def scalar_of(out: Any, loss: Callable[[Any], Any] | None) -> torch.Tensor:
    """Return what gradients are of: the loss, or the sum of all outputs with a gradient.

    Raises
    ------
    UsageError
        When no output depends on a parameter that is trained.
    """
    value = loss(out) if loss is not None else getattr(out, "loss", None)
    if isinstance(value, torch.Tensor):
        return value
    leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]
    leaves = leaves or [leaf for leaf in getattr(out, "values", list)() if isinstance(leaf, torch.Tensor)]
    sums = [leaf.sum() for leaf in leaves if leaf.requires_grad]
    if not sums:
        raise UsageError(
            "no output depends on a parameter that is trained.", place="capture", remedy="Leave backward out."
        )
    return torch.stack(sums).sum() if len(sums) > 1 else sums[0]


class _Saved:
    """The tensors that autograd keeps for the backward pass, each storage once, without parameters and buffers."""

    def __init__(self, recorder: Recorder, state: Any) -> None:
        self._recorder = recorder
        # references are held, since addresses are used again
        self._seen: dict[int, Any] = {}
        self._owned = {tensor.untyped_storage()._cdata for tensor in state}
        self.bytes: dict[str, float] = {}

    @contextlib.contextmanager
    def hooks(self) -> Iterator[None]:
        with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor):
            yield

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._owned and storage._cdata not in self._seen:
            self._seen[storage._cdata] = storage
            path = self._recorder.module()
            self.bytes[path] = self.bytes.get(path, 0.0) + float(storage.nbytes())
        return tensor


def _optimizer(net: torch.nn.Module, name: str) -> list[CapturedCall]:
    """Return the step of an optimizer over the trained parameters, by dtype."""
    if not name:
        return []
    kind, algorithm = OPTIMIZERS[name]
    by_dtype: dict[str, list[int]] = {}
    for parameter in net.parameters():
        if parameter.requires_grad:
            by_dtype.setdefault(_DTYPES.get(parameter.dtype, "fp32"), []).append(parameter.numel())
    steps = []
    for dtype, sizes in by_dtype.items():
        op = Optimizer(parameters=sum(sizes), kind=kind, algorithm=algorithm, num_tensors=len(sizes), dtype=dtype)
        label = f"{name}({sum(sizes)} parameters in {len(sizes)} tensors) {dtype}"
        steps.append(CapturedCall("", Phase.OPTIMIZER, label, op, 1, 0.0))
    return steps


def _facts(net: torch.nn.Module, saved: Mapping[str, float]) -> Iterator[ModuleFacts]:
    for path, module in net.named_modules():
        parameters = list(module.parameters())
        inner = f"{path}."
        activations = sum(size for own, size in saved.items() if not path or own == path or own.startswith(inner))
        yield ModuleFacts(
            path,
            type(module).__name__,
            sum(parameter.numel() for parameter in parameters),
            sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
            activations,
        )


def _described(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    named = [("", value) for value in args] + [(f"{name}=", value) for name, value in kwargs.items()]
    return ", ".join(
        f"{name}{'x'.join(map(str, value.shape))} {str(value.dtype).removeprefix('torch.')}"
        for name, value in named
        if isinstance(value, torch.Tensor)
    )


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn what a module raises into one message with the line of its own code.

    Raises
    ------
    UsageError
        When the forward pass fails.
    """
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    try:
        yield
    except UsageError:
        raise
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise UsageError(
            f"{name} depends on the values of a tensor ({error.func}).",
            place=_own_line(error),
            remedy="Operators are captured without values: run and trace it instead, or replace the branch.",
        ) from None
    except Exception as error:  # noqa: BLE001 -- whatever the module's own code raises
        message = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise UsageError(
            f"{name} fails: {message.rstrip('.')}.", place=_own_line(error), remedy="Do the inputs fit it?"
        ) from None


def _own_line(error: BaseException) -> str:
    """Return file and line of the innermost frame outside of PyTorch and perfmodel."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/torch/" not in frame.filename and Path(frame.filename).parent != _HERE]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else "capture"

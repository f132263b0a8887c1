"""Capturing a PyTorch module: its forward pass, gradients and optimizer, on tensors that have shapes and no values.

Under FakeTensorMode an operator computes only the shapes of its results, so that a model of 70 billion parameters is
captured in seconds and without its memory. A dispatch mode records the operators, a module tracker says which module
they belong to, and the mapping that traces use turns them into operators of the model.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parameter import is_lazy
from torch.utils.module_tracker import ModuleTracker

from perfmodel.errors import UsageError, suggesting, unknown_name, wrong_type
from perfmodel.module_capture.dispatch import GpuDropout, Recorder
from perfmodel.module_capture.dtypes import MODULE_DTYPES, casts_to_try, dtype_after
from perfmodel.module_capture.failures import ASKED, BUILD, FIT, GIVE_INPUTS, explained
from perfmodel.module_capture.known import KnownValues
from perfmodel.module_capture.result import Captured, CapturedCall, ModuleFacts, Phase, merged
from perfmodel.operators.optimizer import Optimizer

#: what ``optimizer`` may be -> kind and algorithm of the operator
OPTIMIZERS = {
    "adamw": ("adamw", "foreach"),
    "adamw-fused": ("adamw", "fused"),
    "sgd": ("sgd", "foreach"),
    "adam8bit": ("adam8bit", "fused"),
}
#: layers whose steps a GPU computes in fewer kernels than PyTorch's general operators
_RECURRENT = (torch.nn.RNNBase, torch.nn.LSTMCell, torch.nn.GRUCell)


@suggesting
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
        function is called with the meta device as default, so that a large model takes no memory. It may return the
        module and its inputs, which count where none are given. A module stays as it is: what runs is a copy without
        values.
    inputs : a tensor, a sequence of positional arguments, or a mapping of keyword arguments. Shapes, dtypes and
        strides matter; values only where the module asks for them (`Captured.decided`), so that the tensors may be on
        the meta device. Where their floating-point dtype is not that of the parameters, the copy is cast to it, as by
        ``module.to(dtype)``; ``cast_to`` says so.
    backward : whether gradients of all parameters are computed, too, of ``loss`` or the sum of the output.
    optimizer : "adamw" (foreach), "adamw-fused", "sgd", "adam8bit", or "" for none; counted by its formula.
    loss : turns the output into a scalar.

    Raises
    ------
    UsageError
        When the inputs do not fit the module, their dtypes are several and none is that of the parameters, a value that
        nobody knows decides what runs next, or ``optimizer`` is unknown.
    """
    if optimizer and optimizer not in OPTIMIZERS:
        raise unknown_name("optimizer", optimizer, OPTIMIZERS)
    net, args, kwargs = built(module, inputs)
    recorder, saved, cast = _recorded_in_one_dtype(net, args, kwargs, backward=backward, loss=loss)
    calls = merged([*recorder.calls(), *_optimizer(net, optimizer, cast)])
    return Captured(
        title=f"{type(net).__name__}({_described(args, kwargs)})",
        calls=calls,
        modules=tuple(_facts(net, saved)),
        cast_to=MODULE_DTYPES[cast] if cast is not None else "",
        recurrent=tuple(_recurrent(net, calls)),
        decided=tuple(recorder.known.decided) if recorder.known else (),
        tf32=_in_tf32(),
    )


def built(
    module: Any, inputs: Any = (), *, device: str = "meta"
) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Return the module itself, and its positional and keyword arguments.

    It is that of a compiled or exported one, or what a function builds with a default device: a module, or one with its
    inputs behind it, which count where none are given.

    Raises
    ------
    UsageError
        When there is none, its layers wait for their sizes, or the inputs are no arguments.
    """
    module, example = _plain(module), ()
    if not isinstance(module, torch.nn.Module) and callable(module):
        with torch.device(device), explained(getattr(module, "__name__", "the builder"), BUILD):
            made = module()
        match made:
            case (torch.nn.Module() as net, example):
                module = _plain(net)
            case (torch.nn.Module() as net, _, _, *_):
                module, example = _plain(net), made[1:]
            case _:
                module = _plain(made)
    if not isinstance(module, torch.nn.Module):
        raise UsageError(
            f"{type(module).__name__} is no torch.nn.Module.",
            place="capture",
            remedy="Pass a module, or a function that returns one, or one and its inputs.",
        )
    if lazy := sorted({type(one).__name__ for one in module.modules() if any(map(is_lazy, _own_tensors(one)))}):
        raise UsageError(
            f"the sizes of {', '.join(lazy)} follow from the first input, and it has had none.",
            place="capture",
            remedy="Build the layers with their sizes, or run the module once.",
        )
    none_given = isinstance(inputs, (Sequence, Mapping)) and not inputs
    return module, *arguments_of(example if none_given else inputs)


def _own_tensors(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Return parameters and buffers of a module without those of modules inside."""
    return itertools.chain(module.parameters(recurse=False), module.buffers(recurse=False))


def _plain(module: Any) -> Any:
    """Return the module of a compiled or exported one, with its modules inside, and anything else as it is."""
    if isinstance(module, torch.export.ExportedProgram):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what PyTorch's own code uses
            return torch.export.unflatten(module)
    return getattr(module, "_orig_mod", module)


def arguments_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments from a tensor, a sequence, or a mapping.

    Raises
    ------
    UsageError
        For anything else: the rows of an array of NumPy and the letters of a text are no arguments.
    """
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, str) or not isinstance(inputs, Sequence):
        remedy = 'Pass a torch.Tensor, a list of arguments, or a mapping {"x": tensor}.'
        raise wrong_type(inputs, "tensor or list of arguments", place="capture", remedy=remedy)
    return tuple(inputs), {}


def _fakes(net: torch.nn.Module, cast: torch.dtype | None, gradients: bool) -> dict[str, torch.Tensor]:
    """Return tensors without values for the parameters and buffers, the same one for one that occurs twice.

    A module that has two names is there by its first one: `torch.func.functional_call` would else put back what it had
    replaced by the other name, which is a tensor without values.
    """
    fakes: dict[int, torch.Tensor] = {}
    result = {}
    for path, module in net.named_modules():
        parameters = module.named_parameters(path, recurse=False, remove_duplicate=False)
        buffers = module.named_buffers(path, recurse=False, remove_duplicate=False)
        for name, tensor in itertools.chain(parameters, buffers):
            if id(tensor) not in fakes:
                fakes[id(tensor)] = _fake(tensor, gradients, cast)
            result[name] = fakes[id(tensor)]
    return result


def _fake(tensor: torch.Tensor, gradients: bool, cast: torch.dtype | None = None) -> torch.Tensor:
    """Return a tensor without values on a CPU, whose operators are those of a GPU but for attention.

    Without ``gradients`` it asks for none: a view of one that does, made while gradients are off, says that it needs a
    gradient and has no function of it, which the hooks of `ModuleTracker` refuse.
    """
    trained = tensor.requires_grad and (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
    return torch.empty_strided(
        tensor.size(),
        tensor.stride(),
        dtype=dtype_after(tensor, cast),
        device="cpu",
        requires_grad=gradients and trained,
    )


def _fake_tree(value: Any, gradients: bool) -> Any:
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda tensor: _fake(tensor, gradients), value)


def _recorded_in_one_dtype(
    net: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], **options: Any
) -> tuple[Recorder, dict[str, float], torch.dtype | None]:
    """Return what `_recorded` does, and the dtype that the parameters have to be cast to for these inputs, or None."""
    leaves = torch.utils._pytree.tree_leaves((args, kwargs))
    first, *others = casts_to_try(net.parameters(), [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
    try:
        return *_recorded_as_asked(net, args, kwargs, first, **options), first
    except UsageError:
        if not others:
            raise
    return *_recorded_as_asked(net, args, kwargs, others[0], **options), others[0]


def _recorded_as_asked(*args: Any, **options: Any) -> tuple[Recorder, dict[str, float]]:
    """Return what `_recorded` does, with the values that are known, then those of parameters, if the module asks."""
    for known in (None, KnownValues()):
        try:
            return _recorded(*args, known=known, **options)
        except UsageError as error:
            if not isinstance(error.__cause__, ASKED):
                raise
    return _recorded(*args, known=KnownValues(), parameters=True, **options)


def _recorded(
    net: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    cast: torch.dtype | None,
    *,
    backward: bool,
    loss: Callable[[Any], Any] | None,
    known: KnownValues | None = None,
    parameters: bool = False,
) -> tuple[Recorder, dict[str, float]]:
    """Run a copy of a module without values; return the operators, and module -> bytes that it saves.

    The values of inputs and buffers, and of ``parameters`` if asked, are ``known``.
    """
    tracker = ModuleTracker()
    recorder = Recorder(tracker, known)
    with FakeTensorMode(allow_non_fake_inputs=True), _general_operators():
        state = _fakes(net, cast, backward)
        inputs = tuple(_fake_tree(args, backward)), dict(_fake_tree(kwargs, backward))
        if known is not None:
            held = dict(net.named_buffers()) | (dict(net.named_parameters()) if parameters else {})
            given = zip(*map(torch.utils._pytree.tree_leaves, (inputs, (args, kwargs))), strict=True)
            for fake, real in (*((state[name], tensor) for name, tensor in held.items()), *given):
                if isinstance(real, torch.Tensor):
                    known.keep(fake, real)
        saved = _Saved(recorder, state.values())
        with (
            explained(type(net).__name__, FIT if args or kwargs else GIVE_INPUTS),
            tracker,
            recorder,
            GpuDropout(),
            saved.hooks(),
            torch.set_grad_enabled(backward),
        ):
            out = torch.func.functional_call(net, state, *inputs, tie_weights=False)
            if backward:
                scalar_of(out, loss).backward()
    return recorder, saved.bytes


@contextlib.contextmanager
def _general_operators() -> Iterator[None]:
    """Let layers run operators that every device has and traces name: no oneDNN (LSTM), no fused encoder layer."""
    onednn, encoder = torch._C._get_mkldnn_enabled(), torch.backends.mha.get_fastpath_enabled()
    torch._C._set_mkldnn_enabled(False)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(onednn)
        torch.backends.mha.set_fastpath_enabled(encoder)


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


def _optimizer(net: torch.nn.Module, name: str, cast: torch.dtype | None) -> list[CapturedCall]:
    """Return the step of an optimizer over the trained parameters, by dtype, after a cast."""
    if not name:
        return []
    kind, algorithm = OPTIMIZERS[name]
    by_dtype: dict[str, list[int]] = {}
    for parameter in net.parameters():
        if parameter.requires_grad:
            numbers = parameter.numel() * (2 if parameter.dtype.is_complex else 1)
            by_dtype.setdefault(MODULE_DTYPES.get(dtype_after(parameter, cast), "fp32"), []).append(numbers)
    steps = []
    for dtype, sizes in by_dtype.items():
        op = Optimizer(parameters=sum(sizes), kind=kind, algorithm=algorithm, num_tensors=len(sizes), dtype=dtype)
        label = f"{name}({sum(sizes)} parameters in {len(sizes)} tensors) {dtype}"
        steps.append(CapturedCall("", Phase.OPTIMIZER, label, op, 1, 0.0))
    return steps


def _in_tf32() -> tuple[str, ...]:
    """Return the operators that PyTorch lets run in TF32 as it is set: convolutions by default, products on demand."""
    cudnn: Any = torch.backends.cudnn
    convolutions = _lets_tf32((getattr(cudnn, "conv", None), cudnn, torch.backends), cudnn)
    products = _lets_tf32((torch.backends.cuda.matmul, torch.backends), torch.backends.cuda.matmul)
    return (*("conv2d", "conv3d") * convolutions, *("gemm",) * products)


def _lets_tf32(settings: Sequence[Any], older: Any) -> bool:
    """Return whether the first setting that says a precision names TF32; PyTorch before 2.9 has a switch instead."""
    said = [getattr(own, "fp32_precision", None) for own in settings]
    if not any(said):
        return bool(older.allow_tf32)
    return next((precision for precision in said if precision not in (None, "none")), "") == "tf32"


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


def _recurrent(net: torch.nn.Module, calls: Sequence[CapturedCall]) -> list[str]:
    """Return the classes of the recurrent layers that ran."""
    ran = {call.module for call in calls}
    return sorted(
        {type(one).__name__ for path, one in net.named_modules() if path in ran and isinstance(one, _RECURRENT)}
    )


def _described(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    named = [("", value) for value in args] + [(f"{name}=", value) for name, value in kwargs.items()]
    return ", ".join(
        f"{name}{'x'.join(map(str, value.shape))} {str(value.dtype).removeprefix('torch.')}"
        for name, value in named
        if isinstance(value, torch.Tensor)
    )

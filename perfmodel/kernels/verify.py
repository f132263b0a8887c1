"""Checks the call that will be timed: with new inputs and with memory full of NaN."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch

from perfmodel.kernels.check import Verdict, check, declared_output
from perfmodel.kernels.inputs import changed_inputs, fill_inputs
from perfmodel.kernels.precision import TORCH_DTYPES
from perfmodel.operators import Operator

#: turns a seed into the seed of the inputs that only the check uses
_OTHER_SEED = 0x5EED
#: freed blocks that are filled with NaN: an allocator returns one of the last freed blocks, not always the very last
_POISONED_BLOCKS = 4
#: for a larger output only one block is filled, since memory is limited [B]
_LARGE_BYTES = 2**26
#: the functions that return uninitialised memory to Python code
_ALLOCATORS = ((torch, "empty"), (torch, "empty_like"), (torch, "empty_strided"), (torch.Tensor, "new_empty"))


def verify(
    op: Operator,
    call: Callable[[], Any],
    inputs: Mapping[str, torch.Tensor],
    seed: int = 0,
    *,
    in_place: bool = False,
) -> Verdict:
    """Check the call that will be timed. It passes only if it computes a new result from its inputs.

    The call runs once with its inputs. Then the inputs get other random values, the first result and the memory for
    the next one are filled with NaN, and the call runs again. A kept result and unwritten elements are then wrong. A
    call that writes to its inputs is wrong too, since later calls would compute something else, and so is one that
    returns the memory of an input. At the end the inputs have their original values.

    Parameters
    ----------
    op : the operator.
    call : the call to be timed, prepared with these inputs.
    inputs : inputs by name; they are overwritten meanwhile.
    seed : the seed of the inputs.
    in_place : the call is one that updates its inputs; its result then belongs to what they were before.
    """
    try:
        first = call()
        if isinstance(first, torch.Tensor):
            poison(first)
        del first
        fill_inputs(op, inputs, seed ^ _OTHER_SEED)
        before = {name: tensor.clone() for name, tensor in inputs.items()} if in_place else inputs
        _poison_freed(op, inputs)
        with poisoned_allocators():
            output = call()
        misuse = "" if in_place else _misuse(op, inputs, output, seed ^ _OTHER_SEED)
        return Verdict(False, math.inf, "", misuse) if misuse else check(op, before, output, seed)
    finally:
        fill_inputs(op, inputs, seed)


def _misuse(op: Operator, inputs: Mapping[str, torch.Tensor], output: Any, seed: int) -> str:
    """Return how a call misused its inputs, or an empty string."""
    changed = changed_inputs(op, inputs, seed)
    if changed:
        return f"it writes to its input {', '.join(changed)}"
    for name, tensor in inputs.items():
        if isinstance(output, torch.Tensor) and _address(output) == _address(tensor):
            return f"its output shares the memory of its input {name}"
    return ""


def _address(tensor: torch.Tensor) -> int:
    """Return the address of the memory that a tensor is a view of."""
    return int(tensor.untyped_storage().data_ptr())


def poison(tensor: torch.Tensor) -> torch.Tensor:
    """Fill a tensor with NaN, or with its largest value if its dtype has no NaN, and return it."""
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor.fill_(math.nan)
    return tensor if tensor.dtype is torch.bool else tensor.fill_(torch.iinfo(tensor.dtype).max)


def _poison_freed(op: Operator, inputs: Mapping[str, torch.Tensor]) -> None:
    """Allocate blocks of the output's size, fill them with NaN and free them, so that the next output gets one of them.

    On a GPU torch's allocator keeps blocks by size, so this also reaches outputs that are allocated outside Python.
    """
    shape, dtype = declared_output(op)
    size = math.prod(shape) * TORCH_DTYPES[dtype].itemsize
    device = next(iter(inputs.values())).device
    # All bits set are a NaN in each of these floating-point formats.
    blocks = 1 if size > _LARGE_BYTES else _POISONED_BLOCKS
    poisoned = [torch.full((size,), -1, dtype=torch.int8, device=device) for _ in range(blocks)]
    del poisoned


@contextlib.contextmanager
def poisoned_allocators() -> Iterator[None]:
    """Fill the uninitialised memory that Python code allocates with NaN."""
    with contextlib.ExitStack() as stack:
        for place, name in _ALLOCATORS:
            original = getattr(place, name)

            def poisoned(*args: Any, _original: Any = original, **kwargs: Any) -> torch.Tensor:
                return poison(_original(*args, **kwargs))

            stack.enter_context(mock.patch.object(place, name, poisoned))
        yield

"""Judging the very call that is going to be timed: fresh inputs, poisoned memory, then the check."""

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

#: turns a seed into that of the inputs which only the check sees
_OTHER_SEED = 0x5EED
#: freed blocks that are poisoned: allocators hand the last ones out first, and not always the very last
_POISONED_BLOCKS = 4
#: an output of more than this is poisoned in one block only: memory is finite [B]
_LARGE_BYTES = 2**26
#: where Python code takes memory that it has not written
_ALLOCATORS = ((torch, "empty"), (torch, "empty_like"), (torch, "empty_strided"), (torch.Tensor, "new_empty"))


def verify(op: Operator, call: Callable[[], Any], inputs: Mapping[str, torch.Tensor], seed: int = 0) -> Verdict:
    """Judge the call that is going to be timed, so that it passes with nothing but a fresh result of its own.

    The call runs once on the inputs that it was made for. Then these get other random values, in place; what it
    returned, and the memory in which its next output is going to lie, are filled with NaN; and it runs again: a
    result that it kept, and elements that it leaves unwritten, are wrong then. So is a call that writes to its
    inputs, since the calls that are timed would compute with something else, and one that returns the memory of an
    input. The inputs of the seed come back at the end.

    Parameters
    ----------
    op : the operator.
    call : what is to be timed, prepared with these inputs.
    inputs : by name; written to.
    seed : of the inputs as they are.
    """
    try:
        first = call()
        if isinstance(first, torch.Tensor):
            poison(first)
        del first
        fill_inputs(op, inputs, seed ^ _OTHER_SEED)
        _poison_freed(op, inputs)
        with poisoned_allocators():
            output = call()
        misused = _misused(op, inputs, output, seed ^ _OTHER_SEED)
        return Verdict(False, math.inf, "", misused) if misused else check(op, inputs, output, seed)
    finally:
        fill_inputs(op, inputs, seed)


def _misused(op: Operator, inputs: Mapping[str, torch.Tensor], output: Any, seed: int) -> str:
    """Return what a call did to its inputs that no kernel may, or an empty string."""
    changed = changed_inputs(op, inputs, seed)
    if changed:
        return f"it writes to its input {', '.join(changed)}"
    for name, tensor in inputs.items():
        if isinstance(output, torch.Tensor) and _address(output) == _address(tensor):
            return f"its output lies in the memory of its input {name}"
    return ""


def _address(tensor: torch.Tensor) -> int:
    """Return where the memory begins that a tensor is a view of."""
    return int(tensor.untyped_storage().data_ptr())


def poison(tensor: torch.Tensor) -> torch.Tensor:
    """Fill a tensor with NaN, or with its largest value where its type has no NaN; return it."""
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor.fill_(math.nan)
    return tensor if tensor.dtype is torch.bool else tensor.fill_(torch.iinfo(tensor.dtype).max)


def _poison_freed(op: Operator, inputs: Mapping[str, torch.Tensor]) -> None:
    """Allocate blocks of the output's size, fill them with NaN and free them, so that one of them is handed out next.

    On a GPU torch's allocator keeps blocks by size, so that this reaches the output of any kernel, also of those
    that allocate it outside Python.
    """
    shape, dtype = declared_output(op)
    size = math.prod(shape) * TORCH_DTYPES[dtype].itemsize
    device = next(iter(inputs.values())).device
    # all bits set are a NaN in every floating-point format here
    blocks = 1 if size > _LARGE_BYTES else _POISONED_BLOCKS
    made = [torch.full((size,), -1, dtype=torch.int8, device=device) for _ in range(blocks)]
    del made


@contextlib.contextmanager
def poisoned_allocators() -> Iterator[None]:
    """Make the memory that Python code takes unwritten arrive full of NaN."""
    with contextlib.ExitStack() as stack:
        for place, name in _ALLOCATORS:
            original = getattr(place, name)

            def poisoned(*args: Any, _original: Any = original, **kwargs: Any) -> torch.Tensor:
                return poison(_original(*args, **kwargs))

            stack.enter_context(mock.patch.object(place, name, poisoned))
        yield

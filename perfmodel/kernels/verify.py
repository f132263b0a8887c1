"""Checks the call that will be timed: with new inputs and with memory full of NaN."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import torch

from perfmodel.kernels.check import Verdict, check
from perfmodel.kernels.check_gradient import check_gradients
from perfmodel.kernels.gradients import is_gradient
from perfmodel.kernels.inputs import changed_inputs, fill_inputs
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
    rounded_sums: int = 1,
) -> Verdict:
    """Check the call that will be timed. It passes only if it computes a new result from its inputs.

    The call runs once with its inputs. Then the inputs get other random values, the first result and the memory for
    the next one are filled with NaN, and the call runs again. A kept result and unwritten elements are then wrong. A
    call that writes to its inputs is wrong too, since later calls would compute something else, and so is one that
    returns the memory of an input. At the end the inputs have their original values. A call with a method ``renew``,
    as that of a gradient, is told whenever its inputs have changed.

    Parameters
    ----------
    op : the operator.
    call : the call to be timed, prepared with these inputs.
    inputs : inputs by name; they are overwritten meanwhile.
    seed : the seed of the inputs.
    in_place : the call is one that updates its inputs; its result then belongs to what they were before.
    rounded_sums : how many partial sums it rounds to the operator's dtype; see `perfmodel.kernels.check.growth`.
    """
    try:
        first = results(call())
        sizes = [tensor.nbytes for tensor in first]
        for tensor in first:
            poison(tensor)
        del first
        _fill(op, call, inputs, seed ^ _OTHER_SEED)
        before = {name: tensor.clone() for name, tensor in inputs.items()} if in_place else inputs
        _poison_freed(sizes, inputs)
        with poisoned_allocators():
            output = call()
        misuse = "" if in_place else _misuse(op, inputs, output, seed ^ _OTHER_SEED)
        if misuse:
            return Verdict(False, math.inf, "", misuse)
        if is_gradient(op):
            return check_gradients(op, before, output, seed)
        return check(op, before, output, seed, rounded_sums)
    finally:
        _fill(op, call, inputs, seed)


def results(output: Any) -> list[torch.Tensor]:
    """Return the tensors that a call returned: one, or those of a tuple."""
    several = output if isinstance(output, (tuple, list)) else (output,)
    return [tensor for tensor in several if isinstance(tensor, torch.Tensor)]


def _fill(op: Operator, call: Callable[[], Any], inputs: Mapping[str, torch.Tensor], seed: int) -> None:
    """Write the inputs of a seed, and tell the call."""
    fill_inputs(op, inputs, seed)
    renew = getattr(call, "renew", None)
    if renew is not None:
        renew()


def _misuse(op: Operator, inputs: Mapping[str, torch.Tensor], output: Any, seed: int) -> str:
    """Return how a call misused its inputs, or an empty string."""
    changed = changed_inputs(op, inputs, seed)
    if changed:
        return f"it writes to its input {', '.join(changed)}"
    addresses = {_address(tensor) for tensor in results(output)}
    for name, tensor in inputs.items():
        if _address(tensor) in addresses:
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


def _poison_freed(sizes: Sequence[int], inputs: Mapping[str, torch.Tensor]) -> None:
    """Allocate blocks of the outputs' sizes [B], fill them with NaN and free them, so that the next outputs get them.

    On a GPU torch's allocator keeps blocks by size, so this also reaches outputs that are allocated outside Python.
    """
    device = next(iter(inputs.values())).device
    # All bits set are a NaN in each of these floating-point formats.
    poisoned = [
        torch.full((size,), -1, dtype=torch.int8, device=device)
        for size in sizes
        for _ in range(1 if size > _LARGE_BYTES else _POISONED_BLOCKS)
    ]
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

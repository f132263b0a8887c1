"""Values of tensors that are known although operators are captured without values.

What a module builds from sizes, such as a mask, its buffers, its inputs and, where the question is about them, its
parameters are worked out beside the tensors without values, so that a question ("is this mask the causal one?", "which
tokens go to this expert?") is answered as in a run. What depends on random numbers, on tensors that are shapes alone,
or on more than a moment's work has no value: nobody can answer a question about it without running the module.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakTensorKeyDictionary

from perfmodel.module_capture.assumed import assumed
from perfmodel.module_capture.failures import ASKED, own_line

#: elements of the largest tensor whose values are kept, a mask of 8,192 x 8,192, and bytes of all that are worked out
LARGEST, MOST_BYTES = 2**26, 2**32
#: FLOP of all products that are worked out: some seconds of a processor
MOST_FLOP = 1e12


class _Value(NamedTuple):
    """The values of a tensor, and whether they follow from an input, a buffer or a parameter."""

    tensor: torch.Tensor
    given: bool


class KnownValues:
    """The values of some tensors without values, worked out as operators are dispatched.

    Attributes
    ----------
    decided : the lines that asked for values which follow from an input, a buffer or a parameter, as "file:line".
    """

    def __init__(self) -> None:
        self.decided: dict[str, None] = {}
        self._left_bytes, self._left_flop = MOST_BYTES, MOST_FLOP
        self._values: Any = WeakTensorKeyDictionary()
        #: storages of tensors whose values are somebody else's, and must not change; held, for addresses are used again
        self._borrowed: dict[int, Any] = {}

    def keep(self, fake: torch.Tensor, real: torch.Tensor) -> None:
        """Keep the values of a tensor of the caller's; one without values, or a large one to copy, remains unknown."""
        in_place = real.device.type == "cpu" and real.dtype == fake.dtype
        if real.layout == torch.strided and (in_place or _has_values(real)):
            storage = fake.untyped_storage()
            self._borrowed[storage._cdata] = storage
            with unset_fake_temporarily():
                self._values[fake] = _Value(real.detach().to("cpu", fake.dtype), given=True)

    def run(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an operator on tensors without values; return what it returns, and keep its values where all are known.

        A result whose size follows from values that are not known may have the one that it is meant to have.

        Raises
        ------
        DataDependentOutputException, DynamicOutputShapeException
            When the operator asks for values that are not known.
        """
        known = self._are_known(func, args, kwargs)
        given = known and any(self._values[one].given for one in _tensors((args, kwargs)) if one in self._values)
        try:
            out = func(*args, **kwargs)
        except ASKED:
            if not known:
                if (meant := assumed(func, args, kwargs)) is None:
                    raise
                self.decided[own_line(traceback.extract_stack())] = None
                return meant
            if given:
                self.decided[own_line(traceback.extract_stack())] = None
            return self._as_fake(self._computed(func, args, kwargs), given)
        if known and self._has_room(func, args, kwargs, out):
            # a device or a kernel that is not here, or a wrong value
            with contextlib.suppress(RuntimeError, IndexError, ValueError):
                for fake, real in zip(_tensors(out), _tensors(self._computed(func, args, kwargs)), strict=True):
                    self._values[fake] = _Value(real, given)
                return out
        self._forget(_written(func, args, kwargs))
        return out

    def _has_room(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> bool:
        """Return whether a result may be worked out, and count its FLOP and bytes; views of arguments have none."""
        storages = {tensor.untyped_storage()._cdata for tensor in _tensors((args, kwargs))}
        made = [tensor for tensor in _tensors(out) if tensor.untyped_storage()._cdata not in storages]
        size = sum(tensor.numel() * tensor.element_size() for tensor in made)
        counted = flop_registry.get(func.overloadpacket)
        flop = float(counted(*args, **kwargs, out_val=out)) if counted else 0.0
        if size > self._left_bytes or flop > self._left_flop or any(tensor.numel() > LARGEST for tensor in made):
            return False
        self._left_bytes, self._left_flop = self._left_bytes - size, self._left_flop - flop
        return True

    def _are_known(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Return whether what an operator returns follows from known values, and it changes none of the caller's."""
        if torch.Tag.nondeterministic_seeded in func.tags:
            return False
        known = all(
            tensor in self._values if isinstance(tensor, FakeTensor) else _has_values(tensor)
            for tensor in _tensors((args, kwargs))
        )
        return known and all(
            isinstance(tensor, FakeTensor) and tensor.untyped_storage()._cdata not in self._borrowed
            for tensor in _written(func, args, kwargs)
        )

    def _computed(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return what an operator returns for the known values of its arguments."""
        args, kwargs = tree_map_only(FakeTensor, lambda fake: self._values[fake].tensor, (tuple(args), dict(kwargs)))
        with unset_fake_temporarily():
            return func(*args, **kwargs)

    def _as_fake(self, computed: Any, given: bool) -> Any:
        """Return tensors without values for those of a result, whose values are kept."""

        def fake(real: torch.Tensor) -> torch.Tensor:
            made = torch.empty_strided(real.size(), real.stride(), dtype=real.dtype, device="cpu")
            self._values[made] = _Value(real, given)
            return made

        return tree_map_only(torch.Tensor, fake, computed)

    def _forget(self, written: Sequence[torch.Tensor]) -> None:
        """Forget the values of tensors that changed, and of all views of them."""
        changed = {tensor.untyped_storage()._cdata for tensor in written}
        if changed:
            for fake in [fake for fake in self._values if fake.untyped_storage()._cdata in changed]:
                del self._values[fake]


def _has_values(tensor: torch.Tensor) -> bool:
    return not tensor.is_meta and tensor.numel() <= LARGEST


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Return the tensors that an operator writes into."""
    return _tensors(
        [
            args[place] if place < len(args) else kwargs.get(one.name)
            for place, one in enumerate(func._schema.arguments)
            if one.alias_info is not None and one.alias_info.is_write
        ]
    )

"""What users say of a step or a load, counts and prompts, as arrays."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perfmodel.core.work import Number, check_shapes
from perfmodel.errors import UsageError
from perfmodel.serving.cost import Array

PLACE = "step"


@dataclass(frozen=True)
class StepInput:
    """The sequences and prompts of a step, or of an array of steps.

    Attributes
    ----------
    sequences, keys : decoding sequences, and keys of each.
    chunks : prompts: how many, new tokens of each, keys of each.
    rows : rows of logits; None for one of each sequence and prompt.
    shape : that the arrays have together.
    """

    sequences: Array
    keys: Array
    chunks: tuple[tuple[Array, Array, Array], ...]
    rows: Array | None
    shape: tuple[int, ...]

    @classmethod
    def of(cls, decode: Number, context: Number, prefill: object, rows: Number | None) -> StepInput:
        """Return what `perfmodel.serving.deployment.Deployment.step` is given, as arrays.

        Raises
        ------
        UsageError
            For a size that is no number, negative or not finite, prompts that are not three sizes each, and arrays that
            cannot be broadcast together.
        """
        named = arrays(PLACE, {"decode": decode, "context": context} | ({} if rows is None else {"rows": rows}))
        chunks = _prompts(prefill)
        listed = {f"prefill[{row}][{at}]": size for row, chunk in enumerate(chunks) for at, size in enumerate(chunk)}
        sizes = named | listed
        if any(np.any(~np.isfinite(size)) or np.any(size < 0) for size in sizes.values()):
            raise UsageError("a size is negative or not finite.", place=PLACE, remedy="Give counts from 0 on.")
        shape = common_shape(PLACE, sizes)
        return cls(named["decode"], named["context"], chunks, named.get("rows"), shape)

    @property
    def longest(self) -> float:
        """Keys of the longest sequence or prompt."""
        return max(float(np.max(size)) for size in (self.keys, *(keys for _, _, keys in self.chunks)))


def arrays(place: str, values: Mapping[str, object]) -> dict[str, Array]:
    """Return numbers and arrays by name, all as arrays.

    Raises
    ------
    UsageError
        For what is neither.
    """
    converted = {}
    for name, value in values.items():
        try:
            if value is None or np.asarray(value).dtype == bool:
                raise ValueError
            converted[name] = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            remedy = "Give a number, or an array of numbers."
            raise UsageError(f"{name}={reprlib.repr(value)} is no number.", place=place, remedy=remedy) from None
    return converted


def _prompts(prefill: object) -> tuple[tuple[Array, Array, Array], ...]:
    """Return the prompts of a step.

    Raises
    ------
    UsageError
        For anything but three sizes for each.
    """
    try:
        return tuple(
            (np.asarray(count, np.float64), np.asarray(new, np.float64), np.asarray(keys, np.float64))
            for count, new, keys in prefill  # type: ignore[attr-defined]
        )
    except (TypeError, ValueError):
        raise UsageError(
            f"prefill={reprlib.repr(prefill)} is no list of prompts.",
            place=PLACE,
            remedy="Write prefill=[(1, 512, 2048)] for one prompt of 512 new tokens that sees 2048 keys, those of the "
            "cache among them.",
        ) from None


def common_shape(place: str, named: Mapping[str, Array]) -> tuple[int, ...]:
    """Return the shape that arrays have together.

    Raises
    ------
    UsageError
        When there is none, or an array has no element.
    """
    shapes = {name: array.shape for name, array in named.items() if array.ndim}
    check_shapes(place, shapes)
    shape = np.broadcast_shapes(*shapes.values())
    if 0 in shape:
        empty = next(name for name, own in shapes.items() if 0 in own)
        raise UsageError(f"{empty} has no element.", place=place, remedy="Give a number, or an array of some.")
    return shape

"""What kind of layer a layer of a model is: kinds differ in what they compute and hold."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """Kind of a layer.

    Attributes
    ----------
    moe : it has experts, else a dense MLP.
    windowed : its attention has the model's window.
    encoder : it is one of an encoder.
    linear : it keeps a state, in place of keys unless it is ``joint``.
    bare : it has no MLP.
    joint : it attends to keys beside its state; both read one normed input, and what they give is summed.
    """

    moe: bool = False
    windowed: bool = False
    encoder: bool = False
    linear: bool = False
    bare: bool = False
    joint: bool = False

    @property
    def attends(self) -> bool:
        """Whether its queries attend to keys."""
        return self.joint or not self.linear

    @property
    def blocks(self) -> int:
        """Parts with a norm and a residual each: attention, a state or both, and an MLP."""
        return 1 if self.bare else 2


#: attention to all keys, and a dense MLP
DENSE = Kind()

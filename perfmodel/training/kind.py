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
    linear : it keeps a state in place of keys.
    """

    moe: bool = False
    windowed: bool = False
    encoder: bool = False
    linear: bool = False


#: attention to all keys, and a dense MLP
DENSE = Kind()

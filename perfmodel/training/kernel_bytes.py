"""What kernels that are not fused move where weights and activations have one dtype, without autocast between them."""

from __future__ import annotations

import msgspec

#: names of the widths: weights and activations in 16 bits, and in fp32
WIDTHS = ("bf16", "fp32")


class KernelBytes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What kernels read and write for an element of their output, forward and backward, in a dtype of their own [B].

    Attributes
    ----------
    norm_bytes, rms_norm_bytes, rotary_bytes, gelu_new_bytes : as those of a framework; None for as many elements as
        there.
    loss_bytes : what the loss moves for a logit, as that of a framework; None for as much as there.
    """

    norm_bytes: tuple[float, float] | None = None
    rms_norm_bytes: tuple[float, float] | None = None
    rotary_bytes: tuple[float, float] | None = None
    gelu_new_bytes: tuple[float, float] | None = None
    loss_bytes: float | None = None

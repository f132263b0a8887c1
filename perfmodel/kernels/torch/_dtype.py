"""The usual condition of a kernel of torch: that torch computes in the operator's dtype."""

from __future__ import annotations

from perfmodel.kernels.device import Device
from perfmodel.kernels.precision import unsupported_dtype
from perfmodel.operators import Operator


def supports_dtype(op: Operator, device: Device) -> str:
    """Return why torch kernels cannot run an operator in its dtype on a device, or an empty string."""
    return unsupported_dtype(device.kind, op.dtype)

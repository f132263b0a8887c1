"""Copies between host and device as a machine runs them: over a link, or within the one memory that both share."""

from __future__ import annotations

from typing import Any, cast

from perfmodel.core.hardware import Hardware
from perfmodel.core.work import Work
from perfmodel.operators.base import Operator
from perfmodel.operators.memcpy import Memcpy


def stays_within(op: Operator, hardware: Hardware) -> bool:
    """Return whether an operator is a copy between a host and a device that share one memory."""
    return op.op == Memcpy.op and hardware.main_memory.shared_with_host and cast(Memcpy, op).direction != "d2d"


def as_run(op: Operator, hardware: Hardware) -> Operator:
    """Return an operator as the machine runs it.

    A copy between host and device reads and writes the one memory where both share it (GB10, MI300A), and crosses no
    link; every other operator is run as it is stated.
    """
    return cast(Any, op).changed(direction="d2d") if stays_within(op, hardware) else op


def work_on(op: Operator, hardware: Hardware) -> Work:
    """Return the counted work of an operator on a machine."""
    return as_run(op, hardware).work() if op.op == Memcpy.op else op.work()

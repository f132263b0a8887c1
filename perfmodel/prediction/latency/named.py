"""Kernels that are named within a library, "torch/fa2": which operators know them, and what stands for the others."""

from __future__ import annotations

from dataclasses import replace

from perfmodel.core.hardware import Hardware
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.families import serving
from perfmodel.prediction.latency.nearest_tables import measured_libraries


def as_known(op: str, hardware: Hardware, conditions: Conditions) -> Conditions:
    """Return the conditions of a call without a kernel that no family of its operator tells from the library's others.

    >>> from perfmodel.hardware_catalog import hardware
    >>> [as_known(op, hardware("h100"), Conditions(library="torch/fa2")).library for op in ("attention", "gemm")]
    ['torch/fa2', 'torch']
    """
    library, _, kernel = conditions.library.partition("/")
    if not kernel or knows_kernel(op, hardware, conditions.library):
        return conditions
    return replace(conditions, library=library)


def knows_kernel(op: str, hardware: Hardware, library: str) -> bool:
    """Return whether a family of an operator, given by its name, knows a kernel that is named within a library."""
    kernel = library.partition("/")[2]
    return any(
        kernel in family.kernels or library in measured_libraries(family.name, hardware) for family in serving(op)
    )

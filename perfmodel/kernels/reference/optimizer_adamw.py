"""AdamW under its own name: the reference of `Optimizer`."""

from __future__ import annotations

from perfmodel.kernels.reference.optimizer import reference

__all__ = ["reference"]

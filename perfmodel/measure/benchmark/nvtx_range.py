"""NVTX ranges: a profiler shows which kernel is running. Without nvtx they do nothing."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any


@functools.cache
def _annotate() -> Callable[[str], Any] | None:
    try:
        import nvtx
    except ImportError:
        return None
    return lambda name: nvtx.annotate(name, domain="perfmodel")


def nvtx_range(name: str) -> contextlib.AbstractContextManager[Any]:
    """Return a context manager whose body a profiler shows under ``name``."""
    annotate = _annotate()
    return contextlib.nullcontext() if annotate is None else annotate(name)

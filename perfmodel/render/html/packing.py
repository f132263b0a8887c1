"""What all views of a page are: JSON objects, large arrays packed."""

from __future__ import annotations

import base64
import gzip
import sys
from typing import Any

import numpy as np

View = dict[str, Any]


def packed(content: bytes | np.ndarray[Any, Any]) -> str:
    """Return bytes as gzip in base64; equal ones give equal texts."""
    raw = content if isinstance(content, bytes) else content.tobytes()
    return base64.b64encode(gzip.compress(raw, compresslevel=6, mtime=0)).decode("ascii")


def number(value: Any) -> float | None:
    """Return a finite number of JSON as a float, None for anything else."""
    # integers of JSON may have hundreds of digits; a comparison takes them, and is false for NaN
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    return float(value) if known else None

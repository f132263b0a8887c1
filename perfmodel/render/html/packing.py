"""What all views of a page are: JSON objects, large arrays packed."""

from __future__ import annotations

import base64
import gzip
from typing import Any

import numpy as np

View = dict[str, Any]


def packed(content: bytes | np.ndarray[Any, Any]) -> str:
    """Return bytes as gzip in base64; equal ones give equal texts."""
    raw = content if isinstance(content, bytes) else content.tobytes()
    return base64.b64encode(gzip.compress(raw, compresslevel=6, mtime=0)).decode("ascii")

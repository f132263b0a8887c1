"""The compiler's workers are processes that end long after the tests: one thread compiles what they have."""

from __future__ import annotations

import os

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

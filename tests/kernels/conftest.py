"""Without a GPU, Triton's kernels run under its interpreter, which has to be chosen before triton is imported."""

from __future__ import annotations

import importlib.util
import os
import sys


def _has_gpu() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


if "triton" not in sys.modules and not _has_gpu():
    os.environ["TRITON_INTERPRET"] = "1"

"""AdamW under its own name: torch.optim.AdamW, as `Optimizer` runs it."""

from __future__ import annotations

import dataclasses

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.torch import optimizer

KERNELS = tuple(dataclasses.replace(kernel, operator="optimizer_adamw") for kernel in optimizer.KERNELS)

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(cpu_full="parameters=1048576", cuda_more="parameters=16777216")

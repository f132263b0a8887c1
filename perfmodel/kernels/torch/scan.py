"""Prefix sums of rows: torch.cumsum."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from perfmodel.kernels.cases import BenchmarkCases
from perfmodel.kernels.registry import Call, Kernel
from perfmodel.kernels.torch._dtype import supports_dtype
from perfmodel.operators.scan import Scan


def _library(op: Scan, inputs: Mapping[str, torch.Tensor]) -> Call:
    x = inputs["x"]
    return lambda: torch.cumsum(x, -1)


KERNELS = (Kernel("torch.cumsum", "scan", "torch", _library, supports_dtype),)

#: sizes for the presets of `perfmodel bench`
CASES = BenchmarkCases(
    cpu_quick="cols=1048576",
    cpu_full="cols=4096..4194304",
    cuda_quick="cols=16777216",
    cuda_targets="cols=268435456",
    cuda_more="cols=65536..4194304",
)

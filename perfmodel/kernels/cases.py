"""Sizes at which the presets of `perfmodel bench` run an operator: ``CASES`` in the module of its kernels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class BenchmarkCases:
    """The cases of one operator: one case a line, its dimensions as on the command line, ranges among them.

    ``{beyond}`` stands for a number of elements beyond every cache.

    Attributes
    ----------
    cpu_quick, cpu_full, cuda_quick : of the presets quick and full.
    cuda_targets : of the preset full, first: large tensors that show how near a kernel comes to its limit.
    cuda_sweep : of the preset full, then: many sizes from which `calibrate --from` fits constants. At each of them only
        the first kernel that can run is timed.
    cuda_more : of the preset full, last: further dtypes and shapes.
    """

    cpu_quick: str = ""
    cpu_full: str = ""
    cuda_quick: str = ""
    cuda_targets: str = ""
    cuda_sweep: str = ""
    cuda_more: str = ""

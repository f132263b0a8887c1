"""Choosing a kernel's block sizes by measurement, among the configurations that it declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import triton
import triton.testing

#: time for measuring each configuration, and for its warm-up [ms]
_REPEAT_MS, _WARM_UP_MS = 40, 10

Prune = Callable[..., list[triton.Config]]


def _bench(call: Callable[[], Any], quantiles: Sequence[float]) -> Any:
    return triton.testing.do_bench(call, warmup=_WARM_UP_MS, rep=_REPEAT_MS, quantiles=quantiles)


def tuned(
    configs: Sequence[triton.Config], key: Sequence[str], interpreted: Mapping[str, int], fits: Prune | None = None
) -> Callable[[Any], Any]:
    """Return ``triton.autotune`` over some configurations; in the interpreter, a single configuration.

    Parameters
    ----------
    configs : the search space.
    key : arguments of the kernel; it is tuned again when one of them changes.
    interpreted : the block sizes in the interpreter.
    fits : drops configurations that do not suit a shape, and keeps at least one.
    """
    space, prune = list(configs), {"early_config_prune": fits} if fits else None
    if triton.knobs.runtime.interpret:
        space, prune = [triton.Config(dict(interpreted), pre_hook=configs[0].pre_hook)], None
    decorate: Callable[[Any], Any] = triton.autotune(space, key=list(key), prune_configs_by=prune, do_bench=_bench)
    return decorate


def config(num_warps: int, num_stages: int, **sizes: int) -> triton.Config:
    """Return a configuration: block sizes, warps per block, and depth of the software pipeline."""
    return triton.Config(sizes, num_warps=num_warps, num_stages=num_stages)

"""How much the shapes of each library differ: the factor of rows with a known spread."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.accuracy.measured import MeasuredCalls
from perfmodel.core.vocabulary import CacheState, Timing

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from fit_spread import spreads

MACHINE, FAMILY = pm.hardware("h200-sxm-141gb"), "gemm_fp8"


def calls(library: str, spread: float, count: int) -> MeasuredCalls:
    """Products whose times lie so far from the prediction, on a logarithmic scale, as a normal distribution has it."""
    random = np.random.default_rng(3)
    m, n, k = 64.0 * np.ceil(2.0 ** random.uniform(0, 6, (3, count)))
    op = pm.Gemm(m=m, n=n, k=k, dtype="fp8")
    time = np.asarray(pm.predict(op, MACHINE, library=library).predicted_time_s)
    return MeasuredCalls(
        hardware=MACHINE.name,
        op=op,
        time_s=time * np.exp(spread * random.standard_normal(count)),
        timing=Timing.KERNEL,
        cache=CacheState.COLD,
        implementation=library,
        flags=np.full(count, ""),
        place="here",
        line=np.arange(count),
    )


def machine() -> pm.Hardware:
    """The machine with one interval for every regime, 10 % to both sides."""
    ends = dict.fromkeys(("launch", "mid", "large"), (1 / 1.1, 1.1))
    table = replace(MACHINE.latency[FAMILY], intervals=ends, spread={})
    return replace(MACHINE, latency=MappingProxyType({**MACHINE.latency, FAMILY: table}))


def test_the_ratio_of_two_spreads_is_found() -> None:
    found = spreads(FAMILY, machine(), [calls("sglang", 0.2, 2000), calls("trtllm", 0.05, 2000)])
    assert found["sglang"] / found["trtllm"] == pytest.approx(4.0, rel=0.05)
    assert found["trtllm"] < 1.0 < found["sglang"]


def test_libraries_alike_one_library_and_few_rows_have_none() -> None:
    alike = [calls(name, 0.1, 2000) for name in ("sglang", "trtllm")]
    assert spreads(FAMILY, machine(), alike) == {}
    assert spreads(FAMILY, machine(), alike[:1]) == {}
    few = spreads(FAMILY, machine(), [calls("sglang", 0.1, 2000), calls("trtllm", 0.4, 10)])
    assert "trtllm" not in few

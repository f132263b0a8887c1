"""Matrix products: agreement with measurements that were not fitted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.accuracy.fit import Group, fit, log_ratio
from perfmodel.hardware_catalog import hardware
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.latency.family import Family
from perfmodel.prediction.latency.gemm import GEMM_BF16, GEMM_FP8, GEMM_FP32
from perfmodel.prediction.latency.machine import Machine
from perfmodel.records.measurements import read_measurements

#: family, table, machine, dtype, bias, library, mean absolute error allowed on rows that were not fitted
MEASURED = [
    (GEMM_FP32, "neusight_gemm_fp32", "a100-pcie-40gb", "fp32", False, "torch", 0.055),
    (GEMM_FP32, "neusight_gemm_fp32", "a100-pcie-40gb", "fp32", True, "torch", 0.105),
    (GEMM_FP32, "neusight_gemm_fp32", "h100-sxm5-80gb", "fp32", False, "torch", 0.07),
    (GEMM_FP32, "neusight_gemm_fp32", "v100-pcie-32gb", "fp32", True, "torch", 0.10),
    (GEMM_BF16, "aic_gemm", "h100-sxm5-80gb", "bf16", False, "trtllm", 0.09),
    (GEMM_BF16, "aic_gemm", "a100-sxm4-80gb", "bf16", False, "sglang", 0.115),
    (GEMM_FP8, "aic_gemm", "h100-sxm5-80gb", "fp8", False, "trtllm", 0.06),
    (GEMM_FP8, "aic_gemm", "h100-sxm5-80gb", "fp8", False, "sglang", 0.115),
    (GEMM_FP8, "aic_gemm", "l40s", "fp8", False, "trtllm", 0.115),
]


@pytest.fixture(scope="module")
def tables(data_dir: Path) -> dict[str, object]:
    return {name: read_measurements(data_dir / "measurements" / f"{name}.csv.gz") for name in {m[1] for m in MEASURED}}


@pytest.mark.parametrize(("family", "table", "machine", "dtype", "bias", "library", "allowed"), MEASURED)
@pytest.mark.waiting
def test_agrees_with_measurements_that_were_not_fitted(
    tables: dict[str, object], family: Family, table: str, machine: str, dtype: str, bias: bool, library: str,
    allowed: float,
) -> None:  # fmt: skip
    calls = next(
        calls
        for calls in tables[table].calls  # type: ignore[attr-defined]
        if (calls.hardware, calls.op.dtype, calls.op.bias, calls.library) == (machine, dtype, bias, library)
    )
    spec = hardware(machine)
    of = Machine.of(spec, resolve_peak(calls.op, spec))
    order = np.random.default_rng(0).permutation(len(calls))
    train, test = (
        Group(part.op, of, part.conditions, part.time_s)
        for part in (calls.take(order[:150]), calls.take(order[150:650]))
    )
    ratio = np.expm1(log_ratio(family, fit(family, [train], steps=12).values, [test]))
    assert np.abs(ratio).mean() < allowed


@pytest.mark.parametrize("library", ["cublas", "torch", ""])
def test_batches_reach_no_more_than_the_only_kernel_of_a_library(library: str) -> None:
    """41 % of an RTX 5090's multiply-adds by cuBLAS, in batches in fp32 alone, and by its library alone."""
    share = hardware("rtx-5090").kernels.gemm_batched_share
    assert share < 0.5

    def reached(machine: str, library: str, dtype: str = "fp32", batch: int = 8) -> float:
        op = pm.Gemm(m=4096, n=4096, k=4096, batch=batch, dtype=dtype)
        peak = resolve_peak(op, hardware(machine))
        assert peak is not None
        return float(op.flop() / pm.predict(op, machine, library=library).predicted_time_s) / peak.flop_per_s

    assert 0.9 * share < reached("rtx-5090", library) < share
    assert reached("rtx-5090", library, batch=1) > 1.3 * share
    assert reached("rtx-5090", library, dtype="fp16") > 1.3 * share
    assert reached("rtx-5090", "cutlass") > share
    assert reached("rtx-pro-6000-96gb", library) > 1.3 * share

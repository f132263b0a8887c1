"""Means of kernels' constants: geometric, for each library, over the machines that have it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import fit_kernels

from perfmodel.accuracy.fit import Fit
from perfmodel.prediction.latency.families import family

MOE = family("moe_bf16")


def _fit(eta: float) -> Fit:
    values = {constant.name: constant.default for constant in MOE.all_constants}
    return Fit({**values, "eta": eta}, (), {}, 0.0, 0)


def test_families_of_kernels() -> None:
    assert fit_kernels.is_of_kernels(MOE)
    assert not fit_kernels.is_of_kernels(family("gemm_bf16"))


def test_the_mean_of_machines_is_geometric_and_by_library() -> None:
    found = fit_kernels.mean_fits(MOE, [{"sglang": _fit(0.4)}, {"sglang": _fit(0.9), "trtllm": _fit(0.6)}])
    assert found.values("sglang")["eta"] == pytest.approx(0.6)  # (0.4 0.9)^(1/2)
    assert found.values("trtllm")["eta"] == pytest.approx(0.6)
    assert found.shared.values["eta"] == pytest.approx(0.6)
    assert set(fit_kernels.own_constants(MOE, found.libraries)["sglang"]) == {c.name for c in MOE.constants}

"""Predictions as if a machine or a library had not been measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import nested
import numpy as np
from fit_family import fit_family
from nested import without

import perfmodel as pm
from perfmodel.accuracy.fit import Group
from perfmodel.core.vocabulary import Calibration
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.families import family
from perfmodel.prediction.latency.machine import Machine

H100 = "h100-sxm5-80gb"


class _NoTable:
    """A fit of softmax without the H100, which left no table at all."""

    family, machine, library, measured = "softmax", H100, "", frozenset[str]()

    def tables(self, others: object) -> dict[str, Any]:
        return {}


def test_a_machine_that_is_left_out_has_the_tables_that_its_fit_left() -> None:
    op, machine = pm.Softmax(rows=4096, cols=4096, dtype="fp32"), pm.hardware(H100)
    known = pm.predict(op, machine, library="torch")
    with without(H100, [_NoTable()], {H100: machine}) as altered:
        left = pm.predict(op, altered[H100], library="torch")
        other = pm.predict(pm.LayerNorm(rows=4096, cols=4096), altered[H100], library="torch")
    assert known.calibration == Calibration.CALIBRATED
    assert left.calibration == Calibration.NEVER_SEEN
    assert left.prediction_basis != known.prediction_basis
    assert "constants of this machine" in str(other.prediction_basis), "only softmax was left out"
    assert pm.predict(op, pm.hardware(H100), library="torch").predicted_time_s == known.predicted_time_s


def _decodes(machine: pm.Hardware, library: str, factor: float) -> Group:
    """Return decodes that take ``factor`` times what is predicted."""
    batch, keys = np.array([1, 8, 64, 8, 32, 128]), np.array([512, 512, 512, 4096, 2048, 8192])
    op = pm.Attention(batch=batch, heads=32, kv_heads=8, seq_q=1, seq_kv=keys, head_dim=128, dtype="bf16")
    conditions = Conditions(library=library)
    time_s = np.asarray(pm.predict(op, machine, library=library).predicted_time_s)
    return Group(op, Machine.of(machine, resolve_peak(op, machine)), conditions, factor * time_s)


def test_without_a_library_kernels_have_the_tables_that_would_ship() -> None:
    found, hardware = family("attention_decode"), {H100: pm.hardware(H100), "l40s": pm.hardware("l40s")}
    groups = {
        name: [_decodes(one, "vllm", factor)] for (name, one), factor in zip(hardware.items(), (1.2, 0.9), strict=True)
    }
    origins = dict.fromkeys(groups, "us")
    made = fit_family(found, groups, origins, hardware, surfaces=False)
    assert nested._own(found, groups, made, hardware, origins) == made.machines

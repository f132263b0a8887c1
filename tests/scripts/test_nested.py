"""Predictions as if a machine or a library had not been measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from nested import without

import perfmodel as pm
from perfmodel.core.vocabulary import Calibration

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

"""Training steps in fp32 on AMD's machines: nothing is fitted on them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import perfmodel as pm

SCRIPTS = Path(pm.__file__).parents[1] / "scripts"


def test_steps_of_another_vendor_lie_in_the_interval(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (data_dir / "e2e" / "neusight_e2e_fp32.csv").exists():
        pytest.skip("no measured whole models")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import whole_steps

    rows = list(whole_steps.steps(data_dir))
    for name in ("whole_steps", "whole_models", "beside"):
        sys.modules.pop(name, None)
    assert len(whole_steps.lines(rows)) == len(rows) == 10
    # the forward pass of GPT2-Large took three times as long as in inference, on both machines
    of = [row for row in rows if row.model != "GPT2-Large"]
    assert all(row.inside for row in of)
    assert np.mean([abs(row.error) for row in of]) < 0.08

"""Constants of torch's backends: a few rows move them from what they borrow, and change no other constant."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import fit_backends
from fit_shared import Shared
from fit_usual import FittedFamily

from perfmodel.accuracy.fit import Fit, Group
from perfmodel.accuracy.libraries import FittedConstants
from perfmodel.hardware_catalog import hardware
from perfmodel.operators.attention import Attention
from perfmodel.prediction.ceilings import resolve_peak
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.attention.prefill import PREFILL
from perfmodel.prediction.latency.constants import constants
from perfmodel.prediction.latency.machine import Machine
from perfmodel.prediction.latency.tables import default_tables

H100 = hardware("h100-sxm5-80gb")
LEVEL = "hopper-9.0"


def _rows(library: str, sizes: list[float], dtype: str = "bf16", slower: float = 1.0) -> Group:
    """Return prompts whose blocks take ``slower`` times the cycles that the borrowed constants say."""
    op = Attention(heads=32, seq_q=np.array(sizes), head_dim=128, causal=True, dtype=dtype)
    machine, conditions = Machine.of(H100, resolve_peak(op, H100)), Conditions(library=library)
    values = dict(constants(PREFILL, H100, "sglang", dtype).values)
    values["math"] /= slower
    return Group(op, machine, conditions, np.asarray(PREFILL.formula(op, machine, values, conditions).time_s))


def _made(*groups: Group) -> FittedFamily:
    table = default_tables(LEVEL)["attention_prefill"]
    shared = Shared(table, FittedConstants(Fit({}, (), {}, 0.0, 0)), (), 1)
    before = FittedFamily({LEVEL: shared}, {H100.name: H100.latency["attention_prefill"]})
    return fit_backends.with_backends(before, PREFILL, {H100.name: list(groups)}, {H100.name: H100})


@pytest.mark.parametrize(
    ("library", "dtype", "backend"),
    [("torch", "bf16", "torch/cudnn"), ("torch", "fp32", "torch/efficient"), ("torch/fa2", "bf16", "torch/fa2"),
     ("triton", "bf16", ""), ("sglang", "bf16", "")],
)  # fmt: skip
def test_rows_belong_to_the_backend_that_ran(library: str, dtype: str, backend: str) -> None:
    assert fit_backends.backend_of(PREFILL, H100, _rows(library, [512.0], dtype)) == backend


def test_rows_of_a_backend_give_it_constants_and_leave_the_others_alone() -> None:
    sizes = [1024.0, 2048.0, 4096.0, 8192.0, 16384.0]
    found = _made(_rows("torch/fa2", sizes, slower=1.3))
    before, after = default_tables(LEVEL)["attention_prefill"], found.shared[LEVEL].table
    assert {name for name in after.libraries if "/" in name} == {"torch/fa2"}
    borrowed = constants(PREFILL, H100, "sglang", "bf16").values["math"]
    assert after.libraries["torch/fa2"]["math"] == pytest.approx(borrowed / 1.3, rel=0.1)
    for name in ("sglang", "trtllm", "vllm"):
        assert after.libraries[name] == before.libraries[name]
    assert after.without_library == before.without_library
    assert "torch/fa2" in found.machines[H100.name].known_libraries
    assert not any("/" in name for name in found.machines[H100.name].libraries)


def test_too_few_rows_give_none() -> None:
    found = _made(_rows("torch", [1024.0] * (fit_backends.FEWEST_ROWS - 1)))
    assert not any("/" in name for name in found.shared[LEVEL].table.libraries)

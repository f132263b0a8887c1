"""Attention of a larger size takes no less time: more sequences, queries, keys, or a lesser machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

import perfmodel as pm
from perfmodel.operators.attention import Attention
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.attention.prefill import PREFILL
from perfmodel.prediction.latency.machine import Machine

Floats = NDArray[np.float64]

#: what rounding, and the exponent of a smooth maximum, leave
TOLERANCE = 1.02
#: what a smooth maximum adds to a wave of equal blocks, 2^(1/4)
WAVE = 1.19


@pytest.mark.parametrize("machine", ["l40s", "rtx-5000-ada", "h100-sxm5-80gb", "rtx-4090"])
@pytest.mark.parametrize("tokens", [129, 192, 256])
def test_flashattention_2_splits_no_keys_where_joining_them_takes_longer(machine: str, tokens: int) -> None:
    op = pm.Attention(heads=32, kv_heads=8, seq_q=tokens, head_dim=128, causal=True, dtype="bf16")
    one, two, longer = (
        float(pm.predict(call, machine, library="torch/fa2").predicted_time_s)
        for call in (op, op.changed(batch=2), op.changed(seq_q=tokens + 1, seq_kv=None))
    )
    assert one <= two
    assert one <= WAVE * longer < 2.0 * one


def test_joining_the_parts_of_split_keys_is_a_term_of_its_own() -> None:
    op = pm.Attention(heads=4, seq_q=2048, head_dim=128, dtype="bf16")
    few, many = (pm.predict(x, "h100", library="torch/fa2").predicted_terms_s for x in (op, op.changed(batch=64)))
    assert few["split-k"] > 0.0
    assert many.get("split-k", 0.0) == 0.0


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("instruction", ["mma.sync", "wgmma"])
@pytest.mark.parametrize("library", ["fa2", "fa3", "torch/fa2", "cudnn"])
def test_more_sms_of_one_kind_are_not_slower(instruction: str, library: str, causal: bool) -> None:
    """A machine of graphics memory: what two parts of the keys write takes long there, unless it lies in L2."""
    small = Machine(
        142.0, 2.5e9, 362e12, "tensor", "bf16", 8.64e11, 9e13, 1e8, np.inf, matrix_instruction=instruction
    )  # fmt: skip
    large = replace(small, sm_count=1.2 * small.sm_count, peak_flop_per_s=1.2 * small.peak_flop_per_s)
    values = {constant.name: constant.default for constant in PREFILL.all_constants}
    rng = np.random.default_rng(9)
    op = Attention(
        dtype="bf16",
        causal=causal,
        batch=rng.integers(1, 9, 1000).astype(float),
        heads=8.0 * rng.integers(1, 9, 1000),
        seq_q=rng.integers(1, 2000, 1000).astype(float),
        head_dim=128,
    )
    slow, fast = (
        np.asarray(PREFILL.formula(op, machine, values, Conditions(library=library)).time_s)
        for machine in (small, large)
    )
    assert np.all(fast <= TOLERANCE * slow)

"""Rope and look-ups, whose kernels take cycles for each element: the formulas by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.core.vocabulary import CacheState
from perfmodel.prediction.conditions import Conditions
from perfmodel.prediction.latency.by_element import BLOCK, FAMILIES
from perfmodel.prediction.latency.machine import Machine

#: 100 SMs of 1 GHz beside a memory that takes no time
FAST = Machine(100.0, 1e9, 1e13, "vector", "fp32", 1e13, 1e18, 1e7, np.inf)
LOOK_UP, ROTATION = FAMILIES
CONSTANTS = {
    "eta": 1.0,
    "launch": 2e-6,
    "feed": 1.0,
    "fill": 0.9,
    "left": 0.3,
    "issue": 2.0,
    "index": 0.3e-6,
}
COLD, WARM = Conditions(cache=CacheState.COLD), Conditions(cache=CacheState.WARM)


def _us(family, op, conditions=COLD, machine=FAST):  # type: ignore[no-untyped-def]
    return float(np.asarray(family.formula(op, machine, CONSTANTS, conditions).time_s)) * 1e6


def test_rope_runs_in_whole_rounds_of_a_block_a_token() -> None:
    def rope(tokens: int) -> pm.Rope:
        return pm.Rope(tokens=tokens, heads=5, kv_heads=1, head_dim=100, dtype="fp16")

    # a token: 2 cycles x (600 + 400) = 2 us of an SM; 1 to 100 tokens take one round, 101 two
    assert BLOCK == 400.0
    assert [_us(ROTATION, rope(tokens)) for tokens in (1, 100, 101, 200)] == pytest.approx([4.0, 4.0, 6.0, 6.0])
    # what lies in L2 arrives in half the cycles
    assert _us(ROTATION, rope(1), WARM) == pytest.approx(3.0, rel=1e-3)


def test_a_few_indices_are_looked_up_one_after_another() -> None:
    def look_up(tokens: int) -> pm.Embedding:
        return pm.Embedding(tokens=tokens, vocab=32000, dim=1000, dtype="fp16")

    # tokens x 1000 elements x 2 cycles / 100 SMs = 0.02 us each, and 0.3 us for each of up to 16 indices
    assert _us(LOOK_UP, look_up(1)) == pytest.approx(2.32)
    assert _us(LOOK_UP, look_up(16)) == pytest.approx(2.0 + 0.32 + 4.8)
    assert _us(LOOK_UP, look_up(17)) == pytest.approx(2.0 + 0.34)


def test_pytorch_gathers_whole_vectors_by_blocks_and_other_rows_by_element() -> None:
    now, before = Conditions(library="torch"), Conditions(library="torch", version="2.1")

    def took(dim: int, conditions: Conditions = now, tokens: int = 320_000) -> float:
        return _us(LOOK_UP, pm.Embedding(tokens=tokens, vocab=32000, dim=dim, dtype="fp16"), conditions)

    # 100 SMs hold 32 blocks of a warp each: 100 rounds of 2.3 us after a start of 2.4 us
    assert took(64) == pytest.approx(232.4)
    # rows of 2 KB take 128 threads, of which an SM of 2048 holds 16 blocks
    assert took(1024) == pytest.approx(462.4)
    # rows of 2002 B are no whole vectors: 0.85 cycles for each of 1001 elements
    assert took(1001) == pytest.approx(2.4 + 0.85e-5 * 1001 * 320_000, rel=1e-3)
    # an older release takes the 2 cycles of serving libraries' tables for both
    assert took(1024, before) == pytest.approx(2.0 + 2e-5 * 1024 * 320_000, rel=1e-3)
    # up to 16 indices follow one another
    assert took(1024, tokens=16) - took(1024, tokens=17) == pytest.approx(4.8, abs=0.1)


def test_scalars_and_arrays_agree_and_memory_limits_long_calls() -> None:
    sizes = [1, 16, 17, 5000]
    slow = replace(FAST, bandwidth_bytes_per_s=1e12)
    for family, make in (
        (ROTATION, lambda tokens: pm.Rope(tokens=tokens, heads=5, kv_heads=1, head_dim=100, dtype="fp16")),
        (LOOK_UP, lambda tokens: pm.Embedding(tokens=tokens, vocab=32000, dim=1000, dtype="fp16")),
    ):
        together = np.asarray(family.formula(make(np.array(sizes)), slow, CONSTANTS, COLD).time_s)
        assert together == pytest.approx([_us(family, make(size), machine=slow) / 1e6 for size in sizes])
        assert np.all(together >= np.asarray(make(np.array(sizes)).work().bytes) / 1e12)


def test_a_look_up_of_pytorch_starts_alike_before_and_since_it_gathers_by_vectors() -> None:
    op = pm.Embedding(tokens=141, vocab=30_522, dim=512, dtype="bf16")
    starts = {
        library: pm.predict(op, "h100", library=library).predicted_terms_s["launch"]
        for library in ("torch", "torch-2.5")
    }
    assert starts["torch-2.5"] == starts["torch"] == pytest.approx(2.4e-6)

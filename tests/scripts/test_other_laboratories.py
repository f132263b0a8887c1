"""Kernels and layers that another laboratory measured: nothing is fitted on them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import perfmodel as pm

SCRIPTS = Path(pm.__file__).parents[1] / "scripts"


@pytest.fixture
def laboratories(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import other_laboratories

    yield other_laboratories
    for name in ("other_laboratories", "liger_counts", "beside"):
        sys.modules.pop(name, None)


def test_rows_of_another_laboratory_lie_in_the_interval(data_dir: Path, laboratories) -> None:
    path = data_dir / "other_latency" / "liger_kernel_benchmarks.csv"
    if not path.exists():
        pytest.skip("no measurements of Liger-Kernel")
    rows = list(laboratories.judged(path))
    for library, allowed in (("torch", 0.13), ("liger", 0.12)):
        of = [row for row in rows if row.library == library]
        assert len(of) > 40
        assert np.mean([abs(row.error) for row in of]) < allowed
        assert np.mean([row.inside for row in of]) >= 0.75
    *_, last = laboratories.lines(rows)
    assert last[:4] == ["all", "all", "all", f"{len(rows)}"]
    assert "nothing fitted" in laboratories.sentence(rows)


def test_rope_of_transformers_moves_what_a_hand_count_says(laboratories) -> None:
    sizes = {"T": 4, "hidden_size": 64, "num_q_heads": 4, "num_kv_heads": 2, "dtype": "torch.bfloat16"}
    moved = sum(op.count * op.work().bytes for op in laboratories._rope(sizes))
    # q has 256 elements, k 128: two products (2 x 4 B), half a negation (2 B), a copy (4 B), a sum of two (6 B)
    assert moved == (256 + 128) * (8 + 2 + 4 + 6)

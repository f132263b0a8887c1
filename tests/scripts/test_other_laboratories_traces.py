"""Kernels of other people's traces and op graphs: nothing is fitted on them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import perfmodel as pm

SCRIPTS = Path(pm.__file__).parents[1] / "scripts"


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import other_laboratories_traces

    yield other_laboratories_traces
    for name in ("other_laboratories_traces", "other_laboratories", "liger_counts", "beside"):
        sys.modules.pop(name, None)


@pytest.mark.waiting
def test_runs_of_other_laboratories_against_their_predictions(data_dir: Path, traces) -> None:
    rows = list(traces.judged(data_dir))
    told: dict[str, tuple[float, float]] = {}
    for run in {row.library for row in rows}:
        of = [row for row in rows if row.library == run]
        told[run] = np.mean([abs(row.error) for row in of]), np.mean([row.inside for row in of])
    # what a change of the model may not spoil unnoticed: error at most, share inside the interval at least
    limits = {
        "ResNet-50, 0 loaders": (0.22, 0.85),
        "ResNet-50, 4 loaders": (0.22, 0.85),
        "Qwen1.5-0.5B, prefill": (0.16, 0.7),
    }
    for run, (error, inside) in limits.items():
        assert told[run][0] < error
        assert told[run][1] >= inside
    made = traces.lines(rows)
    assert all(len(line) == len(traces.HEAD) for line in made)
    assert made[-1][:4] == ["all", "all", "all", f"{sum(row.kernels for row in rows)}"]
    assert [line[2] for line in made if line[0] == "ResNet-50, 0 loaders"][:2] == ["conv2d backward", "conv2d"]


@pytest.mark.waiting
def test_what_is_left_out_says_why(data_dir: Path, traces) -> None:
    told = list(traces.left_out(data_dir))
    of = {
        run: sum(float(share.rstrip("%")) for name, _, _, share, _ in told if name == run)
        for run in {line[0] for line in told}
    }
    assert of["ResNet-50, 0 loaders"] < 3.0
    assert "Qwen1.5-0.5B, prefill" not in of
    assert of["Qwen3-8B, decode"] > 90.0  # a replayed graph has no shapes
    reasons = {reason for *_, reason in told}
    assert "waits for other ranks" in reasons
    assert all(reasons)


def test_the_products_of_an_op_graph_have_the_flop_of_one_layer_and_the_head(data_dir: Path, traces) -> None:
    path = data_dir / "profile_tables" / "neusight_opgraph_A100-PCIE-40GB_gpt2_large-inf-1024-4.csv"
    if not path.exists():
        pytest.skip("no op graphs of NeuSight")
    products = [op for op, _ in traces.graph(path) if op.op == "gemm"]
    # 4 x 1024 tokens of 1280: to q, k, v, back, up to 5120 and down, with biases; 4 x 20 heads of 64; 50257 words
    tokens, width = 4096, 1280
    linear = [
        (2 * width + 1) * 3 * width,
        (2 * width + 1) * width,
        (2 * width + 1) * 4 * width,
        (8 * width + 1) * width,
    ]
    heads = 2 * 2 * 80 * 1024 * 1024 * 64
    assert sum(op.flop() for op in products) == tokens * sum(linear) + heads + 2 * tokens * width * 50257

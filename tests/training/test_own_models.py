"""Steps of plain PyTorch with transformers, predicted beside what ``scripts/record_models.py`` measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import perfmodel as pm
from perfmodel.training.memory import training_memory
from perfmodel.workloads.model_config import ModelConfig
from perfmodel.workloads.shape import model_from_shape

RECORDS = sorted((Path(__file__).parents[2] / "examples" / "records").glob("*_models.jsonl"))
#: drawn from a seed, and in view of no constant
DRAWN = RECORDS[0].parent / "h200-sxm-141gb_2026-11-27_drawn.jsonl"
ATTENTION = {"sdpa": "cudnn", "eager": "eager-unfused"}
both = pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name.split("_")[0])


def measured(path: Path, what: str) -> list[tuple[ModelConfig, dict[str, Any]]]:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [(model_of(line["model"]), line) for line in lines if line["what"] == what]


def model_of(sizes: dict[str, int]) -> ModelConfig:
    return model_from_shape(" ".join(f"{name}={value}" for name, value in sizes.items()) + " tied=false")


@both
def test_steps_take_what_was_measured_and_hold_as_much_memory(path: Path) -> None:
    cluster = pm.Cluster(path.name.split("_")[0], gpus=1)
    inside = []
    for config, row in measured(path, "train"):
        plan = pm.TrainingPlan(
            batch=row["batch"],
            seq=row["seq"],
            micro_batch=row["batch"],
            framework="huggingface",
            attention=ATTENTION[row["attention"]],
        )
        step = pm.train(config, cluster, plan)
        assert step.time_s == pytest.approx(row["step_s"], rel=0.07)
        # one sequence of 2,048 tokens waits for the host: these two steps set its constant
        assert ("host" in step.terms_s) == (row["batch"] == 1)
        assert training_memory(config, cluster, plan).total_bytes == pytest.approx(row["peak_bytes"], rel=0.03)
        inside.append(step.low_s <= row["step_s"] <= step.high_s)
    assert sum(inside) >= 3


def test_models_that_were_drawn_at_random_are_inside_their_intervals() -> None:
    """Five of few tokens, whose host sets the pace: it was faster than the one that the constant was fitted on."""
    cluster = pm.Cluster(DRAWN.name.split("_")[0], gpus=1)
    steps = measured(DRAWN, "train")
    assert len(steps) == 5
    for config, row in steps:
        plan = pm.TrainingPlan(
            batch=row["batch"], seq=row["seq"], micro_batch=row["batch"], framework="huggingface", attention="cudnn"
        )
        step = pm.train(config, cluster, plan)
        assert step.low_s <= row["step_s"] <= step.high_s
        assert "host" in step.terms_s
        assert training_memory(config, cluster, plan).total_bytes == pytest.approx(row["peak_bytes"], rel=0.12)


def test_autocast_adds_the_casts_of_the_weights_in_16_bits_alone() -> None:
    config = model_of({"layers": 4, "hidden": 1024, "heads": 16, "kv_heads": 16, "ffn": 4096, "vocab": 32000})
    cluster, plan = pm.Cluster("h100", gpus=1), pm.TrainingPlan(batch=1, seq=512, framework="huggingface")
    fused = pm.train(config, cluster, plan.changed(framework="megatron-te")).terms_s
    eager = pm.train(config, cluster, plan).terms_s
    # a read in fp32 and a write in 16 bits of each weight, and its gradient back: 12 B at 3.35 TB/s at the very least
    assert eager["memory_bound"] - fused["memory_bound"] > 12 * 4 * config.layer_parameters / 3.352e12


@pytest.mark.parametrize("kind", ["rms", "ln"])
def test_norms_of_one_kernel_and_of_many_are_told_apart(kind: str) -> None:
    sizes = "layers=4 hidden=1024 heads=16 ffn=4096 vocab=32000 gated=false rotary=false learned_positions=true"
    config = model_from_shape(f"{sizes} positions=2048 norm={kind}")
    plan = pm.TrainingPlan(batch=4, seq=1024, framework="huggingface", dropout=False, attention="fa2")
    times = [
        pm.train(config, pm.Cluster("h100", gpus=1), plan.changed(framework=name)).terms_s["memory_bound"]
        for name in ("huggingface", "megatron-te")
    ]
    # LayerNorm is one kernel in PyTorch, RMSNorm of transformers eight forward
    assert times[0] / times[1] > (3.0 if kind == "rms" else 1.0)

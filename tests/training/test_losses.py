"""Losses that frameworks compute in chunks, outside of what they compile, or by modules that are written out."""

from __future__ import annotations

import pytest

import perfmodel as pm
from perfmodel.training.memory import training_memory
from perfmodel.workloads.catalog import named_model


def test_modules_of_a_course_write_out_what_torch_fuses() -> None:
    """CS336 in fp32: an own AdamW of 140 B a parameter for 84, scores 12 accesses for 6, a logit 132 B for 36."""
    cluster = pm.Cluster("h100", gpus=2)
    plan = pm.TrainingPlan(batch=8, micro_batch=4, seq=1024, zero=0, dtype="fp32", attention="eager-unfused")
    model = named_model("llama-3.2-1b")
    torch, course = (pm.train(model, cluster, plan.changed(framework=name)) for name in ("ddp-eager", "cs336"))
    assert course.terms_s["products"] == torch.terms_s["products"]
    assert course.terms_s["optimizer"] == pytest.approx(140 / 84 * torch.terms_s["optimizer"], rel=0.01)
    slow = 1.3 / 2.95e12  # of a copy of the H100 [s/B]
    logits = (132.0 - 36.0) * 4 * 1024 * model.vocab * slow
    assert course.terms_s["head"] - torch.terms_s["head"] == pytest.approx(logits, rel=0.15)
    # three more passes over scores forward and backward; gates and the gradients of projections move more, too
    scores = 2 * 3 * 8.0 * 16 * 4 * 32 * 1024**2 * slow
    assert course.terms_s["memory_bound"] - torch.terms_s["memory_bound"] > scores
    # gradients wait for the end of the backward pass: 4 B a parameter of both ranks over NVLink
    assert course.terms_s["data"] > 4.0 * model.parameters / 450e9 > torch.terms_s.get("data", 0.0)


def test_a_loss_outside_of_the_compiled_model_moves_its_logits_in_eager_mode() -> None:
    """36 B a logit in place of 8, and 84 B a parameter of the optimizer in place of 28; the model is the same."""
    cluster = pm.Cluster("a100", gpus=1)
    plan = pm.TrainingPlan(batch=64, micro_batch=64, seq=512, zero=0, framework="ddp-compile")
    model = named_model("gpt2")
    inside, outside = (
        pm.train(model, cluster, plan.changed(framework=f"ddp-compile{part}")) for part in ("", "-model")
    )
    for term in ("products", "attention", "memory_bound"):
        assert outside.terms_s[term] == inside.terms_s[term]
    added = 28.0 * 64 * 512 * model.vocab / 2.0e12
    assert outside.terms_s["head"] - inside.terms_s["head"] == pytest.approx(1.3 * added, rel=0.2)
    assert outside.terms_s["optimizer"] == pytest.approx(3.0 * inside.terms_s["optimizer"], rel=0.05)
    used = [training_memory(model, cluster, step.plan).peak.parts["logits"] for step in (inside, outside)]
    assert used[1] == pytest.approx(14.0 / 4.0 * used[0])


def test_trl_keeps_no_logits_of_a_million_tokens() -> None:
    """huggingface/trl, long_context_training.md: Qwen3-8B on 8 H100 of 80 GB at 1,048,576 tokens, 380 s and 56.2 GB."""
    million = pm.TrainingPlan(
        batch=1, seq=2**20, cp=8, zero=3, recompute="full", attention="cudnn", optimizer="adam-bf16",
        offload="activations", framework="trl-fsdp2",
    )  # fmt: skip
    eight = pm.Cluster("h100", gpus=8)
    used = {
        name: training_memory(named_model("qwen3-8b"), eight, million.changed(framework=name))
        for name in ("fsdp2-eager", "trl-fsdp2")
    }
    logits = 14.0 * 2**17 * 151936
    assert used["fsdp2-eager"].peak.used_bytes > logits > 3.0 * used["trl-fsdp2"].peak.used_bytes
    assert used["trl-fsdp2"].fits
    found = pm.train("qwen3-8b", eight, million)
    assert found.low_s < 380 < found.high_s
    # checkpoints wait for their copies both ways, of 35 layers of 8,192 B a token, at 50 GB/s
    assert found.terms_s["offload"] == pytest.approx(2 * 34 * 2**17 * 8192 / 50.4e9, rel=0.05)

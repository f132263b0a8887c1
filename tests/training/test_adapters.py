"""Adapters: parameters by hand, memory and time against training every weight."""

from __future__ import annotations

import pytest

from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.training.adapters import adapter_parameters
from perfmodel.training.memory import training_memory
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.step import train
from perfmodel.workloads.catalog import named_model

LLAMA = named_model("llama-2-7b")
CLUSTER = Cluster.of(hardware("h100-sxm5-80gb"), 8)
PLAN = TrainingPlan(batch=64, seq=2048, framework="megatron-te")


def test_parameters_by_hand():
    # rank 16 beside q, k, v, o of 4096 x 4096 and gate, up, down of 11008 x 4096, in 32 layers
    layer = 4 * 16 * (4096 + 4096) + 3 * 16 * (11008 + 4096)
    assert adapter_parameters(LLAMA, 16) == 32 * layer == 39_976_960


def test_frozen_weights_have_neither_gradients_nor_moments():
    whole, frozen = (training_memory(LLAMA, CLUSTER, PLAN.changed(lora=rank)).peak.parts for rank in (0, 16))
    share = adapter_parameters(LLAMA, 16) / LLAMA.parameters
    assert frozen["weights"] == pytest.approx(2 * LLAMA.parameters)
    assert frozen["gradients"] == pytest.approx(whole["gradients"] * share)
    assert frozen["optimizer"] == pytest.approx(whole["optimizer"] * share)


def test_a_step_has_no_products_of_weight_gradients():
    whole, frozen = (train(LLAMA, CLUSTER, PLAN.changed(lora=rank)) for rank in (0, 16))
    assert 0.6 * whole.terms_s["products"] < frozen.terms_s["products"] < 0.7 * whole.terms_s["products"]
    assert frozen.terms_s["memory_bound"] > whole.terms_s["memory_bound"]
    assert frozen.terms_s["optimizer"] < 0.01 * whole.terms_s["optimizer"] + 1e-4
    assert frozen.time_s < whole.time_s
    # 4 N instead of 6 N, and the same attention
    assert frozen.flop < 0.7 * whole.flop


def test_a_larger_rank_costs_more():
    small, large = (training_memory(LLAMA, CLUSTER, PLAN.changed(lora=rank)).low_bytes for rank in (8, 256))
    assert large > small


def test_16_bit_adam_needs_8_bytes_a_parameter():
    parts = training_memory(LLAMA, CLUSTER, PLAN.changed(optimizer="adam-bf16", zero=0)).peak.parts
    # weight 2, gradient 2, moments 2 + 2
    state = sum(parts[name] for name in ("weights", "gradients", "optimizer"))
    assert state == pytest.approx(8 * LLAMA.parameters, rel=1e-6)


def test_a_rank_below_0_is_refused():
    with pytest.raises(UsageError, match="lora"):
        PLAN.changed(lora=-1)


def test_a_rank_beyond_the_matrices_is_refused():
    with pytest.raises(UsageError, match="lora = 5000 is more than"):
        train(LLAMA, CLUSTER, PLAN.changed(lora=5000))

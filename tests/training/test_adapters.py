"""Adapters: parameters by hand, memory and time against training every weight."""

from __future__ import annotations

import pytest

from perfmodel.cluster.cluster import Cluster
from perfmodel.cluster.collectives import Group, best_exchange_time
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.training.adapters import adapted, adapter_bytes, adapter_parameters, adapters_of
from perfmodel.training.constants import constants
from perfmodel.training.kernels import stream_time
from perfmodel.training.memory import training_memory
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.step import train
from perfmodel.workloads.catalog import named_model
from perfmodel.workloads.layer_kinds import DENSE

LLAMA = named_model("llama-2-7b")
CLUSTER = Cluster.of(hardware("h100-sxm5-80gb"), 8)
PLAN = TrainingPlan(batch=64, seq=2048, framework="megatron-te")


def test_parameters_by_hand():
    # rank 16 beside q, k, v, o of 4096 x 4096 and gate, up, down of 11008 x 4096, in 32 layers
    layer = 4 * 16 * (4096 + 4096) + 3 * 16 * (11008 + 4096)
    assert adapter_parameters(LLAMA, 16) == 32 * layer == 39_976_960


@pytest.mark.parametrize(("targets", "separate", "joined"), [("all", 7, 4), ("attention", 4, 2), ("qkv", 3, 1)])
def test_joined_matrices_share_an_adapter(targets, separate, joined):
    """Megatron-Core has linear_qkv, linear_proj, linear_fc1 and linear_fc2."""
    matrices = adapted(LLAMA, DENSE, targets)
    assert (adapters_of(matrices, joined=False), adapters_of(matrices, joined=True)) == (separate, joined)


def test_frozen_weights_have_neither_gradients_nor_moments():
    whole, frozen = (training_memory(LLAMA, CLUSTER, PLAN.changed(lora=rank)).peak.parts for rank in (0, 16))
    share = adapter_parameters(LLAMA, 16) / LLAMA.parameters
    assert frozen["weights"] == pytest.approx(2 * (1 + share) * LLAMA.parameters)
    assert frozen["gradients"] == pytest.approx(whole["gradients"] * share)
    assert frozen["optimizer"] == pytest.approx(whole["optimizer"] * share)


@pytest.mark.parametrize(
    "plan", [{"ep": 8}, {"pp": 2}, {"tp": 2, "ep": 2, "etp": 2}, {"pp": 4, "stages": (11, 8, 8, 5)}]
)
def test_gradients_are_those_of_the_adapters_on_each_gpu(plan):
    """Attention of all layers has adapters, and no expert: each pipeline stage has those of its own layers."""
    mixtral = named_model("mixtral-8x7b")
    each = 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024))  # q, o, k, v
    memory = training_memory(mixtral, CLUSTER, PLAN.changed(lora=16, zero=0, **plan))
    layers = plan.get("stages") or (32 // plan.get("pp", 1),) * plan.get("pp", 1)
    for stage, count in zip(memory.stages, layers, strict=True):
        held = count * each / plan.get("tp", 1)
        assert stage.parts["gradients"] == 4.0 * held
        assert stage.parts["optimizer"] == 12.0 * held


@pytest.mark.parametrize("ep", [1, 8])
def test_ranks_exchange_the_gradients_of_all_adapters_beside_experts(ep):
    """Megatron-LM of 2021 hides nothing of the all-reduce of all 16 ranks, whichever experts they have.

    It also flattens, divides and copies back each gradient, in fp32 24 B.
    """
    mixtral, cluster = named_model("mixtral-8x7b"), Cluster.of(hardware("h100-sxm5-80gb"), 16, gpus_per_node=8)
    plan = PLAN.changed(framework="megatron-2021", grad_dtype="fp32", lora=16, zero=0, ep=ep)
    adapters = 4.0 * adapter_parameters(mixtral, 16)
    alone = best_exchange_time(Group(cluster, 16), "all_reduce", adapters)
    packing = constants().memory_bound["counted"] * stream_time(cluster.hardware, 6.0 * adapters)
    assert train(mixtral, cluster, plan, checked=False).terms_s["data"] == pytest.approx(alone + packing)


def test_a_step_has_no_products_of_weight_gradients():
    """With sequences enough that the GPU does not wait for its host, to which adapters give more to do."""
    whole, frozen = (train(LLAMA, CLUSTER, PLAN.changed(lora=rank, micro_batch=4)) for rank in (0, 16))
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


ONE = Cluster.of(hardware("rtx-4090"), 1)
QLORA = TrainingPlan(batch=1, seq=512, framework="huggingface", lora=64, frozen_dtype="nf4", recompute="full")


def test_frozen_weights_of_4_bits_by_hand():
    """8 bits of scale for 64 numbers and 32 bits for 256 scales are 0.127 bits a number (QLoRA, section 3)."""
    outer = 2 * LLAMA.vocab * LLAMA.hidden + LLAMA.hidden
    layers = LLAMA.parameters - outer
    held = training_memory(LLAMA, ONE, QLORA).peak.parts["weights"]
    adapters = adapter_parameters(LLAMA, QLORA.lora)
    assert held == pytest.approx(2.0 * (outer + adapters) + (4.0 + 0.127) / 8.0 * layers, rel=1e-3)
    assert held < 0.31 * training_memory(LLAMA, ONE, QLORA.changed(frozen_dtype="")).peak.parts["weights"]


def test_each_pass_writes_the_frozen_weights_out():
    """Three passes of full recomputation read 0.516 B and write 2 B a weight, all beside the same products."""
    large = QLORA.changed(batch=8, micro_batch=8)
    wide, narrow = (train(LLAMA, ONE, large.changed(frozen_dtype=name)) for name in ("", "nf4"))
    assert narrow.terms_s["products"] == wide.terms_s["products"]
    layers = 6.476e9
    least = 2.516 * layers / 1.008e12
    more = narrow.terms_s["memory_bound"] - wide.terms_s["memory_bound"]
    assert 2.0 * least < more < 3.0 * least
    assert narrow.terms_s["recompute"] - wide.terms_s["recompute"] > least
    assert narrow.flop == wide.flop


def test_ranks_gather_frozen_weights_in_their_4_bits():
    two = Cluster.of(hardware("rtx-4090"), 2)
    plan = QLORA.changed(batch=2, zero=3)
    wide, narrow = (train(LLAMA, two, plan.changed(frozen_dtype=name)).terms_s["data"] for name in ("", "nf4"))
    assert narrow < 0.5 * wide
    parts = [training_memory(LLAMA, two, plan.changed(frozen_dtype=name)).peak.parts for name in ("", "nf4")]
    assert parts[1]["gathered"] < parts[0]["gathered"]


def test_frozen_weights_need_adapters_and_16_bits():
    with pytest.raises(UsageError, match="frozen_dtype nf4 is of the weights beside adapters"):
        train(LLAMA, ONE, QLORA.changed(lora=0, frozen_dtype="nf4"))
    with pytest.raises(UsageError, match="written out in 16 bits, not in fp32"):
        train(LLAMA, ONE, QLORA.changed(dtype="fp32"))
    with pytest.raises(UsageError, match="nf3"):
        QLORA.changed(frozen_dtype="nf3")


def test_targets_by_hand():
    """Rank 16 beside matrices of 8192 x 8192, keys and values of 1024 x 8192, and three of 28672 x 8192."""
    llama = named_model("llama-3-70b")
    queries, keys, mlp = 16 * 2 * 8192, 16 * (8192 + 1024), 3 * 16 * (8192 + 28672)
    layers = {
        "qv": queries + keys,
        "qkv": queries + 2 * keys,
        "attention": 2 * queries + 2 * keys,
        "all": 2 * queries + 2 * keys + mlp,
    }
    assert {name: adapter_parameters(llama, 16, name) for name in layers} == {k: 80 * v for k, v in layers.items()}


def test_a_fused_matrix_has_an_adapter_for_all_of_its_parts():
    """DeepSeek-V3 (MLA) has one matrix for keys and values of all heads, and one for their compressed vector."""
    names = {
        targets: {linear.name for linear in adapted(named_model("deepseek-v3"), DENSE, targets)}
        for targets in ("qv", "qkv")
    }
    assert {"query_up", "key_value_up"} <= names["qv"] == names["qkv"]
    assert "output" not in names["qkv"]


def test_more_matrices_with_adapters_take_longer_and_more_memory():
    plans = [PLAN.changed(lora=16, lora_targets=name) for name in ("qv", "qkv", "attention", "all")]
    times = [train(LLAMA, CLUSTER, plan).time_s for plan in plans]
    assert times == sorted(set(times))
    memory = [training_memory(LLAMA, CLUSTER, plan).peak.parts["optimizer"] for plan in plans]
    assert memory == sorted(set(memory))


def test_what_adapters_move_by_hand():
    """One matrix of 4096 x 4096 of Llama-2 7B has 2 B an element: 6 passes over its output, and 1 over its input."""
    forward, backward = adapter_bytes(LLAMA, DENSE, 1000.0, 1, 2.0, targets="attention")
    assert forward == 4 * 1000 * 4096 * 2 * (1 + 6)
    assert backward == 4 * 1000 * 4096 * 2 * (5 + 4)


@pytest.mark.parametrize(
    ("machine", "dtype"), [("h100-sxm5-80gb", "fp8"), ("b200-sxm-180gb", "mxfp8"), ("b200-sxm-180gb", "nvfp4")]
)
def test_frozen_weights_need_no_second_copy_of_what_they_multiply(machine, dtype):
    """The product of a weight's gradient alone reads the transposed copy of an 8-bit input."""
    cluster = Cluster.of(hardware(machine), 8)
    whole, frozen = (train(LLAMA, cluster, PLAN.changed(dtype=dtype, lora=rank)).terms_s["casts"] for rank in (0, 16))
    copies = {"fp8": (4.0, 3.0), "mxfp8": (4.0, 3.0), "nvfp4": (5.9, 4.5)}[dtype]
    assert frozen / whole == pytest.approx(copies[1] / copies[0], rel=0.02)


def test_targets_go_with_the_adapters_and_unknown_ones_are_refused():
    assert TrainingPlan(batch=8, seq=128, lora=8, lora_targets="qkv").changed(lora=0).lora_targets == "all"
    with pytest.raises(UsageError, match="lora_targets"):
        TrainingPlan(batch=8, seq=128, lora=8, lora_targets="mlp-only")

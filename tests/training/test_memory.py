"""Memory of a training step: bytes a parameter by hand, the moment of the peak, and what sharing out must do."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.training.adapters import adapter_parameters
from perfmodel.training.checks import check_sizes
from perfmodel.training.held import held_parameters
from perfmodel.training.memory import cannot_fit, fitting_memory, training_memory
from perfmodel.training.memory_result import MOMENTS, PARTS
from perfmodel.training.micro_batch import embedding_passes, head_passes, layer_passes, looked_up
from perfmodel.training.optimizer_state import state_bytes
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.setup import setup_of
from perfmodel.training.stages import gpu_layers
from perfmodel.training.update import stage_gpu
from perfmodel.workloads.catalog import named_model

H100 = hardware("h100-sxm5-80gb")
LLAMA, MIXTRAL, DEEPSEEK = (named_model(name) for name in ("llama-3.1-8b", "mixtral-8x7b", "deepseek-v3"))
STATE = ("weights", "gradients", "optimizer")


def state(config, plan, gpus=1):
    memory = training_memory(config, Cluster.of(H100, gpus, nic="400Gb/s"), plan)
    return sum(memory.stages[0].parts[name] for name in STATE)


def small(**values):
    return TrainingPlan(**({"batch": 1, "seq": 128} | values))


@pytest.mark.parametrize(
    ("framework", "dtype", "optimizer", "bytes_"),
    [
        ("megatron-te", "bf16", "adam", 18),  # 2 + 4 + 4 + 4 + 4
        ("megatron-2021", "fp16", "adam", 16),  # 2 + 2 + 4 + 4 + 4: 16-bit gradients
        ("deepspeed", "bf16", "adam", 16),
        ("nemo", "bf16", "adam", 14),  # 2 + 2 + 2 (the rest of the master weight) + 8
        *((name, "fp32", "adam", 16) for name in ("huggingface", "nemo", "megatron-bridge", "torchtune")),  # 4 + 4 + 8
        ("megatron-te", "bf16", "sgd", 14),  # one moment
        ("megatron-te", "bf16", "none", 6),
    ],
)
def test_bytes_a_parameter(framework, dtype, optimizer, bytes_):
    plan = small(framework=framework, dtype=dtype, optimizer=optimizer)
    assert state(LLAMA, plan) == pytest.approx(bytes_ * LLAMA.parameters, rel=1e-6)


def test_optimizers_by_hand():
    assert state_bytes("adam", 4.0, 4.0, 0.1) == 12
    # two moments of one byte, with an fp32 scale for 256
    assert state_bytes("adam-8bit", 4.0, 4.0, 0.1) == 4 + 2 + 8 / 256
    assert state_bytes("muon", 4.0, 4.0, 0.1) == pytest.approx(4 + 4 * (1 + 0.1))
    assert state_bytes("none", 4.0, 4.0, 0.1) == 0


@pytest.mark.parametrize(
    ("config", "sizes"), [(LLAMA, {"pp": 4}), (LLAMA, {"pp": 2, "zero": 1}), (MIXTRAL, {"ep": 8, "zero": 1})]
)
def test_muon_keeps_two_moments_of_the_embedding_and_the_head_of_a_stage(config, sizes):
    """Stages without them have one moment of everything. Where experts are not shared out, the embedding may be."""
    cluster = Cluster.of(H100, 8)
    plan = small(**{"framework": "megatron-te", "optimizer": "muon", "batch": 8, "zero": 0, **sizes})
    stages = training_memory(config, cluster, plan).stages
    shards = plan.dp(8) if plan.zero else 1
    for stage, held in zip(stages, held_parameters(config, cluster, plan), strict=True):
        kept = 8 * held.dense / shards + 8 * held.experts + 12 * held.outer / shards
        assert stage.parts["optimizer"] == pytest.approx(kept, rel=1e-9)


def update_bytes(**values):
    """Return what one GPU holds during the update [B]; a communication buffer of one rank is none."""
    plan = small(framework="huggingface", **values)
    return training_memory(LLAMA, Cluster.of(H100, 1), plan).stages[0].by_moment["update"]


@pytest.mark.parametrize(
    ("optimizer", "bytes_"),
    [("adam", 16 + 4), ("adam-bf16", 2 + 2 + 4 + 2), ("adam-8bit", 8 + 2 + 8 / 256), ("sgd", 12), ("none", 8)],
)
def test_only_adam_has_roots_of_its_second_moments(optimizer, bytes_):
    dtype = "bf16" if optimizer == "adam-bf16" else "fp32"
    assert update_bytes(dtype=dtype, optimizer=optimizer) == pytest.approx(bytes_ * LLAMA.parameters, rel=1e-6)


def test_adapters_have_roots_of_what_is_trained_only():
    trained = adapter_parameters(LLAMA, 16)
    # frozen weights in 16 bits, and of the adapters weights, gradients, moments and roots
    assert update_bytes(lora=16) == pytest.approx(2 * LLAMA.parameters + (2 + 4 + 8 + 4) * trained, rel=1e-6)


@pytest.mark.parametrize(("zero", "bytes_"), [(0, 18.0), (1, 6 + 12 / 8), (2, 2 + 16 / 8), (3, 18 / 8)])
def test_zero_shares_out_optimizer_then_gradients_then_weights(zero, bytes_):
    plan = small(framework="megatron-te", zero=zero, batch=8)
    assert state(LLAMA, plan, gpus=8) == pytest.approx(bytes_ * LLAMA.parameters, rel=1e-6)


def test_expert_parallel_ranks_share_out_the_experts_only():
    plan = small(framework="megatron-te", batch=8, ep=8)
    held = held_parameters(MIXTRAL, Cluster.of(H100, 8), plan)[0]
    assert held.experts == 32 * MIXTRAL.expert_parameters
    assert held.total == MIXTRAL.parameters - 32 * 7 * MIXTRAL.expert_parameters


def test_stages_of_a_pipeline_hold_all_parameters_once():
    plan = small(framework="megatron-te", batch=16, pp=8, tp=2)
    held = held_parameters(LLAMA, Cluster.of(H100, 16, nic="400Gb/s"), plan)
    norms = 2 * LLAMA.layers * LLAMA.norm_parameters + LLAMA.outer_norm_parameters
    # norms are whole on each tensor parallel rank
    assert sum(part.total for part in held) == pytest.approx((LLAMA.parameters + norms) / 2)


def tensor_parallel(config, tp=8):
    """Return the setup of a small step with tensor parallelism, and what its only stage holds."""
    cluster, plan = Cluster.of(H100, tp), small(tp=tp)
    return setup_of(config, cluster, plan), held_parameters(config, cluster, plan)[0]


@pytest.mark.parametrize(
    "name", ["deepseek-v2-lite", "deepseek-v3", "kimi-k2", "nemotron-3-super-120b-a12b", "qwen3-30b-a3b", "gemma-2b"]
)
def test_memory_and_time_count_the_same_parameters_with_tensor_parallelism(name):
    """Down-projections, routers, ways to latent experts, and keys of few heads are whole on each rank."""
    setup, held = tensor_parallel(named_model(name))
    layers = {kind: layer_passes(setup, kind) for kind in gpu_layers(setup.config, setup.plan)[0]}
    outer = [embedding_passes(setup, looked_up(setup, 0)), head_passes(setup)]
    time = stage_gpu(setup, gpu_layers(setup.config, setup.plan)[0], layers, outer)
    assert held.dense + held.outer == pytest.approx(time.parameters, rel=0.01)
    assert held.experts == pytest.approx(time.expert_parameters, rel=0.01)


def test_tensor_parallel_ranks_share_out_all_matrices_of_a_dense_model_and_no_norms():
    setup, held = tensor_parallel(LLAMA)
    norms = 2 * LLAMA.norm_parameters
    assert held.dense == LLAMA.layers * ((LLAMA.dense_layer_parameters - norms) / 8 + norms)
    assert held.total == pytest.approx(setup.padded.parameters / 8, rel=1e-3)


def test_each_tensor_parallel_rank_holds_the_whole_router_and_copies_of_key_heads():
    config, tp = named_model("qwen3-30b-a3b"), 8
    _, held = tensor_parallel(config, tp)
    copied = 2 * config.hidden * config.head_dim * (1 - config.kv_heads / tp)
    whole = config.experts * config.hidden + 2 * config.norm_parameters
    _, alone = tensor_parallel(config, 1)
    expected = alone.dense / tp + config.layers * (copied + whole * (1 - 1 / tp))
    assert held.dense == pytest.approx(expected, rel=1e-3)  # which leaves norms of queries and keys


def test_heads_of_states_that_ranks_do_not_divide_are_shared_out_evenly():
    config = named_model("olmo-hybrid-7b")  # 30 heads
    _, held = tensor_parallel(config, 8)
    assert 8 * held.dense >= tensor_parallel(config, 1)[1].dense


@pytest.mark.parametrize("name", ["bert-large", "gemma-3-1b", "gpt2"])
def test_the_last_stage_holds_a_copy_of_the_tied_embedding_beside_its_own_head(name):
    """BERT's head transforms the hidden state first, and has a bias for each token."""
    config = named_model(name)
    whole, halves = (
        held_parameters(config, Cluster.of(H100, pp), small(framework="huggingface", batch=2, pp=pp)) for pp in (1, 2)
    )
    assert [part.total for part in whole] == [config.parameters]
    assert sum(part.total for part in halves) == config.parameters + config.vocab * config.embedding_dim


def test_the_loss_sets_the_peak_of_a_small_model_with_a_large_vocabulary():
    plan = small(framework="fsdp2-compile", zero=3, batch=16, seq=8192, micro_batch=2, recompute="full")
    memory = training_memory(LLAMA, Cluster.of(H100, 8), plan)
    assert memory.peak.moment == "loss"
    # 16-bit logits, fp32 copy, log-softmax and gradient: 14 B a logit
    assert memory.peak.parts["logits"] == 14 * 2 * 8192 * LLAMA.vocab


def test_the_first_stage_keeps_p_micro_batches_and_the_last_one():
    plan = small(framework="megatron-te", batch=32, seq=4096, pp=4)
    stages = training_memory(LLAMA, Cluster.of(H100, 4), plan).stages
    last = stages[-1].parts["activations"]
    assert [round(stage.parts["activations"] / last) for stage in stages] == [4, 3, 2, 1]
    # interleaved: (1 + (p - 1) / (p v)) of all layers, here 1 + 3 / 8, where 1F1B has 1
    halves = training_memory(LLAMA, Cluster.of(H100, 4), plan.changed(vp=2)).stages
    assert halves[0].parts["activations"] / stages[0].parts["activations"] == pytest.approx(1 + 3 / 8)


def test_published_memory_of_torchtitan(data_dir):
    """Eight open rows of a table that prints it; nothing of the formulas is fitted to them."""
    from perfmodel.accuracy.run_table import read_run_table
    from perfmodel.training.published import read_run

    errors = []
    for run in read_run_table(data_dir / "e2e_training" / "torchtitan_h100.csv").runs:
        measured = run.number("memory_gib")
        if measured > 0:
            published = read_run(run, hardware)
            memory = training_memory(published.config, published.cluster, published.plan)
            errors.append(abs(memory.total_bytes / 2**30 / measured - 1.0))
    assert len(errors) == 8
    assert sum(errors) / len(errors) < 0.05
    assert max(errors) < 0.12


PLANS = {
    "tp": st.sampled_from((1, 2, 8)),
    "pp": st.sampled_from((1, 2, 4)),
    "zero": st.integers(0, 3),
    "micro_batch": st.sampled_from((1, 2)),
    "recompute": st.sampled_from(("none", "selective", "selective_op", "selective_layer", "full")),
    "framework": st.sampled_from(("megatron-te", "fsdp2-compile", "huggingface", "deepspeed", "picotron")),
}


@settings(max_examples=60)
@given(config=st.sampled_from((LLAMA, MIXTRAL, DEEPSEEK)), values=st.fixed_dictionaries(PLANS))
def test_more_of_everything_never_needs_less(config, values):
    cluster = Cluster.of(H100, 64, nic="400Gb/s")
    plan = TrainingPlan(batch=256, seq=2048, **values)
    memory = training_memory(config, cluster, plan)
    for stage in memory.stages:
        assert set(stage.parts) == set(PARTS)
        assert min(stage.parts.values()) >= 0.0
        assert stage.used_bytes == pytest.approx(max(stage.by_moment[moment] for moment in MOMENTS))
    assert memory.low_bytes <= memory.peak.total_bytes <= memory.high_bytes
    longer = training_memory(config, cluster, plan.changed(seq=4096))
    assert longer.peak.used_bytes >= memory.peak.used_bytes
    if plan.zero < 3:
        shared = training_memory(config, cluster, plan.changed(zero=min(2, plan.zero + 1)))
        assert shared.low_bytes <= memory.low_bytes * (1 + 1e-9)
    none, full = (training_memory(config, cluster, plan.changed(recompute=how)) for how in ("none", "full"))
    assert full.low_bytes <= memory.low_bytes * (1 + 1e-9)
    assert memory.low_bytes <= none.low_bytes * (1 + 1e-9)
    assert full.stages[0].parts["activations"] <= memory.stages[0].parts["activations"]


@settings(max_examples=80)
@given(
    config=st.sampled_from([LLAMA, MIXTRAL, named_model("qwen3-32b")]),
    gpus=st.sampled_from([1, 8, 16, 32]),
    sizes=st.fixed_dictionaries(
        {
            "tp": st.sampled_from([1, 2, 8]),
            "pp": st.sampled_from([1, 2, 4]),
            "zero": st.sampled_from([1, 3]),
            "micro_batch": st.sampled_from([1, 4]),
            "recompute": st.sampled_from(["none", "full"]),
            "optimizer": st.sampled_from(["adam", "adam-8bit", "adam-bf16"]),
            "offload": st.sampled_from(["none", "optimizer"]),
        }
    ),
)
def test_what_is_left_out_early_does_not_fit(config, gpus, sizes):
    cluster = Cluster.of(H100, gpus)
    try:
        plan = TrainingPlan(batch=128, seq=4096, framework="megatron-te", **sizes)
        check_sizes(config, cluster, plan)
        memory = training_memory(config, cluster, plan)
    except UsageError:
        return
    assert fitting_memory(setup_of(config, cluster, plan)) == (memory if memory.fits else None)
    assert not (memory.fits and cannot_fit(config, cluster, plan))


def test_gpus_together_are_too_small_for_what_each_parameter_needs_once():
    """Megatron-Core keeps 2 B of weights, 4 B of gradients and 12 B of Adam: 70.6e9 of them take 1.27 TB."""
    config = named_model("llama-3.1-70b")
    assert [cannot_fit(config, Cluster.of(H100, gpus), small(framework="megatron-te")) for gpus in (8, 16)] == [1, 0]
    assert not cannot_fit(config, Cluster.of(H100, 8), small(framework="megatron-te", offload="optimizer"))
    adapters = small(framework="megatron-te", lora=16)
    assert not cannot_fit(config, Cluster.of(H100, 1), adapters), "frozen weights need not be trained"


def test_every_framework_says_where_its_memory_comes_from():
    from perfmodel.training.framework import frameworks

    for name, framework in frameworks().items():
        assert framework.memory.sources, name


def test_published_runs_are_said_to_fit(data_dir):
    """They ran: at most 1.5 % of them may be said not to fit."""
    from perfmodel.accuracy.run_table import read_run_table
    from perfmodel.training.published import UnusableRunError, read_run

    fits = []
    for path in sorted((data_dir / "e2e_training").glob("*.csv")):
        for run in read_run_table(path).runs:
            with contextlib.suppress(UnusableRunError):
                published = read_run(run, hardware)
                fits.append(training_memory(published.config, published.cluster, published.plan).fits)
    assert len(fits) > 200
    assert fits.count(False) <= 0.015 * len(fits)


def test_one_data_parallel_rank_shares_out_nothing_whatever_the_stage_of_zero():
    plan = TrainingPlan(batch=8, seq=4096, tp=8)
    totals = {training_memory(LLAMA, Cluster.of(H100, 8), plan.changed(zero=zero)).total_bytes for zero in (0, 1, 2, 3)}
    assert len(totals) == 1


def test_a_zero_bubble_schedule_holds_p_micro_batches_on_every_stage():
    cluster = Cluster.of(H100, 4)
    plans = {name: small(pp=4, batch=16, schedule=name) for name in ("1f1b", "zero_bubble", "gpipe")}
    held = {
        name: [stage.parts["activations"] for stage in training_memory(LLAMA, cluster, plan).stages]
        for name, plan in plans.items()
    }
    assert held["zero_bubble"] == pytest.approx([held["1f1b"][0]] * 4)
    assert held["1f1b"][3] == pytest.approx(held["1f1b"][0] / 4)
    assert held["gpipe"] == pytest.approx([4 * size for size in held["zero_bubble"]])


def test_activations_go_to_the_host_without_a_pipeline_and_as_far_as_it_has_room():
    machine = hardware("gb200-nvl72")
    llama = named_model("llama-3-70b")
    facts = {"batch": 256, "seq": 8192, "zero": 3, "dtype": "fp8", "framework": "megatron-bridge"}

    def memory(**values):
        return training_memory(llama, Cluster.of(machine, 64), TrainingPlan(**{**facts, **values}))

    published = memory(micro_batch=2)  # NVIDIA's, with layers on the host
    assert published.fits
    assert not published.tight
    assert not memory(micro_batch=4, seq=16384, batch=256).fits  # more than the GPU's and the host's memory
    assert not memory(micro_batch=4, pp=2, batch=256, framework="megatron-bridge").fits


def test_overlapped_exchanges_keep_ten_hidden_states():
    plan = small(framework="megatron-te", batch=16, tp=4, dtype="fp8")
    with_buffers, without = (
        training_memory(LLAMA, Cluster.of(H100, 8), TrainingPlan(**{**vars(plan), "tp_overlap": overlap})).peak.parts
        for overlap in (True, False)
    )
    tokens = plan.micro_batch * plan.seq
    assert with_buffers["communication"] - without["communication"] == (6 * 1 + 4 * 2) * tokens * LLAMA.hidden


def test_stage_2_of_deepspeed_keeps_whole_weights():
    """2 P + 14 P / N of 16-bit weights, gradients and optimizer (Rajbhandari et al. 2020, figure 1), and no gathers."""
    plan = TrainingPlan(batch=64, seq=4096, framework="deepspeed", zero=2)
    parts = training_memory(LLAMA, Cluster.of(H100, 8), plan).stages[0].parts
    assert sum(parts[name] for name in STATE) == pytest.approx((2 + 14 / 8) * LLAMA.parameters, rel=1e-6)
    assert parts["gathered"] == parts["pools"] == 0


def test_experts_that_one_rank_holds_are_not_gathered():
    """With an expert a GPU of 8, data parallel ranks share out the rest of a layer only."""
    plan = TrainingPlan(batch=64, seq=4096, framework="fsdp2-compile", zero=3, ep=8)
    parts = training_memory(MIXTRAL, Cluster.of(H100, 8), plan).stages[0].parts
    attention = 4096 * (2 * 4096 + 2 * 1024) + 8 * 4096 + 2 * 4096  # with the router and two norms
    outer = MIXTRAL.embedding_parameters + MIXTRAL.head_parameters + MIXTRAL.outer_norm_parameters
    assert parts["gathered"] == pytest.approx(2 * (outer + 2 * attention), rel=1e-3)
    experts = MIXTRAL.layers * MIXTRAL.expert_parameters
    assert parts["weights"] == pytest.approx(4 * ((outer + MIXTRAL.layers * attention) / 8 + experts), rel=1e-3)


@pytest.mark.parametrize(
    ("framework", "dtype", "bytes_"),
    [
        ("torchtune", "", 2 + 2),
        ("torchtune", "fp32", 2 + 4),
        ("fsdp2-compile", "", 2 + 4),
        ("fsdp2-compile", "bf16", 2 + 2),
    ],
)
def test_unsharded_gradients_of_a_pipeline_have_the_dtype_in_which_they_are_reduced(framework, dtype, bytes_):
    """Beside the gathered weights in 16 bits, gradients add up until the last micro batch: in 16 bits or fp32."""
    plan = TrainingPlan(batch=64, seq=4096, pp=4, framework=framework, zero=2, grad_dtype=dtype)
    cluster = Cluster.of(H100, 32, nic="400Gb/s")
    stages = training_memory(LLAMA, cluster, plan).stages
    held = [part.total for part in held_parameters(LLAMA, cluster, plan)]
    assert [stage.parts["gathered"] for stage in stages] == pytest.approx([bytes_ * count for count in held], rel=1e-9)


def test_hsdp_without_sharded_weights_changes_nothing():
    cluster = Cluster.of(H100, 32, nic="400Gb/s")
    plan = TrainingPlan(batch=32, seq=4096, framework="megatron-te", zero=2)
    whole, hsdp = (training_memory(LLAMA, cluster, plan.changed(hsdp=hsdp)).stages for hsdp in (False, True))
    assert whole == hsdp


def test_hsdp_shares_out_over_the_gpus_of_a_node_that_is_not_full():
    """Six GPUs share one node, whose domain of NVLink has room for eight: all six share out."""
    plan = TrainingPlan(batch=6, seq=4096, framework="fsdp2-compile", zero=3, hsdp=True)
    assert state(LLAMA, plan, gpus=6) == state(LLAMA, plan.changed(hsdp=False), gpus=6)


def test_gradients_that_fsdp_reduces_in_16_bits_need_no_copy_in_fp32():
    """Beside the 16 bits of autograd stands the copy that ranks reduce; kept shards are in fp32 in both."""
    plan = TrainingPlan(batch=8, seq=512, framework="fsdp2-compile", zero=3)
    layer = held_parameters(LLAMA, Cluster.of(H100, 8), plan)[0].largest_layer
    wide, narrow = (training_memory(LLAMA, Cluster.of(H100, 8), plan.changed(grad_dtype=d)).peak for d in ("", "bf16"))
    assert wide.parts["gradients"] == narrow.parts["gradients"]
    assert wide.by_moment["backward"] - narrow.by_moment["backward"] == pytest.approx(4 * layer)


@pytest.mark.parametrize("plan", [{}, {"pp": 8}, {"ep": 8}])
def test_indexers_of_sparse_attention_are_held_too(plan):
    """DeepSeek-V3.2 is DeepSeek-V3 with an indexer in each of its 61 layers."""
    sparse, cluster = named_model("deepseek-v3.2"), Cluster.of(H100, 64)
    held = held_parameters(sparse, cluster, TrainingPlan(batch=64, seq=4096, framework="megatron-bridge", **plan))
    total = sum(stage.dense + stage.outer + plan.get("ep", 1) * stage.experts for stage in held)
    assert total == pytest.approx(sparse.parameters, rel=1e-12)


def test_every_tensor_parallel_rank_has_the_whole_indexer():
    sparse, cluster = named_model("deepseek-v3.2"), Cluster.of(H100, 64)
    plan = TrainingPlan(batch=64, seq=4096, framework="megatron-bridge", tp=8)
    without = dataclasses.replace(sparse, index_heads=0, index_layers=0)
    more, less = (held_parameters(config, cluster, plan)[0].dense for config in (sparse, without))
    assert more - less == pytest.approx(61 * sparse.index_parameters)

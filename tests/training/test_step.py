"""A training step by hand: sums of operators, bubbles, FLOP, and what may not get faster."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.cluster.collectives import Group, exchange_time
from perfmodel.errors import UsageError
from perfmodel.training.constants import constants
from perfmodel.training.framework import frameworks
from perfmodel.training.kernels import Product, product_times, stream_time
from perfmodel.training.memory import training_memory
from perfmodel.training.micro_batch import head_passes
from perfmodel.training.setup import setup_of
from perfmodel.training.step import train
from perfmodel.training.timeline import pipeline_timeline
from perfmodel.workloads.architectures import Architecture
from perfmodel.workloads.catalog import named_model
from perfmodel.workloads.model_config import ModelConfig

LLAMA = ModelConfig(
    model_type="llama", name="llama3-8b", hidden=4096, layers=32, heads=32, kv_heads=8, head_dim=128, ffn=14336,
    vocab=128256, positions=8192, activation="silu", tied=False, embedding_dim=4096,
)  # fmt: skip
PLAN = pm.TrainingPlan(batch=64, seq=4096, framework="megatron-te")


def step(gpus: int = 8, config: ModelConfig = LLAMA, machine: str = "h100", **plan: object):
    return pm.train(config, pm.Cluster(machine, gpus=gpus), PLAN.changed(**plan))


def test_the_terms_add_up() -> None:
    for plan in ({}, {"tp": 2, "pp": 2, "vp": 2}, {"zero": 3, "framework": "torchtitan"}, {"cp": 2, "dtype": "fp8"}):
        found = step(8, **plan)
        assert sum(found.terms_s.values()) == pytest.approx(found.time_s)
        assert found.low_s < found.time_s < found.high_s


def test_one_gpu_runs_the_sum_of_its_operators() -> None:
    found = step(1, batch=1, optimizer="none")
    hardware, tokens = pm.hardware("h100"), 4096.0
    libraries = frameworks()[found.framework].libraries["bf16"]
    listed = []
    for n, k in ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)):
        listed += [
            Product(tokens, n, k, "bf16", "bf16", 1, libraries), Product(tokens, k, n, "bf16", "bf16", 1, libraries),
            Product(n, k, tokens, "bf16", "fp32", 1, libraries),
        ]  # fmt: skip
    times = product_times(hardware, listed)
    products = 32 * sum(times[product] for product in listed)
    added = found.terms_s["products"] - products
    parameters = sum(n * k for n, k in ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)))
    assert added == pytest.approx(32 * 4.0 * parameters / 3.0e12, rel=0.1)  # reading the fp32 gradients once
    assert set(found.terms_s) == {"products", "attention", "memory_bound", "head", "gaps"}


def test_megatron_pads_the_vocabulary_and_counts_it_as_it_is() -> None:
    """50,257 rows of GPT-2 are 50,304 on one rank, 393 x 128, and 50,688 on four, 99 x 512."""
    odd = dataclasses.replace(LLAMA, vocab=50257)
    for ranks, whole in ((1, 50304), (4, 50688)):
        plan = {"tp": ranks, "batch": 8, "zero": 0}
        bare, padded = (step(8, dataclasses.replace(odd, vocab=vocab), **plan) for vocab in (50257, whole))
        assert bare.terms_s == padded.terms_s
        assert bare.flop < padded.flop
        memory = [
            training_memory(dataclasses.replace(odd, vocab=vocab), pm.Cluster("h100", gpus=8), PLAN.changed(**plan))
            for vocab in (50257, whole)
        ]
        assert memory[0].stages[0].parts == memory[1].stages[0].parts
    others = [step(8, dataclasses.replace(odd, vocab=vocab), framework="torchtitan") for vocab in (50257, 50304)]
    assert others[0].terms_s["head"] > others[1].terms_s["head"], "rows of 50,257 numbers begin off 16 B"


def test_8_bit_moments_are_updated_by_one_kernel() -> None:
    """Gradient 4, weight 8, moments 4: whatever the framework launches for moments in full width."""
    found, whole = (step(1, framework="huggingface", optimizer=name, zero=0) for name in ("adam-8bit", "adam"))
    assert found.terms_s["optimizer"] == pytest.approx(16 / 84 * whole.terms_s["optimizer"], rel=0.02)
    fused, wide = (step(1, framework="deepspeed", optimizer=name) for name in ("adam-8bit", "adam"))
    assert fused.terms_s["optimizer"] == pytest.approx(22 / 34 * wide.terms_s["optimizer"], rel=0.02)


def test_the_bubble_is_p_minus_1_over_m_v() -> None:
    body = dataclasses.replace(LLAMA, vocab=16)  # next to no head: all stages are equal
    for vp in (1, 2, 4):
        found = step(4, body, pp=4, vp=vp, batch=32, optimizer="none")
        work = found.time_s - found.terms_s["bubble"] - found.terms_s["sends"]
        assert found.terms_s["bubble"] / work == pytest.approx(3 / (32 * vp), rel=0.01)


@pytest.mark.parametrize(
    ("pp", "stages"),
    [(4, (8, 8, 8, 8)), (4, (29, 1, 1, 1)), (4, (1, 1, 1, 29)), (4, (3, 20, 5, 4)), (2, (31, 1)), (2, (1, 31))],
)
def test_the_slowest_stage_waits_for_the_other_ones(pp: int, stages: tuple[int, ...]) -> None:
    """By hand m max(t) + the sum of the others, embedding and head with their stages; GPipe's order has it exactly."""
    found = step(pp, pp=pp, batch=8, stages=stages, schedule="gpipe", optimizer="none")
    times = [sum(both) for both in zip(found.stage_forward_s, found.stage_backward_s, strict=True)]
    assert found.terms_s["bubble"] == pytest.approx(sum(times) - max(times))
    assert found.time_s - found.terms_s["sends"] == pytest.approx(8 * max(times) + sum(times) - max(times))
    passes = pipeline_timeline(found.plan, 8, found.stage_forward_s, found.stage_backward_s)
    end = max(one.end_s for one in passes)
    assert found.time_s - found.terms_s["sends"] == pytest.approx(end, rel=0.02)


@pytest.mark.parametrize("schedule", ["1f1b", "zero_bubble"])
def test_unequal_stages_wait_at_most_as_long_as_said(schedule: str) -> None:
    """The order of passes ends as said where the last stage is the slowest, and hides waits of an early one."""
    for stages in ((1, 1, 1, 29), (29, 1, 1, 1)):
        found = step(4, pp=4, batch=16, stages=stages, schedule=schedule, optimizer="none")
        passes = pipeline_timeline(found.plan, 16, found.stage_forward_s, found.stage_backward_s, found.stage_weights_s)
        end, said = max(one.end_s for one in passes), found.time_s - found.terms_s["sends"]
        assert end <= said * (1 + 1e-9)
        assert said == pytest.approx(end, rel=0.005 if stages[-1] == 29 else 0.06)


def test_a_zero_bubble_schedule_waits_less_and_gpipe_as_long() -> None:
    times = {name: step(4, pp=4, batch=16, schedule=name).time_s for name in ("1f1b", "gpipe", "zero_bubble")}
    assert times["zero_bubble"] < times["1f1b"] == times["gpipe"]


def test_mfu_is_hfu_without_recomputation_and_below_1() -> None:
    found = step(8)
    assert found.mfu == found.hfu < found.mfu_full_attention < 1
    assert found.flop == pytest.approx(
        (6 * LLAMA.multiplied_parameters + 6 * 32 * 4096 * 4097) * found.tokens, rel=1e-3
    )
    full = step(8, recompute="full")
    assert full.mfu < full.hfu < 4 / 3 * full.mfu + 1e-12


def test_more_recomputation_is_never_faster() -> None:
    for framework in ("megatron-te", "torchtitan", "megatron-2022"):
        order = ["none", "selective", "selective_op", "full"]
        times = [step(8, recompute=name, framework=framework).time_s for name in order]
        assert times == sorted(times)


def test_more_gpus_at_the_same_work_of_each_are_as_fast_without_exchanges() -> None:
    one = step(1, batch=4, optimizer="none")
    eight = step(8, batch=32, optimizer="none")
    assert eight.time_s - eight.terms_s["data"] == pytest.approx(one.time_s)


def test_unequal_stages_run_at_the_pace_of_the_slowest() -> None:
    even = step(4, pp=4)
    uneven = step(4, pp=4, stages=(2, 10, 10, 10))
    assert uneven.time_s > even.time_s
    assert uneven.stage_forward_s[0] < uneven.stage_forward_s[1]


def test_hiding_exchanges_saves_time() -> None:
    assert step(8, tp=8, tp_overlap=True).time_s < step(8, tp=8, tp_overlap=False).time_s
    long = {"cp": 8, "seq": 32768}  # so that the GPU does not wait for its host
    assert step(8, cp_algorithm="zigzag", **long).time_s < step(8, cp_algorithm="ring", **long).time_s


def test_experts_cost_what_a_token_visits() -> None:
    facts = Architecture(gated=True)
    base = {"ffn": 8192, "vocab": 32000, "facts": facts}
    dense = dataclasses.replace(LLAMA, **base)
    sparse = dataclasses.replace(LLAMA, **base, experts=64, top_k=8, expert_ffn=1024)
    assert sparse.multiplied_parameters == pytest.approx(dense.multiplied_parameters, rel=0.01)
    found = step(8, sparse, ep=8)
    assert found.terms_s["products"] == pytest.approx(step(8, dense).terms_s["products"], rel=0.3)
    assert found.terms_s["expert"] > 0
    skewed = step(8, sparse, ep=8, expert_imbalance=1.5)
    assert found.time_s < skewed.time_s < 1.5 * found.time_s
    with pytest.raises(UsageError, match=r"ep = 1\. Use ep = 2 or more"):
        step(8, sparse, ep=1, expert_imbalance=1.5)


@pytest.mark.parametrize(
    ("gpus", "plan", "message"),
    [
        (8, {"tp": 3}, "Nearest: tp="),
        (96, {"tp": 3}, "tp = 3 does not divide the 32 heads"),
        (64, {"pp": 64, "vp": 2}, "more than the 32 layers"),
        (8, {"ep": 8}, "no experts"),
        (8, {"micro_batch": 16}, "micro_batch=8"),
        (8, {"pp": 4, "stages": (1, 1, 1, 1)}, "stages sum to 4"),
        (8, {"pp": 4, "vp": 2, "batch": 12}, "as the interleaved schedule needs"),
        (8, {"framework": "megatorn-te"}, "Did you mean 'megatron-te'"),
    ],
)
def test_a_plan_that_cannot_run_gets_one_message(gpus: int, plan: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        step(gpus, **plan)


def test_an_unknown_framework_has_a_wider_interval() -> None:
    """Tables of published runs name frameworks that nobody described: the nearest stands for them."""
    cluster = pm.Cluster("h100", gpus=8)
    known, unknown = (train(LLAMA, cluster, PLAN.changed(framework=name)) for name in ("nemo", "somebody's own"))
    assert "stands for it" in unknown.notes[0]
    assert unknown.high_s / unknown.time_s > known.high_s / known.time_s


def test_the_ranks_that_leave_a_node_are_named() -> None:
    (always,) = step(8, tp=8, micro_batch=4).notes
    assert always.startswith("Steps of other laboratories")
    note, same = step(64, tp=8, pp=2, micro_batch=4).notes
    assert note == "Ranks that exchange over the network: data (1 a node), pipeline (1 a node)."
    assert same == always
    assert step(64, machine="gb200", tp=8, pp=2, micro_batch=8).notes == (always,)


def test_a_kernel_of_another_machine_is_refused() -> None:
    with pytest.raises(UsageError, match="fa3 runs on Hopper"):
        step(8, machine="a100-sxm4-80gb", attention="fa3")
    assert step(8, attention="fa3").time_s < step(8, attention="fa2").time_s < step(8, attention="unfused").time_s


def test_constants_can_be_replaced() -> None:
    import msgspec

    from perfmodel.training.constants import constants

    slower = msgspec.structs.replace(constants(), memory_bound={"counted": 3.0, "fsdp1": 3.0})
    cluster = pm.Cluster("h100", gpus=8)
    assert train(LLAMA, cluster, PLAN, slower).time_s > train(LLAMA, cluster, PLAN).time_s


@settings(max_examples=60, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4]),
    cp=st.sampled_from([1, 2]),
    zero=st.sampled_from([0, 1, 2, 3]),
    dtype=st.sampled_from(["bf16", "fp8", "tf32"]),
    framework=st.sampled_from(["megatron-te", "megatron-2022", "torchtitan", "fsdp1-eager", "huggingface"]),
    recompute=st.sampled_from(["none", "selective", "full"]),
)
def test_no_plan_beats_the_peak(**plan: object) -> None:
    found = step(64, batch=64, **plan)
    assert sum(found.terms_s.values()) == pytest.approx(found.time_s)
    assert min(found.terms_s.values()) > 0
    assert 0 < found.mfu <= found.hfu < 1
    assert found.low_s < found.time_s < found.high_s
    assert len(found.stage_forward_s) == plan["pp"]
    slower = step(64, batch=64, **{**plan, "recompute": "full"})
    assert slower.time_s >= found.time_s * (1 - 1e-12)


@pytest.mark.parametrize("framework", ["deepspeed", "deepspeed-overlap"])
def test_zero_2_with_whole_weights_is_zero_1_and_a_reduction_in_every_micro_batch(framework: str) -> None:
    """DeepSpeed all-reduces, after copies of 12 B a gradient; the backward pass hides it where overlap_comm is set."""
    one, two = (step(framework=framework, zero=zero) for zero in (1, 2))
    assert two.micro_batches == 8
    group = Group(pm.Cluster("h100", gpus=8), 8)
    reduced = exchange_time(group, "all_reduce", 2.0 * LLAMA.parameters)
    packing = constants().memory_bound["counted"] * stream_time(group.cluster.hardware, 12.0 * LLAMA.parameters)
    backward, share = two.stage_backward_s[0], constants().sm_share
    assert reduced < backward
    beside = max(reduced / LLAMA.layers, reduced - backward) + share * reduced
    each = packing + (reduced if framework == "deepspeed" else beside)
    assert two.time_s - one.time_s == pytest.approx(7 * each, rel=1e-3)


def test_experts_of_a_single_rank_are_neither_gathered_nor_reduced() -> None:
    mixtral = named_model("mixtral-8x7b")
    plan = {"framework": "fsdp2-compile", "zero": 3}
    shared = step(8, mixtral, ep=8, **plan)
    wider = dataclasses.replace(mixtral, expert_ffn=2 * mixtral.expert_ffn)
    hidden = shared.terms_s["data"]
    assert step(8, wider, ep=8, **plan).terms_s["data"] <= hidden * (1 + 1e-9)
    assert step(8, wider, **plan).terms_s["data"] > 1.5 * step(8, mixtral, **plan).terms_s["data"]


def test_gradients_of_shared_experts_cross_between_domains_of_hsdp() -> None:
    mixtral = named_model("mixtral-8x7b")
    plan = {"framework": "fsdp2-compile", "zero": 3, "hsdp": True, "ep": 4}
    wide = step(32, mixtral, **plan).terms_s["data"]
    one = step(8, mixtral, **{**plan, "batch": 16}).terms_s["data"]
    experts = 2 * 32 * mixtral.expert_parameters  # of a GPU: two of eight experts
    # 4 domains of 2 ranks of the same experts: a ring of the shards in fp32 over one network
    ring = 2 * 3 / 4 * (experts / 2) * 4 / pm.Cluster("h100", gpus=32).network_bytes_per_s
    assert wide - one > 0.1 * ring


@pytest.mark.parametrize("framework", ["fsdp2-compile", "fsdp2-eager"])
def test_a_faster_network_never_slows_a_pipeline_that_waits_for_its_host(framework: str) -> None:
    """Weights gathered once a step hide waits for the host, but the bubble has none of the gathers to hide them."""
    plan = pm.TrainingPlan(batch=128, seq=128, micro_batch=2, tp=2, pp=4, framework=framework, zero=2)
    networks = (6.25e9, 12.5e9, 25e9, 50e9, 100e9, 200e9)
    clusters = [pm.Cluster("b200", gpus=64, nic=network) for network in networks]
    times = [pm.train(named_model("mistral-7b-v0.1"), cluster, plan).time_s for cluster in clusters]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("vocab", [50272, 200000])
def test_the_head_of_an_embedding_of_another_width_has_that_width(vocab: int) -> None:
    """OPT-350M: the hidden state of 1,024 becomes one of 512 before the logits, which no recomputation repeats."""
    shape = "type=opt layers=24 hidden=1024 heads=16 ffn=4096 positions=2048 embedding_dim=512"
    config = pm.find_model(f"{shape} vocab={vocab}")
    plan = pm.TrainingPlan(batch=1, seq=2048, recompute="full", framework="huggingface")
    assert head_passes(setup_of(config, pm.Cluster("h100", gpus=1), plan)).parameters == vocab * 512
    found = pm.train(config, pm.Cluster("h100", gpus=1), plan)
    layers = 24 * (4 * 1024**2 + 2 * 1024 * 4096)
    causal = 24 * 4 * 1024 * 2048 * 2049 / 2
    assert found.hardware_flop - found.flop == pytest.approx(2 * 2048 * layers + causal, rel=5e-3)

"""The nearest plan that a message names can run, whatever was wrong with the one asked for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.training.checks import check_sizes
from perfmodel.training.nearest import check_plan, nearest_plan
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.search import search
from perfmodel.training.space import default_space
from perfmodel.training.step import train
from perfmodel.workloads.catalog import named_model

DENSE, EXPERTS = named_model("llama-3.1-70b"), named_model("mixtral-8x7b")
H100 = hardware("h100-sxm5-80gb")
sizes = st.integers(1, 48)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from([DENSE, EXPERTS]), st.integers(1, 600), sizes, sizes, st.integers(1, 4), sizes, sizes)
def test_the_nearest_plan_passes_every_check(config, gpus, tp, pp, vp, ep, batch):
    cluster = Cluster.of(H100, gpus, nic="400Gb/s")
    plan = TrainingPlan(batch=batch, seq=4096, tp=tp, pp=pp, vp=vp if pp > 1 else 1, ep=ep, micro_batch=2)
    near = nearest_plan(config, cluster, plan)
    check_sizes(config, cluster, near)


def test_a_plan_that_runs_is_its_own_nearest():
    plan = TrainingPlan(batch=128, seq=8192, tp=8, pp=4, vp=2)
    assert nearest_plan(DENSE, Cluster.of(H100, 64), plan) == plan


def test_heads_count_as_well_as_gpus():
    """10 divides 60 GPUs, not the 64 heads of the model."""
    plan = TrainingPlan(batch=128, seq=8192, tp=8)
    with pytest.raises(UsageError, match=r"= 8 does not divide 60 GPUs.* Nearest: tp=4 batch=135\.$"):
        check_plan(DENSE, Cluster.of(H100, 60), plan)


def test_ranks_of_an_expert_that_no_size_cures_name_those_that_divide():
    """7 divides the 14336 of Mixtral's experts and not 32 ranks, whatever ep is."""
    cluster, plan = Cluster.of(H100, 32), TrainingPlan(batch=32, seq=4096, tp=4, ep=8, etp=7)
    with pytest.raises(UsageError, match=r"etp = 7 does not divide dp cp tp = 32 ranks\. Nearest: etp=8\.$"):
        check_plan(EXPERTS, cluster, plan)
    check_plan(EXPERTS, cluster, plan.changed(etp=8, ep=4))


def test_what_no_size_cures_keeps_its_own_remedy():
    plan = TrainingPlan(batch=8, seq=8192, attention="fa3")
    with pytest.raises(UsageError, match="Use fa2 or cudnn"):
        check_plan(DENSE, Cluster.of(hardware("a100-sxm4-80gb"), 8), plan)


@pytest.mark.parametrize("machine", ["t4", "v100-sxm2-32gb"])
def test_machines_without_bf16_train_in_fp16(machine):
    cluster = Cluster.of(hardware(machine), 1)
    assert train(named_model("gpt2"), cluster, TrainingPlan(batch=1, seq=1024, dtype="fp16")).time_s > 0
    with pytest.raises(UsageError, match="no peak for dtype 'bf16'") as raised:
        train(named_model("gpt2"), cluster, TrainingPlan(batch=1, seq=1024))
    assert str(raised.value.remedy).startswith("Use --dtype fp16. It has: ")


def test_a_batch_too_small_for_the_pipeline_names_one_that_fills_it() -> None:
    plan, cluster = TrainingPlan(batch=2, seq=2048, pp=4), Cluster.of(H100, 4)
    small, full = (train(DENSE, cluster, plan.changed(batch=batch)).notes for batch in (2, 4))
    assert any("Nearest: batch=4" in note for note in small)
    assert not any("do not fill" in note for note in full)


@pytest.mark.parametrize("framework", ["megatron", "nemo", "deepspeed", "torchtitan", "huggingface"])
def test_micro_batches_divide_the_sequences_of_a_rank(framework):
    """Megatron-LM, DeepSpeed and torchtitan assert it; 24 sequences on 8 GPUs are 3 each, no pairs."""
    cluster, plan = Cluster.of(H100, 8), TrainingPlan(batch=24, seq=4096, micro_batch=2, framework=framework)
    with pytest.raises(UsageError, match=r"2 does not divide the 3 sequences.*Nearest: batch=32"):
        check_plan(DENSE, cluster, plan)
    with pytest.raises(UsageError, match=r"Nearest: batch=32, or micro_batch=(1|3)\."):
        check_sizes(DENSE, cluster, plan)


def test_the_last_micro_batch_of_composer_may_be_smaller():
    config, cluster = named_model("gpt2"), Cluster.of(H100, 8)
    plan = TrainingPlan(batch=24, seq=1024, micro_batch=2, framework="llm-foundry")
    check_plan(config, cluster, plan)
    assert nearest_plan(config, cluster, plan) == plan
    found = search(config, [cluster], plan, default_space(config, cluster, plan, micro_batch=(2,), zero=(0,)))
    assert any(each.step.plan.micro_batch == 2 and each.step.dp == 8 for each in found.best)


@pytest.mark.parametrize(
    ("framework", "zero"), [("fsdp2-compile", (2, 3)), ("fsdp1-eager", (2, 3)), ("megatron", (1, 3)), ("nemo", (1,))]
)
def test_a_search_offers_the_stages_of_zero_that_a_framework_has(framework, zero):
    plan = TrainingPlan(batch=8, seq=512, framework=framework)
    assert default_space(DENSE, Cluster.of(H100, 8), plan).zero == zero


@pytest.mark.parametrize("zero", [2, 3])
def test_deepspeed_has_no_pipeline_with_gradients_or_weights_shared_out(zero):
    """Its PipelineEngine asserts it; a search leaves these out, and a plan that does not say has ZeRO 1."""
    cluster, plan = Cluster.of(H100, 8), TrainingPlan(batch=64, seq=2048, pp=2, zero=zero, framework="deepspeed")
    with pytest.raises(UsageError, match=rf"no pipeline with zero = {zero}.*Use zero=1 or pp=1\."):
        check_plan(DENSE, cluster, plan)
    check_plan(DENSE, cluster, plan.changed(framework="torchtitan"))
    assert TrainingPlan(batch=64, seq=2048, pp=2, framework="deepspeed").zero == 1
    assert TrainingPlan(batch=64, seq=2048, framework="deepspeed").zero == 3
    small = named_model("llama-3.1-8b")
    space = default_space(small, cluster, plan, zero=(1, zero), micro_batch=(1,))
    found = search(small, [cluster], plan, space, top=None)
    tried = {(each.plan.pp > 1, each.plan.zero) for each in found.best}
    assert (True, 1) in tried
    assert (False, zero) in tried
    assert (True, zero) not in tried


@pytest.mark.parametrize("dtype", ["fp32", "tf32"])
def test_an_optimizer_in_16_bits_updates_no_weights_in_fp32(dtype):
    plan = TrainingPlan(batch=8, seq=512, dtype=dtype, optimizer="adam-bf16")
    with pytest.raises(UsageError, match=rf"adam-bf16 keeps .* in 16 bits, not in {dtype}\. Use adam, or bf16\."):
        check_plan(DENSE, Cluster.of(H100, 8), plan)
    check_plan(DENSE, Cluster.of(H100, 8), plan.changed(optimizer="adam"))

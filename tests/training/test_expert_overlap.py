"""Exchanges of experts beside the passes of another micro batch: pairs by hand, limits, and DeepSeek-V3's own run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.errors import UsageError
from perfmodel.training.expert_overlap import Window, hidden_s, pairs
from perfmodel.training.memory import training_memory
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.result import TrainingStep
from perfmodel.workloads.catalog import find_model

times = st.floats(0.0, 10.0)
windows = st.builds(Window, rest_s=times, experts_s=times, exchange_s=times, there=st.floats(0.0, 1.0))
DEEPSEEK, MOE = find_model("deepseek-v3"), find_model("qwen3-30b-a3b")
PLAN = TrainingPlan(batch=64, seq=4096, ep=8, framework="megatron-te", dispatcher="alltoall")


def step(batch: int = 64, gpus: int = 8, **plan: object) -> TrainingStep:
    return pm.train(MOE, pm.Cluster("h100", gpus=gpus), PLAN.changed(batch=batch, **plan))


def test_each_exchange_runs_beside_the_compute_of_the_other_pass():
    # forward: 3 around experts of 1, exchanges of 2 + 2; backward: 4 around experts of 2, exchanges of 3 + 3
    forward, backward = Window(3.0, 1.0, 4.0), Window(4.0, 2.0, 6.0)
    # combine backward 3 beside 3, dispatch forward 2 beside 2, dispatch backward 3 beside 1, combine forward 2 beside 4
    assert hidden_s(forward, backward, 0.0) == pytest.approx(3.0 + 2.0 + 1.0 + 2.0)
    assert hidden_s(forward, backward, 0.25) == pytest.approx(0.75 * 8.0)


def test_a_narrow_way_to_the_experts_hides_behind_less():
    # a third of the exchanges goes there: 2 beside 3, 1 beside 2, 4 beside 1, 2 beside 4
    forward, backward = Window(3.0, 1.0, 3.0, 1.0 / 3.0), Window(4.0, 2.0, 6.0, 1.0 / 3.0)
    assert hidden_s(forward, backward, 0.0) == pytest.approx(2.0 + 1.0 + 1.0 + 2.0)


@given(forward=windows, backward=windows, contention=st.floats(0.0, 1.0))
def test_a_pair_hides_no_more_than_its_exchanges_or_its_compute(forward, backward, contention):
    hidden = hidden_s(forward, backward, contention)
    computed = sum(window.rest_s + window.experts_s for window in (forward, backward))
    assert -1e-9 <= hidden <= min(forward.exchange_s + backward.exchange_s, computed) + 1e-9
    assert hidden_s(forward, backward, 0.0) >= hidden - 1e-9


def test_pairs_leave_out_what_fills_and_drains_the_pipeline():
    assert pairs(PLAN, 8.0) == 0.0
    assert pairs(PLAN.changed(expert_overlap=True), 8.0) == 7.0
    assert pairs(PLAN.changed(expert_overlap=True, pp=4, vp=2), 16.0) == pytest.approx(16.0 - 5.0 / 2.0)
    assert pairs(PLAN.changed(pp=4, schedule="dualpipe"), 16.0) == 11.0
    assert pairs(PLAN.changed(expert_overlap=True, pp=4, vp=4), 2.0) == 0.0


def test_a_step_is_shorter_by_what_its_pairs_hide_and_no_other_term_changes():
    plain, paired = step(), step(expert_overlap=True)
    assert paired.micro_batches == 8
    others = [name for name in plain.terms_s if name != "expert"]
    assert [paired.terms_s[name] for name in others] == pytest.approx([plain.terms_s[name] for name in others])
    hidden = plain.time_s - paired.time_s
    assert 0.5 * plain.terms_s["expert"] < hidden < 7.0 / 8.0 * plain.terms_s["expert"]
    # twice the micro batches: 15 pairs in place of 7
    assert step(128).time_s - step(128, expert_overlap=True).time_s == pytest.approx(15.0 / 7.0 * hidden)


def test_one_micro_batch_has_no_other_to_run_beside():
    assert step(8, expert_overlap=True).time_s == step(8).time_s


def test_the_interval_counts_that_overlap_may_fall_short():
    plain, paired = step(), step(expert_overlap=True)
    assert paired.high_s / paired.time_s > plain.high_s / plain.time_s
    assert paired.low_s / paired.time_s == pytest.approx(plain.low_s / plain.time_s, rel=0.02)
    assert any("may show" in note for note in paired.notes)
    assert any("--expert-overlap" in note for note in plain.notes)


def test_pairs_keep_a_layer_more_and_interleaved_ones_a_part():
    cluster, plan = pm.Cluster("h100", gpus=64), PLAN.changed(pp=4, vp=4, batch=512)
    for one, share in (
        (PLAN.changed(batch=512), 1.0 / 48.0),
        (plan, 1.0 / 19.0),
    ):  # of 48 layers; 3 x 4 + 2 x 3 + 1 parts
        plain, paired = (
            training_memory(MOE, cluster, one.changed(expert_overlap=overlap)).stages[0].parts["activations"]
            for overlap in (False, True)
        )
        assert paired / plain == pytest.approx(1.0 + share, rel=1e-3)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ep": 1, "dispatcher": ""}, "expert_overlap hides exchanges of expert parallel ranks, and ep = 1"),
        ({"pp": 4}, "expert_overlap pairs the passes of an interleaved pipeline, and pp = 4 has vp = 1"),
        ({"dispatcher": "allgather"}, "those of allgather do not"),
    ],
)
def test_what_cannot_overlap_is_refused(values, message):
    with pytest.raises(UsageError, match=message):
        pm.train(MOE, pm.Cluster("h100", gpus=64), TrainingPlan(**{**vars(PLAN), "expert_overlap": True, **values}))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pp": 3}, "pp = 3 is odd"),
        ({"pp": 4, "batch": 96}, "6 micro batches: dualpipe needs an even number of them, and at least 2 pp = 8"),
        ({"pp": 4, "vp": 2}, "schedule dualpipe has one stage a GPU"),
        ({"pp": 4, "zero": 2, "framework": "torchtitan"}, "Use zero=0, or schedule = 1f1b with zero = 2"),
        ({"pp": 4, "zero": 3, "framework": "llmq"}, "DeepSeek trains with zero = 1. Use zero=1, or schedule = 1f1b"),
        ({"pp": 1}, "schedule dualpipe orders a pipeline"),
    ],
)
def test_what_dualpipe_cannot_run_is_refused(values, message):
    def refused() -> None:
        plan = TrainingPlan(**{**vars(PLAN), "batch": 256, "schedule": "dualpipe", **values})
        pm.train(MOE, pm.Cluster("h100", gpus=64), plan)

    with pytest.raises(UsageError, match=message):
        refused()


@pytest.mark.parametrize(("framework", "zero"), [("megatron-te", 1), ("fsdp2-compile", 0), ("megatron-2021", 0)])
def test_dualpipe_shares_out_the_optimizer_where_its_framework_can(framework, zero):
    """DeepSeek trains with ZeRO 1. FSDP2 shares out weights or nothing."""
    plan = TrainingPlan(batch=64, seq=4096, pp=4, schedule="dualpipe", framework=framework)
    assert plan.zero == zero
    assert pm.train("llama-3.1-8b", pm.Cluster("h100", gpus=8), plan).time_s > 0


def test_an_encoder_and_a_decoder_are_no_stages_of_one_class():
    plan = TrainingPlan(batch=64, seq=512, pp=4, schedule="dualpipe", framework="megatron-te")
    with pytest.raises(UsageError, match="would hold a stage of each"):
        pm.train("flan-t5-large", pm.Cluster("h100", gpus=8), plan)


def test_a_gpu_of_dualpipe_holds_the_stages_of_both_ends():
    cluster = pm.Cluster("h100", gpus=64)
    one, both = (
        training_memory(MOE, cluster, PLAN.changed(pp=4, batch=256, schedule=name)) for name in ("", "dualpipe")
    )
    assert [stage.parts["weights"] for stage in both.stages] == pytest.approx(
        [one.stages[index].parts["weights"] + one.stages[3 - index].parts["weights"] for index in range(4)]
    )
    # two GPUs hold each stage and share out its optimizer with the data parallel ranks
    assert sum(stage.parts["optimizer"] for stage in both.stages) == pytest.approx(
        sum(stage.parts["optimizer"] for stage in one.stages)
    )
    # p + 1 micro batches of 12 layers each, and p of them on the first stage of 1F1B
    assert both.stages[0].parts["activations"] / one.stages[0].parts["activations"] == pytest.approx(5.0 / 4.0)


def test_deepseek_v3_took_180_thousand_hours_of_h800_for_each_trillion_tokens():
    """DeepSeek-AI 2024 (arXiv 2412.19437): 2,048 H800, 16 stages, 64 expert parallel ranks, 15,360 sequences of 4,096.

    DualPipe at first sight; without it the step is far too long.
    """
    cluster = pm.Cluster("h800-sxm5-80gb", gpus=2048)
    plan = TrainingPlan(
        batch=15360, seq=4096, pp=16, ep=64, dtype="fp8", dispatcher="deepep", framework="megatron-te",
        schedule="dualpipe",
    )  # fmt: skip
    measured = 180e3 * 3600.0 / 1e12 / 2048 * 15360 * 4096
    found = pm.train(DEEPSEEK, cluster, plan)
    assert found.low_s < measured < found.high_s
    assert abs(found.time_s / measured - 1.0) < 0.15
    assert pm.train(DEEPSEEK, cluster, plan.changed(schedule="1f1b")).time_s > 1.2 * measured


@pytest.mark.parametrize("batch", [16, 32, 128])
def test_a_step_that_waits_for_its_host_takes_as_long_with_pairs(batch):
    """QLoRA in micro batches of 512 tokens: the host sets the pace of all passes, alone or in pairs."""
    usual = {"batch": batch, "gpus": 16, "seq": 512, "ep": 16, "framework": "huggingface", "zero": 0, "lora": 8}
    plain, paired = (step(**usual, frozen_dtype="nf4", expert_overlap=overlap) for overlap in (False, True))
    assert plain.terms_s["host"] > 0.3 * plain.time_s
    assert paired.time_s == pytest.approx(plain.time_s)


def test_pairs_of_a_pipeline_that_waits_for_its_host_change_nothing():
    usual = {"batch": 64, "gpus": 32, "pp": 4, "vp": 2, "seq": 512, "framework": "megatron-bridge", "lora": 8}
    plain, paired = (step(**usual, frozen_dtype="nf4", expert_overlap=overlap) for overlap in (False, True))
    assert plain.terms_s["host"] > 0.3 * plain.time_s
    assert paired.time_s == pytest.approx(plain.time_s)


def test_no_step_with_pairs_ends_before_its_copies_of_the_host():
    """What pairs hide of exchanges is no time that copies run beside: activations leave as fast as the link is."""
    plan = PLAN.changed(offload="activations", zero=0, framework="torchtune", expert_overlap=True, batch=256, tp=2)
    cluster = pm.Cluster("h100", gpus=16, nic="400Gb/s", host_bandwidth="80GB/s")
    found, apart = (pm.train(MOE, cluster, one) for one in (plan, plan.changed(expert_overlap=False)))
    memory = training_memory(MOE, cluster, plan).stages[0]
    moved = memory.host["activations"] / (plan.micro_batches(16) if plan.pp > 1 else 1.0)
    least = plan.micro_batches(16) * moved / (80e9 / 8)
    assert least < found.time_s < apart.time_s
    assert found.time_s - found.terms_s["offload"] < least, "the copies set the pace"


def test_gradients_leave_while_activations_come_back():
    """Whole gradients and activations of ZeRO 2 in opposite directions: copies cost no more than one after the other.

    Activations that come back later leave gradients more time.
    """
    cluster = pm.Cluster("h100", gpus=8, host_bandwidth="60GB/s")
    none, gradients, activations, both = (
        pm.train(MOE, cluster, PLAN.changed(offload=parts, zero=2, framework="torchtune", batch=64))
        for parts in ("none", "optimizer", "activations", "optimizer,activations")
    )
    ends = gradients.terms_s["offload"], activations.terms_s["offload"], both.terms_s["offload"]
    assert "offload" not in none.terms_s
    assert max(ends[:2]) <= ends[2] < 0.95 * sum(ends[:2])


@pytest.mark.parametrize("offload", ["none", "parameters", "parameters,activations"])
@pytest.mark.parametrize("framework", ["torchtune", "fsdp2-compile"])
def test_sharded_weights_come_beside_pairs_which_are_never_slower(framework, offload):
    usual = {"framework": framework, "zero": 3, "offload": offload, "seq": 512, "micro_batch": 4, "ep": 4, "tp": 2}
    apart, paired = (step(128, 16, **usual, expert_overlap=overlap) for overlap in (False, True))
    assert paired.time_s < apart.time_s

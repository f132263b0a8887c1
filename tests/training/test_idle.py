"""Options without effect: one message that says what would use them, or a note; never silence."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest

from perfmodel.cluster.cluster import Cluster
from perfmodel.errors import UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.training.checks import check_idle
from perfmodel.training.idle import idle_options
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.search import full_step, search
from perfmodel.training.space import default_space
from perfmodel.workloads.catalog import named_model

LLAMA, MIXTRAL = named_model("llama-3.1-8b"), named_model("mixtral-8x7b")
H100 = hardware("h100-sxm5-80gb")
NODE, TWO = Cluster.of(H100, 8), Cluster.of(H100, 16)
PLAN = TrainingPlan(batch=64, seq=4096, zero=1)


@pytest.mark.parametrize(
    ("option", "used_with"),
    [
        ({"hsdp": True}, {"zero": 3}), ({"schedule": "gpipe"}, {"pp": 2}), ({"schedule": "zero_bubble"}, {"pp": 2}),
        ({"schedule": "interleaved"}, {"pp": 2, "vp": 2}), ({"sp": True}, {"tp": 2}), ({"tp_overlap": True}, {"tp": 2}),
        ({"cp_algorithm": "ring"}, {"cp": 2}), ({"cp_algorithm": "ulysses"}, {"cp": 2}),
    ],
)  # fmt: skip
def test_an_option_that_nothing_uses_says_what_would(option, used_with):
    name = next(iter(option))
    with pytest.raises(UsageError, match=rf"Use .* = \d or more, or leave {name} out"):
        full_step(LLAMA, TWO, PLAN.changed(**option))
    used = full_step(LLAMA, TWO, PLAN.changed(**used_with, **option))
    assert used.time_s > 0
    size, value = next(iter(used_with.items()))
    back = dataclasses.replace(used.plan, **dict.fromkeys(used_with, 1)).changed()
    assert not idle_options(back), f"changed() leaves {name} without {size} = {value}"


def test_a_dispatcher_has_experts_to_send_tokens_to():
    with pytest.raises(UsageError, match="Use ep = 2 or more, or leave dispatcher out"):
        full_step(MIXTRAL, TWO, PLAN.changed(dispatcher="deepep"))
    used = full_step(MIXTRAL, TWO, PLAN.changed(ep=8, dispatcher="deepep"))
    assert not used.plan.changed(ep=1).dispatcher


def test_a_schedule_stays_while_a_search_changes_the_stages():
    plan = PLAN.changed(schedule="gpipe", pp=4)
    assert plan.changed(vp=1, pp=2).schedule == "gpipe"
    assert plan.changed(vp=1, pp=1).schedule == "1f1b"
    assert PLAN.changed(pp=4).changed(vp=2).schedule == "interleaved"
    with pytest.raises(UsageError, match="one stage a GPU"):
        plan.changed(vp=2)
    found = search(
        LLAMA, [TWO], plan.changed(pp=1, schedule="gpipe"), default_space(LLAMA, TWO, PLAN, pp=(2, 4), vp=(1,))
    )
    assert {setup.plan.schedule for setup in found.best} == {"gpipe"}


def test_a_search_refuses_what_none_of_its_set_ups_uses():
    with pytest.raises(UsageError, match="zero = 1"):
        search(LLAMA, [NODE], PLAN.changed(hsdp=True), default_space(LLAMA, NODE, PLAN, zero=(0, 1)))
    check_idle(PLAN.changed(hsdp=True), {"zero": 3})


@pytest.mark.parametrize(
    ("cluster", "plan", "said"),
    [
        (NODE, {"zero": 3, "hsdp": True}, "hsdp changes nothing"),
        (TWO, {"zero": 2, "hsdp": True}, "hsdp changes nothing"),
        (NODE, {"recompute": "selective"}, "keeps no scores"),
        (NODE, {"tp": 8, "grad_dtype": "bf16"}, "grad_dtype changes nothing"),
    ],
)
def test_what_these_gpus_do_not_use_is_noted(cluster, plan, said):
    step = full_step(LLAMA, cluster, PLAN.changed(**plan))
    assert any(said in note for note in step.notes)
    assert step.hfu == step.mfu


@pytest.mark.parametrize("framework", ["megatron-te", "pytorch-fsdp"])
def test_a_kernel_of_attention_of_a_model_without_attention_is_noted(framework):
    """A stack of Mamba's layers takes as long with any of them; a hybrid's layers with attention do not."""
    said = "attention unfused changes nothing: no layer of the model has softmax attention."
    plan = PLAN.changed(framework=framework)
    steps = {}
    for name in ("mamba-130m", "jamba-v0.1"):
        model = named_model(name)
        steps[name] = [full_step(model, NODE, plan.changed(attention=kernel)) for kernel in ("", "unfused")]
    (usual, unfused), (hybrid, hybrid_unfused) = steps.values()
    assert (said in usual.notes, said in unfused.notes, said in hybrid_unfused.notes) == (False, True, False)
    assert unfused.time_s == usual.time_s
    assert hybrid_unfused.time_s > hybrid.time_s
    mamba = named_model("mamba-130m")
    found = search(mamba, [NODE], plan.changed(attention="unfused"), default_space(mamba, NODE, plan, tp=(1,), pp=(1,)))
    assert said in found.notes
    selective = full_step(mamba, NODE, plan.changed(recompute="selective", attention="unfused"))
    assert any("Selective recomputation changes nothing: no layer" in note for note in selective.notes)


def test_unscaling_the_gradients_of_fp16_takes_time():
    times = {
        dtype: full_step(LLAMA, NODE, PLAN.changed(dtype=dtype)).terms_s["optimizer"] for dtype in ("bf16", "fp16")
    }
    assert times["fp16"] == pytest.approx(times["bf16"] * (34 + 2 * 4) / 34, rel=0.05)


OPTIONS = [
    ("hsdp", True), ("sp", True), ("sp", False), ("tp_overlap", True), ("attention", "fa2"), ("attention", "unfused"),
    ("cp_algorithm", "ulysses"), ("schedule", "gpipe"), ("schedule", "zero_bubble"), ("optimizer", "adam-8bit"),
    ("optimizer", "muon"), ("optimizer", "none"), ("lora", 16), ("grad_dtype", "bf16"), ("etp", 2), ("ep", 4),
    ("vp", 2), ("tp", 2), ("pp", 2), ("cp", 2), ("recompute", "selective"), ("recompute", "full"), ("zero", 0),
    ("zero", 3), ("dropout", True), ("dtype", "fp8"), ("dtype", "fp16"), ("framework", "fsdp2-compile"),
    ("micro_batch", 2), ("dispatcher", "deepep"),
]  # fmt: skip


def _tried(config, values):
    """Return the step of a plan, or why it cannot run and what could."""
    try:
        return full_step(config, TWO, PLAN.changed(**values)), ""
    except UsageError as problem:
        return None, problem.remedy


@pytest.mark.parametrize("config", [LLAMA, MIXTRAL], ids=["dense", "experts"])
def test_every_pair_of_options_runs_or_gets_one_message(config):
    for pair in itertools.combinations(OPTIONS, 2):
        step, problem = _tried(config, dict(pair))
        if step is None:
            assert problem.endswith("."), pair
            continue
        assert 0 < step.low_s < step.time_s < step.high_s < math.inf, pair
        assert 0 < step.mfu <= step.hfu + 1e-12, pair
        assert all(size >= 0 for size in step.memory_bytes.values()), pair
        assert sum(step.terms_s.values()) == pytest.approx(step.time_s), pair

"""What makes a plan fit."""

from __future__ import annotations

from perfmodel.cluster.cluster import Cluster
from perfmodel.core.report import report
from perfmodel.hardware_catalog import hardware
from perfmodel.render.table import render
from perfmodel.training.fitting import changes_that_fit
from perfmodel.training.memory import training_memory
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.step import train
from perfmodel.training.study import Study
from perfmodel.workloads.catalog import named_model

H100 = hardware("h100-sxm5-80gb")


def test_single_changes_that_fit_with_the_fastest_first():
    config, cluster = named_model("llama-3.1-70b"), Cluster.of(H100, 64, nic="400Gb/s")
    plan = TrainingPlan(batch=128, seq=8192, tp=4, pp=4, zero=1, micro_batch=2, framework="megatron-te")
    assert not training_memory(config, cluster, plan).fits
    changes = changes_that_fit(config, cluster, plan)
    assert all(change.tight is training_memory(config, cluster, change.plan).tight for change in changes)
    assert [change.time_s for change in changes] == sorted(change.time_s for change in changes)
    assert any(change.text == "--recompute full" for change in changes)
    for change in changes:
        assert training_memory(config, cluster, change.plan).fits


def test_a_change_that_fits_only_without_fragmentation_is_marked():
    config, cluster = named_model("llama-3.1-70b"), Cluster.of(H100, 64, nic="400Gb/s")
    plan = TrainingPlan(batch=128, seq=8192, tp=4, pp=4, vp=5, zero=1, dtype="fp8", framework="megatron-te")
    changes = changes_that_fit(config, cluster, plan)
    tight = {change.text: change.tight for change in changes}
    assert tight["--zero 2"] is training_memory(config, cluster, plan.changed(zero=2)).tight is True
    assert tight["--recompute full"] is False
    table = render(report(Study((train(config, cluster, plan),), changes=changes)))
    (row,) = [line for line in table.splitlines() if "--zero 2 " in line]
    assert row.endswith("GiB (~)")
    assert "(~) fits only if memory does not fragment." in table


def test_a_whole_plan_where_no_single_change_is_enough():
    config, cluster = named_model("llama-3.1-70b"), Cluster.of(H100, 8)
    plan = TrainingPlan(batch=8, seq=4096, framework="megatron-te")
    (change,) = changes_that_fit(config, cluster, plan)
    assert change.text.startswith("--gpus 16 ")
    assert training_memory(config, cluster.resized(16), change.plan).fits or "nic" in change.text


def test_experts_are_shared_out_before_anything_slower():
    config, cluster = named_model("qwen3-30b-a3b"), Cluster.of(H100, 16, nic="400Gb/s")
    plan = TrainingPlan(batch=128, seq=4096, framework="megatron-te")
    first, *_ = changes = changes_that_fit(config, cluster, plan)
    assert first.text == "--ep 8"
    assert first.plan == plan.changed(ep=8)
    assert "--ep 2" not in [change.text for change in changes]  # half of the experts do not fit
    dense = changes_that_fit(named_model("llama-3.1-70b"), Cluster.of(H100, 64, nic="400Gb/s"), plan)
    assert not any("--ep" in change.text for change in dense)


def test_nothing_fits_a_small_machine():
    config, cluster = named_model("gpt-1t"), Cluster.of(hardware("t4"), 1, nic="10Gb/s")
    assert changes_that_fit(config, cluster, TrainingPlan(batch=1, seq=2048, framework="megatron-te")) == ()


def test_what_the_framework_lacks_is_not_proposed():
    config, cluster = named_model("llama-3.1-70b"), Cluster.of(H100, 64, nic="400Gb/s")
    plan = TrainingPlan(batch=128, seq=8192, tp=4, pp=4, zero=1, micro_batch=2, framework="nemo")
    texts = [change.text for change in changes_that_fit(config, cluster, plan)]
    assert "--recompute full" in texts
    assert not any(text.startswith("--zero") for text in texts)

"""Searches: exact pruning, equal ranks, the same result with several workers, and speed."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.cluster.cluster import Cluster
from perfmodel.core.report import report
from perfmodel.errors import PerfModelError, UsageError
from perfmodel.hardware_catalog import hardware
from perfmodel.training import search as search_module
from perfmodel.training.framework import find_framework
from perfmodel.training.memory import training_memory
from perfmodel.training.nearest import check_plan
from perfmodel.training.plan import TrainingPlan
from perfmodel.training.search import search
from perfmodel.training.search_job import Job
from perfmodel.training.space import AXES, Space, default_space, divides
from perfmodel.training.step import train
from perfmodel.workers.lost import WorkersLostError
from perfmodel.workloads.catalog import named_model

LLAMA = named_model("llama-3.1-8b")
H100 = hardware("h100-sxm5-80gb")
CLUSTER = Cluster.of(H100, 16, nic="400Gb/s")
PLAN = TrainingPlan(batch=64, seq=4096, framework="megatron-te")
SMALL = {
    "tp": (1, 2, 4),
    "cp": (1,),
    "pp": (1, 2, 3),
    "vp": (1, 2),
    "micro_batch": (1, 2),
    "zero": (1, 3),
    "recompute": ("none", "full"),
}


def small_space(**given):
    return default_space(LLAMA, CLUSTER, PLAN, **{**SMALL, **given})


def test_the_best_is_the_best_of_all_plans_that_can_run_and_fit():
    space = small_space()
    found = search(LLAMA, [CLUSTER], PLAN, space, top=5)
    times, refused = [], 0
    for values in itertools.product(*(getattr(space, name) for name in AXES)):
        try:
            plan = PLAN.changed(**dict(zip(AXES, values, strict=True)))
            check_plan(LLAMA, CLUSTER, plan)
        except PerfModelError:
            refused += 1
            continue
        if plan.batch % (plan.dp(16) * plan.micro_batch) == 0 and training_memory(LLAMA, CLUSTER, plan).fits:
            times.append(train(LLAMA, CLUSTER, plan).time_s)
    assert found.fit == len(times)
    assert [each.step.time_s for each in found.best] == sorted(times)[:5]
    assert found.considered == space.points == found.fit + sum(found.left_out.values())
    assert refused <= found.left_out["sizes do not divide"]


def test_set_ups_whose_intervals_overlap_share_a_rank():
    found = search(LLAMA, [CLUSTER], PLAN, small_space(), top=1000)
    assert found.best[0].rank == 1
    for each in found.best:
        low_s, _ = each.step.own_interval_s  # what a laboratory's steps share does not tell them apart
        surely_faster = sum(other.step.own_interval_s[1] < low_s for other in found.best)
        assert each.rank == 1 + surely_faster
    assert found.equal_to_best == sum(each.rank == 1 for each in found.best)


def test_every_best_set_up_fits_and_has_its_memory():
    for each in search(LLAMA, [CLUSTER], PLAN, small_space()).best:
        assert each.step.memory is not None
        assert each.step.fits


def test_an_interruption_keeps_what_is_done():
    space = small_space(micro_batch=(1, 2, 4, 8), tp=(1, 2, 4, 8), batch=(64, 128))
    done: list[int] = []

    def interrupt(tried: int) -> None:
        done.append(tried)
        if len(done) == 2:
            raise KeyboardInterrupt

    found = search(LLAMA, [CLUSTER], PLAN, space, progress=interrupt)
    assert found.considered == done[-1] == found.fit + sum(found.left_out.values())
    assert found.considered + found.untried == space.points
    assert found.untried > 0
    assert isinstance(found.ended, KeyboardInterrupt)
    assert f"Interrupted: {found.untried:,} combinations" in report(found).notes[0]
    with pytest.raises(KeyboardInterrupt):
        search(LLAMA, [CLUSTER], PLAN, small_space(tp=(8,), vp=(3,), batch=(1,)), progress=interrupt_at_once)


def test_lost_workers_leave_what_is_done(monkeypatch):
    space = small_space(micro_batch=(1, 2, 4, 8), tp=(1, 2, 4, 8), batch=(64, 128))

    def lose(job: Job, workers: int, scheduler: str, after: int = 2):
        del workers, scheduler
        yield from map(job.part, job.tasks()[:after])
        raise WorkersLostError("a worker process ended before its work was done.", place="workers")

    monkeypatch.setattr(search_module, "run", lose)
    kept = search(LLAMA, [CLUSTER], PLAN, space, workers=2)
    assert isinstance(kept.ended, WorkersLostError)
    assert kept.best[0].rank == 1
    assert kept.considered + kept.untried == space.points
    assert kept.untried > 0
    monkeypatch.setattr(search_module, "run", functools.partial(lose, after=0))
    with pytest.raises(WorkersLostError, match="a worker process ended"):
        search(LLAMA, [CLUSTER], PLAN, space, workers=2)


def interrupt_at_once(tried: int) -> None:
    del tried
    raise KeyboardInterrupt


@pytest.mark.waiting
def test_several_workers_find_the_same():
    space = small_space(micro_batch=(1, 2, 4, 8), tp=(1, 2, 4, 8), batch=(64, 128))
    alone, together = (search(LLAMA, [CLUSTER], PLAN, space, workers=count) for count in (1, 2))
    assert [(each.rank, each.plan, each.step.time_s) for each in alone.best] == [
        (each.rank, each.plan, each.step.time_s) for each in together.best
    ]
    assert (alone.fit, alone.left_out) == (together.fit, together.left_out)


def test_machines_are_compared_by_tokens_per_second():
    clusters = [Cluster.of(hardware(name), 16, nic="400Gb/s") for name in ("a100-sxm4-80gb", "h100-sxm5-80gb")]
    found = search(LLAMA, clusters, PLAN, small_space())
    assert {each.step.cluster.hardware.name for each in found.best} == {"h100-sxm5-80gb"}


def test_the_default_space_has_what_divides():
    space = default_space(LLAMA, CLUSTER, PLAN)
    assert space.tp == (1, 2, 4, 8)
    assert space.cp == (1, 2, 4)
    assert space.vp == (1, 2, 4, 8)  # of 32 layers
    assert space.ep == (1,)
    assert default_space(named_model("mixtral-8x7b"), CLUSTER, PLAN).ep == (1, 2, 4, 8)


def test_the_default_space_of_several_clusters_does_not_depend_on_their_order():
    node, cluster = Cluster.of(H100, 8), Cluster.of(H100, 256, nic="400Gb/s")
    mixture = named_model("deepseek-v3")
    assert default_space(mixture, [node, cluster], PLAN) == default_space(mixture, [cluster, node], PLAN)
    assert default_space(mixture, [node, cluster], PLAN) == default_space(mixture, cluster, PLAN)


def test_what_is_named_twice_is_tried_once():
    """A plan that stands twice in the ranking takes a place of the best, and is its own equal."""
    once = search(LLAMA, [CLUSTER], PLAN, small_space(tp=(2, 1)), top=None)
    twice = search(LLAMA, [CLUSTER, Cluster.of(H100, 16, nic="400Gb/s")], PLAN, small_space(tp=(2, 1, 2)), top=None)
    assert [each.plan for each in once.best] == [each.plan for each in twice.best]
    assert (once.considered, once.equal_to_best) == (twice.considered, twice.equal_to_best)


def test_virtual_stages_are_those_that_a_plan_may_have():
    """126 layers count as 128 with embedding and head: 16 x 8 stages are equal, though 8 does not divide 126."""
    config = named_model("llama-3.1-405b")
    cluster = Cluster.of(H100, 1024, nic="400Gb/s")
    plan = TrainingPlan(batch=512, seq=8192, zero=1)
    assert {4, 8} <= set(default_space(config, cluster, plan).vp)
    assert default_space(config, cluster, plan, pp=(3,)).vp == (1, 2, 3, 6, 7)
    assert default_space(config, cluster, plan, pp=(1,)).vp == (1,)


@pytest.mark.waiting
def test_the_best_by_default_is_no_slower_than_context_parallel_and_deeply_interleaved_plans():
    config = named_model("llama-3.1-405b")
    cluster = Cluster.of(H100, 1024, nic="400Gb/s")
    plan = TrainingPlan(batch=512, seq=8192, zero=1)
    best = search(config, [cluster], plan, default_space(config, cluster, plan), top=1).best[0]
    for other in ({"tp": 8, "cp": 2, "pp": 16, "vp": 8}, {"tp": 8, "cp": 4, "pp": 8, "vp": 8}):
        assert best.step.time_s <= train(config, cluster, plan.changed(**other)).time_s


def test_recomputation_is_left_out_where_sizes_fit_without():
    """It saves time to look for it, and costs time to run it: the best stay the best."""
    every = small_space(recompute=("none", "selective_op", "selective_layer", "full"))
    least = dataclasses.replace(every, least_recompute=True)
    found, all_of_them = (search(LLAMA, [CLUSTER], PLAN, space, top=3) for space in (least, every))
    assert found.left_out["recomputation that they do not need"] > 0
    assert found.fit + sum(found.left_out.values()) == found.considered == every.points
    assert [each.plan for each in found.best] == [each.plan for each in all_of_them.best]
    assert default_space(LLAMA, CLUSTER, PLAN).least_recompute
    assert not every.least_recompute


def test_recomputation_that_changes_nothing_is_listed_once():
    """A flash kernel keeps no scores that it could compute anew."""
    space = small_space(tp=(1,), pp=(1,), recompute=("none", "selective", "full"))
    found = search(LLAMA, [CLUSTER], PLAN, space, top=100)
    assert {each.plan.recompute for each in found.best} == {"none", "full"}
    assert any("Selective recomputation changes nothing" in note for note in found.notes)
    alone = search(LLAMA, [CLUSTER], PLAN, dataclasses.replace(space, recompute=("selective",)), top=100)
    assert {each.plan.recompute for each in alone.best} == {"selective"}
    scores = search(LLAMA, [CLUSTER], PLAN.changed(attention="unfused"), space, top=100)
    assert "selective" in {each.plan.recompute for each in scores.best}
    assert not any("Selective" in note for note in scores.notes)


def test_experts_are_tried_whole_and_shared_out():
    config, plan = named_model("mixtral-8x7b"), TrainingPlan(batch=64, seq=4096, zero=1)
    cluster = Cluster.of(H100, 16, nic="400Gb/s")
    assert default_space(config, cluster, plan).etp == (0, 1)
    assert default_space(config, cluster, plan.changed(etp=2)).etp == (2,)
    assert default_space(config, cluster, plan.changed(framework="megatron-bridge")).etp == (0,)
    assert default_space(LLAMA, CLUSTER, PLAN).etp == (0,)
    space = default_space(config, cluster, plan, tp=(1, 4), cp=(1,), pp=(1, 2), vp=(1,), micro_batch=(1,), zero=(1,))
    found = search(config, [cluster], plan, space, top=100)
    tried = {(each.plan.tp, each.plan.etp) for each in found.best}
    assert tried >= {(4, 0), (4, 1)}
    assert (1, 1) not in tried  # without tensor parallel ranks both are one
    assert found.considered == found.fit + sum(found.left_out.values())


def test_points_are_numbered_in_order():
    space = small_space()
    listed = [dict(zip(AXES, values, strict=True)) for values in itertools.product(*(getattr(space, n) for n in AXES))]
    assert [space.at(point) for point in range(space.points)] == listed


@pytest.mark.parametrize("size", [{"tp": 3}, {"pp": 5}, {"vp": 2}, {"micro_batch": 7}])
def test_what_does_not_divide_is_seen_without_a_plan(size):
    one = {"tp": 1, "cp": 1, "pp": 1, "vp": 1, "micro_batch": 1, "batch": 64}
    sizes = {name: np.array([float(one[name]), float((one | size)[name])]) for name in one}
    assert divides(LLAMA, 16, sizes).tolist() == [True, False]


def test_tasks_have_equally_many_combinations_that_are_worth_trying():
    space = small_space(micro_batch=tuple(range(1, 9)), batch=tuple(range(16, 400, 16)), vp=(1, 2, 3, 4))
    job = Job(LLAMA, (CLUSTER, CLUSTER), PLAN, space)
    tasks = job.tasks()
    ends = [stop for cluster, _, stop in tasks if cluster == 0]
    assert [start for cluster, start, _ in tasks if cluster == 0] == [0, *ends[:-1]]
    assert ends[-1] == space.points
    assert [task[1:] for task in tasks[: len(ends)]] == [task[1:] for task in tasks[len(ends) :]]
    tried = [int(np.count_nonzero(even & ~again)) for even, again in map(job.worth_trying, tasks)]
    assert set(tried[: len(ends) - 1]) == {64}
    assert tried[len(ends) - 1] <= 64


def test_the_sizes_of_a_range_are_those_of_its_combinations():
    space = small_space(zero=(1, 3), vp=(1, 2))
    between = space.between(3, 20)
    assert set(between) == set(AXES) - {"offload", "recompute"}
    for place, point in enumerate(range(3, 20)):
        assert {name: values[place] for name, values in between.items()}.items() <= space.at(point).items()


@pytest.mark.parametrize(
    ("gpus", "sizes", "remedy"),
    [
        (1, {}, "more GPUs"),
        (1, {"recompute": ("none",)}, "more GPUs or --recompute full"),
        (1, {"zero": (0, 1), "micro_batch": (2,)}, "more GPUs, larger --zero or a smaller --micro-batch"),
        (16, {"tp": (1,), "pp": (1, 16)}, "more GPUs or larger --tp"),
        (16, {"tp": (1, 16), "pp": (1,)}, "more GPUs or larger --pp"),
    ],
)
def test_what_was_tried_to_its_end_is_no_remedy(gpus, sizes, remedy):
    big, cluster = named_model("llama-3.1-405b"), Cluster.of(H100, gpus, nic="400Gb/s")
    with pytest.raises(UsageError, match="fits in memory") as raised:
        search(big, [cluster], PLAN, default_space(big, cluster, PLAN, **sizes))
    assert raised.value.remedy == f"Use {remedy}."


def test_nothing_that_fits_is_one_message():
    big = named_model("llama-3.1-405b")
    with pytest.raises(UsageError, match="fits in memory"):
        search(big, [CLUSTER], PLAN, default_space(big, CLUSTER, PLAN, recompute=("none",)))
    with pytest.raises(UsageError, match="no combination can run"):
        search(LLAMA, [CLUSTER], PLAN, small_space(tp=(3,)))
    with pytest.raises(UsageError, match="workers"):
        search(LLAMA, [CLUSTER], PLAN, small_space(), workers=0)
    with pytest.raises(UsageError, match="axis"):
        default_space(LLAMA, CLUSTER, PLAN, dp=(1,))
    with pytest.raises(UsageError, match="combinations"):
        Space(*(tuple(range(1, 100)) for _ in AXES))


@pytest.mark.waiting
def test_set_ups_are_fast_to_try():
    """A thousand take 1 to 2 s of a core; the test allows ten times as much, since it shares its machine."""
    space = default_space(LLAMA, CLUSTER, PLAN)
    start = time.process_time()
    search(LLAMA, [CLUSTER], PLAN, space)
    assert (time.process_time() - start) / space.points < 0.02


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tp": (3,)}, "the first: tp cp pp = 3 x 1 x 1 = 3 does not divide 16 GPUs. Nearest: tp=4."),
        ({"tp": (0,)}, "tp = 0 is below 1"),
    ],
)
def test_a_search_that_finds_nothing_says_what_would_run(given, said):
    with pytest.raises(UsageError, match=said):
        search(LLAMA, [CLUSTER], PLAN, small_space(**given))


def test_set_ups_that_fit_only_without_fragmentation_are_not_ranked():
    llama = named_model("llama-3-70b")
    plan = TrainingPlan(batch=256, seq=8192, dtype="fp8", framework="megatron-bridge", zero=1)
    cluster = Cluster.of(H100, 64, nic="400Gb/s")
    space = default_space(
        llama, cluster, plan, tp=(4,), cp=(1,), pp=(4, 8), vp=(5,), micro_batch=(1,), zero=(1,), recompute=("none",)
    )
    found = search(llama, [cluster], plan, space)
    assert (found.fit, found.tight, len(found.best)) == (2, 1, 1)
    assert found.best[0].plan.pp == 8
    assert found.fastest_tight is not None
    assert found.fastest_tight.step.memory.tight
    assert found.fastest_tight.step.time_s < found.best[0].step.time_s
    assert any("1 fits only if memory does not fragment, and is not ranked" in note for note in report(found).notes)
    only = search(llama, [cluster], plan, dataclasses.replace(space, pp=(4,)))
    assert (only.fit, only.tight, only.fastest_tight) == (1, 1, None)


def test_a_framework_without_sharded_weights_is_searched_without_them():
    for framework, stages in (("nemo", (1,)), ("megatron-2021", (0,)), ("megatron-bridge", (1, 3))):
        assert default_space(LLAMA, CLUSTER, PLAN.changed(framework=framework)).zero == stages
    assert any(
        "has no zero = 3" in note for note in train(LLAMA, CLUSTER, PLAN.changed(framework="nemo", zero=3)).notes
    )


def test_a_search_says_what_its_framework_lacks():
    found = search(LLAMA, [CLUSTER], PLAN.changed(framework="nemo"), small_space())
    assert "has no zero = 3" in report(found).notes[-1]


def test_stages_of_zero_are_one_on_a_single_rank():
    space = dataclasses.replace(small_space(), tp=(CLUSTER.gpus,), pp=(1,), vp=(1,), zero=(1, 3))
    found = search(LLAMA, [CLUSTER], PLAN, space, top=100)
    assert {each.plan.zero for each in found.best} == {1}
    assert (
        found.left_out["zero or etp on a single rank"]
        == space.points / 2 - found.left_out.get("sizes do not divide", 0) / 2
    )
    apart = search(LLAMA, [CLUSTER], PLAN, dataclasses.replace(space, tp=(1,)), top=100)
    assert {each.plan.zero for each in apart.best} == {1, 3}


@pytest.mark.parametrize(("dtype", "stages"), [("bf16", (1, 3)), ("fp8", (1, 3)), ("mxfp8", (1,)), ("nvfp4", (1,))])
def test_weights_are_shared_out_in_dtypes_that_the_framework_can(dtype, stages):
    plan = PLAN.changed(framework="megatron-bridge 25.09", dtype=dtype)
    assert default_space(LLAMA, CLUSTER, plan).zero == stages
    note = find_framework("megatron-bridge").lacking([3], dtype)
    assert note == "" if 3 in stages else f"no zero = 3 in {dtype}" in note


@pytest.mark.parametrize("call", [pm.train, pm.search])
@pytest.mark.parametrize(
    ("cluster", "plan", "message"),
    [("h100", PLAN, "Write pm.Cluster"), (3, PLAN, "is no cluster"), (CLUSTER, {"tp": 2}, "is no training plan")],
)
def test_what_is_no_cluster_or_plan_is_named(call, cluster, plan, message) -> None:
    with pytest.raises(UsageError) as raised:
        call("gpt3-2.7b", cluster, plan)
    assert message in str(raised.value)


def test_a_search_fills_a_gpu_with_as_many_sequences_as_a_small_model_needs() -> None:
    """The batch of the search, and not that of the plan it starts from, says how many a micro batch may have."""
    cluster = pm.Cluster("h100", gpus=1)
    found = pm.search("gpt2", cluster, pm.TrainingPlan(batch=1, seq=1024), batch=[64])
    assert found.best[0].plan.micro_batch == 64
    one = pm.train("gpt2", cluster, pm.TrainingPlan(batch=64, seq=1024, micro_batch=1))
    assert found.best[0].step.time_s < 0.7 * one.time_s


def test_ranges_of_numpy_are_those_of_python() -> None:
    cluster, plan = pm.Cluster("h100", gpus=4), pm.TrainingPlan(batch=16, seq=1024)
    sizes = 2 ** np.arange(3)
    found = pm.search("gpt2", cluster, plan, tp=sizes[:1], pp=sizes[:1], micro_batch=sizes)  # type: ignore[arg-type]
    same = pm.search("gpt2", cluster, plan, tp=[1], pp=[1], micro_batch=[1, 2, 4])
    assert report(found).json_text() == report(same).json_text()


def test_rows_tell_plans_apart_that_share_out_each_expert_or_leave_it_whole() -> None:
    axes = {"tp": (2,), "pp": (1,), "cp": (1,), "ep": (4,), "micro_batch": (1,), "zero": (1,), "recompute": ("full",)}
    mixture, cluster = named_model("qwen3-30b-a3b"), Cluster.of(H100, 64)
    found = report(search(mixture, [cluster], PLAN, default_space(mixture, cluster, PLAN, **axes))).rows
    assert {row["etp"] for row in found} == {0, 1}
    assert all(("etp1" in row["plan"]) == (row["etp"] == 1) for row in found)


def test_values_of_a_range_may_be_any_that_a_loop_takes():
    def found(**ranges):
        held = {"tp": (2,), "pp": (1,), "cp": (1,), "vp": (1,), "micro_batch": (1,), "zero": (1,)}
        return [one.plan for one in pm.search("llama-3.1-8b", CLUSTER, PLAN, **{**held, **ranges}).best]

    assert found(tp=(size for size in (1, 2))) == found(tp=(1, 2))
    assert found(recompute=("selective-op", "none", "selective_op")) == found(recompute=("selective_op", "none"))
    assert found(workers=np.int64(1), top=np.int64(1)) == found(top=1)

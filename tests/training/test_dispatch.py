"""The host of a step: it is hidden behind long kernels, and sets the pace of short ones."""

import math
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfmodel as pm
from perfmodel.accuracy.run_table import read_run_table
from perfmodel.prediction.uncertainty import Z80
from perfmodel.training.constants import constants
from perfmodel.training.dispatch import Waits, layer_launches
from perfmodel.training.exchange import context_calls, tensor_calls
from perfmodel.training.layer import layer_work
from perfmodel.training.published_run import measured_time, read_run
from perfmodel.training.setup import setup_of
from perfmodel.training.step import train
from perfmodel.workloads.layer_kinds import Kind

GPT2 = pm.find_model("layers=12 hidden=768 heads=12 vocab=50304")


def _step(framework: str = "ddp-eager", seq: int = 128, machine: str = "h100", fitted=None, **sizes):
    plan = pm.TrainingPlan(**{"batch": 4, "micro_batch": 4, "seq": seq, "framework": framework, **sizes})
    return train(GPT2, pm.Cluster(machine, gpus=1), plan, fitted)


def test_a_gpu_waits_for_what_its_host_takes_beyond_its_own_work() -> None:
    waits = Waits(busy_s=3e-3, launch_s=50e-6, forward=40, backward=60)
    assert waits.dispatch_s == pytest.approx(5e-3)
    assert (waits.forward_s, waits.backward_s) == pytest.approx((0.8e-3, 1.2e-3))
    assert Waits(5e-3, 30e-6, 40, 60).at(1.0) == 0.0
    assert Waits(5e-3, 30e-6, 40, 60).at(2.0) == pytest.approx(1e-3)
    assert Waits(5e-3, 30e-6, 0, 0).forward_s == 0.0


def test_a_slow_host_reaches_further_than_a_fast_one_takes_away() -> None:
    """4 micro batches of 3 ms of GPU and 5 ms of host in 25 ms; hosts twice as fast or slow end at 17 and 45."""
    ends = Waits(3e-3, 50e-6, 50, 50).stretch(math.log(2.0) / Z80, 25e-3, 4)
    assert (math.exp(-ends.down), math.exp(ends.up)) == pytest.approx((17 / 25, 45 / 25))
    assert Waits(3e-3, 0.0, 50, 50).stretch(0.6, 25e-3, 4) == pytest.approx((0.0, 0.0))


def test_a_step_of_few_tokens_takes_as_long_as_its_host() -> None:
    """16 times the tokens cost nothing while the host sets the pace, and the more the GPU does."""
    fewest, few, many = (_step(seq=seq) for seq in (8, 128, 8192))
    assert few.time_s == pytest.approx(fewest.time_s, rel=0.02)
    assert few.terms_s["host"] > 0.5 * few.time_s
    assert "host" not in many.terms_s
    assert any("waits for its host" in note for note in few.notes)
    assert not any("host" in note for note in many.notes)
    assert few.high_s / few.low_s > 1.5 * many.high_s / many.low_s


def test_compiled_code_launches_faster_than_eager_code() -> None:
    compiled, eager = (_step(name) for name in ("ddp-compile", "ddp-eager"))
    assert compiled.time_s < 0.6 * eager.time_s
    of_compiled, of_eager = (next(note for note in one.notes if "its host" in note) for one in (compiled, eager))
    assert "the expected 19 us a kernel. Larger micro batches and CUDA graphs shorten it." in of_compiled
    assert "the expected 38 us a kernel. Larger micro batches, torch.compile and CUDA graphs shorten it." in of_eager


def test_what_is_computed_anew_is_launched_anew() -> None:
    assert _step(recompute="full").time_s > 1.1 * _step().time_s


def test_shared_out_weights_cost_the_host_more_than_whole_ones() -> None:
    cluster = pm.Cluster("h100", gpus=8)
    plans = (pm.TrainingPlan(batch=8, seq=128, framework="fsdp2-eager", zero=zero) for zero in (1, 3))
    whole, shared = (train(GPT2, cluster, plan).time_s for plan in plans)
    assert shared > 2.0 * whole


@pytest.mark.parametrize(("recompute", "again"), [("none", 0), ("full", 4 * 6)])
def test_adapters_have_kernels_of_their_own(recompute: str, again: int) -> None:
    """4 forward beside each of six matrices, which recomputation launches again, and 7 backward."""
    plan = pm.TrainingPlan(batch=4, micro_batch=4, seq=128, framework="ddp-eager", recompute=recompute)
    made = setup_of(GPT2, pm.Cluster("h100", gpus=1), plan)
    work = layer_work(made.hardware, made.config, made.shard, Kind())
    (forward, backward), (more, more_back) = (layer_launches(made, work, adapters) for adapters in (0, 6))
    assert (more - forward, more_back - backward) == pytest.approx((4 * 6, 7 * 6 + again))


def _made(framework: str, gpus: int = 8, **ranks):
    plan = pm.TrainingPlan(batch=8, micro_batch=1, seq=256, framework=framework, **ranks)
    made = setup_of(GPT2, pm.Cluster("h100", gpus=gpus), plan)
    return made, layer_work(made.hardware, made.config, made.shard, Kind())


@pytest.mark.parametrize(
    ("ranks", "forward", "backward"),
    [
        ({"tp": 1}, {}, {}),
        ({"tp": 4, "sp": False}, {"all_reduce": 2}, {"all_reduce": 2}),
        ({"tp": 4, "sp": True}, {"all_gather": 2, "reduce_scatter": 2}, {"all_gather": 4, "reduce_scatter": 2}),
    ],
)
def test_each_tensor_parallel_exchange_is_a_call(
    ranks: dict[str, int], forward: dict[str, int], backward: dict[str, int]
) -> None:
    """Attention and MLP: two sums a pass, or a gather and a scatter of each, and backward both inputs once more."""
    made, work = _made("megatron-te", **ranks)
    assert tensor_calls(made.shard, work, overlap=False) == (forward, backward)


def test_user_buffers_need_no_calls_of_a_process_group() -> None:
    made, work = _made("megatron-te", tp=4, sp=True)
    assert tensor_calls(made.shard, work, overlap=True) == ({}, {})


@pytest.mark.parametrize(
    ("algorithm", "calls"), [("zigzag", ({"send": 3}, {"send": 6})), ("ulysses", ({"alltoall": 4}, {"alltoall": 4}))]
)
def test_each_context_parallel_exchange_is_a_call(algorithm: str, calls: tuple[dict[str, int], ...]) -> None:
    made, _ = _made("megatron-te", cp=4, cp_algorithm=algorithm)
    assert context_calls(made.shard) == calls
    alone, _ = _made("megatron-te")
    assert context_calls(alone.shard) == ({}, {})


@pytest.mark.parametrize("framework", ["fsdp2-eager", "fsdp2-compile"])
def test_a_call_takes_as_long_from_compiled_code(framework: str) -> None:
    """Two all-reduces of 89 us forward, whatever a kernel takes."""
    (one, work), (other, _) = (_made(framework, zero=1, sp=False, tp=tp) for tp in (1, 4))
    added = layer_launches(other, work, 0)[0] - layer_launches(one, work, 0)[0]
    assert added * one.dispatch_s == pytest.approx(2 * 89e-6, rel=0.03)


def test_modules_of_transformer_engine_take_the_host_longer_than_those_of_pytorch() -> None:
    """By 1.7 more for each kernel of a layer, not for what its code launches beside them."""
    (engine, work), (torch, _) = (_made(name, gpus=1) for name in ("megatron-te", "ddp-eager"))
    apart = [
        ours - theirs for ours, theirs in zip(*(layer_launches(one, work, 2) for one in (engine, torch)), strict=True)
    ]
    assert apart == pytest.approx([1.7 * work.kernels, 1.7 * work.kernels_backward])


def test_one_code_on_servers_differs_less_than_any_code() -> None:
    engine, any_code = (_made(name)[0].dispatch_deviation for name in ("megatron-te", "ddp-eager"))
    assert engine < any_code == constants().dispatch_deviation


def test_more_tensor_parallel_ranks_do_not_make_a_host_faster() -> None:
    """Qwen3 8B in Megatron-Bridge: 16 and 32 micro batches took 163 and 158 ms each with 4 and 8 ranks."""
    table = read_run_table(Path(__file__).resolve().parents[2] / "examples" / "published" / "training.csv")
    rows = {run.text("id"): run for run in table.runs}
    for row in (
        "nebius_qwen3_h100-008",
        "nebius_qwen3_h100-009",
        "nebius_qwen3_h100-011",
        "megatron_tutorials_h100-005",
    ):
        published = read_run(rows[row], pm.hardware)
        assert 0.8 < published.step().time_s / measured_time(rows[row]) < 1.05
        never = published.step(msgspec.structs.replace(constants(), dispatch_s=0.0))
        assert never.time_s / measured_time(rows[row]) < 0.8


def test_small_steps_of_adapters_take_longer_than_of_every_weight() -> None:
    """A host that launches all kernels of adapters as well has more to do; many tokens hide it."""
    few, many = ([_step(seq=seq, recompute="full", lora=rank) for rank in (0, 8)] for seq in (64, 8192))
    assert few[1].time_s > 1.2 * few[0].time_s
    assert "host" not in many[1].terms_s


def test_graphs_of_whole_iterations_have_no_dispatch() -> None:
    launched, in_a_graph = (
        train(GPT2, pm.Cluster("gb200", gpus=1), pm.TrainingPlan(batch=4, seq=128, framework=name))
        for name in ("megatron-te", "megatron-bridge-26.06")
    )
    assert "host" in launched.terms_s
    assert "host" not in in_a_graph.terms_s


def test_a_faster_machine_does_not_shorten_what_the_host_takes() -> None:
    """The optimizer ends the step on the GPU; before it, both machines wait for the same host."""
    slow, fast = (_step(machine=name, seq=32, optimizer="none") for name in ("a100", "h200"))
    assert fast.time_s == pytest.approx(slow.time_s)


@given(seq=st.integers(16, 4096), factor=st.floats(1.0, 8.0))
def test_a_slower_host_never_makes_a_step_faster(seq: int, factor: float) -> None:
    fixed = constants()
    slower = msgspec.structs.replace(fixed, dispatch_s=factor * fixed.dispatch_s)
    usual, late = _step(seq=seq), _step(seq=seq, fitted=slower)
    assert late.time_s >= usual.time_s
    assert late.time_s <= factor * usual.time_s
    assert usual.low_s < usual.time_s < usual.high_s
    assert sum(late.terms_s.values()) == pytest.approx(late.time_s)


def test_the_wait_is_part_of_the_passes_that_a_pipeline_waits_for() -> None:
    plan = pm.TrainingPlan(batch=16, seq=64, pp=4, framework="megatron-te")
    step = train(GPT2, pm.Cluster("h100", gpus=4), plan)
    fixed = constants()
    never = train(GPT2, step.cluster, plan, msgspec.structs.replace(fixed, dispatch_s=0.0))
    assert step.terms_s["bubble"] > 2.0 * never.terms_s["bubble"]
    assert max(step.stage_forward_s) > 2.0 * max(never.stage_forward_s)


def test_runs_of_few_tokens_are_near_their_prediction() -> None:
    """Two H100 and an RTX 5090, in code of two students, by a constant that was set without them."""
    table = read_run_table(Path(__file__).resolve().parents[2] / "examples" / "published" / "training.csv")
    # without the host: modules written out launch kernels that take longer, counted since (engine_specs/training/cs336)
    alone = {"cs336_snider_h100-004": 0.7, "llm_from_scratch_5090-002": 0.6}
    waiting = [run for run in table.runs if run.text("id") in alone]
    assert len(waiting) == 2
    for run in waiting:
        published = read_run(run, pm.hardware)
        with_host = published.step().time_s / measured_time(run)
        fixed = published.step(msgspec.structs.replace(constants(), dispatch_s=0.0))
        assert 0.65 < with_host < 1.1
        assert fixed.time_s / measured_time(run) < min(alone[run.text("id")], 0.8 * with_host)

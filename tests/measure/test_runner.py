"""Runs on a scripted device: plans, statuses, interrupts, rows and their arithmetic."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from perfmodel.analysis.predict import predict  # noqa: E402
from perfmodel.core.hardware import Launch  # noqa: E402
from perfmodel.errors import UsageError  # noqa: E402
from perfmodel.kernels.registry import Kernel, find_kernels  # noqa: E402
from perfmodel.measure import runner  # noqa: E402
from perfmodel.measure.findings import findings  # noqa: E402
from perfmodel.measure.rows import bench_columns, faster_than_bound  # noqa: E402
from perfmodel.measure.runner import Job, Settings, collect, plan, points, run  # noqa: E402
from perfmodel.measure.stopping import StandardErrorRule  # noqa: E402
from perfmodel.operators.attention import Attention  # noqa: E402
from perfmodel.operators.elementwise import Elementwise  # noqa: E402
from perfmodel.operators.gemm import Gemm  # noqa: E402
from perfmodel.operators.layer_norm import LayerNorm  # noqa: E402
from perfmodel.operators.reduction import Reduction  # noqa: E402
from perfmodel.operators.softmax import Softmax  # noqa: E402

FEW = Settings(rule=StandardErrorRule(max_samples=12))


@pytest.fixture
def machine(simple_gpu):
    """The round machine without a launch floor: 10 TFLOP/s fp32, 1 TB/s, 4 TB/s in an L2 of 10 MB."""
    return dataclasses.replace(simple_gpu, launch=Launch(overhead_s=2e-6))


def _job(machine, function, op=None, **kernel):
    op = op or Elementwise(numel=1000, kind="relu")
    made = Kernel("test", op.op, "test", lambda op, inputs: lambda: function(inputs), **kernel)
    return Job(op, made, predict(op, machine))


def _relu(inputs):
    return torch.relu(inputs["x"][0])


def test_plan_runs_each_kernel_of_each_point(machine):
    jobs = plan([Gemm(m=np.array([64.0, 128.0]), n=64, k=512, dtype="fp32")], machine)
    assert [(job.op.m, job.kernel.name) for job in jobs] == [
        (64, "torch.matmul"), (64, "naive"), (128, "torch.matmul"), (128, "naive"),
    ]  # fmt: skip


def test_plan_keeps_only_the_named_kernels_and_refuses_unknown_names(machine):
    ops = [LayerNorm(rows=8, cols=8)]
    assert [job.kernel.name for job in plan(ops, machine, ["naive"])] == ["naive"]
    assert [job.kernel.name for job in plan(ops, machine, ["F.*"])] == ["F.layer_norm"]
    with pytest.raises(UsageError, match=r"Did you mean 'naive'\?"):
        plan(ops, machine, ["naiv"])


def test_plan_refuses_a_dtype_that_the_machine_lacks(machine):
    with pytest.raises(UsageError, match="no peak for dtype 'bf16'"):
        plan([Gemm(m=8, n=8, k=8, dtype="bf16")], machine)
    kept, reasons = runner.split_by_peak([Gemm(m=8, n=8, k=8, dtype="bf16"), LayerNorm(rows=8, cols=8)], machine)
    assert [op.op for op in kept] == ["layer_norm"]
    assert "bf16" in reasons[0]


@given(
    st.lists(st.integers(1, 2**40), min_size=1, max_size=4),
    st.sampled_from(["fp32", "fp16"]),
    st.booleans(),
)
def test_points_of_a_range_count_the_same_work_as_the_range(sizes, dtype, bias):
    op = Gemm(m=np.asarray(sizes, dtype=float), n=8, k=4, bias=bias, dtype=dtype, name="label", count=3)
    made = points(op)
    assert [point.work().flop for point in made] == op.work().flop.tolist()
    assert [point.work().bytes for point in made] == op.work().bytes.tolist()
    assert all((point.name, point.count, point.told()) == ("label", 3, op.told()) for point in made)


def test_points_keep_what_is_derived_derived():
    made = points(Attention(heads=np.array([2.0, 4.0]), seq_q=8, head_dim=8))
    assert [point.kv_heads for point in made] == [2, 4]
    assert "kv_heads" not in made[0].told()


def test_ok_row_has_the_keys_of_the_contract(machine, scripted):
    (row,) = run([_job(machine, _relu)], scripted([1e-3]), machine, FEW)
    assert row["status"] == "ok"
    assert row["correct"] is True
    assert set(row["time_s"]) == {"median", "mean", "stdev", "min", "max", "p05", "p95", "samples"}
    assert {column.key for column in bench_columns()} >= row.keys() - {"params", "dimensions"}
    assert row["stop_reason"] == "converged"


def test_row_arithmetic_by_hand(machine, scripted):
    # copy of 1e6 fp32: 8 MB at 1 TB/s is 8 us; measured 16 us is half of it
    op = Elementwise(numel=10**6, kind="copy")
    (row,) = run([_job(machine, lambda inputs: inputs["x"][0].clone(), op)], scripted([16e-6]), machine, FEW)
    assert row["bound_time_s"] == pytest.approx(8e-6)
    assert row["achieved_bytes_per_s"] == pytest.approx(5e11)
    assert row["achieved_flop_per_s"] == 0
    assert row["efficiency"] == row["utilization"] == pytest.approx(0.5)
    assert row["efficiency_text"] == "50.0 %"
    assert row["prediction_error"] == pytest.approx(row["predicted_time_s"] / 16e-6 - 1)
    assert row["faster_than_bound"] is False


def test_launch_bound_row_is_efficient_but_uses_little(simple_gpu, scripted):
    # 8 KB take 8 ns of the 1 us floor: at 2 us half of the attainable, and 0.4 % of the bandwidth
    op = Elementwise(numel=1000, kind="copy")
    (row,) = run([_job(simple_gpu, lambda i: i["x"][0].clone(), op)], scripted([2e-6]), simple_gpu, FEW)
    assert row["efficiency"] == pytest.approx(0.5)
    assert row["utilization"] == pytest.approx(8e-9 / 2e-6)
    assert row["advice"].startswith("launch-bound")


def test_wrong_kernel_has_a_status_and_no_numbers(machine, scripted):
    (row,) = run([_job(machine, lambda inputs: inputs["x"][0] * 1.01)], scripted(), machine, FEW)
    assert (row["status"], row["correct"]) == ("wrong", False)
    assert row["max_relative_error"] > 0
    assert row["time_s"] is row["efficiency"] is row["achieved_bytes_per_s"] is row["prediction_error"] is None


def test_failures_are_rows_and_the_others_still_run(machine, scripted):
    def out_of_memory(inputs):
        raise MemoryError("no room")

    def broken(inputs):
        raise ValueError("first line\nsecond line")

    jobs = [
        _job(machine, out_of_memory),
        _job(machine, broken),
        _job(machine, _relu, supports=lambda op, device: "not here"),
        Job(Softmax(rows=2, cols=2), None, predict(Softmax(rows=2, cols=2), machine)),
        _job(machine, _relu),
    ]
    device = scripted()
    rows = list(run(jobs, device, machine, FEW))
    assert [(row["status"], row["reason"]) for row in rows] == [
        ("out of memory", "no room"),
        ("failed", "ValueError: first line"),
        ("skipped", "not here"),
        ("skipped", "there is no kernel for softmax yet"),
        ("ok", ""),
    ]
    assert device.log.count("release") == 2
    said = findings(rows)
    assert any("out of memory: no room" in sentence for sentence in said)


def test_a_shape_that_cannot_fit_is_not_even_tried(machine, scripted):
    def never(inputs):
        raise AssertionError("was run")

    op = Elementwise(numel=2**50, kind="relu")
    (row,) = run([_job(machine, never, op)], scripted(free_bytes=2**30), machine, FEW)
    assert row["status"] == "out of memory"
    assert row["reason"] == "it needs 8192 TiB, and 1 GiB are free"


def test_workspace_counts_towards_what_must_fit(machine, scripted):
    jobs = [_job(machine, _relu, workspace_bytes=lambda op: 1e9), _job(machine, _relu)]
    rows = run(jobs, scripted(free_bytes=1e9), machine, FEW)
    assert [row["status"] for row in rows] == ["out of memory", "ok"]


def test_interrupt_keeps_the_rows_before_it(machine, scripted):
    def interrupt(inputs):
        raise KeyboardInterrupt

    seen = []
    jobs = [_job(machine, _relu), _job(machine, interrupt), _job(machine, _relu)]
    rows, interrupted = collect(run(jobs, scripted(), machine, FEW), lambda done: seen.append(len(done)))
    assert interrupted
    assert len(rows) == 1
    assert seen == [1]


def test_kernels_of_one_operator_share_their_inputs(machine, scripted, monkeypatch):
    from perfmodel.kernels import inputs as made

    calls = []
    real = made.make_inputs
    monkeypatch.setattr(made, "make_inputs", lambda *args: calls.append(1) or real(*args))
    jobs = plan([LayerNorm(rows=4, cols=8), LayerNorm(rows=5, cols=8)], machine)
    assert {row["status"] for row in run(jobs, scripted(), machine, FEW)} == {"ok"}
    assert len(jobs) == 4
    assert len(calls) == 2


def test_naive_attention_names_its_own_bound(machine, scripted):
    jobs = plan([Attention(heads=1, seq_q=64, head_dim=16, dtype="fp32", causal=True)], machine)
    library, naive = run(jobs, scripted(), machine, FEW)
    assert library["own_bound_time_s"] is None
    assert naive["own_bound_time_s"] > naive["bound_time_s"] == library["bound_time_s"]
    assert find_kernels("attention")[1].own_operator is not None


def test_findings_say_what_fusion_gains(machine, scripted):
    jobs = plan([LayerNorm(rows=4, cols=8)], machine)
    times = [1e-3] * 10 + [3e-3] * 10
    said = findings(list(run(jobs, scripted(times), machine, FEW)))
    assert any("layer_norm: the naive composition takes 3.00 x" in sentence for sentence in said)


def _note(op, machine, factor, cache="flushed", telemetry=None):
    prediction = predict(op, machine)
    return faster_than_bound(prediction, float(prediction.bound_time_s) / factor, machine, cache, telemetry or {})


def test_faster_than_its_bound_is_said_loudly_and_never_as_a_percentage(machine, scripted):
    op = Elementwise(numel=10**6, kind="copy")
    (row,) = run([_job(machine, lambda i: i["x"][0].clone(), op)], scripted([6e-6]), machine, FEW)
    assert row["faster_than_bound"] is True
    assert row["efficiency"] == pytest.approx(8 / 6), "the number stays in the data"
    assert row["efficiency_text"] == "faster than the bound"
    assert "%" not in row["efficiency_text"] + row["note"]
    assert row["note"].startswith("faster than the bound: 6 us against 8 us (1.33x). Likely: ")
    assert row["note"] in " ".join(findings([row]))


def test_reasons_follow_the_facts(machine):
    small = Elementwise(numel=10**6, kind="copy")
    medium, large = (Elementwise(numel=numel, kind="copy") for numel in (10**7, 10**8))
    product = Gemm(m=4096, n=4096, k=4096, dtype="fp16")
    assert "fit the l2 of 9.537 MiB and lay there (--cache warm)" in _note(small, machine, 2, "warm")
    assert "stays there when the clock stops" in _note(small, machine, 2, "flushed")
    assert "9.537 MiB of its 76.29 MiB may still lie in the l2" in _note(medium, machine, 1.1)
    reading = Reduction(rows=10, cols=10**7)
    assert "may still lie" not in _note(reading, machine, 1.1), "40 B written cannot explain a tenth of 400 MB"
    assert "bandwidth of 1 TB/s in the spec is too low" in _note(large, machine, 1.1)
    assert "noise" in _note(large, machine, 1.01)
    assert "noise" not in _note(large, machine, 1.1)
    assert "fp16 peak of the tensor engine" in _note(product, machine, 1.2)
    clocked = dataclasses.replace(machine, peaks=(dataclasses.replace(machine.peaks[0], clock_hz=1.4e9),))
    assert "it ran at 1.9 GHz" in _note(product, clocked, 1.2, telemetry={"sm_clock_hz": 1.9e9})
    own_measure = dataclasses.replace(machine, kind="cpu")
    assert "is itself a measurement" in _note(large, own_measure, 1.1)


def test_launch_floor_that_is_beaten_is_blamed_itself(simple_gpu):
    assert "launch floor in the spec of simple is too high" in _note(Elementwise(numel=10), simple_gpu, 1.5)


def test_settings_refuse_an_unknown_cache_mode_and_limits_that_are_none():
    with pytest.raises(UsageError, match="flushed"):
        Settings(cache="flushd")
    for limit in (0, -1, math.inf, math.nan):
        with pytest.raises(UsageError, match="not positive"):
            runner.with_time_limit(StandardErrorRule(), limit)

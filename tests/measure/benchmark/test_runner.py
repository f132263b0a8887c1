"""Runs on a scripted device: plans, statuses, interrupts, rows and their arithmetic."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from perfmodel.core.hardware import Launch  # noqa: E402
from perfmodel.errors import UnavailableError, UsageError  # noqa: E402
from perfmodel.kernels.registry import Kernel  # noqa: E402
from perfmodel.measure.benchmark import runner  # noqa: E402
from perfmodel.measure.benchmark.findings import findings  # noqa: E402
from perfmodel.measure.benchmark.rows import bench_columns, faster_than_bound  # noqa: E402
from perfmodel.measure.benchmark.runner import Job, Settings, collect, plan, points, run  # noqa: E402
from perfmodel.measure.timing.stopping_rule import StandardErrorRule  # noqa: E402
from perfmodel.operators.attention import Attention  # noqa: E402
from perfmodel.operators.elementwise import Elementwise  # noqa: E402
from perfmodel.operators.gemm import Gemm  # noqa: E402
from perfmodel.operators.layer_norm import LayerNorm  # noqa: E402
from perfmodel.operators.reduction import Reduction  # noqa: E402
from perfmodel.operators.softmax import Softmax  # noqa: E402
from perfmodel.prediction.predict import predict  # noqa: E402

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
    jobs = plan([Gemm(m=np.array([64.0, 128.0]), n=64, k=512, dtype="fp32")], machine, ["torch.matmul", "naive"])
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
    assert all((point.name, point.count, point.given()) == ("label", 3, op.given()) for point in made)


def test_points_keep_what_is_derived_derived():
    made = points(Attention(heads=np.array([2.0, 4.0]), seq_q=8, head_dim=8))
    assert [point.kv_heads for point in made] == [2, 4]
    assert "kv_heads" not in made[0].given()


def test_ok_row_has_the_keys_of_the_contract(machine, scripted):
    (row,) = run([_job(machine, _relu)], scripted([1e-3]), machine, FEW)
    assert row["status"] == "ok"
    assert row["correct"] is True
    assert {"median", "mean", "stdev", "min", "max", "p05", "p25", "p75", "p95", "samples"} <= row["time_s"].keys()
    assert {"median_low", "median_high", "relative_standard_error"} <= row["time_s"].keys()
    assert {column.key for column in bench_columns()} >= row.keys() - {"params", "dimensions"}
    assert (row["backend"], row["implementation"], row["timing"]) == ("test", "test-test", "kernel")
    assert (row["calls_per_sample"], row["discarded"], row["flags"]) == (1, {}, "")
    assert "samples_s" not in row
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
    rows, stopped = collect(run(jobs, scripted(), machine, FEW), lambda done: seen.append(len(done)))
    assert isinstance(stopped, KeyboardInterrupt)
    assert len(rows) == 1
    assert seen == [1]


def test_kernels_of_one_operator_share_their_inputs(machine, scripted, monkeypatch):
    from perfmodel.kernels import inputs as made

    calls = []
    real = made.make_inputs
    monkeypatch.setattr(made, "make_inputs", lambda *args: calls.append(1) or real(*args))
    jobs = plan([LayerNorm(rows=4, cols=8), LayerNorm(rows=5, cols=8)], machine, ["F.layer_norm", "naive"])
    assert {row["status"] for row in run(jobs, scripted(), machine, FEW)} == {"ok"}
    assert len(jobs) == 4
    assert len(calls) == 2


def test_a_kernel_with_more_traffic_names_its_own_bound(machine, scripted):
    # the copy of 8 KB is 8 ns at 1 TB/s; a kernel that writes it twice over has 16 KB to move
    op = Elementwise(numel=1000, kind="copy")
    twice = lambda op: Elementwise(numel=2000, kind="copy")  # noqa: E731
    job = _job(machine, lambda inputs: inputs["x"][0].clone(), op, own_operator=twice)
    (row,) = run([job], scripted(), machine, FEW)
    assert row["own_bound_time_s"] == pytest.approx(16e-9)
    assert row["bound_time_s"] == pytest.approx(8e-9)


def test_a_composition_is_predicted_as_the_sum_of_its_parts(machine, scripted):
    op = Elementwise(numel=10**6, kind="relu")
    part = Elementwise(numel=10**6, kind="copy", count=3)
    parts = (part, Elementwise(numel=10**7, kind="copy"))
    jobs = [_job(machine, _relu, op), _job(machine, _relu, op, composition=lambda op: parts)]
    whole, composed = run(jobs, scripted([1e-3] * 11 + [4e-3] * 11), machine, FEW)
    first, second = (predict(one, machine, library="test") for one in parts)
    assert composed["composition_time_s"] == pytest.approx(3 * first.predicted_time_s + second.predicted_time_s)
    low = 3 * first.predicted_time_low_s + second.predicted_time_low_s
    assert composed["composition_time_low_s"] == pytest.approx(low)
    assert composed["composition_time_low_s"] < composed["composition_time_s"] < composed["composition_time_high_s"]
    assert whole["composition_time_s"] is None


def test_findings_set_compositions_beside_what_the_model_expects():
    row = dict.fromkeys(("note", "discarded", "time_s", "composition_time_s"), None)
    row |= {"op": "layer_norm", "name": "layer_norm", "dimensions": "rows=4", "dtype": "fp32", "status": "ok"}
    row |= {"prediction_error": 0.1, "predicted_time_s": 1e-3}
    library = {**row, "kernel": "library", "measured_time_s": 2e-3}
    expected = {"composition_time_s": 4e-3, "composition_time_low_s": 2.5e-3, "composition_time_high_s": 6e-3}
    naive = {**row, "kernel": "naive", "measured_time_s": 6e-3, **expected}
    said = findings([library, naive])
    # measured 6 ms / 2 ms; expected 4 ms / 1 ms, from 2.5 to 6
    assert (
        "layer_norm: naive, a composition, takes 3.00 x the time of library (median of 1 shape); "
        "the model expects 4.00 x (2.50 to 6.00), which holds for 1 of 1"
    ) in said
    assert any(
        sentence.startswith("prediction error, library kernels") and "10 % (+10 %)" in sentence for sentence in said
    )
    outside = {**naive, "measured_time_s": 14e-3}
    assert any("holds for 0 of 1" in sentence for sentence in findings([library, outside]))


def test_rows_without_a_time_are_told_once_a_reason():
    row = {"op": "gemm", "name": "gemm", "dimensions": "m=1", "dtype": "fp32", "kernel": "fast", "note": None}
    row |= {"status": "skipped", "reason": "needs a GPU", "time_s": None}
    assert findings([row, row, {**row, "kernel": "other"}]) == (
        "gemm fast, 2 shapes: skipped: needs a GPU",
        "gemm m=1 fp32 other: skipped: needs a GPU",
    )


def test_samples_that_did_not_count_are_told(machine, scripted):
    device = scripted(late=[False, True, True, False])
    (row,) = run([_job(machine, _relu)], device, machine, Settings(rule=StandardErrorRule(0.0, 2, 2)))
    assert row["discarded"] == {"host late": row["discarded"]["host late"]}
    assert any("did not count: " in sentence and "host late" in sentence for sentence in findings([row]))


def test_raw_samples_on_request(machine, scripted):
    settings = Settings(rule=StandardErrorRule(0.0, 3, 3), keep_samples=True)
    (row,) = run([_job(machine, _relu)], scripted([9.0, 1e-3, 2e-3, 3e-3]), machine, settings)
    assert row["samples_s"] == [1e-3, 2e-3, 3e-3]


def test_a_host_that_is_always_late_is_predicted_with_its_dispatch(machine, scripted):
    (row,) = run([_job(machine, _relu)], scripted(late=[True]), machine, FEW)
    assert row["timing"] == "event"
    seen = predict(Elementwise(numel=1000, kind="relu"), machine, timing="event", library="test")
    assert row["predicted_time_s"] == seen.predicted_time_s
    assert "dispatch" in row["note"]


def test_faster_than_the_memory_is_flagged(machine, scripted):
    # 8 MB in 6 us are 1.33 TB/s, above the machine's 1 TB/s
    op = Elementwise(numel=10**6, kind="copy")
    (row,) = run([_job(machine, lambda i: i["x"][0].clone(), op)], scripted([6e-6]), machine, FEW)
    assert row["flags"] == "faster_than_dram"


def test_slow_compilers_run_only_when_named(machine, monkeypatch):
    quick = Kernel("quick", "elementwise", "test", lambda op, inputs: None)
    slow = dataclasses.replace(quick, name="compiled", compiles=True)
    monkeypatch.setattr(runner, "find_kernels", lambda op: [quick, slow])
    ops = [Elementwise(numel=8)]

    def names(*arguments):
        return [job.kernel.name for job in plan(ops, machine, *arguments)]

    assert names() == ["quick"]
    assert names(["comp*"]) == ["compiled"]


def test_kernels_that_the_device_cannot_run_are_left_out_where_another_can(machine, scripted):
    op, other = Elementwise(numel=1000, kind="relu"), Elementwise(numel=500, kind="relu")
    refuses = {"supports": lambda op, device: "needs a GPU"}
    jobs = [_job(machine, _relu, op), _job(machine, _relu, op, **refuses), _job(machine, _relu, other, **refuses)]
    kept, left_out = runner.split_supported(jobs, scripted())
    assert kept == [jobs[0], jobs[2]], "an operator that nothing can run keeps its row"
    assert left_out == ["left out test: needs a GPU"]


def test_a_function_of_the_users_runs_alone_or_beside_named_kernels(machine, scripted, tmp_path, monkeypatch):
    (tmp_path / "my_kernels.py").write_text(
        "import torch\ndef product(a, b):\n    return torch.matmul(a, b)\ndef wrong(a):\n    return a\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    ops = [Gemm(m=8, n=8, k=8, dtype="fp32")]
    (job,) = plan(ops, machine, ["my_kernels:product"])
    (row,) = run([job], scripted(), machine, FEW)
    assert (row["status"], row["kernel"], row["backend"]) == ("ok", "my_kernels:product", "user")
    assert [job.kernel.name for job in plan(ops, machine, ["my_kernels:product", "torch.matmul"])] == [
        "my_kernels:product", "torch.matmul",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="does not take the inputs"):
        list(run(plan(ops, machine, ["my_kernels:wrong"]), scripted(), machine, FEW))


def test_sustained_series_of_a_row(machine, scripted):
    settings = dataclasses.replace(FEW, sustain_s=0.02)
    (row,) = run([_job(machine, _relu)], scripted(), machine, settings)
    series = row["sustain"]
    assert series["rate_unit"] == "B/s"
    # 1000 elements of 4 B, read and written; 50 calls of 1 ms make a batch, which the script says takes 1 ms
    assert series["rate"] == [pytest.approx(50 * 8e6)] * len(series["time_s"])
    assert series["sm_clock_hz"] == []


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
    assert "it ran at 1.9 GHz" in _note(product, clocked, 1.2, telemetry={"sm_clock_hz": {"median": 1.9e9}})
    own_measure = dataclasses.replace(machine, kind="cpu")
    assert "is itself a measurement" in _note(large, own_measure, 1.1)


def test_launch_floor_that_is_beaten_is_blamed_itself(simple_gpu):
    assert "launch floor in the spec of simple is too high" in _note(Elementwise(numel=10), simple_gpu, 1.5)


def test_a_kernel_that_breaks_the_device_ends_the_run_behind_its_row(machine, scripted):
    device = scripted()
    working = device.synchronize

    def broken(inputs):
        device.synchronize = refuse
        raise RuntimeError("an illegal memory access was encountered")

    def refuse():
        raise RuntimeError("CUDA error: an illegal memory access\nmore lines")

    jobs = [_job(machine, _relu), _job(machine, broken), _job(machine, _relu)]
    rows, stopped = collect(run(jobs, device, machine, FEW), lambda done: None)
    assert [row["status"] for row in rows] == ["ok", "failed"], "the third is not blamed for the second"
    assert isinstance(stopped, UnavailableError)
    assert "since elementwise test ran on it: CUDA error: an illegal memory access." in str(stopped)
    device.synchronize = working
    jobs = [_job(machine, lambda inputs: 1 / 0), _job(machine, _relu)]
    rows, stopped = collect(run(jobs, device, machine, FEW), lambda done: None)
    assert ([row["status"] for row in rows], stopped) == (["failed", "ok"], None)


def test_a_function_that_calls_exit_has_failed_and_ends_nothing(machine, scripted):
    def leaves(inputs):
        raise SystemExit(3)

    rows = list(run([_job(machine, leaves), _job(machine, _relu)], scripted(), machine, FEW))
    assert [(row["status"], row["reason"]) for row in rows] == [("failed", "SystemExit: 3"), ("ok", "")]

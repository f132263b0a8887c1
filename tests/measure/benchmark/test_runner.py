"""Runs on a scripted device: statuses, interrupts, rows and their arithmetic."""

from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch")

from perfmodel.core.hardware import Launch  # noqa: E402
from perfmodel.errors import UnavailableError, UsageError  # noqa: E402
from perfmodel.kernels.registry import Kernel  # noqa: E402
from perfmodel.measure.benchmark.findings import findings  # noqa: E402
from perfmodel.measure.benchmark.jobs import (  # noqa: E402
    Job,
    plan,
)
from perfmodel.measure.benchmark.runner import Pace, collect, run  # noqa: E402
from perfmodel.measure.benchmark.settings import BenchSettings  # noqa: E402
from perfmodel.measure.timing.stopping_rule import StandardErrorRule  # noqa: E402
from perfmodel.operators.elementwise import Elementwise  # noqa: E402
from perfmodel.operators.gemm import Gemm  # noqa: E402
from perfmodel.operators.layer_norm import LayerNorm  # noqa: E402
from perfmodel.operators.sampling import Sampling  # noqa: E402
from perfmodel.operators.softmax import Softmax  # noqa: E402
from perfmodel.prediction.predict import predict, predict_piece  # noqa: E402
from perfmodel.records.report import bench_columns  # noqa: E402

FEW = BenchSettings(rule=StandardErrorRule(max_samples=12))


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
        ("skipped", "there is no kernel for softmax with dtype=fp32"),
        ("ok", ""),
    ]
    assert device.log.count("release") >= 2, "memory is handed back after each failure"
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
    together = predict_piece(op, machine, predict(op, machine, library="test").conditions, parts)
    assert composed["composition_time_low_s"] == together.predicted_time_low_s
    assert composed["composition_time_high_s"] == together.predicted_time_high_s
    assert composed["composition_time_low_s"] < composed["composition_time_s"] < composed["composition_time_high_s"]
    assert whole["composition_time_s"] is None


def test_discarded_samples_are_counted(machine, scripted):
    device = scripted(late=[False, True, True, False])
    (row,) = run([_job(machine, _relu)], device, machine, BenchSettings(rule=StandardErrorRule(0.0, 2, 2)))
    assert row["discarded"] == {"host late": row["discarded"]["host late"]}
    assert any("samples discarded: " in sentence and "host late" in sentence for sentence in findings([row]))


def test_raw_samples_on_request(machine, scripted):
    settings = BenchSettings(rule=StandardErrorRule(0.0, 3, 3), keep_samples=True)
    (row,) = run([_job(machine, _relu)], scripted([9.0, 1e-3, 2e-3, 3e-3]), machine, settings)
    assert row["samples_s"] == [1e-3, 2e-3, 3e-3]


def test_a_host_that_is_always_late_is_predicted_with_its_dispatch(machine, scripted):
    (row,) = run([_job(machine, _relu)], scripted(late=[True]), machine, FEW)
    assert row["timing"] == "event"
    expected = predict(Elementwise(numel=1000, kind="relu"), machine, timing="event")
    assert row["predicted_time_s"] == expected.predicted_time_s
    assert "dispatch" in row["note"]


def test_a_single_call_between_events_is_predicted_with_them(machine, scripted, monkeypatch):
    monkeypatch.setattr(BenchSettings, "check_for", lambda *_: None)  # refuses CPUs
    settings = BenchSettings(rule=StandardErrorRule(0.0, 2, 2), timing="do_bench")
    (row,) = run([_job(machine, _relu)], scripted(), machine, settings)
    assert row["timing"] == "do_bench"
    expected = predict(Elementwise(numel=1000, kind="relu"), machine, timing="do_bench", library="test")
    assert row["predicted_time_s"] == expected.predicted_time_s


def test_faster_than_the_memory_is_flagged(machine, scripted):
    # 8 MB in 6 us are 1.33 TB/s, above the machine's 1 TB/s
    op = Elementwise(numel=10**6, kind="copy")
    (row,) = run([_job(machine, lambda i: i["x"][0].clone(), op)], scripted([6e-6]), machine, FEW)
    assert row["flags"] == "faster_than_dram"


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


def test_a_measurement_faster_than_its_bound_is_flagged(machine, scripted):
    op = Elementwise(numel=10**6, kind="copy")
    (row,) = run([_job(machine, lambda i: i["x"][0].clone(), op)], scripted([6e-6]), machine, FEW)
    assert row["faster_than_bound"] is True
    assert row["efficiency"] == pytest.approx(8 / 6), "the number stays in the data"
    assert "%" not in row["note"]
    assert row["note"].startswith("faster than the bound: 6 us against 8 us (1.33x). Likely: ")
    assert row["note"] in " ".join(findings([row]))


def test_a_kernel_that_breaks_the_device_ends_the_run_after_its_row(machine, scripted):
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


def test_an_operator_without_a_kernel_for_its_algorithm_says_so(machine, scripted):
    op = Sampling(rows=2, vocab=16, algorithm="gumbel_fused")
    (row,) = run([Job(op, None, predict(op, machine))], scripted(), machine, FEW)
    assert row["status"] == "skipped"
    assert "no kernel for sampling with dtype=fp32 algorithm=gumbel_fused" in row["reason"]


def test_what_takes_long_is_called_now_and_then():
    now, called = [0.0], []

    def write():
        called.append(now[0])
        now[0] += 0.1 * len(called)  # it takes longer each time

    pace = Pace(0.05, lambda: now[0])
    for _ in range(1000):
        pace.call(write)
        now[0] += 0.1
    assert called[0] == 0.0, "the first row is written at once"
    # a call of 0.1 s is followed by 2 s without one, one of 0.2 s by 4 s
    assert called[1] == pytest.approx(2.1, abs=0.11)
    assert called[2] - called[1] == pytest.approx(4.2, abs=0.11)
    assert sum(0.1 * (n + 1) for n in range(len(called))) <= 0.06 * now[0]

"""Runs written by hand, in microseconds: evidence and estimated gains are worked out in the comments."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from perfmodel.diagnosis.advice.counters import wasted_share
from perfmodel.diagnosis.against import compare_diagnoses
from perfmodel.diagnosis.diagnose import diagnose
from perfmodel.errors import UsageError
from perfmodel.formats import read_profile
from perfmodel.investment.plan import read_plan
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.softmax import Softmax
from perfmodel.prediction.launching import KERNEL_GAP_S
from perfmodel.profile.candidate import KINDS
from perfmodel.profile.effort import EFFORT, Effort, parse_effort
from perfmodel.profile.profile import Profile, ProfileEntry

US = 1e-6


def profile_of(line, entries, entry):
    """Return a profile whose events belong to the given entries; times and calls are summed from the events."""
    entry = np.array(entry)
    times = np.bincount(entry, weights=line.gpu.duration_s, minlength=len(entries))
    calls = np.bincount(entry, minlength=len(entries))
    made = [
        replace(one, time_s=float(time), calls=int(count))
        for one, time, count in zip(entries, times, calls, strict=True)
    ]
    return Profile(tuple(made), timeline=replace(line, gpu=replace(line.gpu, entry=entry)))


def kernel(name, op=None, **more):
    return ProfileEntry(name, 0.0, category="kernel", op=op, **more)


def _in_a_row(traced, lengths_us):
    """Return kernels one after the other, asked for in time."""
    edges = np.concatenate(([0], np.cumsum(lengths_us)))
    gpu = [(float(a), float(b), f"k{i}", "kernel", i) for i, (a, b) in enumerate(itertools.pairwise(edges))]
    api = [(-50 + i * 0.1, -50 + i * 0.1 + 0.05, "cudaLaunchKernel", "launch") for i in range(len(gpu))]
    return traced((0, float(edges[-1])), gpu=gpu, api=api)


def best(made, kind):
    return next(one for one in made.advice if one.kind == kind)


def test_late_launches_and_the_graph_that_replays_them(traced):
    # 10 kernels of 5 us, each asked for 42 us after the one before ended and there 3 us later: 9 gaps of 45 us
    starts = [50 * i for i in range(10)]
    line = traced(
        (0, 455),
        gpu=[(s, s + 5, "add", "kernel", i) for i, s in enumerate(starts)],
        api=[(s - 3, s - 1, "cudaLaunchKernel", "launch") for s in starts],
        ops=[(-10, 460, "aten::add")],
    )
    made = diagnose(profile_of(line, [kernel("aten::add")], [0] * 10))
    assert made.part("launch").time_s == pytest.approx(9 * 45 * US)
    advice = best(made, "cuda-graph")
    assert advice.time_saved_s == pytest.approx(9 * (45 * US - KERNEL_GAP_S))
    # reference case 9's formulas: 9 (50 + 5), 50 + 8 x 50 + 5, 50 + 9 x 5 + 8 x 2, 50 + 9 x 5 us
    for text in ("495 us with a wait after each", "455 us queued ahead", "111 us replayed", "95 us fused"):
        assert text in advice.basis
    assert advice.candidate.targets == ("[launch gaps]",)
    assert (advice.candidate.dev_days, advice.candidate.risk) == (2.0, "medium")


def _late(traced, launches):
    """Return the diagnosis of kernels of 5 us or copies of the host, one every 50 us, each launched 3 us before."""
    starts = [50 * i for i in range(len(launches))]
    line = traced(
        (0, starts[-1] + 5),
        gpu=[(s, s + 5, "add" if what == "kernel" else "copy", what, i)
             for i, (s, what) in enumerate(zip(starts, launches, strict=True))],
        api=[(s - 3, s - 1, "cudaLaunchKernel", "launch") for s in starts],
        ops=[(-10, starts[-1] + 10, "aten::add")],
    )  # fmt: skip
    return diagnose(profile_of(line, [kernel("aten::add")], [0] * len(launches)))


def test_a_few_launches_are_no_evidence_for_a_graph(traced):
    assert any(item.kind == "cuda-graph" for item in _late(traced, ["kernel"] * 10).advice)
    assert not any(item.kind == "cuda-graph" for item in _late(traced, ["kernel"] * 3).advice)


def test_copies_of_the_host_are_no_kernels_of_a_graph(traced):
    mixed = best(_late(traced, ["kernel", "copy"] * 10), "cuda-graph")
    # ten kernels, the first of which begins the run
    assert mixed.basis.startswith("9 kernels")
    assert mixed.time_saved_s == pytest.approx(9 * (45 * US - KERNEL_GAP_S))
    assert not any(item.kind == "cuda-graph" for item in _late(traced, ["kernel"] + ["copy"] * 20).advice)


def test_a_kernel_and_a_copy_of_a_start_up_are_no_reason_for_a_graph(data_dir):
    made = diagnose(read_profile(data_dir / "nsys" / "ginda_rtx3080_mock_minimal.sqlite"))
    assert made.part("launch").time_s > 0
    assert not any(item.kind == "cuda-graph" for item in made.advice)


def test_queued_kernels_are_no_reason_for_a_graph(traced):
    line = _in_a_row(traced, [50] * 10)
    assert diagnose(profile_of(line, [kernel("aten::add")], [0] * 10)).advice == ()


def test_waits_are_batched_to_one_a_step(traced):
    # two steps of three waits each: after each kernel of 10 us the host waits until 2 us after its end, and the next
    # kernel is there 20 us later; the launch's own 1 us is launch time
    gpu, api = [], []
    for i in range(7):
        start = 30 * i
        gpu.append((start, start + 10, "k", "kernel", 2 * i))
        api += [
            (start - 1, start - 0.5, "cudaLaunchKernel", "launch"),
            (start, start + 12, "cudaStreamSynchronize", "sync"),
        ]
    line = traced((0, 190), gpu=gpu, api=api, annotations=[(0, 95, "ProfilerStep#1"), (95, 190, "ProfilerStep#2")])
    made = diagnose(profile_of(line, [kernel("k")], [0] * 7))
    assert made.part("sync").time_s == pytest.approx(6 * 19 * US)
    evidence = made.part("sync").evidence[0]
    assert (evidence.what, evidence.count) == ("cudaStreamSynchronize", 6)
    # of 6 waits 2 stay
    assert best(made, "batch-syncs").time_saved_s == pytest.approx(6 * 19 * US * 4 / 6)


def test_the_chain_of_memory_bound_operators_is_found(traced, simple_gpu):
    # add, relu, mul on one size, 100 times: 3 + 2 + 3 = 8 accesses, fused 3 reads and 1 write: half of the time
    numel = 2**24  # 64 MiB a tensor, above the cache of 10 MB
    entries = [
        kernel(f"aten::{kind}", Elementwise(numel=numel, kind=kind), launched_by=f"aten::{kind}")
        for kind in ("add", "relu", "mul")
    ]
    line = _in_a_row(traced, [300, 200, 300] * 100)
    made = diagnose(profile_of(line, entries, [0, 1, 2] * 100), simple_gpu)
    advice = best(made, "fuse")
    assert advice.time_saved_s == pytest.approx(0.5 * made.total_s)
    assert advice.candidate.name == "fuse add + relu + mul"
    assert advice.basis.startswith("100 times 800 us become 400 us")
    assert set(advice.candidate.targets) == {"aten::add", "aten::relu", "aten::mul"}


def test_a_chain_that_fills_the_registers_is_left(traced, simple_gpu):
    # 100 registers, and of each other 100 - 16: 268, above 128
    entries = [
        kernel(f"aten::{kind}", Elementwise(numel=2**24, kind=kind), metrics={"registers_per_thread": 100.0})
        for kind in ("add", "relu", "mul")
    ]
    made = diagnose(profile_of(_in_a_row(traced, [300, 200, 300] * 100), entries, [0, 1, 2] * 100), simple_gpu)
    assert not [one for one in made.advice if one.kind == "fuse"]
    (rejected,) = made.not_advised
    assert rejected.startswith("add + relu + mul (100 times): do not fuse; the fused kernel needs about 268 registers")


def test_a_chain_ends_at_a_copy_of_a_copy_and_at_products(traced, simple_gpu):
    numel = 2**24
    entries = [
        kernel("aten::copy_", Elementwise(numel=numel, kind="copy", num_inputs=1)),
        kernel("aten::mm", Gemm(m=4096, n=4096, k=4096, dtype="fp16", out_dtype="fp32")),
        kernel("aten::relu", Elementwise(numel=numel, kind="relu", dtype="fp32")),
    ]
    line = _in_a_row(traced, [200, 200, 2000, 200] * 10)
    made = diagnose(profile_of(line, entries, [0, 0, 1, 2] * 10), simple_gpu)
    # relu (fp32) feeds copy_, copy_ does not feed copy_, and the product only has an epilogue
    (fused,) = [one for one in made.advice if one.kind == "fuse"]
    assert set(fused.candidate.targets) == {"aten::relu", "aten::copy_"}
    assert any(text.startswith("mm + relu (10 times): only as an epilogue") for text in made.not_advised)


def test_unfused_attention_is_recognised(traced, simple_gpu):
    # 32 heads of 1024 x 1024 scores, head size 64
    entries = [
        kernel("qk", Gemm(batch=32, m=1024, n=1024, k=64, dtype="fp16")),
        kernel("scale", Elementwise(numel=32 * 1024**2, kind="mul", num_inputs=1, dtype="fp16")),
        kernel("softmax", Softmax(rows=32 * 1024, cols=1024, dtype="fp16")),
        kernel("pv", Gemm(batch=32, m=1024, n=64, k=1024, dtype="fp16")),
    ]
    line = _in_a_row(traced, [200, 200, 200, 200] * 5)
    made = diagnose(profile_of(line, entries, [0, 1, 2, 3] * 5), simple_gpu)
    advice = best(made, "attention")
    assert advice.candidate.targets == ("qk", "scale", "softmax", "pv")
    # flash: 4 x 32 x 1024^2 x 64 = 8.6 GFLOP, at most 100 TFLOP/s: 86 us of 800 stay
    assert advice.time_saved_s <= 5 * (800 - 86) * US
    assert advice.time_saved_s > 0.5 * made.total_s


def test_another_softmax_between_two_products_is_no_attention(traced, simple_gpu):
    entries = [
        kernel("qk", Gemm(batch=32, m=1024, n=1024, k=64, dtype="fp16")),
        kernel("softmax", Softmax(rows=32 * 1024, cols=512, dtype="fp16")),
        kernel("pv", Gemm(batch=32, m=1024, n=64, k=1024, dtype="fp16")),
    ]
    line = _in_a_row(traced, [200, 200, 200] * 5)
    made = diagnose(profile_of(line, entries, [0, 1, 2] * 5), simple_gpu)
    assert not any(one.kind == "attention" for one in made.advice)


def test_fp32_products_may_use_the_tensor_cores(traced, simple_gpu):
    # vector fp32 10 TFLOP/s, tensor fp16 100: 2 x 4096^3 = 137 GFLOP take 13.7 ms or longer
    entries = [kernel("aten::mm", Gemm(m=4096, n=4096, k=4096, dtype="fp32"))]
    line = _in_a_row(traced, [16_000])
    advice = best(diagnose(profile_of(line, entries, [0]), simple_gpu), "dtype")
    assert advice.candidate.name == "fp16 products"
    # the compute-bound ratio is 10 of peaks; sustained ones are nearer
    assert 1 - advice.time_saved_s / 16e-3 < 1 / 5
    # in fp16 already: nothing to advise
    entries = [kernel("aten::mm", Gemm(m=4096, n=4096, k=4096, dtype="fp16"))]
    assert not any(one.kind == "dtype" for one in diagnose(profile_of(line, entries, [0]), simple_gpu).advice)


def test_pageable_copies_are_pinned(traced, simple_gpu):
    # 8 MB in 2 ms, 4 GB/s; pinned, the link sustains 8 GB/s: 1 ms
    line = traced(
        (0, 3000),
        gpu=[(0, 2000, "h2d", "copy", 0), (2000, 3000, "k", "kernel", 1)],
        api=[(-5, -4, "cudaMemcpyAsync", "copy"), (-3, -2, "cudaLaunchKernel", "launch")],
    )
    gpu = replace(line.gpu, bytes=np.array([8e6, np.nan]), pinned=np.array([0, -1]))
    entries = [ProfileEntry("h2d", 0.0, category="memcpy"), kernel("k")]
    made = diagnose(profile_of(replace(line, gpu=gpu), entries, [0, 1]), simple_gpu)
    assert best(made, "pin-memory").time_saved_s == pytest.approx(1e-3, rel=0.05)
    assert "pageable, 8 MB at 4 GB/s" in made.part("transfer").evidence[0].detail
    # of 2 ms no more than the 1 ms of kernels can hide
    assert best(made, "overlap-copies").time_saved_s == pytest.approx(1e-3)


def test_coalesced_accesses_are_left_alone():
    # reference case 12: 3.2 sectors a request of fp32 are no waste, 32 are 8 times what is needed
    def counts(sectors):
        return {
            f"l1tex__t_{what}_pipe_lsu_mem_global_op_ld.sum": n for what, n in (("sectors", sectors), ("requests", 1.0))
        }

    assert wasted_share(counts(3.2)) == 0.0
    assert wasted_share(counts(32.0)) == pytest.approx(1 - 4 / 32)
    assert wasted_share(counts(32.0), element_bytes=8.0) == pytest.approx(1 - 8 / 32)
    assert wasted_share({}) == 0.0


def test_scattered_stores_are_found_in_a_table_of_counters(data_dir, perfmodel):
    # transpose: 131,072 requests each way, 4 sectors a load and 32 a store: (32 - 4) / (4 + 32) = 77.8 % of the sectors
    path = data_dir / "ncu" / "olajide_rtx5070_transpose_naive.csv"
    report = perfmodel("diagnose", path, "--format", "json").json
    (candidate,) = report["candidates"]
    assert candidate["kind"] == "coalesce"
    assert candidate["time_saved_s"] / report["rows"][1]["time_s"] == pytest.approx(28 / 36)
    # the naive product reads 2.5 sectors a request, since lanes share rows: no advice
    report = perfmodel("diagnose", data_dir / "ncu" / "olajide_rtx5070_gemm_naive.csv", "--format", "json").json
    assert "candidates" not in report


def test_warps_that_wait_are_told(simple_gpu):
    # reference case 13: 32 warps, 90 % stalled: 3.2 can issue. 1 GB at 1 TB/s is 1 ms of the 4 ms measured
    metrics = {"active_warps_per_scheduler": 32.0, "stall_fraction": 0.9, "achieved_occupancy": 0.5}
    entry = ProfileEntry("k", 4e-3, 1, "kernel", flop=1.0, bytes=1e9, metrics=metrics | {"stalled_on_barrier": 0.6})
    advice = best(diagnose(Profile((entry,)), simple_gpu), "occupancy")
    assert "3.2 of 32 warps per scheduler can issue; the most frequent stall is barrier (60 %)" in advice.basis
    assert advice.time_saved_s == pytest.approx(3e-3)


def test_a_table_knows_no_gaps():
    entries = (
        ProfileEntry("aten::mm", 3.0, 1, "kernel"),
        ProfileEntry("relu", 1.0, 1, "kernel"),
        ProfileEntry("[CUDA memcpy HtoD]", 1.0, 1, "memcpy"),
        ProfileEntry("cudaLaunchKernel", 9.0, 100, "host"),
    )
    made = diagnose(Profile(entries))
    parts = {part.dimension: (part.time_s, part.fraction) for part in made.parts}
    assert parts["compute"] == (3.0, pytest.approx(0.6))
    assert parts["memory"] == (1.0, pytest.approx(0.2))
    assert parts["transfer"] == (1.0, pytest.approx(0.2))
    assert parts["launch"] == parts["sync"] == parts["idle"] == (None, None)
    # the API's time is the CPU's: evidence, and no part of the sum
    assert made.part("launch").evidence[0].time_s == 9.0
    assert "no time line" in made.notes[0]


def test_efforts_are_overridden_and_checked():
    table = parse_effort(["fuse=7:high", "dtype=0.25"])
    assert table["fuse"] == Effort(7.0, "high")
    assert table["dtype"] == Effort(0.25, EFFORT["dtype"].risk)
    assert set(EFFORT) <= set(KINDS)
    for text, said in (
        ("fuse", "is not an effort"),
        ("fuze=3", "fuse"),
        ("fuse=-1", "above 0"),
        ("fuse=nan", "above 0"),
        ("fuse=1:huge", "risk"),
    ):
        with pytest.raises(UsageError, match=said):
            parse_effort([text])


def test_the_plan_that_is_written_reads_back(traced, tmp_path):
    from perfmodel.investment.plan import plan_toml

    starts = [50 * i for i in range(10)]
    line = traced(
        (0, 455),
        gpu=[(s, s + 5, "add", "kernel", i) for i, s in enumerate(starts)],
        api=[(s - 3, s - 1, "cudaLaunchKernel", "launch") for s in starts],
    )
    made = diagnose(profile_of(line, [kernel('odd "name"\x7f\\ \u00e9\n')], [0] * 10))
    # a name with everything that a text in TOML has to escape
    odd = made.advice[0].candidate
    odd = replace(odd, name='a "b" \\ \x7f \u00e9 \t', targets=tuple(entry.name for entry in made.wall.entries))
    made = replace(made, advice=(replace(made.advice[0], candidate=odd, text="two\nlines"),))
    path = tmp_path / "plan.toml"
    path.write_text(plan_toml(made.advice), encoding="utf-8")
    assert read_plan(path).candidates == (replace(odd, place=""),)


def test_calls_of_the_cpu_alone_have_no_time_of_a_gpu():
    made = diagnose(Profile((ProfileEntry("cudaLaunchKernel", 1e-3, 10, "host"),)))
    assert made.total_s == 0.0
    assert made.report().title == "The profile lists only calls of the CPU, so the GPU time is unknown"


def _kernels(traced, window, starts, steps=()):
    gpu = [(start, start + 10, "k", "kernel", place) for place, start in enumerate(starts)]
    api = [(start - 5, start - 4, "cudaLaunchKernel", "launch") for start in starts]
    line = traced(window, gpu=gpu, api=api, annotations=steps)
    line = replace(line, gpu=replace(line.gpu, entry=np.zeros(len(starts), dtype=np.int64)))
    entry = ProfileEntry("k", 10e-6 * len(starts), len(starts), "kernel")
    return Profile((entry,), timeline=line)


def test_time_around_the_gpu_work_of_a_trace_without_steps_stands_apart(traced):
    # 500 us before the first kernel, 300 us after the last of three
    found = diagnose(_kernels(traced, (0, 860), [500, 525, 550]))
    assert found.outside_s == (pytest.approx(500e-6), pytest.approx(300e-6))
    assert found.total_s == pytest.approx(60e-6)
    assert found.part("idle").time_s == pytest.approx(0.0, abs=1e-9)
    assert "500 us before the first and 300 us after" in found.notes[0]
    marked = diagnose(_kernels(traced, (0, 860), [500, 525, 550], [(0, 860, "ProfilerStep#1")]))
    assert marked.total_s == pytest.approx(860e-6)
    assert marked.outside_s == (0.0, 0.0)


def test_windows_of_different_length_are_compared_by_the_work_that_they_hold(traced):
    short, long = (diagnose(_kernels(traced, (0, 25 * n), [25.0 * k for k in range(n)])) for n in (4, 12))
    found = compare_diagnoses(short, long)
    assert (found.per, found.work) == ("same work", 3.0)
    # 3 gaps of 15 us and 4 kernels against a third of 11 gaps and 12 kernels
    assert found.before_s == pytest.approx(85e-6)
    assert found.after_s == pytest.approx((11 * 25 + 10) / 3 * 1e-6)
    assert found.notes[0].startswith("WARNING: the windows hold different amounts of work")
    same = compare_diagnoses(short, short)
    assert (same.per, same.work) == ("run", 1.0)
    assert not any("WARNING" in note for note in same.notes)

"""From when on a change is advised, and how many: each threshold from both sides."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

from perfmodel.core.hardware import Peak
from perfmodel.diagnosis.diagnose import diagnose
from perfmodel.hardware_catalog import hardware
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm
from perfmodel.operators.layer_norm import LayerNorm
from perfmodel.operators.reduction import Reduction
from perfmodel.operators.rms_norm import RmsNorm
from perfmodel.operators.softmax import Softmax
from perfmodel.prediction.predict import predict
from perfmodel.profile.profile import Profile, ProfileEntry

US = 1e-6
A100 = hardware("a100-pcie-40gb")
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"


def table(*entries):
    """A table of kernels: (name, time [s], op or None, metrics)."""
    return Profile(
        tuple(ProfileEntry(name, time_s, 1, "kernel", op=op, metrics=metrics) for name, time_s, op, metrics in entries)
    )


def in_a_row(traced, ops, order=None, us=1000.0):
    """A trace of kernels one after the other, launched in time; each of ``ops`` is one entry, ``order`` its calls."""
    order = list(range(len(ops))) if order is None else order
    edges = np.arange(len(order) + 1) * us
    line = traced(
        (0, float(edges[-1])),
        gpu=[(a, b, f"k{i}", "kernel", i) for i, (a, b) in enumerate(itertools.pairwise(edges.tolist()))],
        api=[(-50 + 0.1 * i, -50 + 0.1 * i + 0.05, "cudaLaunchKernel", "launch") for i in range(len(order))],
    )
    entries = tuple(
        ProfileEntry(f"{place}: {op.op}", US * us * order.count(place), order.count(place), "kernel", op=op)
        for place, op in enumerate(ops)
    )
    return Profile(entries, timeline=replace(line, gpu=replace(line.gpu, entry=np.array(order))))


def kinds(diagnosis):
    return [item.kind for item in diagnosis.advice]


def of_kind(diagnosis, kind):
    return [item for item in diagnosis.advice if item.kind == kind]


@pytest.mark.parametrize(("share", "advised"), [(0.009, False), (0.011, True)])
def test_a_saving_of_one_per_cent_is_advised(share, advised):
    # 32 sectors a request waste 7/8 of the time of the first kernel
    metrics = {SECTORS: 32.0, REQUESTS: 1.0}
    found = diagnose(table(("scattered", share * 8 / 7, None, metrics), ("rest", 1 - share * 8 / 7, None, {})))
    assert ("coalesce" in kinds(found)) is advised


@pytest.mark.parametrize(("wasted", "advised"), [(0.45, False), (0.55, True)])
def test_accesses_that_waste_half_of_the_sectors_are_coalesced(wasted, advised):
    # elements of 4 B need 4 sectors a request
    found = diagnose(table(("k", 1.0, None, {SECTORS: 4.0 / (1 - wasted), REQUESTS: 1.0})))
    assert ("coalesce" in kinds(found)) is advised
    if advised:
        assert found.advice[0].basis.startswith("0 sectors per request, where 4 suffice for elements of 4 B: 55 %")
        assert found.advice[0].time_saved_s == pytest.approx(0.55)


@pytest.mark.parametrize(
    ("metrics", "advised"),
    [
        ({"stall_fraction": 0.65}, False),
        ({"stall_fraction": 0.75}, True),
        ({"achieved_occupancy": 0.55}, False),
        ({"achieved_occupancy": 0.45}, True),
        ({"achieved_occupancy": 0.9, "stall_fraction": 0.75}, True),
    ],
)
def test_few_warps_or_waiting_warps_are_a_reason_for_more(simple_gpu, metrics, advised):
    entry = ProfileEntry("k", 4e-3, 1, "kernel", flop=1.0, bytes=1e9, metrics=metrics)
    assert ("occupancy" in kinds(diagnose(Profile((entry,)), simple_gpu))) is advised


def test_time_that_wasted_sectors_explain_is_no_time_of_missing_warps(simple_gpu):
    # 1 GB at 1 TB/s is 1 ms of 4 ms. 16 sectors a request where 4 suffice waste 75 % of the time, which is all above
    # the bound; 10 waste 60 %, so that 4 - 1 - 2.4 = 0.6 ms remain for more warps.
    for sectors, left_s in ((16.0, 0.0), (10.0, 0.6e-3)):
        metrics = {"achieved_occupancy": 0.4, SECTORS: sectors, REQUESTS: 1.0}
        entry = ProfileEntry("k", 4e-3, 1, "kernel", bytes=1e9, metrics=metrics)
        found = diagnose(Profile((entry,)), simple_gpu)
        assert kinds(found)[0] == "coalesce"
        assert sum(item.time_saved_s for item in of_kind(found, "occupancy")) == pytest.approx(left_s)


def test_candidates_of_counters_have_the_function_as_long_as_it_tells_kernels_apart():
    metrics = {SECTORS: 32.0, REQUESTS: 1.0}
    one, other = (f"void app::scatter<{kind}>({kind} const*, int)" for kind in ("float", "double"))
    alone = diagnose(table((one, 1.0, None, metrics)))
    assert [item.candidate.name for item in alone.advice] == ["coalesce scatter"]
    both = diagnose(table((one, 1.0, None, metrics), (other, 1.0, None, metrics)))
    assert {item.candidate.name for item in both.advice} == {f"coalesce {one}", f"coalesce {other}"}


@pytest.mark.parametrize(("factor", "advised"), [(1.4, False), (1.6, True)])
def test_a_kernel_is_tuned_from_one_and_a_half_times_its_prediction_on(factor, advised):
    op = Elementwise(numel=10**8, kind="add")
    expected = predict(op, A100)
    assert expected.predicted_time_high_s < 1.4 * expected.predicted_time_s
    found = diagnose(table(("add", factor * expected.predicted_time_s, op, {})), A100)
    assert ("tune-kernel" in kinds(found)) is advised


def test_a_kernel_that_nobody_measured_is_not_tuned_however_slow():
    # nobody measured sums of rows on this machine, so the interval is wide
    op = Reduction(rows=100, cols=64)
    expected = predict(op, A100)
    high_s = expected.predicted_time_high_s
    assert high_s > 2 * expected.predicted_time_s
    for time_s in (0.99 * high_s, 10 * high_s):
        found = diagnose(table(("sum", time_s, op, {})), A100)
        assert "tune-kernel" not in kinds(found)
    assert any("tuning is not advised" in text for text in found.not_advised)


def test_the_three_slowest_kernels_are_tuned():
    op = Elementwise(numel=10**8, kind="add")
    found = diagnose(table(*((f"add {n}", 0.01 * n, op, {}) for n in range(1, 6))), A100)
    assert [item.candidate.targets for item in of_kind(found, "tune-kernel")] == [("add 5",), ("add 4",), ("add 3",)]


def test_the_least_intrusive_data_type_is_advised(simple_gpu):
    op = Gemm(m=4096, n=4096, k=4096, dtype="fp32")
    peaks = [Peak("bf16", "tensor", 100e12), Peak("tf32", "tensor", 50e12)]
    names = []
    for more in range(3):
        machine = replace(simple_gpu, peaks=(*simple_gpu.peaks, *peaks[:more]))
        (advice,) = of_kind(diagnose(table(("mm", 20e-3, op, {})), machine), "dtype")
        names.append(advice.candidate.name)
    assert names == ["fp16 products", "bf16 products", "tf32 products"]


@pytest.mark.parametrize(("before", "after", "found"), [(4, 4, True), (11, 10, True), (11, 11, False)])
def test_an_attention_spans_up_to_24_operators(traced, simple_gpu, before, after, found):
    scale = Elementwise(numel=32 * 1024**2, kind="mul", num_inputs=1, dtype="fp16")
    ops = [
        Gemm(batch=32, m=1024, n=1024, k=64, dtype="fp16"),
        *[scale] * before,
        Softmax(rows=32 * 1024, cols=1024, dtype="fp16"),
        *[scale] * after,
        Gemm(batch=32, m=1024, n=64, k=1024, dtype="fp16"),
    ]
    assert ("attention" in kinds(diagnose(in_a_row(traced, ops), simple_gpu))) is found


def pointwise(count, numel=2**24):
    return [Elementwise(numel=numel, kind="relu")] * count


def test_a_chain_has_up_to_eight_operators(traced, simple_gpu):
    found = diagnose(in_a_row(traced, pointwise(11)), simple_gpu)
    assert sorted(len(item.candidate.targets) for item in of_kind(found, "fuse")) == [3, 8]


def test_the_five_best_chains_are_advised(traced, simple_gpu):
    # six pairs of tensors of their own size, so that no pair feeds the next
    ops = [op for n in range(6) for op in pointwise(2, 2**24 + 2**16 * n)]
    found = of_kind(diagnose(in_a_row(traced, ops), simple_gpu), "fuse")
    assert len(found) == 5
    assert {len(item.candidate.targets) for item in found} == {2}


@pytest.mark.parametrize(
    "consumer",
    [
        LayerNorm(rows=4096, cols=4096, dtype="fp32"),
        RmsNorm(rows=4096, cols=4096, dtype="fp32"),
        Softmax(rows=4096, cols=4096, dtype="fp32"),
        Reduction(rows=4096, cols=4096, dtype="fp32"),
    ],
)
def test_compilers_fuse_what_works_on_rows(traced, simple_gpu, consumer):
    found = diagnose(in_a_row(traced, [*pointwise(1, 4096**2), consumer]), simple_gpu)
    assert [item.kind for item in found.advice if item.kind == "fuse"] == ["fuse"]


def test_three_neighbours_are_named_as_not_worth_fusing(traced, simple_gpu):
    ops = []
    for n in range(4):
        side = 4096 + 64 * n
        gemm = Gemm(m=side, n=side, k=4096, dtype="fp16", out_dtype="fp16")
        ops += [replace(gemm), Elementwise(numel=side**2, kind="relu", dtype="fp16")]
    named = [replace(entry, launched_by=f"aten::op{n}") for n, entry in enumerate(in_a_row(traced, ops).entries)]
    found = diagnose(replace(in_a_row(traced, ops), entries=tuple(named)), simple_gpu)
    assert sum("only as an epilogue" in text for text in found.not_advised) == 3


@pytest.mark.parametrize(("between", "again"), [(5, True), (6, False)])
def test_an_intermediate_is_read_again_by_one_of_the_next_six_operators(traced, simple_gpu, between, again):
    # relu writes fp32, the cast reads it and writes fp16; then operators of other sizes, and one that reads the fp32
    numel = 2**24
    ops = [
        Elementwise(numel=numel, kind="relu", dtype="fp32"),
        Elementwise(numel=numel, kind="cast", dtype="fp32", out_dtype="fp16"),
        *(Elementwise(numel=2**20 + 2**10 * n, kind="relu", dtype="fp32") for n in range(between)),
        Elementwise(numel=numel, kind="relu", dtype="fp32"),
    ]
    (advice,) = of_kind(diagnose(in_a_row(traced, ops), simple_gpu), "fuse")
    assert ("another operator reads the intermediate" in advice.basis) is again


def host_gaps(traced, calls):
    """A trace of one kernel, then for each call of (name, milliseconds) a gap with that call and another kernel."""
    gpu, api, now = [(0, 10, "k", "kernel", 0)], [(-5, -1, "cudaLaunchKernel", "launch")], 10.0
    for name, ms in calls:
        begin, end = now + 20, now + 20 + 1000 * ms
        api += [(begin, end, name, "other"), (end + 5, end + 8, "cudaLaunchKernel", "launch")]
        now = end + 20
        gpu.append((end + 10, now, "k", "kernel", len(api) - 1))
    line = traced((0, now), gpu=gpu, api=api, ops=[(-10, now, "aten::mm")])
    line = replace(line, gpu=replace(line.gpu, entry=np.zeros(len(gpu), dtype=np.int64)))
    return Profile((ProfileEntry("k", 1e-5 * len(gpu), len(gpu), "kernel"),), timeline=line)


@pytest.mark.parametrize("name", ["cudaMalloc", "cudaFree", "hipModuleLoad", "cudaHostAlloc", "cuLibraryLoadData"])
def test_calls_of_the_start_up_belong_before_the_measurement(traced, name):
    (advice,) = of_kind(diagnose(host_gaps(traced, [(name, 5)])), "host-work")
    assert advice.text.startswith("this is start-up and allocation")


def test_three_pieces_of_host_work_are_listed(traced):
    calls = [(f"work{n}", 2 + n) for n in range(5)]
    (advice,) = of_kind(diagnose(host_gaps(traced, calls)), "host-work")
    assert advice.text.startswith("move this CPU work")
    assert [part.split()[-1] for part in advice.basis.split("; ")] == ["work4", "work3", "work2"]


@pytest.mark.parametrize(
    ("launches", "said"),
    [
        ((), "the trace has no calls of the host.*rocprofv3 --hip-trace"),
        ((0, 20_699), "shows no activity of the host"),
    ],
)
def test_a_gap_without_any_call_of_the_host_asks_for_them(traced, launches, said):
    kernels = [(start, start + 95, "k", "kernel", i if launches else -1) for i, start in enumerate((5, 20_705))]
    line = traced((5, 20_800), gpu=kernels, api=[(at, at + 1, "cudaLaunchKernel", "launch") for at in launches])
    profile = Profile((ProfileEntry("k", 190 * US, 2, "kernel"),), timeline=line)
    (advice,) = [item for item in diagnose(profile).advice if item.candidate.name == "find untraced host code"]
    assert re.search(said, advice.text)

"""Profiles on other machines: limiting cases by hand, replayed time lines, whole models measured on two machines."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.cli._options import HostOption
from perfmodel.core.report import report
from perfmodel.core.vocabulary import EventKind, Limiter
from perfmodel.diagnosis.diagnose import diagnose
from perfmodel.diagnosis.limits import limit
from perfmodel.diagnosis.profiled import profiled_time
from perfmodel.diagnosis.projection.project import _host_note, is_of_cpu, project
from perfmodel.diagnosis.projection.replay import replay
from perfmodel.diagnosis.projection.scale import OF_CEILINGS, scale_entry, start_time
from perfmodel.errors import UsageError
from perfmodel.formats import read_profile
from perfmodel.hardware_catalog import hardware
from perfmodel.operators.elementwise import Elementwise
from perfmodel.operators.gemm import Gemm
from perfmodel.prediction.latency.doubts import HOST_DEVIATION
from perfmodel.prediction.predict import predict
from perfmodel.prediction.uncertainty import Z80
from perfmodel.prediction.whole_model import run_deviation
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.profile.timeline import CopyDirection

A100, H100, V100, H200 = map(hardware, ("a100-sxm4-80gb", "h100-sxm5-80gb", "v100-sxm2-32gb", "h200-sxm-141gb"))
US = 1e-6


def _gemm(time_s=None, machine=A100, dtype="fp16"):
    op = Gemm(m=4096, n=4096, k=4096, dtype=dtype)
    return ProfileEntry("g", time_s or profiled_time(predict(op, machine), machine), 1, EventKind.KERNEL, op)


def test_a_kernel_that_takes_its_prediction_takes_the_other_machines_prediction():
    scaled = scale_entry(_gemm(), A100, H100)
    there_s, here_s = (profiled_time(predict(_gemm().op, machine), machine) for machine in (H100, A100))
    assert scaled.factor == pytest.approx(there_s / here_s)


def test_the_same_machine_changes_nothing():
    entry = _gemm(1.0)
    assert scale_entry(entry, A100, A100).factor == 1.0
    projection = project(Profile((entry,)), A100, A100)
    assert projection.whole.projected_time_s == pytest.approx(1.0)


@given(st.floats(0.2, 20.0))
def test_a_deviation_is_carried_between_its_half_and_the_whole(deviation):
    alone = scale_entry(_gemm(), A100, H100).factor
    time_s = deviation * _gemm().time_s
    # the new time is ratio x prediction x deviation^w, with w from 1/2 to 1
    carried = math.log(scale_entry(_gemm(time_s), A100, H100).factor * deviation / alone)
    ends = sorted((0.5 * math.log(deviation), math.log(deviation)))
    assert ends[0] - 1e-9 <= carried <= ends[1] + 1e-9


@pytest.mark.parametrize("deviation", [0.1, 0.7, 1.2, 5.0])
def test_a_kernel_far_off_its_prediction_carries_more_of_it(deviation):
    """James and Stein: 1 - (s / r)^2 of the deviation r, with the standard deviation s of the prediction."""
    alone, scaled = (scale_entry(_gemm(factor * _gemm().time_s), A100, H100) for factor in (1.0, deviation))
    predictions = (predict(_gemm().op, machine) for machine in (A100, H100))
    here, there = (math.sqrt(sum(one.uncertainty.variances(one.regime).values())) for one in predictions)
    share = max(0.5, 1.0 - (here / math.log(deviation)) ** 2)
    assert scaled.factor == pytest.approx(alone.factor * deviation ** (share - 1.0))
    carried = share * here
    assert scaled.deviation == pytest.approx(math.sqrt(there**2 + carried**2 - 2 * 0.2 * carried * there))


def test_machines_of_one_design_carry_the_whole_deviation_and_are_surer():
    kin, stranger = (scale_entry(_gemm(1.3 * _gemm(machine=H100).time_s), H100, to) for to in (H200, A100))
    twice = scale_entry(_gemm(1.1 * _gemm(machine=H100).time_s), H100, H200)
    assert kin.factor == pytest.approx(twice.factor)
    assert kin.deviation < stranger.deviation


def test_a_part_without_an_operator_follows_the_bandwidth_beyond_its_start():
    entry = ProfileEntry("aten::layer_norm", 1.0, 1, EventKind.KERNEL)
    scaled = scale_entry(entry, A100, H100)
    ratio = A100.main_memory.bandwidth_bytes_per_s / H100.main_memory.bandwidth_bytes_per_s
    assert scaled.factor == pytest.approx(ratio, rel=1e-4)
    assert scaled.limiter == Limiter.HBM
    assert scaled.deviation == pytest.approx(OF_CEILINGS, rel=1e-5)  # but for the start
    assert "bandwidths" in scaled.basis


def test_a_part_that_nothing_tells_of_lies_between_both_ceilings():
    memory = A100.main_memory.bandwidth_bytes_per_s / H100.main_memory.bandwidth_bytes_per_s
    peaks = A100.best_peak("bf16").flop_per_s / H100.best_peak("bf16").flop_per_s
    scaled = scale_entry(_named("mystery"), A100, H100)
    assert (scaled.limiter, scaled.factor) == (Limiter.UNKNOWN, pytest.approx(math.sqrt(memory * peaks)))
    # either of them is as far off as the ceilings are, and as they are apart
    assert scaled.deviation == pytest.approx(OF_CEILINGS + math.log(memory / peaks) / 2)


def test_exchanges_follow_the_links_between_devices_and_copies_that_to_the_host():
    here, there = ({link.name: link.bandwidth_bytes_per_s for link in machine.links} for machine in (A100, H100))
    for category, link in ((EventKind.COMMUNICATION, "nvlink"), (EventKind.MEMCPY, "pcie")):
        entry = ProfileEntry("ncclDevKernel_AllReduce" if link == "nvlink" else "Memcpy HtoD", 1.0, None, category)
        scaled = scale_entry(entry, A100, H100)
        assert scaled.limiter == Limiter.LINK
        assert scaled.factor == pytest.approx(here[link] / there[link])
        assert scaled.deviation == OF_CEILINGS
        unknown = scale_entry(entry, A100, dataclasses.replace(H100, name="alone", links=()))
        assert (unknown.factor, unknown.deviation) == (1.0, 2 * OF_CEILINGS)


def test_products_without_shapes_follow_the_peak():
    scaled = scale_entry(ProfileEntry("some_gemm_kernel", 1.0, 1, EventKind.KERNEL), A100, H100)
    assert scaled.factor == pytest.approx(
        A100.best_peak("bf16").flop_per_s / H100.best_peak("bf16").flop_per_s, rel=1e-4
    )


def _named(name):
    return ProfileEntry(name, 1.0, None, EventKind.KERNEL)


@pytest.mark.parametrize(
    ("name", "source", "target", "peaks"),
    [
        ("volta_sgemm_128x64_nn", V100, H100, (("fp32", "vector"), ("fp32", "vector"))),
        ("maxwell_scudnn_128x64_relu_small_nn_v1", V100, H100, (("fp32", "vector"), ("fp32", "vector"))),
        ("volta_fp16_s884gemm_fp16_128x128", V100, H100, (("fp16", "tensor"), ("fp16", "tensor"))),
        # V100 has no tensor engine for fp64, and the library takes that of the H100
        ("volta_dgemm_64x64_nn", V100, H100, (("fp64", "vector"), ("fp64", "tensor"))),
        # A100 has one, which this kernel leaves aside
        ("cutlass_80_simt_dgemm_64x64_8x4_nn_align1", A100, H100, (("fp64", "vector"), ("fp64", "vector"))),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4", A100, V100, (("tf32", "tensor"), ("fp32", "vector"))),
        ("some_gemm", V100, H100, (("fp16", "tensor"), ("fp16", "tensor"))),
    ],
)
def test_products_follow_the_peak_of_the_arithmetic_in_their_name(name, source, target, peaks):
    here, there = (machine.find_peak(*peak).flop_per_s for machine, peak in zip((source, target), peaks, strict=True))
    scaled = scale_entry(_named(name), source, target)
    assert scaled.factor == pytest.approx(here / there)
    assert scaled.basis.startswith("ratio of the peaks")


def _short(time_s, name="elementwise_kernel"):
    return ProfileEntry(name, 1000 * time_s, 1000, EventKind.KERNEL)


def test_launch_bound_kernels_do_not_become_faster():
    """Half of a start here is half of one there, where that is longer, and as long as here where it is shorter."""
    half_s = start_time(A100) / 2
    to, back = scale_entry(_short(half_s), A100, H100), scale_entry(_short(half_s), H100, A100)
    assert to.factor == pytest.approx(start_time(H100) / start_time(A100))
    assert to.factor > 1.0
    assert back.factor == 1.0
    assert (to.limiter, back.limiter) == (Limiter.LAUNCH, Limiter.LAUNCH)


@given(
    shares=st.tuples(st.floats(0.05, 8.0), st.floats(1e-9, 2.0)),
    name=st.sampled_from(("elementwise_kernel", "volta_sgemm_64x64", "nobody_knows")),
    machines=st.permutations((A100, H100, V100, hardware("mi300x"))),
)
def test_the_projected_time_of_a_kernel_is_continuous_and_never_falls_as_it_takes_longer(shares, name, machines):
    """A longer kernel is longer there too, by no more than the larger of both rules' slopes, whatever its time."""
    source, target = machines[:2]
    start_s, (share, more) = start_time(source), shares
    times_s = [share * start_s, (share + more) * start_s, start_s, start_s * (1 + 1e-12)]
    first, second, at, behind = (scale_entry(_short(time_s, name), source, target) for time_s in times_s)
    there_s = [time_s * scaled.factor for time_s, scaled in zip(times_s, (first, second, at, behind), strict=True)]
    long = scale_entry(_short(1.0, name), source, target).factor  # the ratio of the ceilings, the start but a millionth
    slope = max(at.factor, long) * (1 + 1e-5)
    assert there_s[0] <= there_s[1] * (1 + 1e-12)
    assert there_s[1] - there_s[0] <= slope * more * start_s * (1 + 1e-6) + 1e-18
    assert there_s[3] == pytest.approx(there_s[2], rel=1e-10)
    assert behind.deviation == pytest.approx(at.deviation, rel=1e-10)


def test_the_dispatch_of_a_queue_stays_on_its_machine():
    """A small kernel without shapes takes the start that either machine has: 4.4 us on an MI300X, which holds it."""
    mi300x = hardware("mi300x")
    there, back = start_time(H100), start_time(mi300x)
    small = ProfileEntry("elementwise_kernel", 1000 * back, 1000, EventKind.KERNEL)
    assert scale_entry(small, mi300x, H100).factor == pytest.approx(there / back)
    large = ProfileEntry("elementwise_kernel", 1000 * (back + 1e-4), 1000, EventKind.KERNEL)
    ratio = mi300x.main_memory.bandwidth_bytes_per_s / H100.main_memory.bandwidth_bytes_per_s
    assert scale_entry(large, mi300x, H100).factor == pytest.approx((there + 1e-4 * ratio) / (back + 1e-4))
    shorter = ProfileEntry("elementwise_kernel", 1000 * there / 2, 1000, EventKind.KERNEL)
    assert scale_entry(shorter, H100, mi300x).factor == pytest.approx(back / there)
    assert scale_entry(small, mi300x, hardware("mi325x")).factor == 1.0


def test_a_dtype_that_the_target_lacks_is_replaced_and_named():
    scaled = scale_entry(_gemm(dtype="bf16"), A100, V100)
    assert "no bf16 there" in scaled.basis
    assert scaled.factor > 1.0


@pytest.mark.parametrize("target", [H100, V100], ids=lambda machine: machine.name)
def test_work_of_the_cpu_in_a_table_does_not_depend_on_the_gpu(target):
    calls = ProfileEntry("cudaLaunchKernel", 2.0, 1000, EventKind.HOST)
    scaled = scale_entry(calls, A100, target)
    assert (scaled.factor, scaled.limiter, scaled.deviation) == (1.0, Limiter.HOST, HOST_DEVIATION)
    kernel = ProfileEntry("layer_norm_kernel", 1.0, 1, EventKind.KERNEL)
    for host, time_s in ((None, 2.0), (0.5, 1.0), (3.0, 6.0)):
        found = project(Profile((calls, kernel)), A100, target, host=host)
        parts = {part.name: part for part in found.parts}
        assert parts["cudaLaunchKernel"].projected_time_s == pytest.approx(time_s)
        assert parts["layer_norm_kernel"].projected_time_s == pytest.approx(scale_entry(kernel, A100, target).factor)
        assert _host_note(host) in found.notes
        assert (parts["cudaLaunchKernel"].low < time_s) == (host is None), "a stated host is as stated"


def test_only_a_profile_without_any_work_of_the_gpu_is_one_of_the_cpu():
    calls = ProfileEntry("cudaLaunchKernel", 2.0, 1000, EventKind.HOST)
    assert is_of_cpu(Profile((calls, ProfileEntry("nothing", 0.0))))
    assert not is_of_cpu(Profile((calls, ProfileEntry("layer_norm_kernel", 1.0, 1, EventKind.KERNEL))))
    assert not is_of_cpu(Profile((calls, ProfileEntry("of any kind", 1.0))))
    assert not is_of_cpu(Profile(()))


@given(st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=4))
def test_the_whole_of_a_table_is_the_sum_of_its_parts(times_s):
    entries = tuple(ProfileEntry(f"softmax {i}", time_s, 1, EventKind.KERNEL) for i, time_s in enumerate(times_s))
    projection = project(Profile(entries), A100, H100)
    assert projection.whole.projected_time_s == pytest.approx(sum(part.projected_time_s for part in projection.parts))
    assert projection.whole.low <= projection.whole.projected_time_s <= projection.whole.high
    assert all(part.low <= part.projected_time_s <= part.high for part in projection.parts)


def _queued(traced, kernel_us, launch_us, count=10):
    """Return kernels of some length that the host launches one every ``launch_us``."""
    api = [(n * launch_us, n * launch_us + 1, "cudaLaunchKernel", "launch") for n in range(count)]
    gpu, free = [], 0.0
    for n in range(count):
        start = max(free, n * launch_us + 5)
        gpu.append((start, start + kernel_us, "k", "kernel", n))
        free = start + kernel_us
    return traced((0, free), gpu=gpu, api=api)


def test_replaying_a_time_line_unchanged_gives_the_same_time_line(traced):
    line = _queued(traced, 7, 10)
    same = replay(line, np.ones(len(line.gpu)))
    assert same.gpu.start_s == pytest.approx(line.gpu.start_s)
    assert same.window_s == pytest.approx(line.window_s)


def test_faster_kernels_shorten_a_run_only_where_the_host_does_not_set_the_pace(traced):
    host_bound, gpu_bound = _queued(traced, 4, 20), _queued(traced, 40, 5)
    half = np.full(10, 0.5)
    # the host launches the last of 10 kernels at 180 us; it starts 5 us later and takes 2 us instead of 4
    assert replay(host_bound, half).window_s[1] == pytest.approx(187 * US)
    # 400 us of kernels after a start of 5 us become 200 us
    assert replay(gpu_bound, half).window_s[1] == pytest.approx(205 * US)


def test_work_that_was_queued_starts_soon_after_its_launch_once_the_queue_is_empty(traced):
    # the queue holds back the last kernels by 300 us; kernels of a tenth leave the GPU idle between the launches
    line = _queued(traced, 40, 5)
    faster = replay(line, np.full(10, 0.1))
    launched = np.arange(10) * 5 * US
    assert faster.gpu.start_s - launched == pytest.approx(np.full(10, 5 * US))


def test_slower_kernels_lengthen_a_run_once_they_outlast_the_launches(traced):
    line = _queued(traced, 4, 20)
    assert replay(line, np.full(10, 10.0)).window_s[1] == pytest.approx(405 * US)


def test_a_wait_of_the_host_ends_with_the_work_that_it_waits_for(traced):
    line = traced(
        (0, 300),
        gpu=[(5, 105, "a", "kernel", 0), (155, 255, "b", "kernel", 2)],
        api=[
            (0, 1, "cudaLaunchKernel", "launch"),
            (10, 110, "cudaStreamSynchronize", "sync"),
            (150, 151, "cudaLaunchKernel", "launch"),
        ],
    )
    faster = replay(line, np.array([0.5, 0.5]))
    # the wait ends at 60 instead of 110 us, 5 us after the kernel; the host then needs its 40 us to launch again
    assert faster.gpu.start_s == pytest.approx(np.array([5, 105]) * US)
    slower_host = replay(line, np.array([1.0, 1.0]), host=2.0)
    assert slower_host.gpu.start_s[1] > line.gpu.start_s[1]


def _behind_an_exchange(traced, *, gap_us=1, launch_us=30, exchange=(7, 1007)):
    """Return a kernel, an exchange on another stream, and a kernel that was launched early and starts after it."""
    low, high = exchange
    return traced(
        (0, high + 100),
        gpu=[
            (5, 15, "a", "kernel", 0, 7),
            (low, high, "ncclAllReduce", "communication", 1, 16),
            (high + gap_us, high + gap_us + 10, "b", "kernel", 2, 7),
        ],
        api=[
            (0, 1, "cudaLaunchKernel", "launch"),
            (2, 3, "cudaLaunchKernel", "launch"),
            (launch_us, launch_us + 1, "cudaLaunchKernel", "launch"),
        ],
    )


@pytest.mark.parametrize(("factor", "end_us"), [(1.0, 1007), (0.1, 107), (2.0, 2007), (0.02, 27)])
def test_work_on_an_idle_stream_starts_as_long_after_the_exchange_that_it_waited_for(traced, factor, end_us):
    """The stream of the last kernel was idle when it was launched, so it waited 978 us for the event of another."""
    line = _behind_an_exchange(traced)
    again = replay(line, np.array([1.0, factor, 1.0]))
    assert again.gpu.end_s[1] == pytest.approx(end_us * US)
    # no earlier than a usual latency of 5 us after the launch at 30 us
    assert again.gpu.start_s[2] == pytest.approx(max(end_us + 1, 30 + 5) * US)


def test_work_that_no_other_stream_held_up_keeps_its_latency(traced):
    # the exchange ends at 25 us, before the launch: what held the kernel up until 1021 us is not in the trace
    line = _behind_an_exchange(traced, gap_us=996, exchange=(7, 25))
    for factor in (0.1, 1.0, 10.0):
        again = replay(line, np.array([1.0, factor, 1.0]))
        assert again.gpu.start_s[2] == pytest.approx(1021 * US)


def test_work_does_not_wait_for_what_was_launched_after_it(traced):
    """The kernel on stream 16 waits for that on stream 7; the last to end before it is a later one on stream 7."""
    line = traced(
        (0, 200),
        gpu=[
            (5, 100, "a", "kernel", 0, 7),
            (100.2, 100.8, "c", "kernel", 2, 7),
            (101, 120, "ncclAllReduce", "communication", 1, 16),
        ],
        api=[(n, n + 0.5, "cudaLaunchKernel", "launch") for n in (0, 1, 2)],
    )
    faster = replay(line, np.array([0.4, 1.0, 1.0]))
    assert faster.gpu.end_s[0] == pytest.approx(43 * US)
    at = list(faster.gpu.name).index(line.gpu.name[2])
    assert faster.gpu.start_s[at] == pytest.approx(44 * US), "1 us after the first kernel, as before"


def _copied(traced, kernel_end, copy, call_end, *, pinned=0, direction=CopyDirection.HOST_TO_DEVICE):
    """Return a kernel from 5 us on, a copy that the host calls at 10 us, and a kernel that it launches afterwards."""
    launch = call_end + 20
    begin = max(launch + 5, copy[1])
    line = traced(
        (0, begin + 10),
        gpu=[(5, kernel_end, "a", "kernel", 0), (*copy, "Memcpy", "copy", 1), (begin, begin + 10, "b", "kernel", 2)],
        api=[
            (0, 1, "cudaLaunchKernel", "launch"),
            (10, call_end, "cudaMemcpyAsync", "copy"),
            (launch, launch + 1, "cudaLaunchKernel", "launch"),
        ],
    )
    kinds = {"direction": np.array([-1, direction, -1]), "pinned": np.array([-1, pinned, -1])}
    return dataclasses.replace(line, gpu=dataclasses.replace(line.gpu, **kinds))


def test_a_copy_from_pageable_memory_keeps_the_host_until_its_stream_is_free(traced):
    """Its call returns 50 us before the copy ends, when the last piece is in the driver's buffer."""
    line = _copied(traced, 1005, (1006, 4006), 3956)
    launched = replay(line, np.array([0.5, 1.0, 1.0])).api.start_s[2]
    assert launched == pytest.approx((3976 - 500) * US), "the kernel before it is 500 us shorter, so is the call"
    faster = replay(line, np.array([1.0, 0.5, 1.0]))
    assert faster.api.start_s[2] == pytest.approx((3976 - 1500) * US), "the copy takes 1.5 ms less"
    same = replay(line, np.ones(3))
    assert same.api.start_s == pytest.approx(line.api.start_s)


@pytest.mark.parametrize(
    ("copy", "pinned", "direction"),
    [
        # a short one is in the driver's buffer at once, and begins after its call
        ((36, 37), 0, CopyDirection.HOST_TO_DEVICE),
        ((20, 60), 1, CopyDirection.HOST_TO_DEVICE),
        # ended before its call returned, since the GPU had nothing else to do
        ((12, 14), -1, CopyDirection.DEVICE_TO_DEVICE),
    ],
    ids=["short", "pinned", "within the device"],
)
def test_the_host_does_not_wait_for_a_copy_that_it_only_queues(traced, copy, pinned, direction):
    line = _copied(traced, 11, copy, 31, pinned=pinned, direction=direction)
    slower = replay(line, np.array([100.0, 1.0, 1.0]))
    assert slower.gpu.start_s[1] == pytest.approx(605 * US, abs=30 * US)
    assert slower.api.start_s == pytest.approx(line.api.start_s)


def _inside(line):
    """Return the GPU time in the window of a time line [s]."""
    low, high = line.window_s
    return np.clip(np.minimum(line.gpu.end_s, high) - np.maximum(line.gpu.start_s, low), 0.0, None).sum()


_HOSTS = (0.1, 0.5, 1.0, 2.0, 4.0, 10.0, 100.0)


@pytest.mark.parametrize("wait_us", [5, 90])
@pytest.mark.parametrize("kernel_us", [4, 210])
@pytest.mark.parametrize("cut_us", [None, 0.4, 1.5])
def test_a_slower_host_never_makes_a_run_shorter_and_takes_no_kernel_out_of_it(traced, wait_us, kernel_us, cut_us):
    api = [(n * 50, n * 50 + 10, "cudaLaunchKernel", "launch") for n in range(20)]
    gpu, free = [], 0.0
    for n in range(20):
        start = max(free + 2, n * 50 + wait_us)
        gpu.append((start, start + kernel_us, "k", "kernel", n))
        free = start + kernel_us
    line = traced((0, free + 1000), gpu=gpu, api=api).between_gpu_work()
    if cut_us is not None:  # the window starts and ends within kernels
        line = dataclasses.replace(
            line, window_s=((gpu[3][0] + cut_us * kernel_us / 2) * US, (gpu[15][0] + cut_us * kernel_us / 2) * US)
        )
    lines = [replay(line, np.ones(20), host=host) for host in _HOSTS]
    times_s = [high - low for low, high in (one.window_s for one in lines)]
    assert times_s == sorted(times_s, key=lambda time_s: round(time_s, 12))
    assert times_s[_HOSTS.index(1.0)] == pytest.approx(line.window_s[1] - line.window_s[0])
    assert times_s[-1] > 2 * times_s[0]
    for one in lines:
        assert _inside(one) == pytest.approx(_inside(line))


def test_on_its_own_machine_only_the_host_of_a_run_is_unsure(traced):
    # the GPU sets the pace by far: a host 40 % faster or slower changes nothing, and the kernels were measured
    line = _queued(traced, 210, 5).between_gpu_work()
    line = dataclasses.replace(line, gpu=dataclasses.replace(line.gpu, entry=np.zeros(10, dtype=np.int64)))
    profile = Profile((ProfileEntry("k", 2100 * US, 10, EventKind.KERNEL),), timeline=line)
    own, other = (project(profile, A100, to) for to in (A100, H100))
    assert own.whole.low == pytest.approx(own.whole.high) == pytest.approx(2100 * US)
    assert sum(part.low for part in own.parts) == pytest.approx(own.whole.low)
    assert other.whole.low < other.whole.projected_time_s < other.whole.high


def test_a_stated_host_leaves_what_runs_and_runtimes_differ_by(traced):
    # launches 100 us apart, kernels of 5 us: the host sets the pace on every machine
    line = _queued(traced, 5, 100).between_gpu_work()
    line = dataclasses.replace(line, gpu=dataclasses.replace(line.gpu, entry=np.zeros(10, dtype=np.int64)))
    profile = Profile((ProfileEntry("k", 50 * US, 10, EventKind.KERNEL),), timeline=line)
    unsure = [
        math.log(whole.high / whole.projected_time_s) / Z80
        for whole in (project(profile, A100, to, host=1.5).whole for to in (H100, hardware("mi300x")))
    ]
    assert unsure[0] == pytest.approx(run_deviation(H100), rel=0.15)
    assert unsure[1] > 2 * unsure[0]
    same = project(profile, A100, A100, host=1.0).whole
    assert same.low == pytest.approx(same.high)


def test_the_note_on_the_host_has_the_deviation_that_the_interval_has():
    note = project(Profile((_gemm(),)), A100, A100, host=None).notes
    assert not any("host is assumed" in line for line in note)  # a table has no host
    assert f"within {100 * HOST_DEVIATION:.0f} %" in _host_note(None)
    (help_of_host,) = HostOption.__metadata__
    assert f"within {100 * HOST_DEVIATION:.0f} %" in help_of_host.help


@pytest.mark.parametrize(
    "name",
    [
        "traces/tracelens_h100_qwen1.5-0.5b_prefill.json.gz",
        "traces/kineto_resnet50_train_nw4_2021.pt.trace.json.gz",
        "traces/tracelens_mi300_resnet_act_checkpoint_ddp.json.gz",
    ],
)
def test_real_time_lines_replay_to_themselves(data_dir, name):
    line = read_profile(data_dir / name).timeline
    same = replay(line, np.ones(len(line.gpu)))
    assert same.gpu.start_s == pytest.approx(line.gpu.start_s, abs=3 * US)
    assert same.window_s == pytest.approx(line.window_s, abs=3 * US)


@pytest.mark.parametrize(("workers", "waited_ms"), [(0, 0), (4, 75)])
@pytest.mark.waiting
def test_the_copies_of_the_input_wait_for_the_kernels_before_them(data_dir, workers, waited_ms):
    """Six pageable copies keep the host for 75 ms where workers load the data, else the GPU is idle when they come."""
    path = data_dir / "traces" / f"kineto_resnet50_train_nw{workers}_2021.pt.trace.json.gz"
    profile = read_profile(path)
    gpu, api = profile.timeline.gpu, profile.timeline.api
    inputs = np.flatnonzero((gpu.pinned == 0) & (gpu.bytes > 1e6) & profile.timeline.in_window())
    behind_s = (gpu.start_s - api.start_s[np.maximum(gpu.launch, 0)])[inputs]
    assert behind_s.sum() == pytest.approx(1e-3 * waited_ms, abs=2e-3)
    whole = project(profile, A100, H200, host=1.0).whole
    # of what the host waited most is saved, and some of the time of the copies themselves
    saved_s, copies_s = whole.time_s - whole.projected_time_s, gpu.duration_s[inputs].sum()
    assert 0.6 * behind_s.sum() < saved_s < behind_s.sum() + copies_s


@pytest.mark.parametrize("kind", ["even", "slow_rank"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_becomes_longer_by_what_its_exchanges_do(kind, rank):
    """DDP's optimiser waits for the exchange, so a slower link makes the run longer, and no idle time shorter."""
    path = Path(__file__).parent / "ranks" / "traces" / f"nccl_ddp_2_{kind}" / f"rank{rank}.json.gz"
    profile = read_profile(path)
    exchanges = [entry.name for entry in profile.entries if entry.category is EventKind.COMMUNICATION]
    found = project(profile, H200, hardware("b200"), host=1.0, only=exchanges)
    longer_s = sum(part.projected_time_s - part.time_s for part in found.parts if part.name in exchanges)
    assert longer_s > 1e-3
    assert found.whole.projected_time_s - found.whole.time_s == pytest.approx(longer_s, rel=0.15)


def test_the_parts_of_a_projected_trace_add_up_to_its_whole(data_dir):
    profile = read_profile(data_dir / "traces" / "tracelens_h100_qwen1.5-0.5b_prefill.json.gz")
    projection = project(profile, H100, A100)
    total_s = sum(part.projected_time_s for part in projection.parts)
    assert total_s == pytest.approx(projection.whole.projected_time_s)
    # a prefill is bound by kernels: between the ratios of the bandwidths and of the peaks
    assert 1.6 < 1 / projection.whole.speedup < 3.3
    # what is read on the target is diagnosed like any profile
    assert diagnose(projection.profile_there, A100).total_s == pytest.approx(total_s)


def test_a_run_that_waits_for_its_host_does_not_become_faster(data_dir):
    profile = read_profile(data_dir / "traces" / "tracelens_h100_bert-small.json.gz")
    same_host, fast_host = (project(profile, H100, A100, host=host).whole for host in (1.0, 0.5))
    assert same_host.speedup == pytest.approx(1.0, abs=0.05)
    assert fast_host.projected_time_s == pytest.approx(0.5 * same_host.projected_time_s, rel=0.1)


def test_the_report_has_the_contracts_keys():
    table = report(project(Profile((_gemm(),)), A100, H100))
    keys = {"name", "time_s", "projected_time_s", "low", "high", "limiter", "basis"}
    assert keys <= set(table.rows[0])
    assert keys <= set(table.as_json()["whole"][0])


def test_a_host_has_to_take_some_time():
    with pytest.raises(UsageError, match="above 0"):
        project(Profile((_gemm(),)), A100, H100, host=0.0)


def test_counters_scale_by_the_bound_of_what_they_counted():
    entry = dataclasses.replace(_gemm(1.0), op=None, flop=1e12, bytes=2e12)
    ratio = A100.main_memory.bandwidth_bytes_per_s / H100.main_memory.bandwidth_bytes_per_s
    assert scale_entry(entry, A100, H100).factor == pytest.approx(ratio)


@pytest.mark.parametrize(("share", "limiter"), [(0.9, Limiter.HBM), (0.4, Limiter.UNKNOWN)])
def test_a_kernel_that_streams_counted_bytes_is_limited_by_memory_there_too(share, limiter):
    # below half of the bandwidth the bytes do not tell what limits a kernel, nor does this name
    bytes_ = share * 1e-3 * A100.main_memory.bandwidth_bytes_per_s
    entry = ProfileEntry("saxpy_kernel", 1e-3, 1, EventKind.KERNEL, bytes=bytes_)
    assert limit(entry, A100).limiter is limiter
    assert scale_entry(entry, A100, H100).limiter is limiter


def test_the_limiter_is_what_takes_most_of_the_prediction_on_the_other_machine():
    # a kernel that computes the address of each element gains nothing from more bandwidth, a stream of vectors does
    op = Elementwise(numel=1 << 27, kind="copy", dtype="bf16", strided=True)
    strided, streamed = (
        scale_entry(ProfileEntry("c", 1e-3, 1, EventKind.KERNEL, one), H100, H200)
        for one in (op, dataclasses.replace(op, strided=False))
    )
    assert strided.factor > 0.95
    assert strided.limiter is Limiter.COMPUTE
    assert streamed.factor < 0.8
    assert streamed.limiter is Limiter.HBM


def test_copies_within_the_interval_of_their_elementwise_prediction():
    op = Elementwise(numel=1 << 26, kind="copy", dtype="fp16")
    entry = ProfileEntry("c", float(predict(op, A100).predicted_time_s), 1, EventKind.KERNEL, op)
    factor = scale_entry(entry, A100, H100).factor
    assert factor == pytest.approx(2039 / 3352, rel=0.15)


def test_whole_models_measured_on_two_machines(data_dir, monkeypatch):
    path = Path(__file__).parents[2] / "scripts" / "projections.py"
    spec = importlib.util.spec_from_file_location("projections", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "projections", module)
    monkeypatch.syspath_prepend(str(path.parent))  # scripts import one another
    spec.loader.exec_module(module)
    found = module.pairs(data_dir)
    assert len(found) >= 30
    assert sum(abs(pair.error) for pair in found) / len(found) < 0.05
    assert sum(pair.inside for pair in found) / len(found) >= 0.8


@pytest.mark.parametrize(
    ("graph", "measured"),
    # whole models in milliseconds on both machines, from the same source
    [("bert_large-inf-512-16", (396.475, 136.784)), ("gpt2_large-inf-1024-4", (535.821, 215.032))],
)
def test_op_graphs_without_shapes_project_to_what_the_model_took(data_dir, tmp_path, graph, measured):
    text = (data_dir / "profile_tables" / f"neusight_opgraph_A100-PCIE-40GB_{graph}.csv").read_text(encoding="utf-8")
    header, rest = text.split("\n", 1)
    columns = ["latency_ms" if name == "latency" else name.replace("latency", "part") for name in header.split(",")]
    table = tmp_path / "graph.csv"
    table.write_text(",".join(columns) + "\n" + rest, encoding="utf-8")
    whole = project(read_profile(table), hardware("a100-pcie-40gb"), H100).whole
    ratio = measured[1] / measured[0]
    # the graph has one of 24 or 36 layers, so that the head weighs more than in the model
    assert whole.projected_time_s / whole.time_s == pytest.approx(ratio, rel=0.2)
    assert whole.low / whole.time_s < ratio < whole.high / whole.time_s


@pytest.mark.parametrize("workers", [0, 4])
@pytest.mark.parametrize("target", [A100, H100], ids=lambda machine: machine.name)
@pytest.mark.waiting
def test_faster_kernels_with_the_same_host_take_no_longer(data_dir, workers, target):
    """A deep queue in the middle of a trace: the window begins with its first work, and not with its last."""
    path = data_dir / "traces" / f"kineto_resnet50_train_nw{workers}_2021.pt.trace.json.gz"
    found = project(read_profile(path), V100, target, host=1.0)
    assert found.whole.projected_time_s <= found.whole.time_s
    assert found.whole.low <= found.whole.projected_time_s

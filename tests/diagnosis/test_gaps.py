"""Gaps worked by hand: small time lines in microseconds, each with one reason for its gap."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.diagnosis.gaps import find_gaps, is_input_pipeline, waiting_calls

US = 1e-6


def _parts(line):
    """Return launch, sync, input, untraced and host work, and delayed time of each gap [us]."""
    gaps = find_gaps(line, np.arange(len(line.gpu)), line.window_s)
    lengths = gaps.end_s - gaps.start_s
    total = gaps.launch_s + gaps.sync_s + sum(gaps.idle_s.values())
    assert total == pytest.approx(lengths)
    columns = (gaps.launch_s, gaps.sync_s, gaps.input_s, gaps.untraced_s + gaps.host_work_s, gaps.delayed_s)
    return [tuple(round(float(value) / US, 6) for value in row) for row in zip(*columns, strict=True)]


def test_a_late_launch_is_launch_time(traced):
    # kernels 0-10 and 40-50; the second is asked for at 35 while the host was in operators all the time
    line = traced(
        (0, 50),
        gpu=[(0, 10, "a", "kernel", 0), (40, 50, "b", "kernel", 1)],
        api=[(-5, -1, "cudaLaunchKernel", "launch"), (35, 38, "cudaLaunchKernel", "launch")],
        ops=[(-10, 50, "aten::mm")],
    )
    assert _parts(line) == [(30, 0, 0, 0, 0)]


def test_python_between_two_operators_is_launch_time(traced):
    # from 12 to 34 no operator runs, which is shorter than a millisecond: Python on its way to the next
    line = traced(
        (0, 50),
        gpu=[(0, 10, "a", "kernel", 0), (40, 50, "b", "kernel", 1)],
        api=[(-5, -1, "cudaLaunchKernel", "launch"), (35, 38, "cudaLaunchKernel", "launch")],
        ops=[(-10, 12, "aten::mm"), (34, 39, "aten::mm")],
    )
    assert _parts(line) == [(30, 0, 0, 0, 0)]


def test_a_host_that_is_away_leaves_the_gpu_idle(traced):
    # no operator from 20 to 5000 us: away for 4980; launching: 10 to 20, 5000 to 5010
    line = traced(
        (0, 5020),
        gpu=[(0, 10, "a", "kernel", 0), (5010, 5020, "b", "kernel", 1)],
        api=[(-5, -1, "cudaLaunchKernel", "launch"), (5005, 5008, "cudaLaunchKernel", "launch")],
        ops=[(-10, 20, "aten::mm"), (5000, 5009, "aten::mm")],
    )
    assert _parts(line) == [(20, 0, 0, 4980, 0)]


def test_a_wait_and_the_restart_after_it_are_sync_time(traced):
    # the host waits from 5 to 14 for the kernel that ends at 10, then asks for more at 30; it arrives at 36
    line = traced(
        (0, 46),
        gpu=[(0, 10, "a", "kernel", 0), (36, 46, "b", "kernel", 2)],
        api=[
            (-5, -1, "cudaLaunchKernel", "launch"),
            (5, 14, "cudaStreamSynchronize", "sync"),
            (30, 34, "cudaLaunchKernel", "launch"),
        ],
        ops=[(-10, 46, "aten::item")],
    )
    # 10 to 30 because of the wait; 30 to 36 is the launch's own latency
    assert _parts(line) == [(6, 20, 0, 0, 0)]
    gaps = find_gaps(line, np.arange(2), line.window_s)
    assert gaps.sync_call.tolist() == [1]


def test_a_copy_without_async_waits_too(traced):
    line = traced(
        (0, 40),
        gpu=[(0, 10, "a", "copy", 0), (30, 40, "b", "kernel", 1)],
        api=[(-5, 15, "cudaMemcpy", "copy"), (28, 29, "cudaLaunchKernel", "launch")],
    )
    assert _parts(line) == [(2, 18, 0, 0, 0)]


def test_the_input_pipeline_is_named(traced):
    line = traced(
        (0, 3000),
        gpu=[(0, 10, "a", "kernel", 0), (2500, 3000, "b", "kernel", 1)],
        api=[(-5, -1, "cudaLaunchKernel", "launch"), (2490, 2495, "cudaLaunchKernel", "launch")],
        ops=[(20, 2400, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"), (2400, 2496, "aten::conv2d")],
    )
    # 10-20 and 2400-2500 launching, 20-2400 input
    assert _parts(line) == [(110, 0, 2380, 0, 0)]


def test_an_event_that_is_asked_for_and_held_up_is_idle(traced):
    # asked for at 0, returned at 4; from 24 on (20 us later) something else holds it up
    line = traced(
        (0, 110),
        gpu=[(0, 10, "a", "kernel", 0), (100, 110, "b", "kernel", 1)],
        api=[(-5, -1, "cudaLaunchKernel", "launch"), (0, 4, "cudaLaunchKernel", "launch")],
    )
    # the gap is 10 to 100: launch 10 to 24, delayed 24 to 100
    assert _parts(line) == [(14, 0, 0, 0, 76)]


def test_the_ends_of_the_window_are_gaps_too(traced):
    line = traced(
        (0, 100),
        gpu=[(20, 30, "a", "kernel", 0)],
        api=[(15, 18, "cudaLaunchKernel", "launch"), (25, 60, "cudaDeviceSynchronize", "sync")],
        ops=[(0, 100, "aten::mm")],
    )
    # 0-15 in operators, 15-20 latency; at the end 30-60 waiting, and then nothing is asked for any more
    assert _parts(line) == [(20, 0, 0, 0, 0), (0, 30, 0, 40, 0)]


def test_without_api_calls_the_host_is_away(traced):
    line = traced((0, 40), gpu=[(0, 10, "a", "kernel", -1), (30, 40, "b", "kernel", -1)])
    assert _parts(line) == [(0, 0, 0, 20, 0)]


def test_the_event_before_a_gap_is_the_one_that_ends_last(traced):
    line = traced(
        (0, 60),
        gpu=[(0, 30, "long", "kernel", -1), (5, 10, "short", "kernel", -1), (50, 60, "next", "kernel", -1)],
    )
    gaps = find_gaps(line, np.arange(3), line.window_s)
    assert (gaps.before.tolist(), gaps.after.tolist()) == ([0], [2])


def test_a_call_that_takes_long_is_no_launching(traced):
    # cudaFree from 20 to 6000 us, and the operator around it goes on for 100 us: 10-20 and 6000-6105 are launching
    line = traced(
        (0, 6115),
        gpu=[(0, 10, "a", "kernel", 0), (6105, 6115, "b", "kernel", 2)],
        api=[
            (-5, -1, "cudaLaunchKernel", "launch"),
            (20, 6000, "cudaFree", "other"),
            (6100, 6103, "cudaLaunchKernel", "launch"),
        ],
        ops=[(-10, 6110, "aten::conv2d")],
    )
    assert _parts(line) == [(115, 0, 0, 5980, 0)]
    gaps = find_gaps(line, np.arange(2), line.window_s)
    assert gaps.host_work_s.sum() == pytest.approx(5980 * US)


def test_a_launch_that_loads_a_module_is_no_launching(traced):
    # the launch itself takes 3000 us, then the usual latency: 10-40 late, 3040-3045 latency
    line = traced(
        (0, 3055),
        gpu=[(0, 10, "a", "kernel", 0), (3045, 3055, "b", "kernel", 1)],
        api=[(-5, -1, "cudaLaunchKernel", "launch"), (40, 3040, "cudaLaunchKernel", "launch")],
        ops=[(-10, 3050, "aten::mm")],
    )
    assert _parts(line) == [(35, 0, 0, 3000, 0)]


def test_an_operator_on_the_cpu_is_no_launching(traced):
    # 2 ms in an operator that asks the GPU for nothing
    line = traced(
        (0, 2040),
        gpu=[(0, 10, "a", "kernel", 0), (2030, 2040, "b", "kernel", 1)],
        api=[(-5, -1, "cudaLaunchKernel", "launch"), (2025, 2028, "cudaLaunchKernel", "launch")],
        ops=[(-10, 2029, "aten::unique")],
    )
    # from the return of the first launch to the second one nothing was asked for
    assert _parts(line) == [(5, 0, 0, 2015, 0)]


def test_between_two_queued_kernels_is_launch_time(traced):
    line = traced(
        (0, 25),
        gpu=[(0, 10, "a", "kernel", 0), (11.5, 25, "b", "kernel", 1)],
        api=[(-50, -48, "cudaLaunchKernel", "launch"), (-45, -44, "cudaLaunchKernel", "launch")],
    )
    assert _parts(line) == [(1.5, 0, 0, 0, 0)]
    assert find_gaps(line, np.arange(2), line.window_s).launched_ahead.tolist() == [True]


@pytest.mark.parametrize(("pause", "untraced"), [(990, 0), (1010, 1010)])
def test_a_thread_without_any_range_for_a_millisecond_is_untraced(traced, pause, untraced):
    # the operators pause from 20 us on; calls at 18 and after the pause keep the time without a call below 1 ms
    after = 20 + pause
    line = traced(
        (0, after + 20),
        gpu=[(0, 10, "a", "kernel", 0), (after + 15, after + 20, "b", "kernel", 3)],
        api=[
            (-5, -1, "cudaLaunchKernel", "launch"),
            (18, 20, "cudaEventRecord", "other"),
            (after, after + 1, "cudaEventRecord", "other"),
            (after + 10, after + 12, "cudaLaunchKernel", "launch"),
        ],
        ops=[(-10, 20, "aten::mm"), (after, after + 14, "aten::mm")],
    )
    gaps = find_gaps(line, np.arange(2), line.window_s)
    assert gaps.untraced_s.sum() == pytest.approx(untraced * US)
    assert gaps.host_work_s.sum() == 0


@pytest.mark.parametrize(("silence", "work"), [(990, 0), (1010, 1010)])
def test_a_millisecond_without_a_runtime_call_is_host_work(traced, silence, work):
    # one operator all the time, whose calls are `silence` apart
    line = traced(
        (0, silence + 40),
        gpu=[(0, 10, "a", "kernel", 0), (silence + 30, silence + 40, "b", "kernel", 2)],
        api=[
            (-5, -1, "cudaLaunchKernel", "launch"),
            (12, 20, "cudaEventRecord", "other"),
            (silence + 20, silence + 25, "cudaLaunchKernel", "launch"),
        ],
        ops=[(-10, silence + 40, "aten::unique")],
    )
    gaps = find_gaps(line, np.arange(2), line.window_s)
    assert gaps.host_work_s.sum() == pytest.approx(work * US)
    assert gaps.untraced_s.sum() == 0


@pytest.mark.parametrize(("duration", "work"), [(990, 0), (1010, 1010)])
def test_a_launch_of_a_millisecond_is_host_work(traced, duration, work):
    line = traced(
        (0, duration + 30),
        gpu=[(0, 10, "a", "kernel", 0), (duration + 20, duration + 30, "b", "kernel", 1)],
        api=[(-5, -1, "cudaLaunchKernel", "launch"), (15, duration + 15, "cudaLaunchKernel", "launch")],
        ops=[(-10, duration + 30, "aten::mm")],
    )
    gaps = find_gaps(line, np.arange(2), line.window_s)
    assert gaps.host_work_s.sum() == pytest.approx(work * US)


def test_a_queued_event_that_starts_after_the_usual_gap_is_delayed(traced):
    # launched long before; of the 12 us between the kernels 5 are usual
    line = traced(
        (0, 32),
        gpu=[(0, 10, "a", "kernel", 0), (22, 32, "b", "kernel", 1)],
        api=[(-90, -88, "cudaLaunchKernel", "launch"), (-85, -84, "cudaLaunchKernel", "launch")],
    )
    assert _parts(line) == [(5, 0, 0, 0, 7)]


@pytest.mark.parametrize(("gap", "ahead"), [(4.5, True), (5.5, False)])
def test_an_event_without_a_recorded_call_counts_as_queued_after_a_usual_gap(traced, gap, ahead):
    line = traced(
        (0, 30),
        gpu=[(0, 10, "a", "kernel", 0), (10 + gap, 30, "b", "kernel", -1)],
        api=[(-5, -1, "cudaLaunchKernel", "launch")],
    )
    assert find_gaps(line, np.arange(2), line.window_s).launched_ahead.tolist() == [ahead]


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("cudaStreamSynchronize", True),
        ("cudaMemcpy", True),
        ("hipMemcpyWithStream", True),
        ("cuMemcpyDtoH_v2", True),
        ("cudaMemcpyAsync", False),
        ("cuMemcpyHtoDAsync_v2", False),
        ("cudaLaunchKernel", False),
        ("cudaMemset", False),
    ],
)
def test_only_synchronisations_and_copies_that_are_not_asynchronous_wait(traced, name, waits):
    kind = "sync" if "Synchronize" in name else "copy" if "Mem" in name else "launch"
    assert waiting_calls(traced((0, 10), api=[(0, 5, name, kind)])).tolist() == [waits]


@pytest.mark.parametrize(
    ("name", "is_input"),
    [
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", True),
        ("enumerate(batches)", True),
        ("my_data_loader", True),
        ("_next_data", True),
        ("DataLoaderIter", True),
        ("aten::conv2d", False),
        ("load_weights", False),
    ],
)
def test_names_of_input_pipelines(traced, name, is_input):
    assert is_input_pipeline(traced((0, 10), ops=[(0, 5, name)])).tolist() == [is_input]

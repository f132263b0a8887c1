"""Where the limits of linking and of the window lie, each with its reason."""

import json

import pytest

from perfmodel.formats import read_profile


def event(cat, name, ts, dur, tid=1, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name, ts, dur, correlation=-1, **args):
    return event("kernel", name, ts, dur, 7, correlation=correlation, **{"stream": 7, "device": 0, **args})


@pytest.fixture
def read(tmp_path):
    def call(*events, **options):
        path = tmp_path / "trace.json"
        path.write_text(json.dumps({"traceEvents": list(events)}))
        return read_profile(path, **options)

    return call


@pytest.mark.parametrize(
    ("ends_earlier_us", "counts"),
    [
        # Traces of 2021 round start and duration to whole microseconds. "a" runs from 0.4 to 9.5: start 0, duration 9
        # or 10. "b" follows from 9.5 to 10.5: start 9 or 10, duration 1. As written, "b" may end up to 1 us before "a".
        (0.0, True),
        (0.5, True),
        (1.0, True),
        # rounding does not explain more: "b" is inside "a", and its time would count twice
        (1.1, False),
        (2.0, False),
        (5.0, False),
    ],
)
def test_work_that_only_rounding_puts_inside_other_work_counts(read, ends_earlier_us, counts):
    profile = read(kernel("a", 0, 20), kernel("b", 10, 10 - ends_earlier_us))
    assert {entry.name for entry in profile.entries} == ({"a", "b"} if counts else {"a"})
    assert sum(profile.skipped.values()) == (0 if counts else 1)


def test_work_of_other_streams_devices_and_unknown_streams_is_never_inside(read):
    others = (kernel("b", 1, 2, stream=8), kernel("c", 1, 2, device=1), event("kernel", "d", 1, 2))
    assert {entry.name for entry in read(kernel("a", 0, 50), *others).entries} == {"a", "b", "c", "d"}


def test_work_inside_work_that_is_inside_other_work_counts_once(read):
    # b ends before a does, and c starts after b but still inside a
    profile = read(kernel("a", 0, 50), kernel("b", 5, 10), kernel("c", 20, 10), kernel("d", 60, 1))
    assert {entry.name for entry in profile.entries} == {"a", "d"}
    assert profile.total_time_s == pytest.approx(51e-6)


CPU_STEP = event("user_annotation", "ProfilerStep#1", 0, 1000)
RUN = (event("cuda_runtime", "cudaLaunchKernel", 1, 1, correlation=1), kernel("in", 300, 10, 1), kernel("out", 1500, 5))


@pytest.mark.parametrize(
    ("gpu_step_us", "is_used"),
    [
        # a run that waits for its CPU keeps the GPU busy for a fifth of a step, or less
        (200, True),
        (120, True),
        # ROCm ends the range with the first kernels of the step: 0.1 % of the step on a MI300
        (80, False),
        (1, False),
    ],
)
def test_steps_on_the_gpu_are_used_if_they_cover_the_step(read, gpu_step_us, is_used):
    gpu_step = event("gpu_user_annotation", "ProfilerStep#1", 295, gpu_step_us, tid=7)
    profile = read(CPU_STEP, *RUN, gpu_step)
    assert [entry.name for entry in profile.entries] == ["in"]
    start_s, end_s = profile.timeline.window_s
    assert end_s - start_s == pytest.approx(gpu_step_us * 1e-6 if is_used else 1000e-6)


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ({"ts": 1.8e18}, ""),  # nanoseconds since 1970, as some profilers write
        ({"ts": 2e19}, "event with an impossible time"),
        ({"dur": 0.9e15}, ""),  # 30 years, the longest time of any profile
        ({"dur": 1.1e15}, "event with an impossible time"),
        ({"ts": -1}, "event with a negative time"),
        ({"dur": -1}, "event with a negative time"),
    ],
)
def test_times_that_cannot_be_are_skipped(read, times, reason):
    profile = read({**kernel("a", 0, 1), **times}, kernel("b", 1, 1, stream=9))
    assert profile.skipped == ({reason: 1} if reason else {})


def test_the_size_of_a_copy_above_2_to_the_53_is_unknown(read):
    # a float64 no longer holds every whole number of bytes, and no memory is as large
    for size, known in ((2**52, True), (2**60, False), (1e300, False), (str(10**400), False), (-1, False)):
        copy = event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 0, 1, 7, stream=7, device=0, bytes=size)
        assert (read(copy).entries[0].op is not None) == known

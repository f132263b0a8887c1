"""The time line: codes of events, and what lies in the window."""

import numpy as np
import pytest

from perfmodel.core.vocabulary import EventKind
from perfmodel.profile.timeline import ApiCalls, CopyDirection, GpuEvents, HostRanges, Timeline


def test_directions_have_the_words_of_memcpy():
    words = {direction: direction.word for direction in CopyDirection}
    assert words == {0: "h2d", 1: "d2h", 2: "d2d", 3: "", -1: ""}


def test_events_of_a_kind():
    gpu = GpuEvents(category=np.array([EventKind.KERNEL.code, EventKind.MEMSET.code, EventKind.KERNEL.code]))
    assert gpu.are(EventKind.KERNEL).tolist() == [True, False, True]
    assert gpu.are(EventKind.COMMUNICATION).tolist() == [False] * 3


def test_events_start_in_the_window_or_overlap_it():
    # before; reaching in; inside; reaching out; after the window from 10 to 20 s
    gpu = GpuEvents(start_s=np.array([0.0, 5, 12, 18, 20.5]), duration_s=np.array([10.0, 6, 2, 5, 1]))
    line = Timeline(gpu=gpu, window_s=(10.0, 20.0))
    assert line.in_window().tolist() == [False, False, True, True, False]
    assert line.overlaps_window().tolist() == [False, True, True, True, False]


def test_a_time_line_without_annotations_has_no_steps():
    assert Timeline(window_s=(0.0, 1.0)).count_steps() == 0


@pytest.mark.parametrize(("long_at_s", "steps"), [(2.0, 1), (20.0, 0)])
def test_a_step_is_inside_where_most_of_its_time_on_the_gpu_is(long_at_s, steps):
    # three short kernels in the window, and one that takes longer than they together in it or after it
    gpu = GpuEvents(np.array([1.0, 1.2, 1.4, long_at_s]), np.array([0.1, 0.1, 0.1, 5.0]), launch=np.arange(4))
    api = ApiCalls(np.array([0.1, 0.2, 0.3, 0.4]), np.full(4, 0.01))
    ranges = HostRanges(np.array([0.0]), np.array([0.5]), np.array([0]))
    line = Timeline(names=("ProfilerStep#3",), gpu=gpu, api=api, annotations=ranges, window_s=(0.0, 10.0))
    assert line.count_steps() == steps


@pytest.mark.parametrize("name", ["step", "Profiler", "iteration 1"])
def test_other_annotations_are_no_steps(name):
    ranges = HostRanges(np.array([0.0]), np.array([1.0]), np.array([0]))
    assert Timeline(names=(name,), annotations=ranges, window_s=(0.0, 1.0)).count_steps() == 0

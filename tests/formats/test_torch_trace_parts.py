"""Nesting of ranges and what names say, by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.formats.kernel_names import (
    api_category,
    copy_direction,
    copy_pinned,
    gpu_category,
    kernel_dtype,
)
from perfmodel.formats.nesting import innermost, parents, self_time
from perfmodel.profile.timeline import COPY, KERNEL, LAUNCH, MEMCPY, SYNC


def test_nesting_by_hand():
    # thread 1: [0, 10] > [2, 5] > [3, 4], then [10, 12]; thread 2: [3, 4]
    start, end = np.array([0.0, 2, 3, 10, 3]), np.array([10.0, 5, 4, 12, 4])
    thread = np.array([1, 1, 1, 1, 2])
    parent = parents(start, end, thread)
    assert parent.tolist() == [-1, 0, 1, -1, -1]
    assert self_time(end - start, parent).tolist() == [7, 2, 1, 2, 1]
    moments = np.array([3.5, 6.0, 10.0, 12.0, 3.5, 0.0])
    assert innermost(start, end, thread, moments, np.array([1, 1, 1, 1, 2, 3])).tolist() == [2, 0, 3, -1, 4, -1]


def test_names_say_what_runs():
    assert [api_category(n) for n in ("cudaLaunchKernelExC", "hipGraphLaunch", "cuLaunchKernel")] == [LAUNCH] * 3
    assert api_category("cudaStreamSynchronize") == SYNC
    assert api_category("hipMemcpyWithStream") == COPY
    assert gpu_category("kernel", "__amd_rocclr_copyBuffer") == MEMCPY
    assert gpu_category("kernel", "ampere_sgemm_128x64_nn") == KERNEL
    assert (copy_direction("Memcpy PtoP (Device -> Device)"), copy_pinned("Memcpy PtoP")) == (2, -1)
    assert kernel_dtype("ampere_sgemm_128x64_nn") == "float"
    assert kernel_dtype("volta_scudnn_128x64_relu_interior_nn_v1") == "float"
    assert kernel_dtype("void f<c10::Half, float>(int)") == "c10::Half"
    assert kernel_dtype("cub::DeviceScanKernel") == ""


RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12), st.integers(0, 1)), min_size=1, max_size=14)


@given(ranges=RANGES, moments=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1)), min_size=1, max_size=8))
def test_the_innermost_range_is_the_last_to_start_of_those_that_run(ranges, moments):
    start, length, thread = (np.array(column, dtype=np.int64) for column in zip(*ranges, strict=True))
    end = start + length
    at, at_thread = (np.array(column, dtype=np.int64) for column in zip(*moments, strict=True))
    found = innermost(start * 1.0, end * 1.0, thread, at * 1.0, at_thread)
    for moment, on, index in zip(at, at_thread, found, strict=True):
        running = (thread == on) & (start <= moment) & (end > moment)
        assert (index >= 0) == running.any()
        if index >= 0:
            assert running[index]
            assert start[index] == start[running].max()

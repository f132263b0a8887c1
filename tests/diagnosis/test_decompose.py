"""The division of wall time, on time lines in microseconds that are added up by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.core.vocabulary import Dimension, Limiter
from perfmodel.diagnosis.decompose import decompose, dimension_of
from perfmodel.errors import UsageError
from perfmodel.profile.timeline import CopyDirection

US = 1e-6


def _parts(line, limiter):
    made = decompose(line, np.array(limiter))
    assert sum(made.time_s.values()) == pytest.approx(made.wall_s)
    return {name: round(value / US, 6) for name, value in made.time_s.items() if value > 1e-12}, made


def test_kernels_go_to_what_limits_them(traced):
    line = traced(
        (0, 60),
        gpu=[
            (0, 10, "gemm", "kernel", -1),
            (10, 30, "add", "kernel", -1),
            (30, 60, "odd", "kernel", -1),
        ],
    )
    parts, _ = _parts(line, ["compute", "hbm", "unknown"])
    assert parts == {"compute": 10, "memory": 20, "other kernels": 30}


def test_only_the_exposed_part_of_a_copy_is_transfer(traced):
    # the copy runs from 5 to 25 on another stream; a kernel covers it until 10
    line = traced((0, 25), gpu=[(0, 10, "gemm", "kernel", -1), (5, 25, "h2d", "copy", -1, 9)])
    parts, made = _parts(line, ["compute", "link"])
    assert parts == {"compute": 10, "transfer": 15}
    assert made.hidden_copy_s == pytest.approx(5 * US)


def test_kernels_hide_communication_and_communication_hides_copies(traced):
    # all-reduce 0-20, kernel 10-15 inside it, copy 18-30 of which the all-reduce covers 2
    line = traced(
        (0, 30),
        gpu=[
            (0, 20, "nccl", "communication", -1, 8),
            (10, 15, "gemm", "kernel", -1, 7),
            (18, 30, "h2d", "copy", -1, 9),
        ],
    )
    parts, made = _parts(line, ["link", "compute", "link"])
    assert parts == {"compute": 5, "transfer": 25}
    assert made.hidden_communication_s == pytest.approx(5 * US)
    assert made.share_s == pytest.approx([15 * US, 5 * US, 10 * US])


def test_events_are_cut_at_the_window(traced):
    line = traced((5, 15), gpu=[(0, 10, "a", "kernel", -1), (12, 30, "b", "kernel", -1)])
    parts, _ = _parts(line, ["compute", "compute"])
    assert parts == {"compute": 8, "idle": 2}


def test_several_gpus_are_averaged(traced):
    # one works 10 of 20, the other all of it: 15 in the mean, and 5 of idling
    line = traced((0, 20), gpu=[(0, 10, "a", "kernel", -1, 7, 0), (0, 20, "a", "kernel", -1, 7, 1)])
    parts, made = _parts(line, ["hbm", "hbm"])
    assert parts == {"memory": 15, "idle": 5}
    assert made.devices == (0, 1)


def test_a_time_line_without_a_gpu_is_refused(traced):
    with pytest.raises(UsageError, match="no GPU event"):
        decompose(traced((0, 10), api=[(0, 5, "cudaLaunchKernel", "launch")]), np.array([], dtype=np.str_))


def test_each_limiter_has_a_dimension():
    of = {dimension: {limiter for limiter in Limiter if dimension_of(limiter) == dimension} for dimension in Dimension}
    assert of[Dimension.COMPUTE] == {"compute"}
    assert of[Dimension.MEMORY] == {"hbm", "dram", "llc", "l3", "l2", "l1", "shared", "registers"}
    assert of[Dimension.TRANSFER] == {"link"}
    assert of[Dimension.OTHER] == {"launch", "host", "unknown"}


def test_a_copy_inside_a_device_is_work_of_its_memory(traced):
    line = traced((0, 20), gpu=[(0, 20, "d2d", "copy", -1)])
    inside = replace(line, gpu=replace(line.gpu, direction=np.array([CopyDirection.DEVICE_TO_DEVICE])))
    assert _parts(line, ["link"])[0] == {"transfer": 20}
    assert _parts(inside, ["link"])[0] == {"memory": 20}


def test_a_copy_between_devices_is_transfer(traced):
    line = traced((0, 20), gpu=[(0, 20, "p2p", "copy", -1)])
    between = replace(line, gpu=replace(line.gpu, direction=np.array([CopyDirection.BETWEEN_DEVICES])))
    assert _parts(between, ["link"])[0] == {"transfer": 20}

"""Work that was launched before the trace began, in runs that repeat and in runs that do not."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.formats.torch_trace.repeats import PROBE, same_work_later

#: names of a step of 100 kernels, some of them several times
STEP = np.array([7 * place % 31 for place in range(100)])


def later(names, before, lane=None, duration_s=None):
    names = np.asarray(names)
    launch = np.where(np.arange(names.size) < before, -1, np.arange(names.size))
    lane = np.zeros(names.size, dtype=int) if lane is None else np.asarray(lane)
    return same_work_later(names, launch, lane, np.ones(names.size) if duration_s is None else np.asarray(duration_s))


@pytest.mark.parametrize("before", [PROBE, 80, 100, 150])
def test_the_kernels_of_a_step_come_again_a_step_later(before):
    names = np.tile(STEP, 4)[20:]
    found = later(names, before)
    assert np.all(found[before:] == -1)
    assert np.all(names[found[:before]] == names[:before])
    # whole steps later, and beyond the last that has no launch
    assert len(set(found[:before] - np.arange(before))) == 1
    assert (found[0] % 100, found[0] >= before) == (0, True)


def test_a_kernel_that_differs_stands_for_itself():
    names = np.tile(STEP, 4)
    names[3] = 99
    found = later(names, 100)
    assert found[3] == -1
    assert np.count_nonzero(found >= 0) == 99


def test_nothing_is_said_of_a_run_that_does_not_repeat():
    assert np.all(later(np.arange(400), 100) == -1)
    assert np.all(later(np.tile(STEP, 4), PROBE - 1) == -1), "too few to be sure"
    assert np.all(later(np.tile(STEP, 2), 200) == -1), "none has a launch"
    assert later([], 0).size == 0


def test_a_short_stream_beside_it_is_told_by_its_durations():
    """Two exchanges a step with one name, the long one first; the trace begins after the first long one."""
    names = np.concatenate([np.tile(STEP, 4), np.full(8, 50)])
    lane = np.concatenate([np.zeros(400, dtype=int), np.ones(8, dtype=int)])
    duration = np.concatenate([np.ones(400), [9.0, 1.0, 9.5, 1.1, 9.1, 1.0, 9.2, 1.2]])
    launch = np.arange(408)
    launch[:100] = launch[400:403] = -1
    found = same_work_later(names, launch, lane, duration)
    assert found[400:403].tolist() == [404, 405, 406]
    # alone, it is too short
    assert np.all(same_work_later(names[400:], launch[400:], lane[400:], duration[400:]) == -1)

"""Kernels whose dispatch stands before them, by a profiler that counts it to kernels of a busy queue."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.core.hardware import Launch
from perfmodel.diagnosis.dispatches import dispatch_note, dispatched_outside
from perfmodel.diagnosis.limits import limit, profile_limits
from perfmodel.formats import read_profile
from perfmodel.operators.memcpy import Memcpy
from perfmodel.profile.profile import Profile, ProfileEntry

from .conftest import timeline

COPY = Memcpy(bytes=4096, direction="d2d")


@pytest.fixture
def queueing_gpu(simple_gpu):
    """The round machine, whose kernels take 10 us in a busy queue."""
    return dataclasses.replace(simple_gpu, launch=Launch(overhead_s=10e-6, queued_s=10e-6))


def profile(*events, number=1):
    """Return a profile of copies; ``events`` are (start, end, stream, entry) in us, -1 for no entry."""
    line = timeline((0, 1000), [(begin, end, "copy", "kernel", -1, stream) for begin, end, stream, _ in events])
    gpu = dataclasses.replace(line.gpu, entry=np.array([entry for *_, entry in events]))
    entries = tuple(ProfileEntry(f"copy {n}", 1e-5, 2, "kernel", op=COPY) for n in range(number))
    return Profile(entries, timeline=dataclasses.replace(line, gpu=gpu))


def test_a_short_pause_is_the_dispatch_of_the_kernel_behind_it():
    # at once, 3.4 us later, 50 us later; the first of a stream has none before it, and streams do not wait in line
    events = ((0, 10, 7, 0), (10, 20, 7, 0), (12, 30, 8, 1), (23.4, 25, 7, 0), (75, 80, 7, 0))
    got = dispatched_outside(profile(*events, number=2))
    assert got == pytest.approx([1 / 4, 0.0])


def test_events_that_no_entry_counts_are_left_out():
    got = dispatched_outside(profile((0, 10, 7, -1), (13.4, 15, 7, 0), (15, 20, 7, 0), number=2))
    assert got == pytest.approx([1 / 2, 0.0])


def test_tables_of_sums_tell_nothing():
    assert dispatched_outside(Profile((ProfileEntry("copy", 1e-5, 2, "kernel", op=COPY),))) is None


def test_time_and_interval_are_without_the_dispatch_that_stands_before(queueing_gpu):
    (held,) = profile_limits(profile((0, 10, 7, 0), (10, 20, 7, 0)), queueing_gpu)
    (half,) = profile_limits(profile((0, 10, 7, 0), (13.4, 15, 7, 0)), queueing_gpu)
    # two copies of 10 us and 4 KiB x 2 / (0.8 TB/s); 0.77 of one of the starts is before its kernel
    assert held.predicted_time_s == pytest.approx(20e-6, rel=0.02)
    assert held.predicted_time_s - half.predicted_time_s == pytest.approx(7.7e-6)
    for ours, theirs in ((half.predicted_low_s, held.predicted_low_s), (half.predicted_high_s, held.predicted_high_s)):
        assert ours / theirs == pytest.approx(half.predicted_time_s / held.predicted_time_s, rel=1e-3)


def test_where_nobody_knows_any_kernel_may_be_without_it(queueing_gpu):
    unknown = limit(ProfileEntry("copy", 2e-5, 2, "kernel", op=COPY), queueing_gpu)
    known = limit(ProfileEntry("copy", 2e-5, 2, "kernel", op=COPY), queueing_gpu, 0.0)
    assert unknown.predicted_time_s == pytest.approx(known.predicted_time_s)
    assert unknown.predicted_low_s < 0.3 * unknown.predicted_time_s < known.predicted_low_s


def test_a_note_says_what_dispatches_take(queueing_gpu, simple_gpu):
    copies = profile((0, 10, 7, 0), (10, 20, 7, 0), (23.4, 25, 7, 0), (25, 30, 7, -1))
    (note,) = dispatch_note(copies, queueing_gpu)
    assert "2 of 3 pieces" in note  # the fourth counts for no entry
    assert "15.4 us of their time" in note  # 2 x 0.77 x 10 us
    assert dispatch_note(copies, simple_gpu) == dispatch_note(copies, None) == ()
    assert dispatch_note(Profile(copies.entries), queueing_gpu) == ()


def test_small_kernels_of_an_mi300x_take_what_their_dispatch_says(data_dir):
    """Copies up to 64 KiB: 4.4 us at once, 1.0 to 1.6 us after a pause of 3.4 us; the trace has both."""
    traced = read_profile(data_dir / "traces" / "tracelens_mi300_resnet_act_checkpoint_ddp.json.gz")
    small = [
        one
        for one in profile_limits(traced, pm.hardware("mi300x"))
        if isinstance(one.entry.op, Memcpy) and one.entry.op.bytes <= 65536
    ]
    assert len(small) == 9
    for one in small:
        assert one.predicted_time_s == pytest.approx(one.entry.time_s, rel=0.2)

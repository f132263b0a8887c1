"""The parts of each dimension: what is listed, how it is named, and where the host was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.core.report import report
from perfmodel.diagnosis.call_sites import operator_around, python_line, wait_labels
from perfmodel.diagnosis.diagnose import diagnose
from perfmodel.profile.profile import Profile, ProfileEntry
from perfmodel.profile.timeline import CopyDirection, HostRanges

US = 1e-6


def profile(line, names=("k",), entry=None, categories=None):
    """A profile whose events belong to entries by their place in ``entry``."""
    entry = np.zeros(len(line.gpu), dtype=np.int64) if entry is None else np.array(entry)
    categories = ["kernel"] * len(names) if categories is None else categories
    times = np.bincount(entry, weights=line.gpu.duration_s, minlength=len(names))
    entries = [
        ProfileEntry(name, float(time), 1, kind) for name, time, kind in zip(names, times, categories, strict=True)
    ]
    return Profile(tuple(entries), timeline=replace(line, gpu=replace(line.gpu, entry=entry)))


@pytest.mark.parametrize(("us", "listed"), [(0.5, 0), (2.0, 1)])
def test_evidence_below_a_millionth_of_the_wall_is_left_out(traced, us, listed):
    # a second of a gemm, and a relu
    line = traced((0, 1e6), gpu=[(0, 1e6 - us, "gemm", "kernel", -1), (1e6 - us, 1e6, "relu", "kernel", -1)])
    found = diagnose(profile(line, ("gemm", "relu"), [0, 1]))
    assert len(found.part("memory").evidence) == listed


@pytest.mark.parametrize(("share", "noted"), [(0.005, False), (0.02, True)])
def test_limiters_from_names_alone_are_noted_from_one_per_cent_on(simple_gpu, share, noted):
    counted = ProfileEntry("counted", 1 - share, 1, "kernel", flop=1e9, bytes=1e9)
    found = diagnose(Profile((counted, ProfileEntry("relu", share, 1, "kernel"))), simple_gpu)
    guesses = [note for note in found.notes if "guess from names" in note]
    assert guesses == (["The limiter is only a guess from names for 2 % of the kernel time."] if noted else [])


def test_without_a_machine_the_note_says_how_to_name_one():
    found = diagnose(Profile((ProfileEntry("relu", 1.0, 1, "kernel"),)))
    assert found.notes[-1].endswith("for 100 % of the kernel time. Pass --on HW to compare with a machine.")


@pytest.mark.parametrize(("covered", "hidden"), [(0.5, False), (5, True)])
def test_copies_are_partly_hidden_from_a_thousandth_on(traced, covered, hidden):
    # a kernel covers the start of a copy of 1000 us
    line = traced((0, 1000), gpu=[(0, covered, "k", "kernel", -1), (0, 1000, "h2d", "copy", -1, 9)])
    found = diagnose(profile(line, ("k", "h2d"), [0, 1], ["kernel", "memcpy"]))
    detail = found.part("transfer").evidence[0].detail
    assert ("hidden" in detail) is hidden
    assert any("hide 5 us of copies" in note for note in found.notes) is hidden


def test_what_communication_hides_of_copies_is_no_kernel_time(traced):
    line = traced((0, 30), gpu=[(0, 20, "nccl", "communication", -1, 8), (18, 30, "h2d", "copy", -1, 9)])
    found = diagnose(profile(line, ("nccl", "h2d"), [0, 1], ["communication", "memcpy"]))
    assert "Kernels and communication hide 2 us of copies; it counts as their time." in found.notes


def test_what_rounding_leaves_of_nothing_is_not_said_to_be_hidden(traced):
    # 0.1 + 0.2 > 0.3: a kernel seems to cover the start of the copy behind it
    line = traced((0, 1000), gpu=[(0, 300, "k", "kernel", -1), (300, 1000, "h2d", "copy", -1, 9)])
    gpu = replace(line.gpu, start_s=np.array([0.0, 0.3e-3 - 1e-19]), duration_s=np.array([0.3e-3, 0.7e-3]))
    found = diagnose(profile(replace(line, gpu=gpu), ("k", "h2d"), [0, 1], ["kernel", "memcpy"]))
    assert not any("hide" in note for note in found.notes)


def test_copies_between_devices_have_no_memory_of_the_host(traced):
    line = traced((0, 10), gpu=[(0, 10, "p2p", "copy", -1)])
    gpu = replace(line.gpu, direction=np.array([CopyDirection.BETWEEN_DEVICES]), bytes=np.array([1e6]))
    (copies,) = diagnose(profile(replace(line, gpu=gpu), ("p2p",), [0], ["memcpy"])).part("transfer").evidence
    assert (copies.what, copies.detail) == ("copies between devices", "1 MB at 100 GB/s")


def test_copies_are_grouped_by_direction_and_host_memory(traced):
    line = traced((0, 40), gpu=[(10 * n, 10 * n + 10, "copy", "copy", -1) for n in range(4)])
    gpu = replace(
        line.gpu,
        direction=np.array([0, 1, 0, 0]),
        pinned=np.array([1, 1, 0, 0]),
        bytes=np.array([1e6, 2e6, 3e6, 1e6]),
    )
    found = diagnose(profile(replace(line, gpu=gpu), ("copy",), categories=["memcpy"]))
    rows = {(item.what, item.count, item.detail) for item in found.part("transfer").evidence}
    assert rows == {
        ("copies host to device", 2, "pageable, 4 MB at 200 GB/s"),
        ("copies host to device", 1, "pinned, 1 MB at 100 GB/s"),
        ("copies device to host", 1, "pinned, 2 MB at 200 GB/s"),
    }


def pauses(traced, lengths_us):
    """Kernels with pauses between them in which the host runs no operator; each follows an operator of its own."""
    gpu, api, ops, now = [(0, 10, "k", "kernel", 0)], [(-5, -1, "cudaLaunchKernel", "launch")], [(-9, 9, "op0")], 10.0
    for number, length in enumerate(lengths_us, start=1):
        api.append((now + length, now + length + 3, "cudaLaunchKernel", "launch"))
        gpu.append((now + length + 5, now + length + 10, "k", "kernel", number))
        ops.append((now + length, now + length + 9, f"op{number}"))
        now += length + 10
    return profile(traced((0, now), gpu=gpu, api=api, ops=ops))


def test_the_twenty_longest_gaps_are_told_apart(traced):
    found = diagnose(pauses(traced, [2000 + n for n in range(25)]))
    details = [item.detail for item in found.part("idle").evidence]
    assert len(details) == 21
    assert "after op24 and before op25" in details
    short = next(item for item in found.part("idle").evidence if item.detail.endswith("short gaps"))
    assert short.count == 5
    assert short.time_s == pytest.approx(5 * 2002 * US, rel=1e-3)


def busy_host(traced, call_us):
    """A gap of about 2 ms of host work, of which one call of the runtime takes a part, under two operators."""
    line = traced(
        (0, 2040),
        gpu=[(0, 10, "k", "kernel", 0), (2030, 2040, "k", "kernel", 2)],
        api=[
            (-5, -1, "cudaLaunchKernel", "launch"),
            (20, 20 + call_us, "cudaMalloc", "other"),
            (2020, 2025, "cudaLaunchKernel", "launch"),
        ],
        ops=[(-20, 2035, "forward"), (-10, 2030, "aten::unique")],
        annotations=[(-20, 2040, "ProfilerStep#1"), (-20, 2039, "backward")],
    )
    return diagnose(profile(line)).part("idle").evidence[0]


def test_a_call_that_takes_half_of_the_host_work_is_named(traced):
    # the time after the call is host work: 1300 us beside a call of 700, 1500 us beside one of 500
    assert busy_host(traced, 700).detail == "cudaMalloc, in backward"
    assert busy_host(traced, 500).detail == "aten::unique on the CPU, in backward"


def waits(timeline, names, op_names):
    """Give a time line a wait inside nested operators, the outermost first."""
    first = len(timeline.names)
    count = len(op_names)
    ops = HostRanges(
        np.zeros(count), np.ones(count), np.arange(first, first + count), np.ones(count, dtype=np.int64),
        np.arange(-1, count - 1),
    )  # fmt: skip
    return replace(
        timeline, names=(*timeline.names, *op_names), ops=ops, api=replace(timeline.api, op=np.array([count - 1]))
    )


@pytest.mark.parametrize(
    ("around", "label"),
    [
        (("aten::item", "aten::_local_scalar_dense"), "aten::item"),
        (("aten::is_nonzero", "aten::item", "aten::_local_scalar_dense"), "aten::item"),
        (("aten::is_nonzero", "aten::_local_scalar_dense"), "aten::is_nonzero"),
        (("aten::equal", "aten::all"), "aten::equal"),
        (("aten::nonzero", "aten::copy_"), "aten::nonzero"),
        (("aten::to", "aten::_to_copy", "aten::copy_"), "aten::to"),
        (("aten::unique2", "aten::sort"), "aten::unique2"),
        (("forward", "aten::copy_"), "aten::copy_"),
        ((), "cudaStreamSynchronize"),
    ],
)
def test_a_wait_has_the_name_of_the_fetch_around_it(traced, around, label):
    line = waits(traced((0, 10), api=[(0, 5, "cudaStreamSynchronize", "sync")]), (), around)
    assert wait_labels(line, np.array([0, -1])) == [label, "unknown call"]
    assert operator_around(line, len(around) - 1) == (label if around else "")


def test_the_line_of_the_user_is_named_before_those_of_the_framework(traced):
    line = waits(traced((0, 10), api=[(0, 5, "cudaStreamSynchronize", "sync")]), (), ("aten::item",))
    stack = ("train.py(3): step", "model.py(7): forward", "torch/_tensor.py(5): item", "<built-in method item>")
    assert python_line(replace(line, api_stacks={0: stack}), 0) == "model.py(7): forward"
    assert python_line(replace(line, stacks={0: stack}), 0) == "model.py(7): forward"
    assert python_line(replace(line, api_stacks={0: stack[2:]}), 0) == ""
    assert python_line(line, 0) == ""


@pytest.mark.parametrize(
    ("call", "dimension"),
    [
        ("cudaStreamSynchronize", "sync"),
        ("cudaStreamWaitEvent", "sync"),
        ("cudaMemcpyAsync", "transfer"),
        ("cuMemsetD8Async", "transfer"),
        ("hipLaunchKernel", "launch"),
        ("cudaMalloc", "idle"),
    ],
)
def test_calls_of_the_api_are_evidence_of_their_dimension(call, dimension):
    found = diagnose(Profile((ProfileEntry("gemm", 1.0, 1, "kernel"), ProfileEntry(call, 2.0, 5, "host"))))
    assert [(item.what, item.detail) for item in found.part(dimension).evidence] == [(call, "CPU time in this call")]
    assert found.total_s == 1.0


def test_readings_of_a_table_are_evidence():
    metrics = {"achieved_occupancy": 0.5, "load_sectors_per_request": 4.0, "store_sectors_per_request": 32.0}
    copies = {"copied_bytes": 4e9, "pageable_bytes": 1e9}
    entries = (
        ProfileEntry("relu", 1.0, 1, "kernel", metrics=metrics),
        ProfileEntry("[CUDA memcpy HtoD]", 0.5, 1, "memcpy", metrics=copies),
    )
    found = diagnose(Profile(entries))
    assert found.part("memory").evidence[0].detail == (
        "limited by hbm (from its name), 50 % of the warps resident, 4 sectors per load, 32 sectors per store"
    )
    assert found.part("transfer").evidence[0].detail == (
        "limited by link (from its kind), 4 GB at 8 GB/s, 25 % of it pageable"
    )


@pytest.mark.parametrize(("width", "letters"), [(40, 41), (80, 41), (120, 81), (400, 90)])
def test_a_wide_line_shows_more_of_a_name(width, letters):
    found = diagnose(Profile((ProfileEntry("relu_" + "a" * 85, 1.0, 1, "kernel"),)))
    (evidence,) = (column for column in report(found).columns if column.key == "evidence")
    row = next(row for row in report(found).rows if row["evidence"])
    name = evidence.cell(row, width).partition(" ")[0]
    assert name == ("relu_" + "a" * 85)[:letters] + ("..." if letters < 90 else "")
    assert evidence.cell(row) == evidence.cell(row, 80)

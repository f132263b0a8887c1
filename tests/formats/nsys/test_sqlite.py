"""The SQLite export of Nsight Systems: real files against sums by SQL, small made ones, missing tables, damage."""

import math
import random
import sqlite3

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perfmodel.core.vocabulary import EventKind
from perfmodel.errors import InputFileError, PerfModelError
from perfmodel.formats.detect import ReadOptions
from perfmodel.formats.nsys import sqlite as nsys_sqlite
from perfmodel.profile.timeline import CallKind, CopyDirection

PID = 7 << 24
TID = PID + 5
BASE = {
    "StringIds": ("id, value", [(1, "gemm_kernel"), (2, "cudaLaunchKernel_v7000"), (3, "cudaStreamSynchronize_v3020")]),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start, end, deviceId, streamId, correlationId, globalPid, shortName, demangledName",
        # started by the call with correlation 10 of process 7; the call of process 8 is another's
        [(2000, 5000, 0, 7, 10, PID, 1, 1), (9000, 10000, 0, 7, 99, PID, 1, 1)],
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start, end, globalTid, correlationId, nameId",
        [(500, 900, (8 << 24) + 1, 10, 2), (1000, 1500, TID, 10, 2), (5000, 6000, TID, 11, 3)],
    ),
}
COPIES = {
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start, end, deviceId, streamId, correlationId, globalPid, bytes, copyKind, srcKind, dstKind",
        [(6000, 7000, 0, 7, 50, PID, 4096, 1, 0, 2), (7000, 7500, 0, 7, 51, PID, 1024, 2, 2, 1)],
    ),
}
RANGES = {
    "NVTX_EVENTS": (
        "start, end, eventType, text, textId, globalTid",
        [
            (0, 12000, 59, "step 1", None, TID),
            (800, 1800, 59, "aten::linear, op_id = 1", None, TID),
            (900, 1600, 59, "aten::addmm, seq = 3, op_id = 2, sizes = [[2], [2, 3]]", None, TID),
            (950, None, 34, "a mark", None, TID),
            (5000, None, 59, "never ended", None, TID),
        ],
    ),
}


def make(path, tables):
    path.unlink(missing_ok=True)
    base = sqlite3.connect(path)
    for name, (columns, rows) in tables.items():
        base.execute(f"CREATE TABLE {name} ({columns})")
        base.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns.split(',')))})", rows)
    base.commit()
    base.close()
    return path


@pytest.fixture
def read(tmp_path):
    def call(tables, **options):
        return nsys_sqlite.read(make(tmp_path / "x.sqlite", tables), ReadOptions(**options))

    return call


def test_a_kernel_belongs_to_the_call_of_its_process_with_its_correlation(read):
    timeline = read(BASE).timeline
    assert timeline.gpu.launch.tolist() == [1, -1]
    assert timeline.api.category.tolist() == [CallKind.LAUNCH, CallKind.LAUNCH, CallKind.SYNC]
    # the clock starts at the first event, 500 ns
    assert timeline.gpu.start_s == pytest.approx([1.5e-6, 8.5e-6])
    assert timeline.window_s == pytest.approx((0.0, 9.5e-6))


def test_columns_that_a_version_lacks_are_not_known(read):
    tables = dict(BASE, CUPTI_ACTIVITY_KIND_KERNEL=("start, end, shortName", [(2000, 5000, 1)]))
    profile = read(tables)
    gpu = profile.timeline.gpu
    assert (gpu.stream.tolist(), gpu.device.tolist(), gpu.launch.tolist()) == ([-1], [-1], [-1])
    assert profile.entries[0].name == "gemm_kernel"


def test_tables_that_were_not_traced_are_not_there(read):
    profile = read({name: BASE[name] for name in ("StringIds", "CUPTI_ACTIVITY_KIND_KERNEL")})
    assert (profile.total_time_s, len(profile.timeline.api), len(profile.timeline.ops)) == (pytest.approx(4e-6), 0, 0)
    assert profile.notes == ("2 of 2 events of the GPU have no API call in the file.",)


def test_copies_have_bytes_directions_and_a_kind_of_memory(read):
    profile = read(BASE | COPIES)
    gpu = profile.timeline.gpu
    copies = gpu.category == EventKind.MEMCPY.code
    assert gpu.bytes[copies].tolist() == [4096, 1024]
    assert gpu.direction[copies].tolist() == [CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST]
    assert gpu.pinned[copies].tolist() == [0, 1]
    entries = {entry.name: entry for entry in profile.entries}
    up, down = entries["[CUDA memcpy Host-to-Device] 4.096 kB"], entries["[CUDA memcpy Device-to-Host] 1.024 kB"]
    assert (up.metrics, down.metrics) == (
        {"copied_bytes": 4096.0, "pageable_bytes": 4096.0},
        {"copied_bytes": 1024.0, "pageable_bytes": 0.0},
    )
    assert (up.op.bytes, up.op.direction, up.op.pinned) == (4096, "h2d", False)
    assert (down.op.bytes, down.op.direction, down.op.pinned) == (1024, "d2h", True)


def test_graphs_that_were_traced_as_a_whole_are_work_of_the_gpu(read):
    columns = "start, end, deviceId, streamId, correlationId, globalPid, graphId, graphExecId"
    launches = ("start, end, globalTid, correlationId, nameId", [(1000, 1500, TID, 60, 4), (5000, 5500, TID, 61, 4)])
    tables = {
        "StringIds": ("id, value", [(4, "cudaGraphLaunch_v10000")]),
        "CUPTI_ACTIVITY_KIND_RUNTIME": launches,
        # one graph that was instantiated twice, and one launch of which only that is known
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
            columns,
            [
                (2000, 4000, 0, 7, 60, PID, 5, 8),
                (6000, 9000, 0, 7, 61, PID, 5, 9),
                (9000, 9500, 0, 7, 62, PID, None, 3),
            ],
        ),
    }
    profile = read(tables)
    assert {entry.name: (entry.calls, entry.category) for entry in profile.entries} == {
        "[CUDA graph 5]": (2, EventKind.KERNEL),
        "[CUDA graph 3]": (1, EventKind.KERNEL),
    }
    assert profile.total_time_s == pytest.approx(5.5e-6)
    assert profile.timeline.gpu.launch.tolist() == [0, 1, -1]
    assert any("3 launches of CUDA graphs were traced as a whole" in note for note in profile.notes)
    # beside the kernels that were launched one by one
    beside = BASE | {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (columns, [(11000, 12000, 0, 7, 60, PID, 5, 8)])}
    assert len(read(beside).timeline.gpu) == 3


def test_processes_that_each_see_one_gpu_as_number_0_have_gpus_of_their_own(read):
    host = 3 << 48  # numbers of machine and session stand above the process's
    columns, _ = BASE["CUPTI_ACTIVITY_KIND_KERNEL"]
    tables = BASE | {
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            columns,
            [(2000, 5000, 0, 7, 10, host + (pid << 24), 1, 1) for pid in (7, 8)] + [(6000, 7000, 0, 7, 10, None, 1, 1)],
        ),
        "TARGET_INFO_CUDA_DEVICE": ("gpuId, cudaId, pid, uuid", [(2, 0, 7, None), (3, 0, 8, None)]),
        "TARGET_INFO_GPU": ("id, name", [(0, "NVIDIA T400"), (2, "NVIDIA H100"), (3, "NVIDIA H100")]),
    }
    profile = read(tables)
    assert sorted(profile.timeline.gpu.device.tolist()) == [0, 2, 3]
    del tables["CUPTI_ACTIVITY_KIND_KERNEL"][1][2]
    assert read(tables).device == "NVIDIA H100"


@pytest.mark.parametrize(
    ("kind", "is_range"), [(59, True), (60, True), (70, True), (71, True), (34, False), (75, False)]
)
def test_ranges_of_nvtx_are_those_with_a_start_and_an_end(read, kind, is_range):
    tables = BASE | {"NVTX_EVENTS": (RANGES["NVTX_EVENTS"][0], [(0, 12000, kind, "step 1", None, TID)])}
    assert len(read(tables).timeline.annotations) == is_range


def test_copies_of_several_sizes_are_told_apart_by_shape_only(read):
    rows = [
        (6000 + i, 6001 + i, 0, 7, 50, PID, size, 1, kind, 2)
        for i, (size, kind) in enumerate([(8, 0), (8, 1), (16, 0)])
    ]
    tables = dict(BASE, CUPTI_ACTIVITY_KIND_MEMCPY=(COPIES["CUPTI_ACTIVITY_KIND_MEMCPY"][0], rows))
    name = "[CUDA memcpy Host-to-Device]"
    copies = {entry.name: entry.calls for entry in read(tables).entries if entry.category == "memcpy"}
    assert copies == {f"{name} 8 B pageable": 1, f"{name} 8 B pinned": 1, f"{name} 16 B": 1}
    together = {entry.name: entry for entry in read(tables, by="kernel").entries}[name]
    assert (together.calls, together.op, together.metrics["pageable_bytes"]) == (3, None, 24.0)


def test_ranges_of_pytorch_are_operators_and_the_innermost_one_launched(read):
    profile = read(BASE | RANGES)
    timeline = profile.timeline
    assert [timeline.names[index] for index in timeline.ops.name] == ["aten::linear", "aten::addmm"]
    assert timeline.ops.parent.tolist() == [-1, 0]
    assert timeline.api.op.tolist() == [-1, 1, -1]
    assert timeline.gpu.op.tolist() == [1, -1]
    assert [timeline.names[index] for index in timeline.annotations.name] == ["step 1"]
    assert profile.skipped == {"NVTX range without an end": 1}
    assert "Left out: 1 x NVTX range without an end." in profile.notes
    by_op = {entry.name: entry for entry in read(BASE | RANGES, by="op").entries}
    assert set(by_op) == {"aten::addmm", "gemm_kernel"}
    assert (by_op["aten::addmm"].kernels, by_op["aten::addmm"].launched_by) == (("gemm_kernel",), "aten::addmm")


def test_a_wait_whose_call_was_not_traced_is_a_call(read):
    waits = {
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
            "start, end, correlationId, globalPid, syncType",
            [(5100, 5900, 11, PID, 3), (11000, 12000, 70, PID, 3), (12000, 12500, 71, PID, 2)],
        ),
        "ENUM_CUPTI_SYNC_TYPE": ("id, label", [(2, "Stream wait sync"), (3, "Stream sync")]),
    }
    profile = read(BASE | waits)
    # 1 us of cudaStreamSynchronize and 1 us of the stream sync without a call; a stream's wait holds no CPU
    assert profile.timeline.api.duration_s[profile.timeline.api.category == CallKind.SYNC].sum() == pytest.approx(2e-6)
    assert any("took 2 us" in note for note in profile.notes)


def test_impossible_times_are_left_out_and_counted(read):
    kernels = [(2000, 5000, 1), (5000, 2000, 1), (None, 5000, 1), ("x", 5000, 1), (0, 2**62, 1)]
    profile = read(dict(BASE, CUPTI_ACTIVITY_KIND_KERNEL=("start, end, demangledName", kernels)))
    assert profile.total_time_s == pytest.approx(3e-6)
    assert sum(profile.skipped.values()) == 4


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"StringIds": BASE["StringIds"]}, "no kernels and no copies.*--trace cuda"),
        ({"other": ("a", [(1,)])}, "not an export of Nsight Systems; its tables are: other"),
        ({"StringTable": ("a", []), "CUPTI_ACTIVITY_KIND_KERNEL": ("a", [])}, "a database of nvprof.*--csv"),
        ({"rocpd_string_00ab": ("a", [(1,)])}, "a database of rocprofv3.*rocpd convert --output-format csv"),
        ({}, "tables are: none|is not an SQLite file"),
    ],
)
def test_other_databases_are_named(read, tables, message):
    with pytest.raises(InputFileError, match=message):
        read(tables)


def test_damaged_files_get_one_message(tmp_path):
    good = make(tmp_path / "good.sqlite", BASE | COPIES).read_bytes()
    for number, data in enumerate((good[:5000], good[:100] + b"\0" * 9000, b"\0" * 4096, b"", b"\x1f\x8b\x08 packed")):
        path = tmp_path / f"{number}.sqlite"
        path.write_bytes(data)
        with pytest.raises(InputFileError, match=f"{number}.sqlite: is "):
            nsys_sqlite.read(path)
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputFileError, match="cannot be read"):
            nsys_sqlite.read(path)


def test_reading_writes_nothing(tmp_path):
    path = make(tmp_path / "x y?#%.sqlite", BASE)
    before = path.read_bytes()
    nsys_sqlite.read(path)
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (before, [path])


@pytest.fixture(scope="module")
def good_file(tmp_path_factory):
    return make(tmp_path_factory.mktemp("nsys") / "x.sqlite", BASE | COPIES | RANGES)


@settings(max_examples=80)
@given(seed=st.integers(0, 2**32))
def test_no_damage_gives_anything_but_a_profile_or_a_message(good_file, tmp_path_factory, seed):
    random_ = random.Random(seed)
    data = bytearray(good_file.read_bytes())
    for _ in range(random_.randrange(1, 30)):
        data[random_.randrange(16, len(data))] = random_.randrange(256)
    path = tmp_path_factory.mktemp("fuzz") / "x.sqlite"
    path.write_bytes(data[: random_.choice((len(data), random_.randrange(len(data))))])
    try:
        profile = nsys_sqlite.read(path)
    except PerfModelError:
        return
    assert all(entry.time_s >= 0 for entry in profile.entries)


ODD = st.sampled_from([math.nan, math.inf, -math.inf, -(2**63), 2**63 - 1, "", b"", -0.0])
values = st.one_of(
    ODD, st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=4), st.binary(max_size=4)
)


@settings(max_examples=30)
@given(rows=st.lists(st.lists(values, min_size=8, max_size=8), max_size=4))
@example(rows=[])
@example(rows=[[math.nan, math.inf, 0, 7, 10, PID, 1, 1]])
@example(rows=[[1, math.inf, 0, 7, 10, PID, 1, 1], [-math.inf, 3, 0, 7, 10, PID, 1, 1]])
@example(rows=[[1, 2, 2**63 - 1, -(2**63), 2**63 - 1, 2**63 - 1, "", b""]])
def test_no_values_give_anything_but_a_profile_or_a_message(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("fuzz") / "x.sqlite"
    columns = BASE["CUPTI_ACTIVITY_KIND_KERNEL"][0]
    tables = dict(BASE, CUPTI_ACTIVITY_KIND_KERNEL=(columns, [(1, 2, 0, 7, 10, PID, 1, 1), *map(tuple, rows)]))
    tables |= {"NVTX_EVENTS": (RANGES["NVTX_EVENTS"][0], [tuple(row[:6]) for row in rows])}
    assert nsys_sqlite.read(make(path, tables)).total_time_s >= 0


def test_two_gpus_of_megatron(data_dir):
    profile = nsys_sqlite.read(data_dir / "nsys" / "ginda_h100_2gpu_megatron_before.sqlite")
    gpu, api = profile.timeline.gpu, profile.timeline.api
    sums = {}
    for entry in profile.entries:
        sums[entry.category] = sums.get(entry.category, 0.0) + entry.time_s
    # by SQL: kernels 270,875,926 ns on one GPU and 264,324,724 on the other, of which NCCL 25,401,752; copies
    # 26,656 + 5,665,431; memsets 213,408
    assert sums["kernel"] + sums["communication"] == pytest.approx(535200650e-9, rel=1e-12)
    assert sums["communication"] == pytest.approx(25401752e-9, rel=1e-12)
    assert (sums["memcpy"], sums["memset"]) == (pytest.approx(5692087e-9), pytest.approx(213408e-9))
    for device, time_s in ((0, 270875926e-9), (1, 264324724e-9)):
        on = (gpu.device == device) & np.isin(gpu.category, (0, EventKind.COMMUNICATION.code))
        assert gpu.duration_s[on].sum() == pytest.approx(time_s)
    # 4,010 kernels, 1,020 copies, 269 memsets; 8,046,134,272 B between GPUs and 272 B from the host, pageable
    assert len(gpu) == 4010 + 1020 + 269
    assert np.nansum(gpu.bytes[gpu.direction == CopyDirection.HOST_TO_DEVICE]) == 272
    assert (gpu.pinned[gpu.direction == CopyDirection.HOST_TO_DEVICE] == 0).all()
    # by SQL, 3,986 kernels have a call; cudaStreamSynchronize took 324,534,733 ns
    assert np.count_nonzero(gpu.launch[np.isin(gpu.category, (0, EventKind.COMMUNICATION.code))] >= 0) == 3986
    assert api.duration_s[api.category == CallKind.SYNC].sum() == pytest.approx(324534733e-9)
    assert (len(profile.timeline.ops), len(profile.timeline.annotations)) == (18656, 462)
    assert profile.notes[0] == "The entries of the profile are sums over 2 devices that work side by side."


def test_megatron_by_operator(data_dir):
    profile = nsys_sqlite.read(data_dir / "nsys" / "ginda_h100_2gpu_megatron_before.sqlite", ReadOptions(by="op"))
    entries = {entry.name: entry for entry in profile.entries}
    assert profile.total_time_s == pytest.approx(541106145e-9)
    # 66 of the 68 flash kernels were launched inside the window; 2 before it, and keep their own name
    assert entries["flash_attn::_flash_attn_forward"].calls == 66
    assert entries["nccl:all_to_all"].category == "communication"


def test_the_smallest_real_export(data_dir):
    profile = nsys_sqlite.read(data_dir / "nsys" / "ginda_rtx3080_mock_minimal.sqlite")
    assert profile.device == "NVIDIA GeForce RTX 3080"
    # 1,440 + 2,689 ns of kernels and a pinned copy of 4 B in 1,632 ns; the kernel starts 212.1 ms into the capture
    assert profile.total_time_s == pytest.approx((1440 + 2689 + 1632) * 1e-9)
    assert len(profile.timeline.ops) == 0
    assert profile.timeline.gpu.start_s[0] == pytest.approx((1517727052 - 1304349703) * 1e-9)


def test_the_low_24_bits_of_a_thread_are_not_its_process(read):
    # the call of thread 0xFFFFFF of process 7 started the kernel; the one of process 6 has the same correlation
    calls = [(500, 900, (6 << 24) + 1, 10, 2), (1000, 1500, PID + 0xFFFFFF, 10, 2)]
    tables = dict(BASE, CUPTI_ACTIVITY_KIND_RUNTIME=(BASE["CUPTI_ACTIVITY_KIND_RUNTIME"][0], calls))
    assert read(tables).timeline.gpu.launch.tolist() == [1, -1]


def test_ranges_of_both_kinds_count(read):
    # push and pop on one thread (59), start and end on any (60)
    rows = [(0, 9000, kind, f"range {kind}", None, TID) for kind in (33, 34, 59, 60, 75)]
    timeline = read(BASE | {"NVTX_EVENTS": (RANGES["NVTX_EVENTS"][0], rows)}).timeline
    assert [timeline.names[name] for name in timeline.annotations.name] == ["range 59", "range 60"]


def test_the_size_of_a_copy_that_no_float_holds_names_no_operator(read):
    rows = [(6000 + i, 6001 + i, 0, 7, 50, PID, size, 1, 0, 2) for i, size in enumerate((2**52, 2**60))]
    tables = dict(BASE, CUPTI_ACTIVITY_KIND_MEMCPY=(COPIES["CUPTI_ACTIVITY_KIND_MEMCPY"][0], rows))
    sizes = [entry.op and entry.op.bytes for entry in read(tables).entries if entry.category == "memcpy"]
    assert sizes == [2**52, None]

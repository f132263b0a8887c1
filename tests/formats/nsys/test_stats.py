"""``nsys stats``: every kind of report, as CSV and text, several in one stream, and real files against hand sums."""

import csv
import io
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.core.vocabulary import EventKind
from perfmodel.errors import InputFileError
from perfmodel.formats.nsys import stats as nsys_stats
from perfmodel.profile.timeline import CallKind, CopyDirection

KERNELS = """Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
75.0,3000,3,1000.0,1000.0,900,1100,100.0,"void f<int, 4>(float *, int)"
25.0,1000,1,1000.0,1000.0,1000,1000,0.0,ncclDevKernel_AllReduce_Sum_f32
"""
COPIES = """Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation
100.0,500,2,250.0,250.0,200,300,50.0,[CUDA memcpy Host-to-Device]
"""
SIZES = """Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation
8.389,2,4.194,4.194,4.194,4.194,0.000,[CUDA memcpy Host-to-Device]
"""
CALLS = """Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
90.0,9000,4,2250.0,2000.0,1000,4000,900.0,cudaLaunchKernel
10.0,1000,2,500.0,500.0,500,500,0.0,cudaMemcpyAsync
"""
RANGES = """Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range
50.0,1000,1,1000.0,1000.0,1000,1000,0.0,PushPop,:step
30.0,600,2,300.0,300.0,300,300,0.0,PushPop,:layer
20.0,400,2,200.0,200.0,200,200,0.0,PushPop,:layer.mlp
"""
TRACE = """Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),\
Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name
60000,4000,102,64,64,1,256,1,1,64,0.001,0.000,,,,,NVIDIA A100 (1),1,,7,"gemm(double *, int)"
1000,50000,101,,,,,,,,,,8.389,167.0,Pageable,Device,NVIDIA A100 (1),1,,7,[CUDA memcpy Host-to-Device]
70000,1000,103,,,,,,,,,,0.004,4.0,Device,Pinned,NVIDIA A100 (1),1,,9,[CUDA memcpy Device-to-Host]
"""
BY_CALL = """Count,QCount,TAvg (ns),TMed (ns),AAvg (ns),QAvg (ns),KAvg (ns),KMed (ns),PID,TID,DevId,API Name,Kernel Name
3,3,3500.0,3500.0,1000.0,500.0,1000.0,1000.0,7,8,0,cudaLaunchKernel,"void f<int, 4>(float *, int)"
1,0,2000.0,2000.0,1000.0,,1000.0,1000.0,7,8,0,cudaLaunchKernelExC,gemm
"""
BY_RANGE = """NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Kernel Name
:step,PushPop,7,8,1,3,3000,1000.0,"void f<int, 4>(float *, int)"
:step,PushPop,7,8,1,1,1000,1000.0,gemm
"""
MPI = """Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Source,Name
100.0,700,2,350.0,350.0,350,350,0.0,MPI,MPI_Allreduce
"""
API_TRACE = """Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid,T-Pri,Thread Name
58000,1500,cudaLaunchKernel,0,102,7,8,20,main
500,52000,cudaMemcpy,0,101,7,8,20,main
"""
PROJECTED = """Name,Projected Start (ns),Projected Duration (ns),Orig Start (ns),Orig Duration (ns),Style,PID,TID,\
NumGPUOps,Lvl,NumChild,RangeId,ParentId,RangeStack
:step,1000,3000,500,5000,PushPop,1,2,6,0,2,10,,:10
:forward,1000,900,600,1200,PushPop,1,2,2,1,0,11,10,:10:11
:forward,2000,1000,1900,1300,PushPop,1,2,2,1,1,12,10,:10:12
:mlp,2100,400,1950,900,PushPop,1,2,1,2,0,13,12,:10:12:13
"""
PROJECTED_SUMS = """Range,Style,Total Proj Time (ns),Total Range Time (ns),Range Instances,Proj Avg (ns),Proj Med (ns),\
Proj Min (ns),Proj Max (ns),Proj StdDev (ns),Total GPU Ops,Avg GPU Ops,Avg Range Lvl,Avg Num Child
:step,PushPop,3000,5000,1,3000.0,3000.0,3000,3000,0.0,6,6.0,0.0,2.0
:forward,PushPop,1900,2500,2,950.0,950.0,900,1000,10.0,4,2.0,1.0,0.5
:mlp,PushPop,400,900,1,400.0,400.0,400,400,0.0,1,1.0,2.0,0.0
"""


@pytest.fixture
def read(tmp_path):
    def call(text):
        path = tmp_path / "stats.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        assert nsys_stats.sniff(path.read_bytes()[:65536])
        return nsys_stats.read(path)

    return call


def times(profile):
    return {entry.name: pytest.approx(entry.time_s) for entry in profile.entries}


def test_a_stream_of_reports_counts_the_gpu_once_and_says_what_it_leaves_out(read):
    stream = "\n".join(
        (
            "Generating SQLite file run.sqlite from run.nsys-rep\nProcessing [run.sqlite] with [cuda_api_sum.py]...\n",
            " ** CUDA API Summary (cuda_api_sum):\n\n" + CALLS,
            " ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n" + KERNELS,
            "SKIPPED: run.sqlite does not contain OpenMP event data.\n\n" + COPIES,
            SIZES,
            " ** NVTX Range Summary (nvtx_sum):\n\n" + RANGES,
        )
    )
    profile = read(stream)
    kernel, copies = "void f<int, 4>(float *, int)", "[CUDA memcpy Host-to-Device]"
    assert times(profile) == {kernel: 3e-6, "ncclDevKernel_AllReduce_Sum_f32": 1e-6, copies: 0.5e-6}
    entries = {entry.name: entry for entry in profile.entries}
    assert [entry.category for entry in profile.entries] == ["kernel", "communication", "memcpy"]
    assert (entries[kernel].calls, entries[copies].metrics) == (3, {"copied_bytes": 8.389e6})
    left_out = [note for note in profile.notes if note.startswith("Left out")]
    assert left_out == [
        "Left out: calls of the CUDA API (10 us): they run on the CPU beside the kernels.",
        "Left out: ranges (NVTX) (2 us): they contain one another and the kernels.",
    ]


def as_text(report, width=2):
    """Lay a CSV report out as ``nsys stats`` prints it: columns under a rule, with marks between thousands."""
    rows = list(csv.reader(report.splitlines()))
    rows = [[f"{int(cell):,}" if cell.isdigit() else cell for cell in row] for row in rows]
    sizes = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [" " + (" " * width).join(c.rjust(s) for c, s in zip(row, sizes, strict=True)) for row in rows]
    return "\n".join((lines[0], " " + (" " * width).join("-" * size for size in sizes), *lines[1:])) + "\n"


def test_text_says_the_same_as_csv(read):
    stream = " ** Kernels:\n\n" + as_text(KERNELS) + "\n ** Copies:\n\n" + as_text(COPIES) + "\n" + as_text(SIZES)
    assert read(stream).entries == read("\n".join((KERNELS, COPIES, SIZES))).entries


def test_empty_cells_of_a_text_trace_stand_under_their_rule(read):
    a, b = read(as_text(TRACE)), read(TRACE)
    assert times(a) == times(b)
    assert np.array_equal(a.timeline.gpu.bytes, b.timeline.gpu.bytes, equal_nan=True)


def test_bars_and_tabs_are_columns_too(read):
    rows = list(csv.reader(KERNELS.splitlines()))
    bars = "\n".join("| " + " | ".join(row) + " |" for row in (rows[0], ["---"] * 9, *rows[1:]))
    tabs = "\n".join("\t".join(row) for row in rows)
    assert read(bars).entries == read(tabs).entries == read(KERNELS).entries


def test_old_reports_without_units_are_in_nanoseconds_and_kibibytes(read):
    profile = read("""CUDA Kernel Statistics (nanoseconds)

Time(%)  Total Time   Instances  Average  Minimum    Maximum  Name
-------  ----------  ----------  -------  -------  ---------  --------------------
  100.0        3360           2   1680.0     1664       1696  conv_forward_kernel


CUDA Memory Operation Statistics (nanoseconds)

Time(%)  Total Time  Operations     Average   Minimum   Maximum  Name
-------  ----------  ----------  ----------  --------  --------  ------------------
  100.0    89602913           2  44801456.5  41565528  48037385  [CUDA memcpy HtoD]


CUDA Memory Operation Statistics (KiB)

   Total  Operations   Average     Minimum   Maximum  Name
--------  ----------  --------  ----------  --------  ------------------
538906.0           2  269453.0  250000.000  288906.0  [CUDA memcpy HtoD]
""")
    assert times(profile) == {"conv_forward_kernel": 3360e-9, "[CUDA memcpy HtoD]": 89602913e-9}
    # 538906 KiB = 538906 x 1024 B = 551839744 B
    assert profile.entries[1].metrics == {"copied_bytes": 551839744.0}


@pytest.mark.parametrize(("unit", "scale"), [("us", 1e-6), ("ms", 1e-3), ("sec", 1.0)])
def test_the_unit_is_that_of_the_header(read, unit, scale):
    assert read(KERNELS.replace("(ns)", f"({unit})")).total_time_s == pytest.approx(4000 * scale)


def test_a_report_that_is_printed_twice_counts_once(read):
    assert read(KERNELS + "\n" + KERNELS).entries == read(KERNELS).entries


def test_kernels_by_grid_and_block_are_not_counted_again(read):
    by_grid = """Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),\
GridXYZ,BlockXYZ,Name
100.0,4000,4,1000.0,1000.0,900,1100,100.0,   1    1    1, 256    1    1,f
"""
    profile = read(KERNELS + "\n" + by_grid)
    assert profile.total_time_s == pytest.approx(4e-6)
    assert any("kernels by grid and block" in note for note in profile.notes)
    assert read(by_grid).total_time_s == pytest.approx(4e-6)


def test_api_calls_in_the_summary_of_everything_are_left_out(read):
    profile = read("""Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),\
Category,Operation
80.0,8000,1,8000.0,8000.0,8000,8000,0.0,CUDA_API,cudaMalloc
15.0,1500,3,500.0,500.0,500,500,0.0,CUDA_KERNEL,f
5.0,500,1,500.0,500.0,500,500,0.0,MEMORY_OPER,[CUDA memcpy Device-to-Host]
""")
    assert times(profile) == {"f": 1.5e-6, "[CUDA memcpy Device-to-Host]": 0.5e-6}
    assert any("API calls (8 us)" in note for note in profile.notes)


def test_calls_of_the_operating_system_are_told_from_cuda(read):
    system = CALLS.replace("cudaLaunchKernel", "poll").replace("cudaMemcpyAsync", "ioctl")
    profile = read(system + "\n" + CALLS)
    assert {entry.name for entry in profile.entries} == {"cudaLaunchKernel", "cudaMemcpyAsync"}
    assert {entry.category for entry in profile.entries} == {"host"}
    assert "calls of the operating system, summed over all threads" in read(system).notes[0]


def test_ranges_count_only_what_is_theirs(read):
    # :layer has 600 - 400 = 200 ns of its own; :step, which ran once, holds 600 ns of others: 400 ns of its own
    profile = read(RANGES)
    assert times(profile) == {":step": 400e-9, ":layer": 200e-9, ":layer.mlp": 400e-9}
    assert profile.total_time_s == pytest.approx(1000e-9)


def test_ranges_that_nothing_explains_are_warned_of(read):
    profile = read(RANGES.replace(",1,1000.0", ",4,250.0"))
    assert "the total is too large" in profile.notes[-1]


def test_a_trace_has_a_time_line_with_copies_calls_and_launches(read):
    profile = read(TRACE + "\n" + API_TRACE)
    gpu, api = profile.timeline.gpu, profile.timeline.api
    # the first event is the cudaMemcpy at 500 ns; the GPU's events start 0.5, 59.5 and 69.5 us behind it
    assert gpu.start_s == pytest.approx([0.5e-6, 59.5e-6, 69.5e-6])
    assert gpu.duration_s == pytest.approx([50e-6, 4e-6, 1e-6])
    assert gpu.category.tolist() == [EventKind.MEMCPY.code, EventKind.KERNEL.code, EventKind.MEMCPY.code]
    assert gpu.direction.tolist() == [CopyDirection.HOST_TO_DEVICE, -1, CopyDirection.DEVICE_TO_HOST]
    assert gpu.pinned.tolist() == [0, -1, 1]
    assert gpu.bytes == pytest.approx([8.389e6, np.nan, 4e3], nan_ok=True)
    assert (gpu.device.tolist(), gpu.stream.tolist()) == ([1, 1, 1], [7, 7, 9])
    assert api.category.tolist() == [CallKind.COPY, CallKind.LAUNCH]
    # the copy to the host has no call in the file
    assert gpu.launch.tolist() == [0, 1, -1]
    assert profile.timeline.window_s == pytest.approx((0.0, 70.5e-6))
    assert profile.device == "NVIDIA A100"
    pageable = next(entry for entry in profile.entries if "Host-to-Device" in entry.name)
    assert pageable.metrics == {"copied_bytes": 8.389e6, "pageable_bytes": 8.389e6}


def test_a_trace_is_taken_before_sums_of_the_same_kernels(read):
    profile = read(KERNELS + "\n" + TRACE)
    assert profile.total_time_s == pytest.approx(55e-6)
    assert any("already" in note for note in profile.notes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (KERNELS.splitlines()[0] + "\n", "no rows"),
        (KERNELS[:-40], "line 3 has 7 cells, but there are 9 columns.*cut off"),
        (KERNELS.replace('*, int)"', "*, int)"), "line 2 opens a quote that is not closed"),
        (KERNELS.replace('"', ""), "line 2 has 11 cells, but there are 9 columns"),
        (KERNELS.replace("3000", "fast"), "line 2: 'fast' in column 'Total Time .ns.' is not a time"),
        (KERNELS.replace("3000", "-3000"), "line 2: the time '-3000' .* is negative"),
        (KERNELS.replace("3000", "3e30"), "over 30 years"),
        (KERNELS.replace("3000", "0").replace("1000,1,", "0,1,"), "no row has a time above zero"),
        (KERNELS.replace("3000", "1.234.567").replace(",1000,1", ',"1,234,567",1'), "different decimal marks"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(read, text, message):
    with pytest.raises(InputFileError, match=message):
        read(text)


@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"\x7fELF\x02\x01\xff\xfe", b"hello\n", b"a,b\n1,2\n"])
def test_other_files_get_one_message(tmp_path, data):
    (tmp_path / "x.csv").write_bytes(data)
    assert not nsys_stats.sniff(data)
    with pytest.raises(InputFileError):
        nsys_stats.read(tmp_path / "x.csv")


def test_european_numbers_are_read(read):
    text = "\t".join(KERNELS.splitlines()[0].split(",")) + "\n75,0\t3.000.000\t3\t1.000.000,0\t1\t1\t1\t0,5\tf\n"
    assert read(text).total_time_s == pytest.approx(3e-3)


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32))
def test_damage_gives_a_profile_or_a_message(survives, damaged, seed):
    survives(
        nsys_stats,
        damaged(("\n".join((KERNELS, COPIES, SIZES, CALLS)), RANGES, TRACE + "\n" + API_TRACE, as_text(TRACE)), seed),
    )


@settings(max_examples=60)
@given(data=st.one_of(st.binary(max_size=300), st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace"))))
def test_anything_gives_a_profile_or_a_message(survives, data):
    survives(nsys_stats, data)


def test_the_kernels_of_a_real_run_add_up(data_dir):
    profile = nsys_stats.read(data_dir / "nsys" / "yashlabs_qwen_decode_cuda_gpu_kern_sum.csv")
    # 22.9 ms in 34 kernels; the first is 3,858,254 ns and 16.9 % of them: 3.858254 / 22.89429 = 0.16852
    assert (len(profile.entries), profile.total_time_s) == (34, pytest.approx(22894290e-9, rel=1e-12))
    assert profile.entries[0].time_s / profile.total_time_s == pytest.approx(0.169, abs=0.0005)
    assert sum(entry.calls for entry in profile.entries) == 6496  # as many as cudaLaunchKernel calls
    assert profile.notes == ()


def test_the_api_calls_of_a_real_run_are_times_of_the_cpu(data_dir):
    profile = nsys_stats.read(data_dir / "nsys" / "yashlabs_qwen_decode_cuda_api_sum.csv")
    launches = profile.entries[0]
    assert (launches.name, launches.calls, launches.category) == ("cudaLaunchKernel", 6496, "host")
    assert launches.time_s / profile.total_time_s == pytest.approx(0.989, abs=0.0005)


def test_the_ranges_of_a_real_run_do_not_count_twice(data_dir):
    profile = nsys_stats.read(data_dir / "nsys" / "yashlabs_qwen_decode_nvtx_sum_top.csv")
    own = {entry.name: entry.time_s for entry in profile.entries}
    # ":decode_S2048" ran once, 191,290,912 ns, and holds all others
    assert profile.total_time_s == pytest.approx(191290912e-9, rel=1e-12)
    # layers.0 without its input_layernorm and q_norm: 7,271,249 - 806,186 - 753,016 = 5,712,047 ns
    assert own[":model.layers.0"] == pytest.approx(5712047e-9)


def test_a_column_of_bytes_without_a_unit_is_in_bytes(read):
    trace = TRACE.replace("Bytes (MB)", "Bytes").replace("8.389", "8388608").replace("0.004,4.0", "4096,4.0")
    assert np.nansum(read(trace).timeline.gpu.bytes) == 8388608 + 4096


@pytest.mark.parametrize("report", [BY_CALL, BY_RANGE])
def test_sums_of_kernels_by_call_and_by_range_are_those_of_the_kernels(read, report):
    profile = read(report)
    assert {entry.name: (entry.calls, pytest.approx(entry.time_s)) for entry in profile.entries} == {
        "void f<int, 4>(float *, int)": (3, 3e-6),
        "gemm": (1, 1e-6),
    }
    assert {entry.category for entry in profile.entries} == {EventKind.KERNEL}
    assert any("each range around it" in note for note in profile.notes) == (report is BY_RANGE)


def test_sums_of_kernels_count_once_whatever_reports_have_them(read):
    profile = read("\n".join((BY_RANGE, KERNELS, BY_CALL, COPIES)))
    assert profile.total_time_s == pytest.approx(4.5e-6)
    assert [note for note in profile.notes if note.startswith("Left out")] == [
        "Left out: sums by range and kernel (4 us): other reports already count them.",
        "Left out: sums by kernel and call: other reports already count them.",
    ]


def test_calls_of_mpi_are_no_kernels(read):
    both = read(KERNELS + "\n" + MPI)
    assert both.total_time_s == pytest.approx(4e-6)
    assert both.notes == ("Left out: calls of MPI (700 ns): they run on the CPU beside the kernels.",)
    alone = read(MPI)
    assert [(entry.name, entry.category) for entry in alone.entries] == [("MPI_Allreduce", EventKind.HOST)]


def test_projected_ranges_count_outside_the_ranges_in_them(read):
    profile = read(PROJECTED)
    assert times(profile) == {":forward": 1.5e-6, ":step": 1.1e-6, ":mlp": 0.4e-6}
    assert {entry.name: entry.calls for entry in profile.entries} == {":forward": 2, ":step": 1, ":mlp": 1}
    # the whole is the outermost range
    assert profile.total_time_s == pytest.approx(3e-6)
    lines = PROJECTED.splitlines(keepends=True)
    assert read("".join((lines[0], *reversed(lines[1:])))).entries == profile.entries


def test_sums_of_projected_ranges_count_the_innermost_and_what_is_around_them(read):
    profile = read(PROJECTED_SUMS)
    assert times(profile) == {":mlp": 0.4e-6, "(outside the innermost ranges)": 2.6e-6}
    assert any("nvtx_gpu_proj_trace does" in note for note in profile.notes)
    # beside kernels, which have their times, they are left out
    both = read(KERNELS + "\n" + PROJECTED_SUMS)
    assert both.total_time_s == read(KERNELS).total_time_s
    assert any(note.startswith("Left out: ranges projected to the GPU (5.3 us)") for note in both.notes)


def test_overlap_of_projected_ranges_is_told(read):
    profile = read(PROJECTED.replace(":mlp,2100,400", ":mlp,2100,1500"))
    assert times(profile)[":mlp"] == 1.5e-6
    assert any("overlap on the GPU by 500 ns" in note for note in profile.notes)


def test_ranges_of_the_host_name_the_report_with_kernels(read):
    assert any("add --report cuda_gpu_kern_sum, or nvtx_gpu_proj_trace" in note for note in read(RANGES).notes)


def test_a_spreadsheet_writes_semicolons_and_decimal_commas(read):
    rows = list(csv.reader(KERNELS.splitlines()))
    for decimal in ".,":
        text = "\n".join(";".join(f'"{c}"' if "," in c else c.replace(".", decimal) for c in row) for row in rows)
        assert read(text).entries == read(KERNELS).entries


def as_json(report):
    """Write a CSV report as ``nsys stats --format json`` does: numbers as numbers, empty cells as null."""

    def value(cell):
        try:
            return int(cell) if cell.isdigit() else float(cell)
        except ValueError:
            return cell or None

    return json.dumps([{k: value(v) for k, v in row.items()} for row in csv.DictReader(io.StringIO(report))])


@pytest.mark.parametrize(
    "report", [KERNELS, KERNELS.replace("float *", "f{lambda(int)#1}"), TRACE, CALLS, RANGES, PROJECTED]
)
def test_json_says_the_same_as_csv(read, report):
    a, b = read(as_json(report)), read(report)
    assert a.entries == b.entries
    assert a.notes == b.notes
    if b.timeline:
        assert a.timeline.gpu.start_s.tolist() == b.timeline.gpu.start_s.tolist()


def test_damaged_json_is_told(read):
    with pytest.raises(InputFileError, match="is not valid JSON"):
        read(as_json(KERNELS)[:-5])
    with pytest.raises(InputFileError, match="row 2 has other keys"):
        read(as_json(KERNELS)[:-1].rpartition("{")[0] + '{"Name": "f"}]')


def test_calls_of_two_processes_with_one_number_launch_nothing_that_is_known(read):
    assert read(TRACE + "\n" + API_TRACE).timeline.gpu.launch.tolist() == [0, 1, -1]
    other = "70000,1500,cudaLaunchKernel,0,102,9,10,20,main\n"
    profile = read(TRACE + "\n" + API_TRACE + other)
    assert profile.timeline.gpu.launch.tolist() == [0, -1, -1]
    assert len(profile.timeline.api) == 3


def test_work_without_a_number_is_of_no_call(read):
    trace, calls = TRACE.replace(",103,", ",,"), API_TRACE + "70000,1500,cudaDeviceSynchronize,0,,7,8,20,main\n"
    assert read(trace + "\n" + calls).timeline.gpu.launch.tolist() == [0, 1, -1]

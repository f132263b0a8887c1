"""AMD's profilers: traces, counters and statistics of each release, joined files, and hand sums of their rows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.core.vocabulary import EventKind
from perfmodel.errors import InputFileError
from perfmodel.formats import read_profile
from perfmodel.formats.detect import find_format
from perfmodel.formats.rocprof import reader as rocprof
from perfmodel.profile.timeline import CallKind, CopyDirection

#: whole nanoseconds since 1970, of which float64 resolves 256
ZERO = 1_764_500_000_000_000_000
GEMM = "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SN_1LDSB0"
REDUCE = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"
KERNEL_HEADER = (
    '"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id",'
    '"Start_Timestamp","End_Timestamp","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count",'
    '"Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"\n'
)
KERNELS = KERNEL_HEADER + "".join(
    f'"KERNEL_DISPATCH","Agent 2",{queue},0,70,{number},9,"{name}",{number},{ZERO + start},{ZERO + end},'
    "0,0,12,4,48,256,1,1,256,1,1\n"
    for number, queue, name, start, end in (
        (11, 1, "__amd_rocclr_fillBufferAligned", 1_000, 3_565),
        (12, 1, GEMM, 5_000, 105_003),
        (13, 2, REDUCE, 100_000, 180_000),
        (14, 1, GEMM, 200_000, 300_000),
    )
)
COPIES = (
    '"Kind","Direction","Stream_Id","Source_Agent_Id","Destination_Agent_Id","Correlation_Id","Start_Timestamp",'
    '"End_Timestamp"\n'
    f'"MEMORY_COPY","MEMORY_COPY_HOST_TO_DEVICE",0,"Agent 0","Agent 2",21,{ZERO},{ZERO + 900}\n'
    f'"MEMORY_COPY","MEMORY_COPY_DEVICE_TO_HOST",0,"Agent 2","Agent 0",22,{ZERO + 310_000},{ZERO + 330_000}\n'
)
CALLS = (
    '"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    f'"HIP_RUNTIME_API","hipExtModuleLaunchKernel",70,70,12,{ZERO + 4_000},{ZERO + 4_500}\n'
    f'"HIP_RUNTIME_API","hipStreamSynchronize",70,70,30,{ZERO + 4_600},{ZERO + 190_000}\n'
    f'"HSA_CORE_API","hsa_signal_wait_scacquire",70,70,31,{ZERO + 4_700},{ZERO + 189_000}\n'
    f'"MARKER_CORE_API","step",70,70,32,{ZERO + 4_000},{ZERO + 200_000}\n'
)
STATISTICS = f""""Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"
"{GEMM}",2,200003,100001.500000,70.79,100000,100003,2.121320
"{REDUCE}",1,80000,80000.000000,28.31,80000,80000,0.00000000e+00
"__amd_rocclr_fillBufferAligned",1,2565,2565.000000,9.079e-01,2565,2565,0.00000000e+00
"""
OLD = (
    '"Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","grd","wgr","lds","scr","arch_vgpr",'
    '"accum_vgpr","sgpr","wave_size","sig","obj","DispatchNs","BeginNs","EndNs","CompleteNs","DurationNs"\n'
    '0,"f(Body*, int) [clone .kd]",4,0,0,36,36,65536,256,0,0,20,4,16,64,0x0,0x7f,100,1000,4000,5000,3000\n'
    '1,"f(Body*, int) [clone .kd]",4,0,2,36,36,65536,256,0,0,20,4,16,64,0x0,0x7f,6000,7000,9000,9500,2000\n'
)
SECOND = """Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,\
Arch_VGPR,Accum_VGPR,SGPR,Wave_Size,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID

0,4,1,100,100,1024,64,0,0,8,0,16,64,"f(Body*, int)",1000,4000,1
1,4,1,100,100,1024,64,0,0,8,0,16,64,"f(Body*, int)",7000,9000,2
"""
COUNTERS = (
    '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size","Kernel_Id",'
    '"Kernel_Name","Workgroup_Size","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count",'
    '"Counter_Name","Counter_Value","Start_Timestamp","End_Timestamp"\n'
    '1,1,"Agent 5",1,20,20,128,9,"f(Body*, int)",128,2048,0,64,0,80,"SQ_WAVES",10,1000,4000\n'
    '1,1,"Agent 5",1,20,20,128,9,"f(Body*, int)",128,2048,0,64,0,80,"VALUBusy",2,1000,4000\n'
    '2,2,"Agent 5",1,20,20,128,9,"f(Body*, int)",128,2048,0,64,0,80,"SQ_WAVES",30,7000,9000\n'
)
SUMMARY = """
ROCPROFV3 HIP_API SUMMARY:

|      NAME       |     DOMAIN      |  CALLS  | DURATION (usec) | AVERAGE (usec) | PERCENT (INC) | STDDEV |
|-----------------|-----------------|---------|-----------------|----------------|---------------|--------|
| hipLaunchKernel | HIP_API         |       3 |             900 |      3.000e+02 |         90.00 |    0.0 |

ROCPROFV3 SUMMARY:

|      NAME       |     DOMAIN      |  CALLS  | DURATION (usec) | AVERAGE (usec) | PERCENT (INC) | STDDEV |
|-----------------|-----------------|---------|-----------------|----------------|---------------|--------|
| hipLaunchKernel | HIP_API         |       3 |             900 |      3.000e+02 |         45.00 |    0.0 |
| f(int, ...)     | KERNEL_DISPATCH |       3 |           1,100 |      3.667e+02 |         55.00 |    0.0 |
"""
DOMAINS = """"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"
"HIP_RUNTIME_API",10,5000,500.0,50.00,1,5000,1.0
"KERNEL_DISPATCH",10,5000,500.0,50.00,1,5000,1.0
"""
ALLOCATIONS = (
    '"Kind","Operation","Agent_Id","Allocation_Size","Address","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    '"MEMORY_ALLOCATION","MEMORY_ALLOCATION_ALLOCATE","Agent 0",1024,"0x7f",3,1000,2000\n'
)


@pytest.fixture
def read(tmp_path):
    def call(text):
        path = tmp_path / "out.csv"
        path.write_text(text)
        assert find_format(path).reader.NAME == "rocprof"
        return rocprof.read(path)

    return call


def times(profile):
    return {entry.name: pytest.approx(entry.time_s, rel=1e-12) for entry in profile.entries}


def test_a_trace_of_kernels_has_their_times_kinds_and_queues(read):
    profile = read(KERNELS)
    fill = "__amd_rocclr_fillBufferAligned"
    assert times(profile) == {GEMM: 200_003e-9, REDUCE: 80_000e-9, fill: 2_565e-9}
    kinds = {entry.name: (entry.category, entry.calls) for entry in profile.entries}
    assert kinds == {GEMM: ("kernel", 2), REDUCE: ("communication", 1), fill: ("memset", 1)}
    gpu = profile.timeline.gpu
    assert gpu.start_s.tolist() == pytest.approx([0.0, 4e-6, 99e-6, 199e-6], abs=1e-15)
    assert (gpu.stream.tolist(), set(gpu.device.tolist())) == ([1, 1, 2, 1], {2})
    assert "no copies (*_memory_copy_trace.csv) and no API calls (*_hip_api_trace.csv)" in profile.notes[0]


def test_the_files_of_a_run_joined_are_one_time_line(read):
    profile = read(KERNELS + COPIES + CALLS)
    timeline = profile.timeline
    assert [timeline.names[name] for name in timeline.api.name] == ["hipExtModuleLaunchKernel", "hipStreamSynchronize"]
    assert timeline.api.category.tolist() == [CallKind.LAUNCH, CallKind.SYNC]
    launched = {timeline.names[timeline.gpu.name[i]]: timeline.gpu.launch[i] for i in range(3)}
    assert launched[GEMM] == 0
    assert [CopyDirection(d).word for d in timeline.gpu.direction if d >= 0] == ["h2d", "d2h"]
    assert set(timeline.gpu.device.tolist()) == {2}
    assert profile.total_time_s == pytest.approx((200_003 + 80_000 + 2_565 + 900 + 20_000) * 1e-9)
    assert [timeline.names[name] for name in timeline.annotations.name] == ["step"]
    assert profile.skipped == {"call of HSA, which calls of HIP make": 1}
    mark = f'"MARKER_CORE_API","here",70,70,33,{ZERO + 4_000},{ZERO + 4_000}\n'
    marked = read(KERNELS + COPIES + CALLS + mark)
    assert marked.skipped["mark of the program (ROCTX), which has no length"] == 1
    assert len(marked.timeline.annotations) == 1
    assert not any("cat the files" in note for note in profile.notes)


def test_the_order_of_the_files_and_of_their_rows_changes_nothing(read):
    rows = KERNELS.splitlines(keepends=True)
    shuffled = "".join((rows[0], *reversed(rows[1:])))
    one, other = read(KERNELS + COPIES + CALLS), read(CALLS + shuffled + COPIES)
    assert one.entries == other.entries
    assert one.timeline.gpu.start_s.tolist() == other.timeline.gpu.start_s.tolist()


def test_a_file_that_is_joined_twice_counts_once(read):
    assert read(KERNELS + COPIES + KERNELS).entries == read(KERNELS + COPIES).entries


def test_statistics_agree_with_the_trace(read):
    trace, sums = read(KERNELS), read(STATISTICS)
    assert times(sums) == times(trace)
    calls = {entry.name: (entry.calls, entry.category, entry.not_modelled) for entry in sums.entries}
    assert calls == {entry.name: (entry.calls, entry.category, entry.not_modelled) for entry in trace.entries}
    assert sums.notes == ()


@pytest.mark.parametrize("text", [OLD, SECOND, COUNTERS])
def test_each_release_names_its_columns_its_own_way(read, text):
    (entry,) = read(text).entries
    assert (entry.name, entry.calls, entry.category) == ("f(Body*, int)", 2, EventKind.KERNEL)
    assert entry.time_s == pytest.approx(5e-6)


def test_kernels_under_counters_have_no_time_line_of_the_program(read):
    assert read(COUNTERS).timeline is None
    wide = OLD.replace('"DispatchNs"', '"FetchSize","DispatchNs"').replace(",0x7f,", ",0x7f,2048.0,")
    assert (read(wide).timeline, read(wide).entries) == (None, read(OLD).entries)
    assert read(OLD).timeline is not None


def test_headers_of_rocpd_and_its_processes_are_known(read):
    kernels = KERNELS.replace('"Kind"', '"Guid","Kind"').replace('"KERNEL_DISPATCH"', '"a-1","KERNEL_DISPATCH"')
    call = '"Guid","Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    call += f'"a-2","HIP_RUNTIME_API","hipLaunchKernel",71,71,12,{ZERO + 4_000},{ZERO + 4_500}\n'
    assert set(read(kernels + call).timeline.gpu.launch.tolist()) == {-1}
    assert set(read(kernels + call.replace("a-2", "a-1")).timeline.gpu.launch.tolist()) == {-1, 0}


def test_a_copy_between_gpus_is_not_within_one(read):
    row = '"MEMORY_COPY","DEVICE_TO_DEVICE",0,"Agent {}","Agent 3",5,1000,2000\n'
    header = COPIES.splitlines(keepends=True)[0]
    profile = read(header + row.format(2) + row.format(3))
    directions = [CopyDirection(number) for number in profile.timeline.gpu.direction.tolist()]
    assert directions == [CopyDirection.BETWEEN_DEVICES, CopyDirection.DEVICE_TO_DEVICE]


def test_statistics_of_several_processes_and_kinds_are_added(read):
    copies = '"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n"MEMORY_COPY_HOST_TO_DEVICE",4,900,225,100.0\n'
    calls = '"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n"hipLaunchKernel",4,700,175,100.0\n'
    other = STATISTICS.replace("200003", "300000")
    profile = read(STATISTICS + other + copies + calls + STATISTICS)
    assert times(profile)[GEMM] == 500_003e-9
    assert times(profile)["MEMORY_COPY_HOST_TO_DEVICE"] == 900e-9
    assert {entry.name: entry.category for entry in profile.entries}["MEMORY_COPY_HOST_TO_DEVICE"] is EventKind.MEMCPY
    assert "hipLaunchKernel" not in times(profile)


def test_a_summary_counts_the_gpu_once(read):
    profile = read(SUMMARY)
    assert times(profile) == {"f(int, ...)": 1100e-6}
    assert profile.notes == ("Left out: API calls (900 us): they run on the CPU beside the kernels.",)


def test_calls_alone_are_work_of_the_host(read):
    profile = read(CALLS)
    assert times(profile) == {"hipStreamSynchronize": 185_400e-9, "hipExtModuleLaunchKernel": 500e-9}
    assert {entry.category for entry in profile.entries} == {EventKind.HOST}
    sums = '"Name","Calls","TotalDurationNs","AverageNs","Percentage"\nhipMemcpy,2,900,450,90\n__hipPush,1,100,100,10\n'
    assert {entry.category for entry in read(sums).entries} == {EventKind.HOST}


def test_time_stamps_that_another_program_wrote_as_floats_keep_their_digits(read):
    first = f"{ZERO + 1_000}"
    for text in (f"{first}.0", f"{first[0]}.{first[1:]}e+18"):
        assert read(KERNELS.replace(first, text)).entries == read(KERNELS).entries


def test_rows_without_times_are_left_out_and_counted(read):
    lines = KERNELS.splitlines(keepends=True)
    never, backwards = lines[1].replace(f"{ZERO + 1_000}", "0"), lines[1].replace(f"{ZERO + 3_565}", f"{ZERO + 5}")
    profile = read(KERNELS + never + backwards)
    assert profile.total_time_s == read(KERNELS).total_time_s
    assert profile.skipped == {"event without a start or an end": 1, "event that ends before it starts": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DOMAINS, "holds statistics, and no times of kernels.*kernel_trace.csv"),
        (OLD.replace("BeginNs", "A").replace("EndNs", "B"), "without their times.*timestamp on"),
        (KERNEL_HEADER, "has no rows"),
        (ALLOCATIONS, "a trace of other events"),
        (STATISTICS.replace("200003", "-200003"), "line 2: '-200003' in column 'TotalDurationNs' is not a time"),
    ],
)
def test_what_holds_no_times_is_named(read, text, message):
    with pytest.raises(InputFileError, match=message):
        read(text)


def test_a_plain_table_is_not_taken_for_one_of_amd(tmp_path):
    for header in ("Kernel_Name,Index,time_ms", "name,start_timestamp,end_timestamp,time_ms", "name,calls,time (us)"):
        path = tmp_path / "mine.csv"
        path.write_text(f"{header}\n" + ",".join("5" for _ in header.split(",")) + "\n")
        assert read_profile(path).format == "table"


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_damage_ends_in_a_profile_or_a_message(survives, damaged, seed):
    survives(rocprof, damaged([KERNELS, COPIES + CALLS, STATISTICS, OLD, COUNTERS, SUMMARY], seed))

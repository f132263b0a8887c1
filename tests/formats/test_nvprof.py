"""``nvprof``: units in a second header row, GPU and API in one table, traces, text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import InputFileError
from perfmodel.formats import nvprof
from perfmodel.profile.timeline import CallKind, CopyDirection

BANNER = "==123== NVPROF is profiling process 123, command: ./a.out\n==123== Profiling result:\n"
CSV = (
    BANNER
    + """"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"
,%,ms,,us,us,ms,
"GPU activities",75.000000,3.000000,3,1000.000000,900.000000,1.100000,"f(float const *, int)"
"GPU activities",25.000000,1.000000,2,500.000000,400.000000,0.600000,"[CUDA memcpy HtoD]"
"API calls",90.000000,9.000000,5,1800.000000,1.000000,8.000000,"cudaMemcpy"
"API calls",10.000000,1.000000,3,333.000000,1.000000,0.900000,"cudaLaunchKernel"
"""
)
TRACE = (
    BANNER
    + """"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z","Registers Per Thread",\
"Static SMem","Dynamic SMem","Size","Throughput","SrcMemType","DstMemType",\
"Device","Context","Stream","Name","Correlation_ID"
ms,us,,,,,,,,KB,B,KB,GB/s,,,,,,,
0.100000,1.888000,,,,,,,,,,1.003906,0.507097,"Pageable","Device","GeForce RTX 2080 Ti (0)","1","7",\
"[CUDA memcpy HtoD]",272
0.200000,10.000000,64,1,1,128,1,1,32,0.0,0,,,,,"GeForce RTX 2080 Ti (0)","1","22","f(int)",316
"""
)
TEXT = (
    BANNER
    + """            Type  Time(%)      Time     Calls       Avg       Min       Max  Name
 GPU activities:   75.00%  3.0000ms         3  1.0000ms  900.00us  1.1000ms  f(float const *, int)
                   25.00%  1.0000ms         2  500.00us  400.00us  600.00us  [CUDA memcpy HtoD]
      API calls:   90.00%  9.0000ms         5  1.8000ms  1.0000us  8.0000ms  cudaMemcpy
                   10.00%  1.0000ms         3  333.00us  1.0000us  900.00us  cudaLaunchKernel
"""
)
TEXT_TRACE = (
    BANNER
    + """   Start  Duration            Grid Size      Block Size     Regs*    SSMem*    DSMem*      Size  Throughput  \
SrcMemType  DstMemType           Device   Context    Stream  Name
182.84ms  1.5000us                    -               -         -         -         -  1.0000KB  651.04MB/s    \
Pageable      Device  Tesla P100-PCIE         1         7  [CUDA memcpy HtoD]
1.20100s     640ns            (512 1 1)       (128 1 1)        31        0B        0B         -           -           \
-           -  Tesla P100-PCIE         1         7  setup(float*, unsigned long) [118]
1.20101s  1.3600us            (512 1 1)       (128 1 1)        31        0B        0B         -           -           \
-           -  Tesla P100-PCIE         1         7  setup(float*, unsigned long) [119]

Regs: Number of registers used per CUDA thread. This number includes registers used internally by the CUDA driver.
"""
)


@pytest.fixture
def read(tmp_path):
    def call(text):
        (tmp_path / "x.csv").write_text(text)
        assert nvprof.sniff(text.encode())
        return nvprof.read(tmp_path / "x.csv")

    return call


@pytest.mark.parametrize("text", [CSV, TEXT])
def test_the_gpu_counts_and_the_api_beside_it_does_not(read, text):
    profile = read(text)
    assert {entry.name: (entry.time_s, entry.calls, entry.category) for entry in profile.entries} == {
        "f(float const *, int)": (pytest.approx(3e-3), 3, "kernel"),
        "[CUDA memcpy HtoD]": (pytest.approx(1e-3), 2, "memcpy"),
    }
    # both groups add up to 100 % by themselves: nothing to complain of
    assert profile.notes == ("Left out: API calls (10 ms): they run on the CPU beside the kernels.",)


def test_percentages_are_checked_in_each_group(read):
    notes = read(CSV.replace("75.000000", "70.000000")).notes
    assert "The percentages in 'Time(%) of GPU activities' add up to 95" in notes[0]


def test_api_calls_alone_are_times_of_the_cpu(read):
    profile = read("\n".join(line for line in CSV.splitlines() if "GPU activities" not in line))
    assert profile.total_time_s == pytest.approx(10e-3)
    assert {entry.category for entry in profile.entries} == {"host"}


def test_a_trace_has_units_by_column_and_binary_sizes(read):
    profile = read(TRACE)
    gpu = profile.timeline.gpu
    assert gpu.start_s == pytest.approx([0.0, 100e-6])
    assert gpu.duration_s == pytest.approx([1.888e-6, 10e-6])
    # 1.003906 KB of 1024 B are 1028 B
    assert gpu.bytes[0] == pytest.approx(1028, abs=0.01)
    assert (gpu.direction[0], gpu.pinned[0], gpu.stream.tolist()) == (CopyDirection.HOST_TO_DEVICE, 0, [7, 22])
    assert profile.device == "GeForce RTX 2080 Ti"


def test_a_trace_as_text_has_units_in_its_cells_and_no_time_line(read):
    profile = read(TEXT_TRACE)
    assert {entry.name: (pytest.approx(entry.time_s), entry.calls) for entry in profile.entries} == {
        "setup(float*, unsigned long)": (2e-6, 2),
        "[CUDA memcpy HtoD] 1.024 kB": (1.5e-6, 1),
    }
    assert profile.timeline is None
    assert "too coarse for a time line" in profile.notes[0]


def test_calls_of_an_api_trace_launch_their_kernels(read):
    api = '"Start","Duration","Name","Correlation_ID"\nms,us,,\n0.150000,9.0,"cudaLaunchKernel",316\n'
    profile = read(TRACE + "\n" + api)
    assert profile.timeline.gpu.launch.tolist() == [-1, 0]
    assert profile.timeline.api.category.tolist() == [CallKind.LAUNCH]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CSV.replace(",%,ms,,us,us,ms,\n", ""), "the row of units below nvprof's header is missing"),
        (CSV[:-10], "opens a quote"),
        (CSV[:-40], "line 8 has 5 cells, but there are 8 columns"),
        (CSV.replace("3.000000,3", "fast,3"), "'fast' .* is not a time"),
        (CSV.replace("3.000000,3", "-3.0,3"), "negative"),
        (BANNER, "has no table"),
        (
            BANNER + '"Device","Kernel","Invocations","Metric Name","Min","Max","Avg"\n"a","b","1","c","1","1","1"\n',
            "no times",
        ),
    ],
)
def test_what_is_wrong_is_said(read, text, message):
    with pytest.raises(InputFileError, match=message):
        read(text)


@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"\x7fELF\x02\x01\xff\xfe", b"hello\n", b"Name,time_ms\na,1\n"])
def test_other_files_get_one_message(tmp_path, data):
    (tmp_path / "x.csv").write_bytes(data)
    assert not nvprof.sniff(data)
    with pytest.raises(InputFileError):
        nvprof.read(tmp_path / "x.csv")


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32))
def test_damage_gives_a_profile_or_a_message(survives, damaged, seed):
    survives(nvprof, damaged((CSV, TRACE, TEXT, TEXT_TRACE), seed))


@settings(max_examples=60)
@given(data=st.one_of(st.binary(max_size=300), st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace"))))
def test_anything_gives_a_profile_or_a_message(survives, data):
    survives(nvprof, data)

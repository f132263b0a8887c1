"""CSV of Nsight Compute: both pages, units and numbers of every manner, failed captures, real files by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import InputFileError
from perfmodel.formats import ncu
from perfmodel.formats.text.numbers import number_format

ID = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream",'
ID += '"Block Size","Grid Size","Device","CC"'
LONG = ID + ',"Section Name","Metric Name","Metric Unit","Metric Value"\n'
RULES = LONG.rstrip() + ',"Rule Name","Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup"\n'


def row(number, name, metric, unit, value, grid="(4, 1, 1)"):
    return (
        f'"{number}","1","python","host","{name}","1","7","(256, 1, 1)","{grid}","0","9.0","Section",'
        f'"{metric}","{unit}","{value}"\n'
    )


@pytest.fixture
def read(tmp_path):
    def call(text):
        path = tmp_path / "ncu.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        assert ncu.sniff(path.read_bytes()[:65536])
        return ncu.read(path)

    return call


def test_a_kernel_has_the_flop_and_bytes_of_its_launches(read):
    profile = read(
        "==PROF== Connected to process 1 (python)\nhello\n"
        + LONG
        + row(0, "f(int, int)", "gpu__time_duration.sum", "us", "1,234.50")
        + row(0, "f(int, int)", "dram__bytes_read.sum", "Kbyte", "10.00")
        + row(0, "f(int, int)", "dram__bytes_write.sum", "byte", "500")
        + row(0, "f(int, int)", "sm__ops_path_tensor_src_bf16_dst_fp32.sum", "", "2,147,483,648")
        + "==PROF== something between\n\n"
        + row(1, "f(int, int)", "gpu__time_duration.sum", "ns", "500")
        + row(1, "f(int, int)", "dram__bytes_read.sum", "Mbyte", "1.00")
        + row(1, "f(int, int)", "dram__bytes_write.sum", "byte", "0")
        + row(1, "f(int, int)", "sm__ops_path_tensor_src_bf16_dst_fp32.sum", "", "0")
        + "==PROF== Disconnected from process 1\n"
    )
    (entry,) = profile.entries
    assert (entry.name, entry.calls, entry.op) == ("f(int, int)", 2, None)
    # 1234.5 us + 0.5 us; 10 kB + 500 B + 1 MB; 2 x 1024^3 + 0
    assert entry.time_s == pytest.approx(1235e-6)
    assert entry.bytes == pytest.approx(1010500)
    assert entry.flop == 2 * 1024**3
    assert entry.metrics["flop_bf16_tensor"] == 2 * 1024**3
    assert entry.metrics["compute_capability"] == 9.0
    assert profile.skipped == {}
    assert entry.not_modelled


def test_readings_that_do_not_add_up_are_averaged_by_time(read):
    profile = read(
        LONG
        + row(0, "f", "gpu__time_duration.sum", "us", "3")
        + row(0, "f", "sm__warps_active.avg.pct_of_peak_sustained_active", "%", "80")
        + row(0, "f", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "sector", "300")
        + row(0, "f", "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "", "10")
        + row(1, "f", "gpu__time_duration.sum", "us", "1")
        + row(1, "f", "sm__warps_active.avg.pct_of_peak_sustained_active", "%", "40")
        + row(1, "f", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "sector", "60")
        + row(1, "f", "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "", "10")
    )
    metrics = profile.entries[0].metrics
    # (80 x 3 + 40 x 1) / 4 = 70 %; 360 sectors by 20 requests, not the mean of 30 and 6
    assert metrics["achieved_occupancy"] == pytest.approx(0.70)
    assert metrics["load_sectors_per_request"] == pytest.approx(18.0)


def test_a_kernel_of_several_grids_is_several_entries(read):
    grids = [("(1, 1, 1)", 1), ("(2, 1, 1)", 2), ("(1, 1, 1)", 4)]
    text = LONG + "".join(row(i, "f", "gpu__time_duration.sum", "us", t, g) for i, (g, t) in enumerate(grids))
    found = {entry.name: entry.time_s for entry in read(text).entries}
    assert found == {"f (1, 1, 1) x (256, 1, 1)": pytest.approx(5e-6), "f (2, 1, 1) x (256, 1, 1)": pytest.approx(2e-6)}


RAW = f"""{ID},"dram__bytes.sum","gpu__time_duration.sum","launch__func_cache_config",\
"sm__inst_executed_pipe_tensor.sum"
"","","","","","","","","","","","Mbyte","msecond","",""
"0","1","python","h","f","1","7","(8, 1, 1)","(1, 1, 1)","0","7.0","2.5","0.5","CachePreferNone","4"
"1","1","python","h","g","1","7","(8, 1, 1)","(1, 1, 1)","0","7.0","1.5","0.25","CachePreferNone","n/a"
"""


def test_the_raw_page_has_its_units_in_a_second_row(read):
    profile = read(RAW)
    f, g = profile.entries
    assert (f.time_s, f.bytes) == (pytest.approx(0.5e-3), pytest.approx(2.5e6))
    # 4 instructions of Volta's tensor pipe x 512 FLOP
    assert f.metrics["flop_fp16_tensor"] == 2048.0
    assert (g.bytes, g.flop) == (pytest.approx(1.5e6), None)
    assert profile.skipped == {"metric that is not a number": 2, "metric without a value": 1}


def test_the_raw_page_without_units_and_ids(read):
    text = '"Kernel Name","gpu__time_duration.sum","dram__bytes.sum"\n"f","0.001","10"\n"f","0.002","20"\n'
    (entry,) = read(text).entries
    assert (entry.time_s, entry.calls, entry.bytes) == (pytest.approx(3e-3), 2, 30.0)


def test_european_numbers(read):
    profile = read(
        LONG
        + row(0, "f", "gpu__time_duration.sum", "nsecond", "27.595.520")
        + row(0, "f", "dram__bytes.sum", "byte", "595.520")
        + row(0, "f", "sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", "66,61")
    )
    entry = profile.entries[0]
    assert (entry.time_s, entry.bytes) == (pytest.approx(27595520e-9), 595520.0)
    assert entry.metrics["sm_utilization"] == pytest.approx(0.6661)


@pytest.mark.parametrize(
    ("texts", "decimal"),
    [
        (["1,215,000,000.00"], "."),
        (["27.595.520"], ","),
        (["1,234"], "."),  # nothing says otherwise
        (["1.234", "12,5"], ","),
        (["1.234", "0.5"], "."),
        (["1'234'567", "1 234 567,5"], ","),
        (["12", "n/a"], "."),
    ],
)
def test_the_decimal_mark_is_told_from_all_numbers(texts, decimal):
    assert number_format(texts).decimal == decimal


def test_two_manners_in_one_file_are_an_error(read):
    text = (
        LONG
        + row(0, "f", "gpu__time_duration.sum", "ns", "1.234.567")
        + row(0, "f", "dram__bytes.sum", "byte", "1,234,567")
    )
    with pytest.raises(InputFileError, match="different decimal marks"):
        read(text)


def test_labels_of_the_details_page_are_their_metrics(read):
    text = RULES + "".join(
        row(0, "f", label, unit, value)
        for label, unit, value in (
            ("Duration", "us", "100.00"),
            ("Memory Throughput", "%", "80.00"),
            ("Memory Throughput", "Gbyte/second", "500.00"),
            ("L2 Hit Rate", "%", "25.00"),
            ("Theoretical Occupancy", "%", "50.00"),
        )
    )
    text += (
        text.splitlines()[1].rsplit(',"Duration"', 1)[0]
        + ',"","","","SOLBottleneck","OPT","Memory is more, \n utilized","",""\n'
    )
    entry = read(text).entries[0]
    # 500 GB/s over 100 us are 50 MB
    assert (entry.time_s, entry.bytes) == (pytest.approx(1e-4), pytest.approx(50e6))
    assert (entry.metrics["memory_utilization"], entry.metrics["l2_hit_rate"]) == (0.8, 0.25)
    assert entry.metrics["theoretical_occupancy"] == 0.5


def test_a_launch_without_a_duration_is_counted(read):
    text = LONG + row(0, "f", "gpu__time_duration.sum", "us", "1") + row(1, "g", "dram__bytes.sum", "byte", "1")
    profile = read(text)
    assert [entry.name for entry in profile.entries] == ["f"]
    assert profile.skipped == {"launch without a duration": 1}


FAILED = (
    "==PROF== Connected to process 4711 (/usr/bin/python3.11)\n"
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU counters.\n"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FAILED, "no measured kernel: ncu reported 'ERR_NVGPUCTRPERM.*as root"),
        ("==PROF== Connected to process 1 (x)\n==WARNING== No kernels were profiled.\n", "'No kernels were profiled'"),
        ("==PROF== Connected to process 1 (x)\n==PROF== Disconnected from process 1\n", "the capture failed"),
        (LONG, "no measured kernel"),
        (
            "f(int) (1, 1, 1)x(2, 1, 1), Device 0\n    Section: GPU Speed Of Light Throughput\n",
            "not its CSV.*--page raw",
        ),
        (LONG + row(0, "f", "dram__bytes.sum", "byte", "1"), "no kernel has a duration.*gpu__time_duration.sum"),
        (LONG + row(0, "f", "gpu__time_duration.sum", "us", "n/a"), "no kernel has a duration"),
        (LONG + row(0, "f", "gpu__time_duration.sum", "us", "fast"), "line 2: the duration 'fast' is not a number"),
        (LONG + row(0, "f", "gpu__time_duration.sum", "us", "-1"), "line 2: the duration '-1' us is negative"),
        (LONG + row(0, "f", "gpu__time_duration.sum", "us", "1")[:-12], "line 2 opens a quote"),
        (LONG + row(0, "f", "gpu__time_duration.sum", "us", "1")[:-5] + "\n", "line 2 has 14 cells"),
    ],
)
def test_failed_captures_and_damage_are_said(read, text, message):
    with pytest.raises(InputFileError, match=message):
        read(text)


@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"\x7fELF\x02\x01\xff\xfe", b"hello\n", b"Name,time_ms\na,1\n"])
def test_other_files_get_one_message(tmp_path, data):
    (tmp_path / "x.csv").write_bytes(data)
    assert not ncu.sniff(data)
    with pytest.raises(InputFileError):
        ncu.read(tmp_path / "x.csv")


DETAILS = (
    LONG
    + row(0, "f(int)", "gpu__time_duration.sum", "us", "1,234.50")
    + row(0, "f(int)", "sm__ops_path_tensor_src_fp16_dst_fp32.sum", "", "2,048")
    + row(0, "f(int)", "Memory Throughput", "Gbyte/second", "n/a")
)


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32))
def test_damage_gives_a_profile_or_a_message(survives, damaged, seed):
    survives(ncu, damaged((RAW, FAILED, DETAILS), seed))


@settings(max_examples=60)
@given(data=st.one_of(st.binary(max_size=300), st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace"))))
def test_anything_gives_a_profile_or_a_message(survives, data):
    survives(ncu, data)


def of(data_dir, name):
    (entry,) = ncu.read(data_dir / "ncu" / f"olajide_rtx5070_{name}.csv").entries
    return entry


def test_saxpy_moves_its_vectors_and_is_coalesced(data_dir):
    entry = of(data_dir, "saxpy")
    # 2^24 floats: reads x and y, 2 x 64 MiB = 134,217,728 B; counters say 134,221,568 read and 43,631,104 written
    # (a part of y's 64 MiB stays in the 48 MB L2)
    assert entry.bytes == 134221568 + 43631104
    assert entry.bytes == pytest.approx(3 * 4 * 2**24, rel=0.12)
    assert entry.time_s == pytest.approx(292928e-9)
    # 607 GB/s, below the data sheet's 672
    assert entry.bytes / entry.time_s == pytest.approx(607.2e9, rel=1e-3)
    assert entry.metrics["load_sectors_per_request"] == entry.metrics["store_sectors_per_request"] == 4.0
    # 6,291,456 sectors x 32 B = 201,326,592 B through L1
    assert entry.metrics["l1_bytes"] == 3 * 4 * 2**24


def test_the_naive_transpose_stores_a_sector_for_each_thread(data_dir):
    entry = of(data_dir, "transpose_naive")
    # 4,194,304 sectors by 131,072 requests = 32: each lane its own sector
    assert entry.metrics["store_sectors_per_request"] == 32.0
    assert entry.metrics["load_sectors_per_request"] == 4.0
    assert entry.metrics["achieved_occupancy"] == pytest.approx(0.4124)


def test_tiles_save_the_naive_gemm_its_loads(data_dir):
    naive, tiled = of(data_dir, "gemm_naive"), of(data_dir, "gemm_tiled")
    # one operand is a broadcast (1 sector), the other coalesced (4): 2.5 a request; 32 times fewer requests with tiles
    assert naive.metrics["load_sectors_per_request"] == 2.5
    requests = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
    assert naive.metrics[requests] / tiled.metrics[requests] == 32.0
    assert tiled.metrics["shared_bank_conflicts"] == 4695342.0
    # no FLOP counters were collected, which is not zero FLOP
    assert naive.flop is None


def test_a_table_with_values_and_without_the_names_of_metrics_is_read_by_its_columns(tmp_path):
    path = tmp_path / "ncu.csv"
    path.write_text('"ID","Kernel Name","Metric Value","gpu__time_duration.sum"\n"","","","us"\n"0","f","7","2"\n')
    assert ncu.read(path).total_time_s == pytest.approx(2e-6)


def test_a_summary_has_the_means_of_all_launches_of_one_grid_and_block(tmp_path):
    header = "Process ID,Kernel Name,Block Size,Grid Size,Device,CC,Invocations,Section Name,Metric Name,Metric Unit,"
    rows = (
        'gemm,"(8, 1, 1)","(1, 1, 1)",0,9.0,5,SOL,Duration,us,10.0,14.0,12.0',
        'gemm,"(8, 1, 1)","(1, 1, 1)",0,9.0,5,Memory,dram__bytes.sum,byte,900.0,"1,100.0","1,000.0"',
        'gemm,"(8, 1, 1)","(2, 1, 1)",0,9.0,2,SOL,Duration,us,1.0,1.0,1.0',
    )
    path = tmp_path / "summary.csv"
    path.write_text("\n".join((f"{header}Minimum,Maximum,Average", *(f"7,{row}" for row in rows))))
    assert ncu.sniff(path.read_bytes())
    first, second = ncu.read(path).entries
    assert (first.calls, first.time_s, first.bytes) == (5, pytest.approx(60e-6), 5000.0)
    assert (second.calls, second.time_s) == (2, pytest.approx(2e-6))
    # launches are counted, not listed
    path.write_text(path.read_text().replace(",9.0,2,SOL", ",9.0,2000000000,SOL"))
    assert [entry.calls for entry in ncu.read(path).entries] == [2 * 10**9, 5]
    path.write_text(path.read_text().replace(",9.0,2000000000,SOL", ",9.0,2000000000000000,SOL"))
    with pytest.raises(InputFileError, match=r"'1\.0' us of 2000000000000000 launches is negative or over 30 years"):
        ncu.read(path)


def test_details_and_raw_page_in_one_file_count_each_launch_once(read):
    details = LONG + "".join(
        row(number, name, metric, unit, value, "(1, 1, 1)").replace('"host"', '"h"').replace("(256,", "(8,")
        for number, name, metric, unit, value in (
            (0, "f", "Duration", "ms", "0.50"),
            (0, "f", "Achieved Occupancy", "%", "40.12"),
            (1, "g", "Duration", "us", "249.90"),
            (1, "g", "Achieved Occupancy", "%", "20.00"),
        )
    )
    alone = read(RAW)
    for text in (details + "\n" + RAW, RAW + "\n" + details):
        profile = read(text)
        assert [(e.name, e.time_s, e.calls, e.bytes) for e in profile.entries] == [
            (e.name, e.time_s, e.calls, e.bytes) for e in alone.entries
        ]
        occupancy = {e.name: e.metrics["achieved_occupancy"] for e in profile.entries}
        assert occupancy == {"f": pytest.approx(0.4012), "g": pytest.approx(0.2)}
        assert "2 launches are on several pages; each counts once." in profile.notes


def test_one_page_twice_counts_once_and_another_run_counts(read):
    page = LONG + row(0, "f", "gpu__time_duration.sum", "us", "3.00")
    assert read(page + page).total_time_s == pytest.approx(3e-6)
    # processes of two containers have one number
    other = LONG + row(0, "f", "gpu__time_duration.sum", "us", "5.00")
    assert read(page + other).total_time_s == pytest.approx(8e-6)
    assert read(page + page.replace('"0","1",', '"0","2",')).total_time_s == pytest.approx(6e-6)
    raw = f'{ID},"gpu__time_duration.sum"\n"0","1","python","h","f","1","7","(256, 1, 1)","(4, 1, 1)","0","9.0","5.0"\n'
    assert read(page + raw).entries[0].calls == 2


def test_a_summary_beside_single_launches_does_not_count(read):
    summary = (
        '"Process ID","Process Name","Host Name","Device","CC","Kernel Name","Block Size","Grid Size","Invocations",'
        '"Section Name","Metric Name","Metric Unit","Minimum","Maximum","Average"\n'
        '"1","python","host","0","9.0","f","(256, 1, 1)","(4, 1, 1)","1","S","Duration","us","3.00","3.00","3.00"\n'
    )
    page = LONG + row(0, "f", "gpu__time_duration.sum", "us", "3.00")
    profile = read(summary + page)
    assert profile.total_time_s == pytest.approx(3e-6)
    assert any(note.startswith("Left out: a summary of kernels") for note in profile.notes)
    assert read(summary).total_time_s == pytest.approx(3e-6)

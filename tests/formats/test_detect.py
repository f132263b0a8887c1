"""Formats are recognised by content; a plugin adds one, and a broken plugin breaks nothing."""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import time

import pytest

from perfmodel import plugins
from perfmodel.errors import InputFileError, UsageError
from perfmodel.formats import detect
from perfmodel.formats.detect import HEAD_BYTES, Reader, ReadOptions, formats, read_profile, read_profiles

KERNELS = "Time (%),Total Time (ns),Instances,Name\n100.0,3000,3,f\n"


@pytest.mark.parametrize(
    ("file", "format_", "entries"),
    [
        ("nsys/ginda_h100_2gpu_megatron_before.sqlite", "nsys sqlite", 36),
        ("nsys/ginda_rtx3080_mock_minimal.sqlite", "nsys sqlite", 3),
        ("nsys/yashlabs_qwen_decode_cuda_api_sum.csv", "nsys stats", 10),
        ("nsys/yashlabs_qwen_decode_cuda_gpu_kern_sum.csv", "nsys stats", 34),
        ("nsys/yashlabs_qwen_decode_nvtx_sum_top.csv", "nsys stats", 22),
        ("ncu/olajide_rtx5070_gemm_naive.csv", "ncu", 1),
        ("ncu/olajide_rtx5070_gemm_tiled.csv", "ncu", 1),
        ("ncu/olajide_rtx5070_saxpy.csv", "ncu", 1),
        ("ncu/olajide_rtx5070_transpose_naive.csv", "ncu", 1),
        ("torch_profiler/ao_sdpa_key_averages.txt", "key_averages", 1),
        ("torch_profiler/ao_stablediffusion_key_averages.txt", "key_averages", 7),
        ("profile_tables/tracelens_h100_qwen_kernel_summary.csv", "table", 26),
        ("profile_tables/tracelens_h100_qwen_ops_summary.csv", "table", 20),
    ],
)
def test_each_real_file_has_its_reader(data_dir, tmp_path, file, format_, entries):
    shutil.copyfile(data_dir / file, tmp_path / "anything")
    profile = read_profile(tmp_path / "anything")
    assert (profile.format, len(profile.entries)) == (format_, entries)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("ncu/olajide_rtx5070_nvml.csv", "no column holds a name; the columns are 'timestamp', 'power_w'"),
        ("ncu/olajide_rtx5070_peaks.csv", "no column holds a time; the columns are 'label', 'peak_flops'"),
        ("ncu/olajide_rtx5070_manifest.json", "holds no list of rows"),
        ("benchmark_json/nvbench_gv100_gp100_ref.json", "is a record of nvbench, not a profile.*perfmodel compare"),
        ("benchmark_json/pytest_benchmark_0001.json", "is a record of pytest_benchmark, not a profile"),
        (
            "profile_tables/neusight_opgraph_A100-PCIE-40GB_bert_large-inf-512-16.csv",
            "'latency' has no unit.*latency_ms",
        ),
        ("profile_tables/neusight_opgraph_H100_80GB_HBM3_bert_large-train-512-2.csv", "'latency' has no unit"),
    ],
)
def test_the_message_for_a_file_that_is_not_a_profile_names_the_problem(data_dir, file, message):
    with pytest.raises(InputFileError, match=message):
        read_profile(data_dir / file)


def test_every_reader_has_what_the_protocol_asks_for():
    attributes = [name for name in vars(Reader) if not name.startswith("_")] + list(Reader.__annotations__)
    assert sorted(attributes) == ["NAME", "PRECEDENCE", "read", "sniff"]
    assert len({one.reader.NAME for one in formats()}) == len(formats())
    for one in formats():
        assert all(hasattr(one.reader, name) for name in attributes)
        assert not one.plugin


def test_the_most_particular_format_is_asked_first_and_the_table_last():
    order = [one.reader.PRECEDENCE for one in formats()]
    assert order == sorted(order, reverse=True)
    assert formats()[-1].reader.NAME == "table"
    assert formats()[-1].recognises(b"anything")


def test_a_header_is_found_behind_the_output_of_the_program(tmp_path):
    # programs print before their profiler does; what stands behind the head is not looked at
    path = tmp_path / "run.txt"
    lines = HEAD_BYTES // 8
    path.write_text("step 99\n" * (lines - 20) + KERNELS)
    assert read_profile(path).format == "nsys stats"
    path.write_text("step 99\n" * lines + KERNELS)
    with pytest.raises(InputFileError, match="no column holds a name"):
        read_profile(path)
    assert HEAD_BYTES >= 65536


@pytest.mark.parametrize("text", [KERNELS, '{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 0, "dur": 3}]}'])
def test_gzip_and_a_byte_order_mark_change_nothing(tmp_path, text):
    (tmp_path / "plain").write_text(text)
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbf" + text.encode())
    (tmp_path / "packed").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "both").write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.encode()))
    plain, *others = (read_profile(tmp_path / name) for name in ("plain", "marked", "packed", "both"))
    for profile in others:
        assert (profile.format, profile.entries) == (plain.format, plain.entries)


def test_pipes_and_devices_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(InputFileError, match="is a pipe or a device"):
            read_profile(path)


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_does_not_fit_into_memory_is_refused(tmp_path, monkeypatch, packed):
    # 1 MB of blanks in 1 kB: a gzip file may unpack to a thousand times its size
    monkeypatch.setattr(detect, "LARGEST_TEXT_BYTES", 100_000)
    text = ("name,time_ms\na,1\n" + " \n" * 500_000).encode()
    (tmp_path / "bomb").write_bytes(gzip.compress(text) if packed else text)
    with pytest.raises(InputFileError, match=r"bomb: is larger than 0\.1 MB, unpacked"):
        read_profile(tmp_path / "bomb")
    monkeypatch.setattr(detect, "LARGEST_TEXT_BYTES", len(text))
    assert read_profile(tmp_path / "bomb").total_time_s == pytest.approx(1e-3)


def test_a_reader_that_holds_no_file_in_memory_takes_any_size(tmp_path, monkeypatch):
    monkeypatch.setattr(detect, "LARGEST_TEXT_BYTES", 10)
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 0, "dur": 3}]}')
    assert read_profile(path).total_time_s == pytest.approx(3e-6)
    assert {one.reader.NAME for one in formats() if getattr(one.reader, "ANY_SIZE", False)} == {
        "torch trace",
        "nsys sqlite",
        "rocpd",
    }


@pytest.mark.waiting
@pytest.mark.parametrize("text", ["\n", " \n", " ", "\t", "- ", "-", '"', "(", "| ", "==", "1,", "a:b "])
def test_recognising_a_file_takes_time_in_proportion_to_its_length(text):
    # a pattern that starts at each line and runs over all blank ones takes thousands of times as long
    def seconds(head):
        begin = time.process_time()
        for one in formats():
            one.recognises(head)
        return time.process_time() - begin

    ordinary, head = b"step 17 loss 0.25\n" * (HEAD_BYTES // 18), (text * HEAD_BYTES)[:HEAD_BYTES].encode()
    longest_s = 60 * min(seconds(ordinary) for _ in range(3))
    # a head of line ends has 18 times the lines of ordinary text; another process may delay one sample, not all three
    assert any(seconds(head) < longest_s for _ in range(3))


def test_an_unknown_grouping_names_the_nearest_one():
    with pytest.raises(UsageError, match="Did you mean 'kernel'"):
        ReadOptions(by="kernels")


def test_profiles_are_read_in_the_given_order(tmp_path):
    for rank in range(3):
        (tmp_path / f"{rank}.csv").write_text(f"name,time_ms\nrank{rank},1\n")
    paths = [tmp_path / f"{rank}.csv" for rank in (2, 0, 1)]
    assert [profile.entries[0].name for profile in read_profiles(paths)] == ["rank2", "rank0", "rank1"]
    # of a pattern in the order of the names, as the command line has them
    matched = read_profiles([tmp_path / "[0-2].csv"])
    assert [profile.entries[0].name for profile in matched] == ["rank0", "rank1", "rank2"]
    with pytest.raises(InputFileError, match=r"none\.\*: "):
        read_profiles([tmp_path / "none.*"])


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Install a module as the profile format of another distribution: ``plugin(source)``."""
    monkeypatch.syspath_prepend(str(tmp_path))
    functions = [plugins._installed, plugins.module_names, plugins._import_plugin, plugins.warn_once, formats]

    def forget():
        sys.modules.pop("strange_format", None)
        for function in functions:
            function.cache_clear()

    def install(source, name="strange"):
        info = tmp_path / "strange-1.0.dist-info"
        info.mkdir()
        (info / "entry_points.txt").write_text(f"[perfmodel.formats]\n{name} = strange_format\n")
        (tmp_path / "strange_format.py").write_text(source)
        forget()

    yield install
    forget()


FORMAT = """
from perfmodel.profile.profile import Profile, ProfileEntry

NAME = "strange"
PRECEDENCE = 75

def sniff(head):
    return head.startswith(b"%strange")

def read(path, options):
    return Profile.from_entries([ProfileEntry("k", 2.0)], source=str(path), notes=(options.by,), format=NAME)
"""


@pytest.fixture
def strange_file(tmp_path):
    path = tmp_path / "run.strange"
    path.write_text("%strange\n" + KERNELS)
    return path


def test_a_plugin_adds_a_format(plugin, strange_file, capsys):
    assert read_profile(strange_file).format == "nsys stats"
    plugin(FORMAT)
    profile = read_profile(strange_file, by="kernel")
    assert (profile.format, profile.total_time_s, profile.notes) == ("strange", 2.0, ("kernel",))
    assert capsys.readouterr().err == ""


def test_precedence_decides_between_formats_that_both_recognise_a_file(plugin, strange_file):
    plugin(FORMAT.replace("PRECEDENCE = 75", "PRECEDENCE = 49"))
    assert read_profile(strange_file).format == "nsys stats"


TWO = """
import sys

class Other:
    NAME, PRECEDENCE, read = "other", 90, None
    sniff = staticmethod(lambda head: False)

READERS = (Other, sys.modules[__name__])
"""


def test_a_package_lists_several_readers(plugin, strange_file):
    plugin(FORMAT + TWO)
    assert {"other", "strange"} <= {one.reader.NAME for one in formats()}
    assert read_profile(strange_file).format == "strange"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (FORMAT.replace("PRECEDENCE = 75", ""), "PRECEDENCE is missing"),
        (FORMAT.replace("def read", "def reed"), "read is missing"),
        (FORMAT.replace("return head.startswith", "return 1 / 0 or head.startswith"), "sniff: ZeroDivisionError"),
        ("import nothing_of_this_name", "ModuleNotFoundError"),
    ],
)
def test_a_broken_plugin_is_named_once_and_skipped(plugin, strange_file, capsys, source, reason):
    plugin(source)
    for _ in range(2):
        assert read_profile(strange_file).format == "nsys stats"
    err = capsys.readouterr().err
    assert err.count("plugin 'strange' (strange_format) is skipped") == 1
    assert reason in err


def test_a_plugin_that_fails_on_a_file_gives_one_message(plugin, strange_file):
    plugin(FORMAT.replace("return Profile", "1 / 0\n    return Profile"))
    with pytest.raises(InputFileError, match=r"the plugin 'strange' \(strange_format\) failed: ZeroDivisionError"):
        read_profile(strange_file)


def test_the_messages_of_a_plugin_are_passed_on(plugin, strange_file):
    error = "from perfmodel.errors import InputFileError\n"
    plugin(error + FORMAT.replace("return Profile", "raise InputFileError('is cut off.')\n    return Profile"))
    with pytest.raises(InputFileError, match=r"^is cut off\.$"):
        read_profile(strange_file)


def test_own_modules_without_a_reader_are_helpers():
    modules = plugins.module_names("perfmodel.formats", "formats")
    assert {"detect", "text", "nesting", "kernel_names"} <= set(modules)
    assert "nesting" not in {one.reader.NAME for one in formats()}
    assert detect.find_format(__file__).reader.NAME == "table"

"""``key_averages()``: operators or kernels but never both, pseudo-rows, cut tables, JSON, real tables by hand."""

import json
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perfmodel.errors import InputFileError
from perfmodel.formats import key_averages
from perfmodel.formats.detect import ReadOptions

COLUMNS = ("Name", "Self CPU %", "Self CPU", "CPU total", "Self CUDA", "Self CUDA %", "CUDA total", "# of Calls")
OPS = [
    ("aten::linear", "1.00%", "10.000us", "90.000us", "0.000us", "0.00%", "1.500ms", "2"),
    ("aten::addmm", "2.00%", "20.000us", "80.000us", "1.500ms", "75.00%", "1.500ms", "2"),
    ("aten::relu", "2.00%", "20.000us", "20.000us", "500.000us", "25.00%", "500.000us", "2"),
]
KERNELS = [
    ("void gemm<int, 4>(f...", "0.00%", "0.000us", "0.000us", "1.500ms", "75.00%", "1.500ms", "2"),
    ("void relu<int>(floa...", "0.00%", "0.000us", "0.000us", "500.000us", "25.00%", "500.000us", "2"),
]
TOTALS = "Self CPU time total: 50.000us\nSelf CUDA time total: 2.000ms\n"


def table(rows, columns=COLUMNS, totals=TOTALS):
    sizes = [max(len(row[i]) for row in (columns, *rows)) for i in range(len(columns))]
    rule = "  ".join("-" * size for size in sizes) + "  "
    lines = [
        "  ".join(cell.rjust(size) for cell, size in zip(row, sizes, strict=True)) + "  " for row in (columns, *rows)
    ]
    return "\n".join((rule, lines[0], rule, *lines[1:], rule)) + "\n" + totals


EVENTS = '[{"key": "aten::mm", "count": 2, "self_cpu_time_total": 10.0, "self_device_time_total": 50.0, "flops": 1e9}]'
OLD_CSV = "key,count,self_cuda_time_total,self_cpu_time_total,cpu_time_total\naten::mm,2,50.0,10,30\nk,2,50.0,0,0\n"


@pytest.fixture
def read(tmp_path):
    def call(text, **options):
        (tmp_path / "x.txt").write_text(text)
        assert key_averages.sniff(text.encode())
        return key_averages.read(tmp_path / "x.txt", ReadOptions(**options))

    return call


def times(profile):
    return {entry.name: pytest.approx(entry.time_s) for entry in profile.entries}


def test_operators_count_and_their_kernels_do_not(read):
    profile = read(table(OPS + KERNELS))
    assert times(profile) == {"aten::addmm": 1.5e-3, "aten::relu": 0.5e-3}
    # (1.5 + 0.5) of operators + (1.5 + 0.5) of kernels over 2 ms
    assert "add up to 200 %" in profile.notes[0]
    assert "operators are counted, not the kernels" in profile.notes[0]
    assert profile.entries[0].calls == 2


def test_kernels_count_where_asked_or_where_they_show_more(read):
    kernels = {"void gemm<int, 4>(f...": 1.5e-3, "void relu<int>(floa...": 0.5e-3}
    assert times(read(table(OPS + KERNELS), by="kernel")) == kernels
    assert times(read(table(OPS[:1] + OPS[2:] + KERNELS))) == kernels
    assert times(read(table(KERNELS))) == kernels


def test_the_rest_of_a_cut_table_is_kept(read):
    profile = read(table(OPS[:2] + KERNELS[:1]))
    assert times(profile) == {"aten::addmm": 1.5e-3, "(not itemised)": 0.5e-3}
    assert any("The table was cut: it shows 1.5 ms of its total of 2 ms" in note for note in profile.notes)


def test_rows_of_the_profiler_and_repeated_ranges_do_not_count(read):
    more = [
        ("Command Buffer Full", "50.00%", "50.000us", "50.000us", "900.000us", "45.00%", "900.000us", "3"),
        ("ProfilerStep*", "10.00%", "10.000us", "99.000us", "0.000us", "0.00%", "2.000ms", "1"),
        ("ProfilerStep*", "0.00%", "0.000us", "0.000us", "2.100ms", "105.00%", "2.100ms", "1"),
        ("my range", "1.00%", "1.000us", "99.000us", "0.000us", "0.00%", "2.000ms", "1"),
        ("my range", "0.00%", "0.000us", "0.000us", "2.000ms", "100.00%", "2.000ms", "1"),
    ]
    for by in ("shape", "kernel"):
        profile = read(table(OPS + KERNELS + more), by=by)
        assert profile.total_time_s == pytest.approx(2e-3)
        assert profile.skipped == {
            "row for the profiler's own work": 1,
            "range on the device that repeats the work inside it": 2,
        }


def test_a_run_on_the_cpu_counts_self_time_of_the_cpu(read):
    columns = (
        "Name",
        "Self CPU %",
        "Self CPU",
        "CPU total %",
        "CPU total",
        "CPU time avg",
        "# of Calls",
        "Total KFLOPs",
    )
    rows = [
        ("aten::linear", "20.00%", "2.000ms", "100.00%", "10.000ms", "5.000ms", "2", "--"),
        ("aten::addmm", "80.00%", "8.000ms", "80.00%", "8.000ms", "4.000ms", "2", "1310.720"),
    ]
    profile = read(table(rows, columns, "Self CPU time total: 10.000ms\n"))
    assert times(profile) == {"aten::linear": 2e-3, "aten::addmm": 8e-3}
    assert {entry.category for entry in profile.entries} == {"host"}
    assert profile.entries[1].metrics == {"estimated_flop": pytest.approx(1310720.0)}


def test_rows_by_shape_keep_their_shapes(read):
    columns = (*COLUMNS, "Input Shapes")
    rows = [(*OPS[1], "[[2, 3], [3, 4]]"), (*OPS[2], "[]")]
    assert set(times(read(table(rows, columns)))) == {"aten::addmm [[2, 3], [3, 4]]", "aten::relu"}


def test_events_as_json_or_csv_are_microseconds(read):
    events = [
        {
            "key": "aten::mm",
            "count": 2,
            "self_cpu_time_total": 10.0,
            "cpu_time_total": 30.0,
            "self_device_time_total": 50.0,
        },
        {"key": "mm_kernel", "count": 2, "self_cpu_time_total": 0, "cpu_time_total": 0, "self_device_time_total": 50.0},
        {"key": None, "self_cpu_time_total": 1},
    ]
    for text in (json.dumps(events), json.dumps({"rows": events})):
        assert times(read(text)) == {"aten::mm": 50e-6}
        assert times(read(text, by="kernel")) == {"mm_kernel": 50e-6}
    assert read(json.dumps(events)).skipped == {"event without a name": 1}
    assert times(read(OLD_CSV)) == {"aten::mm": 50e-6}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (table([]), "the table has no rows"),
        (table(OPS).replace("1.500ms", "fast   "), "line 5: 'fast' is not a time with a unit"),
        (table(OPS).replace("500.000us", "-500.00us"), "negative"),
        (table(OPS[:1], totals="").replace("10.000us", " 0.000us"), "no row has a time above zero"),
        (table(OPS, ("Name", "# of Calls", "a", "b", "c", "d", "e", "f")), "no column 'Self CPU'"),
        ('[{"key": "a", "self_cpu_time_total": "x"}]', "event 1: the time 'x' is not a number"),
        ('[{"key": "a", "self_cpu_time_total": 1', "not valid JSON"),
        ('{"self_cpu_time_total": 1}', "holds no list of events"),
    ],
)
def test_what_is_wrong_is_said(read, text, message):
    with pytest.raises(InputFileError, match=message):
        read(text)


@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"\x7fELF\x02\x01\xff\xfe", b"hello\n", b"Name,time_ms\na,1\n"])
def test_other_files_get_one_message(tmp_path, data):
    (tmp_path / "x.txt").write_bytes(data)
    assert not key_averages.sniff(data)
    with pytest.raises(InputFileError):
        key_averages.read(tmp_path / "x.txt")


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32))
def test_damage_gives_a_profile_or_a_message(survives, damaged, seed):
    survives(key_averages, damaged((table(OPS + KERNELS), EVENTS, OLD_CSV), seed))


@settings(max_examples=60)
@given(data=st.one_of(st.binary(max_size=300), st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace"))))
def test_anything_gives_a_profile_or_a_message(survives, data):
    survives(key_averages, data)


ODD = st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 1e308, 10**400, "nan", "1e999", ""])
values = st.one_of(
    ODD, st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.lists(st.integers())
)
keys = ["key", "count", "self_cpu_time_total", "self_device_time_total", "flops", "device_type", "input_shapes"]


@settings(max_examples=80)
@given(events=st.lists(st.dictionaries(st.sampled_from(keys), values), max_size=4))
@example(events=[])
@example(events=[{}])
@example(events=[{"key": "a", "self_cpu_time_total": math.nan}])
@example(events=[{"key": "a", "self_device_time_total": math.inf, "count": -math.inf}])
@example(events=[{"key": "a", "self_device_time_total": 1.0, "count": math.nan, "flops": 10**400}])
def test_events_of_anything_give_a_profile_or_a_message(survives, events):
    survives(key_averages, json.dumps(events).encode())


def test_one_attention_call_stands_three_times(data_dir):
    profile = key_averages.read(data_dir / "torch_profiler" / "ao_sdpa_key_averages.txt")
    # the operator, the profiler's buffer request and the two kernels each say 17.631 us
    assert times(profile) == {"aten::_flash_attention_forward": 17.631e-6}
    assert "add up to 300 %" in profile.notes[0]


def test_the_kernels_of_one_attention_call(data_dir):
    profile = key_averages.read(data_dir / "torch_profiler" / "ao_sdpa_key_averages.txt", ReadOptions(by="kernel"))
    # 12.191 us + 5.440 us = 17.631 us, the table's own total
    assert [entry.time_s for entry in profile.entries] == [pytest.approx(12.191e-6), pytest.approx(5.44e-6)]


def test_stable_diffusion_adds_up_to_its_own_total(data_dir):
    profile = key_averages.read(data_dir / "torch_profiler" / "ao_stablediffusion_key_averages.txt")
    found = {entry.name: entry.time_s for entry in profile.entries}
    # 1.310 + 1.010 + 0.514843 + 0.493232 + 0.343008 + 0.284981 = 3.956064 s of 4.768 s; mixed s and ms
    assert profile.total_time_s == pytest.approx(4.768)
    assert found["(not itemised)"] == pytest.approx(4.768 - 3.956064)
    assert "Command Buffer Full" not in found
    # Self CUDA %: 27.48 + 27.13 + 21.18 x 2 + 15.20 + 10.80 + 10.35 + 8.28 + 7.65 + 7.19 + 6.52 + 6.39 + 5.98 + 5.97
    # + 3.93 = 185.23
    assert "add up to 185.2 %" in profile.notes[0]


def test_cut_names_of_stable_diffusion_may_be_different_kernels(data_dir):
    path = data_dir / "torch_profiler" / "ao_stablediffusion_key_averages.txt"
    profile = key_averages.read(path, ReadOptions(by="kernel"))
    cut = next(entry for entry in profile.entries if entry.name.startswith("void at::native::elementwise"))
    # 364.792 + 310.842 + 304.582 + 187.388 ms in 6138 + 4038 + 9178 + 3138 calls
    assert (cut.time_s, cut.calls) == (pytest.approx(1.167604), 22492)
    assert any("may be different kernels" in note for note in profile.notes)


@pytest.mark.parametrize(
    ("less", "chosen"),
    [
        # four digits of each time are off by up to 1 part in 2000, on both sides
        (0.0015, "aten::addmm"),
        # 3 parts in 1000 are no rounding: the table was cut among the operators
        (0.003, "void gemm<int, 4>(f..."),
    ],
)
def test_operators_count_if_they_cover_the_kernels_up_to_rounding(read, less, chosen):
    operator = (*OPS[1][:4], f"{2 * (1 - less):.6f}ms", *OPS[1][5:])
    kernel = (*KERNELS[0][:4], "2.000000ms", *KERNELS[0][5:])
    assert chosen in times(read(table([operator, kernel])))


@pytest.mark.parametrize(("rest_us", "is_kept"), [(3.0, False), (5.0, True)])
def test_a_difference_to_the_total_below_its_rounding_is_not_a_rest(read, rest_us, is_kept):
    # the total is 2 ms, 2 parts in 1000 of which are 4 us
    rows = [(*OPS[1][:4], f"{2000 - rest_us:.3f}us", *OPS[1][5:])]
    assert ("(not itemised)" in times(read(table(rows)))) == is_kept


def test_a_self_time_just_below_zero_is_zero(read):
    # the profiler subtracts rounded times from each other: -0.5 us is rounding, -2 us is damage
    profile = read(table([*OPS, (*OPS[0][:4], "-0.500us", *OPS[0][5:])]))
    assert profile.total_time_s == pytest.approx(2e-3)
    with pytest.raises(InputFileError, match=r"'-2\.000us' is negative"):
        read(table([*OPS, (*OPS[0][:4], "-2.000us", *OPS[0][5:])]))


def test_of_several_tables_the_first_one_counts_with_its_own_total(read):
    later = table(
        [("aten::mm", "1%", "9us", "9us", "7.000ms", "100%", "7.000ms", "3")], totals="Self CUDA time total: 7.000ms\n"
    )
    profile = read("step 1\n" + table(OPS) + "\nstep 2\n" + later)
    alone = read(table(OPS))
    assert times(profile) == times(alone)
    assert profile.notes == (
        "The file has several tables; the first one is counted, since others may sum the same run.",
        *alone.notes,
    )


def test_a_table_may_be_indented(read):
    printed = table(OPS)
    assert times(read("\n".join(f"    {line}" for line in printed.split("\n")))) == times(read(printed))

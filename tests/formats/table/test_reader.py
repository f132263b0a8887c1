"""Plain tables: every format and delimiter, what is wrong, real files, and a small fuzz test."""

import contextlib
import csv
import json
import math
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import perfmodel
from perfmodel.errors import InputFileError, PerfModelError
from perfmodel.formats import read_profile
from perfmodel.formats.table import reader as table

NAMES_AND_TIMES = {"gemm": 0.012, "void f<int, float>(T)": 0.003}


@pytest.fixture
def read(tmp_path):
    def call(text, suffix=".csv"):
        path = tmp_path / f"profile{suffix}"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_profile(path)

    return call


def times(profile):
    return {entry.name: pytest.approx(entry.time_s) for entry in profile.entries}


def test_a_row_that_ends_before_its_name_has_none(read):
    assert times(read("time_ms,calls,name\n12,1,gemm\n3\n")) == {"gemm": 0.012, "(unnamed)": 0.003}


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_every_delimiter_and_line_end(read, delimiter, newline):
    lines = [["name", "time_ms"], ["gemm", "12"], ['"void f<int, float>(T)"', "3.0"]]
    assert times(read(newline.join(delimiter.join(line) for line in lines))) == NAMES_AND_TIMES


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        ('[{"name": "gemm", "time_ms": 12}, {"name": "void f<int, float>(T)", "time_ms": 3}]', ".json"),
        ('{"rows": [{"name": "gemm", "time_s": 0.012}, {"name": "void f<int, float>(T)", "time_s": 3e-3}]}', ".json"),
        ('[[kernel]]\nname="gemm"\ntime="12 ms"\n[[kernel]]\nname="void f<int, float>(T)"\ntime="3000 us"', ".toml"),
        ("- {name: gemm, time: 12 ms}\n- {name: 'void f<int, float>(T)', time: 3 ms}", ".yaml"),
    ],
)
def test_documents_hold_the_same_profile(read, text, suffix):
    assert times(read(text, suffix)) == NAMES_AND_TIMES


@pytest.mark.parametrize(("command", "key"), [("project", "rows"), ("diagnose", "operators")])
def test_the_parts_of_a_run_in_perfmodels_own_json_are_a_profile(read, command, key):
    parts = [{"name": "a", "time_s": 2.0, "bound_time_s": 1.0, "predicted_time_s": 1.5}]
    document = {"schema_version": 2, "command": command, "context": {}, "rows": [{"dimension": "idle"}], key: parts}
    profile = read(json.dumps(document), ".json")
    assert times(profile) == {"a": 2.0}
    assert not profile.notes, "a limit and a prediction are no other times to choose from"


#: rows of results that are no parts of a run, though each has a name and a time
ANALYZED = {"op": "gemm", "name": "a", "count": 3, "hardware": "h", "bound_time_s": 1.0, "predicted_time_s": 2.0}
NO_PARTS = {
    "analyze": ANALYZED,
    "bench": {**ANALYZED, "kernel": "torch.matmul", "status": "ok", "measured_time_s": 3.0},
    "compare": {"op": "gemm", "name": "a", "before_s": 1.0, "after_s": 2.0, "verdict": "slower"},
    "roi": {"rank": 1, "name": "a", "targets": "x;y", "time_s": 2.0, "time_saved_s": 1, "max_overall_speedup": 2},
    "whatif": {"step": 1, "name": "a", "targets": "x", "time_before_s": 2.0, "time_after_s": 1.0, "total_time_s": 9.0},
}


@pytest.mark.parametrize("command", NO_PARTS)
def test_results_of_perfmodel_that_are_no_parts_of_a_run_are_no_profile(read, command):
    row = NO_PARTS[command]
    document = {"schema_version": 2, "command": command, "context": {}, "rows": [row]}
    csv_text = ",".join(row) + "\n" + ",".join(map(str, row.values()))
    for text, suffix in ((csv_text, ".csv"), (json.dumps([row]), ".json"), (json.dumps(document), ".json")):
        with pytest.raises(InputFileError, match=f"is a record of perfmodel {command}, not a profile"):
            read(text, suffix)


def test_a_result_without_rows_of_names_and_times_is_no_profile_either(read):
    document = {"schema_version": 2, "command": "train", "rows": [{"name": "a", "time_s": 1.0}]}
    with pytest.raises(InputFileError, match="is a record of perfmodel train"):
        read(json.dumps(document), ".json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[candidates]]\nname="a"\ntargets=["x"]\nnew_time="2 ms"', "is a plan, not a profile. Give it to --plan"),
        ('[[steps]]\nname="a"\nkind="scale"\nnew_time="2 ms"', "is a scenario, not a profile.*perfmodel whatif"),
    ],
)
def test_plans_and_scenarios_are_no_profiles(read, text, message):
    with pytest.raises(InputFileError, match=message):
        read(text, ".toml")


def test_a_profile_may_call_its_parts_steps(read):
    assert times(read('[[steps]]\nname="a"\ntime="2 ms"', ".toml")) == {"a": 0.002}


def test_cells_may_be_minutes_and_hours_as_in_plans(read):
    assert times(read("name,time\na,5 min\nb,2 h\nc,3 s\n")) == {"a": 300.0, "b": 7200.0, "c": 3.0}


def test_units_in_cells_may_be_mixed(read):
    assert times(read("op,time\na,12 ms\nb,3us\nc,1.5 s\nd,0\n")) == {"a": 12e-3, "b": 3e-6, "c": 1.5, "d": 0.0}


@pytest.mark.parametrize("number", ['"1,234,567.5"', "1'234'567.5", "1 234 567.5", "1.2345675e6"])
def test_marks_between_thousands(read, number):
    assert times(read(f"name,time_us\na,{number}\n")) == {"a": 1.2345675}


@pytest.mark.parametrize(
    ("text", "times_ms"),
    [
        ("name;time_ms\na;12,5\n", [12.5]),
        ('name,time_ms\na,"0,123"\n', [0.123]),
        # one that is certain tells those that are not
        ("name;time_ms;calls\na;1,234;1.001\nb;12,5;2\n", [1.234, 12.5]),
        ("name;time\na;1.234.567,8 us\nb;1,234 ms\n", [1234.5678, 1.234]),
        ("name\ttime_ms\na\t6588,415\n", [6588.415]),
    ],
)
def test_decimal_commas_are_read_where_they_are_certain(read, text, times_ms):
    assert [entry.time_s * 1e3 for entry in read(text).entries] == pytest.approx(times_ms)


def test_calls_have_marks_between_thousands(read):
    assert read("name;time_ms;calls\na;12,5;1.001\n").entries[0].calls == 1001


def test_two_decimal_marks_in_a_table_are_an_error(read):
    with pytest.raises(InputFileError, match=r"'0.5' and '12,5' use different decimal marks"):
        read("name;time_ms\na;0.5\nb;12,5\n")


def test_tables_that_were_joined_repeat_their_header(read):
    one = "name,time_ms,calls\na,1,2\n"
    (entry,) = read(one + one).entries
    assert (entry.time_s, entry.calls) == (pytest.approx(2e-3), 4)


@pytest.mark.parametrize("text", ["name;time_ms\na;1,234\n", 'name,time_ms\na,"1,2,3"\nb,1\n'])
def test_a_comma_that_may_be_a_decimal_mark_is_an_error(read, text):
    with pytest.raises(InputFileError, match=r"line 2, column 'time_ms': .* is ambiguous as a number"):
        read(text)


def test_comments_blank_lines_and_a_byte_order_mark(read):
    profile = read(b"\xef\xbb\xbf# made by hand\n\nname,time_ms\n# the first\na,1\n\n , \nb,2\n")
    assert times(profile) == {"a": 1e-3, "b": 2e-3}


def test_a_header_may_start_with_a_number_sign(read):
    profile = read("# of Calls,Name,Time (ms)\n3,a,6\n")
    assert (profile.entries[0].name, profile.entries[0].calls) == ("a", 3)


def test_an_average_counts_for_every_call(read):
    profile = read("name,avg_us,calls\na,10,100\nb,5,2\n")
    assert times(profile) == {"a": 1e-3, "b": 1e-5}
    assert profile.notes == ("Times are the mean 'avg_us' times 'calls'.",)
    assert "no column of calls" in read("name,avg_us\na,10\n").notes[0]


def test_rows_without_a_time_are_left_out_and_counted(read):
    profile = read("name,time_ms,calls\na,1,1\nb,,1\nc,n/a,1\nd,NaN,1\ne\n")
    assert times(profile) == {"a": 1e-3}
    assert profile.skipped == {"row without a time": 4}
    assert profile.notes == ("Left out: 4 x row without a time.",)


def test_rows_of_one_name_are_summed(read):
    profile = read("name,time_ms,calls\na,1,1\nb,2,1\na,3,4\n")
    assert times(profile) == {"a": 4e-3, "b": 2e-3}
    assert profile.entries[0].calls == 5
    assert profile.notes == ("2 rows share one name; they are summed.",)


@pytest.mark.parametrize("name", ["total", "Total:", "TOTAL", "Sum"])
def test_a_total_counts_no_time_twice(read, name):
    profile = read(f"name,time_ms\na,120.01\nb,380\n{name},500\n")
    assert times(profile) == {"a": 0.12001, "b": 0.380}
    assert "is the sum of the others and is left out" in profile.notes[0]


def test_what_a_total_holds_beyond_its_rows_is_kept(read):
    profile = read("name,time_ms\ntotal,500\nattention,120\n")
    assert times(profile) == {"attention": 0.120, "(not itemised)": 0.380}
    assert profile.total_time_s == pytest.approx(0.5)


def test_a_total_below_its_rows_shows_that_they_nest(read):
    profile = read("name,time_ms\nouter,500\ninner,120\ntotal,500\n")
    assert times(profile) == {"outer": 0.5, "inner": 0.12}
    assert "overlap or nest" in profile.notes[0]


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        ("name,share,time_ms\n\n# parts\nouter,100,10\n  inner,60,6\n  other, 10,1\n", ".csv"),
        ('name;time_ms\nouter;10\n"  inner";6\n  other;1\n', ".csv"),
        ('[{"name": "outer", "t_ms": 10}, {"name": "  inner", "t_ms": 6}, {"name": " other", "t_ms": 1}]', ".json"),
    ],
)  # fmt: skip
def test_indented_rows_are_inside_the_row_above_them(read, text, suffix):
    profile = read(text, suffix)
    assert times(profile) == {"outer": 3e-3, "inner": 6e-3, "other": 1e-3}
    assert "Rows are indented below 1 row, of which only the time outside of them counts." in profile.notes


def test_an_operator_called_sum_is_an_entry(read):
    assert times(read("op,time_ms\nmm,5\nsum,1\n")) == {"mm": 5e-3, "sum": 1e-3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,time_ms\na,-1\n", "line 2, column 'time_ms': the time is negative"),
        ("# c\n\nname,time_ms\na,1\nb,fast\n", "line 5, column 'time_ms': 'fast' is not a time"),
        ("name,time_ms\na,12 us\n", "another unit than the header"),
        ("name,time\na,12 ms\nb,12\n", "line 3, column 'time': '12' has no unit"),
        ("name,time_ms\na,12 GB\n", "'12 GB' is not a time"),
        ("name,time_ms\na,inf\n", "'inf' is not a time"),
        ("name,time_ms\na,1e999\n", "over 30 years"),
        ("name,avg_s,calls\na,1e6,1e6\n", "over 30 years"),
        ("name,time_ms\nf(int, float),1\n", "line 2 has 3 cells.*Quote names"),
        ('name,time_ms\na,1\n"b,2\n', "cannot be split"),
        ("name,time_ms\na,0\n", "all times are zero"),
        ("name,time_ms\n", "no row has a time"),
        ("name,time_ms\na,-\n", "no row has a time"),
        ("# nothing\n\n", "only comments"),
        ("name,time_ms,calls\na,1,1.5\n", "line 2, calls: '1.5' is not a whole number of calls"),
        ("name,time_ms,calls\na,1,-1\n", "not a whole number of calls"),
        ("", "empty"),
        ("just some text\n", "no column holds a name"),
        (b"name,time_ms\n\xff,1\n", "line 2 is not UTF-8"),
        (b"name,time_ms\na\x00,1\n", "NUL"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(read, text, message):
    with pytest.raises(InputFileError, match=message):
        read(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "no list of rows"),
        ("3", "no list of rows"),
        ('{"a": [{}], "b": [{}]}', "no list of rows"),
        ("[1]", "row 1 is not a table"),
        ('[{"name": "a", "time_ms": [1]}]', "row 1, column 'time_ms': '\\[1\\]' is not a time"),
        ('[{"name": "a", "time_ms": true}]', "is not a time"),
        ('[{"name": "a", "time_ms": 1e400}]', "over 30 years"),
        # whole numbers of JSON have any size, and this one does not convert to float64
        ('[{"name": "a", "time_ms": 1' + "0" * 400 + "}]", "over 30 years"),
        ('[{"name": "a", "time_ms": 1', "not valid JSON"),
    ],
)
def test_what_is_wrong_in_a_document_is_said(read, text, message):
    with pytest.raises(InputFileError, match=message):
        read(text, ".json")


def test_several_units_in_one_column_are_said(read):
    assert read("op,time\na,12 ms\nb,3us\nc,1.5 s\nd,0\n").notes == (
        "Times have several units (ms, us, s); each is converted.",
    )
    assert read("op,time\na,12 ms\nb,3 ms\n").notes == ()


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ((75, 25), None),
        (("75.0%", "25.0%"), None),
        ((60, 60), "add up to 120: rows contain one another or count twice"),
        ((30, 10), "add up to 40: rows are missing, or are parts of others"),
        ((25, 75), "A row with 25 in 'Time %' has 75 % of the times"),
        (("", ""), None),
    ],
)
def test_percentages_that_do_not_fit_the_times_are_said(read, shares, said):
    notes = read(f"name,time_ms,Time %\na,3,{shares[0]}\nb,1,{shares[1]}\ntotal,4,100\n").notes
    assert [note for note in notes if "Time %" in note] == [note for note in notes if said and said in note]
    assert any("Time %" in note for note in notes) == bool(said)


def test_percentages_of_use_are_no_shares_of_the_time(read):
    tensorboard = "Kernel Name,Calls,Total Duration (us),Mean Est. Achieved Occupancy (%),Tensor Cores Self(%)\n"
    assert read(f"{tensorboard}gemm,10,1000,30,100\nrelu,20,200,80,100\n").notes == ()


def test_a_markdown_table_is_a_table_whose_rule_is_no_row(read):
    profile = read(
        "| Kernel | Time (ms) | Calls |\n| :--- | ---: |---|\n"
        "|   `gemm` | 1.5 | 3 |\n| relu | 0.5 |  |\n| **total** | 2.0 | |\n"
    )
    assert {entry.name: (entry.time_s, entry.calls) for entry in profile.entries} == {
        "gemm": (pytest.approx(1.5e-3), 3),
        "relu": (pytest.approx(0.5e-3), None),
    }


def test_a_range_counts_without_the_ranges_inside_it(read):
    trace = "Start (ns),End (ns),Duration (ns),DurChild (ns),DurNonChild (ns),Name,Lvl,NumChild,RangeId,ParentId\n"
    profile = read(f"{trace}0,100,100,40,60,step,0,1,1,\n10,50,40,0,40,layer,1,0,2,1\n")
    assert {entry.name: entry.time_s for entry in profile.entries} == pytest.approx({"step": 60e-9, "layer": 40e-9})


def test_one_column_of_percentages_that_fits_is_enough(read):
    # shares of all kernels fit; shares of the run's time do not, and need not
    assert read("name,time_ms,% of kernels,% of run,Cumulative %\na,3,75,60,75\nb,1,25,20,100\n").notes == ()


def test_kernels_beside_their_operators_do_not_count_again(read):
    profile = read("name,time_ms\naten::mm,3\naten::add,1\nsm80_gemm_128,3\nvoid add<int>(T),0.9\nmy region,5\n")
    assert times(profile) == {"aten::mm": 3e-3, "aten::add": 1e-3, "my region": 5e-3}
    assert "(4 ms in 2 operators, 3.9 ms in 2 kernels): only the operators are counted" in profile.notes[0]


def test_operators_and_kernels_of_other_times_are_kept_with_a_warning(read):
    profile = read("name,time_ms\naten::mm,3\nvoid add<int>(T),1\n")
    assert profile.total_time_s == pytest.approx(4e-3)
    assert "time counts twice" in profile.notes[0]


def test_a_trace_is_no_table(tmp_path):
    (tmp_path / "x.json").write_text('{"traceEvents": []}')
    with pytest.raises(InputFileError, match="a trace of events, not a table"):
        table.read(tmp_path / "x.json")


def test_a_missing_file_and_a_directory_are_errors(tmp_path):
    for path in (tmp_path, tmp_path / "none.csv"):
        with pytest.raises(InputFileError):
            read_profile(path)


def test_the_public_name_is_this():
    assert perfmodel.read_profile is read_profile


@pytest.mark.parametrize(
    ("file", "name", "time", "scale", "calls"),
    [
        ("profile_tables/tracelens_h100_qwen_ops_summary.csv", "name", "total_direct_kernel_time_ms", 1e-3, "Count"),
        (
            *("profile_tables/tracelens_h100_qwen_kernel_summary.csv", "Kernel name"),
            *("Kernel duration (µs)_sum", 1e-6, "Kernel duration (µs)_count"),
        ),
        ("nsys/yashlabs_qwen_decode_cuda_gpu_kern_sum.csv", "Name", "Total Time (ns)", 1e-9, "Instances"),
        ("nsys/yashlabs_qwen_decode_cuda_api_sum.csv", "Name", "Total Time (ns)", 1e-9, "Num Calls"),
    ],
)
def test_real_tables_add_up_to_a_plain_sum_of_their_column(data_dir, file, name, time, scale, calls):
    with open(data_dir / file, newline="", encoding="utf-8-sig") as stream:
        rows = list(csv.DictReader(stream))
    profile = read_profile(data_dir / file)
    assert profile.total_time_s == pytest.approx(sum(float(row[time]) for row in rows) * scale, rel=1e-12)
    assert {entry.name for entry in profile.entries} == {row[name] for row in rows}
    assert sum(entry.calls for entry in profile.entries) == sum(int(row[calls]) for row in rows)
    assert not profile.skipped


def test_a_real_table_without_a_unit_says_how_to_give_one(data_dir):
    path = data_dir / "profile_tables" / "neusight_opgraph_A100-PCIE-40GB_gpt2_large-inf-1024-4.csv"
    with pytest.raises(InputFileError, match="latency_ms"):
        read_profile(path)


GOOD = b'# c\nname,"Total Time (us)",Avg (ns),calls,%\n"a<1, 2>",1,500,2,50\nb,"1,000.5",1,1,50\ntotal,1001.5,1,3,100\n'
GOOD_JSON = b'{"rows": [{"name": "a", "time": "12 ms", "calls": 3}, {"name": "b", "time": "1 s", "calls": null}]}'


@st.composite
def damaged(draw, good):
    """Return a valid file with some bytes replaced, removed, doubled or put elsewhere."""
    data = bytearray(good)
    random_ = random.Random(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(1, 8))):
        at = random_.randrange(len(data) + 1)
        piece = bytes(random_.choices(b'",;\n\r\t|-+.eE#%[]{}:0123456789msun \xc2\xb5abN', k=random_.randrange(4)))
        data[at : at + random_.randrange(6)] = piece
    return bytes(data)


def _reads_or_complains(tmp_path_factory, data, suffix):
    path = tmp_path_factory.mktemp("fuzz") / f"p{suffix}"
    path.write_bytes(data)
    with contextlib.suppress(PerfModelError):
        profile = read_profile(path)
        assert profile.total_time_s > 0
        assert all(entry.time_s >= 0 for entry in profile.entries)


@settings(max_examples=300)
@given(data=st.one_of(damaged(GOOD), st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_no_text_gives_anything_but_a_profile_or_a_message(tmp_path_factory, data):
    _reads_or_complains(tmp_path_factory, data, ".csv")


@settings(max_examples=150)
@given(data=st.one_of(damaged(GOOD_JSON), st.binary(max_size=100)), suffix=st.sampled_from([".json", ".yaml", ".toml"]))
def test_no_document_gives_anything_but_a_profile_or_a_message(tmp_path_factory, data, suffix):
    _reads_or_complains(tmp_path_factory, data, suffix)


ODD = st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 5e-324, 10**400, -(10**400), "nan", "inf ms", ""])
cells = st.one_of(
    ODD, st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.lists(st.integers())
)


@settings(max_examples=150)
@given(rows=st.lists(st.dictionaries(st.sampled_from(["name", "time_ms", "time", "calls", "x"]), cells), max_size=4))
@example(rows=[])
@example(rows=[{}])
@example(rows=[{"name": "a", "time_ms": math.nan}, {"name": "b", "time_ms": 1}])
@example(rows=[{"name": "a", "time_ms": math.inf}])
@example(rows=[{"name": "a", "time_ms": 1, "calls": -math.inf}])
@example(rows=[{"name": "a", "time_ms": 1, "calls": math.nan}])
def test_no_json_rows_give_anything_but_a_profile_or_a_message(tmp_path_factory, rows):
    _reads_or_complains(tmp_path_factory, json.dumps(rows).encode(), ".json")


@pytest.mark.parametrize(("seconds", "is_read"), [("0.9e9", True), ("1.1e9", False)])
def test_a_time_of_over_30_years_has_the_wrong_unit(read, seconds, is_read):
    if is_read:
        assert read(f"name,time_s\na,{seconds}\n").total_time_s == float(seconds)
        return
    with pytest.raises(InputFileError, match="over 30 years"):
        read(f"name,time_s\na,{seconds}\n")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "communication"),
        ("nccl:all_reduce", "communication"),
        ("ncclDevKernel_SendRecv", "communication"),
        ("Memcpy HtoD", "memcpy"),
        ("[CUDA memset]", "memset"),
        # a table may list any work: other names are left to what reads them
        ("volta_sgemm_128x64_nn", ""),
        ("data loading", ""),
    ],
)
def test_copies_and_exchanges_are_known_by_their_names(read, name, kind):
    (entry,) = read(f"name,time_ms\n{name},3\n").entries
    assert entry.category == kind


def test_an_object_a_line_is_a_row(read):
    lines = '{"name": "a", "time_ms": 1, "calls": 2}\n\n{"name": "b", "time_ms": 2.5}\n'
    assert [(entry.name, entry.time_s, entry.calls) for entry in read(lines, ".jsonl").entries] == [
        ("a", 1e-3, 2),
        ("b", 2.5e-3, None),
    ]
    with pytest.raises(InputFileError, match="line 3 is not valid JSON"):
        read(lines[:-5], ".jsonl")


def test_occurrences_are_calls(read):
    assert read("Operation,#Occurrences,Total self time (us)\nfusion,5,80\n").entries[0].calls == 5

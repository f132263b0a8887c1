"""Tables of measurements: what is read, what is left out and counted, and what is refused with its place."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.accuracy.measured import MeasuredCalls, Skipped
from perfmodel.errors import InputFileError, PerfModelError
from perfmodel.prediction.implementations import library_of
from perfmodel.records.measurements import read_measurements

HEADER = "hardware,op,dtype,m,n,k,batch,bias,time_s,timing,cache,implementation,flags\n"
GEMM = "v100,gemm,fp32,8,16,32,1,false,1e-5,event,warm,torch-2.1,\n"


@pytest.fixture
def read(tmp_path):
    def call(text, name="table.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_measurements(path)

    return call


def skipped(table):
    """reason -> rows and line of the first"""
    return {s.reason: (s.rows, int(s.place.rpartition(":")[2])) for s in table.skipped}


def test_rows_that_differ_in_sizes_only_are_one_group(read):
    bias = GEMM.replace("false", "true")
    table = read(HEADER + GEMM + bias + GEMM.replace(",8,", ",9,"))
    plain, with_bias = table.calls
    assert (plain.hardware, plain.op.op, plain.op.dtype, plain.op.bias) == ("v100", "gemm", "fp32", False)
    assert plain.op.m.tolist() == [8, 9]
    assert plain.line.tolist() == [2, 4]
    assert with_bias.op.bias is True
    assert (plain.timing, plain.cache, plain.implementation, plain.library) == ("event", "warm", "torch-2.1", "torch")
    assert (table.skipped, table.notes) == ((), ())


@pytest.mark.parametrize(
    ("implementation", "column", "writes"),
    [
        ("vllm-0.24.0/fa3", None, True),
        ("trtllm-1.0.0/torch_flow", None, True),
        ("torch-2.8/sdpa", None, False),
        ("vllm-0.24.0/fa3", "false", False),
        ("torch-2.8/sdpa", "true", True),
    ],
)
def test_attention_of_serving_libraries_writes_the_cache_unless_the_table_says_otherwise(
    read, implementation, column, writes
):
    extra, cell = ("", "") if column is None else (",kv_write", f",{column}")
    text = f"hardware,op,dtype,heads,seq_q,head_dim,time_s,implementation{extra}\n"
    (calls,) = read(text + f"h100,attention,bf16,8,128,64,1e-5,{implementation}{cell}\n").calls
    assert calls.op.kv_write is writes


@pytest.mark.parametrize(
    ("timing", "cache", "conditions"),
    [
        ("event", "warm", ("event", "warm")),
        ("graph", "rotating", ("kernel", "rotating")),
        ("kernel", "cold", ("kernel", "cold")),
        ("kernel", "flushed", ("kernel", "cold")),
    ],
)
def test_a_replayed_graph_is_kernel_time_and_flushed_is_the_old_word_for_cold(read, timing, cache, conditions):
    (calls,) = read(HEADER + GEMM.replace("event,warm", f"{timing},{cache}")).calls
    assert (calls.conditions.timing, calls.conditions.cache) == conditions


@pytest.mark.parametrize(
    ("implementation", "timing"),
    [
        ("nccl-2.27.3", "kernel"),
        ("rccl", "kernel"),
        ("trtllm_custom_allreduce-1.0.0", "kernel"),
        ("mscclpp", "kernel"),
        ("", "kernel"),
        ("torch-2.11", "event"),
    ],
)
def test_benchmarks_of_collectives_put_many_calls_between_two_events(read, implementation, timing):
    row = f"h100,all_reduce,bf16,1024,8,1e-5,event,warm,{implementation}\n"
    (calls,) = read("hardware,op,dtype,bytes,num_gpus,time_s,timing,cache,implementation\n" + row).calls
    assert calls.conditions.timing == timing


def test_a_load_is_part_of_the_conditions_and_a_source_keeps_rows_apart(read):
    header = HEADER.replace("flags", "flags,load,source")
    rows = [GEMM.strip() + f",{load},{source}\n" for load, source in (("sustained", "a"), ("", "a"), ("burst", "b"))]
    calls = read(header + "".join(rows)).calls
    said = [(call.conditions.load, call.source) for call in calls]
    assert said == [("sustained", "a"), ("burst", "a"), ("burst", "b")]


def test_blank_dimensions_have_their_defaults_and_several_operators_share_a_table(read):
    header = "hardware,op,dtype,m,n,k,batch,rows,cols,time_s\n"
    table = read(
        header + "v100,gemm,fp32,8,8,8,2,,,1e-5\nv100,gemm,fp32,8,8,8,,,,1e-5\nv100,softmax,fp32,,,,,4,5,1e-5\n"
    )
    batched, single, softmax = table.calls
    assert batched.op.batch.tolist() == [2]
    assert single.op.batch == 1
    assert (softmax.op.op, softmax.op.rows.tolist(), softmax.op.cols.tolist()) == ("softmax", [4], [5])


def test_a_table_in_other_units_hears_what_to_convert(read):
    with pytest.raises(InputFileError, match="has no column hardware, time_s") as raised:
        read("op,dtype,m,n,k,time_ms\ngemm,fp32,8,8,8,4\n")
    assert "hardware is a name of `perfmodel hardware list` in each row; --on HW states one for all rows." in str(
        raised.value
    )
    assert "time_s is in seconds: convert 'time_ms'." in str(raised.value)


def test_columns_that_are_not_there_and_columns_that_say_nothing_are_said(read):
    table = read("hardware,op,dtype,m,n,k,batchsize,time_s\nv100,gemm,fp32,8,8,8,4,1e-5\n")
    said = " ".join(table.notes)
    assert "no column timing; taken as kernel" in said
    assert "no column cache; taken as cold" in said
    assert "no operator of the table has a dimension batchsize; ignored" in said


def test_gzip_byte_order_mark_and_line_ends(read):
    text = "\ufeff" + (HEADER + GEMM).replace("\n", "\r\n")
    assert len(read(gzip.compress(text.encode()), "table.csv.gz").calls[0]) == 1
    assert len(read(text).calls[0]) == 1


def test_impossible_rows_are_counted_with_the_line_of_the_first(read):
    table = read(
        HEADER
        + GEMM  # line 2 is fine
        + GEMM.replace(",8,", ",0,")
        + GEMM.replace(",8,", ",1.5,")
        + GEMM.replace("1e-5", "-1")
        + GEMM.replace("1e-5", "-2")
        + GEMM.replace("1e-5", "5e-324")
        + GEMM.replace("gemm", "gem")
        + GEMM.replace("fp32", "xyz")
        + GEMM.replace("false", "maybe")
    )
    assert skipped(table) == {
        "gemm: m is not a whole number from 1 to 2^53": (2, 3),
        "time_s is not above zero (1e-15 s)": (3, 5),
        "unknown operator 'gem'. Did you mean 'gemm'?": (1, 8),
        "gemm: unknown dtype 'xyz'.": (1, 9),
        "gemm: bias=maybe is neither true nor false.": (1, 10),
    }
    assert sum(map(len, table.calls)) == 1


def test_a_time_that_is_no_number_of_seconds_is_said_as_it_stands(read):
    """A blank cell, "nan" and "inf" say that nobody measured, or that a timer failed; a number below zero does not."""
    table = read(HEADER + "".join(GEMM.replace("1e-5", cell) for cell in ("", "nan", "inf", "nan", "0")))
    assert skipped(table) == {
        "time_s is blank": (1, 2),
        "time_s is nan": (2, 3),
        "time_s is inf": (1, 4),
        "time_s is not above zero (1e-15 s)": (1, 6),
    }


def test_a_missing_dimension_is_said(read):
    table = read("hardware,op,dtype,m,n,time_s\nv100,gemm,fp32,8,8,1e-5\n")
    assert skipped(table) == {"gemm: k is missing. Add k=... (columns of A, rows of B).": (1, 2)}


def test_an_elementwise_size_that_contradicts_its_shape_is_left_out(read):
    header = "hardware,op,dtype,kind,numel,rows,cols,time_s\n"
    table = read(header + "v100,elementwise,fp32,add,6,2,3,1e-5\nv100,elementwise,fp32,add,7,2,3,1e-5\n")
    assert skipped(table) == {"elementwise: numel is not rows x cols": (1, 3)}
    assert table.calls[0].op.numel.tolist() == [6]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("a,b\n1,2\n", "has no column hardware, op, dtype, time_s"),
        (GEMM, "has no column"),
        (HEADER.replace("time_s", "time_ms") + GEMM, "has no column time_s"),
        (HEADER.replace(",n,", ",m,") + GEMM, "has two columns m"),
        (HEADER, "has a header and no rows"),
        (HEADER + "v100,gemm\n", "line 2 has 2 cells where the header has 13"),
        (HEADER + GEMM + GEMM[:30], "line 3 has"),
        (HEADER + GEMM.replace("1e-5", "10 us"), "line 2, column 'time_s': '10 us' is not a number"),
        (HEADER + GEMM + GEMM.replace(",16,", ",x,"), "line 3, column 'n': 'x' is not a number"),
        (HEADER + GEMM.replace("event", "evnt"), "line 2, column 'timing': unknown timing 'evnt'"),
        (HEADER + GEMM.replace("warm", "hot"), "line 2, column 'cache': unknown cache 'hot'"),
        (HEADER.replace("flags", "load") + GEMM.strip() + "hot\n", "line 2, column 'load': unknown load 'hot'"),
        (b"\x00\x01\x02" * 50, "NUL bytes"),
        (b"\xff\xfe\xfd", "not UTF-8"),
        (gzip.compress((HEADER + GEMM * 500).encode(), mtime=0)[:-20], "is not a whole gzip file"),
        (b"\x1f\x8b" + b"no gzip at all", "is not a whole gzip file"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (HEADER + '"' + "x" * 200_000, "cannot be read as CSV"),
    ],
)
def test_what_is_no_such_table_is_refused_with_its_place(read, text, message):
    with pytest.raises(InputFileError) as caught:
        read(text)
    assert message in str(caught.value)
    assert "table.csv" in str(caught.value)


def test_a_folder_and_a_missing_file_are_refused(tmp_path):
    for path, message in ((tmp_path, "directory"), (tmp_path / "none.csv", "no such file")):
        with pytest.raises(InputFileError, match=message):
            read_measurements(path)


@given(st.text(max_size=200), st.booleans())
def test_any_text_is_a_table_or_an_error_with_a_message(tmp_path_factory, text, with_header):
    path = tmp_path_factory.mktemp("fuzz") / "t.csv"
    path.write_text((HEADER if with_header else "") + text, encoding="utf-8", errors="replace", newline="")
    try:
        table = read_measurements(path)
    except PerfModelError as error:
        assert error.message  # noqa: PT017 -- either outcome is right
    else:
        assert sum(map(len, table.calls)) + sum(s.rows for s in table.skipped) > 0


def test_one_row_is_a_scalar_call_and_chosen_rows_stay_beside_their_times(read):
    rows = [GEMM.replace(",8,", f",{m},").replace("1e-5", f"{m}e-6") for m in (8, 9, 10)]
    (calls,) = read(HEADER + "".join(rows)).calls
    assert calls.take(np.array([False, True, True])).op.m.tolist() == [9, 10]
    one = calls.one(1)
    assert (one.op.m, one.op.bias, len(one), one.line.tolist()) == (9, False, 1, [3])
    assert one.time_s[0] == pytest.approx(9e-6)
    assert set(one.op.given()) <= set("mnk") | {"batch"}


def test_rows_left_out_name_the_first_place():
    assert Skipped("why", 2, "f.csv:3").place == "f.csv:3"
    assert library_of("sglang-0.5.10/flash_attention") == "sglang"


def test_the_open_tables_are_read_without_loss(data_dir):
    table = read_measurements(data_dir / "measurements" / "neusight_softmax_fp32.csv.gz")
    assert sum(map(len, table.calls)) == 7543
    assert (table.skipped, table.notes) == ((), ())
    assert all(isinstance(calls, MeasuredCalls) and calls.timing == "event" for calls in table.calls)


def test_the_overflowed_sizes_of_the_open_elementwise_table_are_counted(data_dir):
    # numel was written as a 32-bit integer: 131072 x 16384 = 2^31 became -2^31
    table = read_measurements(data_dir / "measurements" / "neusight_elementwise_fp32.csv.gz")
    assert {s.reason: s.rows for s in table.skipped} == {"elementwise: numel is not a whole number from 1 to 2^53": 29}


def test_a_row_that_the_operator_refuses_is_left_out_alone(read):
    lines = ["hardware,op,dtype,heads,kv_heads,seq_q,head_dim,time_s,timing,cache,implementation"]
    groups = [8] * 20
    groups[3] = groups[17] = 7
    lines += [f"h100-sxm5-80gb,attention,bf16,32,{group},1024,128,1e-4,kernel,cold,torch" for group in groups]
    table = read("\n".join(lines) + "\n")
    assert sum(len(calls) for calls in table.calls) == 18
    (reason,) = table.skipped
    assert reason.rows == 2
    assert reason.place.endswith(":5")
    assert "heads=32 is not a multiple of kv_heads=7" in reason.reason

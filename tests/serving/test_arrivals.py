"""Files of requests: the names of public traces, and one message for each thing that can be wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perfmodel.errors import InputFileError
from perfmodel.serving.arrivals import read_requests


def write(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain.csv", "arrival_s,prompt,output\n0.5,10,20\n1.5,30,40\n"),
        ("ms.csv", "Arrival (ms), isl, osl\n500,10,20\n1500,30,40\n"),
        ("azure.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.0099990,10,20\n"
         "2024-05-10 00:00:01.0099990,30,40\n"),
        ("burst.csv", "Timestamp,Model,Request tokens,Response tokens,Total tokens\n5,x,10,20,30\n6,x,30,40,70\n"),
        ("vidur.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n0,10,20\n1,30,40\n"),
        ("mooncake.jsonl", '{"timestamp": 0, "input_length": 10, "output_length": 20, "hash_ids": [1]}\n'
         '{"timestamp": 1000, "input_length": 30, "output_length": 40, "hash_ids": [1, 2]}\n'),
        ("lines.jsonl", '{"timestamp_ms": 0, "input_length": 10, "output_length": 20}\n\n'
         '{"timestamp_ms": 1000, "input_length": 30, "output_length": 40}\n'),
    ],
)  # fmt: skip
def test_public_traces_are_read_by_the_names_of_their_columns(tmp_path: Path, name: str, text: str) -> None:
    read = read_requests(write(tmp_path, text, name))
    assert read.requests.arrival_s == pytest.approx([0.0, 1.0])
    assert read.requests.prompt.tolist() == [10, 30]
    assert read.requests.output.tolist() == [20, 40]


def test_unsorted_rows_are_sorted_and_said(tmp_path: Path) -> None:
    read = read_requests(write(tmp_path, "arrival,prompt,output,user\n3,1,2,a\n1,3,4,b\n2,5,6,c\n"))
    assert read.requests.prompt.tolist() == [3, 5, 1]
    assert "1 request came before the row above" in read.notes[0]
    assert "not used: user" in read.notes[1]


def test_lengths_alone_are_enough_where_the_load_has_its_own_times(tmp_path: Path) -> None:
    path = write(tmp_path, "prompt,output\n5,6\n7,8\n")
    read = read_requests(path, need_times=False)
    assert np.all(read.requests.arrival_s == 0)
    with pytest.raises(InputFileError, match="no column for the arrival"):
        read_requests(path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "arrival,prompt,output\n0,10,20\n,10,20\n", "a.csv:3: arrival is blank"),
        ("a.csv", "arrival,prompt,output\n0,10,20\n-1,10,20\n", "a.csv:3: arrival = -1 is a time before the start"),
        ("a.csv", "arrival,prompt,output\n0,x,20\n", "a.csv:2: prompt = 'x' is no number"),
        ("a.csv", "arrival,prompt,output\n0,1.5,20\n", "prompt = 1.5 is no whole number"),
        ("a.csv", "arrival,prompt,output\n0,1,0\n", "output = 0 is no whole number of tokens from 1"),
        ("a.csv", "arrival,prompt,output\n0,1\n", "a.csv:2: the row has 2 cells, the header 3"),
        ("a.csv", "arrival,prompts,output\n0,1,2\n", "no column for the prompt.*Is it 'prompts'"),
        ("a.csv", "arrival,time,prompt,output\n0,0,1,2\n", "'arrival' and 'time' both hold the arrival"),
        ("a.csv", "arrival,prompt,output\n", "has no requests"),
        ("a.csv", "arrival,prompt,output\nnan,1,2\n", "arrival = 'nan' is"),
        ("a.csv", "arrival,prompt,output\n2024-01-01,1,2\nsoon,1,2\n", "'soon' is neither a number nor a date"),
        ("a.jsonl", '{"arrival": 0, "prompt": 1, "output": 2}\n{"arrival":', "a.jsonl:2: is no JSON"),
        ("a.jsonl", "[1, 2]\n", "a.jsonl:1: is no JSON object"),
        ("a.jsonl", '{"arrival": 0, "prompt": 1, "output": 2}\n{"arrival": 1, "prompt": 3}\n', "2: output is blank"),
        ("a.jsonl", '{"arrival": [1], "prompt": [1], "output": [2]}\n', "is no number"),
    ],
)
def test_each_fault_has_one_message(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(InputFileError, match=message):
        read_requests(write(tmp_path, text, name))


def test_a_column_whose_name_has_a_line_break_is_named_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "requests.ndjson"  # found by fuzzing
    path.write_text('{"timestamp_ms": 0, "in\\nput": 10, "output_length": 20}\n')
    with pytest.raises(InputFileError, match="no column for the prompt") as raised:
        read_requests(path)
    assert "\n" not in str(raised.value)

"""The suffix that a text without a name gets, by which documents are told apart."""

from __future__ import annotations

import pytest

from perfmodel.storage.spool import is_stream, suffix_for


@pytest.mark.parametrize(
    ("head", "suffix"),
    [
        (b'{\n "a": 1\n}', ".json"),
        (b'\xef\xbb\xbf{"a": 1}', ".json"),
        (b'[{"ph": "X"}]', ".json"),
        (b"[\n1]", ".json"),
        (b'{"a": 1}\n{"a": 2}\n', ".jsonl"),
        (b"# a plan\n[[candidates]]\nname = 'x'\n", ".toml"),
        (b'name = "h100"\n[memory.hbm]\n', ".toml"),
        (b"- op: gemm\n  m: 8\n", ".yaml"),
        (b"---\nop: gemm\n", ".yaml"),
        (b"model: llama-3.1-8b\n", ".yaml"),
        (b"name,time_ms\na,1\n", ".csv"),
        (b"-----------  ------------\n Name  Self CPU\n", ".csv"),
        (b"==PROF== Connected to process\n", ".csv"),
        (b"SQLite format 3\0", ".sqlite"),
        (b"PAR1", ".parquet"),
        (b"", ".csv"),
    ],
)
def test_the_suffix_follows_from_the_content(head: bytes, suffix: str) -> None:
    assert suffix_for(head) == suffix


def test_only_standard_input_and_pipes_of_the_shell_are_streams() -> None:
    assert is_stream("-")
    assert is_stream("/dev/stdin")
    assert not any(map(is_stream, ("./-", "a-b", "/dev/zero", "/dev/fd/9999", "s3://bucket/-")))

"""Operators as text: what the command line and files say, and what bad text gets."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfmodel.errors import InputFileError, PerfModelError, UsageError
from perfmodel.operators.parse import parse_operators

INLINE = "gemm m=1 n=2 k=3 dtype=fp16 bias=true layer_norm rows=4 cols=5"


def test_several_operators_inline() -> None:
    gemm, norm = parse_operators(INLINE.split())
    assert [str(op) for op in parse_operators(INLINE)] == [str(gemm), str(norm)]
    assert (gemm.op, gemm.params()["m"], gemm.dtype, gemm.params()["bias"]) == ("gemm", 1, "fp16", True)
    assert (norm.op, norm.params()) == ("layer_norm", {"rows": 4, "cols": 5})


def test_hyphens_and_capitals_are_forgiven_in_operator_names() -> None:
    assert parse_operators(["Layer-Norm", "rows=1", "cols=1"])[0].op == "layer_norm"


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("64..512", [64, 128, 256, 512]),
        ("64..500", [64, 128, 256]),
        ("64..256+64", [64, 128, 192, 256]),
        ("64..250+64", [64, 128, 192]),
        ("64/96/128", [64, 96, 128]),
        ("7..7", [7]),
        ("1e3/2e3", [1000, 2000]),
    ],
)
def test_ranges(text: str, sizes: list[int]) -> None:
    (op,) = parse_operators(["layer_norm", f"rows={text}", "cols=8"])
    assert np.array_equal(op.params()["rows"], sizes)


def test_two_ranges_span_their_product() -> None:
    (op,) = parse_operators(["layer_norm", "rows=1/2", "cols=10/20/30"])
    assert list(zip(op.params()["rows"], op.params()["cols"], strict=True)) == [
        (1, 10), (1, 20), (1, 30), (2, 10), (2, 20), (2, 30),
    ]  # fmt: skip


def test_a_list_of_words_gives_an_operator_of_each() -> None:
    ops = parse_operators("gemm m=1..4 n=8 k=8 dtype=bf16/fp8 bias=true/false name=a/b softmax rows=1 cols=1")
    assert [(op.dtype, op.params().get("bias")) for op in ops] == [
        ("bf16", True), ("bf16", False), ("fp8", True), ("fp8", False), ("fp32", None),
    ]  # fmt: skip
    assert all(op.name == "a/b" and op.shape == (3,) for op in ops[:4]), "sizes are arrays, a name is no list"
    with pytest.raises(UsageError, match="unknown dtype 'fp99'"):
        parse_operators("gemm m=1 n=1 k=1 dtype=bf16/fp99")
    (op,) = parse_operators("all_reduce bytes=1MiB num_gpus=16 nodes=2 nic=400Gb/s")
    assert op.params()["nic"] == "400Gb/s", "a rate is no list"


def test_sizes_of_copies_may_carry_a_unit() -> None:
    assert parse_operators(["memcpy", "bytes=1GB"])[0].params()["bytes"] == 1e9
    assert parse_operators(["memcpy", "bytes=1GiB"])[0].params()["bytes"] == 2**30


@pytest.mark.parametrize(
    ("words", "meant"), [(("true", "yes", "1", "on", "True"), True), (("false", "no", "0", "off", "OFF"), False)]
)
def test_flags_are_true_or_false_in_several_words(words: tuple[str, ...], meant: bool) -> None:
    for word in words:
        assert parse_operators(["gemm", "m=1", "n=1", "k=1", f"bias={word}"])[0].params()["bias"] is meant


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("gem m=1 n=1 k=1", "unknown operator 'gem'.*Did you mean 'gemm'"),
        ("gemm m=1 n=1 kk=1", "unknown dimension 'kk'.*Did you mean 'k'"),
        ("gemm m=1 n=1", "k is missing"),
        ("gemm", "m, n, k are missing"),
        ("m=1 gemm", "no operator comes before 'm=1'"),
        ("gemm m=1 m=2 n=1 k=1", "m is given twice"),
        ("gemm m= n=1 k=1", "not a whole number"),
        ("gemm m=0 n=1 k=1", "below 1"),
        ("gemm m=1.5 n=1 k=1", "not a whole number"),
        ("gemm m=1e30 n=1 k=1", "above 2"),
        ("gemm m=512..64 n=1 k=1", "is not a rising range"),
        ("gemm m=0..64 n=1 k=1", "is not a rising range"),
        ("gemm m=64.. n=1 k=1", "m=64.. has no last size. Write it as m=64..8192"),
        ("gemm m=..64 n=1 k=1", "m=..64 has no first size"),
        ("gemm m=64..128+ n=1 k=1", r"m=64..128\+ has no step"),
        ("gemm m=64..512+0 n=1 k=1", r"m=64\.\.512\+0 has a step below 1\. Write m=64\.\.512\+64, say\."),
        ("gemm m=1..9e15+1 n=1 k=1", "points; at most"),
        ("gemm m=1..1000+1 n=1..1000+1 k=1..1000+1", "points; at most"),
        ("gemm m=1//2 n=1 k=1", "^gemm: '1//2' has an empty item. Write 1/2, or add what is missing."),
        ("gemm m=1/2/ n=1 k=1", "^gemm: '1/2/' has an empty item. Write 1/2, or"),
        ("memcpy bytes=1Gb", r"^memcpy: bytes='1Gb' is in bits; .* '0\.125GB', or write '1GB' for bytes"),
        ("memcpy bytes=1KiB/1gb", "^memcpy: bytes='1gb' is not in B. Write it as in '1GB' or '1GiB'"),
        ("alltoall bytes=4096,65536 num_gpus=2", r"has a comma. Write a list as bytes=4096/65536, and"),
        ("gemm m=1Gb n=1 k=1", "'1Gb' is not a whole number"),
        ("memcpy bytes=many", "'many' is not a whole number"),
        ("gemm m=1 n=1 k=1 count=2/4", "'2/4' is not a whole number. Write one, as count=48"),
        ("gemm m=1..inf n=1 k=1", "is not a rising range"),
        ("gemm m=nan..8 n=1 k=1", "is not a rising range"),
        ("gemm m=1 n=1 k=1 bias=maybe", "neither true nor false"),
        ("gemm m=1 n=1 k=1 dtype=bf61", "Did you mean 'bf16'"),
        ("", "no operator is given"),
        # the word itself is wrong, and not the dimensions that stand behind it
        ("gemm m n=1 k=1", "'m' is no dimension with its value. Write m=VALUE"),
        ("gemm m= 4096 n=1 k=1", "'4096' is no dimension with its value. Write m=VALUE n=VALUE k=VALUE"),
        ("gemm m=1 n=1 k=1 sofmax", "Did you mean 'softmax'"),
    ],
)
def test_wrong_words_are_named(words: str, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        parse_operators(words.split())


def test_words_in_quotes_are_told_to_be_words_of_their_own() -> None:
    with pytest.raises(UsageError, match=r"one word, with spaces in it\. Write .* of them: gemm m=1 n=1 k=1\.$"):
        parse_operators(["gemm m=1 n=1 k=1"])
    with pytest.raises(UsageError, match="unknown operator 'gem m=1'"):
        parse_operators(["gem m=1"])


def test_an_existing_file_is_no_misspelt_operator(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sizes.csv").write_text("m,n,k\n1,1,1\n")
    (tmp_path / "gemm").mkdir()
    with pytest.raises(InputFileError, match=r"sizes.csv.*unknown suffix '.csv'"):
        parse_operators(["sizes.csv"])
    assert parse_operators(["gemm", "m=1", "n=1", "k=1"])[0].op == "gemm"


FILES = {
    "list.json": '[{"op": "gemm", "m": 1, "n": 2, "k": 3, "count": 4, "name": "x"}]',
    "one.json": '{"op": "gemm", "m": 1, "n": 2, "k": 3, "count": 4, "name": "x"}',
    "tables.toml": '[[operators]]\nop = "gemm"\nm = 1\nn = 2\nk = 3\ncount = 4\nname = "x"\n',
    "list.yaml": "- {op: gemm, m: 1, n: 2, k: 3, count: 4, name: x}\n",
    "defaults.toml": '[defaults]\nn = 2\nk = 3\nrows = 9\n[[operators]]\nop = "gemm"\nm = 1\ncount = 4\nname = "x"\n',
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_every_format(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(FILES[name])
    (op,) = parse_operators([str(tmp_path / name)])
    assert (op.count, op.name) == (4, "x")
    assert {key: op.params()[key] for key in "mnk"} == {"m": 1, "n": 2, "k": 3}


def test_ranges_and_lists_work_in_files(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"op": "layer_norm", "rows": "1..4", "cols": [8, 16]}]')
    (op,) = parse_operators([str(tmp_path / "a.json")])
    assert len(op.params()["rows"]) == 6


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('[{"op": "gemm", "m": 1, "n": 1, "k": 0}]', "operator 1 .gemm.*k=0"),
        ('[{"op": "gemm", "m": 1, "n": 1, "k": 1}, {"op": "gem"}]', "operator 2.*gemm"),
        ('[{"m": 1}]', "operator 1.*'op' .* is missing"),
        ("[1]", "operator 1.*'op' .* is missing"),
        ("[]", "no list of operators"),
        ("{}", "an empty table"),
        ('{"opperators": []}', "'opperators'"),
        ('{"operators": [], "more": 1}', "'more'"),
        ("3", "no list of operators"),
        ('[{"op": "gemm", "m": [1, "x"], "n": 1, "k": 1}]', "not a whole number"),
        ('[{"op": "gemm", "m": [[1], 2], "n": 1, "k": 1}]', "contains a value that is not a number"),
        ('[{"op": "gemm", "m": {"a": 1}, "n": 1, "k": 1}]', "not a whole number"),
        ('[{"op": "gemm", "m": null, "n": 1, "k": 1}]', "not a whole number"),
        ('[{"op": "gemm", "m": 1, "n": 1, "k": 1, "dtype": 16}]', "unknown dtype"),
        (
            '{"defaults": {"rows": 1, "dtyp": "fp16"}, "operators": [{"op": "gemm", "m": 1, "n": 1, "k": 1}]}',
            "a.json: defaults: unknown dimension 'dtyp'. Did you mean 'dtype'",
        ),
        ('{"defaults": {"op": "gemm"}, "operators": [{"op": "scan", "cols": 1}]}', "defaults: unknown dimension 'op'"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, text: str, part: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputFileError, match=part):
        parse_operators([str(tmp_path / "a.json")])


@given(st.lists(st.text(alphabet="gemk=1..+/ae0-9_fp", max_size=12), max_size=6))
def test_any_words_give_operators_or_our_error(words: list[str]) -> None:
    with contextlib.suppress(PerfModelError):
        assert parse_operators(words)


KEYS = ["op", "m", "n", "k", "dtype", "count"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["gemm", "1..8", "fp16", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=12,
)


@given(json_values)
def test_any_document_gives_operators_or_our_error(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "a.json"
    path.write_text(json.dumps(value))
    with contextlib.suppress(PerfModelError):
        assert parse_operators([str(path)])


def test_a_million_points_are_allowed_and_one_more_is_not() -> None:
    (op,) = parse_operators(["layer_norm", "rows=1..1000+1", "cols=1..1000+1"])
    assert len(op.params()["rows"]) == 1_000_000
    (op,) = parse_operators(["layer_norm", "rows=1..1000000+1", "cols=1"])
    assert len(op.params()["rows"]) == 1_000_000
    with pytest.raises(UsageError, match="points; at most 1000000"):
        parse_operators(["layer_norm", "rows=1..1000001+1", "cols=1"])

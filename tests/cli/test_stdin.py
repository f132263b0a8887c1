"""``-`` stands for standard input wherever a file is read, and for standard output wherever one is written."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfmodel.cli._stdin import with_stdin

ROOT = Path(__file__).parents[2]
PROFILE = b"name,time_ms\na,1\nb,2\n"
OPS = b'[[ops]]\nop = "gemm"\nm = 8\nn = 8\nk = 8\n'
MODEL = {
    "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "vocab_size": 1000,
    "intermediate_size": 1024, "max_position_embeddings": 4096,
}  # fmt: skip
SPEC = (
    b'name = "my-gpu"\nvendor = "x"\narchitecture = "y"\n[memory.hbm]\ncapacity = "80 GiB"\nbandwidth = "1 TB/s"\n'
    b'[peak.vector]\nfp32 = "10 TFLOP/s"\n[launch]\nfloor = "1 us"\n'
)
CATALOG = (ROOT / "hardware_specs" / "h100-sxm5-80gb.toml").read_bytes()
LOAD = ("--on", "h100", "--isl", "64", "--osl", "4", "--concurrency", "1", "--steady")


def piped(content: bytes, *words: object, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Run the program with something piped in, in an empty folder for its temporary files."""
    program = [sys.executable, "-m", "perfmodel", *map(str, words)]
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
    return subprocess.run(program, input=content, capture_output=True, check=False, env=environment, cwd=ROOT)


@pytest.mark.parametrize("names", [("-", "-"), ("-", "/dev/stdin")])
def test_standard_input_can_be_read_once(names: tuple[str, str], tmp_path: Path) -> None:
    ran = piped(PROFILE, "roi", names[0], "--plan", names[1], folder=tmp_path)
    assert ran.returncode == 2
    assert b"standard input is given in several places" in ran.stderr
    assert b"COMMAND > FILE" in ran.stderr


@pytest.mark.waiting
@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
@pytest.mark.parametrize(
    ("content", "words", "said"),
    [
        (PROFILE, ("roi", "INPUT"), b"stdin.csv"),
        (gzip.compress(PROFILE, mtime=0), ("roi", "INPUT"), b"stdin.csv.gz"),
        (OPS, ("analyze", "INPUT", "--on", "h100"), b"gemm m=8 n=8 k=8"),
        (SPEC, ("analyze", "gemm", "m=8", "n=8", "k=8", "dtype=fp32", "--on", "INPUT"), b"my-gpu"),
        (SPEC, ("analyze", "gemm", "m=8", "n=8", "k=8", "dtype=fp32", "--on=INPUT", "-f", "json"), b"my-gpu"),
        (CATALOG, ("hardware", "lint", "INPUT"), b"files: 1, errors: 0, other findings: 0"),
        (json.dumps(MODEL).encode(), ("serve", "INPUT", *LOAD), b"TPOT"),
        (json.dumps(MODEL).encode(), ("train", "INPUT", "--on", "h100", "--gpus", "1"), b"llama on 1 x"),
    ],
    ids=("table", "packed", "operators", "machine", "assigned", "lint", "serve", "train"),
)
def test_what_is_piped_in_is_read_as_a_file(
    content: bytes, words: tuple[str, ...], said: bytes, name: str, tmp_path: Path
) -> None:
    ran = piped(content, *(word.replace("INPUT", name) for word in words), folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert said in ran.stdout
    assert not list(tmp_path.iterdir()), "the copy is removed"


def test_the_result_of_a_command_is_piped_into_the_next(tmp_path: Path) -> None:
    words = ("analyze", "gemm", "m=8", "n=8", "k=8", "--on", "h100", "-f", "json", "-o", "-")
    first = piped(b"", *words, folder=tmp_path)
    assert first.returncode == 0
    shown = piped(first.stdout, "report", "-", "-o", tmp_path / "r.html", folder=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert b"gemm" in (tmp_path / "r.html").read_bytes()


def test_pipes_of_the_shell_are_files(tmp_path: Path) -> None:
    run = f"{sys.executable} -m perfmodel roi <(printf 'name,time_ms\\na,1\\n')"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ran = subprocess.run(["bash", "-c", run], capture_output=True, check=False, env=environment, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("diagnose", "-", "--workers", "2"), 2, b"-: standard input and pipes cannot be shared with workers."),
        (("serve", "-", *LOAD, "--scheduler=tcp://127.0.0.1:1"), 2, b"cannot be shared with workers"),
        (("roi", "-", "--plan", "plan.json"), 3, b"perfmodel: -: the file is empty."),
    ],
)
def test_what_cannot_be_read_is_one_message(words: tuple[str, ...], code: int, said: bytes, tmp_path: Path) -> None:
    ran = piped(b"", *words, folder=tmp_path)
    assert (ran.returncode, ran.stderr.count(b"\n")) == (code, 1)
    assert said in ran.stderr


@pytest.mark.waiting
def test_results_and_messages_name_standard_input_as_the_user_did(tmp_path: Path) -> None:
    document = json.loads(piped(PROFILE, "diagnose", "-", "-f", "json", folder=tmp_path).stdout)
    assert document["context"]["profile"] == "-"
    wrong = CATALOG.replace(b'bandwidth = "3352 GB/s"', b'bandwidth = "3352 MB/s"')
    assert wrong != CATALOG
    for words in (("-f", "json"), ()):
        ran = piped(wrong, "hardware", "lint", "-", *words, folder=tmp_path)
        assert ran.returncode == 1
        assert str(tmp_path).encode() not in ran.stdout + ran.stderr
    assert b"-: no column holds a name" in piped(b"a,b\n1,2\n", "roi", "-", folder=tmp_path).stderr


def test_closed_standard_input_is_one_message(tmp_path: Path) -> None:
    ran = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m perfmodel roi - <&-"], capture_output=True, check=False, cwd=ROOT
    )
    assert (ran.returncode, b"-: standard input is closed." in ran.stderr) == (3, True)


def test_words_behind_a_double_dash_and_files_that_are_written_stay() -> None:
    for words in (["monitor", "--", "cat", "-"], ["analyze", "x", "-o", "-"], ["analyze", "x", "--output=-"]):
        assert with_stdin(words) == words
    assert with_stdin(["roi", "-", "--help"]) == ["roi", "-", "--help"]

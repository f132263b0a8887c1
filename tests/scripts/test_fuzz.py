"""The fuzzer finds what it looks for: errors of any kind, warnings, and inputs that take too long."""

import importlib.util
import random
import sys
import time
import warnings
from pathlib import Path

import pytest

from perfmodel.errors import InputFileError

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "fuzz.py"


@pytest.fixture(scope="module")
def fuzz():
    spec = importlib.util.spec_from_file_location("fuzz", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["fuzz"]


def overflows(path):
    int(float("inf"))


def warns(path):
    warnings.warn("overflow", RuntimeWarning, stacklevel=1)


def says_nothing(path):
    raise InputFileError("")


def hangs(path):
    while True:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("read", "part"),
    [
        (overflows, "OverflowError"),
        (warns, "RuntimeWarning"),
        (says_nothing, "without a message"),
        (hangs, "over 0.2 s"),
    ],
)
def test_everything_but_a_result_and_one_message_is_an_escape(fuzz, tmp_path, read, part):
    is_read, escape = fuzz.outcome(fuzz.Target("t", read, ".x", (b"",)), tmp_path / "a.x", 0.2)
    assert not is_read
    assert part in escape


def test_a_fault_of_a_command_is_an_escape_and_a_refused_file_is_none(fuzz, tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("name,time_ms\na,1\n")
    target = fuzz.Target("roi", sys.modules["fuzz_targets"].command("roi", "INPUT"), ".csv", ())
    assert fuzz.outcome(target, path, 20.0) == (True, "")
    assert fuzz.outcome(target, tmp_path / "none.csv", 20.0) == (False, "")
    monkeypatch.setattr("perfmodel.cli.roi.Destination.of", lambda *_, **__: 1 // 0)
    is_read, escape = fuzz.outcome(target, path, 20.0)
    assert not is_read
    assert "ZeroDivisionError" in escape


def test_a_result_and_a_message_are_none(fuzz, tmp_path):
    def refuses(path):
        raise InputFileError("is damaged.")

    assert fuzz.outcome(fuzz.Target("t", lambda path: 1, ".x", (b"",)), tmp_path / "a.x", 1.0) == (True, "")
    assert fuzz.outcome(fuzz.Target("t", refuses, ".x", (b"",)), tmp_path / "a.x", 1.0) == (False, "")


def test_an_escape_is_counted_saved_and_gives_the_exit_status(fuzz, tmp_path, monkeypatch, capsys):
    def fails_on_a_quote(path):
        if b'"' in path.read_bytes():
            raise KeyError("quote")

    monkeypatch.setattr(
        fuzz, "targets", lambda *folders: [fuzz.Target("odd reader", fails_on_a_quote, ".x", (b"a,b\n",))]
    )
    monkeypatch.setattr(sys, "argv", ["fuzz.py", "--count", "300", "--save", str(tmp_path / "saved")])
    assert fuzz.main() == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith("300 inputs")
    assert "escapes of 1 kinds" in out
    (saved,) = (tmp_path / "saved").iterdir()
    assert b'"' in saved.read_bytes()


def test_the_same_seed_damages_the_same_way(fuzz):
    seed = b'{"a": [1, {"b": 2}], "c": "text"}'
    first, second = ([fuzz.damaged(seed, random_) for _ in range(50)] for random_ in map(random.Random, (7, 7)))
    assert first == second
    assert len(set(first)) > 25


@pytest.mark.waiting
def test_every_reader_has_a_file_that_it_accepts_and_survives_a_few_damaged_ones(fuzz, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("PERFMODEL_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", ["fuzz.py", "--count", "300", "--seed", "5", "--save", str(tmp_path)])
    assert fuzz.main() == 0, capsys.readouterr().out

"""Texts in UTF-16, as PowerShell's ``>`` writes them, are read as those in UTF-8."""

from __future__ import annotations

import codecs
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.files import read_document, read_text
from perfmodel.formats import read_profile
from perfmodel.storage.recoded import in_utf8

EXAMPLES = Path(__file__).parents[2] / "examples"
UTF_16 = {"little": codecs.BOM_UTF16_LE, "big": codecs.BOM_UTF16_BE}
KERNEL = {"ph": "X", "cat": "kernel", "name": "k_é", "ts": 1, "dur": 5, "pid": 0, "tid": 7, "args": {"device": 0}}


def utf_16(text: str, order: str = "little") -> bytes:
    return UTF_16[order] + text.encode(f"utf-16-{order[0]}e")


@pytest.mark.parametrize("order", UTF_16)
def test_a_table_is_read_whatever_the_order_of_its_bytes(tmp_path: Path, order: str) -> None:
    path = tmp_path / "times.csv"
    path.write_bytes(utf_16("name,time_ms\r\nKern \u00e9\u4e16,1.5\r\n", order))
    profile = read_profile(path)
    assert [(entry.name, entry.time_s) for entry in profile.entries] == [("Kern \u00e9\u4e16", pytest.approx(1.5e-3))]
    assert profile.source == str(path)


def test_a_trace_a_spec_and_a_document_are_read(tmp_path: Path) -> None:
    trace, spec = tmp_path / "trace.json", tmp_path / "mine.toml"
    trace.write_bytes(utf_16(json.dumps({"traceEvents": [KERNEL]}, ensure_ascii=False)))
    assert [entry.name for entry in read_profile(trace).entries] == ["k_é"]
    spec.write_bytes(utf_16(Path(pm.hardware("t4").path).read_text(encoding="utf-8")))
    assert pm.hardware(spec).sm_count == 40
    assert read_document(spec)["name"] == "t4"


def test_a_changed_text_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(utf_16("one"))
    assert read_text(path) == "one"
    path.write_bytes(utf_16("two"))
    os.utime(path, ns=(1, 1))
    assert read_text(path) == "two"
    path.write_text("three", encoding="utf-8")
    assert read_text(path) == "three"
    path.write_bytes(utf_16("four"))
    assert read_text(path) == "four"


def test_a_document_of_standard_input_is_told_from_a_table() -> None:
    plan = utf_16((EXAMPLES / "plan_gpt2.toml").read_text(encoding="utf-8"))
    command = ("roi", EXAMPLES / "profile_gpt2.csv", "--plan", "-", "--format", "json")
    ran = subprocess.run([sys.executable, "-m", "perfmodel", *command], input=plan, capture_output=True, check=True)
    assert {row["name"] for row in json.loads(ran.stdout)["rows"]} >= {"fused attention, forward"}


def test_a_pipe_is_not_touched(tmp_path: Path) -> None:
    """To open one without a writer would wait for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert in_utf8(str(pipe)) == str(pipe)

"""Files that a command writes: it replaces neither what it reads nor what somebody measured."""

from __future__ import annotations

import csv
import gzip
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perfmodel.cli._output import Destination
from perfmodel.core.report import Column, LongRows, Report
from perfmodel.files import read_text
from perfmodel.render import renderer

ROOT = Path(__file__).parents[2]
PROFILE = ROOT / "examples" / "profile_abc.csv"
RECORD = b'{"schema_version": 2, "command": "bench", "context": {}, "rows": []}\n'
TABLE = b"hardware,op,dtype,m,n,k,time_s,timing\nh100,gemm,fp16,8,8,8,1e-5,kernel\n"
QUOTED = b'\xef\xbb\xbf"hardware","op","dtype","time_s"\nh100,gemm,fp16,1e-5\n'
ROWS = b"op,name,kernel,status,time_s.median,time_s.mean\ngemm,gemm,torch.matmul,ok,1e-5,1e-5\n"
GEMM = ("analyze", "gemm", "m=64", "n=64", "k=64", "--on", "h100", "-o")
Program = Callable[..., Any]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("record.json", RECORD, "measurements of perfmodel bench"),
        ("record.json.gz", gzip.compress(RECORD, mtime=0), "measurements of perfmodel bench"),
        ("rows.csv", ROWS, "measurements of perfmodel bench"),
        ("table.csv", TABLE, "a table of measurements"),
        ("table.csv.gz", gzip.compress(TABLE, mtime=0), "a table of measurements"),
        ("spreadsheet.csv", QUOTED, "a table of measurements"),
        ("readings.jsonl", b'{"time": 1.0, "metric": "power_w", "of": "gpu 0", "value": 300.0}\n', "readings"),
        ("readings.json", b'{\n  "schema_version": 2,\n  "command": "monitor",\n  "rows": []\n}\n', "readings"),
        ("nv.json", b'{"meta": {}, "benchmarks": [{"name": "copy", "states": []}]}', "measurements of nvbench"),
        ("py.json", b'{"benchmarks": [{"name": "a", "stats": {"mean": 1.0}}]}', "measurements of pytest-benchmark"),
        ("runs.csv", b"hardware,num_gpus,gbs,seq,step_time_s\nh100,8,64,2048,1.5\n", "a table of measured runs"),
        ("profile.csv", b"# of a step\nname;time_ms\na;1.5\n", "a profile"),
        ("profile.toml", b'[[kernels]]\nname = "a"\ntime = "2 ms"\n', "a profile"),
        ("nodes.csv", b"op,latency,dtype,Name\ncall,1.5,fp32,gemm\n", "a profile"),
    ],
)
def test_measurements_are_not_replaced(
    perfmodel: Program, tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    ran = perfmodel(*GEMM, path, "--format", "json")
    assert (ran.code, f"holds {said}" in ran.err) == (2, True)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "words",
    [
        ("diagnose", PROFILE),
        ("project", PROFILE, "--from", "a100", "--to", "h100"),
        ("roi", PROFILE),
        ("analyze", "gemm", "m=64", "n=64", "k=64", "--algorithms", "--on", "h100"),
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.json", "a.md"])
def test_what_perfmodel_can_make_again_is_replaced(perfmodel: Program, tmp_path: Path, words: Any, name: str) -> None:
    assert [perfmodel(*words, "-o", tmp_path / name).code for _ in range(2)] == [0, 0]


def test_a_recording_of_monitor_is_continued(perfmodel: Program, tmp_path: Path) -> None:
    words = ("monitor", "--interval", "0.05", "--duration", "0.1", "--record", tmp_path / "run.jsonl")
    lengths = []
    for _ in range(2):
        assert perfmodel(*words).code == 0
        lengths.append(len((tmp_path / "run.jsonl").read_text().splitlines()))
    assert lengths[1] > lengths[0] > 0


def test_a_plot_is_replaced(perfmodel: Program, tmp_path: Path) -> None:
    words = (*GEMM[:-1], "--plot", tmp_path / "a.png")
    assert [perfmodel(*words).code for _ in range(2)] == [0, 0]


MEASURED = b'name = "mine"\n[sustained]\nsource = "perfmodel calibrate 0.2.0 on a GPU"\n'
FITTED = b'name = "mine"\n[latency.gemm]\nsource = "fitted on mine.csv, 20 rows"\n'


@pytest.mark.parametrize("content", [MEASURED, FITTED, b"#" * 10_000 + b"\n" + FITTED])
def test_what_calibrate_wrote_is_not_replaced_either(perfmodel: Program, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    ran = perfmodel("hardware", "show", "t4", "--format", "toml", "-o", path)
    assert (ran.code, "holds what perfmodel calibrate found" in ran.err) == (2, True)
    assert path.read_bytes() == content


def test_a_template_of_a_machine_is_replaced(perfmodel: Program, tmp_path: Path) -> None:
    for name in ("t4", "h100", "t4"):
        assert perfmodel("hardware", "show", name, "--format", "toml", "-o", tmp_path / "mine.toml").code == 0


TRACE = b'{"schemaVersion": 1, "deviceProperties": [{"id": 0}],\n "traceEvents": [{"ph": "X", "ts": 1}]}\n'


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("trace.json", TRACE, "holds a trace of a profiler"),
        ("trace.json.gz", gzip.compress(TRACE, mtime=0), "holds a trace of a profiler"),
        ("events.json", b'[\n{"name": "k", "ph": "X", "ts": 1}]', "holds a trace of a profiler"),
        ("export.json", b"SQLite format 3\0...", "holds an SQLite database"),
        ("ncu.csv", b'==PROF== Connected\n"ID","Process ID","Kernel Name"\n', "holds a report of ncu"),
        ("page.csv", b'"ID","Process ID","Kernel Name","gpu__time_duration.sum"\n', "holds a report of ncu"),
        ("sum.csv", b"Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Name\n", "holds a report of nsys stats"),
    ],
)
def test_what_a_profiler_wrote_is_not_replaced(
    perfmodel: Program, tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    ran = perfmodel(*GEMM, path)
    assert (ran.code, said in ran.err) == (2, True)
    assert path.read_bytes() == content


@pytest.mark.waiting
def test_an_annotated_trace_is_replaced_by_the_next_one_alone(
    perfmodel: Program, tmp_path: Path, data_dir: Path
) -> None:
    trace = next(path for path in sorted((data_dir / "traces").rglob("*.json.gz")) if path.stat().st_size < 1e6)
    path = tmp_path / "annotated.json.gz"
    annotate = ("diagnose", trace, "--on", "a100-sxm4-40gb", "--assume", "--annotate", path)
    assert [perfmodel(*annotate).code for _ in range(2)] == [0, 0]
    assert "holds a trace of a profiler" in perfmodel(*GEMM, path).err
    path.write_bytes(trace.read_bytes())
    ran = perfmodel(*annotate)
    assert (ran.code, "holds a trace of a profiler" in ran.err) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        ("hardware", "show", "t4", "--format", "toml", "-o"),
        ("capture", "torch.nn:ReLU", "--input", "4x4", "--operators"),
        ("diagnose", ROOT / "examples" / "profile_abc.csv", "--annotate"),
    ],
)
def test_no_other_file_of_a_command_replaces_them_either(perfmodel: Program, tmp_path: Path, words: Any) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(RECORD)
    ran = perfmodel(*words, path)
    assert (ran.code, "holds measurements of perfmodel bench" in ran.err) == (2, True)
    assert path.read_bytes() == RECORD


@pytest.mark.parametrize("written", ["-o {}", "--output={}", "-o{}", "-o {}/../p.csv"])
@pytest.mark.parametrize("read", ["p.csv", "p.*"])
def test_what_a_command_reads_is_not_replaced(
    perfmodel: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str, written: str
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    profile = tmp_path / "p.csv"
    profile.write_text("name,time_ms\na,1\nb,2\n")
    ran = perfmodel("roi", read, *written.format("folder" if "/" in written else "p.csv").split())
    assert (ran.code, "is also read by this command" in ran.err) == (2, True)
    assert profile.read_text() == "name,time_ms\na,1\nb,2\n"


def test_another_result_is_replaced(perfmodel: Program, tmp_path: Path) -> None:
    path = tmp_path / "result.csv"
    for _ in range(2):
        assert perfmodel(*GEMM, path).code == 0
    assert path.read_text().startswith("op,name")


def test_a_specification_says_where_it_was_written(perfmodel: Program, tmp_path: Path) -> None:
    good = perfmodel("hardware", "show", "t4", "-o", tmp_path / "t4.toml")
    assert (good.code, good.err.splitlines()[-1]) == (0, f"wrote {tmp_path / 't4.toml'}")
    odd = perfmodel("hardware", "show", "t4", "--format", "toml", "-o", tmp_path / "t4.json")
    assert "is written as toml because of --format" in odd.err
    assert "its folder does not exist" in perfmodel("hardware", "show", "t4", "-o", tmp_path / "no" / "t4.toml").err


class Interrupting(LongRows):
    """Rows during which Ctrl-C comes."""

    def __len__(self) -> int:
        return 50_000

    def __getitem__(self, place: Any) -> Any:
        return {"number": place}

    def __iter__(self) -> Iterator[dict[str, int]]:
        for place in range(len(self)):
            if place == 12_345:
                signal.raise_signal(signal.SIGINT)
            yield {"number": place}

    def keys(self) -> dict[str, int]:
        return {"number": 0}


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.json", None])
def test_ctrl_c_leaves_the_rows_of_a_long_table_that_are_finished(
    tmp_path: Path, name: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = None if name is None else str(tmp_path / name)
    report = Report("analyze", (Column("number"),), Interrupting(), notes=("a note",))
    with pytest.raises(KeyboardInterrupt):
        Destination(renderer("json" if name == "a.json" else "csv"), path).write(report)
    told = capsys.readouterr()
    assert "interrupted: 13000 of 50000 rows were written; the others are left out." in told.err
    content = told.out if path is None else read_text(path)
    if name == "a.json":
        document = json.loads(content)
        assert document["rows"] == [{"number": place} for place in range(13_000)]
        assert document["notes"] == ["Interrupted: the first 13000 of 50000 rows.", "a note"]
    else:
        assert content.splitlines() == ["number", *map(str, range(13_000))]


@pytest.mark.waiting
def test_a_long_sweep_is_written_whole(perfmodel: Program, tmp_path: Path) -> None:
    sweep = ("analyze", "gemm", "m=1..110+1", "n=1..100+1", "k=64", "--on", "h100", "-o")
    assert perfmodel(*sweep, tmp_path / "a.csv").code == 0
    assert perfmodel(*sweep, tmp_path / "a.json").code == 0
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    written = json.loads((tmp_path / "a.json").read_text())["rows"]
    assert len(rows) == len(written) == 11_000
    assert [float(row["predicted_time_s"]) for row in rows] == [row["predicted_time_s"] for row in written]

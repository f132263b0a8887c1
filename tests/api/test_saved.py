"""JSON of every command, read back: the table that the command printed, the same JSON again, or one clear message."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import perfmodel as pm
from perfmodel.api.saved import _LAYOUTS, SavedResult
from perfmodel.measure.monitor.record import Recorded

ROOT = Path(__file__).resolve().parents[2]
GPT2 = ROOT / "examples" / "profile_gpt2.csv"
PLAN, SCENARIO = ROOT / "examples" / "plan_gpt2.toml", ROOT / "examples" / "gpt2_scenario.toml"
RANKS = sorted((ROOT / "tests" / "diagnosis" / "ranks" / "traces" / "ddp_4_slow_rank").glob("*.gz"))
MODEL = "layers=8 hidden=1024 heads=16 kv_heads=4 ffn=2816 vocab=32000 positions=4096"
TABLE = "hardware,op,dtype,kind,numel,time_s,timing,cache,implementation\n" + "".join(
    f"v100-pcie-32gb,elementwise,fp32,add,{n}000000,{n}.6e-5,event,warm,torch-2.1\n" for n in range(1, 10)
)
SERVE = (MODEL, "--on", "h100", "--isl", "128", "--osl", "32")

#: command -> whether further tables lose their notes in JSON, so that only the first one is the same
COMMANDS: dict[str, tuple[tuple[Any, ...], bool]] = {
    "roi": (("roi", GPT2, "--plan", PLAN, "--on", "a100-sxm4-40gb"), False),
    "roi with prices": (("roi", GPT2, "--plan", PLAN, "--gpus", "8", "--price-per-gpu-hour", "2.5"), False),
    "roi of parts": (("roi", GPT2), False),
    "roi with sensitivity": (("roi", GPT2, "--plan", PLAN, "--sensitivity", "--gpus", "8", "--price-per-gpu-hour", "2",
                              "--dev-day-cost", "900"), True),
    "whatif": (("whatif", GPT2, SCENARIO), False),
    "diagnose": (("diagnose", GPT2), False),
    "diagnose --against": (("diagnose", GPT2, "--against", GPT2), False),
    "diagnose a job": (("diagnose", *RANKS), False),
    "project": (("project", GPT2, "--from", "a100", "--to", "h100"), False),
    "train": (("train", MODEL, "--on", "h100", "--gpus", 8, "--batch", 16, "--explain"), True),
    "train several": (("train", MODEL, "--on", "h100", "--gpus", 8, "--batch", 16, "--tp", "1/2"), False),
    "train scaling": (("train", MODEL, "--on", "h100", "--gpus", "8/16", "--batch", 16), False),
    "serve": (("serve", *SERVE, "--concurrency", "1/4"), False),
    "serve with objectives": (
        ("serve", *SERVE, "--concurrency", "1/4", "--slo", "ttft=1s", "--num-requests", 20), False,
    ),
    "search serve": (("search", "serve", *SERVE, "--batch", "1..4", "--tp", "1", "--kv", "bf16"), False),
    "validate": (("validate", "table.csv", "--by", "family,kind", "--worst", 2), False),
    "compare": (("compare", "a.json", "b.json"), False),
    "models": (("models", "gpt2"), False),
    "operators": (("operators",), False),
    "operators NAME": (("operators", "gemm"), False),
    "hardware list": (("hardware", "list", "geforce", "ada"), False),
    "hardware show": (("hardware", "show", "t4"), False),
    "analyze": (("analyze", "gemm", "m=64/4096", "n=64", "k=64", "--on", "h100"), False),
    "analyze --algorithms": (("analyze", "--algorithms", "sort", "cols=100000", "--on", "h100,a100"), False),
}  # fmt: skip


def _record(factor: float) -> str:
    def row(name: str, time_s: float) -> dict[str, Any]:
        statistics = {"median": time_s, "median_low": 0.999 * time_s, "median_high": 1.001 * time_s, "samples": 100}
        more = {"op": "gemm", "name": name, "dtype": "fp16", "hardware": "h", "status": "ok", "time_s": statistics}
        return {**more, "measured_time_s": time_s}

    rows = [row("a", factor * 1e-3), row("b", 1e-3), row("c", 1e-3)]
    return json.dumps({"schema_version": 2, "command": "bench", "context": {"device": {"kind": "cuda"}}, "rows": rows})


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text(TABLE)
    (tmp_path / "a.json").write_text(_record(1.0))
    (tmp_path / "b.json").write_text(_record(1.3))
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_show_prints_the_table_that_the_command_printed(perfmodel: Any, workplace: Path, name: str) -> None:
    """All but the heading, which JSON does not have, and the same JSON again, to the last note."""
    arguments, loses_notes = COMMANDS[name]
    saved = workplace / "saved.json"
    printed = perfmodel(*arguments)
    perfmodel(*arguments, "-o", saved)
    assert saved.is_file(), printed.err
    shown = perfmodel("show", saved)
    assert (shown.code, shown.err) == (0, "")
    heading, _, below = shown.out.partition("\n")
    assert heading.endswith(" record saved.json")
    first, _, further = below.partition("\n\n")
    assert f"\n{first.rstrip()}\n" in f"\n{printed.out}"
    if loses_notes:
        assert further
    else:
        assert printed.out.endswith(f"\n{below}")
    assert perfmodel("show", saved, "--format", "json").out == saved.read_text()


def test_a_module_shows_its_tree(perfmodel: Any, workplace: Path) -> None:
    pytest.importorskip("torch")
    (workplace / "m.py").write_text(
        "import torch\ndef net():\n    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())\n"
    )
    arguments = ("capture", "m.py:net", "--input", "4x64:fp32", "--on", "h100")
    printed = perfmodel(*arguments)
    assert perfmodel(*arguments, "-o", "saved.json").code == 0
    shown = perfmodel("show", "saved.json").out
    assert shown.splitlines()[1:] == printed.out.splitlines()[1:]


def test_a_comparison_lists_what_changed_alone(perfmodel: Any, workplace: Path) -> None:
    perfmodel("compare", "a.json", "b.json", "-o", "saved.json")
    shown = perfmodel("show", "saved.json").out
    assert "slower" in shown
    assert "Rows that did not change: 2; compare --all lists them." in shown
    assert len(pm.read_record("saved.json").rows) == 3


def test_a_ranking_shows_its_first_rows(perfmodel: Any, workplace: Path) -> None:
    rows = [
        {"rank": n, "deployment": f"tp{n}", "ttft_s": {"mean": 0.1}, "tpot_s": {"mean": 0.01}} for n in range(1, 15)
    ]
    document = {"schema_version": 2, "command": "search serve", "context": {}, "rows": rows}
    (workplace / "saved.json").write_text(json.dumps(document))
    shown = perfmodel("show", "saved.json").out
    assert "tp10" in shown
    assert "tp11" not in shown
    assert "4 more deployments: --top 14 of the command lists them." in shown


def test_every_layout_is_found() -> None:
    from importlib import import_module

    for _, _, module in _LAYOUTS:
        assert callable(import_module(module).saved)


def test_a_result_reads_back_as_rows_with_their_keys(perfmodel: Any, workplace: Path) -> None:
    perfmodel("roi", GPT2, "--plan", PLAN, "-o", "roi.json")
    found = pm.read_record("roi.json")
    assert isinstance(found, SavedResult)
    assert found.command == "roi"
    assert found.rows[0]["name"] == "fused attention, forward"
    assert found.facts["decision"]
    assert found._repr_html_().count("<tr>") == 1 + len(found.rows)
    assert "fused attention" in pm.html_report(found)
    (workplace / "roi.json.gz").write_bytes(gzip.compress((workplace / "roi.json").read_bytes()))
    assert pm.read_record("roi.json.gz").rows == found.rows


def test_the_command_of_a_plugin_shows_the_keys_of_its_rows(perfmodel: Any, workplace: Path) -> None:
    document = {"schema_version": 2, "command": "balance", "context": {}, "rows": [{"part": "a", "time_s": 2e-3}]}
    (workplace / "saved.json").write_text(json.dumps(document))
    shown = perfmodel("show", "saved.json")
    assert (shown.code, shown.out.split()) == (0, ["balance", "record", "saved.json", "part", "time", "a", "2", "ms"])


def test_readings_show_as_monitor_reads_them(perfmodel: Any, workplace: Path) -> None:
    lines = [{"time": 1e9 + n, "metric": "gpu_power_watts", "of": "gpu0", "value": 300.0 + n, "finding": ""}
             for n in range(3)]  # fmt: skip
    (workplace / "run.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert isinstance(pm.read_record("run.jsonl"), Recorded)
    shown, printed = (perfmodel(*words, "run.jsonl").out.splitlines() for words in (("show",), ("monitor", "--read")))
    assert shown[0] == "Readings of run.jsonl"
    assert shown[1:] == printed[1:]


@pytest.mark.parametrize(
    ("name", "content", "messages"),
    [
        ("empty.json", "", ("the file is empty",)),
        ("none.json", None, ("no such file",)),
        ("list.json", "[1, 2]", ("is not a record: no command of perfmodel wrote it.", "--format json")),
        ("other.json", '{"a": 1}', ("is not a record: no command of perfmodel wrote it.",)),
        ("cut.json", '{"schema_version": 2, "command": "roi", "rows": [', ("cut.json",)),
        ("number.json", '{"schema_version": 2, "command": 3, "rows": []}', ("its command or rows are damaged",)),
        ("rows.json", '{"schema_version": 2, "command": "roi", "rows": 3}', ("its command or rows are damaged",)),
        ("newer.json", '{"schema_version": 99, "command": "roi", "rows": []}', ("schema version 99 is not known",)),
        ("bench.json", '{"schema_version": 2, "command": "bench", "rows": []}', ("the record has no rows",)),
        ("damaged.json", '{"schema_version": 2, "command": "compare", "rows": [{"op": "gemm"}]}',
         ("cannot be shown: a value is not what perfmodel compare writes",)),
        ("table.csv", TABLE, ("holds a table of measurements", "perfmodel validate table.csv")),
        ("runs.csv", "hardware,num_gpus,gbs,seq,step_time_s\nh100,8,64,4096,6.5\n",
         ("holds a table of measured runs", "perfmodel validate runs.csv")),
        ("profile.csv", "name,time_ms\na,1\n", ("holds a profile", "perfmodel diagnose profile.csv")),
        ("trace.json", '{"traceEvents": [], "schemaVersion": 1}', ("a trace of a profiler", "perfmodel diagnose")),
        ("fine.json", '[{"mean": 1.0, "command": "x", "times": [1]}]', ("is not a record",)),
        ("hyperfine.json", '{"results": [{"command": "sleep 1", "mean": 1.0, "times": [1.0, 1.0]}]}',
         ("holds measurements of hyperfine", "perfmodel compare hyperfine.json AFTER")),
        ("my.toml", 'name = "mine"\n', ("unknown suffix '.toml'", "--format json")),
    ],
)  # fmt: skip
def test_what_is_no_json_of_a_command_gets_one_message(
    perfmodel: Any, workplace: Path, name: str, content: str | None, messages: tuple[str, ...]
) -> None:
    if content is not None:
        (workplace / name).write_text(content)
    ran = perfmodel("show", name)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (3, "", 1)
    for message in (name, *messages):
        assert message in ran.err


def test_a_path_of_another_type_gets_one_message() -> None:
    with pytest.raises(pm.UsageError, match=r'path: 3 is no path\. Write "record\.json"'):
        pm.read_record(3)  # type: ignore[arg-type]

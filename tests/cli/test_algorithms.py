"""`perfmodel analyze --algorithms`: rows, crossovers, the plot, and messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfmodel.cli.app import run


def test_rows_and_crossovers_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["analyze", "conv2d", "n=16", "c=64", "h=56", "w=56", "k=64", "r=3", "s=3", "padding=1"]
    assert run([*line, "--algorithms", "--on", "v100", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {row["algorithm"]: row for row in document["rows"]}
    assert document["rows"][0]["rank"] == 1
    assert rows["winograd_f23"]["rank"] == 1
    assert rows["winograd_f23"]["flop"] * 2.25 == pytest.approx(rows["implicit_gemm"]["flop"])
    assert rows["fft"]["rank"] is None
    assert "5 x 5" in rows["fft"]["why_not"]
    keys = {
        "problem",
        "hardware",
        "time_s",
        "time_low_s",
        "time_high_s",
        "bytes",
        "kernels",
        "workspace_bytes",
        "basis",
    }
    assert all(keys <= set(row) for row in document["rows"])
    assert {"size", "before", "after", "time_s"} <= set(document["crossovers"][0])
    assert document["command"] == "analyze"


def test_the_table_fits_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["analyze", "sort", "gradient_compression", "convolution", "--algorithms", "--on", "h100"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    for word in ("radix", "power_sgd", "winograd_f43", "does not apply", "Where the fastest algorithm changes"):
        assert word in printed


def test_a_plot_has_a_curve_for_each_algorithm_and_marks_the_crossovers(tmp_path: Path) -> None:
    path = tmp_path / "sort.svg"
    assert run(["analyze", "sort", "topk", "--algorithms", "--on", "a100", "--plot", str(path)]) == 0
    text = path.read_text()
    assert all(f'id="{name}"' in text for name in ("radix", "merge", "bitonic", "host_avx512", "radix_select_multi"))
    assert text.count('id="crossover"') >= 2


@pytest.mark.parametrize(
    ("ops", "part"),
    [
        (["softmax", "rows=2", "cols=2"], "no choice of algorithms for softmax"),
        (["srt"], "unknown problem 'srt'"),
        (["sort", "cols=64..256"], "cols has several values"),
        (["topk", "cols=4", "k=9"], "k=9 is above cols=4"),
    ],
)
def test_wrong_problems_are_one_message(ops: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["analyze", *ops, "--algorithms", "--on", "a100"]) == 2
    message = capsys.readouterr().err
    assert part in message
    assert "Traceback" not in message


@pytest.mark.parametrize("option", [["--explain"], ["--cache", "warm"], ["--library", "trtllm"], ["--measured", "1ms"]])
def test_options_without_effect_are_refused(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["analyze", "sort", "--algorithms", "--on", "a100", *option]) == 2
    assert f"{option[0]} has no effect: --algorithms compares" in capsys.readouterr().err


def test_tables_of_several_problems_say_which_is_which(perfmodel) -> None:
    words = ("analyze", "sort", "rows=1", "cols=4096", "dtype=fp32/bf16", "--algorithms", "--on", "h100")
    ran = perfmodel(*words, "--format", "json").json
    assert [row["dtype"] for row in ran["rows"] if row["rank"] == 1] == ["fp32", "bf16"]
    assert {row["dimensions"] for row in ran["rows"]} == {"cols=4096"}
    assert {row["dtype"] for row in ran["crossovers"]} == {"fp32", "bf16"}
    table = perfmodel(*words).out
    headings = [line.split()[0] for line in table.splitlines() if "#" in line or "instead of" in line]
    assert headings == ["dtype", "dtype"]
    one = perfmodel(*(word.replace("/bf16", "") for word in words)).out
    assert "dtype" not in one, "the title says it"
    sizes = perfmodel(
        "analyze", "sort", "cols=64", "rows=1", "sort", "cols=4096", "rows=1", "--algorithms", "--on", "h100"
    )
    assert "cols=4096" in sizes.out

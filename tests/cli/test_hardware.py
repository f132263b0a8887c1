"""`perfmodel hardware`: its rows, its exit codes, its messages."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfmodel.files import shipped_folder
from perfmodel.hardware_catalog import hardware_names, read_hardware
from perfmodel.hardware_catalog.lint import CODES

Program = Callable[..., Any]


def test_list_has_the_keys_of_the_contract(perfmodel: Program) -> None:
    ran = perfmodel("hardware", "list", "--format", "json")
    assert ran.code == 0
    rows = {row["name"]: row for row in ran.json["rows"]}
    assert sorted(rows) == hardware_names()
    row = rows["a100-sxm4-80gb"]
    assert (row["vendor"], row["architecture"]) == ("NVIDIA", "Ampere")
    assert row["memory_capacity_bytes"] == 80 * 2**30
    assert row["memory_bandwidth_bytes_per_s"] == 2039e9
    assert row["peak_flop_per_s"]["bf16"] == 312e12
    assert row["ridge_point_flop_per_byte"]["fp16"] == pytest.approx(153.0, abs=0.05)
    assert row["ridge_point_flop_per_byte"]["fp32"] == pytest.approx(9.56, abs=0.005)


def test_hardware_alone_is_the_list(perfmodel: Program) -> None:
    assert perfmodel("hardware").out == perfmodel("hardware", "list").out
    assert perfmodel("hardware", "--format", "json").json == perfmodel("hardware", "list", "--format", "json").json


def test_the_list_fits_into_80_columns(perfmodel: Program) -> None:
    table = [line for line in perfmodel("hardware", "list").out.splitlines() if "TB/s" in line or "GB/s" in line]
    assert len(table) == len(hardware_names())
    assert max(map(len, table)) <= 80


def test_a_narrow_list_keeps_one_line_a_machine(perfmodel: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = perfmodel("hardware", "list").out.splitlines()
    assert max(map(len, lines)) <= 60
    assert sum(line.split()[:1] == ["h100-sxm5-80gb"] for line in lines) == 1


def test_an_option_before_the_command_is_not_swallowed(perfmodel: Program) -> None:
    ran = perfmodel("hardware", "--format", "json", "show", "t4")
    assert ran.code == 2
    assert "perfmodel hardware show ... --format json" in ran.err


def test_show_puts_the_datasheet_beside_the_sustained_figure(perfmodel: Program) -> None:
    rows = {(row["table"], row["key"]): row for row in perfmodel("hardware", "show", "h200", "-f", "json").json["rows"]}
    row = rows["memory.hbm", "bandwidth"]
    assert (row["value"], row["unit"]) == (4814e9, "B/s")
    assert row["fraction"] == pytest.approx(row["sustained"] / 4814e9)
    assert "H200 datasheet" in row["source"]
    assert "aiconfigurator" in row["sustained_source"]
    assert rows["launch", "floor"]["value"] == pytest.approx(1.26e-6)
    assert rows["link.nvlink", "per_direction"]["value"] == 450e9
    assert all(row["source"] or row["sustained_source"] for row in rows.values())


def test_show_prints_every_source_once(perfmodel: Program) -> None:
    out = perfmodel("hardware", "show", "mi250x").out
    assert "one GCD" in out
    assert out.count("[1] AMD ROCm documentation") == 1


def test_show_counts_fitted_constants_for_people_and_lists_them_for_programs(perfmodel: Program) -> None:
    rows = perfmodel("hardware", "show", "h100", "-f", "json").json["rows"]
    fitted = [row for row in rows if row["table"].startswith("latency.")]
    out = perfmodel("hardware", "show", "h100").out
    assert f"{len(fitted)} constants that measurements set: JSON and CSV have them" in out
    assert not [line for line in out.splitlines() if line.startswith("latency.")]
    shown = {row["source"] for row in rows if row not in fitted}
    only_fitted = {row["sustained_source"] or row["source"] for row in fitted} - shown
    text = " ".join(out.split())
    assert only_fitted
    assert not [source for source in only_fitted if f"] {source}" in text]


def test_show_takes_a_file(perfmodel: Program, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text((shipped_folder() / "t4.toml").read_text().replace('"t4"', '"mine"', 1))
    assert perfmodel("hardware", "show", path, "-f", "json").json["context"]["hardware"] == "mine"


def test_show_writes_csv(perfmodel: Program, tmp_path: Path) -> None:
    target = tmp_path / "t4.csv"
    assert perfmodel("hardware", "show", "t4", "-o", target).code == 0
    rows = list(csv.DictReader(io.StringIO(target.read_text())))
    assert {"table", "key", "value", "unit", "source"} <= set(rows[0])


def test_show_writes_a_template_that_is_clean_and_has_no_fitted_constants(perfmodel: Program, tmp_path: Path) -> None:
    printed = perfmodel("hardware", "show", "t4", "--format", "toml")
    assert printed.code == 0
    # predictions with the file differ from those of the machine whose name it has: both places say so
    assert printed.err.startswith("note: without the [latency] constants that were fitted on t4")
    assert printed.out.startswith("# Template for another machine, without the [latency] constants")
    assert perfmodel("hardware", "show", "gtx-1070", "--format", "toml").err == ""  # which has none
    target = tmp_path / "t4.toml"
    for arguments in (("-o", target), ("--format", "toml", "-o", target)):
        assert perfmodel("hardware", "show", "t4", *arguments).code == 0
        assert target.read_text() == printed.out
        target.unlink()
    target.write_text(printed.out)
    assert perfmodel("hardware", "lint", target, "--format", "json").json["rows"] == []
    shipped, template = (read_hardware(path) for path in (shipped_folder() / "t4.toml", target))
    assert shipped.latency
    assert dataclasses.replace(template, path="") == dataclasses.replace(shipped, latency={}, path="")
    assert "toml" in perfmodel("hardware", "show", "t4", "--format", "tml").err


def test_an_unknown_name_gets_the_nearest_and_exit_2(perfmodel: Program) -> None:
    ran = perfmodel("hardware", "show", "a100-sxn4")
    assert ran.code == 2
    assert "Did you mean" in ran.err


@pytest.mark.parametrize(
    ("words", "names"), [(("geforce", "ADA"), {"rtx-4090", "rtx-4060-ti-16gb"}), (("spark",), {"gb10"})]
)
def test_words_pick_machines(perfmodel: Program, words: tuple[str, ...], names: set[str]) -> None:
    listed = perfmodel("hardware", "list", *words, "--format", "json").json["rows"]
    assert names <= {row["name"] for row in listed}
    assert len(listed) < 0.2 * len(hardware_names())


def test_words_that_no_machine_holds_are_told(perfmodel: Program) -> None:
    ran = perfmodel("hardware", "list", "ada", "zx81")
    assert (ran.code, ran.out) == (2, "")
    assert "no machine of the catalog holds 'ada' and 'zx81'. perfmodel hardware list shows all." in ran.err


def test_the_shipped_catalog_is_clean(perfmodel: Program) -> None:
    ran = perfmodel("hardware", "lint", "--format", "json")
    assert (ran.code, ran.json["rows"]) == (0, [])
    assert ran.json["notes"] == [f"files: {len(hardware_names())}, errors: 0, other findings: 0"]


def test_lint_exits_1_on_an_error_and_names_file_line_and_key(perfmodel: Program, tmp_path: Path) -> None:
    path = tmp_path / "h100-sxm5-80gb.toml"
    path.write_text(
        (shipped_folder() / path.name).read_text().replace('fp8 = { rate = "1978.9', 'fp8 = { rate = "3958')
    )
    ran = perfmodel("hardware", "lint", path, "--format", "json")
    assert ran.code == 1
    (row,) = ran.json["rows"]
    assert set(row) == {"file", "line", "key", "severity", "code", "message"}
    assert (row["file"], row["key"], row["code"]) == (str(path), "peak.tensor.fp8", "sparse-as-dense")
    assert path.read_text().splitlines()[row["line"] - 1].startswith("fp8 =")


def test_lint_of_a_broken_file_is_a_row_beside_the_others(perfmodel: Program, tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("[chip\n")
    ran = perfmodel("hardware", "lint", broken, shipped_folder() / "t4.toml", "--format", "json")
    assert ran.code == 1
    assert [(row["code"], row["line"]) for row in ran.json["rows"]] == [("syntax", 1)]


def test_lint_takes_the_name_of_a_broken_file_of_the_catalog(
    perfmodel: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFMODEL_HARDWARE", str(tmp_path))
    (tmp_path / "broken.toml").write_text("[chip\n")
    ran = perfmodel("hardware", "lint", "broken", "--format", "json")
    assert ran.code == 1
    assert [row["code"] for row in ran.json["rows"]] == ["syntax"]


def test_a_warning_is_no_error(perfmodel: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFMODEL_HARDWARE", str(tmp_path))  # whose files are found by their names
    path = tmp_path / "renamed.toml"
    path.write_text((shipped_folder() / "t4.toml").read_text())
    ran = perfmodel("hardware", "lint", path, "--format", "json")
    assert (ran.code, [row["severity"] for row in ran.json["rows"]]) == (0, ["warning"])


def test_lint_of_no_file_is_exit_3(perfmodel: Program, tmp_path: Path) -> None:
    assert perfmodel("hardware", "lint", tmp_path / "none.toml").code == 3


def test_lint_takes_names_of_the_catalog(perfmodel: Program) -> None:
    ran = perfmodel("hardware", "lint", "h100", "--format", "json")
    assert (ran.code, ran.json["notes"]) == (0, ["files: 1, errors: 0, other findings: 0"])
    text = " ".join(perfmodel("hardware", "lint", "h100").out.split())
    assert text.startswith(
        f"Nothing found in h100-sxm5-80gb.toml: checked for {len(CODES)} kinds of mistakes, in the form"
    )
    unknown = perfmodel("hardware", "lint", "h1000")
    assert (unknown.code, "unknown hardware 'h1000'" in unknown.err) == (2, True)


def test_a_machine_in_the_place_of_a_command_is_told_how_to_be_shown(perfmodel: Program) -> None:
    assert "perfmodel hardware show h100." in perfmodel("hardware", "h100").err
    assert "hardware show" not in perfmodel("hardware", "shw").err


def test_a_list_is_no_specification(perfmodel: Program, tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1, 2]")
    ran = perfmodel("hardware", "show", tmp_path / "list.json")
    assert (ran.code, "holds no table of keys" in ran.err) == (3, True)


def test_detect_describes_this_machine(perfmodel: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfmodel.hardware_catalog import detect

    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    monkeypatch.setattr(detect, "open_driver", lambda: None)
    monkeypatch.setattr(detect, "_OTHERS", ())
    ran = perfmodel("hardware", "detect", "--format", "json")
    assert ran.code == 0
    (cpu,) = ran.json["rows"]
    assert cpu["device"] == "cpu"
    assert cpu["cores"] >= 1
    assert "no GPU found: neither NVML (package nvidia-ml-py) nor the CUDA driver" in ran.err


def test_detect_names_the_spec_of_each_gpu(perfmodel: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfmodel.hardware_catalog import detect
    from perfmodel.hardware_catalog.gpu_reading import GpuReading

    readings = (
        GpuReading(0, "NVIDIA A100-SXM4-80GB", 85.2e9, 1410e6, 1593e6, 4, 16, 400.0, "580.1"),
        GpuReading(1, "NVIDIA A100-SXM4-80GB", 10e9),
        GpuReading(2, "Mystery"),
    )
    monkeypatch.setattr(detect, "read_gpus", lambda _nvml: readings)
    ran = perfmodel("hardware", "detect", "--format", "json")
    assert [row["hardware"] for row in ran.json["rows"]] == ["a100-sxm4-80gb", "a100-sxm4-80gb", None, None]
    assert ran.json["rows"][0]["matched_by"] == "name"
    whole, part, unknown, _cpu = ran.json["notes"]
    assert "--on a100-sxm4-80gb" in whole
    assert "partition" in part
    assert "no spec has this name" in unknown


@pytest.mark.parametrize("command", ["list", "show", "lint", "detect"])
def test_help_has_an_example(perfmodel: Program, command: str) -> None:
    ran = perfmodel("hardware", command, "--help")
    assert ran.code == 0
    assert f"perfmodel hardware {command}" in ran.out


@pytest.mark.parametrize("name", ["h100", "a100-sxm4-80gb", "rtx-4090", "v100-sxm2-32gb"])
def test_figures_with_long_names_stay_a_table_of_eighty_columns(perfmodel, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    lines = perfmodel("hardware", "show", name).out.splitlines()
    headings = [word for word in lines[1].split() if word != "sustained"]  # which not every machine has
    assert headings == ["table", "key", "datasheet", "source"]
    assert max(map(len, lines)) <= 80


def test_findings_keep_their_words_whole_in_80_columns(
    perfmodel: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (shipped_folder() / "h100-sxm5-80gb.toml").read_text(encoding="utf-8")
    (tmp_path / "h100-sxm5-80gb.toml").write_text(text.replace('"989.4 TFLOP/s"', '"1978.8 TFLOP/s"'))
    out = perfmodel("hardware", "lint", "h100-sxm5-80gb.toml").out
    assert max(map(len, out.splitlines())) <= 80
    assert "sparse-as-dense" in out
    assert "Divide by 2: peaks are dense; the sparse figure belongs in sparse_2to4." in " ".join(out.split())

"""Options mean the same in every command; where a result goes; old spellings."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from perfmodel.cli import _options
from perfmodel.cli._output import Destination
from perfmodel.cli._renamed import with_new_names
from perfmodel.cli.app import build_app
from perfmodel.errors import UsageError

ANALYZE = ("analyze", "gemm", "m=64", "n=64", "k=64", "dtype=fp16", "--on", "a100-sxm4-40gb")
#: options whose meaning differs between commands, since their values do, with the number of their definitions
SEVERAL = {
    "--on": 6,  # any machines, those of rows, of judged rows, this one, the one to predict for, the profiled one
    "--by": 2,  # keys of rows, of entries of a trace
    "--timing": 2,  # bench also chooses by itself
    "--format": 3,  # bench has a format of its own, and so has hardware show
    "--output": 5,  # a result, the specification that calibrate writes, a picture, a page, a summary
    "--from": 2,  # the tables of a calibration, the machine of a profile
    "--fail-on": 2,  # a change, an accuracy
    # a run of training or serving, a search among them, and what a profile or a benchmark has
    "--gpus": 3,
    "--tp": 3,
    "--pp": 3,
    "--ep": 3,
    "--dp": 2,
    "--dispatcher": 2,
    "--batch": 2,
    "--weights": 2,
    "--kv": 2,
    "--max-batched-tokens": 2,
    "--for-qps": 2,
    "--price-per-gpu-hour": 2,  # of each machine in a search
    "--title": 2,  # of a picture, of a page
    "--rank": 2,  # by gain, by throughput or cost
    "--explain": 2,  # terms of times, and of a step with its memory
    "--seed": 2,  # of inputs, of arrivals
    "--dtype": 2,  # to draw, to train in
    "--optimizer": 2,  # captured, of a training plan
    "--engine": 2,  # to calibrate, to serve with
    "--num-gpus": 2,  # ranks to measure among
}


def _commands() -> Iterator[tuple[str, typer.core.TyperCommand]]:
    group = typer.main.get_command(build_app())
    for name, command in group.commands.items():
        inner = getattr(command, "commands", None)
        yield from ((f"{name} {sub}", one) for sub, one in inner.items()) if inner else [(name, command)]


def _definitions() -> dict[str, dict[tuple[str, ...], list[str]]]:
    """Return long name -> (all names, metavar, help) -> commands."""
    found: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for name, command in _commands():
        for option in command.params:
            if option.param_type_name == "option" and option.name != "help":
                long = max(option.opts, key=len)
                key = (*option.opts, str(option.metavar), str(option.help))
                found.setdefault(long, {}).setdefault(key, []).append(name)
    return found


def test_an_option_has_one_definition_in_all_commands() -> None:
    definitions = _definitions()
    assert {"--on", "--format", "--output", "--plot", "--cache", "--timing", "--wide"} <= set(definitions)
    differing = {name: len(variants) for name, variants in definitions.items() if len(variants) > 1}
    assert differing == SEVERAL


def test_a_share_is_a_percentage_or_a_fraction_in_every_option() -> None:
    assert not {"SHARE", "FRACTION"} & {one.metavar for _, command in _commands() for one in command.params}


def test_no_two_options_of_a_command_share_a_short_name() -> None:
    for name, command in _commands():
        shorts = [opt for option in command.params for opt in option.opts if len(opt) == 2]
        assert len(shorts) == len(set(shorts)), name


def test_every_command_with_a_table_can_show_it_wide() -> None:
    variants = _definitions()
    with_format, with_wide = (
        {command for commands in variants[option].values() for command in commands} for option in ("--format", "--wide")
    )
    assert with_format == with_wide


@pytest.mark.parametrize(
    ("old", "new", "warning"),
    [
        (["diagnose", "t.json", "--all"], ["diagnose", "t.json", "--whole-trace"], "--all is now --whole-trace"),
        (["--debug", "roi", "t.json", "--all"], ["--debug", "roi", "t.json", "--whole-trace"], "--all is now"),
        (["bench", "--cache", "flushed"], ["bench", "--cache", "cold"], "--cache flushed is now --cache cold"),
        (["bench", "--cache=flushed"], ["bench", "--cache=cold"], "--cache=flushed is now --cache=cold"),
        (["validate", "t", "--by", "all"], ["validate", "t", "--by", "none"], "--by all is now --by none"),
        (["compare", "a", "b", "--all"], ["compare", "a", "b", "--all"], ""),
        (["diagnose", "--", "--all"], ["diagnose", "--", "--all"], ""),
        (["analyze", "--cache"], ["analyze", "--cache"], ""),
        ([], [], ""),
    ],
)
def test_an_old_spelling_works_with_a_warning(
    old: list[str], new: list[str], warning: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert with_new_names(old) == new
    err = capsys.readouterr().err
    assert warning in err
    assert err.count("\n") == bool(warning)


def test_a_command_line_with_an_old_spelling_runs(perfmodel, tmp_path: Path) -> None:
    table = tmp_path / "p.csv"
    table.write_text("name,time_ms\na,1\n")
    ran = perfmodel("diagnose", table, "--all", "-f", "json")
    assert ran.code == 0
    assert "--all is now --whole-trace" in ran.err


@pytest.mark.parametrize("command", ["diagnose", "roi"])
def test_a_second_machine_is_refused_where_there_is_one(perfmodel, tmp_path: Path, command: str) -> None:
    table = tmp_path / "p.csv"
    table.write_text("name,time_ms\na,1\n")
    ran = perfmodel(command, table, "--on", "t4", "--on", "l4")
    assert (ran.code, "Name one machine" in ran.err) == (2, True)


def test_a_time_is_in_seconds_unless_it_has_a_unit(perfmodel) -> None:
    named = {option.name for _, command in _commands() for option in command.params if option.metavar == "SECONDS"}
    assert named == {"interval", "duration", "time_limit", "min_time", "sustain", "rank_timeout"}
    product = ("bench", "gemm", "m=8", "n=8", "k=8", "--device", "cpu")
    for option in ("--time-limit", "--min-time", "--sustain"):
        ran = perfmodel(*product, option, "10x")
        assert (ran.code, ran.err.startswith(f"perfmodel: {option}: '10x' is not in s.")) == (2, True)
    assert (
        "10.0 s is not between 0 and the time limit of 0.5 s"
        in perfmodel(*product, "--min-time", "10s", "--time-limit", "500ms").err
    )
    ran = perfmodel("monitor", "--duration", "soon")
    assert (ran.code, ran.err.startswith("perfmodel: --duration: 'soon' is not a number with a unit.")) == (2, True)
    ran = perfmodel("monitor", "--duration", "300ms", "--interval", "100ms", "--format", "json")
    assert ran.code == 0
    assert ran.json["rows"]


@pytest.mark.parametrize(("text", "code"), [("5%", 0), ("0.05", 0), ("5", 2), ("-5%", 2), ("five", 2)])
def test_each_percentage_is_read_in_the_same_way(perfmodel, tmp_path: Path, text: str, code: int) -> None:
    record = tmp_path / "a.json"
    row = {"op": "gemm", "hardware": "t4", "dtype": "fp16", "status": "ok", "kernel": "k", "cache": "cold"}
    row |= {"timing": "graph", "time_s": {"median": 1e-3, "median_low": 9e-4, "median_high": 1.1e-3, "samples": 9}}
    record.write_text(json.dumps({"schema_version": 2, "command": "bench", "context": {}, "rows": [row]}))
    for option in ("--fail-on", "--threshold", "--drift"):
        assert perfmodel("compare", record, record, f"{option}={text}").code == code
    table = tmp_path / "p.csv"
    table.write_text("name,time_ms\na,1\n")
    prices = ("--gpus", "1", "--price-per-gpu-hour", "1")
    assert perfmodel("roi", table, *prices, f"--discount-rate={text}").code == code
    if code:
        ran = perfmodel("bench", "gemm", "m=8", "n=8", "k=8", "--device", "cpu", f"--error={text}")
        assert (ran.code, ran.err.startswith("perfmodel: --error: ")) == (2, True)


def test_an_unknown_format_names_the_nearest_one(perfmodel) -> None:
    ran = perfmodel(*ANALYZE, "--format", "jsn")
    assert ran.code == 2
    assert ran.err == (
        "perfmodel: --format: unknown format 'jsn'. Did you mean 'json'? Allowed: csv, html, json, markdown, table.\n"
    )
    assert perfmodel(*ANALYZE, "--format", "measurements").code == 2


def test_a_format_may_be_named_by_the_suffix_of_its_files(perfmodel) -> None:
    for suffix, name in (("md", "markdown"), ("txt", "table"), ("json", "json")):
        assert perfmodel(*ANALYZE, "--format", suffix).out == perfmodel(*ANALYZE, "--format", name).out


def test_text_fits_80_columns_and_follows_columns(perfmodel, monkeypatch: pytest.MonkeyPatch) -> None:
    widths = {}
    for columns in ("", "60", "120"):
        monkeypatch.setenv("COLUMNS", columns)
        lines = perfmodel(*ANALYZE).out.splitlines()
        widths[columns] = max(map(len, lines))
    assert widths[""] <= 80
    assert widths["60"] <= 60 < widths["120"] <= 120


def test_wide_shows_every_column(perfmodel) -> None:
    header = perfmodel(*ANALYZE, "--wide").out.splitlines()[1]
    narrow = perfmodel(*ANALYZE).out
    for heading in ("advice", "family", "bytes read"):
        assert heading in header
        assert heading not in narrow


def test_a_format_that_the_suffix_contradicts_is_a_warning(perfmodel, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    ran = perfmodel(*ANALYZE, "--format", "table", "-o", path)
    assert ran.code == 0
    assert f"warning: {path} is written as table because of --format; its suffix means json." in ran.err
    assert path.read_text().startswith("Bound")
    for name, format_ in (("x.json", "json"), ("x", "json"), ("x.log", "json")):
        assert "warning" not in perfmodel(*ANALYZE, "--format", format_, "-o", tmp_path / name).err


def test_a_file_may_be_packed(perfmodel, tmp_path: Path) -> None:
    path = tmp_path / "x.json.gz"
    assert perfmodel(*ANALYZE, "-o", path).code == 0
    first = path.read_bytes()
    assert json.loads(gzip.decompress(first))["command"] == "analyze"
    assert perfmodel(*ANALYZE, "-o", path).code == 0
    assert path.read_bytes() == first  # the time of writing is not in the file
    assert perfmodel("show", path, "-f", "json").json == json.loads(gzip.decompress(first))


@pytest.mark.parametrize(
    ("name", "command", "format_"),
    [
        ("a.csv", "bench", "csv"),
        ("a.csv.gz", "bench", "measurements"),
        ("a.csv.gz", "analyze", "csv"),
        ("a.MD", "analyze", "markdown"),
        ("a", "analyze", "table"),
        ("-", "analyze", "table"),
    ],
)
def test_the_longest_suffix_names_the_format(tmp_path: Path, name: str, command: str, format_: str) -> None:
    output = Path(name) if name == "-" else tmp_path / name
    assert Destination.of(command, None, output).renderer.name == format_


def test_a_suffix_without_a_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="names no format") as caught:
        Destination.of("analyze", None, tmp_path / "a.xml")
    assert "Use .csv, .html, .htm, .json, .md, .markdown, .txt, or give --format." in str(caught.value)


def test_the_options_that_commands_share_are_all_used() -> None:
    shared = {getattr(_options, name).__metadata__[0].help for name in dir(_options) if name.endswith("Option")}
    used = {key[-1] for variants in _definitions().values() for key in variants}
    assert shared <= used


def test_machines_are_divided_by_commas_or_by_repeating_the_option(perfmodel, tmp_path) -> None:
    by_commas = perfmodel(*ANALYZE, "--on", "h100, h200", "--format", "json")
    repeated = perfmodel(*ANALYZE, "--on", "h100", "--on", "h200", "--on", "h100", "--format", "json")
    assert by_commas.code == repeated.code == 0
    rows = json.loads(by_commas.out)["rows"]
    assert rows == json.loads(repeated.out)["rows"]
    assert len(rows) == 3
    spec = tmp_path / "mine, too.toml"
    assert _options.machine_names([str(spec)]) == [str(tmp_path / "mine"), "too.toml"]
    spec.touch()
    assert _options.machine_names([str(spec), "h100"]) == [str(spec), "h100"]
    with pytest.raises(UsageError, match=r"^--on: 'h100,,' has an empty item\. Write h100, or add what is missing\.$"):
        _options.machine_names(["h100,,"])
    assert _options.machine_names(None) is None

"""`perfmodel compare`: the contract of its output, its gate, what it refuses, and two runs of the same code."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re

import pytest

from perfmodel.comparison.drift import _BUSY_DRIFT, _DRIFT

KEYS = ["op", "name", "before_s", "after_s", "change", "low", "high", "verdict"]


def record(factor=1.0, rows=("a", "b"), device=None, **changes):
    """A record of exact medians: 1 ms for each row, times a factor for the first."""
    made = []
    for index, name in enumerate(rows):
        time_s = 1e-3 * (factor if index == 0 else 1.0)
        statistics = {"median": time_s, "median_low": 0.999 * time_s, "median_high": 1.001 * time_s, "samples": 100}
        made.append(
            {"op": "gemm", "name": name, "dimensions": "m=64", "dtype": "fp16", "kernel": "torch.matmul"}
            | {"cache": "cold", "timing": "kernel", "hardware": "h", "status": "ok", "time_s": statistics}
            | changes
        )
    context = {"perfmodel": "0.1.0", "device": {"kind": "cuda", "name": "A GPU", "driver": "580"} | (device or {})}
    return {"schema_version": 2, "command": "bench", "context": context, "rows": made}


@pytest.fixture
def written(tmp_path):
    def write(name, document):
        path = tmp_path / name
        path.write_text(json.dumps(document))
        return path

    return write


def test_json_rows_have_the_keys_of_the_contract(perfmodel, written):
    ran = perfmodel("compare", written("a.json", record()), written("b.json", record(1.1)), "--format", "json")
    assert ran.code == 0
    assert (ran.json["schema_version"], ran.json["command"]) == (2, "compare")
    assert [list(row)[:8] for row in ran.json["rows"]] == [KEYS] * 2
    slower, same = ran.json["rows"]
    assert (slower["verdict"], same["verdict"]) == ("slower", "same")
    assert slower["change"] == pytest.approx(0.1)
    assert 0 < slower["low"] < 0.1 < slower["high"]
    assert (slower["kernel"], slower["dimensions"], slower["dtype"]) == ("torch.matmul", "m=64", "fp16")
    # exp((ln 1.1 + ln 1) / 2) = sqrt(1.1)
    assert ran.json["summary"][0]["ratio"] == pytest.approx(1.1**0.5)


def test_the_help_states_the_drift_that_is_assumed(perfmodel, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    shown = " ".join(perfmodel("compare", "--help").out.split())
    (gpu, cpu), (busy_gpu, busy_cpu) = ([f"{100 * table[kind]:g}%" for kind in ("cuda", "cpu")]
                                        for table in (_DRIFT, _BUSY_DRIFT))  # fmt: skip
    assert f"else {gpu} for a GPU and {cpu} for a CPU, and {busy_gpu} and {busy_cpu} where" in shown


def test_an_interval_that_says_nothing_is_no_number_of_twenty_digits(perfmodel, written):
    """One row of two has an interval of 30 medians: neither it nor the whole can be told."""
    document = record()
    document["rows"][1]["time_s"] |= {"median_low": 1e-6, "median_high": 30e-3}
    ran = perfmodel("compare", written("a.json", document), written("b.json", document), "--all")
    text = " ".join(ran.out.split())
    assert "to more than 1000x): same" in text
    assert re.search(r"Slowdowns from [\d.]+ % to more than 1000x, by row, are detected", text)
    assert not re.search(r"\d{7}", text)


def test_large_factors_are_no_percentages_and_ends_that_say_nothing_no_powers_of_ten(perfmodel, written):
    """One row takes 200 times as long; of the other, three samples lie within a microsecond and 30 ms."""
    document, after = record(), record(200.0)
    for one in (document, after):
        one["rows"][1]["time_s"] |= {"median_low": 1e-6, "median_high": 30e-3, "samples": 3}
    text = perfmodel("compare", written("a.json", document), written("b.json", after)).out
    assert re.search(r"\b200x +slower", text)
    assert re.search(r"all rows +2 +14.14 +< 0.001 +> 1000 +unclear", text)  # sqrt(200 x 1)
    assert "less than 0.001x to more than 1000x" in " ".join(text.split())
    assert not re.search(r"\de[+-]\d", text)


def test_tables_show_what_changed_and_csv_every_row(perfmodel, written):
    a, b = written("a.json", record()), written("b.json", record(1.1))
    ran = perfmodel("compare", a, b)
    assert "+10.0 %" in ran.out
    assert "1 slower, 1 same" in " ".join(ran.out.split())
    assert "Rows that did not change: 1; compare --all lists them." in ran.out
    assert len(list(csv.DictReader(io.StringIO(perfmodel("compare", a, b, "-f", "csv").out)))) == 2
    assert perfmodel("compare", a, b, "--all", "-f", "markdown").out.count("torch.matmul") == 2


@pytest.mark.parametrize(
    ("factor", "limit", "code"), [(1.1, "5%", 1), (1.1, "0.05", 1), (1.1, "15%", 0), (0.9, "5%", 0)]
)
def test_the_gate_fails_beyond_the_limit(perfmodel, written, factor, limit, code):
    ran = perfmodel("compare", written("a.json", record()), written("b.json", record(factor)), "--fail-on", limit)
    assert ran.code == code
    assert ("a m=64 fp16 torch.matmul: slower by +10.0 %" in ran.err) == bool(code)


def test_a_slowdown_within_its_interval_passes_the_gate(perfmodel, written):
    a, b = written("a.json", record()), written("b.json", record(1.1))
    assert perfmodel("compare", a, b, "--fail-on", "5%", "--drift", "5%").code == 0


def test_a_kernel_that_gives_wrong_results_by_now_fails_the_gate(perfmodel, written):
    broken = record()
    broken["rows"][1] |= {"status": "wrong", "reason": "off by 3", "time_s": None}
    a, b = written("a.json", record()), written("b.json", broken)
    assert perfmodel("compare", a, b).code == 0
    ran = perfmodel("compare", a, b, "--fail-on", "5%")
    assert ran.code == 1
    assert "had a time before, now wrong: off by 3." in ran.err


def test_a_record_is_the_same_as_itself(perfmodel, written):
    a = written("a.json", record())
    ran = perfmodel("compare", a, a, "--fail-on", "1%", "-f", "json")
    assert ran.code == 0
    assert {row["verdict"] for row in ran.json["rows"]} == {"same"}
    assert "all times are equal, as in a record and its copy" in " ".join(perfmodel("compare", a, a).out.split())


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (record(device={"name": "Another GPU"}), "device"),
        (record(dtype="fp8"), "dtype"),
        (record(cache="warm"), "cache"),
        (record(timing="graph"), "timing"),
    ],
)
def test_what_was_measured_in_another_way_is_refused_unless_asked_for(perfmodel, written, other, what):
    a, b = written("a.json", record()), written("b.json", other)
    ran = perfmodel("compare", a, b)
    assert ran.code == 2
    assert f"{what}: " in ran.err
    assert f"--across {what}" in ran.err
    for name in (what, "all"):
        ran = perfmodel("compare", a, b, "--across", name, "-f", "json")
        assert ran.code == 0
        assert " -> " in ran.json["rows"][0][what]


def test_other_versions_are_a_note(perfmodel, written):
    ran = perfmodel("compare", written("a.json", record()), written("b.json", record(device={"driver": "590"})))
    assert ran.code == 0
    assert "The records differ in driver: 580 before, 590 after." in ran.out


def test_rows_of_one_side_are_listed(perfmodel, written):
    a, b = written("a.json", record(rows=("a", "b"))), written("b.json", record(rows=("b", "c")))
    ran = perfmodel("compare", a, b)
    assert "Only before (1): a m=64 fp16 torch.matmul." in ran.out
    assert "Only after (1): c m=64 fp16 torch.matmul." in ran.out
    ran = perfmodel("compare", a, written("d.json", record(rows=("d",))))
    assert ran.code == 3
    assert "the records have no row in common" in ran.err


def test_a_copy_of_a_record_is_no_repeat_of_it(perfmodel, written):
    """Two equal runs drift by nothing, so that any difference would count as a change."""
    before, copy, after = written("a.json", record()), written("copy.json", record()), written("b.json", record(1.02))
    for repeats, message in (
        (("--repeat-before", before), "a.json: is named twice, which is no repeat"),
        (("--repeat-before", copy), f"copy.json: is a copy of {before}, which is no repeat"),
    ):
        ran = perfmodel("compare", before, after, *repeats)
        assert (ran.code, message in ran.err) == (3, True), ran.err
    assert perfmodel("compare", before, copy).code == 0, "both sides may be equal"


def test_repeats_are_read_for_each_side(perfmodel, written):
    files = [written(f"{index}.json", record(factor)) for index, factor in enumerate((1.0, 1.2, 1.1, 0.95))]
    ran = perfmodel(
        "compare", files[0], files[2], "--repeat-before", files[1], "--repeat-after", files[3], "-f", "json"
    )
    assert "from repeats" in ran.json["context"]["drift"]
    assert ran.json["rows"][0]["before_samples"] == 200
    assert not {row["verdict"] for row in ran.json["rows"]} & {"slower", "faster"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--fail-on", "5"), "Write 5% for per cent"),
        (("--fail-on", "much"), "Write 5% or 0.05"),
        (("--threshold", "-1%"), "Write 5% or 0.05"),
        (("--across", "dytpe"), "Did you mean 'dtype'?"),
        (("--plot", "x.gif"), ".gif"),
        (("-o", "no/such/folder/x.json"), "folder"),
    ],
)
def test_wrong_options_are_a_wrong_usage(perfmodel, written, options, said):
    a = written("a.json", record())
    ran = perfmodel("compare", a, a, *options)
    assert ran.code == 2
    assert said in ran.err


def test_a_file_that_is_no_record_is_named(perfmodel, written, tmp_path):
    ran = perfmodel("compare", written("a.json", record()), tmp_path / "none.json")
    assert ran.code == 3
    assert "none.json: no such file" in ran.err


def test_a_plot_is_drawn(perfmodel, written, tmp_path):
    out = tmp_path / "plot.svg"
    ran = perfmodel("compare", written("a.json", record()), written("b.json", record(1.1)), "--plot", out)
    assert (ran.code, ran.err) == (0, f"wrote {out}\n")
    assert out.stat().st_size > 1000


def test_two_runs_of_the_same_code_on_this_cpu_have_not_changed(perfmodel, tmp_path):
    pytest.importorskip("torch")
    ops = ("layer_norm", "rows=16", "cols=64", "softmax", "rows=16", "cols=64")
    how = ("--device", "cpu", "--on", "a100-sxm4-80gb", "--kernel", "naive", "--cache", "warm", "--time-limit", "2")
    files = [tmp_path / f"{side}{repeat}.json" for repeat in range(2) for side in "ab"]
    for path in files:  # in turn, so that whatever else the machine does disturbs both sides alike
        assert perfmodel("bench", *ops, *how, "--min-time", "0.02", "--samples", "-o", path).code == 0
    # A machine that others use may run at half its speed for a while: only what is beyond that can be asked for.
    sides = (files[0], files[1], "--repeat-before", files[2], "--repeat-after", files[3])
    gate = ("--threshold", "100%", "--fail-on", "100%")
    ran = perfmodel("compare", *sides, *gate, "-f", "json")
    assert ran.code == 0
    assert not {row["verdict"] for row in ran.json["rows"]} & {"slower", "faster"}
    slow = json.loads(files[1].read_text())
    for row in slow["rows"]:
        row["samples_s"] = [20 * value for value in row["samples_s"]]
    files[1].write_text(json.dumps(slow))
    assert perfmodel("compare", *sides[:2], *gate).code == 1


def _hyperfine(path, *times_s, **more):
    path.write_text(json.dumps({"results": [{"command": "x", "times": times_s, **more}]}))
    return path


@pytest.mark.parametrize(
    "record",
    [
        {"times": [1e308, 1.7e308, 1e308]},
        {"times": [1e-308, 1e-320, 1e-300]},
        {"median": 1e308, "stddev": 1e300},
        {"mean": 1e-300},
    ],
    ids=str,
)
def test_a_time_that_nothing_takes_is_a_wrong_file(perfmodel, tmp_path, record):
    good, bad = _hyperfine(tmp_path / "good.json", 1.0, 1.1, 1.0), tmp_path / "bad.json"
    bad.write_text(json.dumps({"results": [{"command": "x", **record}]}))
    for sides in ((good, bad), (bad, good), (bad, bad)):
        ran = perfmodel("compare", *sides)
        assert ran.code == 3, ran.err
        assert "bad.json: a time of " in ran.err
        assert "is not between 1e-15 and 1e+12 s" in ran.err


def test_the_widest_believable_scatter_overflows_nowhere(perfmodel, tmp_path):
    short, long = (_hyperfine(tmp_path / f"{t:g}.json", t, t, t) for t in (1e-15, 1e12))
    wild = _hyperfine(tmp_path / "wild.json", 1e-15, 1e12, 1e-15, 1e12)
    spread = _hyperfine(tmp_path / "spread.json", median=1.0, mean=1.0, stddev=1e308)
    for sides in itertools.permutations((short, long, wild, spread), 2):
        for repeats in ((), ("--repeat-before", sides[1], "--repeat-after", sides[0])):
            ran = perfmodel("compare", *sides, *repeats, "--format", "json")
            assert ran.code == 0, ran.err
            numbers = [value for row in ran.json["rows"] for value in row.values() if isinstance(value, float)]
            assert all(map(math.isfinite, numbers))
    assert perfmodel("compare", short, long, "--drift", "1e300").code in (0, 2)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("trace.json", '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}]}'),
        ("sums.csv", "Time (%),Total Time (ns),Instances,Name\n100.0,3000,3,f\n"),
    ],
)
def test_profiles_are_told_what_compares_them(perfmodel, tmp_path, name, text):
    good, profile = _hyperfine(tmp_path / "good.json", 1.0, 1.1, 1.0), tmp_path / name
    profile.write_text(text)
    for sides in ((profile, profile), (good, profile)):
        ran = perfmodel("compare", *sides)
        assert ran.code == 3
        assert f"{name}: is a profile (" in ran.err
        assert "perfmodel diagnose BEFORE --against AFTER" in ran.err
    # a file of no kind keeps its message
    (tmp_path / "other.json").write_text("{}")
    assert "is not a benchmark record" in perfmodel("compare", good, tmp_path / "other.json").err

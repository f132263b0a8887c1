"""`perfmodel diagnose --against` and `--plot`: which side is which, every format, and what is refused."""

from __future__ import annotations

import csv
import io

import pytest

BEFORE = "name,time_ms,calls\nvolta_sgemm,60,10\nsoftmax_kernel,30,10\nrelu_kernel,10,10\n"
AFTER = "name,time_ms,calls\nvolta_sgemm,20,10\nsoftmax_kernel,30,10\nflash_attention,10,10\n"


@pytest.fixture
def pair(tmp_path):
    before, after = tmp_path / "before.csv", tmp_path / "after.csv"
    before.write_text(BEFORE)
    after.write_text(AFTER)
    return before, after


def test_json_says_what_changed(perfmodel, pair):
    before, after = pair
    ran = perfmodel("diagnose", before, "--against", after, "--format", "json")
    assert ran.code == 0
    assert ran.json["command"] == "diagnose"
    assert (ran.json["context"]["before"], ran.json["context"]["after"]) == (str(before), str(after))
    compute = next(row for row in ran.json["rows"] if row["dimension"] == "compute")
    assert list(compute) == ["dimension", "before_s", "after_s", "change_s", "change", "share"]
    # 60 ms -> 20 + 10 ms of 100 ms
    assert (compute["before_s"], compute["after_s"]) == (pytest.approx(0.06), pytest.approx(0.03))
    assert compute["share"] == pytest.approx(-0.3)
    summary = ran.json["summary"][0]
    assert (summary["per"], summary["speedup"]) == ("run", pytest.approx(100 / 60))
    assert {row["name"]: row["status"] for row in ran.json["entries"]} == {
        "volta_sgemm": "both",
        "softmax_kernel": "both",
        "relu_kernel": "vanished",
        "flash_attention": "appeared",
    }


def test_the_other_way_round_is_the_other_way_round(perfmodel, pair):
    before, after = pair
    ran = perfmodel("diagnose", after, "--against", before, "--format", "json")
    assert ran.json["summary"][0]["speedup"] == pytest.approx(0.6)


def test_csv_rows_have_full_precision(perfmodel, pair):
    ran = perfmodel("diagnose", pair[0], "--against", pair[1], "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert sum(float(row["share"]) for row in rows) == pytest.approx(-0.4)


@pytest.mark.parametrize("kind", ["table", "markdown"])
def test_people_see_which_side_is_which(perfmodel, pair, kind):
    ran = perfmodel("diagnose", pair[0], "--against", pair[1], "--format", kind)
    assert ran.code == 0
    assert "(before)" in ran.out
    assert "1.67x as fast" in ran.out


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_both_are_drawn_into_one_figure(perfmodel, pair, tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    ran = perfmodel("diagnose", pair[0], "--against", pair[1], "--plot", path)
    assert ran.code == 0
    assert f"wrote {path}" in ran.err
    assert path.stat().st_size > 1000


def test_a_table_alone_is_drawn_without_a_time_line(perfmodel, pair, tmp_path):
    path = tmp_path / "a.svg"
    assert perfmodel("diagnose", pair[0], "--plot", path).code == 0
    assert "<svg" in path.read_text()


def test_a_trace_is_not_compared_with_a_table(perfmodel, pair, data_dir):
    trace = data_dir / "traces" / "tracelens_h100_bert-small.json.gz"
    ran = perfmodel("diagnose", trace, "--against", pair[1])
    assert ran.code == 2
    assert "has only sums" in ran.err


def test_a_plan_is_of_one_profile(perfmodel, pair, tmp_path):
    ran = perfmodel("diagnose", pair[0], "--against", pair[1], "--plan-output", tmp_path / "plan.toml")
    assert ran.code == 2
    assert "--plan-output" in ran.err


def test_a_missing_second_file_is_named(perfmodel, pair, tmp_path):
    ran = perfmodel("diagnose", pair[0], "--against", tmp_path / "none.csv")
    assert ran.code == 3
    assert "none.csv" in ran.err

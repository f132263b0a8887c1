"""The list of operators, and the dimensions of one."""

from __future__ import annotations

import pytest

from perfmodel.operators import operator_names


def test_every_operator_is_listed_with_its_dimensions(perfmodel):
    rows = perfmodel("operators", "--format", "json").json["rows"]
    assert [row["op"] for row in rows] == list(operator_names())
    gemm = next(row for row in rows if row["op"] == "gemm")
    assert gemm["dimensions"].startswith("m n k ")
    assert "batch=1" in gemm["dimensions"].split()
    assert all(row["summary"] for row in rows)


def test_the_dimensions_of_one_say_what_has_to_be_given(perfmodel):
    rows = {row["name"]: row for row in perfmodel("operators", "attention", "--format", "json").json["rows"]}
    assert rows["seq_q"]["required"]
    assert (rows["batch"]["default"], rows["batch"]["required"]) == ("1", False)
    assert "unfused" in rows["algorithm"]["allowed"]
    assert all(row["meaning"] for row in rows.values())


@pytest.mark.parametrize("word", ["rms-norm", "RMS_norm"])
def test_an_operator_is_spelled_as_for_analyze(perfmodel, word):
    assert perfmodel("operators", word).out == perfmodel("operators", "rms_norm").out


def test_a_misspelt_operator_gets_the_nearest(perfmodel):
    ran = perfmodel("operators", "atention")
    assert ran.code == 2
    assert "Did you mean 'attention'?" in ran.err


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_the_help_of_analyze_lists_them_too(perfmodel, option):
    ran = perfmodel("analyze", option)
    assert ran.code == 0
    assert "gemm: m n k" in " ".join(ran.out.split())
    assert "rms_norm: rows cols" in " ".join(ran.out.split())

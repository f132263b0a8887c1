"""The list of models, and what an unknown name is told."""

from __future__ import annotations

import pytest

import perfmodel as pm
from perfmodel.workloads.catalog import model_names


def test_every_model_is_listed_with_its_sizes(perfmodel):
    rows = perfmodel("models", "--format", "json").json["rows"]
    assert [row["name"] for row in rows] == list(model_names())
    mixtral = next(row for row in rows if row["name"] == "mixtral-8x7b")
    assert mixtral["parameters"] == pm.find_model("mixtral-8x7b").parameters
    assert mixtral["active_parameters"] < mixtral["parameters"]
    assert mixtral["experts"] == 8
    assert all(row["active_parameters"] == row["parameters"] for row in rows if not row["experts"])


def test_words_choose_among_them(perfmodel):
    rows = perfmodel("models", "qwen3", "B", "--format", "json").json["rows"]
    assert rows
    assert all("qwen3" in row["name"] and "b" in row["name"] for row in rows)
    ran = perfmodel("models", "qwen3", "nothing")
    assert ran.code == 2
    assert "perfmodel models lists all" in ran.err


@pytest.mark.parametrize("name", ["qwen", "Qwen/Qwen9-8B", "phi", "yi", "starcoder9", "t5"])
def test_an_unknown_name_gets_those_of_its_family(perfmodel, name):
    ran = perfmodel("train", name, "--on", "h100")
    assert ran.code == 2
    family = name.lower().rpartition("/")[2].rstrip("9-8b5")
    alike = [one for one in model_names() if one.startswith(family)]
    assert alike
    assert all(one in ran.err for one in alike)
    assert f"perfmodel models lists all {len(model_names())}" in ran.err
    assert "..." not in ran.err


def test_words_of_another_name_find_the_model_that_it_stands_for(perfmodel):
    shown = perfmodel("models", "codestral-22b")
    assert shown.out.splitlines()[2].split()[:2] == ["mistral-small-22b", "codestral-22b"]
    (row,) = perfmodel("models", "codestral-22b", "--format", "json").json["rows"]
    assert (row["asked_as"], "codestral-22b-v0.1" in row["aliases"]) == ("codestral-22b", True)
    (own,) = perfmodel("models", "mistral-small-22b", "--format", "json").json["rows"]
    assert own["asked_as"] == ""
    assert "also" not in perfmodel("models", "mistral-small-22b").out


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B-Instruct", "unsloth/Llama-3.2-3B-Instruct-bnb-4bit"])
def test_every_name_that_train_takes_is_shown(perfmodel, name):
    (row,) = perfmodel("models", name, "--format", "json").json["rows"]
    assert (row["asked_as"], row["name"]) == (name, pm.find_model(name).name)
    assert row["parameters"] == pm.find_model(name).parameters


def test_a_misspelt_name_hears_the_nearest(perfmodel):
    ran = perfmodel("models", "qwn3-8b")
    assert (ran.code, ran.out) == (2, "")
    assert "Did you mean 'qwen3-8b'?" in ran.err

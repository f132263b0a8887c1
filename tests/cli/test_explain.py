"""`perfmodel analyze --explain`, and the views of time that it can be asked for."""

from __future__ import annotations

import pytest

NORM = ("elementwise", "numel=1000000", "--on", "v100-pcie-32gb")


def test_the_terms_stand_below_the_predictions(perfmodel):
    ran = perfmodel("analyze", *NORM, "--explain")
    assert ran.code == 0
    assert "What the predicted times are the sum of" in ran.out
    assert "traffic to device memory" in ran.out
    assert "traffic to device memory" not in perfmodel("analyze", *NORM).out


def test_json_has_the_terms_under_their_own_key_and_they_add_up(perfmodel):
    document = perfmodel("analyze", *NORM, "--explain", "--format", "json").json
    (row,) = document["rows"]
    assert sum(term["time_s"] for term in document["terms"]) == pytest.approx(row["predicted_time_s"], rel=5e-3)
    keys = {"op", "name", "dimensions", "dtype", "hardware", "term", "time_s", "share", "alone_time_s", "meaning"}
    assert all(set(term) == keys for term in document["terms"])
    assert "terms" not in perfmodel("analyze", *NORM, "--format", "json").json


def test_events_round_a_call_see_the_host_too(perfmodel):
    kernel, event = (
        perfmodel("analyze", *NORM, "--timing", timing, "--cache", "warm", "--library", "torch", "-f", "json").json
        for timing in ("kernel", "event")
    )
    assert event["context"] | {"timing": "event", "cache": "warm", "library": "torch"} == event["context"]
    assert kernel["rows"][0]["timing"] == "kernel"
    assert event["rows"][0]["predicted_time_s"] > kernel["rows"][0]["predicted_time_s"]
    assert "host" in event["rows"][0]["predicted_terms_s"]
    assert "host" not in kernel["rows"][0]["predicted_terms_s"]


@pytest.mark.parametrize("option", [("--timing", "graph"), ("--cache", "hot")])
def test_unknown_views_are_wrong_usage(perfmodel, option):
    ran = perfmodel("analyze", *NORM, *option)
    assert (ran.code, ran.out) == (2, "")
    assert f"unknown {option[0][2:]} {option[1]!r}" in ran.err


def test_the_plot_of_an_explanation_is_of_its_terms(perfmodel, tmp_path):
    for options, text in (((), "FLOP/B"), (("--explain",), "time of one call")):
        path = tmp_path / "p.svg"
        ran = perfmodel("analyze", *NORM, *options, "--plot", path)
        assert ran.code == 0
        assert text in path.read_text()

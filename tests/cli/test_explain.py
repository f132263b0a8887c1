"""`perfmodel analyze --explain`, and the conditions that a time may be predicted for."""

from __future__ import annotations

import pytest

NORM = ("elementwise", "numel=1000000", "--on", "v100-pcie-32gb")


def test_the_terms_stand_below_the_predictions(perfmodel):
    ran = perfmodel("analyze", *NORM, "--explain")
    assert ran.code == 0
    assert "Terms that add up to the predicted times" in ran.out
    assert "hbm: traffic to device memory." in ran.out
    assert "Terms that add up" not in perfmodel("analyze", *NORM).out


def test_json_has_the_terms_under_their_own_key_and_they_add_up(perfmodel):
    document = perfmodel("analyze", *NORM, "--explain", "--format", "json").json
    (row,) = document["rows"]
    assert sum(term["time_s"] for term in document["terms"]) == pytest.approx(row["predicted_time_s"], rel=1e-12)
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


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--timing", "grph"), "--timing: unknown timing 'grph'. Did you mean 'graph'?"),
        (("--cache", "hot"), "--cache: unknown cache state 'hot'. Allowed: cold, rotating, warm."),
    ],
)
def test_unknown_conditions_are_wrong_usage(perfmodel, option, message):
    ran = perfmodel("analyze", *NORM, *option)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_a_share_of_a_replayed_graph_has_no_dispatch(perfmodel):
    kernel, graph = (
        perfmodel("analyze", *NORM, "--timing", timing, "-f", "json").json["rows"][0] for timing in ("kernel", "graph")
    )
    assert (graph["timing"], graph["predicted_time_s"]) == ("graph", kernel["predicted_time_s"])


def test_the_plot_of_an_explanation_is_of_its_terms(perfmodel, tmp_path):
    for options, text in (((), "FLOP/B"), (("--explain",), "time of one call")):
        path = tmp_path / "p.svg"
        ran = perfmodel("analyze", *NORM, *options, "--plot", path)
        assert ran.code == 0
        assert text in path.read_text()

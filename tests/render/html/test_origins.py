"""How numbers are made: each formula of the page gives the number when it is computed from the inputs listed there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perfmodel as pm
from perfmodel.core.report import report
from perfmodel.investment.amdahl import amdahl_speedup, roi_per_day
from perfmodel.render.html.origins import origins_of
from perfmodel.render.html.tables import table_view
from perfmodel.training.step_rows import row_of

H100 = pm.hardware("h100")


def points() -> dict[str, Any]:
    prediction = pm.predict(pm.Gemm(m=4096, n=4096, k=4096, dtype="bf16"), H100)
    return dict(report([prediction]).rows[0])


FORMULAS: dict[str, Callable[[dict[str, Any]], float]] = {
    "bound_time_s": lambda row: max(
        row["flop"] / H100.best_peak("bf16").flop_per_s,
        (row["bytes_read"] + row["bytes_written"]) / H100.main_memory.bandwidth_bytes_per_s,
        H100.launch.floor_s or 0.0,
    ),
    "predicted_time_s": lambda row: sum(row["predicted_terms_s"].values()),
    "arithmetic_intensity_flop_per_byte": lambda row: row["flop"] / (row["bytes_read"] + row["bytes_written"]),
    "attainable_flop_per_s": lambda row: row["flop"] / row["bound_time_s"],
    "predicted_flop_per_s": lambda row: row["flop"] / row["predicted_time_s"],
}


@pytest.mark.parametrize("key", FORMULAS)
def test_an_operators_number_follows_from_its_inputs(key: str) -> None:
    row = points()
    assert FORMULAS[key](row) == pytest.approx(row[key])
    origin = origins_of("analyze", set(row))[key]
    assert origin["formula"]
    assert set(origin["inputs"]) <= set(row)


def test_numbers_of_a_projection_follow_from_their_inputs(perfmodel) -> None:
    examples = Path(__file__).parents[3] / "examples"
    line = ("project", examples / "profile_gpt2.csv", "--from", "a100-sxm4-40gb", "--to", "h100", "--format", "json")
    for row in perfmodel(*line).json["rows"]:
        assert row["time_s"] / row["projected_time_s"] == pytest.approx(row["speedup"])
        assert origins_of("project", set(row)).keys() == {"projected_time_s", "speedup"}
        if row["basis"] == "ratio of the peaks":
            ratio = pm.hardware("a100-sxm4-40gb").best_peak("fp16").flop_per_s / H100.best_peak("fp16").flop_per_s
            assert row["projected_time_s"] == pytest.approx(ratio * row["time_s"], rel=0.01)


def test_shares_of_an_interval_add_up_to_one() -> None:
    row = points()
    assert sum(row["interval_shares"].values()) == pytest.approx(1.0)
    assert origins_of("analyze", set(row))["predicted_time_low_s"]["terms"] == "interval_shares"


def test_numbers_of_a_training_step_follow_from_their_inputs() -> None:
    step = pm.train("llama-3.1-8b", pm.Cluster("h100", gpus=8), pm.TrainingPlan(tp=2, pp=2, batch=16, seq=4096))
    row = row_of(step)
    assert sum(row["terms_s"].values()) == pytest.approx(row["time_s"])
    assert sum(row["memory_bytes"].values()) == pytest.approx(row["memory_total_bytes"])
    peak = H100.best_peak("bf16").flop_per_s
    assert row["flop"] / (row["time_s"] * row["gpus"] * peak) == pytest.approx(row["mfu"])
    assert row["batch"] * row["seq"] / (row["time_s"] * row["gpus"]) == pytest.approx(row["tokens_per_s_per_gpu"])
    origins = origins_of("train", set(row))
    assert {"time_s", "mfu", "hfu", "memory_total_bytes"} <= set(origins)
    assert origins["time_s"]["terms"] == "terms_s"


def test_the_words_for_amdahls_law_are_its_formula() -> None:
    assert pytest.approx(amdahl_speedup(0.24, 3.0)) == 1 / ((1 - 0.24) + 0.24 / 3)
    assert pytest.approx(roi_per_day(1.19, 2.0)) == (1.19 - 1) / 2
    assert "1 / ((1 - p) + p / s)" in origins_of("roi", {"overall_speedup"})["overall_speedup"]["formula"]


def test_a_table_carries_what_its_numbers_are_made_of() -> None:
    view = table_view(report([pm.predict(pm.Gemm(m=64, n=64, k=64, dtype="bf16"), H100)]))
    columns = {column["key"]: (at, column) for at, column in enumerate(view["columns"])}
    at, column = columns["predicted_time_s"]
    terms = view["rows"][0][columns["predicted_terms_s"][0]]
    assert column["origin"]["terms"] == "predicted_terms_s"
    assert sum(terms.values()) == pytest.approx(view["rows"][0][at])
    assert set(terms) - {"launch"} <= set(view["meanings"]) | {"launch"}
    assert columns["op"][1]["origin"] is None

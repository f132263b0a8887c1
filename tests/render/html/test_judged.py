"""Drawings of errors and changes: they have what the tables say, however many groups there are."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfmodel.accuracy.drawn import MOST_DRAWN, drawn_facts
from perfmodel.core.report import Column, Report
from perfmodel.render.html.inputs import json_report
from perfmodel.render.html.judged import changes, coverage, judged

EXAMPLES = Path(__file__).parents[3] / "examples"
RECORD = EXAMPLES / "records" / "h100-sxm5-80gb_2026-11-23.json.gz"


@pytest.fixture(scope="module")
def validated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """JSON of `validate` of a record."""
    from perfmodel.cli.app import run

    path = tmp_path_factory.mktemp("validated") / "v.json"
    assert run(["validate", str(RECORD), "--by", "family,dtype", "-o", str(path)]) == 0
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def test_points_are_measured_rows_and_their_groups_those_of_the_table(validated: dict[str, Any]) -> None:
    made = json_report(validated, "v.json")
    view, shares = judged(made), coverage(made)
    assert view is not None
    assert shares is not None
    (times,) = view["quantities"]
    whole = validated["rows"][-1]
    assert (times["unit"], len(times["points"]), view["left_out"]) == ("s", whole["rows"], 0)
    # every row is drawn, so that the drawing says what the table says, but for figures of four digits
    error = [abs(point["predicted"] / point["measured"] - 1.0) for point in times["points"]]
    assert np.mean(error) == pytest.approx(whole["mape"], rel=1e-3)
    stated = [point for point in times["points"] if point["low"]]
    inside = np.mean([point["low"] <= point["measured"] <= point["high"] for point in stated])
    assert inside == pytest.approx(whole["coverage_80"], abs=0.01)
    named = {group["name"]: group for group in shares["groups"]}
    assert named["all rows"]["inside"] == whole["coverage_80"]
    parts = [group for group in shares["groups"] if not group["whole"]]
    assert {group["name"] for group in parts} <= set(view["groups"])
    insides = [group["inside"] for group in parts if group["inside"] is not None]
    assert insides == sorted(insides)


@pytest.mark.parametrize("groups", [1, 300, 2000])
def test_a_sample_has_rows_of_every_group_as_far_as_there_is_room(groups: int) -> None:
    rng = np.random.default_rng(1)
    codes = np.concatenate([np.zeros(5000, dtype=int), np.arange(groups)])
    measured = rng.lognormal(size=codes.size)
    facts = drawn_facts([f"g{at}" for at in range(groups)], codes, (measured, measured, measured / 2, measured * 2))
    made = Report("validate", (Column("a"),), [], {"drawn": facts})
    view = judged(made)
    assert view is not None
    assert len(view["groups"]) == min(groups, MOST_DRAWN)
    assert sum(len(one["points"]) for one in view["quantities"]) == MOST_DRAWN
    assert view["left_out"] == codes.size - MOST_DRAWN
    assert {point["measured"] for one in view["quantities"] for point in one["points"]} <= {
        float(f"{value:.4g}") for value in measured
    }


def test_many_groups_are_the_least_covered_and_the_rest_is_counted() -> None:
    score = {"mape": 0.1, "bias": 0.0, "width_80": 1.5}
    rows = [
        {"family": f"f{at}", "hardware": "x", "rows": 10 + at, "coverage_80": at / 300, **score} for at in range(300)
    ]
    rows.append({"family": "all", "hardware": "all", "rows": 9000, "coverage_80": 0.5, **score})
    view = coverage(Report("validate", (Column("a"),), rows))
    assert view is not None
    whole, *parts = view["groups"]
    assert (whole["name"], whole["whole"], whole["rows"]) == ("all rows", True, 9000)
    assert [part["name"] for part in parts[:2]] == ["f0 x", "f1 x"]
    assert len(parts) + view["left_out"] == 300


@pytest.mark.parametrize(
    "facts",
    [
        {}, {"groups": ["a"]}, {"groups": ["a"], "quantities": ["time_s"], "group": "0", "measured": "fast"},
        {"groups": [], "quantities": [], "group": "0", "measured": "1", "predicted": "1", "low": "1", "high": "1"},
        {"groups": ["a"], "quantities": ["time_s"], "group": "0", "measured": "0", "predicted": "1", "low": "nan",
         "high": "nan"},
    ],
)  # fmt: skip
def test_facts_that_are_no_rows_draw_none(facts: dict[str, Any]) -> None:
    assert judged(Report("validate", (Column("a"),), [], {"drawn": facts})) is None


def test_rows_without_an_interval_are_drawn_without_one() -> None:
    facts = drawn_facts(["a"], np.zeros(1, dtype=int), [np.array([value]) for value in (1.0, 2.0, np.nan, np.nan)])
    view = judged(Report("validate", (Column("a"),), [], {"drawn": facts}))
    assert view is not None
    assert view["quantities"][0]["points"] == [
        {"group": 0, "measured": 1.0, "predicted": 2.0, "low": None, "high": None}
    ]


def test_changes_are_ordered_by_what_they_change_of_the_whole(perfmodel: Any, tmp_path: Path) -> None:
    before = json.loads(gzip.decompress(RECORD.read_bytes()))
    before["rows"] = [row for row in before["rows"] if isinstance(row.get("time_s"), dict)][:60]
    after = copy.deepcopy(before)
    for at, row in enumerate(after["rows"]):
        factor = 1.5 if at == 7 else 0.9
        for key, value in row["time_s"].items():
            if isinstance(value, list):
                row["time_s"][key] = [factor * one for one in value]
            elif isinstance(value, float):
                row["time_s"][key] = factor * value
        row["measured_time_s"] *= factor
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, document in zip(paths, (before, after), strict=True):
        path.write_text(json.dumps(document))
    document = perfmodel("compare", *paths, "--format", "json").json
    view = changes(json_report(document, "c.json"))
    assert view is not None
    sizes = [abs(row["after_s"] - row["before_s"]) for row in view["rows"]]
    assert sizes == sorted(sizes, reverse=True)
    assert len(view["rows"]) + view["left_out"] == len(document["rows"])
    ratios = {round(row["ratio"], 6) for row in view["rows"]}
    assert ratios <= {1.5, 0.9}
    assert view["before_s"] == pytest.approx(sum(row["before_s"] for row in document["rows"]))
    for row in view["rows"]:
        if row["low"] is not None and row["high"] is not None:
            assert row["low"] <= row["ratio"] <= row["high"]
    largest = view["rows"][0]
    assert largest["name"] in view["decision"]
    alone = {**document, "rows": document["rows"][:1]}
    assert "together" not in changes(json_report(alone, "c.json"))["decision"]  # type: ignore[index]

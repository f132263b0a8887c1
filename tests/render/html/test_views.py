"""What pages show of each kind of result: the answer first, then its drawings."""

from __future__ import annotations

import base64
import dataclasses
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.core.panel import Line, Panel
from perfmodel.core.report import Column, Report, report
from perfmodel.render.html.inputs import json_report
from perfmodel.render.html.layouts import unit_of
from perfmodel.render.html.machines import machine_figures
from perfmodel.render.html.pair import pair_view
from perfmodel.render.html.views import report_views
from perfmodel.training.study import Study
from perfmodel.training.timeline import passes_of, pipeline_timeline

EXAMPLES = Path(__file__).parents[3] / "examples"


def kinds(made: Report) -> list[str]:
    return [view["kind"] for view in report_views(made)]


def view(made: Report, kind: str) -> dict[str, Any]:
    return next(view for view in report_views(made) if view["kind"] == kind)


def unpacked(view: dict[str, Any], key: str) -> np.ndarray:
    return np.frombuffer(gzip.decompress(base64.b64decode(view["columns"][key])), dtype=view["types"][key])


def step(**sizes: Any) -> Any:
    plan = {"tp": 1, "pp": 4, "batch": 16, "seq": 2048, **sizes}
    return pm.train("llama-3.1-8b", pm.Cluster("h100", gpus=8), pm.TrainingPlan(**plan))


def test_a_training_step_has_its_pipeline_from_a_result_and_from_json() -> None:
    made = step()
    own = report(Study((made,)))
    again = json_report(own.as_json(), "train.json")
    for page in (own, again):
        assert {"heading", "terms", "pipeline", "table"} <= set(kinds(page))
        drawn = view(page, "pipeline")
        passes = pipeline_timeline(made.plan, made.micro_batches, made.stage_forward_s, made.stage_backward_s)
        assert drawn["count"] == len(passes) == 2 * 4 * made.micro_batches
        assert unpacked(drawn, "end") == pytest.approx([one.end_s for one in passes], rel=1e-6)
        assert unpacked(drawn, "backward").sum() == len(passes) / 2
        # no stage works longer than the step lasts
        assert all(0 < busy <= 1 for busy in drawn["busy"])


def test_facts_that_are_no_pipeline_draw_none() -> None:
    facts = {
        "schedule": "1f1b",
        "pp": 2,
        "vp": 1,
        "micro_batches": 4,
        "forward_s": [1.0, 1.0],
        "backward_s": [2.0, 2.0],
    }
    assert len(passes_of(facts)) == 16
    assert passes_of(facts, most=15) == ()
    for wrong in ({"pp": 3}, {"schedule": "none"}, {"forward_s": None}, {"micro_batches": "x"}, {"vp": 0}):
        assert passes_of({**facts, **wrong}) == ()


def test_a_path_has_its_steps_with_intervals(perfmodel) -> None:
    line = ("whatif", EXAMPLES / "training_plan.toml", EXAMPLES / "training_path.toml", "--format", "json")
    document = perfmodel(*line).json
    drawn = view(json_report(document, "path.json"), "path")
    assert [one["total_s"] for one in drawn["steps"]] == [row["total_time_s"] for row in document["rows"]]
    for one in drawn["steps"]:
        assert one["low_s"] < one["total_s"] < one["high_s"]
    assert drawn["begin_s"] == pytest.approx(document["context"]["total_time_s"])


def test_loads_and_deployments_have_lines_and_a_front() -> None:
    def row(users: int, tpot: float, rate: float) -> dict[str, Any]:
        times = {"mean": tpot, "mean_low": 0.9 * tpot, "mean_high": 1.1 * tpot}
        return {"deployment": "a", "hardware": "h100", "concurrency": users, "load": "concurrency", "ttft_s": times,
                "tpot_s": times, "output_tokens_per_s": rate, "tokens_per_s_per_gpu": rate, "limiter": "hbm",
                "terms_s": {"weights": tpot}}  # fmt: skip

    made = json_report({"command": "serve", "rows": [row(1, 0.01, 100.0), row(8, 0.02, 400.0)]}, "serve.json")
    assert kinds(made).count("lines") == 3
    assert view(made, "lines")["series"][0]["low"] == pytest.approx([0.009, 0.018])
    assert [(one["x"], one["y"]) for one in view(made, "front")["points"]] == [(100.0, 100.0), (50.0, 400.0)]
    heading = view(made, "heading")
    assert "8 users" in heading["decision"]
    assert heading["figures"][0]["value"] == 400.0


def test_a_sweep_is_a_line_and_other_rows_are_not() -> None:
    sizes = pm.predict(pm.Gemm(m=np.array([64, 128, 256, 512]), n=512, k=512, dtype="bf16"), "h100")
    lines = view(report([sizes]), "lines")
    assert lines["x"] == [64, 128, 256, 512]
    assert [one["name"] for one in lines["series"]] == ["bound", "expected"]
    others = [pm.predict(op, "h100") for op in (pm.Softmax(rows=64, cols=64), pm.Gemm(m=64, n=64, k=64))]
    assert "lines" not in kinds(report(others))


def test_panels_of_a_report_are_drawn_and_left_out_of_json() -> None:
    panel = Panel("Power", [0.0, 1.0], "time", "W", (Line("gpu 0", [1.0, None]),))
    made = Report("x", (Column("a"),), [{"a": 1}], panels=(panel,))
    assert view(made, "lines")["series"][0]["values"] == [1.0, None]
    assert "panels" not in made.as_json()


def test_the_changes_of_a_ranking_are_candidates(perfmodel) -> None:
    document = perfmodel(
        "roi", EXAMPLES / "profile_gpt2.csv", "--plan", EXAMPLES / "plan_gpt2.toml", "--format", "json"
    ).json
    drawn = view(json_report(document, "roi.json"), "candidates")
    assert drawn["total_s"] == document["context"]["total_time_s"]
    for candidate, row in zip(drawn["rows"], document["rows"], strict=True):
        fraction = candidate["target_time_s"] / drawn["total_s"]
        assert pm.amdahl_speedup(fraction, candidate["speedup"]) == pytest.approx(row["overall_speedup"])


def test_before_and_after_are_matched_by_name() -> None:
    def made(times: dict[str, float], machine: str) -> Report:
        rows = [{"name": name, "time_s": time, "hardware": machine} for name, time in times.items()]
        return Report("x", (Column("name"),), rows)

    changed = pair_view(made({"a": 1.0, "b": 2.0, "c": 1.0}, "h100"), made({"a": 1.0, "b": 1.0, "d": 0.5}, "h200"))
    assert changed is not None
    assert (changed["before_s"], changed["after_s"]) == (4.0, 2.5)
    assert [(row["name"], row["state"]) for row in changed["rows"]][:2] == [("b", ""), ("c", "gone")]
    assert "1.6 x faster" in changed["decision"]
    assert pair_view(made({"a": 1.0}, ""), made({"z": 1.0}, "")) is None
    assert pair_view(Report("x", (), []), Report("x", (), [])) is None


def test_figures_of_a_machine_name_their_sources() -> None:
    found = machine_figures([pm.hardware("h100")], ["gemm_bf16"])
    figures = found["machines"]["h100-sxm5-80gb"]["figures"]
    assert {"memory", "peak", "launch", "link", "latency gemm_bf16"} <= {figure["group"] for figure in figures}
    for figure in figures:
        assert found["sources"][figure["source"]]


def test_the_answer_of_a_step_that_does_not_fit_says_so() -> None:
    made = report(Study((dataclasses.replace(step(pp=1, tp=1, zero=0)),)))
    heading = view(made, "heading")
    assert "does not fit" in heading["decision"]
    assert {figure["label"] for figure in heading["figures"]} >= {"step", "MFU", "memory of a GPU"}


@pytest.mark.parametrize("rows", [1.5, None, {}, [3], [{"tokens_per_s_per_gpu": 10**400, "tpot_s": 10**400}]])
def test_rows_of_json_that_are_no_figures_leave_nothing_out_of_the_page(rows: Any) -> None:
    # found by fuzzing: rows that are no list, and integers of hundreds of digits
    made = json_report({"command": "serve", "context": {}, "rows": rows, "notes": 2.5}, "file.json")
    assert next(view["kind"] for view in report_views(made)) == "heading"


def test_a_change_that_leaves_nothing_of_its_targets_is_taken_out_whole() -> None:
    rows = [{"name": "remove", "time_s": 0.5, "local_speedup": None, "time_saved_s": 0.5, "targets": ["a"]}]
    made = Report("roi", (Column("name"),), rows, {"total_time_s": 1.0})
    assert [row["speedup"] for row in view(made, "candidates")["rows"]] == [None]


def test_numbers_of_numpy_stand_in_tables() -> None:
    made = Report("roi", (Column("name"), Column("local_speedup")), [{"name": "a", "local_speedup": np.float64(2.0)}])
    assert view(made, "table")["rows"] == [["a", 2.0]]


def test_the_ranks_of_a_job_have_a_bar_each_and_figures_of_a_step(perfmodel) -> None:
    traces = sorted((Path(__file__).parents[2] / "diagnosis" / "ranks" / "traces" / "ddp_4_slow_rank").iterdir())
    document = perfmodel("diagnose", *traces, "--format", "json").json
    made = json_report(document, "ranks.json")
    bars = view(made, "terms")["bars"]
    assert [bar["name"] for bar in bars] == [f"rank {rank}" for rank in range(4)]
    for rank, bar in enumerate(bars):
        assert bar["terms"] == {row["dimension"]: row["time_s"] for row in document["rows"] if row["rank"] == rank}
    figures = {figure["label"]: figure["value"] for figure in view(made, "heading")["figures"]}
    assert figures["a step"] == document["context"]["step_s"], "and not the time of all steps of all ranks"
    shares = [value for label, value in figures.items() if label.endswith("all ranks")]
    assert sum(shares) == pytest.approx(1.0)


def test_a_page_does_not_say_that_rows_are_left_out_which_it_has() -> None:
    rows = [{"name": str(number), "time_s": 1.0} for number in range(30)]
    made = Report("x", (Column("name"),), rows, notes=("Kept.",), people_rows=rows[:5], unlisted="25 more: --top 30.")
    assert view(made, "heading")["notes"] == ["Kept."]
    assert len(view(made, "table")["rows"]) == 30


def test_one_term_takes_and_several_take() -> None:
    def decision(name: str) -> str:
        rows = [{"plan": "dp8", "time_s": 1.0, "terms_s": {name: 0.9, "bubble": 0.1}}]
        return str(view(Report("train", (Column("plan"),), rows), "heading")["decision"])

    assert decision("host").startswith("Host takes 90 % of the step.")
    assert decision("products").startswith("Products take 90 % of the step.")


def test_set_ups_that_are_not_drawn_are_counted() -> None:
    rows = [{"plan": f"tp{n}", "time_s": 1.0, "terms_s": {"products": 1.0}} for n in range(1, 48)]
    drawn = view(Report("search train", (Column("plan"),), rows), "terms")
    assert len(drawn["bars"]) + drawn["left_out"] == 47
    assert drawn["left_out"] > 0


def test_a_projection_has_its_times_in_seconds_and_names_its_tables(perfmodel) -> None:
    line = ("project", EXAMPLES / "profile_gpt2.csv", "--from", "a100-sxm4-40gb", "--to", "h100", "--format", "json")
    document = perfmodel(*line).json
    made = json_report(document, "projected.json")
    heading = view(made, "heading")
    assert heading["units"].keys() >= {"low", "high", "total_time_s", "projected_time_s"}
    assert set(heading["units"].values()) == {"s"}
    figures = {figure["label"]: figure["value"] for figure in heading["figures"]}
    there = next(figure for figure in heading["figures"] if figure["label"] == "there")
    assert there["low"] < there["value"] < there["high"]
    drawn = view(made, "pair")
    assert (drawn["before_s"], drawn["after_s"]) == pytest.approx((figures["here"], there["value"]))
    changes = [abs(row["after_s"] - row["before_s"]) for row in drawn["rows"]]
    assert changes == sorted(changes, reverse=True)
    for table in (one for one in report_views(made) if one["kind"] == "table"):
        assert table["title"]
        assert {column["unit"] for column in table["columns"] if column["key"] in ("low", "high")} == {"s"}


def test_a_comparison_begins_with_what_to_do(perfmodel, tmp_path) -> None:
    record = EXAMPLES / "records" / "h100-sxm5-80gb_2026-11-23.json.gz"
    document = perfmodel("compare", record, record, "--format", "json", "--across", "dtype").json
    heading = view(json_report(document, "compared.json"), "heading")
    assert heading["decision"] == document["context"]["what_to_do"]
    assert "what_to_do" not in heading["context"]
    assert heading["units"]["threshold"] == "fraction"
    assert unit_of("not_modelled_share_of_bytes") == "fraction"
    figures = {figure["label"]: figure["value"] for figure in heading["figures"]}
    assert (figures["rows slower"], figures["rows faster"]) == (0, 0)
    assert figures["after / before, all rows"] == 1.0

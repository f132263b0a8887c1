"""Reports of the room: predictions one by one and together, whole models, and sweeps."""

from __future__ import annotations

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.core.report import report
from perfmodel.core.vocabulary import Limiter
from perfmodel.prediction.explain import explain, explain_intervals
from perfmodel.prediction.launching import KERNEL_GAP_S
from perfmodel.prediction.result import ROW_KEYS
from perfmodel.prediction.summary import summarize


def test_one_prediction_and_several_are_one_report(simple_gpu) -> None:
    predictions = [pm.predict(pm.Elementwise(numel=n), simple_gpu) for n in (10**3, 10**6)]
    together = report(predictions, title="two", notes=("A note.",))
    assert together.rows == [row for one in predictions for row in one.report().rows]
    assert (together.title, together.notes, together.context["hardware"]) == ("two", ("A note.",), ["simple"])


def test_a_sweep_has_a_row_for_each_point(simple_gpu) -> None:
    sizes = np.arange(1.0, 11.0)
    parts = list(pm.sweep(pm.Elementwise(numel=sizes), simple_gpu, chunk=4))
    assert [row["params"]["numel"] for row in report(parts).rows] == list(range(1, 11))


@pytest.mark.waiting
def test_a_long_sweep_makes_its_rows_when_they_are_asked_for(simple_gpu) -> None:
    sizes = np.arange(1.0, 151.0)
    sweep = pm.predict(pm.Gemm(m=sizes[:, None], n=sizes, k=512, name="swept"), simple_gpu)
    single = pm.predict(pm.Elementwise(numel=10**6), simple_gpu)
    rows = report([single, sweep]).rows
    assert not isinstance(rows, list)
    assert len(rows) == 22501
    (first,) = single.report().rows
    whole = [first, *sweep.rows()]
    assert list(rows) == whole
    assert [rows[place] for place in (0, 1, 17000, -1)] == [whole[place] for place in (0, 1, 17000, -1)]
    assert rows[22499:] == whole[22499:]
    with pytest.raises(IndexError):
        rows[22501]
    every: dict[str, set[str]] = {}
    for row in whole:
        for key, value in row.items():
            every.setdefault(key, set()).update(value if isinstance(value, dict) else ())
    assert {key: set(value) if isinstance(value, dict) else set() for key, value in rows.keys().items()} == every


def test_people_see_the_first_points_of_a_long_sweep_and_how_many_more_there_are(simple_gpu) -> None:
    sweep = pm.predict(pm.Elementwise(numel=np.arange(1.0, 1502.0)), simple_gpu)
    shown = report(sweep)
    assert (len(shown.rows), len(shown.shown_rows)) == (1501, 1000)
    assert shown.shown_rows == shown.rows[:1000]
    assert shown.shown_notes[0].startswith("501 more points;")
    terms, shares = report(explain([sweep])), report(explain_intervals([sweep]))
    for table in (terms, shares):
        assert len({row["dimensions"] for row in table.shown_rows}) == 1000
        assert len({row["dimensions"] for row in table.rows}) == 1501
    whole = report(pm.predict(pm.Elementwise(numel=np.arange(1.0, 1001.0)), simple_gpu))
    assert (len(whole.shown_rows), whole.unlisted) == (1000, "")


def test_rows_have_every_key_in_order_and_every_key_a_column(simple_gpu) -> None:
    shown = pm.predict(pm.Gemm(m=8, n=8, k=8), simple_gpu).report()
    assert tuple(shown.rows[0]) == ROW_KEYS
    assert {column.key for column in shown.columns} == set(ROW_KEYS)


def test_the_limiters_of_bound_and_prediction_are_words_of_one_vocabulary(simple_gpu) -> None:
    (row,) = pm.predict(pm.Elementwise(numel=10**7), simple_gpu).report().rows
    assert row["limiter"] == row["predicted_limiter"] == row["largest_term"] == Limiter.HBM
    (copy,) = pm.predict(pm.Memcpy(bytes=10**9), simple_gpu).report().rows
    assert (copy["limiter"], copy["predicted_limiter"], copy["largest_term"]) == ("link", "link", "pcie")


def test_the_limiter_of_a_prediction_is_that_whose_terms_add_up_to_the_most() -> None:
    # a small product, with several terms of arithmetic beside its launch
    p = pm.predict(pm.Gemm(m=300, n=300, k=1500, dtype="bf16"), pm.hardware("h100"))
    sums: dict[Limiter, float] = {}
    for term, time in p.predicted_terms_s.items():
        sums[term.limiter] = sums.get(term.limiter, 0.0) + float(time)
    assert p.predicted_limiter == max(sums, key=lambda limiter: sums[limiter])
    assert p.largest_term == max(p.predicted_terms_s, key=lambda term: p.predicted_terms_s[term])


def test_the_hardware_column_stays_where_there_are_several_machines(simple_gpu) -> None:
    op = pm.Elementwise(numel=10**6)
    both = report([pm.predict(op, machine) for machine in (simple_gpu, pm.hardware("h100"))])
    one = report([pm.predict(op, simple_gpu)])
    kept = [next(c for c in made.columns if c.key == "hardware") for made in (both, one)]
    assert (kept[0].shown, kept[0].drop) == (True, 0)
    assert not kept[1].shown


def test_explanations_of_one_point_and_of_several(simple_gpu) -> None:
    points = explain([pm.predict(pm.Elementwise(numel=np.array([1e3, 1e6])), simple_gpu)])
    assert report(points).rows == [*points[0].report().rows, *points[1].report().rows]


def test_a_whole_model_shows_its_operators_and_its_total(simple_gpu) -> None:
    model = pm.predict_model([pm.Elementwise(numel=10**9, count=3), pm.LayerNorm(rows=10**6, cols=1024)], simple_gpu)
    shown = model.report()
    assert [row["count"] for row in shown.rows] == [3, 1]
    assert sum(row["time_s"] for row in shown.rows) == pytest.approx(model.kernels_s)
    assert sum(row["share"] for row in shown.rows) == pytest.approx(1.0)
    assert shown.context["time_s"] == model.time_s
    (total,) = shown.notes
    assert total.startswith("4 calls take ")
    assert total.endswith("so that the device sets the time.")
    assert "<caption>" in model._repr_html_()


def test_a_whole_model_says_where_runs_differ_from_their_operators() -> None:
    operators = [pm.Gemm(m=2048, n=256 * n, k=1024, dtype="fp32", count=24) for n in range(2, 12)]
    varying, usual = (
        pm.predict_model(operators, name, library="torch-2.1").report() for name in ("p4", "v100-pcie-32gb")
    )
    assert len(usual.notes) == 1
    assert "most of the interval" in varying.notes[1]


def test_a_model_takes_a_machine_by_name_and_a_gap_of_ones_own() -> None:
    operators = [pm.Elementwise(numel=10**9, count=10)]
    usual, none = pm.predict_model(operators, "h100"), pm.predict_model(operators, "h100", gap_s=0.0)
    assert usual.gaps_s == pytest.approx(10 * KERNEL_GAP_S)
    assert none.gaps_s == 0.0


def test_a_result_without_a_report_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="dict has no report"):
        report({})
    with pytest.raises(TypeError, match="list has no report"):
        report([])


def test_the_release_whose_kernels_are_taken_is_said_where_they_changed() -> None:
    look_up, product = pm.Embedding(tokens=4096, vocab=32000, dim=1024), pm.Gemm(m=256, n=256, k=256, dtype="bf16")

    def said(library: str) -> list[str]:
        found = summarize([pm.predict(op, "a100-sxm4-80gb", library=library) for op in (look_up, product)])
        return [line for line in found if line.startswith("Kernels of")]

    assert said("torch") == ["Kernels of torch 2.7 and later (--library torch-2.6 has those before): embedding."]
    assert said("torch-2.6") == said("torch-2.11") == said("vllm") == said("") == []

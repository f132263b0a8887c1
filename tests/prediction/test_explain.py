"""Explanations: the terms add up to the prediction, and every term says what it is."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import perfmodel as pm
from perfmodel.core.report import report
from perfmodel.core.vocabulary import Limiter
from perfmodel.prediction.explain import explain
from perfmodel.prediction.latency.families import known_terms
from perfmodel.prediction.latency.terms import SURFACE, Term, Terms
from perfmodel.render import csv as csv_format
from perfmodel.render import markdown as markdown_format
from perfmodel.render import table as table_format

#: one of every operator with a formula of its own that every GPU can run
OPERATORS = (
    pm.Elementwise(numel=1e6),
    pm.Elementwise(numel=1e6, kind="pow"),
    pm.LayerNorm(rows=512, cols=1024),
    pm.Gemm(m=1000, n=1000, k=1000),
    pm.Gemm(m=16, n=512, k=16384, dtype="bf16"),
    pm.Memcpy(bytes=1e6),
    pm.Transpose(rows=64, cols=64),
)


@pytest.fixture(scope="module")
def a100():
    return pm.hardware("a100-sxm4-80gb")


def with_terms(prediction, terms, alone=None):
    """The prediction with other terms, of the sum that they have."""
    terms = {known_terms().get(name) or Term(name, Limiter.UNKNOWN, ""): time for name, time in terms.items()}
    estimate = dataclasses.replace(
        prediction.estimate, kept_terms=Terms(terms, alone or {}), time_s=sum(terms.values())
    )
    return dataclasses.replace(prediction, estimate=estimate)


@pytest.mark.parametrize("timing", ["kernel", "event"])
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.op)
def test_the_terms_add_up_and_each_says_what_it_is(op, timing, a100):
    prediction = pm.predict(op, a100, timing=timing)
    rows = report(explain([prediction])).rows
    assert sum(row["time_s"] for row in rows) == pytest.approx(prediction.predicted_time_s, rel=1e-12)
    assert sum(row["share"] for row in rows) == pytest.approx(1, rel=1e-12)
    assert all(row["meaning"] and row["term"] in known_terms() for row in rows)
    # a residual surface may take time off
    assert all(row["time_s"] >= 0 or row["term"] == SURFACE for row in rows)


def test_a_hidden_resource_is_listed_where_it_matters(a100):
    # math 8 us adds 8; hbm 5 us is hidden behind it; l2 alone 0.1 us is 1 % of 10 us: below notice
    made = with_terms(
        pm.predict(pm.Elementwise(numel=1e6), a100),
        {"math": 8e-6, "hbm": 0.0, "launch": 2e-6, "contention": 1e-12},
        {"math": 8e-6, "hbm": 5e-6, "l2": 1e-7},
    )
    rows = report(explain([made])).people_rows
    assert [(row["term"], row["time_s"], row["alone_time_s"]) for row in rows] == [
        ("math", 8e-6, 8e-6),
        ("launch", 2e-6, None),
        ("hbm", 0.0, 5e-6),
    ]
    assert [row["share"] for row in rows] == pytest.approx([0.8, 0.2, 0.0])
    assert rows[2]["meaning"] == "traffic to device memory (hidden)"


def test_negligible_terms_are_left_out_for_people_alone(a100):
    made = with_terms(pm.predict(pm.Elementwise(numel=1e6), a100), {"math": 8e-6, "launch": 2e-6, "contention": 1e-10})
    terms = report(explain([made]))
    assert [row["term"] for row in terms.rows] == ["math", "launch", "contention"]
    assert [row["term"] for row in terms.shown_rows] == ["math", "launch"]
    assert "contention" not in table_format.render(terms, width=200)
    assert not any(note.startswith("contention") for note in terms.notes)
    assert [row["term"] for row in terms.as_json()["rows"]] == ["math", "launch", "contention"]
    assert "contention" in csv_format.render(terms)


def test_the_largest_terms_in_a_sentence(a100):
    made = with_terms(pm.predict(pm.Elementwise(numel=1e6), a100), {"launch": 2e-6, "math": 8e-6, "hbm": 40e-6})
    (point,) = explain([made])
    assert point.largest(2) == "hbm 40 us, math 8 us"


def test_a_sweep_explains_every_point_as_its_own_call(a100):
    sizes = np.array([1e4, 1e6, 1e8])
    swept = explain([pm.predict(pm.Elementwise(numel=sizes), a100)])
    assert len(swept) == 3
    for size, point in zip(sizes, swept, strict=True):
        (alone,) = explain([pm.predict(pm.Elementwise(numel=size), a100)])
        assert point.adds == pytest.approx(alone.adds)
        assert point.row["dimensions"] == f"numel={size:.0f} kind=add"


def test_a_term_that_nobody_described_is_shown_all_the_same(a100):
    made = with_terms(pm.predict(pm.Elementwise(numel=1e6), a100), {"phase of the moon": 1e-6})
    (row,) = report(explain([made])).rows
    assert (row["term"], row["meaning"]) == ("phase of the moon", "")


def test_a_report_with_further_tables_in_every_format(a100):
    prediction = pm.predict(pm.Elementwise(numel=1e6), a100)
    terms = report(explain([prediction]))
    table = dataclasses.replace(prediction.report(), more={"terms": terms})
    assert table.as_json()["terms"] == terms.as_json()["rows"]
    assert table.as_json()["rows"] == prediction.report().as_json()["rows"]
    for text in (table_format.render(table, width=200), markdown_format.render(table), table._repr_html_()):
        assert text.index("bound") < text.index(terms.title) < text.index("traffic to device memory")
    assert csv_format.render(table) == csv_format.render(prediction.report())
    for width in (40, 80, 120):
        assert max(map(len, table_format.render(table, width=width).splitlines())) <= width

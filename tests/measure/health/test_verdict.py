"""What earlier records say of a product, and the verdict on a whole device."""

from __future__ import annotations

import pytest

from perfmodel.core.report import report
from perfmodel.measure.health.readings import Readings
from perfmodel.measure.health.verdict import Check, DeviceHealth, Reference, Verdict
from perfmodel.records.schema import Record

STREAM = {"op": "elementwise", "hardware": "h200", "dtype": "fp32", "status": "ok", "bytes_read": 2.0**28}
STREAM |= {"bytes_written": 2.0**28, "achieved_bytes_per_s": 4.2e12}
PRODUCT = {"op": "gemm", "hardware": "h200", "dtype": "bf16", "status": "ok", "achieved_flop_per_s": 780e12}


def test_the_best_rates_of_good_rows_are_the_reference():
    rows = [
        STREAM,
        STREAM | {"bytes_read": 2.0**28 - 1, "achieved_bytes_per_s": 9e12},
        STREAM | {"status": "wrong", "achieved_bytes_per_s": 8e12},
        STREAM | {"flags": "faster_than_dram", "achieved_bytes_per_s": 7e12},
        STREAM | {"achieved_bytes_per_s": 4.1e12},
        PRODUCT,
        PRODUCT | {"achieved_flop_per_s": 90e12},
        PRODUCT | {"dtype": "fp8", "status": "skipped", "achieved_flop_per_s": None},
    ]
    reference = Reference.of(Record("bench", rows), "h200.json")
    assert reference == Reference("h200.json", 4.2e12, {"bf16": 780e12})
    assert Reference.of(Record("bench", [PRODUCT]), "x").bandwidth_bytes_per_s is None


def _health(*checks):
    return DeviceHealth("A GPU", "cuda", None, Readings("cuda", facts={"driver": "1"}), checks)


@pytest.mark.parametrize(("verdict", "wrong"), [("wrong", True), ("low", False), ("not judged", False), ("ok", False)])
def test_one_wrong_figure_makes_a_device_wrong(verdict, wrong):
    assert _health(Check("compute", "x", Verdict("ok")), Check("compute", "y", Verdict(verdict))).is_wrong == wrong


@pytest.mark.parametrize(
    ("low", "high", "unit", "text"),
    [
        (1e12, 2e12, "B/s", "1 TB/s to 2 TB/s"),
        (665.0, None, "W", "at least 665 W"),
        (16.0, 16.0, "", "16"),
        (0.0, None, "fraction", "0"),
        (None, None, "", "-"),
    ],
)
def test_an_expected_range_in_words(low, high, unit, text):
    found = report(_health(Check("a", "b", Verdict.LOW, 1.0, low, high, unit, "somewhere", "why")))
    column = next(column for column in found.columns if column.heading == "expected")
    assert column.cell(found.rows[0]) == text


def test_the_report_counts_verdicts_and_names_the_source_of_each_range():
    checks = [Check("a", f"f{i}", Verdict.OK, 1.0, 0.5, 2.0, "B/s", "the datasheet") for i in range(2)]
    found = report(_health(*checks, Check("b", "g", Verdict.LOW, 665e12, unit="FLOP/s", cause="why")))
    assert found.notes == ("ok: 2, low: 1, wrong: 0, not judged: 0.", "Range of f0, f1: the datasheet.")
    assert found.context["device"] == {"kind": "cuda", "name": "A GPU", "driver": "1"}
    measured = next(column for column in found.columns if column.key == "measured")
    assert [measured.cell(row) for row in found.rows] == ["1 B/s", "1 B/s", "665 TFLOP/s"]

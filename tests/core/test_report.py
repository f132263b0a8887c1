"""Reports: what people see, what JSON says, and what a notebook shows."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from perfmodel.core.hardware import Hardware
from perfmodel.core.kernel_name import short_name
from perfmodel.core.report import Column, Report, report
from perfmodel.errors import UsageError
from perfmodel.operators.gemm import Gemm

REPORT = Report(
    "analyze",
    (Column("name"), Column("time_s", "time", "s"), Column("share", unit="fraction"), Column("hidden", shown=False)),
    [{"name": "a<b", "time_s": 1e-3, "share": 0.5, "hidden": 1, "extra": math.inf}, {"name": "c", "time_s": math.nan}],
    {"version": "1"},
    notes=("A note.",),
    title="Title",
)


def test_json_has_every_key_and_null_for_what_is_no_number() -> None:
    document = REPORT.as_json()
    assert list(document)[:4] == ["schema_version", "command", "context", "rows"]
    assert document["schema_version"] == 2
    assert document["rows"][0] == {"name": "a<b", "time_s": 1e-3, "share": 0.5, "hidden": 1, "extra": None}
    assert document["rows"][1]["time_s"] is None


def test_cells_for_people() -> None:
    assert Column("x", unit="s").text(1.5e-6) == "1.5 us"
    assert Column("x", unit="fraction").text(0.926) == "92.6 %"
    assert Column("x").text(None) == "-"
    assert Column("x").text(True) == "yes"
    assert Column("x").text({"fp16": 1.0, "fp32": 2}) == "fp16=1 fp32=2"
    assert Column("x").text(["a", "b"]) == "a, b"
    assert Column("x").text(1234567) == "1234567"
    assert Column("x").text(0.25) == "0.25"
    assert Column("x", unit="FLOP/B").text(0.25) == "0.25 FLOP/B"


def test_a_column_is_a_cell_of_every_table_unless_it_says_otherwise() -> None:
    column = Column("time_s")
    assert (column.shown, column.prose, column.merge, column.drop) == (True, False, False, 0)
    assert column.heading == "time s"
    assert replace(column, unit="s").heading == "time"


def test_a_time_below_a_nanosecond_is_nothing_and_a_share_below_a_tenth_of_a_per_cent_is_said_to_be_less() -> None:
    assert (Column("x", unit="s").text(0.9e-9), Column("x", unit="s").text(-0.9e-9)) == ("0 s", "0 s")
    assert Column("x", unit="s").text(1.1e-9) == "1.1 ns"
    assert (Column("x", unit="fraction").text(0.9e-3), Column("x", unit="fraction").text(-0.9e-3)) == (
        "<0.1 %",
        ">-0.1 %",
    )
    assert (Column("x", unit="fraction").text(0.0), Column("x", unit="fraction").text(1e-9)) == ("0 %", "0 %")
    assert Column("x", unit="fraction").text(1.1e-3) == "0.1 %"


def test_a_column_in_which_no_row_says_anything_is_not_shown() -> None:
    report = Report("x", (Column("a"), Column("b")), [{"a": 1, "b": None}, {"a": 2, "b": math.nan}])
    assert [column.key for column in report.shown_columns()] == ["a"]


def test_notebook_tables_escape_their_text() -> None:
    shown = REPORT._repr_html_()
    assert "<td>a&lt;b</td>" in shown
    assert "<td>1 ms</td>" in shown
    assert "<caption>Title</caption>" in shown
    assert "hidden" not in shown


def test_rows_for_people_may_be_fewer_and_in_another_order_while_json_has_all() -> None:
    rows = [{"name": "same", "time_s": 1.0}, {"name": "slower", "time_s": 2.0}]
    report = Report("x", (Column("name"), Column("time_s", unit="s")), rows, people_rows=rows[1:])
    assert report.shown_rows == rows[1:]
    assert "same" not in report._repr_html_()
    assert report.as_json()["rows"] == rows
    assert Report("x", (), rows).shown_rows == rows


def test_the_decision_is_a_sentence_for_people() -> None:
    report = Report("x", (Column("a"),), [{"a": 1}], notes=("A note.",), decision="Do it.")
    assert "<p>Do it.</p><p>A note.</p>" in report._repr_html_()
    assert report.as_json()["notes"] == ["A note."]


def test_json_keeps_letters_of_every_alphabet() -> None:
    document = Report("x", (Column("name"),), [{"name": "µ-kernel"}]).json_text()
    assert "µ-kernel" in document
    assert json.loads(document)["rows"] == [{"name": "µ-kernel"}]


def test_a_result_is_reported_by_the_room_of_its_class(simple_gpu: Hardware) -> None:
    search = report.dispatch(object)  # what runs before the room's reports are loaded
    assert search(simple_gpu).rows == report(simple_gpu).rows
    gemm = Gemm(m=1, n=1, k=1)  # of a room without reports
    for unknown, kind in ((3.0, "float"), ([], "list"), ([3.0], "float"), ((3,), "int"), (gemm, "Gemm")):
        with pytest.raises(TypeError, match=f"^{kind} has no report"):
            report(unknown)


def test_a_long_name_is_shortened_to_its_two_ends() -> None:
    name = "".join(chr(ord("a") + index % 26) for index in range(60))
    short = short_name(name)
    assert len(short) == 48
    first, last = short.split("...")
    assert name.startswith(first)
    assert name.endswith(last)
    assert short_name("relu") == "relu"
    assert short_name(name[:48]) == name[:48]
    assert short_name(name[:49]) != name[:49]


def test_an_object_of_a_plain_module_has_no_report() -> None:
    with pytest.raises(TypeError, match="UsageError has no report"):
        report(UsageError("wrong"))


def test_a_report_prints_as_the_table_of_the_commands_and_shows_in_a_line() -> None:
    found = Report("analyze", (Column("name"), Column("time_s", "time", "s")), [{"name": "a", "time_s": 2e-6}])
    assert str(found).splitlines() == ["name  time", "a     2 us"]
    assert repr(found) == "<Report of analyze: name a, time 2 us>"
    assert repr(Report("analyze", found.columns, [*found.rows, *found.rows])) == "<Report of analyze: 2 rows>"
